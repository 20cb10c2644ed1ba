"""Algorithm 1: what the print says, line by line."""

import numpy as np
import pytest
from oracles import dense
from problems import RKHSProblem, fingerprint, play

import manyarms as ma
from manyarms.errors import ParameterError
from manyarms.sketch.dictionary import inclusion_probability

KERNEL = ma.kernels.RBF(0.1)


def test_a_run_is_algorithm_one():
    """A second, naive implementation in the paper's order makes the same choices from the same random numbers."""
    kernel = ma.kernels.Matern(0.3, 0.5)
    problem = RKHSProblem(kernel, n_arms=120, seed=1)
    policy = ma.BKB(
        problem.arms, kernel, regularization=0.5, oversampling=2.0, confidence=ma.Constant(2.0), resparsify="always", seed=9
    )
    rng = np.random.default_rng(9)
    beta = 2.0 * np.sqrt(0.5)
    x = int(rng.integers(120))  # line 1
    pulls, rewards, S = [], [], None
    for _ in range(60):
        assert policy.choose() == [x]
        y = problem.pull(np.array([x]))
        policy.observe(x, y)
        # lines 6-9 for x_{t+1}, with σ̃²_t
        seen = np.unique([*pulls, x])
        counts = np.array([[*pulls, x].count(i) for i in seen])
        if S is None:
            variance = np.full(1, 2.0)
        else:
            variance = dense.sketched(kernel, problem.arms, S, pulls, np.array(rewards), 0.5, problem.arms[seen])[1]
        p = 1 - (1 - np.minimum(1.0, 2.0 * variance)) ** counts
        draw = rng.random(len(seen)) < p
        S = seen[draw] if draw.any() else seen[[np.argmax(p)]]
        pulls.append(x)
        rewards.append(float(y[0]))
        np.testing.assert_array_equal(policy.dictionary, S)
        # lines 4-5
        mean, variance = dense.sketched(kernel, problem.arms, S, pulls, np.array(rewards), 0.5, problem.arms)
        np.testing.assert_allclose(policy.scores().mean, mean, atol=1e-6)
        np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-6)
        u = mean + beta * np.sqrt(variance)
        x = int(np.argmax(u >= u.max() * (1 - 1e-9)))  # far from the data scores tie within rounding
    assert len(S) < len(np.unique(pulls))


def test_the_dictionary_is_smaller_than_what_was_pulled_and_is_part_of_it():
    policy = ma.BKB(np.linspace(0, 1, 500)[:, None], KERNEL, regularization=1.0, resparsify="always")
    rng = np.random.default_rng(0)
    for _ in range(20):
        policy.observe(rng.integers(500, size=50), rng.standard_normal(50))
    pulled = np.flatnonzero(policy.counts)
    assert set(policy.inducing) <= set(policy.dictionary) <= set(pulled)
    assert len(policy.dictionary) < 0.6 * len(pulled)
    assert (np.diff(policy.dictionary) > 0).all()
    assert (np.diff(policy.inducing) > 0).all()


def test_linear_kernels_keep_as_many_inducing_arms_as_they_have_dimensions():
    arms = np.random.default_rng(0).standard_normal((200, 3))
    policy = ma.BKB(arms, ma.kernels.Linear(), regularization=1.0, oversampling=5.0)
    play(policy, lambda chosen: arms[chosen, 0] + np.random.default_rng(1).standard_normal(1), 60)
    policy.observe(np.arange(200), arms[:, 0])
    policy.observe(0, arms[0, 0])
    assert len(policy.dictionary) > 3
    assert len(policy.inducing) == 3


def test_longer_horizon_redraws_with_a_larger_oversampling():
    rng = np.random.default_rng(0)
    policy = ma.BKB(np.linspace(0, 1, 400)[:, None], KERNEL, regularization=1.0, oversampling=1.0, resparsify="always")
    policy.observe(np.arange(400), rng.standard_normal(400))
    policy.redraw()
    small, information, beta = len(policy.dictionary), policy._state.evidence.information, policy.beta
    expected = inclusion_probability(policy._state.pulled_variance, policy._state.history.counts, 20.0).sum()
    policy.redraw(oversampling=20.0)
    assert policy.oversampling == 20.0
    assert len(policy.dictionary) > 3 * small
    assert len(policy.dictionary) == pytest.approx(expected, abs=5 * np.sqrt(expected))
    assert policy.counts.sum() == 400
    assert (policy._state.evidence.information, policy.beta) == (information, beta)
    policy.redraw(ma.oversampling_for(0.5, 0.1, 10_000))
    assert len(policy.dictionary) == 400  # Theorem 1's q̄ keeps them all
    exact = ma.GPUCB(policy.arms, KERNEL, regularization=1.0)
    exact.observe(np.arange(400), np.zeros(400))
    np.testing.assert_allclose(policy.scores().variance, exact.scores().variance, rtol=1e-9)


def test_redrawing_before_any_observation_only_sets_the_oversampling():
    policy = ma.BKB(np.zeros((3, 1)), KERNEL)
    first = policy.choose()
    policy.redraw(7.0)
    assert policy.oversampling == 7.0
    assert policy.choose() == first


def test_wrong_settings_are_typed_errors():
    with pytest.raises(ParameterError, match="always"):
        ma.BKB(np.zeros((3, 1)), KERNEL, resparsify="sometimes")
    for wrong in (0.0, -1.0, float("nan"), "5", None, True, 10**400):
        with pytest.raises(ParameterError):
            ma.BKB(np.zeros((3, 1)), KERNEL, oversampling=wrong)
    policy = ma.BKB(np.arange(9.0)[:, None], KERNEL)
    policy.observe([1, 2], [0.0, 1.0])
    before = fingerprint(policy)
    with pytest.raises(ParameterError):
        policy.redraw(-1.0)
    assert fingerprint(policy) == before


def test_a_batch_repeats_an_arm_only_when_nothing_else_is_worth_it():
    policy = ma.BKB([[0.0], [1e-3]], ma.kernels.RBF(1.0), regularization=0.01)
    assert len(policy.choose(5)) == 5


def test_repeats_in_one_call_count_once_in_the_information():
    policies = [ma.BKB(np.linspace(0, 1, 9)[:, None], KERNEL, confidence=ma.LogDet(1.0, 0.1)) for _ in range(2)]
    policies[0].observe(np.full(500, 3), np.zeros(500))
    for _ in range(500):
        policies[1].observe(3, 0.0)
    together, apart = (policy.evidence.information for policy in policies)
    assert np.log1p(500 / 0.01) <= together <= apart
    assert policies[0].evidence.n_observations == 500
