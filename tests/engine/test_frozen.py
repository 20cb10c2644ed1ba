"""Features frozen when they are seen: the statements of docs/theory.md, each as a test."""

from dataclasses import replace

import numpy as np
import pytest
from extras import needs
from hypothesis import given, settings
from hypothesis import strategies as st

import manyarms as ma
from manyarms.engine.base import Arms, Batch, Record
from manyarms.engine.growing import Stack, Triangle
from manyarms.engine.leftout import LeftOut, of_upper
from manyarms.errors import KernelError, NumericalError, ParameterError
from manyarms.kernels import RBF, Linear, Matern
from manyarms.runtime.progress import Meter


def prior(kernel, d, regularization=0.01, noise=0.1, **options):
    rule = ma.Inserted(**options)
    return rule.prior(kernel, Arms(np.zeros((0, d)), np.zeros(0)), regularization, noise, None)


def batch(kernel, rows, rewards, weights=None, keys=None):
    n = len(rows)
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    keys = np.full(n, -1) if keys is None else keys
    return Batch(rows, kernel.diag(rows), np.asarray(rewards, dtype=float), weights, keys, n)


def told(belief, rows, rewards, weights=None, cuts=()):
    """The belief after these rows, told in portions that end at the cuts, and |W_s| of each row."""
    weights = np.ones(len(rows)) if weights is None else weights
    sizes = []
    for part in np.split(np.arange(len(rows)), cuts):
        if len(part):
            step = belief.observed(batch(belief.kernel, rows[part], rewards[part], weights[part]))
            belief = step.after
            sizes.append(step.record.sizes)
    return belief, np.concatenate(sizes)


def data(n, d, seed, repeats=0.3):
    """Rows of which some come again, rewards and weights."""
    rng = np.random.default_rng(seed)
    rows = rng.random((n, d))
    again = rng.random(n) < repeats
    rows[again] = rows[rng.integers(n, size=again.sum())]
    return (
        rows,
        np.sin(5 * rows[:, 0]) + 0.1 * rng.standard_normal(n),
        rng.choice([1.0, 0.3, 4.0], size=n),
    )


def theta(eta):
    """θ of statement 1."""
    return (eta + np.sqrt(eta**2 + 4 * eta)) / 2


def largest_left_out(belief, rows, sizes, weights):
    """η by its definition, from all rows."""
    k = belief.kernel
    L = np.linalg.cholesky(k(belief.W, belief.W))
    Z = np.linalg.solve(L, k(belief.W, rows)).T
    most = np.maximum.outer(sizes, sizes)
    G = np.array([[k(rows[i : i + 1], rows[j : j + 1])[0, 0] - Z[i, : most[i, j]] @ Z[j, : most[i, j]]
                   for j in range(len(rows))] for i in range(len(rows))])  # fmt: skip
    G *= np.sqrt(np.outer(weights, weights))
    return max(0.0, np.linalg.eigvalsh(G)[-1]) / belief.regularization


KERNELS = [
    (RBF(0.3), lambda hp: hp.rbf([0.3, 0.3])),
    (Matern([0.5, 1.0], nu=1.5), lambda hp: hp.matern([0.5, 1.0], 1.5)),
    (4.0 * Matern(0.4, nu=2.5), lambda hp: hp.scaled(hp.matern([0.4, 0.4], 2.5), 4.0)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "oracle"), KERNELS, ids=["rbf", "matern", "scaled"])
