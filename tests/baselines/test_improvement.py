"""EI and PI: the acquisition against 50 digits and against draws, the incumbent, the choice."""

import numpy as np
import pytest
from extras import needs
from problems import RKHSProblem, play
from scipy.special import ndtr

import manyarms as ma
from manyarms.baselines.improvement import Improvement
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.2)
EXPECTED = [ma.baselines.GPEI, ma.baselines.SketchEI]
PROBABLE = [ma.baselines.GPPI, ma.baselines.SketchPI]


def log_expected_improvement(gain, deviation):
    return Improvement(0.0, 1.0)(gain, deviation)[0]


def dense_expected_improvement(gain, deviation):
    u = gain / deviation
    return gain * ndtr(u) + deviation * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)


def test_the_logarithm_of_expected_improvement_to_fifty_digits():
    mpmath = needs("dev", "mpmath")
    u = np.array([-1e6, -5e3, -1001.0, -999.0, -50.0, -5.0, -1.01, -0.99, 0.0, 0.3, 4.0, 60.0, 1e5])
    with mpmath.workdps(60):

        def exact(x):
            if x > -40:
                return mpmath.log(mpmath.npdf(x) + x * mpmath.ncdf(x))
            series = 1 - 3 / x**2 + 15 / x**4  # φ(u) + uΦ(u) = φ(u)/u² (1 − 3/u² + 15/u⁴ − …)
            return (
                mpmath.log(series) - 2 * mpmath.log(-x) - x**2 / 2 - mpmath.log(2 * mpmath.pi) / 2
            )

        expected = np.array([float(exact(mpmath.mpf(x))) for x in u.tolist()]) + np.log(0.01)
    found = log_expected_improvement(0.01 * u, np.full(len(u), 0.01))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-8)


def test_without_deviation_the_improvement_is_the_gain():
    found = np.exp(
        log_expected_improvement(
            np.array([0.5, 2.0, 0.0, -1.0, 0.1]), np.array([0.0, 0.0, 0.0, 0.0, 1.0])
        )
    )
    np.testing.assert_allclose(found[:2], [0.5, 2.0])
    assert (found[2:4] < 1e-90).all()
    assert np.isfinite(log_expected_improvement(np.zeros(3), np.zeros(3))).all()


def test_expected_improvement_is_a_mean_over_draws():
    draws = 0.3 + 0.8 * np.random.default_rng(0).standard_normal(200_000) - 1.0
    found = np.exp(log_expected_improvement(np.array([-0.7]), np.array([0.8])))
    assert found[0] == pytest.approx(np.maximum(draws, 0).mean(), rel=0.02)


@pytest.mark.parametrize("policy", EXPECTED)
def test_it_chooses_the_largest_expected_improvement_over_the_best_mean_of_the_pulled_arms(policy):
    problem = RKHSProblem(KERNEL, n_arms=90, seed=4)
    bandit = policy(problem.arms, KERNEL, regularization=0.05, confidence=ma.Constant(1.5), seed=0)
    for _ in range(30):
        play(bandit, problem.pull, 1)
        mean, deviation = bandit.predict()
        gain = mean - mean[bandit.counts > 0].max()
        assert bandit.choose()[0] == np.argmax(dense_expected_improvement(gain, 1.5 * deviation))


@pytest.mark.parametrize("policy", PROBABLE)
def test_it_chooses_the_largest_probability_of_improvement(policy):
    problem = RKHSProblem(KERNEL, n_arms=90, seed=4)
    bandit = policy(problem.arms, KERNEL, regularization=0.05, margin=2.0, seed=0)
    for _ in range(30):
        play(bandit, problem.pull, 1)
        mean, deviation = bandit.predict()
        gain = mean - mean[bandit.counts > 0].max()
        assert bandit.choose()[0] == np.argmax((gain - 2.0 * np.sqrt(0.05)) / deviation)


@pytest.mark.parametrize("policy", EXPECTED + PROBABLE)
def test_it_finds_the_best_arm(policy):
    problem = RKHSProblem(KERNEL, n_arms=90, noise=0.02, seed=4)
    bandit = policy(problem.arms, KERNEL, regularization=0.02**2, seed=0)
    play(bandit, problem.pull, 60)
    assert problem.f[bandit.best] > problem.f.max() - 0.03


def test_improvement_by_nothing_stays_with_the_incumbent():
    bandit = ma.baselines.GPPI(np.linspace(0, 1, 30)[:, None], KERNEL, margin=0.0)
    bandit.observe([3, 20], [0.0, 1.0])
    arms = np.unique(play(bandit, lambda chosen: np.ones(1), 40)[-20:])
    assert np.ptp(arms) <= 3


def test_a_wrong_margin_is_a_typed_error():
    for policy in PROBABLE:
        with pytest.raises(ParameterError, match="margin"):
            policy(np.zeros((3, 1)), KERNEL, margin=-1.0)


def test_among_rows_given_by_value_the_incumbent_is_the_best_mean_of_them():
    """Arms that change have no incumbent of their own: it is the largest mean of the rows offered."""
    rng = np.random.default_rng(0)
    for policy in EXPECTED:
        bandit = policy(None, KERNEL, n_features=1, regularization=0.05)
        seen = rng.random((20, 1))
        bandit.observe(seen, np.sin(6 * seen[:, 0]))
        offers = rng.random((15, 1))
        mean, deviation = bandit.predict(offers)
        values = dense_expected_improvement(mean - mean.max(), deviation)
        assert bandit.choose(arms=offers)[0] == np.argmax(values)
        values[np.argmax(values)] = -1.0
        assert bandit.choose(arms=offers, exclude=bandit.choose(arms=offers))[0] == np.argmax(
            values
        )
