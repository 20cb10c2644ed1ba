"""Ada-BKB with the constants of theory on functions of known RKHS norm: is a cell with the maximum dropped, and how many are?

    python benchmarks/cells.py --seeds 100                             # 100 of one dimension and 100 of two
    python benchmarks/cells.py --seeds 100 --dimension 2 --depth 10    # smaller cells

A cell is a leaf of the tree at the end, or one that was dropped. The share that is dropped falls with the size of the smallest
cells: f is flat at its maximum, so about h^(−d/2) cells of side h around it have a bound within h of the maximum.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_tree import PROBLEMS, covers, run


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
    options = parser.parse_args()
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
