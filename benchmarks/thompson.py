"""Experiment 5: Thompson sampling on the sketch against BKB."""

import pictures
from publishing import Options, played, publish
from summary import against, finished, interval, names, of, relative

SYSTEMS = ["bkb", "ts-sketch", "gpucb"]
TEXT = """\
The paper's open question: on BKB's sketch, draw a function from the posterior and pull the arm where it is largest, O(A
m) a step, instead of the arm of largest upper bound. {horizon:,} steps, {seeds} seeds, 95 % intervals; ratios are
geometric means."""


def experiment(options: Options) -> None:
    """Regret curves, and ratios to BKB."""
    problems = options.scale(["gp:n_arms=100,d=1"], ["gp", "rkhs", "hartmann6"])
    horizon, seeds = options.size((40, 2), (2_000, 10))
    records = finished(played(options, SYSTEMS, problems, horizon, seeds))
    rows = []
    for spec in problems:
        here = of(records, problem=spec)
        bkb = of(here, system="bkb")
        for system in names(here, "system"):
            mine = of(here, system=system)
            sizes = [kept["inducing"] for kept in mine if kept["inducing"] is not None]
            rows.append(
                {
                    "problem": spec,
                    "system": system,
                    "regret / uniform": interval(map(relative, mine)),
                    "regret against BKB": interval(against(mine, bkb, "regret"), ratio=True),
                    "time against BKB": interval(against(mine, bkb, "elapsed"), ratio=True),
                    "|W|": interval(sizes).mean if sizes else "–",
                }
            )

    def draw(axes):
        for ax, spec in zip(axes, problems, strict=True):
            ax.set_title(spec)
            pictures.curves(ax, of(records, problem=spec))

    pictures.panels(len(problems), len(problems), options.output / "thompson.png", draw)
    text = TEXT.format(horizon=horizon, seeds=seeds)
    publish(
        options,
        "thompson",
        "Thompson sampling on the sketch",
        text,
        {"Against BKB": rows},
        ["thompson.png"],
    )
