"""Ada-BKB with the constants of theory on functions of known RKHS norm: is a cell with the maximum dropped, and how many are?

    python benchmarks/cells.py --seeds 100                             # 100 of one dimension and 100 of two
    python benchmarks/cells.py --seeds 100 --dimension 2 --depth 10    # smaller cells
    python benchmarks/cells.py --functions --seeds 10                  # the regret where the norm is far too small

A cell is a leaf of the tree at the end, or one that was dropped. The share that is dropped falls with the size of the smallest
cells: f is flat at its maximum, so about h^(−d/2) cells of side h around it have a bound within h of the maximum.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from bandits import ackley

import manyarms as ma

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "bandit"))

from test_adabkb import PROBLEMS, covers, on_hartmann, run, searched

DEVIATION = 0.7105
"""Of Ackley's function in five dimensions, on the box below."""


def on_ackley(**options):
    """On [−10, 52.768]⁵, as in the experiments of Ada-BKB's authors, of mean 0 and standard deviation 1."""

    def f(X):
        Y = 62.768 * X - 10
        return -ackley((Y / 32.768 + 1) / 2) / DEVIATION

    return searched(f, 21.412 / DEVIATION, 5, **options)


FUNCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "Hartmann-3": (partial(on_hartmann, 3), 1.0),
    "Hartmann-6": (partial(on_hartmann, 6), 1.0),
    "Ackley-5": (on_ackley, DEVIATION),
}
"""A run of each, and the unit in which its regret is printed: standard deviations, Ackley's own."""


def functions(n_seeds):
    """The smallest regret of 200 pulls with norms that the data refute, and with one that is doubled."""
    radii = {f"F = {norm:g}": ma.Certified(norm, 0.01) for norm in (1.0, 3.0, 10.0)}
    radii["F = 1, doubled"] = ma.Certified(1.0, 0.01, double=True)
    print("| | norm | regret, median (least to largest) | CPU seconds | F at the end |")
    print("|---|---|---|---|---|")
    for name, (search, unit) in FUNCTIONS.items():
        for told, radius in radii.items():
            regrets, seconds, norms = [], [], []
            for seed in range(n_seeds):
                start = process_time()
                policy, regret, _ = search(seed=seed, confidence=radius)
                seconds.append(process_time() - start)
                regrets.append(unit * regret)
                norms.append(f"{policy.norm:g}" + (" (refuted)" if policy.tree.refuted else ""))
            spread = f"{np.median(regrets):.4f} ({min(regrets):.4f} to {max(regrets):.4f})"
            ends = ", ".join(sorted(set(norms)))
            print(f"| {name} | {told} | {spread} | {np.median(seconds):.1f} | {ends} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="of each dimension")
    parser.add_argument(
        "--dimension", type=int, nargs="+", choices=PROBLEMS, default=list(PROBLEMS)
    )
    parser.add_argument(
        "--depth",
        type=int,
        help="splits down to the smallest cells, where not those of the problem",
    )
    parser.add_argument(
        "--functions", action="store_true", help="Hartmann's and Ackley's functions instead"
    )
    options = parser.parse_args()
    if options.functions:
        functions(options.seeds)
    else:
        dropped_cells(options)


def dropped_cells(options):
    """The share of the cells that is dropped where the norm is true, and whether the maximum is lost."""
    for d in options.dimension:
        kernel, noise, norm, horizon, depth = PROBLEMS[d]
        depth = options.depth or depth
        lost, shares, dropped, kept = 0, [], 0, 0
        for seed in range(options.seeds):
            policy, _, best = run(d, seed, depth=depth)
            tree = policy.tree
            lost += not covers(tree, best)
            shares.append(tree.n_dropped / (tree.n_dropped + len(tree.leaves)))
            dropped, kept = dropped + tree.n_dropped, kept + len(tree.leaves)
        print(
            f"{d} dimension(s), {kernel!r}, ‖f‖ = {norm}, noise {noise}, {horizon} observations, depth {depth}, "
            f"{options.seeds} seeds: {lost} lost the maximum; {dropped / (dropped + kept):.0%} of all cells dropped "
            f"(of a run {min(shares):.0%} to {max(shares):.0%}, {sum(shares) / len(shares):.0%} on average)",
            flush=True,
        )


if __name__ == "__main__":
    main()