@pytest.mark.parametrize("regularization", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.3])
def test_posterior_of_frozen_features_in_80_digits(kernel, oracle, regularization, tolerance):
    hp = needs("dev", "oracles.high_precision")
    rows, rewards, weights = data(24, 2, 1)
    belief = prior(kernel, 2, regularization, tolerance=tolerance, most=10)
    belief, sizes = told(belief, rows, rewards, weights, cuts=[1, 2, 3, 11])
    X = np.vstack([rows[:4], np.random.default_rng(2).random((8, 2))])
    mean, variance = belief.moments(X, kernel.diag(X))
    known = rows, sizes, weights, rewards, regularization
    expected = hp.frozen_moments(oracle(hp), belief.W, *known, X)
    n_max = 24 * 4.0
    accuracy = max(1e-9, 10 * np.finfo(float).eps * kernel.diag(X).max() * n_max / regularization)
    np.testing.assert_allclose(variance, expected[1], rtol=accuracy)
    np.testing.assert_allclose(mean, expected[0], atol=100 * accuracy * np.abs(expected[0]).max())


@pytest.mark.slow
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(0, 199), max_size=12),
    st.sampled_from([1.0, 0.01, 1e-5]),
    st.sampled_from([0.0, 0.01, 0.2]),
)
@settings(max_examples=20)
def test_any_portions_give_a_belief_as_good(seed, cuts, regularization, tolerance):
    """The same belief where the same rows entered W, and else one within the accuracies of both."""
    rows, rewards, weights = data(200, 3, seed)
    kernel = RBF(0.5)
    start = prior(kernel, 3, regularization, tolerance=tolerance)
    one_by_one, sizes = told(start, rows, rewards, weights, cuts=range(200))
    cut, cut_sizes = told(start, rows, rewards, weights, cuts=sorted(set(cuts)))
    X = np.random.default_rng(seed).random((40, 3))
    expected = one_by_one.moments(X, np.ones(40))
    found = cut.moments(X, np.ones(40))
    if not np.array_equal(sizes, cut_sizes):
        assert abs(cut.m - one_by_one.m) <= 0.1 * one_by_one.m + 1
        ratio = found[1] / expected[1]
        within = (1 + theta(cut.evidence.eta)) * (1 + theta(one_by_one.evidence.eta))
        assert max(ratio.max(), 1 / ratio.min()) <= within * (1 + 1e-7)
        return
    # A row that comes again in one portion is found in W within rounding only, which counts in e.
    np.testing.assert_allclose(
        cut.left_out.total, one_by_one.left_out.total, rtol=1e-3, atol=1e-8 / regularization
    )
    np.testing.assert_allclose(cut.factor.log_det, one_by_one.factor.log_det, rtol=1e-8)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6 * np.abs(expected[0]).max())


@pytest.mark.parametrize("kernel", [RBF(0.05), Matern(0.5, nu=2.5)])
def test_many_at_once_are_as_many_in_w_as_one_by_one(kernel):
    """With what they leave out, and at a λ at which rounding of L decides which rows may enter."""
    rng = np.random.default_rng(0)
    centres = rng.random((12, 1))
    rows = np.sort(centres[rng.integers(12, size=600)] + 0.01 * rng.standard_normal((600, 1)), 0)
    start = prior(kernel, 1, 1e-5, tolerance=0.003)
    one_by_one, _ = told(start, rows, rows[:, 0], cuts=range(600))
    at_once, _ = told(start, rows, rows[:, 0])
    assert abs(at_once.m - one_by_one.m) <= 0.05 * one_by_one.m
    paid = 0.003 * at_once.factor.log_det
    assert at_once.left_out.total <= max(paid, 1.1 * one_by_one.left_out.total)
    assert at_once.factor.log_det == pytest.approx(one_by_one.factor.log_det, rel=1e-3)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([None, 7]))
