"""Experiment 4: what seconds, bytes, |W| and regret grow with, as fitted exponents beside those of theory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pictures
from publishing import Options, played, publish
from summary import Interval, at, exponent, finished, interval, names, of

SYSTEMS = ["bkb", "algorithm1", "gpucb"]
PROVED = ["bkb-certified", "gpucb-certified"]
LENGTHSCALE = 0.7
THEORY = {
    "linear-heavy": ("d = 10", 0.5, 0.0),
    "rkhs": ("RBF, d = 2", 0.5, 0.0),
    "matern": ("Matérn-5/2, d = 2", 0.5 + 2 / 7, 2 / 7),
}
"""A name, and exponents up to logarithms: of the bound √T·γ_T on regret, and of γ_T, by which |W| grows.

γ_T is d ln T for a linear kernel, (ln T)^(d+1) for RBF, T^(d/(2ν+d)) for Matérn (Vakili, Khezeli and Picheny 2021)."""
TEXT = """\
RKHS draws in four dimensions, up to {horizon:,} steps: against the number of arms A; against the steps T
(A = {standard:,}, the last four doublings of {longest:,} steps); against the effective dimension and |W| at the end
(A = {standard:,}, lengthscales {lengthscales}). The paper has O(A·m²) operations a step for Algorithm 1, and
m = Õ(d_eff) arms in S. Exponents are b of y = a·xᵇ by least squares on logarithms, a fit a seed, with 95 % intervals
over {seeds} seeds. Runs that the limit of {limit:g} s of the processor stopped count for T only. Bytes are those of the
arrays that a policy holds, beside its table.

