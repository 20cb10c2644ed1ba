"""Own parts summed out: a belief with the kernel k(x, y) + v·[x = y], and the statements of
docs/theory.md about it."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manyarms as ma
from manyarms.bandit.domain import DomainBKB
from manyarms.engine.base import Arms, Batch, Record
from manyarms.engine.frozen import Frozen
from manyarms.engine.own import Owned, Tried
from manyarms.engine.packing import packed, unpacked
from manyarms.equal import equal_rows
from manyarms.errors import NumericalError, SavedStateError
from manyarms.kernels import RBF, Hamming, Matern, Own, Product
from manyarms.kernels.base import without_own


def prior(kernel, d, regularization=0.01, **options):
    noise = np.sqrt(regularization)
    nothing = Arms(np.zeros((0, d)), np.zeros(0))
    return ma.Inserted(**options).prior(kernel, nothing, regularization, noise, None)


def batch(kernel, rows, rewards, weights=None):
    n = len(rows)
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    rewards = np.asarray(rewards, dtype=float)
    return Batch(rows, kernel.diag(rows), rewards, weights, np.full(n, -1), n)


def told(belief, rows, rewards, weights=None, cuts=()):
    """The belief after these rows, in portions that end at the cuts, and the records."""
    weights = np.ones(len(rows)) if weights is None else weights
    records = []
    for part in np.split(np.arange(len(rows)), cuts):
        if len(part):
            step = belief.observed(batch(belief.kernel, rows[part], rewards[part], weights[part]))
            belief = step.after
            records.append(step.record)
    return belief, records


def data(n, d, seed, n_rows=None):
    """Pulls of n_rows different rows, rewards that have own parts, and weights."""
    rng = np.random.default_rng(seed)
    rows = rng.random((n_rows or max(1, n // 2), d))
    own = rng.standard_normal(len(rows))
    pulls = rng.integers(len(rows), size=n)
    rewards = np.sin(5 * rows[pulls, 0]) + own[pulls] + 0.1 * rng.standard_normal(n)
    return rows[pulls], rewards, rng.choice([1.0, 0.3, 4.0], size=n)


def merged(rows, rewards, weights):
    """Different rows, the weighted mean of the rewards of each, and the sum of its weights."""
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    total = np.bincount(which.ravel(), weights)
    return distinct, np.bincount(which.ravel(), weights * rewards) / total, total


def exact(kernel, rows, rewards, weights, regularization, X):
    """The dense posterior of the whole kernel, σ² in leverage units."""
    rows, rewards, weights = merged(rows, rewards, weights)
    C = np.linalg.cholesky(kernel(rows, rows) + np.diag(regularization / weights))
    K = np.linalg.solve(C, kernel(rows, X))
    mean = K.T @ np.linalg.solve(C, rewards)
    return mean, (kernel.diag(X) - np.square(K).sum(axis=0)) / regularization


def theta(eta):
    """θ of statement 1."""
    return (eta + np.sqrt(eta**2 + 4 * eta)) / 2


def asked(belief, X):
    return belief.moments(X, belief.kernel.diag(X))


def assert_same(found, expected, lam, atol=1e-9):
    """Means and standard deviations."""
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=atol)
    sd, expected_sd = np.sqrt(lam * found[1]), np.sqrt(lam * expected[1])
    np.testing.assert_allclose(sd, expected_sd, rtol=0, atol=atol)


ROUGH = Matern([0.5, 1.0], nu=0.5)
"""Every row enters W."""
RATIOS = [1e-4, 1e-2, 1.0, 1e2, 1e5, 1e8]
"""v/λ."""


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("cuts", [range(60), (1, 2, 20, 21), ()], ids=["one", "some", "all"])
def test_where_w_is_all_the_belief_is_the_exact_posterior(ratio, cuts):
    rows, rewards, weights = data(60, 2, 1)
    lam = 1e-2 if ratio <= 1e3 else 1e-6
    kernel = Own(ROUGH, ratio * lam)
    belief, _ = told(prior(kernel, 2, lam, tolerance=0.0), rows, rewards, weights, cuts)
    assert belief.m == len(belief.tried) == len(np.unique(rows, axis=0))
    X = np.vstack([rows[:20], np.random.default_rng(2).random((20, 2))])
    assert_same(asked(belief, X), exact(kernel, rows, rewards, weights, lam, X), lam)
    # What is only supposed leaves the means and lowers the variances as a pull of the mean does.
    some = np.vstack([rows[:3], X[-3:], X[-3:-2]])
    supposed = belief.supposing(some, kernel.diag(some)).after
    mean = asked(belief, some)[0]
    rows = np.vstack([rows, some])
    expected = exact(kernel, rows, np.append(rewards, mean), np.append(weights, np.ones(7)), lam, X)
    assert_same(asked(supposed, X), expected, lam)


def test_ten_thousand_repeats_leave_the_belief_exact():
    rows, rewards, weights = data(10_000, 2, 5, n_rows=40)
    kernel = Own(ROUGH, 0.3)
    belief, _ = told(
        prior(kernel, 2, tolerance=0.0), rows, rewards, weights, cuts=[*range(2000), 5000]
    )
    X = np.vstack([rows[:40], np.random.default_rng(2).random((20, 2))])
    assert_same(asked(belief, X), exact(kernel, rows, rewards, weights, 0.01, X), 0.01)


def test_equal_rows_are_one_arm_and_minus_zero_is_zero():
    kernel = Own(RBF(0.5), 0.2)
    rows = np.array([[0.0, 1.0], [0.5, 0.0], [-0.0, 1.0], [0.5, -0.0], [0.0, 1.0]])
    rewards = np.array([1.0, 2.0, 3.0, -1.0, 0.5])
    weights = np.array([1.0, 2.0, 0.5, 1.0, 1.0])
    belief, records = told(prior(kernel, 2), rows, rewards, weights)
    assert len(belief.tried) == 2
    np.testing.assert_array_equal(belief.tried.places(rows), [0, 1, 0, 1, 0])
    np.testing.assert_allclose(belief.tried.weight, [2.5, 3.0])
    np.testing.assert_allclose(belief.tried.mean, [3.0 / 2.5, 1.0])
    np.testing.assert_array_equal(records[0].sizes, [1, 2, 1, 2, 1])
    np.testing.assert_array_equal(records[0].entered, [0, 1])
    X = np.array([[0.2, 0.3], [0.0, 1.0]])
    assert_same(asked(belief, X), exact(kernel, rows + 0.0, rewards, weights, 0.01, X), 0.01)


SMOOTH = [
    (RBF(0.4), 3),
    (Matern([0.5, 1.0], nu=2.5), 2),
    (Product(RBF(0.5), RBF(0.3)), 2),
]


@pytest.mark.parametrize(("smooth", "d"), SMOOTH, ids=["rbf", "matern", "product"])
@pytest.mark.parametrize("ratio", [1e-2, 1.0, 30.0])
@pytest.mark.parametrize("options", [{}, {"tolerance": 0.3}, {"most": 5}], ids=["", "rho", "most"])
@pytest.mark.parametrize("seed", range(2))
def test_every_variance_is_within_theta_of_the_exact_one(smooth, d, ratio, options, seed):
    """Statement 1 at tried rows and at others, by the exact posterior of the whole kernel."""
    lam = 0.01
    kernel = 2.0 * Own(smooth, ratio * lam / 2)
    rows, rewards, weights = data(150, d, seed, n_rows=100)
    belief, _ = told(prior(kernel, d, lam, **options), rows, rewards, weights, [1, 2, 3, 60])
    X = np.vstack([rows, np.random.default_rng([seed, 1]).random((80, d))])
    _, variance = exact(kernel, rows, rewards, weights, lam, X)
    ratios = asked(belief, X)[1] / variance
    within = 1 + theta(belief.evidence.eta)
    assert ratios.max() <= within * (1 + 1e-7)
    assert ratios.min() >= (1 - 1e-7) / within
    if options != {"most": 5}:
        rho = options.get("tolerance", 0.01)
        paid = rho * belief.base.factor.log_det
        assert belief.evidence.left_out <= paid * (1 + 1e-6) + 1e-9
        assert belief.evidence.log_det >= belief.base.factor.log_det
    # |√ℓ_S − √ℓ_{S,K}| ≤ √e, and the information of own parts is exact.
    distinct, _, total = merged(rows, rewards, weights)
    K = kernel(distinct, distinct) * np.sqrt(np.outer(total, total)) / lam
    _, log_det = np.linalg.slogdet(np.eye(len(K)) + K)
    evidence = belief.evidence
    assert log_det <= evidence.information * (1 + 1e-9)
    apart = np.sqrt(log_det - belief.own_log_det) - np.sqrt(belief.base.factor.log_det)
    assert abs(apart) <= np.sqrt(evidence.left_out) + 1e-9


def test_w_is_as_large_as_the_kernel_without_own_parts_asks_for():
    rng = np.random.default_rng(0)
    rows = rng.random((600, 2))
    rewards = np.sin(5 * rows[:, 0]) + 0.3 * rng.standard_normal(600)
    belief, _ = told(prior(Own(RBF(0.5), 0.1), 2), rows, rewards)
    assert len(belief.tried) == 600
    assert belief.m < 60


@pytest.mark.parametrize("cuts", [(), range(300)], ids=["at once", "in order"])
def test_no_arm_is_silenced_by_a_cap(cuts):
    """An arm that may not enter W any more is learned by its own part."""
    rows, rewards, _ = data(300, 2, 3, n_rows=30)
    kernel = Own(RBF(0.1), 1.0)
    capped, _ = told(prior(kernel, 2, most=3), rows, rewards, cuts=cuts)
    assert capped.m == 3
    distinct, means, total = merged(rows, rewards, np.ones(300))
    mean, variance = asked(capped, distinct)
    np.testing.assert_allclose(mean, means, atol=0.05)
    assert (0.01 * variance <= 0.01 / total).all()
    # Without own parts, what the three rows do not tell is not learned at all.
    silent, _ = told(prior(RBF(0.1), 2, most=3), rows, rewards, cuts=cuts)
    assert np.abs(asked(silent, distinct)[0] - means).max() > 1.0


@given(st.integers(0, 10_000), st.lists(st.integers(0, 149), max_size=8), st.sampled_from(RATIOS))
@settings(max_examples=20, deadline=None)
def test_any_portions_give_a_belief_as_good(seed, cuts, ratio):
    rows, rewards, weights = data(150, 3, seed, n_rows=90)
    lam = 0.01
    kernel = Own(RBF(0.5), ratio * lam)
    one_by_one, _ = told(prior(kernel, 3, lam), rows, rewards, weights, range(150))
    cut, _ = told(prior(kernel, 3, lam), rows, rewards, weights, sorted(set(cuts)))
    np.testing.assert_allclose(cut.tried.weight, one_by_one.tried.weight)
    np.testing.assert_allclose(cut.tried.mean, one_by_one.tried.mean, atol=1e-12)
    np.testing.assert_array_equal(cut.tried.rows, one_by_one.tried.rows)
    assert cut.trace == pytest.approx(one_by_one.trace)
    assert cut.own_log_det == pytest.approx(one_by_one.own_log_det)
    assert cut.n_observations == one_by_one.n_observations == 150
    X = np.vstack([rows[:20], np.random.default_rng([seed, 1]).random((40, 3))])
    found, expected = asked(cut, X), asked(one_by_one, X)
    within = (1 + theta(cut.evidence.eta)) * (1 + theta(one_by_one.evidence.eta))
    ratios = found[1] / expected[1]
    assert max(ratios.max(), 1 / ratios.min()) <= within * (1 + 1e-7)


def test_without_variance_it_is_the_plain_engine():
    rows, rewards, weights = data(80, 2, 1)
    plain, _ = told(prior(RBF(0.3), 2), rows, rewards, weights, [3, 50])
    nothing = prior(Own(RBF(0.3), 0.0), 2)
    assert isinstance(nothing, Frozen)
    same, _ = told(nothing, rows, rewards, weights, [3, 50])
    X = np.random.default_rng(0).random((20, 2))
    np.testing.assert_array_equal(asked(plain, X), asked(same, X))
    # So it is in the limit.
    owned, _ = told(prior(Own(RBF(0.3), 1e-16), 2), rows, rewards, weights, range(80))
    plain, _ = told(prior(RBF(0.3), 2), rows, rewards, weights, range(80))
    np.testing.assert_allclose(asked(owned, X), asked(plain, X), rtol=0, atol=1e-9)
    assert plain.base is plain
    assert plain.own_variance == 0.0
    assert plain.tried is None
    assert plain.corrected(*asked(plain, X), np.full(20, -1))[0] is not None


def test_which_kernels_have_own_parts():
    smooth = RBF(0.3)
    for kernel, variance in (
        (Own(smooth, 0.5), 0.5),
        (3.0 * Own(smooth, 0.5), 1.5),
        (Own(Own(smooth, 0.25), 0.5), 0.75),
        (2.0 * (Own(smooth, 0.5) + 2.0 * Own(Hamming(1.0), 0.25)), 2.0),
        (Matern(1.0) + Own(smooth, 0.5), 0.5),
        (smooth, 0.0),
        (Own(smooth, 0.5) * Matern(1.0), 0.0),
    ):
        rest, found = without_own(kernel)
        assert found == variance
        X = np.random.default_rng(0).random((9, 2))
        whole = rest(X, X)
        whole[equal_rows(X, X)] += found
        np.testing.assert_allclose(kernel(X, X), whole, rtol=1e-15)
        belief = prior(kernel, 2)
        assert isinstance(belief, Owned if variance else Frozen)
        assert belief.own_variance == variance
        assert belief.kernel is kernel
        np.testing.assert_allclose(belief.base.kernel(X, X), rest(X, X))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([None, 7]))
@settings(max_examples=20, deadline=None)
def test_what_was_decided_is_not_decided_again(seed, tolerance, most):
    rows, rewards, weights = data(120, 2, seed, n_rows=70)
    kernel = Own(RBF(0.2), 0.02)
    cuts = range(0, 120, 7)
    running, records = told(
        prior(kernel, 2, tolerance=tolerance, most=most), rows, rewards, weights, cuts
    )
    # Another rule would decide otherwise; the records are what counts.
    again = prior(kernel, 2, tolerance=0.5)
    parts = [part for part in np.split(np.arange(120), cuts) if len(part)]
    for part, record in zip(parts, records, strict=True):
        step = again.observed(
            batch(kernel, rows[part], rewards[part], weights[part]),
            Record(record.entered, np.zeros(0, dtype=np.intp)),
        )
        again = step.after
        np.testing.assert_array_equal(step.record.sizes, record.sizes)
        np.testing.assert_array_equal(step.record.entered, record.entered)
    np.testing.assert_array_equal(again.W, running.W)
    X = np.vstack([rows[:9], np.random.default_rng([seed, 1]).random((30, 2))])
    np.testing.assert_allclose(asked(again, X), asked(running, X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 90])
def test_a_belief_that_was_packed_goes_on_as_before(n):
    rows, rewards, weights = data(120, 2, 4)
    kernel = Own(RBF(0.3), 0.1)
    before, _ = told(prior(kernel, 2), rows[:n], rewards[:n], weights[:n], range(1, n))
    arrays = packed(before)
    assert all(array.ndim == 1 for array in arrays.values())
    after = unpacked(prior(kernel, 2), arrays, before.W)
    X = np.vstack([rows, np.random.default_rng(0).random((20, 2))])
    np.testing.assert_array_equal(asked(after, X), asked(before, X))
    assert after.evidence.log_det == pytest.approx(before.evidence.log_det, rel=1e-14, abs=1e-14)
    assert after.evidence.trace == before.evidence.trace
    more = batch(kernel, rows[n:], rewards[n:], weights[n:])
    np.testing.assert_allclose(
        asked(after.observed(more).after, X), asked(before.observed(more).after, X), rtol=1e-12
    )
    np.testing.assert_array_equal(asked(pickle.loads(pickle.dumps(before)), X), asked(before, X))


def test_what_was_packed_of_another_kind_is_refused():
    rows, rewards, _ = data(20, 2, 4)
    kernel = Own(RBF(0.3), 0.1)
    owned, _ = told(prior(kernel, 2), rows, rewards)
    plain, _ = told(prior(RBF(0.3), 2), rows, rewards)
    with pytest.raises(ValueError, match="own"):
        unpacked(prior(RBF(0.3), 2), packed(owned), owned.W)
    with pytest.raises(ValueError, match="own"):
        unpacked(prior(kernel, 2), packed(plain), plain.W)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["observe", "suppose", "branch", "back"]),
        st.lists(st.integers(0, 11), min_size=1, max_size=4),
        st.integers(0, 1000),
    ),
    max_size=25,
)


@given(STEPS, st.sampled_from([1e-3, 1.0, 1e4]), st.sampled_from([None, 2]))
@settings(max_examples=60, deadline=None)
def test_beliefs_are_values_however_they_go_on(steps, ratio, most):
    """What was observed or supposed of one leaves all others as they are."""
    arms = np.random.default_rng(0).random((12, 2))
    lam = 0.01
    kernel = Own(RBF(0.5), ratio * lam)
    diag = kernel.diag(arms)
    start = prior(kernel, 2, lam, most=most)
    kept = [(start, start.moments(arms, diag), frozenset())]
    belief, seen = start, frozenset()
    for what, pulls, number in steps:
        before = belief.moments(arms, diag)
        if what == "branch":
            kept.append((belief, before, seen))
            continue
        if what == "back":
            belief, _, seen = kept[number % len(kept)]
            continue
        rows = arms[pulls]
        if what == "suppose":
            belief = belief.supposing(rows, diag[pulls]).after
        else:
            rewards = np.random.default_rng(number).standard_normal(len(pulls))
            belief = belief.observed(batch(kernel, rows, rewards)).after
        seen = seen | set(pulls)
        mean, variance = belief.moments(arms, diag)
        assert (variance <= before[1] * (1 + 1e-9)).all()
        assert (variance > 0).all()
        if what == "suppose":
            np.testing.assert_allclose(mean, before[0], atol=1e-9)
        places = belief.tried.places(arms)
        assert {i for i in range(12) if places[i] >= 0} == seen
        tried = places[places >= 0]
        assert sorted(tried) == list(range(len(belief.tried)))
        np.testing.assert_array_equal(belief.tried.rows[tried], arms[places >= 0])
    for value, expected, tried in kept:
        np.testing.assert_array_equal(value.moments(arms, diag), expected)
        found = value.tried.places(arms)
        assert {i for i in range(12) if found[i] >= 0} == tried


@pytest.mark.parametrize("ratio", [1e-3, 0.1, 5.0, 100.0])
@pytest.mark.parametrize("most", [None, 3])
def test_without_noise_f_is_inside_surely(ratio, most):
    """Statement 2 for ξ = 0 is an inequality of norms: it holds in every run, at every row."""
    lam = 0.01
    smooth = RBF(0.25)
    kernel = Own(smooth, ratio * lam)
    worst = needed = 0.0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        arms = rng.random((60, 2))
        a = rng.standard_normal(60)
        own = np.sqrt(ratio * lam) * rng.standard_normal(60) * (rng.random(60) < 0.1 * (seed % 2))
        K = smooth(arms, arms)
        f = K @ a + own
        norm = np.sqrt(a @ K @ a + np.square(own).sum() / (ratio * lam))  # ‖f_k‖² + Σu²/v
        radius = ma.Certified(norm=norm, noise=0.0, delta=0.1)
        belief = prior(kernel, 2, lam, most=most)
        for pull in rng.integers(60, size=(40, 3)):
            belief = belief.observed(batch(kernel, arms[pull], f[pull])).after
            mean, variance = asked(belief, arms)
            error = (np.abs(f - mean) / np.sqrt(variance)).max()
            evidence = belief.evidence
            worst = max(worst, error / radius(evidence))
            needed = max(needed, error / radius(replace(evidence, largest=lambda: 0.0)))
    assert 0.5 < worst <= 1 + 1e-9
    if most and ratio < 1:
        assert needed > 1  # the term of what is left out is no ornament


def residual(base, row):
    """r of a row (1, d)."""
    return float(base.features(row, base.kernel.diag(row))[1][0])


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("options", [{}, {"tolerance": 0.5}, {"most": 3}], ids=["", "rho", "most"])
def test_deviations_add_up_to_information(ratio, options):
    """Statement 3 at each pull: ln(1 + ωσ̃²) is at most what ℓ + e rise by."""
    lam = 0.05
    kernel = Own(RBF(0.3), ratio * lam)
    rows, rewards, weights = data(120, 2, 8, n_rows=30)
    belief = prior(kernel, 2, lam, **options)
    total = 0.0
    c = 0.0
    for i in range(120):
        one = batch(kernel, rows[i : i + 1], rewards[i : i + 1], weights[i : i + 1])
        deviation = weights[i] * float(asked(belief, one.rows)[1][0])
        before = belief.evidence
        belief = belief.observed(one).after
        after = belief.evidence
        risen = after.log_det + after.left_out - before.log_det - before.left_out
        assert np.log1p(deviation) <= risen + 1e-9
        total += deviation
        c = max(c, float(weights[i] * kernel.diag(one.rows)[0] / lam))
    assert total <= c / np.log1p(c) * (after.log_det + after.left_out) * (1 + 1e-9)


@pytest.mark.parametrize("ratio", [1e-2, 1.0, 30.0])
def test_the_size_is_bounded_by_the_information_of_k(ratio):
    """Statement 4, and: where each row is tried once, W is that of k under the noise λ + v."""
    lam = 0.05
    v = ratio * lam
    smooth = RBF(0.2)
    rows, rewards, weights = data(120, 2, 9, n_rows=60)
    belief = prior(Own(smooth, v), 2, lam)
    paid = 0.0
    for i in range(120):
        row = rows[i : i + 1]
        place = belief.tried.places(row)[0]
        before = belief.tried.weight[place] if place >= 0 else 0.0
        after = before + weights[i]
        gained = after / (1 + v * after / lam) - before / (1 + v * before / lam)
        r = residual(belief.base, row)
        step = belief.observed(batch(belief.kernel, row, rewards[i : i + 1], weights[i : i + 1]))
        belief = step.after
        if len(step.record.entered):
            paid += np.log1p(gained * r / lam)
    distinct, _, total = merged(rows, rewards, weights)
    informed = np.sqrt(total / (1 + v * total / lam))
    K = smooth(distinct, distinct) * np.outer(informed, informed) / lam
    assert paid <= np.linalg.slogdet(np.eye(len(K)) + K)[1] * (1 + 1e-9)
    once, _ = told(prior(Own(smooth, v), 2, lam), distinct, np.zeros(60), cuts=range(60))
    plain, _ = told(prior(smooth, 2, lam + v), distinct, np.zeros(60), cuts=range(60))
    np.testing.assert_array_equal(once.W, plain.W)


@given(st.integers(0, 10_000), st.sampled_from([1e-2, 1.0, 30.0]), st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_old_scores_bound_those_of_rows_never_tried(seed, ratio, gap):
    """Statement 5, across observations and appends."""
    lam = 0.02
    kernel = Own(RBF(0.3), ratio * lam)
    rows, rewards, weights = data(100, 2, seed, n_rows=40)
    early, _ = told(prior(kernel, 2, lam), rows[:50], rewards[:50], weights[:50])
    late, _ = told(early, rows[50 : 50 + gap], rewards[50 : 50 + gap], weights[50 : 50 + gap])
    X = np.random.default_rng([seed, 1]).random((60, 2))
    mean, variance = early.base.moments(X, early.base.kernel.diag(X))
    old, new = early.base, late.base
    inside = old.factor.norm(new.w[: old.m] - old.w)
    D = np.hypot(inside, np.sqrt(lam) * np.linalg.norm(new.w[old.m :]))
    found = asked(late, X)
    for beta in (0.0, 0.5, 5.0):
        bound = mean + D * np.sqrt(variance) + beta * np.sqrt(variance + ratio)
        assert (found[0] + beta * np.sqrt(found[1]) <= bound + 1e-9).all()


def test_the_evidence_is_that_of_the_whole_kernel():
    rows, rewards, weights = data(40, 2, 6)
    lam = 0.02
    kernel = Own(ROUGH, 0.3)
    belief, _ = told(prior(kernel, 2, lam, tolerance=0.0), rows, rewards, weights, [5, 6, 30])
    evidence = belief.evidence
    distinct, means, total = merged(rows, rewards, weights)
    K = kernel(distinct, distinct)
    A = K + np.diag(lam / total)
    _, log_det = np.linalg.slogdet(A * (total / lam)[:, None])
    assert evidence.log_det == pytest.approx(log_det, rel=1e-10)
    assert evidence.information == pytest.approx(log_det, rel=1e-6)
    assert evidence.trace == pytest.approx(weights @ kernel.diag(rows) / lam)
    assert evidence.left_out < 1e-9
    assert evidence.n_observations == 40
    assert evidence.guarantee == "certified"
    d_eff = np.trace(np.linalg.solve(A, K))
    assert evidence.effective_dimension == pytest.approx(d_eff, rel=1e-9)
    # ‖μ̃‖² = αᵀKα, and the variance of ⟨f, μ̃⟩ is ‖μ̃‖² − αᵀKA⁻¹Kα, over λ.
    alpha = np.linalg.solve(A, means)
    norm, spread = evidence.mean()
    assert norm == pytest.approx(np.sqrt(alpha @ K @ alpha), rel=1e-9)
    left = alpha @ K @ alpha - alpha @ K @ np.linalg.solve(A, K @ alpha)
    assert spread == pytest.approx(np.sqrt(left / lam) / norm, rel=1e-7)


def test_a_discount_fades_what_is_known_of_both_parts():
    """Ω fades so that ω′ = Ω/(1 + vΩ/λ) does; means stay."""
    rows, rewards, _ = data(30, 2, 7, n_rows=12)
    lam, v, gamma = 0.01, 0.05, 0.9
    kernel = Own(ROUGH, v)
    belief = replace(prior(kernel, 2, lam, tolerance=0.0), discount=gamma)
    assert belief.guarantee == "none"
    total: dict = {}
    mean: dict = {}
    for row, reward in zip(rows, rewards, strict=True):
        total = {key: gamma * n / (1 + (1 - gamma) * v * n / lam) for key, n in total.items()}
        key = row.tobytes()
        n = total.get(key, 0.0) + 1.0
        mean[key] = mean.get(key, 0.0) + (reward - mean.get(key, 0.0)) / n
        total[key] = n
        belief = belief.observed(batch(kernel, row[None], [reward])).after
    X = np.vstack([rows, np.random.default_rng(2).random((20, 2))])
    distinct = np.array([np.frombuffer(key) for key in total])
    expected = exact(
        kernel, distinct, np.array(list(mean.values())), np.array(list(total.values())), lam, X
    )
    assert_same(asked(belief, X), expected, lam, 1e-8)
    assert belief.evidence.trace == pytest.approx(
        (1 + v) / lam * (1 - gamma**30) / (1 - gamma), rel=1e-9
    )
    # Different rows told at once fade as if they were told one by one.
    some = np.unique(rows, axis=0)
    values = np.arange(len(some)) / 10
    start = replace(prior(kernel, 2, lam, tolerance=0.0), discount=gamma)
    at_once, _ = told(start, some, values)
    in_order, _ = told(start, some, values, cuts=range(len(some)))
    assert_same(asked(at_once, X), asked(in_order, X), lam, 1e-8)


def test_an_error_leaves_the_belief_as_it_was():
    rows, rewards, _ = data(30, 2, 7)
    kernel = Own(RBF(0.3), 0.1)
    belief, _ = told(prior(kernel, 2), rows, rewards)
    X = np.random.default_rng(0).random((9, 2))
    before = asked(belief, X)
    places = belief.tried.places(np.vstack([rows, X]))
    for wrong in (
        (rows[:1], [1.7e308], None),
        (np.vstack([rows[:40], X]), np.full(39, 1.7e308), None),
        (X[[0, 0]], [1.7e308, 1.7e308], None),
    ):
        with pytest.raises(NumericalError, match="not finite"):
            belief.observed(batch(kernel, *wrong))
        np.testing.assert_array_equal(asked(belief, X), before)
        np.testing.assert_array_equal(belief.tried.places(np.vstack([rows, X])), places)


def test_a_stream_with_own_parts_is_saved_and_goes_on(tmp_path):
    kernel = Own(RBF(0.4), 0.2)

    def policy(kernel=kernel):
        return ma.BKB(None, kernel, n_features=2, regularization=0.04)

    rows, rewards, _ = data(60, 2, 11, n_rows=20)
    stream = ma.Stream(policy())
    for t in range(40):
        (i,) = stream.choose(t, rows[t : t + 5])
        stream.observe(t, rewards[t + i])
    stream.save(tmp_path / "stream")
    again = ma.Stream.load(tmp_path / "stream", policy())
    np.testing.assert_array_equal(again.policy.predict(rows), stream.policy.predict(rows))
    for each in (stream, again):
        each.policy.observe(rows[40:], rewards[40:])
    np.testing.assert_allclose(again.policy.predict(rows), stream.policy.predict(rows), rtol=1e-12)
    for other in (RBF(0.4), Own(RBF(0.4), 0.1)):
        with pytest.raises(SavedStateError, match="own_variance"):
            ma.Stream.load(tmp_path / "stream", policy(other))


def test_the_score_over_a_box_is_that_of_the_belief():
    box = ma.Box([[0, 1], [0, 1]])
    policy = DomainBKB(box, Own(RBF(0.3), 0.1), regularization=0.01)
    rng = np.random.default_rng(0)
    rows = rng.random((30, 2))
    policy.observe(rows, np.sin(5 * rows[:, 0]))
    X = np.vstack([rows[:5], rng.random((20, 2))])
    score = policy.score
    mean, variance = policy.belief.moments(X, policy.kernel.diag(X))
    values, gradient = score.both(X[5:])
    np.testing.assert_allclose(score(X), mean + policy.beta * np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(values, score(X[5:]))
    for j in range(2):
        step = 1e-6 * np.eye(2)[j]
        slope = (score(X[5:] + step) - score(X[5:] - step)) / 2e-6
        np.testing.assert_allclose(gradient[:, j], slope, rtol=1e-4, atol=1e-6)
    chosen = policy.choose(3)
    assert (score(chosen[:1]) >= score(rng.random((500, 2))).max() - 1e-3).all()
    policy.observe(chosen, [0.1, 0.2, 0.3])


def test_nothing_is_observed_in_an_empty_batch():
    kernel = Own(RBF(0.3), 0.1)
    belief, _ = told(prior(kernel, 2), *data(30, 2, 7))
    step = belief.observed(batch(kernel, np.zeros((0, 2)), []))
    X = np.random.default_rng(0).random((9, 2))
    np.testing.assert_array_equal(asked(step.after, X), asked(belief, X))
    assert len(step.record.entered) == 0


def test_places_of_many_rows_in_any_layout():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, size=(500, 4)).astype(float)
    tried = Tried.of(np.unique(rows, axis=0)[::2], np.ones(41), np.zeros(41))
    for X in (rows, rows.astype(np.float32), np.asfortranarray(rows), -0.0 - rows, rows[:0]):
        expected = np.full(len(X), -1)
        i, j = equal_rows(np.asarray(X, dtype=float), tried.rows)
        expected[i] = j
        np.testing.assert_array_equal(tried.places(X), expected)
