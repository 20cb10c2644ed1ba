"""A step by expected improvement beside a step by upper confidence bounds, at a million arms.

    python benchmarks/improvement.py [--arms 1000000] [--steps 400] [--repeats 3]

Two policies see the same observations: at every step both choose, and both observe the arm that one
of them, the leader, has chosen. Processor milliseconds of a step, choose and observe, with one
BLAS thread: medians and sums of all steps after the first pass over all arms. The arm of expected
improvement is also compared with that of scoring all arms, at every tenth step.
"""

import argparse
from time import process_time
from typing import Any

import numpy as np
from core import KERNELS, LARGE, NOISE, problem

import manyarms as ma
from manyarms.baselines.improvement import Improvement
from manyarms.search.scores import best_of

AFTER = 2
"""Steps that are not counted: the first arm is drawn, and the second choice makes the first pass."""
CHECKED = 10
"""Every so many steps the choice is compared with full scoring."""


def by_full_scoring(policy: Any) -> int:
    """The arm of largest expected improvement, from the scores of all arms."""
    mean, variance, _ = policy.scores()
    best = float(mean[policy.log.pulled].max())
    return best_of(*Improvement(best, policy.beta)(mean, np.sqrt(variance)))


def run(kernel_name: str, leader: str, n: int, steps: int, seed: int) -> dict[str, Any]:
    """Milliseconds of each policy at each step, and how often the full scoring chose otherwise."""
    X, f, _ = problem(n, kernel_name, seed)
    kernel = KERNELS[kernel_name][1]
    policies = {
        "ucb": ma.BKB(X, kernel, regularization=NOISE**2, seed=seed),
        "ei": ma.baselines.SketchEI(X, kernel, regularization=NOISE**2, seed=seed),
    }
    rng = np.random.default_rng([seed, 1])
    spent = {name: np.zeros(steps) for name in policies}
    different = 0
    for t in range(steps):
        chosen = {}
        for name, policy in policies.items():
            start = process_time()
            chosen[name] = policy.choose()
            spent[name][t] += process_time() - start
        if t and t % CHECKED == 0:
            different += int(chosen["ei"][0] != by_full_scoring(policies["ei"]))
        arm = chosen[leader]
        y = f[arm] + NOISE * rng.normal(size=1)
        for name, policy in policies.items():
            start = process_time()
            policy.observe(arm, y)
            spent[name][t] += process_time() - start
    counted = {name: 1e3 * seconds[AFTER:] for name, seconds in spent.items()}
    return {"ms": counted, "different": different, "m": len(policies["ei"].belief.w)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=10**6)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print("kernel | leader | m | ms a step, UCB | EI | ratio | s in all, UCB | EI | ratio | differ")
    for kernel_name in LARGE:
        for leader in ("ucb", "ei"):
            runs = [
                run(kernel_name, leader, given.arms, given.steps, seed)
                for seed in range(given.repeats)
            ]
            ucb = np.median([np.median(one["ms"]["ucb"]) for one in runs])
            ei = np.median([np.median(one["ms"]["ei"]) for one in runs])
            all_ucb = np.median([one["ms"]["ucb"].sum() for one in runs]) / 1e3
            all_ei = np.median([one["ms"]["ei"].sum() for one in runs]) / 1e3
            m = int(np.median([one["m"] for one in runs]))
            different = sum(one["different"] for one in runs)
            print(
                f"{kernel_name} | {leader} | {m} | {ucb:.3f} | {ei:.3f} | {ei / ucb:.2f} | "
                f"{all_ucb:.2f} | {all_ei:.2f} | {all_ei / all_ucb:.2f} | {different}",
                flush=True,
            )


if __name__ == "__main__":
    main()
