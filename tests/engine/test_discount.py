"""Forgetting: a discount γ beside the dense formula, where it is refused, and a function that drifts."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import ParameterError, StateError

KERNEL = ma.kernels.RBF(0.4)
LAMBDA = 0.05
GAMMA = 0.9


def policy_of(discount=GAMMA, **options):
    options = {"rule": ma.Inserted(most=12), "regularization": LAMBDA, **options}
    return ma.BKB(None, KERNEL, n_features=2, discount=discount, **options)


def observed(policy, cuts, seed=0):
    """Rows, rewards, noises and |W| of each, observed in batches of such sizes."""
    rng = np.random.default_rng(seed)
    n = sum(cuts)
    X, y, noise = rng.random((n, 2)), rng.standard_normal(n), 0.1 + rng.random(n)
    sizes = []
    for some in np.split(np.arange(n), np.cumsum(cuts)[:-1]):
        sizes += policy.observe(X[some], y[some], noise=noise[some]).sizes.tolist()
    return X, y, noise, np.array(sizes)


def dense(W, X, y, weights, sizes, at):
    """Ã = λI + Σ γ^{t−s} ω ψψᵀ, each ψ with the first |W_s| coordinates of its embedding."""
    L = np.linalg.cholesky(KERNEL(W, W))
    Z = np.linalg.solve(L, KERNEL(W, X)).T
    Z[np.arange(len(W)) >= sizes[:, None]] = 0.0
    V = LAMBDA * np.eye(len(W)) + Z.T @ (weights[:, None] * Z)
    z = np.linalg.solve(L, KERNEL(W, at))
    r = KERNEL.diag(at) - np.square(z).sum(axis=0)
    mean = z.T @ np.linalg.solve(V, Z.T @ (weights * y))
    return mean, r / LAMBDA + (z * np.linalg.solve(V, z)).sum(axis=0), V


@pytest.mark.parametrize("cuts", [[1] * 60, [5] * 12, [1, 40, 1, 18], [60], [200, 1]])
def test_the_posterior_is_that_of_the_dense_formula(cuts):
    policy = policy_of()
    X, y, noise, sizes = observed(policy, cuts)
    ages = np.arange(len(y))[::-1]
    weights = np.maximum(GAMMA**ages * LAMBDA / noise**2, np.finfo(float).tiny)
    at = np.random.default_rng(9).random((30, 2))
    belief = policy.belief
    mean, variance, V = dense(belief.W, X, y, weights, sizes, at)
    found = belief.moments(at, np.ones(len(at)))
    np.testing.assert_allclose(found[0], mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-8)
    log_det = np.linalg.slogdet(V / LAMBDA)[1]
    np.testing.assert_allclose(policy.evidence.log_det, log_det, rtol=1e-8)
    np.testing.assert_allclose(policy.evidence.trace, weights.sum() / LAMBDA)
    # What is left out fades, too.
    Z = np.linalg.solve(np.linalg.cholesky(KERNEL(belief.W, belief.W)), KERNEL(belief.W, X)).T
    Z[np.arange(belief.m) >= sizes[:, None]] = 0.0
    e = weights @ np.maximum(1 - np.square(Z).sum(axis=1), 0) / LAMBDA
    np.testing.assert_allclose(policy.sketch_error, e, rtol=1e-6)
    assert policy.evidence.eta <= policy.sketch_error


def test_a_discount_of_one_changes_nothing():
    one, plain = (
        policy_of(1.0),
        ma.BKB(None, KERNEL, n_features=2, rule=ma.Inserted(most=12), regularization=LAMBDA),
    )
    for policy in (one, plain):
        observed(policy, [1] * 20)
    at = np.random.default_rng(9).random((30, 2))
    np.testing.assert_array_equal(one.predict(at), plain.predict(at))
    assert one.guarantee == "certified"
    assert policy_of().guarantee == "none"


def test_supposed_pulls_and_choices_forget_nothing():
    policy = policy_of()
    observed(policy, [1] * 30)
    at = np.random.default_rng(9).random((30, 2))
    before = policy.predict(at)
    policy.choose(5, arms=at, pending=at[:3])
    np.testing.assert_array_equal(policy.predict(at), before)
    supposed = policy.belief.supposing(at[:1], np.ones(1)).after
    assert (supposed.moments(at, np.ones(30))[1] <= policy.belief.moments(at, np.ones(30))[1]).all()


def test_with_everything_forgotten_the_prior_comes_back():
    policy = policy_of(0.5)
    observed(policy, [1] * 20)
    far = policy.belief.faded(0.5**400)
    mean, variance = far.moments(np.array([[0.5, 0.5]]), np.ones(1))
    np.testing.assert_allclose([mean[0], LAMBDA * variance[0]], [0.0, 1.0], atol=1e-12)


@pytest.mark.parametrize("discount", [0, -1, 1.0001, np.nan, np.inf, "0.9", True, None])
def test_a_discount_is_between_0_and_1(discount):
    with pytest.raises(ParameterError, match="discount"):
        policy_of(discount)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": ma.Certified(1.0, LAMBDA**0.5)}, "does not change"),
        ({"confidence": ma.Theory(1.0, LAMBDA**0.5)}, "does not change"),
        ({"confidence": ma.Bayes()}, "does not change"),
        ({"rule": ma.Sampled()}, "Inserted"),
    ],
)
def test_what_rests_on_observations_that_stay_is_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        policy_of(**options)


def test_a_table_is_refused():
    rows = np.random.default_rng(0).random((5, 2))
    with pytest.raises(ParameterError, match="never rise"):
        ma.BKB(rows, KERNEL, discount=0.9)
    with pytest.raises(StateError, match="discount"):
        policy_of().over(rows)


def test_a_function_that_turns_over_is_followed():
    rng = np.random.default_rng(3)
    forgetful, faithful = policy_of(0.97), policy_of(1.0)
    for t in range(300):
        x = rng.random((1, 2))
        y = (1 if t < 200 else -1) * np.sin(5 * x[:, 0]) + 0.1 * rng.standard_normal(1)
        forgetful.observe(x, y)
        faithful.observe(x, y)
    at = rng.random((200, 2))
    truth = -np.sin(5 * at[:, 0])
    lost = [np.abs(p.predict(at).mean - truth).mean() for p in (forgetful, faithful)]
    assert 3 * lost[0] < lost[1]
