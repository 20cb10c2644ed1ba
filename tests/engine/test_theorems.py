"""Theorems 1 and 2 as seeded statistical tests, and the regret of BKB beside exact GP-UCB."""

import numpy as np
import pytest
from problems import RKHSProblem, play
from soak.sandwich import DELTA, EPSILON, KERNEL, theorem_one_holds

import manyarms as ma
from manyarms.diagnostics import (
    Sandwich,
    cumulative_regret,
    effective_dimension,
    random_iterate_regret,
    regret_bound,
    simple_regret,
)
from manyarms.engine.dictionary import inclusion_probability
from manyarms.engine.exact import ExactPosterior

RUNS = 100
pytestmark = pytest.mark.slow


def test_theorem_one_with_its_own_oversampling():
    """σ²/α ≤ σ̃² ≤ ασ² always, and |S_t| within its bound, in at least 90 of 100 runs."""
    held = sum(map(theorem_one_holds, range(RUNS)))
    print(f"Theorem 1 held in {held} of {RUNS} runs")
    assert held >= 90


def test_the_sandwich_needs_oversampling():
    """The case that can fail: 3,000 distinct arms pulled once each, d_eff ≈ 13.

    Dictionaries are drawn from the exact leverage scores. q̄ = 1 breaks the 3-sandwich in most,
    q̄ = 5 keeps it with fewer than 100 inducing arms.
    """
    arms, kernel = np.random.default_rng(0).random((3000, 1)), ma.kernels.RBF(0.1)
    policy = ma.BKB(arms, kernel, regularization=1.0, rule=ma.Sampled(), seed=0)
    policy.observe(np.arange(3000), np.zeros(3000))
    belief = policy.belief
    seen = belief.seen
    known = ExactPosterior.fit(kernel, seen.rows, seen.counts, seen.sums, 1.0)
    _, exact = known.moments(arms, np.ones(3000))
    rng = np.random.default_rng(1)

    def draw(oversampling):
        S = np.flatnonzero(
            rng.random(3000) < inclusion_probability(exact, np.ones(3000), oversampling)
        )
        ratio = belief.on(S).variance / exact
        return Sandwich(ratio.min(), ratio.max()).holds(EPSILON), len(S)

    scarce, enough = [draw(1.0) for _ in range(20)], [draw(5.0) for _ in range(100)]
    held_scarce, held_enough = sum(held for held, _ in scarce), sum(held for held, _ in enough)
    print(
        f"d_eff {exact.sum():.1f}; sandwich held in {held_scarce} of 20 draws at q̄ = 1, "
        f"{held_enough} of 100 at q̄ = 5"
    )
    assert held_scarce <= 5
    assert held_enough >= 99
    assert max(size for _, size in enough) < 100


def test_weighted_rows_need_the_larger_probability():
    """300 orthogonal arms pulled 20 times each, q̄ = 5.

    A row of weight n that is drawn once keeps the sandwich; one of n pulls that is drawn does not.
    """
    n, pulls, q = 300, 20.0, 5.0
    variance = np.full(n, 1 / (pulls + 1.0))  # of each arm: K = I, λ = 1
    policy = ma.BKB(
        np.arange(float(n))[:, None], ma.kernels.RBF(0.01), regularization=1.0, rule=ma.Sampled(q)
    )
    policy.observe(np.repeat(np.arange(n), int(pulls)), np.zeros(n * int(pulls)))
    rng = np.random.default_rng(0)
    held = {}
    for name, p in {
        "once": inclusion_probability(variance, np.full(n, pulls), q),
        "of n": 1 - (1 - q * variance) ** pulls,
    }.items():
        ratios = [
            policy.belief.on(np.flatnonzero(rng.random(n) < p)).variance / variance
            for _ in range(40)
        ]
        held[name] = sum(Sandwich(ratio.min(), ratio.max()).holds(EPSILON) for ratio in ratios)
    assert held["once"] == 40
    assert held["of n"] <= 30


