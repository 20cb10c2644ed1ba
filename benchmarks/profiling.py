"""Where the time of one call goes: `make profile CASE=ask|tell|choose`.

    python benchmarks/profiling.py ask [--candidates 60000] [--results 200]

`ask` and `tell` are those of an `Optimizer`, `choose` is that of a bare `BKB`. All see the same random table and the same
smooth function with noise. Some results are told before the profile begins.
"""

import argparse
import cProfile
import pstats
from collections.abc import Sequence

import numpy as np

import manyarms as ma
from manyarms.typing import Array

NOISE = 0.1
ROUNDS = 20
"""Calls profiled."""
SHOWN = 25
"""Functions printed."""


def optimize(profile: cProfile.Profile, case: str, rows: Array, values: Array, n: int) -> None:
    """One round of an optimizer after another; only `ask`, or only `tell`, is profiled."""
    rng = np.random.default_rng(1)
    optimizer = ma.Optimizer(rows, seed=0)
    told = rng.choice(len(rows), n, replace=False)
    optimizer.tell(told, values[told] + NOISE * rng.standard_normal(n))
    for _ in range(ROUNDS):
        ids = profile.runcall(optimizer.ask) if case == "ask" else optimizer.ask()
        results = values[np.asarray(ids, dtype=np.intp)] + NOISE * rng.standard_normal(1)
        if case == "tell":
            profile.runcall(optimizer.tell, ids, results)
        else:
            optimizer.tell(ids, results)


def play(profile: cProfile.Profile, rows: Array, values: Array, n: int) -> None:
    """One round of a bandit after another; only `choose` is profiled."""
    rng = np.random.default_rng(1)
    bandit = ma.BKB(rows, ma.kernels.RBF(0.3), regularization=NOISE**2, seed=0)
    told = rng.choice(len(rows), n, replace=False)
    bandit.observe(told, values[told] + NOISE * rng.standard_normal(n))
    for _ in range(ROUNDS):
        arm = profile.runcall(bandit.choose)
        bandit.observe(arm, values[arm] + NOISE * rng.standard_normal(1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=["ask", "tell", "choose"])
    parser.add_argument("--candidates", type=int, default=60_000, help="rows (%(default)s)")
    parser.add_argument("--results", type=int, default=200, help="told before (%(default)s)")
    options = parser.parse_args(arguments)
    rows = np.random.default_rng(0).random((options.candidates, 6))
    values = np.sin(4 * rows[:, 0]) + np.cos(3 * rows[:, 1]) * rows[:, 2]
    profile = cProfile.Profile()
    if options.case == "choose":
        play(profile, rows, values, options.results)
    else:
        optimize(profile, options.case, rows, values, options.results)
    print(
        f"{ROUNDS} calls of {options.case} with {options.candidates:,} candidates, "
        f"after {options.results} results. By cumulative time:"
    )
    pstats.Stats(profile).sort_stats("cumulative").print_stats(SHOWN)


if __name__ == "__main__":
    main()
