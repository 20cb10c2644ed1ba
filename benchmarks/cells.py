"""Ada-BKB with the constants of theory on functions of known RKHS norm: is a cell with the maximum dropped, and how many are?

    python benchmarks/cells.py --seeds 50        # 50 of one dimension and 50 of two

A cell is a leaf of the tree at the end, or one that was dropped.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_tree import PROBLEMS, covers, run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50, help="of each dimension")
    parser.add_argument("--dimension", type=int, nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    options = parser.parse_args()
    for d in options.dimension:
        kernel, noise, norm, horizon, _ = PROBLEMS[d]
        lost, least, dropped, kept = 0, 1.0, 0, 0
        for seed in range(options.seeds):
            policy, _, best = run(d, seed)
            tree = policy.tree
            lost += not covers(tree, best)
            least = min(least, tree.n_dropped / (tree.n_dropped + len(tree.low)))
            dropped, kept = dropped + tree.n_dropped, kept + len(tree.low)
        print(
            f"{d} dimension(s), {kernel!r}, ‖f‖ = {norm}, noise {noise}, {horizon} observations, {options.seeds} seeds: "
            f"{lost} lost the maximum; {dropped / (dropped + kept):.0%} of the cells dropped (least of a run {least:.0%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
