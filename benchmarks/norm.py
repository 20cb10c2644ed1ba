"""What an unknown norm costs: regret with a guess of ‖f‖ that is doubled when refuted, over regret with the norm itself.

    python benchmarks/norm.py [--seeds 10] [--steps 300] [--norm 10]

1,000 arms uniform on [0, 1]², f = Σ a_j k(·, c_j) of the norm given, RBF kernel of lengthscale 0.2, noise 0.1, λ = 0.01, BKB
with `Certified`. "covered" counts runs in which f lay within μ̃ ± β̃σ̃ at all arms and steps, "disjoint" those in which the
intervals of an arm, of all steps with one guess, had nothing in common: they would refute it as well.
"""

import argparse

import numpy as np

import manyarms as ma

NOISE, FACTORS = 0.1, (1 / 64, 1 / 8, 1 / 2, 1.0, 4.0, 16.0)
KERNEL = ma.kernels.RBF(0.2)


def problem(norm, seed):
    rng = np.random.default_rng([seed, 5])
    arms, centres, a = rng.random((1000, 2)), rng.random((12, 2)), rng.standard_normal(12)
    a *= norm / np.sqrt(a @ KERNEL(centres, centres) @ a)
    return arms, KERNEL(arms, centres) @ a


def run(radius, norm, steps, seed):
    """Regret, the last norm in use, whether f was always covered, and whether intervals with one guess were disjoint."""
    arms, f = problem(norm, seed)
    rng, policy = (
        np.random.default_rng([seed, 6]),
        ma.BKB(arms, KERNEL, regularization=NOISE**2, confidence=radius, seed=seed),
    )
    regret, covered, disjoint, guess = 0.0, True, False, None
    for _ in range(steps):
        chosen = policy.choose()
        policy.observe(chosen, f[chosen] + NOISE * rng.standard_normal(1))
        regret += f.max() - float(f[chosen][0])
        mean, _, ucb = policy.scores()
        covered &= bool((np.abs(f - mean) <= (ucb - mean) + 1e-9).all())
        if guess != policy.evidence.norm:
            guess, low, high = (
                policy.evidence.norm,
                np.full(len(f), -np.inf),
                np.full(len(f), np.inf),
            )
        if guess is not None:
            low, high = np.maximum(low, 2 * mean - ucb), np.minimum(high, ucb)
            disjoint |= bool((low > high).any())
    return regret, policy.evidence.norm or radius.norm, covered, disjoint


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--norm", type=float, default=10.0)
    options = parser.parse_args()
    F, seeds = options.norm, range(options.seeds)
    known = [run(ma.Certified(F, NOISE), F, options.steps, seed) for seed in seeds]
    uniform = [
        options.steps * float(np.mean(f.max() - f)) for _, f in (problem(F, seed) for seed in seeds)
    ]
    regret, covered = np.median([r for r, *_ in known]), sum(c for _, _, c, _ in known)
    print(
        f"norm {F:g} known: regret {regret:.1f} ({np.median(uniform):.1f} by chance), covered {covered}/{len(known)}"
    )
    print(
        "first guess   regret over known (geometric mean, worst)   norm at the end (median)   covered   disjoint"
    )
    for factor in FACTORS:
        runs = [
            run(ma.Certified(factor * F, NOISE, double=True), F, options.steps, seed)
            for seed in seeds
        ]
        ratios = np.array([mine[0] / theirs[0] for mine, theirs in zip(runs, known, strict=True)])
        norm, inside, apart = (
            np.median([run[1] for run in runs]),
            sum(run[2] for run in runs),
            sum(run[3] for run in runs),
        )
        print(
            f"{factor:>8.3f}·F   {np.exp(np.log(ratios).mean()):10.2f} {ratios.max():10.2f} {norm:27.3g} "
            f"{inside:20d}/{len(runs)} {apart:8d}/{len(runs)}",
            flush=True,
        )
