"""Infinitely many arms: the score and its gradient, the maximiser, the policy."""

import numpy as np
import pytest
from extras import needs

import manyarms as ma
from manyarms import kernels as k
from manyarms.bandit.domain import supposing
from manyarms.domains import Box, DomainBKB, MultiStart
from manyarms.errors import (
    ArmsError,
    KernelError,
    NumericalError,
    ObservationError,
    ParameterError,
    StateError,
)

KERNELS = {
    "rbf": k.RBF([0.3, 0.5, 0.7]),
    "matern52": k.Matern([0.3, 0.5, 0.7]),
    "nested": 0.5 * (k.RBF(0.4) * k.Linear(1.0) + 2.0 * k.Matern(0.6, nu=1.5)),
}


def differences(f, x, h=1e-6):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


def told(domain, kernel, n=30, **options):
    policy = DomainBKB(domain, kernel, **{"regularization": 1e-3, "seed": 0, **options})
    rng = np.random.default_rng(1)
    X = domain.sample(n, rng)
    for rows in np.array_split(X, max(1, n // 10)):  # a dictionary is drawn by the variances before
        policy.observe(rows, np.sin(5 * rows[:, 0]) + 0.03 * rng.standard_normal(len(rows)))
    return policy


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("name", ["rbf", "matern52", "nested"])
def test_the_score_and_its_gradient(name, tolerance):
    """u is μ̃ + β̃σ̃ of the posterior's own moments, exact or sketched; its gradient that of finite differences."""
    lam = 1.0 if tolerance == 1.0 else 1e-3
    policy = told(
        Box([[0, 1]] * 3), KERNELS[name], 60, rule=ma.Inserted(tolerance), regularization=lam
    )
    assert (len(policy.inducing) < 50) == (tolerance == 1.0)  # the sketch is one
    X = np.random.default_rng(2).random((5, 3))
    mean, std = policy.predict(X)
    np.testing.assert_allclose(policy.score(X), mean + policy.beta / np.sqrt(lam) * std, rtol=1e-8)
    expected = np.array([differences(lambda z: policy.score(z[None])[0], x) for x in X])
    np.testing.assert_allclose(
        policy.score.gradient(X), expected, atol=1e-4 * np.abs(expected).max()
    )


def test_the_posterior_is_the_exact_one_where_nothing_is_sketched():
    box, rng = Box([[0, 1]] * 2), np.random.default_rng(0)
    X = rng.random((12, 2))
    arms, y = np.array([0, 1, 2, 3, 2, 4, 2, 5]), rng.standard_normal(8)
    policy = DomainBKB(box, k.RBF(0.4), regularization=0.1, rule=ma.Inserted(0.0))
    for i in range(0, 8, 2):
        policy.observe(X[arms[i : i + 2]], y[i : i + 2])
    exact = ma.GPUCB(X, k.RBF(0.4), regularization=0.1)
    exact.observe(arms, y)
    for ours, theirs in zip(policy.predict(X), exact.predict(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    assert policy.effective_dimension == pytest.approx(exact.effective_dimension)
    assert len(policy.rows) == 6


@pytest.mark.parametrize("kernel", [k.RBF(0.3), k.Matern(0.3, nu=0.5)])
def test_the_default_maximiser_finds_the_maximum(kernel):
    policy = told(Box([[0, 1]] * 2), kernel)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    assert policy.score(policy.choose())[0] >= policy.score(grid).max() - 1e-3


def test_the_default_maximiser_over_choices_and_whole_numbers():
    box = Box(a=["x", "y", "z"], n=(0, 9), c=["p", "q"], m=(1, 1000, "log"))
    kernel = k.On(k.RBF(0.3), 0, 2) * k.On(k.Hamming(1.0), 2, 4)
    policy = told(box, kernel)
    everything = box.encode(
        [
            {"a": a, "n": n, "c": c, "m": m}
            for a in "xyz"
            for n in range(10)
            for c in "pq"
            for m in range(1, 1001, 3)
        ]
    )
    (row,) = policy.choose()
    box.decode(row[None])
    assert policy.score(row[None])[0] >= policy.score(everything).max() - 1e-3


def test_choose_is_pure_and_batches_spread():
    policy = told(Box([[0, 1]] * 2), k.RBF(0.3), 3)
    batch = policy.choose(4)
    np.testing.assert_array_equal(batch, policy.choose(4))
    np.testing.assert_array_equal(policy.choose(1, pending=batch[:1])[0], batch[1])
    assert min(np.linalg.norm(a - b) for i, a in enumerate(batch) for b in batch[:i]) > 0.05
    fresh = DomainBKB(Box([[0, 1]]), k.RBF(0.3), seed=3)
    np.testing.assert_array_equal(fresh.choose(), fresh.choose())
    with pytest.raises(StateError):
        _ = fresh.best


@pytest.mark.parametrize(
    "options", [{"raw": 0}, {"raw": -1}, {"starts": 0}, {"steps": 0}, {"starts": 1.5}]
)
def test_a_maximiser_that_cannot_work_is_not_made(options):
    with pytest.raises(ParameterError, match="whole number from 1"):
        MultiStart(**options)


def test_a_maximiser_of_one_row_works():
    assert told(
        Box([[0, 1]] * 2), k.RBF(0.3), maximiser=MultiStart(raw=1, starts=1, steps=1)
    ).choose().shape == (1, 2)


def test_a_users_maximiser_gets_u_and_its_gradient():
    seen = []

    def middle(u, box, rng):
        X = box.sample(3, rng)
        seen.append((u(X).shape, u.gradient(X).shape))
        return np.full(box.dimension, 0.5)

    policy = told(Box([[0, 1]] * 2), k.RBF(0.3), maximiser=middle)
    np.testing.assert_array_equal(policy.choose(), [[0.5, 0.5]])
    assert seen == [((3,), (3, 2))]


@pytest.mark.parametrize(
    "bad", [[1.5, 0.5], [np.nan, 0.5], [0.5], [[0.5, 0.5]], [[0.5], [0.5, 0.5]], "ab"]
)
def test_a_maximiser_that_leaves_the_box(bad):
    policy = told(Box([[0, 1]] * 2), k.RBF(0.3), maximiser=lambda u, box, rng: bad)
    before = policy._state
    with pytest.raises(ArmsError, match="maximiser"):
        policy.choose()
    assert policy._state is before


def test_bad_input_changes_nothing():
    policy = told(Box([[0, 1]] * 2), k.RBF(0.3))
    before = policy._state
    for rows, rewards, error in (
        ([[0.5, 1.5]], [1.0], ArmsError),
        ([[0.5]], [1.0], ArmsError),
        ([[0.5], [0.5, 0.5]], [1.0, 1.0], ArmsError),
        ([[0.5, 0.5]], [np.nan], ObservationError),
        ([[0.5, 0.5]], [1.0, 2.0], ObservationError),
    ):
        with pytest.raises(error):
            policy.observe(rows, rewards)
    assert policy._state is before
    with pytest.raises(ParameterError):
        DomainBKB(Box([[0, 1]]), k.RBF(0.3), confidence=ma.Bayes()).choose()
    with pytest.raises(ParameterError, match="noise"):
        DomainBKB(Box([[0, 1]]), k.RBF(0.3), confidence=ma.Certified(1.0, 0.2))
    with pytest.raises(ParameterError, match="rule"):
        DomainBKB(Box([[0, 1]]), k.RBF(0.3), rule=0.01)
    with pytest.raises(ParameterError):
        DomainBKB(Box([[0, 1]]), k.RBF(0.3), maximiser=3)


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_a_kernel_that_is_not_psd_is_an_error_naming_two_rows_and_changes_nothing(tolerance):
    """Every pair of rows is possible; more of them together are not."""
    kernel, rule = (lambda X, Y: np.cos(3 * (X - Y.T) ** 2)), ma.Inserted(tolerance)
    policy = DomainBKB(Box([[0, 1]]), kernel, rule=rule, regularization=1e-3)
    policy.observe([[0.0], [0.5]], [1.0, 0.0])
    before = policy._state
    with pytest.raises(KernelError, match=r"not positive semi-definite.*x = \[.*y = \["):
        policy.observe(np.linspace(0, 1, 12)[:, None], np.zeros(12))
    assert policy._state is before


@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_a_guess_of_the_norm_is_doubled_as_by_other_policies(tolerance):
    """‖μ̃‖ and σ̃(μ̃/‖μ̃‖) are those of the posterior on the same inducing rows; no horizon is needed."""
    rng, kernel, lam = np.random.default_rng(0), k.RBF(0.5), 1e-2
    X = rng.random((40, 2))
    y = 3 * np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(40)
    settings = {
        "regularization": lam,
        "rule": ma.Inserted(tolerance),
        "confidence": ma.Certified(0.1, 0.1, double=True),
    }
    policy = DomainBKB(Box([[0, 1]] * 2), kernel, **settings)
    table = ma.BKB(X, kernel, **settings)
    for some in (np.arange(20), np.arange(20, 40)):
        policy.observe(X[some], y[some])
        table.observe(some, y[some])
    np.testing.assert_array_equal(policy.inducing, X[table.belief.keys])
    np.testing.assert_allclose(policy.evidence.mean(), table.evidence.mean(), rtol=1e-9)
    assert policy.evidence.norm == table.evidence.norm > 1
    assert policy.beta == pytest.approx(table.beta)


@pytest.mark.parametrize(
    "radius", [ma.Certified(1.0, 0.1), ma.LogDet(1.0, 0.1), ma.Theory(1.0, 0.1), ma.Growing()]
)
def test_radii_need_no_horizon(radius):
    policy = told(Box([[0, 1]] * 2), k.RBF(0.3), regularization=0.01, confidence=radius)
    assert policy.evidence.n_arms == np.inf
    assert policy.beta > 0
    assert policy.choose().shape == (1, 2)


def test_a_maximiser_is_a_value():
    assert MultiStart() == MultiStart()


@pytest.mark.slow
@pytest.mark.parametrize(("variance", "error"), [(1e-6, 1e-7), (1e-8, 5e-6)])
def test_a_score_is_accurate_where_noise_is_small(variance, error):
    high_precision = needs("dev", "oracles.high_precision")
    rng = np.random.default_rng(0)
    X = np.vstack([rng.random((20, 2)), 0.5 + 0.02 * rng.standard_normal((30, 2))])
    policy = DomainBKB(
        Box([[0, 1], [0, 1]]), k.Matern(0.5), regularization=variance, rule=ma.Inserted(0.0)
    )
    policy.observe(X, np.sin(3 * X).sum(axis=1))
    others = np.vstack([rng.random((10, 2)), 0.5 + 0.02 * rng.standard_normal((30, 2))])
    grams = high_precision.matern([0.5, 0.5], 2.5), X, np.ones(50), np.sin(3 * X).sum(axis=1)
    mean, squared = high_precision.exact_moments(*grams, variance, others)
    np.testing.assert_allclose(
        policy.score(others), mean + policy.beta * np.sqrt(squared), rtol=error
    )


def test_rows_told_a_few_at_a_time_are_those_told_at_once():
    rng = np.random.default_rng(1)
    X, y = rng.random((60, 3)), rng.standard_normal(60)
    one, all_at_once = (
        DomainBKB(Box([[0, 1]] * 3), k.Matern(0.5), rule=ma.Inserted(0.0)) for _ in range(2)
    )
    for i in range(0, 60, 3):
        one.observe(X[i : i + 3], y[i : i + 3])
    all_at_once.observe(X, y)
    for a, b in zip(one.predict(X[:9] + 1e-3), all_at_once.predict(X[:9] + 1e-3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.3])
def test_supposed_pulls_change_no_state_and_leave_the_means(tolerance):
    rng = np.random.default_rng(2)
    X = rng.random((120, 2))
    policy = DomainBKB(
        Box([[0, 1]] * 2), k.RBF(0.2), regularization=0.1, rule=ma.Inserted(tolerance)
    )
    for i in range(0, 120, 10):
        policy.observe(X[i : i + 10], np.sin(6 * X[i : i + 10, 0]))
    belief, others = policy.belief, rng.random((50, 2))
    supposed = supposing(belief, others[:1])
    (mean, variance), (before, wider) = (
        each.moments(others, np.ones(50)) for each in (supposed, belief)
    )
    np.testing.assert_allclose(mean, before, atol=1e-9)
    assert (variance <= wider * (1 + 1e-9)).all()
    assert variance[0] < wider[0]
    assert policy.belief is belief


def test_the_information_is_that_of_the_kernel_matrix():
    rng = np.random.default_rng(3)
    X, y = rng.random((30, 2)), rng.standard_normal(30)
    policy = DomainBKB(
        Box([[0, 1]] * 2), k.RBF(0.3), rule=ma.Inserted(0.0), confidence=ma.LogDet(1.0, 0.1)
    )
    for x, value in zip(X, y, strict=True):
        policy.observe(x[None], [value])
    log_det = np.linalg.slogdet(k.RBF(0.3)(X, X) / 0.01 + np.eye(30))[1]
    assert policy.evidence.log_det == pytest.approx(log_det, rel=1e-6)


def test_many_rows_at_once_are_sketched_and_placed_once():
    rng = np.random.default_rng(4)
    X = rng.random((1500, 1))
    X = np.vstack([X, X[:3], [[0.0]], [[-0.0]]])
    policy = DomainBKB(Box([[0, 1]]), k.RBF(0.3), regularization=0.01)
    policy.observe(X, np.sin(5 * X[:, 0]))
    np.testing.assert_array_equal(policy.rows, np.vstack([X[:1500], [[0.0]]]))
    assert sorted(policy.counts)[-4:] == [2, 2, 2, 2]
    assert len(policy.inducing) < 50
    np.testing.assert_allclose(policy.predict(X[:50]).mean, np.sin(5 * X[:50, 0]), atol=0.02)


def test_white_noise_is_refused_over_domains_too():
    sk = needs("dev", "sklearn.gaussian_process.kernels")
    with pytest.raises(KernelError, match="white-noise"):
        DomainBKB(Box([[0, 1]]), sk.RBF(0.3) + sk.WhiteKernel(0.1))


def test_what_tables_refuse_is_refused_over_domains_too():
    box = Box([[0, 1]])
    policy = DomainBKB(box, k.RBF(0.3), regularization=1e-17)
    with pytest.raises(NumericalError, match="raise `regularization`"):
        policy.observe([[0.5]], [1.0])
    assert not len(policy.rows)
    for wrong in ("abc", [[0, 1]], None):
        with pytest.raises(ParameterError, match="domain must be"):
            DomainBKB(wrong, k.RBF(0.3))
    with pytest.raises(ArmsError, match="a point of"):
        box.encode(np.array(0.5))