Regret is that of `Certified` at A = {standard:,}, fitted on the last four doublings of {longest:,} steps. Theory bounds
it from above, for the hardest f of its norm: a smaller exponent is no contradiction."""

Points = list[tuple[float, float]]
Series = dict[str, list[Points]]


def experiment(options: Options) -> None:
    """Panels, and tables of exponents."""
    sizes = options.scale([50, 100], [1_000, 3_162, 10_000, 31_623, 100_000])
    lengthscales = options.scale([0.5, 0.3], [0.7, 0.45, 0.3, 0.22, 0.16])
    standard, longest = options.scale((100, 32), (2_000, 4_000))
    horizon, seeds = options.size((16, 1), (500, 5))

    def runs(n_arms: list[int], lengthscales: list[float], horizon: int) -> list[dict]:
        specs = [f"rkhs:d=4,n_arms={n},lengthscale={ell}" for n in n_arms for ell in lengthscales]
        return finished(played(options, SYSTEMS, specs, horizon, seeds))

    regret = regrets(options, standard, longest, seeds)
    by_steps = runs([standard], [LENGTHSCALE], longest)
    by_dimension = whole(runs([standard], lengthscales, horizon))
    by_arms = whole(runs(sizes, [LENGTHSCALE], horizon))
    series = {
        ("A", "seconds"): by_seed(by_arms, lambda kept: [(arms(kept), kept["seconds"])]),
        ("T", "seconds"): by_seed(by_steps, lambda kept: doublings(kept, "elapsed")),
        ("d_eff", "seconds"): by_seed(by_dimension, pair("effective dimension", "seconds")),
        ("|W|", "seconds"): by_seed(by_dimension, pair("inducing", "seconds")),
        ("d_eff", "|W|"): by_seed(by_dimension, pair("effective dimension", "inducing")),
        ("A", "bytes"): by_seed(by_arms, lambda kept: [(arms(kept), kept["bytes"])]),
        ("|W|", "bytes"): by_seed(by_dimension, pair("inducing", "bytes")),
    }
    fits = {name: all_fitted(found) for name, found in series.items()}
    rows = []
    for system in SYSTEMS:
        exponents = {f"{y} by {x}": fits[x, y].get(system, "–") for x, y in series}
        rows.append({"system": system, **exponents})

    def draw(axes: list[Any]) -> None:
        for ax, (name, found) in zip(axes, series.items(), strict=False):
            pictures.growth(ax, found, fits[name], name)
        ours = of(regret, system=PROVED[0])
        curves = by_seed(ours, lambda kept: doublings(kept, "regret"), "problem")
        pictures.growth(axes[-1], curves, all_fitted(curves), ("T", "regret, Certified"))

    pictures.panels(8, 4, options.output / "growth.png", draw)
    settings = {"horizon": horizon, "standard": standard, "longest": longest, "seeds": seeds}
    listed = ", ".join(map(str, lengthscales))
    text = TEXT.format(lengthscales=listed, limit=options.limit, **settings)
    tables = {"Fitted exponents": rows, "Regret and |W| against T": regret_rows(regret)}
    publish(options, "growth", "What grows with what", text, tables, ["growth.png"])


def regrets(options: Options, n_arms: int, horizon: int, seeds: int) -> list[dict]:
    """Runs with the proved radius, on a linear, an RBF and a Matérn problem."""
    dimensions = {"linear-heavy": "d=10", "rkhs": "d=2", "matern": "d=2"}
    specs = [f"{name}:{d},n_arms={n_arms}" for name, d in dimensions.items()]
    return finished(played(options, PROVED, specs, horizon, seeds))


def regret_rows(records: list[dict]) -> list[dict]:
    """Exponents of regret and of |W| against T, beside those of theory."""
    rows = []
    for spec in names(records, "problem"):
        kind, upper, gain = THEORY[spec.partition(":")[0]]
        for system in names(of(records, problem=spec), "system"):
            mine = of(records, problem=spec, system=system)
            sized = [kept for kept in mine if kept["inducing"]]
            rows.append(
                {
                    "system": system,
                    "problem": f"{spec.partition(':')[0]}, {kind}",
                    "R_T": interval(kept["regret"][-1] for kept in mine),
                    "steps": min(kept["completed"] for kept in mine),
                    "exponent of R_T": fitted([doublings(kept, "regret") for kept in mine]),
                    "bound": upper,
                    "|W|": interval(kept["inducing"] for kept in sized) if sized else "–",
                    "exponent of |W|": fitted([doublings(kept, "sizes") for kept in sized]),
                    "γ_T": gain,
                }
            )
    return rows


def whole(records: list[dict]) -> list[dict]:
    """Runs that were not stopped."""
    return [kept for kept in records if kept["completed"] == kept["horizon"]]


def arms(kept: dict) -> float:
    """A."""
    return float(kept["config"]["arms"][0])


def pair(x: str, y: str) -> Callable[[dict], Points]:
    """A point of a run; none where the system has no W."""
    return lambda kept: [(kept[x], kept[y])] if kept[x] and kept[y] else []


def by_seed(records: list[dict], points: Callable[[dict], Points], key: str = "system") -> Series:
    """For every system, or problem, the points of its runs with each seed."""
    found = {
        name: [
            [point for kept in of(records, **{key: name}, seed=seed) for point in points(kept)]
            for seed in names(of(records, **{key: name}), "seed")
        ]
        for name in names(records, key)
    }
    return {name: seeds for name, seeds in found.items() if any(seeds)}


def doublings(kept: dict, key: str) -> Points:
    """Steps, and `elapsed`, `regret` or `sizes` until then, over the last four doublings of a run."""
    steps = np.geomspace(kept["completed"] / 16, kept["completed"], 9)
    return [(float(step), at(kept, key, step)) for step in steps]


def all_fitted(series: Series) -> dict[str, Interval | str]:
    """The exponent of every line."""
    return {name: fitted(points) for name, points in series.items()}


def fitted(points: list[Points]) -> Interval | str:
    """The exponent, a fit a seed."""
    fits = [exponent(*zip(*one, strict=True)) for one in points if len({x for x, _ in one}) > 1]
    return interval(fits) if fits else "–"
