"""Problems at the edge: each works, or raises a typed error that says what to change and leaves the policy as it was."""

import numpy as np
import pytest
from problems import fingerprint, play
from soak.edges import edges

import manyarms as ma
from manyarms.errors import KernelError, NumericalError, ObservationError

POLICIES = [ma.BKB, ma.GPUCB]
RBF = ma.kernels.RBF(0.3)
GRID = np.linspace(0.0, 1.0, 30)[:, None]
SPIKE = np.vstack([GRID, GRID + 1e-9, GRID + 1e-13])


def wave(arms):
    return lambda chosen: np.sin(6 * arms[chosen, 0])


def zero_at_the_origin(X, Y):
    return X @ Y.T


CASES = {
    "one arm": (np.array([[0.5]]), RBF, 0.01, None),
    "two arms": (np.array([[0.1], [0.9]]), RBF, 0.01, None),
    "identical arms": (np.full((20, 3), 0.7), RBF, 0.01, None),
    "near-duplicate arms": (SPIKE, RBF, 0.01, None),
    "near-duplicate arms, tiny ridge": (SPIKE, ma.kernels.Matern(0.3, 0.5), 1e-8, None),
    "constant rewards": (GRID, RBF, 0.01, 3.0),
    "zero rewards": (GRID, RBF, 0.01, 0.0),
    "large ridge, empty draws": (GRID, RBF, 100.0, None),
    "huge ridge": (GRID, RBF, 1e12, None),
    "tiny ridge": (GRID, RBF, 1e-10, None),
    "linear kernel of rank one": (GRID, ma.kernels.Linear(), 0.01, None),
    "linear kernel of rank two": (
        np.random.default_rng(0).standard_normal((40, 2)),
        ma.kernels.Linear(),
        1e-6,
        None,
    ),
    "polynomial kernel": (
        np.random.default_rng(0).standard_normal((40, 2)),
        ma.kernels.Polynomial(2),
        1e-4,
        None,
    ),
    "an arm with k(x, x) = 0": (
        np.vstack([[[0.0, 0.0]], np.eye(2)]),
        zero_at_the_origin,
        0.01,
        None,
    ),
    "all arms with k(x, x) = 0": (np.zeros((4, 2)), zero_at_the_origin, 0.01, None),
    "constant kernel": (GRID, lambda X, Y: np.ones((len(X), len(Y))), 0.01, None),
    "identity kernel": (GRID, lambda X, Y: (X == Y.T).astype(float), 0.01, None),
    "flat kernel": (GRID, ma.kernels.RBF(1e6), 0.01, None),
    "spiky kernel": (GRID, ma.kernels.RBF(1e-9), 0.01, None),
    "many features": (np.random.default_rng(0).random((20, 500)), ma.kernels.RBF(5.0), 0.01, None),
    "large features": (
        1e8 * np.random.default_rng(0).random((20, 3)),
        ma.kernels.RBF(3e7),
        0.01,
        None,
    ),
    "huge rewards": (GRID, RBF, 0.01, 1e99),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", CASES)
def test_degenerate_problems_work(policy, name):
    arms, kernel, regularization, reward = CASES[name]
    bandit = policy(arms, kernel, regularization=regularization, seed=1)
    pull = wave(arms) if reward is None else lambda chosen: np.full(len(chosen), reward)
    play(bandit, pull, 40)
    batch = bandit.choose(5, pending=[0, 0])
    bandit.observe(batch, pull(batch))
    mean, variance, ucb = bandit.scores()
    assert np.isfinite([mean, variance, ucb]).all()
    assert (variance >= 0).all()
    assert np.isfinite(bandit.effective_dimension)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1e-6, 1e6, 1e12, 1e100])
@pytest.mark.parametrize("ratio", [100.0, 1e-2, 1e-8])
def test_any_scale_of_the_kernel_works(policy, scale, ratio):
    bandit = policy(GRID, scale * RBF, regularization=ratio * scale, seed=1)
    play(bandit, lambda chosen: np.sqrt(scale) * wave(GRID)(chosen), 40)
    reference = policy(GRID, RBF, regularization=ratio, seed=1)
    play(reference, wave(GRID), 40)
    np.testing.assert_array_equal(bandit.counts, reference.counts)
    assert (bandit.scores().variance > 0).all()


@pytest.mark.parametrize(
    "confidence",
    [ma.Theory(1.0, 0.1), ma.LogDet(1.0, 0.1, double=True), ma.Bayes(0.1), ma.Constant(0.0)],
)
def test_one_arm_and_one_observation_are_enough_for_every_radius(confidence):
    for policy in POLICIES:
        bandit = policy([[0.0]], RBF, confidence=confidence)
        assert bandit.choose() == [0]
        bandit.observe(0, 1.0)
        assert bandit.choose() == [0]
        assert bandit.best == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_an_indefinite_kernel_is_a_typed_error_naming_a_pair_and_changes_nothing(policy):
    def indefinite(X, Y):
        return np.where(X == Y.T, 1.0, np.where(np.abs(X - Y.T) < 1.5, 0.9, -0.9))

    bandit = policy(np.array([[0.0], [1.0], [2.0]]), indefinite, regularization=1e-3)
    bandit.observe(0, 0.0)
    before = fingerprint(bandit)
    with pytest.raises(KernelError, match=r"not positive semi-definite.*x = \[.*y = \["):
        bandit.observe([1, 2], [0.0, 1.0])
    assert fingerprint(bandit) == before


@pytest.mark.parametrize("policy", POLICIES)
def test_a_ridge_below_rounding_is_a_typed_error_that_changes_nothing(policy):
    bandit = policy(GRID, RBF, regularization=1e-25)
    before = fingerprint(bandit)
    with pytest.raises(NumericalError, match="regularization"):
        bandit.observe(np.tile(np.arange(30), 40), np.zeros(1200))
    assert fingerprint(bandit) == before


@pytest.mark.parametrize("policy", POLICIES)
def test_rewards_whose_squares_overflow_are_a_typed_error_that_changes_nothing(policy):
    bandit = policy(GRID, RBF, regularization=0.01)
    bandit.observe(0, 1e100)
    before = fingerprint(bandit)
    for reward in (-1.7e308, 1.1e100):
        with pytest.raises(ObservationError, match=r"1e\+100"):
            bandit.observe(1, reward)
    assert fingerprint(bandit) == before


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB], ids=lambda policy: policy.__name__)
def test_a_batch_that_a_rule_ends_does_not_go_on_where_f_is_known(policy):
    bandit = policy(np.array([[0.0], [1.0], [2.0]]), ma.kernels.Linear(), regularization=1.0)
    bandit.observe([1, 2], [-100.0, -200.0])
    np.testing.assert_array_equal(bandit.choose(None), [0])  # x = 0: k(x, x) = 0


@pytest.mark.slow
def test_problems_drawn_at_random():
    found = edges(100, first=10**6)
    assert not found.faults
    assert found.worked > 50
