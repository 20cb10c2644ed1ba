"""Thompson sampling: draws have the posterior's mean and variance."""

import numpy as np
import pytest
from problems import RKHSProblem, play
from scipy.stats import kstest

import manyarms as ma
from manyarms.baselines import Thompson
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.1)
LAZY = ma.Tuning(shortlist=8, rough=0, quick=0)


def played(steps=60, **options):
    problem = RKHSProblem(KERNEL, n_arms=300, seed=2)
    policy = Thompson(problem.arms, KERNEL, regularization=0.05, seed=1, **options)
    play(policy, problem.pull, steps)
    return policy


def sample(policy, n):
    """f̃ of all arms, n times."""
    dice = np.random.default_rng(5)
    return np.array([policy.chooser.values(policy._scores, policy.beta, dice) for _ in range(n)])


@pytest.mark.slow
@pytest.mark.parametrize("rule", [ma.Inserted(), ma.Inserted(most=12)], ids=["all that pay", "few"])
@pytest.mark.parametrize("tuning", [ma.Tuning(), LAZY], ids=["dense", "lazy"])
def test_a_draw_has_the_mean_and_the_variance_of_the_posterior(rule, tuning):
    policy = played(rule=rule, tuning=tuning, confidence=ma.Constant(1.5))
    draws = sample(policy, 2000)
    mean, deviation = policy.predict()
    normal = (draws - mean) / (1.5 * deviation)
    np.testing.assert_allclose(normal.mean(axis=0), 0.0, atol=4.5 / np.sqrt(2000))
    np.testing.assert_allclose(normal.var(axis=0), 1.0, atol=4.5 * np.sqrt(2 / 2000))
    for arm in (0, 100, int(np.argmin(deviation)), int(np.argmax(deviation))):
        assert kstest(normal[:, arm], "norm").pvalue > 1e-4


def test_a_draw_has_what_each_arm_has_of_its_own():
    kernel = ma.kernels.Own(KERNEL, 0.2)
    problem = RKHSProblem(KERNEL, n_arms=60, seed=2)
    policy = Thompson(problem.arms, kernel, regularization=0.05, confidence=ma.Constant(1.5))
    policy.observe(np.arange(40), problem.pull(np.arange(40)))
    draws = sample(policy, 2000)
    mean, deviation = policy.predict()
    normal = (draws - mean) / (1.5 * deviation)
    np.testing.assert_allclose(normal.mean(axis=0), 0.0, atol=4.5 / np.sqrt(2000))
    np.testing.assert_allclose(normal.var(axis=0), 1.0, atol=4.5 * np.sqrt(2 / 2000))


def test_draws_of_close_arms_agree_in_the_span_of_the_inducing_arms():
    policy = played(residual=False)
    draws = sample(policy, 2000)
    belief = policy.belief
    Z, r = belief.features(policy.arms, np.ones(300))
    C = belief.factor.folded.C.upper.T
    expected = 0.05 * Z @ np.linalg.solve(C @ C.T, Z.T)  # λ ZV⁻¹Zᵀ
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.1 * expected.max())
    np.testing.assert_allclose(np.diag(expected) + r, policy.predict().std ** 2, atol=1e-9)


def test_without_the_residual_exploration_starves():
    kernel = ma.kernels.RBF(np.sqrt(1 / 200))  # Figure 1's exp(−100 (x − x′)²)
    arms = np.linspace(0, 1, 101)[:, None]
    deviations = []
    for residual in (True, False):
        policy = Thompson(arms, kernel, regularization=0.01, residual=residual)
        policy.observe(np.arange(0, 51, 5), np.zeros(11))
        deviations.append(sample(policy, 500)[:, 90].std())
    assert deviations[0] == pytest.approx(1.0, abs=0.15)
    assert deviations[1] < 1e-3


def test_the_largest_draw_is_chosen():
    policy = played()
    batch = policy.choose(5)
    for number, arm in enumerate(batch):
        dice = policy._chance.at(policy.evidence.n_observations, number)
        assert arm == np.argmax(policy.chooser.values(policy._scores, policy.beta, dice))
    np.testing.assert_array_equal(policy.choose(5), batch)
    assert policy.choose(exclude=[batch[0]]) != batch[0]
    assert np.unique(policy.choose(40)).size > 5


def test_choices_do_not_depend_on_the_memory():
    kept, streamed = played(), played(memory=30_000)
    np.testing.assert_array_equal(kept.counts, streamed.counts)


def test_it_needs_embeddings():
    policy = Thompson(np.arange(5.0)[:, None], KERNEL, rule=ma.Sampled())
    policy.observe(0, 1.0)
    with pytest.raises(ParameterError, match="Inserted"):
        policy.choose()


def test_it_finds_the_best_arm():
    problem = RKHSProblem(KERNEL, n_arms=300, seed=2)
    policy = Thompson(problem.arms, KERNEL, regularization=0.01, seed=1)
    chosen = play(policy, problem.pull, 300)
    assert (problem.f.max() - problem.f[chosen[-100:]]).mean() < 0.1 * (
        problem.f.max() - problem.f.mean()
    )
