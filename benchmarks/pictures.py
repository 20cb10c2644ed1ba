"""Pictures of runs: curves with intervals, regret against time, growth."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from summary import against, finished, interval, names, of, relative
from systems import SYSTEMS

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6e6e6e", "#000000")
DASHES = ("-", "--", ":", "-.")
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "legend.frameon": False,
}
FAMILIES = {
    "BKB and its kin": (
        "bkb",
        "bkb-certified",
        "algorithm1",
        "incremental",
        "insertion",
        "batch-bkb",
        "batch-bkb-local",
        "ts-sketch",
        "ei-sketch",
        "pi-sketch",
    ),
    "exact": (
        "gpucb",
        "gpucb-certified",
        "supkernelucb",
        "mini-ucb",
        "mini-ei",
        "mini-ts",
        "ei",
        "pi",
    ),
    "fixed sketches": ("sor", "dtc", "rff-ucb", "rff-ts", "qff-ucb", "qff-ts"),
    "linear": ("bkb-linear", "oful", "soful-ucb", "soful-ts", "cbrap"),
}
"""The others are simple rules."""


def panels(
    n: int,
    columns: int,
    path: Path,
    draw: Callable[[list[Axes]], None],
    size: tuple[float, float] = (4.6, 3.6),
) -> None:
    """A figure of n panels, drawn and saved."""
    rows = -(-n // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for ax in axes:
            ax.grid(color="#e6e6e6", linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
        for ax in axes[n:]:
            ax.remove()
        draw(axes[:n])
        figure.savefig(path, dpi=130)


def style(at: int) -> dict:
    """A colour and a dash for the system of this number."""
    return {"color": COLOURS[at % len(COLOURS)], "ls": DASHES[at // len(COLOURS) % len(DASHES)]}


def curves(ax: Axes, records: list[dict]) -> None:
    """Mean over seeds of R_t/R_t of uniform play, with a 95 % interval, one problem."""
    systems = names(records, "system")
    for system in systems:
        mine, number = (
            of(finished(records), system=system),
            list(SYSTEMS).index(system),
        )  # one style in all panels
        if not mine:
            ax.plot([], [], label=system, **style(number))
            continue
        steps = np.unique(np.geomspace(10, min(kept["completed"] for kept in mine), 60).astype(int))
        shown = [interval([relative(kept, step) for kept in mine]) for step in steps]
        band(ax, steps, shown, system, number)
    ax.axhline(1.0, color="#6e6e6e", lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="regret / regret of uniform play")
    if _is_first(ax):
        ax.legend(
            fontsize=8 if len(systems) < 8 else 6, ncols=1 + len(systems) // 8, loc="lower left"
        )


def band(ax: Axes, x: np.ndarray, shown: Iterable, label: str, number: int) -> None:
    """A line through means and a band of their intervals."""
    mean, low, high = np.array(list(shown)).T
    ax.fill_between(
        x, np.maximum(low, 1e-3 * mean), high, color=style(number)["color"], alpha=0.2, linewidth=0
    )
    ax.plot(x, mean, label=label, lw=1.5, **style(number))


def regret_against_time(ax: Axes, records: list[dict]) -> None:
    """A point a system, one problem: both over those of BKB after as many steps; those stopped early are hollow."""
    points, bkb = [], of(finished(records), system="bkb")
    for system in names(records, "system"):
        mine = of(finished(records), system=system)
        if not mine or not bkb:
            continue
        x, y = (interval(against(mine, bkb, key), ratio=True) for key in ("elapsed", "regret"))
        whole = all(kept["completed"] == kept["horizon"] for kept in mine)
        colour = COLOURS[family(system)]
        errors = [[[value.mean - value.low], [value.high - value.mean]] for value in (x, y)]
        ax.errorbar(x.mean, y.mean, yerr=errors[1], xerr=errors[0], color=colour, lw=0.7, alpha=0.7)
        ax.plot(
            x.mean,
            y.mean,
            "o",
            ms=9 if system == "bkb" else 5,
            color=colour,
            mfc=colour if whole else "white",
        )
        points.append((x.mean, y.mean, system, colour))
    ax.set(xscale="log", yscale="log", xlabel="time / BKB's", ylabel="regret / BKB's")
    ax.axhline(1.0, color="#6e6e6e", lw=0.8, ls=":")
    ax.axvline(1.0, color="#6e6e6e", lw=0.8, ls=":")
    for limits, values in (
        (ax.set_xlim, [x for x, *_ in points]),
        (ax.set_ylim, [y for _, y, *_ in points]),
    ):
        limits(
            min(values, default=1.0) / 1.6, 3.5 * max(values, default=1.0)
        )  # intervals of few seeds may be wide
    _label(ax, points)
    if _is_first(ax):
        _family_legend(ax)


def family(system: str) -> int:
    """The number of the family of a system."""
    return next(
        (number for number, members in enumerate(FAMILIES.values()) if system in members),
        len(FAMILIES),
    )


def _is_first(ax: Axes) -> bool:
    place = ax.get_subplotspec()
    return place is not None and place.is_first_row() and place.is_first_col()


def _family_legend(ax: Axes) -> None:
    """What the colours of `regret_against_time` mean."""
    for number, name in enumerate([*FAMILIES, "simple rules"]):
        ax.plot([], [], "o", color=COLOURS[number], label=name)
    ax.legend(fontsize=7, loc="lower left")


def _label(ax: Axes, points: list[tuple[float, float, str, str]]) -> None:
    """Names right of their points, moved up where they would lie on one another."""
    ax.figure.canvas.draw()
    taken: list[tuple[float, float]] = []
    for x, y, name, colour in sorted(points, key=lambda point: point[1]):
        px, py = ax.transData.transform((x, y))
        start = py
        while any(abs(px - qx) < 90 and abs(py - qy) < 11 for qx, qy in taken):
            py += 3
        taken.append((px, py))
        offset = (6, (py - start) * 72 / ax.figure.dpi - 2.5)
        ax.annotate(
            name,
            (x, y),
            offset,
            textcoords="offset points",
            fontsize=6.5,
            color=colour,
            annotation_clip=False,
        )


def growth(
    ax: Axes,
    series: dict[str, list[list[tuple[float, float]]]],
    exponents: Mapping[str, object],
    labels: tuple[str, str],
) -> None:
    """One thing against another: a line a seed, its points marked."""
    for number, (system, seeds) in enumerate(series.items()):
        for at, points in enumerate(seeds):
            x, y = zip(*sorted(points), strict=True)
            label = f"{system}: {exponents[system]}" if at == 0 else None
            ax.plot(x, y, "o-", ms=3, lw=0.9, color=style(number)["color"], label=label)
    ax.set(xscale="log", yscale="log", xlabel=labels[0], ylabel=labels[1])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.legend(fontsize=7, title="exponents")
