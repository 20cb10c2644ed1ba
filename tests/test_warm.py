"""Large tables: the dictionary drawn from one, `warm_start`, and many arms observed at once."""

from copy import copy

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import ArmsError, KernelError, NumericalError, ObservationError, ParameterError, StateError
from manyarms.sketch.choice import arg_max
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.observations import Observations
from manyarms.sketch.table import draw_from_table
from tests.problems import RKHSProblem, fingerprint, play, read_only

KERNEL = ma.kernels.RBF(0.1)


def warm(policy, arms, rewards):
    policy.warm_start(arms, rewards)


def bulk(policy, arms, rewards):
    policy.observe(arms, rewards)


def table_of(n, d=1, seed=0):
    rows = np.random.default_rng([seed, 3]).random((n, d))
    return Observations(rows, np.ones(n), np.ones(n), np.zeros(n))


@pytest.mark.parametrize("learn", [warm, bulk])
@pytest.mark.parametrize(("oversampling", "least", "most"), [(5.0, 5, 5), (0.7, 0, 2)])
def test_variances_are_within_theorem_ones_factor_of_the_exact_ones(learn, oversampling, least, most):
    """2,000 arms, λ = 1, d_eff ≈ 13: the 3-sandwich holds at q̄ = 5, and fails in most draws at a q̄ that is too small."""
    arms = np.random.default_rng(0).random((2000, 1))
    exact = ExactPosterior.fit(KERNEL, Observations(arms, np.ones(2000), np.ones(2000), np.zeros(2000)), 1.0)
    _, variance = exact.moments(arms, np.ones(2000))
    held = 0
    for seed in range(5):
        policy = ma.BKB(arms, KERNEL, regularization=1.0, oversampling=oversampling, seed=seed)
        learn(policy, np.arange(2000), np.zeros(2000))
        assert len(policy.dictionary) < 110
        ratio = policy.scores().variance / variance
        held += bool(1 / 3 <= ratio.min() and ratio.max() <= 3)
    assert least <= held <= most


@pytest.mark.parametrize("counts", [1.0, 4.0])
def test_arms_are_drawn_as_often_as_their_leverage_says(counts):
    """Over many draws the frequency of each stretch of the line is q̄ times its exact leverage, and so is the size."""
    n, lam, q = 2000, 1.0, 4.0
    table = table_of(n)._replace(counts=np.full(n, counts))
    exact = ExactPosterior.fit(KERNEL, table, lam).moments(table.rows, table.diag)[1]
    expected = np.histogram(table.rows[:, 0], 6, (0, 1), weights=1 - (1 - np.minimum(1, q * exact)) ** counts)[0]
    drawn = np.zeros(6)
    for seed in range(8):
        at = draw_from_table(KERNEL, table, lam, q, 1.0, np.random.default_rng(seed)).at
        assert (np.diff(at) > 0).all()
        drawn += np.histogram(table.rows[at, 0], 6, (0, 1))[0] / 8
    assert (drawn / expected > 0.7).all()
    assert (drawn / expected < 1.5).all()


def test_the_information_of_a_table_bounds_its_log_determinant():
    n, lam = 1500, 0.1
    table = table_of(n)
    log_det = np.linalg.slogdet(KERNEL(table.rows, table.rows) / lam + np.eye(n))[1]
    information = draw_from_table(KERNEL, table, lam, 5.0, 1.0, np.random.default_rng(0)).information
    assert log_det <= information <= 20 * log_det
    larger = draw_from_table(KERNEL, table, lam, 5.0, 3.0, np.random.default_rng(0)).information
    assert information < larger


def dense(policy, features, past_arms, past_rewards, pulled, rewards):
    """Mean and variance of all arms by the d×d formula: the table projected on W₀, later pulls on the working set."""
    inner, W = policy._past.inducing, policy.inducing

    def projection(arms):
        Q, _ = np.linalg.qr(features[arms].T)
        return Q @ Q.T

    old, new = features[past_arms] @ projection(inner), features[pulled] @ projection(W)
    V = old.T @ old + new.T @ new + policy.regularization * np.eye(features.shape[1])
    b = old.T @ past_rewards + new.T @ rewards
    return features @ np.linalg.solve(V, b), np.einsum("ij,ij->i", features @ np.linalg.inv(V), features)