@pytest.mark.parametrize("radius", [ma.Theory, ma.LogDet])
@pytest.mark.parametrize("sketched", [True, False], ids=["BKB", "GPUCB"])
def test_theorem_two(radius, sketched):
    """In at least 90 of 100 runs f is within μ̃ ± β̃σ̃ always, and then R_T ≤ 2Σβ̃_tσ̃_t(x_{t+1})."""
    horizon, norm, noise = 40, 1.0, 0.5
    q = ma.oversampling_for(EPSILON, DELTA / 2, horizon)
    covered = 0
    for seed in range(RUNS):
        problem = RKHSProblem(KERNEL, n_arms=60, norm=norm, noise=noise, seed=seed)
        options = {
            "regularization": noise**2,
            "confidence": radius(norm, noise, DELTA, epsilon=EPSILON),
            "seed": seed,
        }
        if sketched:
            policy = ma.BKB(problem.arms, KERNEL, rule=ma.Sampled(q), **options)
        else:
            policy = ma.GPUCB(problem.arms, KERNEL, **options)
        inside, regret, bound = True, 0.0, 0.0
        for _ in range(horizon):
            mean, variance, _ = policy.scores()
            width = policy.beta * np.sqrt(variance)
            inside &= bool((np.abs(problem.f - mean) <= width).all())
            arms = policy.choose()
            regret += problem.f.max() - problem.f[arms[0]]
            bound += 2 * width[arms[0]]
            policy.observe(arms, problem.pull(arms))
        covered += inside
        if inside:
            assert regret <= bound
            if sketched and radius is ma.Theory:
                d_eff = effective_dimension(problem.arms, KERNEL, noise**2, policy.counts)
                assert bound <= regret_bound(options["confidence"], horizon, d_eff, 1.0, noise**2)
    print(f"{radius.__name__}: f covered at every step in {covered} of {RUNS} runs")
    assert covered >= 90


def test_intervals_that_are_too_narrow_do_not_cover():
    """The coverage above can fail: half a standard deviation does not contain f."""
    misses = 0
    for seed in range(10):
        problem = RKHSProblem(KERNEL, n_arms=60, noise=0.5, seed=seed)
        policy = ma.BKB(
            problem.arms, KERNEL, regularization=0.25, confidence=ma.Constant(0.5), seed=seed
        )
        play(policy, problem.pull, 20)
        mean, std = policy.predict()
        misses += bool((np.abs(problem.f - mean) > 0.5 * std).any())
    assert misses >= 8


@pytest.mark.parametrize("confidence", [ma.Constant(2.0), ma.Bayes(0.1)], ids=["Constant", "Bayes"])
def test_regret_is_sublinear_and_close_to_exact_gpucb(confidence):
    """Same radius, median of 10 seeds: R_T within 1.2 times that of GPUCB, and R_T/T falling.

    (Under `LogDet` the two radii differ by α and by the sketch's bias, and so does the regret.)
    """
    horizon, ratios, exponents = 400, [], []
    for seed in range(10):
        regrets = []
        for policy in (ma.BKB, ma.GPUCB):
            problem = RKHSProblem(KERNEL, n_arms=300, d=1, norm=3.0, noise=0.3, seed=seed)
            bandit = policy(
                problem.arms, KERNEL, regularization=0.09, confidence=confidence, seed=seed
            )
            values = problem.f[play(bandit, problem.pull, horizon)]
            regrets.append(cumulative_regret(values, problem.f.max()))
            assert (
                simple_regret(values, problem.f.max())[-1]
                <= random_iterate_regret(values, problem.f.max())[-1]
            )
        ratios.append(regrets[0][-1] / regrets[1][-1])
        exponents.append(np.log(regrets[0][-1] / regrets[0][horizon // 4 - 1]) / np.log(4))
    print(
        f"regret against GPUCB: median {np.median(ratios):.3f}; "
        f"R_T grows as T^{np.median(exponents):.2f} from T/4 to T"
    )
    assert np.median(ratios) <= 1.2
    assert np.median(exponents) <= 0.8