@settings(max_examples=20)
def test_sizes_and_rows_of_w_are_all_that_a_belief_is(seed, tolerance, most):
    """What is given back as a record is not decided again."""
    rows, rewards, weights = data(120, 2, seed)
    start = prior(RBF(0.2), 2, tolerance=tolerance, most=most)
    running, sizes = told(start, rows, rewards, weights, cuts=range(0, 120, 7))
    entered = np.flatnonzero(np.diff(sizes, prepend=0) > 0)
    record = Record(entered, sizes)
    # Another rule would decide otherwise; the record is what counts.
    other = prior(RBF(0.2), 2, tolerance=0.5)
    again = other.observed(batch(RBF(0.2), rows, rewards, weights), record)
    np.testing.assert_array_equal(again.after.W, running.W)
    np.testing.assert_array_equal(again.record.sizes, sizes)
    X = np.random.default_rng(seed).random((30, 2))
    for found, expected in zip(
        again.after.moments(X, np.ones(30)), running.moments(X, np.ones(30)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernel", [RBF(0.1), Matern(0.3, nu=0.5)])
def test_an_append_changes_no_score(kernel):
    rows, rewards, weights = data(60, 2, 3)
    belief, _ = told(prior(kernel, 2, tolerance=0.2), rows, rewards, weights)
    X = np.random.default_rng(4).random((50, 2))
    before = belief.moments(X, kernel.diag(X))
    row = np.array([0.123, 0.456])
    z, r, _, _ = belief.inducing.feature(row, 1.0)
    inducing = belief.inducing.appended(row[None], np.array([-1]), np.append(z, np.sqrt(r)))
    w = np.append(belief.w, 0.0)
    grown = replace(belief, inducing=inducing, factor=belief.factor.grown(), w=w)
    after = grown.moments(X, kernel.diag(X))
    np.testing.assert_allclose(after[0], before[0], atol=1e-12)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-10)


@pytest.mark.parametrize("regularization", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("at_once", [1, 7, 41])
def test_rows_on_a_line_in_order_keep_the_factor_accurate(regularization, at_once):
    """Each row is nearly explained by those before it: errors of the factor must not feed on each other."""
    rows = np.linspace(0, 1, 41)[:, None]
    rewards = np.sin(rows[:, 0])
    cuts = range(at_once, 41, at_once)
    belief, sizes = told(prior(RBF(0.1), 1, regularization), rows, rewards, cuts=cuts)
    # Features are the first |W_s| coordinates on the last W. V by a QR factorisation of all rows.
    Z, r = belief.features(rows, np.ones(41))
    Y = np.where(np.arange(belief.m) < sizes[:, None], Z, 0.0)
    R = np.linalg.qr(np.vstack([np.sqrt(regularization) * np.eye(belief.m), Y]), mode="r")
    log_det = 2 * np.log(np.abs(np.diag(R)) / np.sqrt(regularization)).sum()
    w = np.linalg.solve(R, np.linalg.solve(R.T, Y.T @ rewards))
    mean, variance = belief.moments(rows, np.ones(41))
    assert belief.factor.log_det == pytest.approx(log_det, rel=1e-6)
    np.testing.assert_allclose(mean, Z @ w, atol=1e-5)
    inside = np.square(np.linalg.solve(R.T, Z.T)).sum(axis=0)
    np.testing.assert_allclose(variance, r / regularization + inside, rtol=1e-5)


@given(st.integers(0, 10_000), st.sampled_from([1.0, 0.01, 1e-4]), st.sampled_from([None, 5]))
@settings(max_examples=25)
def test_no_variance_ever_rises(seed, regularization, most):
    rows, rewards, weights = data(60, 2, seed)
    belief = prior(RBF(0.2), 2, regularization, tolerance=0.05, most=most)
    X = np.random.default_rng(seed).random((40, 2))
    variance = belief.moments(X, np.ones(40))[1]
    for i in range(0, 60, 3):
        belief = told(belief, rows[i : i + 3], rewards[i : i + 3], weights[i : i + 3])[0]
        after = belief.moments(X, np.ones(40))[1]
        assert (after <= variance * (1 + 1e-9)).all()
        variance = after


@given(
    st.integers(0, 10_000), st.sampled_from([4.0, 0.01, 1e-4]), st.sampled_from([0.003, 0.01, 0.1])
)
@settings(max_examples=25)
def test_what_is_left_out_is_paid_from_information(seed, regularization, tolerance):
    """e ≤ ρ·ln det(V/λ), surely, at any λ and any weights."""
    rows, rewards, weights = data(200, 2, seed)
    belief, _ = told(
        prior(RBF(0.4), 2, regularization, tolerance=tolerance),
        rows,
        rewards,
        weights,
        cuts=[50, 51],
    )
    assert belief.left_out.total <= tolerance * belief.factor.log_det * (1 + 1e-6) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [None, 12])
def test_accuracy_against_the_exact_posterior(seed, most):
    """Statement 1: 1/(1 + θ) ≤ σ̃²/σ² ≤ 1 + θ, and |√ℓ − √ℓ_K| ≤ √e."""
    rows, rewards, weights = data(150, 2, seed)
    kernel = RBF(0.3)
    lam = 0.05
    belief, sizes = told(
        prior(kernel, 2, lam, tolerance=0.1, most=most), rows, rewards, weights, cuts=range(150)
    )
    eta = largest_left_out(belief, rows, sizes, weights)
    assert eta <= belief.evidence.eta * (1 + 1e-9) + 1e-12
    assert belief.evidence.eta <= belief.left_out.total
    X = np.random.default_rng(seed).random((60, 2))
    K = kernel(rows, rows) * np.sqrt(np.outer(weights, weights))
    k = kernel(X, rows) * np.sqrt(weights)
    exact = (1 - np.einsum("ij,ij->i", k, np.linalg.solve(K + lam * np.eye(150), k.T).T)) / lam
    ratio = belief.moments(X, np.ones(60))[1] / exact
    assert ratio.max() <= (1 + theta(eta)) * (1 + 1e-7)
    assert ratio.min() >= 1 / (1 + theta(eta)) * (1 - 1e-7)
    log_det = np.linalg.slogdet(np.eye(150) + K / lam)[1]
    assert (
        abs(np.sqrt(belief.factor.log_det) - np.sqrt(log_det))
        <= np.sqrt(belief.left_out.total) + 1e-9
    )
    assert belief.evidence.information >= log_det - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_at_once_or_in_order_within_the_two_accuracies(seed):
    """Variances of n at once are within (1 + θ₁)(1 + θ₂) of those told in another order."""
    rows, rewards, weights = data(120, 2, seed)
    kernel = Matern(0.6, nu=2.5)
    start = prior(kernel, 2, 0.1, tolerance=0.2)
    at_once, sizes = told(start, rows, rewards, weights)
    order = np.random.default_rng(seed).permutation(120)
    one_by_one, other = told(start, rows[order], rewards[order], weights[order], cuts=range(120))
    X = np.random.default_rng(seed).random((50, 2))
    ratio = at_once.moments(X, np.ones(50))[1] / one_by_one.moments(X, np.ones(50))[1]
    within = 1.0
    for belief, seen, said in ((at_once, sizes, np.arange(120)), (one_by_one, other, order)):
        eta = largest_left_out(belief, rows[said], seen, weights[said])
        within *= 1 + theta(eta)
    assert max(ratio.max(), 1 / ratio.min()) <= within * (1 + 1e-7)


@pytest.mark.parametrize("most", [None, 6])
@pytest.mark.parametrize("regularization", [1.0, 0.01])
def test_variances_add_up_to_information(regularization, most):
    """Statement 3: Σ ωσ̃²(x_s), each before x_s, is at most c/ln(1 + c)·ℓ + e, c = max ωk(x, x)/λ."""
    rows, rewards, weights = data(120, 2, 11)
    belief = prior(RBF(0.2), 2, regularization, tolerance=0.05, most=most)
    total = 0.0
    for i in range(120):
        _, variance = belief.moments(rows[i : i + 1], np.ones(1))
        total += weights[i] * variance[0]
        belief, _ = told(belief, rows[i : i + 1], rewards[i : i + 1], weights[i : i + 1])
    c = weights.max() / regularization
    bound = c / np.log1p(c) * belief.factor.log_det + belief.left_out.total
    assert total <= bound * (1 + 1e-9)
    assert total >= 0.1 * bound


def test_size_is_bounded_by_information():
    """Statement 4: Σ_{p ∈ W} ln(1 + N_p r_p/λ) ≤ ℓ_K."""
    rows, rewards, weights = data(200, 2, 7)
    kernel = RBF(0.25)
    belief, _ = told(
        prior(kernel, 2, 0.01, tolerance=0.01), rows, rewards, weights, cuts=range(200)
    )
    residual = np.square(np.diag(belief.L.upper))
    entered = [int(np.flatnonzero((rows == row).all(axis=1))[0]) for row in belief.W]
    gained = np.log1p(weights[entered] * residual / 0.01).sum()
    K = kernel(rows, rows) * np.sqrt(np.outer(weights, weights))
    assert gained <= np.linalg.slogdet(np.eye(200) + K / 0.01)[1] + 1e-9


def test_most_rows_in_w_and_the_rest_is_left_out():
    rows, rewards, _ = data(300, 3, 2)
    belief, sizes = told(prior(RBF(0.2), 3, most=20), rows, rewards)
    assert belief.m == sizes.max() == 20
    assert belief.left_out.total > 10


def test_tolerance_zero_is_the_exact_posterior():
    rows, rewards, weights = data(80, 2, 5)
    kernel = RBF(0.3)
    belief, _ = told(prior(kernel, 2, 0.01, tolerance=0.0), rows, rewards, weights)
    X = np.random.default_rng(1).random((30, 2))
    T = np.linalg.inv(kernel(rows, rows) + 0.01 * np.diag(1 / weights))
    k = kernel(X, rows)
    mean, variance = belief.moments(X, np.ones(30))
    np.testing.assert_allclose(mean, k @ T @ rewards, atol=1e-5)
    np.testing.assert_allclose(variance, (1 - np.einsum("ij,jk,ik->i", k, T, k)) / 0.01, rtol=1e-5)


def test_values_are_independent_of_each_other():
    """Two continuations of one belief share buffers; neither changes the other, nor what was before."""
    rows, rewards, weights = data(90, 2, 9)
    kernel = RBF(0.15)
    root, _ = told(prior(kernel, 2), rows[:30], rewards[:30])
    X = np.random.default_rng(1).random((20, 2))
    before = root.moments(X, np.ones(20))
    left, _ = told(root, rows[30:60], rewards[30:60], cuts=range(30))
    alone, _ = told(prior(kernel, 2), rows[:60], rewards[:60], cuts=[30, *range(31, 60)])
    right, _ = told(root, rows[60:], rewards[60:], weights[60:], cuts=range(30))
    np.testing.assert_array_equal(root.moments(X, np.ones(20)), before)
    for found, expected in zip(
        left.moments(X, np.ones(20)), alone.moments(X, np.ones(20)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    assert not np.array_equal(right.W[30:35], left.W[30:35])


def test_rows_in_w_leave_out_nothing():
    rows = np.random.default_rng(0).random((10, 2))
    belief, _ = told(prior(RBF(0.1), 2), rows, np.zeros(10))
    e = belief.left_out.total
    belief, _ = told(belief, rows, np.ones(10))
    assert belief.left_out.total == e
    assert belief.m == 10


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_scaling_kernel_regularization_and_rewards_together_changes_nothing(scale):
    rows, rewards, weights = data(60, 2, 4)
    plain, sizes = told(prior(RBF(0.3), 2, 0.01), rows, rewards, weights)
    kernel = float(scale) * RBF(0.3)
    scaled = prior(kernel, 2, 0.01 * scale, np.sqrt(0.01 * scale))
    scaled, other = told(scaled, rows, np.sqrt(scale) * rewards, weights)
    np.testing.assert_array_equal(sizes, other)
    np.testing.assert_allclose(scaled.left_out.total, plain.left_out.total, rtol=1e-3)
    X = np.random.default_rng(1).random((10, 2))
    np.testing.assert_allclose(
        scaled.moments(X, np.full(10, scale))[1], plain.moments(X, np.ones(10))[1], rtol=1e-7
    )


def test_degenerate_rows():
    kernel = Linear()
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    belief, sizes = told(prior(kernel, 2), rows, np.arange(5.0), cuts=range(5))
    np.testing.assert_array_equal(sizes, [0, 1, 1, 1, 2])
    mean, variance = belief.moments(rows, kernel.diag(rows))
    assert np.isfinite(mean).all()
    assert variance[0] == 0
    again, _ = told(prior(kernel, 2), rows, np.arange(5.0))
    np.testing.assert_allclose(again.moments(rows, kernel.diag(rows))[0], mean, atol=1e-12)


def test_many_results_that_are_interrupted_leave_no_trace():
    class Interrupted(RBF):
        calls = 0

        def __call__(self, X, Y):
            self.calls += 1
            if self.calls > 12:
                raise KeyboardInterrupt
            return super().__call__(X, Y)

    rng = np.random.default_rng(0)
    X = rng.random((2000, 2))
    policy = ma.BKB(X, Interrupted(0.1))
    policy.observe([1, 2], [0.0, 1.0])
    state = policy._state
    with pytest.raises(KeyboardInterrupt):
        policy.observe(np.arange(2000), rng.random(2000))
    assert policy._state is state
    assert policy.evidence.n_observations == 2
    assert policy.belief.m == 2


def test_progress_is_shown_after_seconds_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Meter("results", 100) as progress:
        progress.at(1)
        assert not capsys.readouterr().err
        progress._start -= 10.0  # as if seconds had passed
        progress.at(50)
    assert "learned 50 of 100 results" in capsys.readouterr().err


def test_errors_say_what_to_do():
    rows = np.random.default_rng(0).random((4, 1))
    with pytest.raises(NumericalError, match="rescale the rewards"):
        told(prior(RBF(1.0), 1), rows, np.full(4, 1.7e308), np.full(4, 100.0))
    with pytest.raises(NumericalError, match="raise `regularization`"):
        told(prior(RBF(1.0), 1, 1e-30), rows, np.zeros(4))
    with pytest.raises(ParameterError, match="tolerance"):
        ma.Inserted(tolerance=-1.0)
    with pytest.raises(ParameterError, match="most"):
        ma.Inserted(most=0)
    _belief, _ = told(prior(RBF(1.0), 1), rows, np.zeros(4))

    class Wrong(RBF):
        def __call__(self, X, Y):
            return 3 * super().__call__(X, Y)

    wrong = prior(Wrong(0.5), 1)
    with pytest.raises(KernelError, match="not positive semi-definite"):
        told(wrong, rows, np.zeros(4), cuts=range(4))


def test_nothing_is_appended_to_items_that_cannot_be_written_to():
    items = np.frombuffer(np.arange(4.0).tobytes())  # as in a snapshot
    stack = Stack(items).appended(np.zeros(0))
    np.testing.assert_array_equal(stack.items, items)
    np.testing.assert_array_equal(stack.appended(np.ones(1)).items, [0, 1, 2, 3, 1])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 100))
@settings(max_examples=30)
def test_stack_and_triangle_are_values(sizes, seed):
    rng = np.random.default_rng(seed)
    stack = Stack(np.zeros((0, 2)))
    versions = [(stack, stack.items.copy())]
    for n in sizes:
        base, _ = versions[rng.integers(len(versions))]
        grown = base.appended(rng.random((n, 2)))
        versions.append((grown, grown.items.copy()))
    for value, items in versions:
        np.testing.assert_array_equal(value.items, items)
    T = np.tril(rng.random((9, 9))) + 9 * np.eye(9)
    triangle = Triangle.of(np.zeros((0, 0)))
    for i in range(9):
        triangle = triangle.with_row(T[i, :i], T[i, i])
    b = rng.random((9, 3))
    np.testing.assert_allclose(triangle.upper.T, T)
    np.testing.assert_allclose(Triangle.of(T).items, triangle.items)
    np.testing.assert_allclose(T @ triangle.solve(b), b)
    np.testing.assert_allclose(T @ triangle.solve(b[:, 0]), b[:, 0])
    np.testing.assert_allclose(T.T @ triangle.solve_transposed(b), b)
    np.testing.assert_allclose(triangle.transposed_product(b[:, 0]), T.T @ b[:, 0])


PAIRS = {
    4: (39998.30328440833, 1.6967155916936463, -260.51054647354016),
    6: (39981.82692999965, 18.173070000357257, -852.4039767274885),
    8: (39960.946062334195, 39.053937665794365, -1249.2526952480584),
    10: (39965.932133620256, 34.06786637978803, 1166.856476037993),
    12: (39882.0385769893, 117.96142301072359, -2168.9956254244194),
    14: (39038.13581532915, 961.8641846708451, 6127.755272290269),
    16: (38126.470603514965, 1873.529396485037, -8451.689976561367),
    18: (39126.793932182285, 873.2060678177022, -5845.147891699103),
    20: (35194.15173568987, 4805.848264310131, -13005.297114361996),
    28: (20000.000000000004, 19999.999999999996, -20000.0),
}
"""Of 34 rows those that are not 0: k(x, x), k(y, y) and k(x, y) of x in this place and y in the next."""


def clustered():
    """A Gram matrix whose eigenvalues are 0 and, ten times, 40,000: LAPACK's bisection for the largest gives up."""
    G = np.zeros((34, 34))
    for i, (xx, yy, xy) in PAIRS.items():
        G[i : i + 2, i : i + 2] = [[xx, xy], [xy, yy]]
    return G


@pytest.mark.parametrize(
    "G",
    [
        clustered(),
        2.0**-30 * clustered(),
        1e4 * np.equal.outer(*2 * [np.random.default_rng(5).permutation(np.arange(64) % 16)]),
    ],
    ids=["pairs", "small pairs", "one-hot rows"],
)
def test_the_bound_holds_where_the_largest_eigenvalues_are_equal(G):
    assert of_upper(np.triu(G)) == pytest.approx(np.linalg.norm(G, 2), rel=1e-12)


def test_results_with_equal_eigenvalues_are_learned():
    K = np.zeros((37, 37))
    K[:3, :3] = 1e6 * np.eye(3)
    K[3:, 3:] = clustered()
    kernel = ma.kernels.FromCallable(
        lambda X, Y: K[np.ix_(X[:, 0].astype(int), Y[:, 0].astype(int))]
    )
    policy = ma.BKB(None, kernel, n_features=1, regularization=1.0, rule=ma.Inserted(most=3))
    policy.observe(np.arange(37.0)[:, None], np.zeros(37))
    assert policy.inducing.tolist() == []
    assert policy.evidence.eta == pytest.approx(4e4, rel=1e-6)
    assert policy.sketch_error == pytest.approx(4e5, rel=1e-6)


def test_blocks_bound_the_largest_eigenvalue():
    rng = np.random.default_rng(0)
    left_out = LeftOut.nothing(1)
    parts = rng.random((700, 3)) * 0.1

    def largest(rows, sizes, weights):
        at = rows[:, 0].astype(int)
        return float(np.linalg.eigvalsh(parts[at].T @ parts[at])[-1])

    for start in range(0, 700, 7):
        at = np.arange(start, min(start + 7, 700))
        e = np.square(parts[at]).sum(axis=1)
        rows = at[:, None].astype(float)
        left_out = left_out.with_rows(
            rows, np.zeros(len(at), int), np.ones(len(at)), float(e.sum()), 0.0, largest
        )
        seen = parts[: at[-1] + 1]
        assert (
            np.linalg.eigvalsh(seen.T @ seen)[-1]
            <= left_out.bound() * (1 + 1e-12)
            <= left_out.total * (1 + 1e-12)
        )
    assert left_out.kept.n < 256