@pytest.mark.parametrize("n_arms", [600, 9000], ids=["few", "many"])
def test_a_warm_start_is_the_dense_formula_through_redraws_and_batches(n_arms):
    """A linear kernel with quadratic features, so that the dense formula is 45 × 45."""
    rng = np.random.default_rng(1)
    rows = rng.random((n_arms, 8)) - 0.5
    upper = np.triu_indices(9)
    ones = np.hstack([rows, np.ones((n_arms, 1))])
    features = read_only(ones[:, upper[0]] * ones[:, upper[1]])
    f = features @ rng.standard_normal(45)
    policy = ma.BKB(features, ma.kernels.Linear(0.0), regularization=0.05, oversampling=0.3, seed=3)
    past = rng.integers(n_arms // 2, size=500)
    told = f[past] + 0.2 * rng.standard_normal(500)
    policy.warm_start(past, told)
    assert len(policy.inducing) < 40
    pulled, rewards = [], []
    for step in range(40):
        chosen = policy.choose(1 if step % 10 else 4)
        assert int(chosen[0]) == arg_max(policy.scores())
        y = f[chosen] + 0.2 * rng.standard_normal(len(chosen))
        policy.observe(chosen, y)
        pulled, rewards = [*pulled, *chosen], [*rewards, *y]
        if step % 5 == 0:
            mean, variance = dense(policy, features, past, told, pulled, np.array(rewards))
            np.testing.assert_allclose(policy.scores().mean, mean, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-6)
    assert policy.stats.counts["draws"] > 2
    assert set(policy._past.inducing) <= set(policy.dictionary) <= set(policy.inducing)
    policy.redraw(1.0)
    mean, variance = dense(policy, features, past, told, pulled, np.array(rewards))
    np.testing.assert_allclose(policy.scores().mean, mean, rtol=1e-6, atol=1e-7)


def test_a_warm_start_counts_as_observed():
    problem = RKHSProblem(ma.kernels.RBF(0.4), n_arms=9000, d=2, seed=2)
    arms = np.random.default_rng(0).integers(4000, size=3000)
    rewards = problem.pull(arms)
    policy = ma.BKB(problem.arms, problem.kernel, regularization=0.01, confidence=ma.LogDet(1.0, 0.1))
    policy.warm_start(arms, rewards)
    assert (policy.counts == np.bincount(arms, minlength=9000)).all()
    assert "3000 observations" in repr(policy)
    assert policy.best in arms
    exact = ma.diagnostics.effective_dimension(problem.arms[arms[:1500]], problem.kernel, 0.01)
    assert exact / 1.2 < policy.effective_dimension < 2 * exact
    trace = policy.evidence.trace
    assert trace == pytest.approx(3000 / 0.01)
    play(policy, problem.pull, 5)
    assert policy.evidence.n_observations == 3005
    assert policy.evidence.trace == pytest.approx(3005 / 0.01)
    assert policy.counts.sum() == 3005
    accuracy = ma.diagnostics.sketch_accuracy(policy)
    assert policy._past.residual <= accuracy.eta_bound == accuracy.eta <= policy.effective_dimension
    assert len(policy.choose(None)) > 1


def test_a_warm_start_finds_what_the_table_knows():
    problem = RKHSProblem(ma.kernels.RBF(0.3), n_arms=3000, d=3, norm=3.0, seed=5)
    policy = ma.BKB(problem.arms, problem.kernel, regularization=0.01)
    policy.warm_start(np.arange(1500), problem.pull(np.arange(1500)))
    chosen = play(policy, problem.pull, 10)
    assert problem.f.max() - problem.f[chosen].mean() < 0.1 * np.ptp(problem.f)


def test_a_dictionary_that_would_be_too_large_is_drawn_with_a_lower_oversampling():
    """Most variances then are larger, and redraws stay small too."""
    rows, kernel = np.random.default_rng(0).random((6000, 3)), ma.kernels.Matern(0.3)
    rewards = np.sin(5 * rows[:, 0]) + rows[:, 1]
    whole, small = (ma.BKB(rows, kernel, regularization=0.1) for _ in range(2))
    whole.warm_start(np.arange(6000), rewards)
    small.warm_start(np.arange(6000), rewards, largest=200)
    assert len(whole.dictionary) > 600
    assert whole.oversampling == 5.0
    assert 150 < len(small.dictionary) < 250
    assert 0.5 < small.oversampling * whole.effective_dimension / 200 < 2
    ratio = small.scores().variance / whole.scores().variance
    assert np.median(ratio) > 1
    small.redraw()
    assert len(small.dictionary) < 300
    some = small.choose(1)
    assert rewards.max() - rewards[some].mean() < 0.2


@pytest.mark.parametrize("learn", [warm, bulk])
@pytest.mark.parametrize("n_zero", [20, 1990, 2000])
def test_arms_with_nothing_to_learn_are_learned_in_bulk(learn, n_zero):
    """k(x, x) = 0 at most rows, or at all of them."""
    X = np.vstack([np.zeros((n_zero, 2)), np.ones((2000 - n_zero, 2))])
    policy = ma.BKB(X, ma.kernels.Linear())
    learn(policy, np.arange(2000), np.ones(2000))
    mean, std = policy.predict()
    assert not mean[:n_zero].any()
    assert not std[:n_zero].any()
    np.testing.assert_allclose(mean[n_zero:], 1.0, rtol=1e-3)
    assert len(policy.dictionary)
    policy.observe([0, 1], [1.0, 2.0])
    policy.redraw()
    assert policy.choose()[0] >= n_zero % 2000
    assert len(policy.dictionary)


def test_what_is_wrong_with_a_table_is_said_and_changes_nothing():
    policy = ma.BKB(np.linspace(0, 1, 50)[:, None], KERNEL)
    before = fingerprint(policy)
    for arms, rewards, options, error in [
        ([50], [0.0], {}, ArmsError),
        ([0, 1], [0.0], {}, ObservationError),
        ([0], [np.nan], {}, ObservationError),
        ([0], [0.0], {"noise": -1.0}, ObservationError),
        ([0], [0.0], {"noise": 1e-12}, NumericalError),
        ([0], [0.0], {"largest": 0}, ParameterError),
    ]:
        with pytest.raises(error):
            policy.warm_start(arms, rewards, **options)
        assert fingerprint(policy) == before
    policy.warm_start([], [])
    assert fingerprint(policy) == before
    twin = copy(policy)
    twin.observe([0], [1.0])
    with pytest.raises(StateError, match="before"):
        twin.warm_start([0], [1.0])
    policy.warm_start([0, 1], [0.0, 1.0])
    with pytest.raises(StateError):
        policy.warm_start([0], [0.0])


@pytest.mark.parametrize("variant", ["always", "incremental", "insertion"])
def test_other_variants_say_which_one_starts_warm(variant):
    policy = ma.BKB(np.linspace(0, 1, 5)[:, None], KERNEL, resparsify=variant)
    with pytest.raises(ParameterError, match=r'resparsify="adaptive"'):
        policy.warm_start([0], [1.0])
    assert not policy.evidence.n_observations


@pytest.mark.parametrize("learn", ["warm_start", "observe"])
def test_a_kernel_that_is_no_covariance_is_named_with_a_pair(learn):
    rows = np.random.default_rng(0).random((1500, 1))
    policy = ma.BKB(rows, lambda X, Y: (np.abs(X - Y.T) < 0.3).astype(float), regularization=0.01)
    before = fingerprint(policy)
    with pytest.raises(KernelError, match=r"not positive semi-definite.*x = \[.*y = \["):
        getattr(policy, learn)(np.arange(1500), rows[:, 0])
    assert fingerprint(policy) == before


def test_tables_are_drawn_from_the_same_on_any_number_of_cores(monkeypatch):
    problem = RKHSProblem(ma.kernels.RBF(0.3), n_arms=3000, d=2, seed=2)
    chosen = []
    for parallel in (True, False):
        if not parallel:
            monkeypatch.setattr("manyarms.sketch.table.in_parallel", lambda work, tasks: [work(task) for task in tasks])
        for learn in (warm, bulk):
            policy = ma.BKB(problem.arms, problem.kernel, seed=1)
            learn(policy, np.arange(2000), problem.f[:2000])
            chosen.append((policy.dictionary.tolist(), policy.choose(3).tolist()))
    assert chosen[:2] == chosen[2:]


def test_many_arms_at_once_after_a_few_are_remembered_as_any_others():
    problem = RKHSProblem(KERNEL, n_arms=4000, d=1, seed=2)
    policy = ma.BKB(problem.arms, KERNEL, regularization=0.1, oversampling=20.0)
    play(policy, problem.pull, 20)
    rewards = problem.pull(np.arange(3000))
    before = policy.evidence.n_observations
    policy.observe(np.arange(3000), rewards)
    assert policy.evidence.n_observations == before + 3000
    observed = policy._observations(policy._state.history)
    mean, variance = ExactPosterior.fit(KERNEL, observed, 0.1).moments(problem.arms, np.ones(4000))
    np.testing.assert_allclose(policy.scores().variance, variance, rtol=0.05)
    np.testing.assert_allclose(policy.scores().mean, mean, atol=0.01)
    play(policy, problem.pull, 20)
    assert int(policy.choose()[0]) == arg_max(policy.scores())
