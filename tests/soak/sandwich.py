"""Theorem 1 in many runs: the sketched variance within a factor of 3 of the exact one at every step.

    python -m soak.sandwich [--seeds 1000]

A run of 30 steps holds where 1/3 ≤ σ̃²/σ² ≤ 3 at every arm after every step and the dictionary is within its bound (ε = ½,
δ = 0.1, the oversampling of the theorem). At least 1 − δ of the runs must.
"""

import argparse

from problems import RKHSProblem

import manyarms as ma
from manyarms.diagnostics import dictionary_size_bound, effective_dimension

EPSILON = 0.5
DELTA = 0.1
HORIZON = 30
KERNEL = ma.kernels.RBF(0.15)


def theorem_one_holds(seed: int) -> bool:
    """Whether the run of this seed is as Theorem 1 says."""
    q = ma.oversampling_for(EPSILON, DELTA, HORIZON)
    problem = RKHSProblem(KERNEL, n_arms=60, noise=1.0, seed=seed)
    bkb = ma.BKB(problem.arms, KERNEL, rule=ma.Sampled(q), regularization=1.0, seed=seed)
    exact = ma.GPUCB(problem.arms, KERNEL, regularization=1.0, seed=seed)
    pulls: list[int] = []
    for _ in range(HORIZON):
        arms = bkb.choose()
        rewards = problem.pull(arms)
        bkb.observe(arms, rewards)
        exact.observe(arms, rewards)
        pulls += arms.tolist()
        ratio = bkb.scores().variance / exact.scores().variance
        d_eff = effective_dimension(problem.arms[pulls], KERNEL, 1.0)
        size = dictionary_size_bound(EPSILON, q, d_eff, 1.0, 1.0)
        if ratio.min() < 1 / 3 or ratio.max() > 3 or len(bkb.belief.dictionary) > size:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000)
    seeds = parser.parse_args().seeds
    held = sum(map(theorem_one_holds, range(seeds)))
    print(f"Theorem 1 held in {held} of {seeds} runs")
    if held < (1 - DELTA) * seeds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
