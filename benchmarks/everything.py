"""Experiment 2: regret and time of every system on three synthetic and three real problems, and the table of all systems."""

import numpy as np
import pictures
from bandits import problem
from publishing import Options, played, publish
from summary import against, finished, interval, names, of, relative
from systems import SYSTEMS

PROBLEMS = ["branin", "rkhs", "hartmann6", "nasbench201", "phoneme", "protein_structure"]
TEXT = """\
Every system is told the same (kernel, λ, radius): {horizon:,} steps, {seeds} seed(s), at most {limit:g} s of the
processor a run, {bkb:g} s for BKB. Systems stopped there are hollow points, and are compared with what BKB had after as
many steps. Ratios are geometric means over problems and seeds with 95 % intervals; below 1 a system is better than BKB.
In the second table regret is over that of uniform play in expectation.

Less regret than BKB on every seed, by 2 % or more: {beaten}."""


def experiment(options: Options) -> None:
    """Regret against time, regret curves, and the table."""
    problems = options.scale(["branin:n_arms=100", "rkhs:n_arms=100,d=1"], PROBLEMS)
    systems = options.scale(["bkb", "batch-bkb", "gpucb", "qff-ucb", "uniform"], list(SYSTEMS))
    horizon, seeds = options.size((40, 2), (10_000, 3))
    records = played(options, systems, problems, horizon, seeds)
    measured = names(records, "system")

    def draw(panel):
        def drawn(axes):
            for ax, spec in zip(axes, problems, strict=True):
                ax.set_title(f"{spec}, {len(problem(spec, 0).arms):,} arms")
                panel(ax, of(records, problem=spec))

        return drawn

    size = len(problems), min(3, len(problems))
    pictures.panels(
        *size, options.output / "everything.png", draw(pictures.regret_against_time), (5.6, 5.4)
    )
    pictures.panels(
        *size, options.output / "everything-curves.png", draw(pictures.curves), (5.6, 4.4)
    )
    longest = max((kept["limit"] for kept in of(records, system="bkb")), default=options.limit)
    text = TEXT.format(
        horizon=horizon,
        seeds=seeds,
        limit=options.limit,
        bkb=longest,
        beaten=beaten(records, problems),
    )
    tables = {
        "Every system": [
            row(system, records)
            for system in sorted(systems, key=lambda system: system not in measured)
        ],
        "Regret over that of uniform play, and seconds": [
            {
                "system": system,
                **{spec: cell(of(records, system=system, problem=spec)) for spec in problems},
            }
            for system in measured
        ],
    }
    publish(
        options,
        "everything",
        "Every system on one runner",
        text,
        tables,
        ["everything.png", "everything-curves.png"],
    )


def row(system: str, records: list[dict]) -> dict:
    """A line of the table of all systems."""
    mine, bkb = of(records, system=system), of(finished(records), system="bkb")
    ratios = [against(finished(mine), bkb, key) for key in ("regret", "elapsed")]
    regret, time = (str(interval(found, ratio=True)) if found else "–" for found in ratios)
    guarantee = SYSTEMS[system].guarantee
    return {
        "system": system,
        "works": works(mine),
        "regret against BKB": regret,
        "time against BKB": time,
        "guarantee": guarantee,
    }


def works(records: list[dict]) -> str:
    """On how many problems, how far, and why not."""
    if not records:
        return "not in this installation"
    ran = finished(records)
    short = [kept for kept in ran if kept["completed"] < kept["horizon"]]
    stopped, refused = names(short, "problem"), [kept for kept in records if "error" in kept]
    said = [
        f"{len(set(names(ran, 'problem')) - set(stopped))} of {len(names(records, 'problem'))} problems"
    ]
    if short:
        said.append(
            f"{len(stopped)} stopped, after {min(kept['completed'] for kept in short):,} steps or more"
        )
    if refused:
        kinds = sorted({kept["error"].split(":")[0] for kept in refused})
        said.append(f"{len(names(refused, 'problem'))} refused ({', '.join(kinds)})")
    return "; ".join(said)


def cell(records: list[dict]) -> str:
    """Relative regret and seconds of one system on one problem."""
    ran = finished(records)
    if not ran:
        return "–"
    done = min(kept["completed"] for kept in ran)
    short = f" (t = {done:,})" if done < ran[0]["horizon"] else ""
    return (
        f"{interval(map(relative, ran))}, {np.mean([kept['seconds'] for kept in ran]):.3g} s{short}"
    )


def beaten(records: list[dict], problems: list[str]) -> str:
    """Where something has less regret than BKB on every seed, in words."""
    said = []
    for spec in problems:
        here = of(finished(records), problem=spec)
        bkb, better = of(here, system="bkb"), []
        for system in names(here, "system"):
            ratios = against(of(here, system=system), bkb, "regret")
            if ratios and max(ratios) < 0.98:
                better.append((interval(ratios, ratio=True).mean, system))
        if better:
            said.append(
                f"on {spec} "
                + ", ".join(f"{system} ({ratio:.2f} of it)" for ratio, system in sorted(better))
            )
    return "; ".join(said) or "nothing, anywhere"
