"""Experiment 4: seconds against the number of arms A, the steps T and the effective dimension d_eff, with fitted exponents."""

import numpy as np
import pictures
from publishing import Options, played, publish
from summary import Interval, at, exponent, finished, interval, names, of

SYSTEMS = ["bkb", "batch-bkb", "algorithm1", "gpucb", "ts-sketch"]
LENGTHSCALE = 0.7
TEXT = """\
Seconds of a run on RKHS draws in four dimensions: against the number of arms A (T = {horizon:,}); against the steps T
(A = {standard:,}, the last four doublings of {longest:,} steps); against the effective dimension at the end (A =
{standard:,}, T = {horizon:,}, lengthscales {lengthscales}). Exponents are b of seconds = a·xᵇ by least squares on
logarithms, a fit a seed, with 95 % intervals over {seeds} seeds. Runs that the limit of {limit:g} s stopped count for T
only."""

Points = list[tuple[float, float]]


def experiment(options: Options) -> None:
    """Three panels, and a table of exponents."""
    sizes = options.scale([50, 100], [1_000, 3_162, 10_000, 31_623, 100_000])
    lengthscales = options.scale([0.5, 0.3], [0.7, 0.45, 0.3, 0.22, 0.16])
    standard, longest = options.scale((100, 32), (10_000, 8_000))
    horizon, seeds = options.size((16, 1), (1_000, 3))

    def runs(n_arms: list[int], lengthscales: list[float], horizon: int) -> list[dict]:
        specs = [f"rkhs:d=4,n_arms={n},lengthscale={ell}" for n in n_arms for ell in lengthscales]
        return finished(played(options, SYSTEMS, specs, horizon, seeds))

    def whole(records: list[dict]) -> list[dict]:
        return [kept for kept in records if kept["completed"] == kept["horizon"]]

    series = {
        "A": by_seed(whole(runs(sizes, [LENGTHSCALE], horizon)), lambda kept: [(kept["config"]["arms"][0], kept["seconds"])]),
        "T": by_seed(runs([standard], [LENGTHSCALE], longest), last_doublings),
        "d_eff": by_seed(
            whole(runs([standard], lengthscales, horizon)), lambda kept: [(kept["effective dimension"], kept["seconds"])]
        ),
    }
    fits = {name: {system: fitted(points) for system, points in found.items()} for name, found in series.items()}
    measured = [system for system in SYSTEMS if any(system in found for found in series.values())]
    rows = [{"system": system, **{name: found.get(system, "–") for name, found in fits.items()}} for system in measured]

    def draw(axes):
        for ax, (name, found) in zip(axes, series.items(), strict=True):
            pictures.growth(ax, found, fits[name], name)

    pictures.panels(3, 3, options.output / "growth.png", draw)
    settings = {"horizon": horizon, "standard": standard, "longest": longest, "seeds": seeds, "limit": options.limit}
    text = TEXT.format(lengthscales=", ".join(map(str, lengthscales)), **settings)
    publish(options, "growth", "What grows with what", text, {"Fitted exponents of the seconds": rows}, ["growth.png"])


def by_seed(records: list[dict], points) -> dict[str, list[Points]]:
    """For every system, the points of its runs with each seed."""
    return {
        system: [
            [point for kept in of(records, system=system, seed=seed) for point in points(kept)]
            for seed in names(of(records, system=system), "seed")
        ]
        for system in names(records, "system")
    }


def last_doublings(kept: dict) -> Points:
    """Steps, and seconds until then, of a run."""
    steps = np.geomspace(kept["completed"] / 16, kept["completed"], 9)
    return [(float(step), at(kept, "elapsed", step)) for step in steps]


def fitted(points: list[Points]) -> Interval | str:
    """The exponent, a fit a seed."""
    fits = [exponent(*zip(*one, strict=True)) for one in points if len({x for x, _ in one}) > 1]
    return interval(fits) if fits else "–"
