"""The start of an adaptive run: W is all that was pulled while arms and pulls are few, and the posterior is the exact one."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import NumericalError
from manyarms.policies import adaptive
from manyarms.policies.base import Policy
from manyarms.sketch.covariance import SPARE_ROWS
from tests.problems import RKHSProblem, fingerprint, play

KERNEL = ma.kernels.RBF(0.2)


def pair(n_arms=150, lengthscale=0.2, **options):
    problem = RKHSProblem(ma.kernels.RBF(lengthscale), n_arms=n_arms, d=2)
    return problem, ma.BKB(problem.arms, problem.kernel, **options), ma.GPUCB(problem.arms, problem.kernel)


@pytest.fixture(autouse=True)
def _exact_start(_sketched_from_the_start, monkeypatch):
    monkeypatch.setattr(adaptive, "EXACT_ENTRIES", 150 * (40 + SPARE_ROWS))


def test_it_is_gpucb_until_it_pays_to_be_a_sketch():
    problem, policy, exact = pair()
    exact_steps = 0
    for _ in range(200):
        arms = policy.choose()
        np.testing.assert_array_equal(arms, Policy.choose(policy))
        rewards = problem.pull(arms)
        policy.observe(arms, rewards)
        exact.observe(arms, rewards)
        pulled = policy._state.history.pulled
        assert len(policy.inducing) <= 2 * len(policy.dictionary)
        assert set(policy.dictionary) <= set(pulled)
        if policy._state.exact:
            exact_steps += 1
            np.testing.assert_array_equal(policy.inducing, pulled)
            np.testing.assert_allclose(policy.predict().mean, exact.predict().mean, atol=1e-9)
            np.testing.assert_allclose(policy.predict().std, exact.predict().std, atol=1e-7)
            X = problem.arms[:7] + 0.01
            np.testing.assert_allclose(policy.predict(X), exact.predict(X), atol=1e-7)
    assert 10 < exact_steps < 190, "both phases are in this run"


def test_leaving_the_exact_posterior_does_not_move_it(monkeypatch):
    """While |W| ≤ 2|S| the sketch rests on all that was pulled, and is the exact posterior too."""
    problem, policy, exact = pair(oversampling=1e9)
    steps = 0
    while policy._state.exact:
        arms = policy.choose()
        rewards = problem.pull(arms)
        policy.observe(arms, rewards)
        exact.observe(arms, rewards)
        steps += 1
    assert steps > 20
    np.testing.assert_allclose(policy.predict().mean, exact.predict().mean, atol=1e-8)
    np.testing.assert_allclose(policy.predict().std, exact.predict().std, atol=1e-6)


def test_the_dictionary_stays_small_where_few_pulls_matter():
    problem, policy, _ = pair(lengthscale=2.0, oversampling=0.2)
    play(policy, problem.pull, 300)
    assert not policy._state.exact
    assert len(policy.inducing) <= 2 * len(policy.dictionary)
    assert len(policy.inducing) < len(policy._state.history.pulled)


@pytest.mark.parametrize("batch", [{"n": 4}, {"n": 3, "pending": [5, 9, 5]}, {"n": None}])
def test_batches_are_those_of_the_exact_posterior(batch):
    problem, policy, exact = pair()
    arms = np.arange(0, 40, 4)
    rewards = problem.pull(arms)
    policy.observe(arms, rewards)
    exact.observe(arms, rewards)
    assert policy._state.exact
    np.testing.assert_array_equal(policy.choose(**batch), exact.choose(**batch))


def test_a_redraw_keeps_the_posterior():
    problem, policy, _ = pair(lengthscale=0.1)
    play(policy, problem.pull, 20)
    before = policy.predict()
    policy.redraw(oversampling=1e9)
    np.testing.assert_array_equal(policy.predict(), before)
    np.testing.assert_array_equal(policy.dictionary, policy._state.history.pulled)
    policy.redraw(oversampling=1e-9)
    assert len(policy.dictionary) == 1
    assert not policy._state.exact


def test_an_error_changes_nothing():
    problem, policy, _ = pair()
    play(policy, problem.pull, 10)
    before = fingerprint(policy)
    with pytest.raises(NumericalError):
        policy.observe([3, 4], [1e308, -1e308])
    assert fingerprint(policy) == before


def test_large_tables_are_sketched_from_the_first_pull():
    policy = ma.BKB(np.random.default_rng(0).random((400, 2)), KERNEL)
    assert policy._state.exact is None
