"""Experiment 3: sketches of fixed size fail where adaptive ones do not; and one arm that is not linear."""

import numpy as np
import pictures
from publishing import Options, played, publish
from summary import at, exponent, finished, interval, late, names, of, relative

SYSTEMS = ["bkb", "gpucb", "oful", "soful-ucb", "soful-ts", "cbrap"]
TEXT = """\
Unit vectors in 100 dimensions whose spectrum decays fast (2⁻ʲ) or is flat; and Ghosh, Chowdhury and Gopalan's
single arm that is far better than a linear model says, for a linear kernel and for one that has room for it. Regret
that is linear in t is a level line in the picture, a share in the second half that does not fall, an exponent of 1.
SOFUL and CBRAP have a quarter of the columns as their size. {horizon:,} steps, {seeds} seeds, 95 % intervals.

{found}"""
FOUND = "On {problem} regret grows in the second half like t to the power of {exponents}."


def experiment(options: Options) -> None:
    """Regret curves, and how regret grows at the end."""
    problems = ["linear-fast", "linear-heavy", "misspecified", "misspecified-rich"]
    problems = options.scale([f"{name}:n_arms=40,d=4" for name in problems], problems)
    horizon, seeds = options.size((60, 2), (10_000, 5))
    records = finished(played(options, SYSTEMS, problems, horizon, seeds))
    rows = []
    for spec in problems:
        for system in names(of(records, problem=spec), "system"):
            mine = of(records, problem=spec, system=system)
            rows.append(
                {
                    "problem": spec,
                    "system": system,
                    "regret / uniform": interval(map(relative, mine)),
                    "second half alone": interval(map(late, mine)),
                    "exponent of R_t there": interval(map(growth, mine)),
                    "seconds": interval([kept["seconds"] for kept in mine]).mean,
                }
            )

    def draw(axes):
        for ax, spec in zip(axes, problems, strict=True):
            ax.set_title(spec)
            pictures.curves(ax, of(records, problem=spec))

    pictures.panels(len(problems), 2, options.output / "tails.png", draw)
    text = TEXT.format(
        horizon=horizon, seeds=seeds, found=" ".join(found(rows, spec) for spec in problems)
    )
    publish(
        options,
        "tails",
        "Where a sketch of fixed size fails",
        text,
        {"Linear problems": rows},
        ["tails.png"],
    )


def found(rows: list[dict], spec: str) -> str:
    """How regret grows on one problem, in words."""
    here = {
        row["system"]: max(0.0, row["exponent of R_t there"].mean)
        for row in rows
        if row["problem"] == spec
    }
    return FOUND.format(
        problem=spec,
        exponents=", ".join(f"{value:.2f} ({system})" for system, value in here.items()),
    )


def growth(kept: dict) -> float:
    """The exponent of R_t in the second half of a run."""
    steps = np.linspace(kept["completed"] / 2, kept["completed"], 20)
    return exponent(steps, [at(kept, "regret", step) for step in steps])
