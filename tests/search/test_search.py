"""Dense, lazy and full scoring choose the same arms; the bounds of the lazy search hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import read_only

import manyarms as ma
from manyarms.engine.base import Arms, Batch
from manyarms.errors import MemoryBudgetError, ParameterError
from manyarms.kernels import RBF, Linear, Matern, Own
from manyarms.search import dense, embeddings, table
from manyarms.search.bounds import bounds
from manyarms.search.dense import Dense
from manyarms.search.listed import Listed, moved
from manyarms.search.scores import Upper, best_of
from manyarms.search.table import Table, TableScores
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats

DENSE = Tuning(rough=10**9)
LISTED = Tuning(shortlist=64, rough=0, quick=0)
SHORT = Tuning(shortlist=4, rough=0, quick=0)
TUNINGS = (DENSE, LISTED, SHORT)


def problem(n, d, kernel, seed, duplicates=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    X[rng.integers(n, size=duplicates)] = X[rng.integers(n, size=duplicates)]
    centres = X[rng.choice(n, 20)]
    w = rng.standard_normal(20)
    f = kernel(X, centres) @ w
    scale = f.std() or 1.0
    return read_only(X), f / scale, float(np.sqrt(w @ kernel(centres, centres) @ w)) / scale


def full(policy, barred=None):
    """The arm of largest score by scoring all, ties as everywhere."""
    mean, variance, _ = policy.scores()
    values, tolerance = Upper(policy.beta)(mean, np.sqrt(variance))
    if barred is not None:
        values[barred] = -np.inf
    return best_of(values, tolerance)


HARD = {
    "certified": {"n": 300, "d": 2, "kernel": RBF(0.1), "regularization": 0.01},
    "tiny noise": {"n": 200, "d": 2, "kernel": RBF(0.3), "regularization": 1e-6},
    "large noise": {"n": 200, "d": 1, "kernel": Matern(0.2, nu=0.5), "regularization": 1.0},
    "rough": {"n": 250, "d": 3, "kernel": Matern(0.2, nu=1.5), "regularization": 1e-4},
    "linear": {"n": 150, "d": 4, "kernel": Linear(), "regularization": 0.01},
    "duplicates": {"n": 200, "d": 2, "kernel": RBF(0.2), "regularization": 0.01, "duplicates": 100},
}


@pytest.mark.slow
@pytest.mark.parametrize("radius", ["constant", "certified"])
@pytest.mark.parametrize("case", HARD)
def test_dense_lazy_and_full_choose_the_same_arm(case, radius):
    given_ = dict(HARD[case])
    n, d, kernel = given_.pop("n"), given_.pop("d"), given_.pop("kernel")
    regularization = given_.pop("regularization")
    X, f, norm = problem(n, d, kernel, 3, **given_)
    noise = np.sqrt(regularization)
    confidence = ma.Constant(2.0) if radius == "constant" else ma.Certified(norm, noise, 0.1)
    made = [
        ma.BKB(
            X, kernel, regularization=regularization, confidence=confidence, tuning=tuning, seed=1
        )
        for tuning in TUNINGS
    ]
    rng = np.random.default_rng(5)
    for step in range(120):
        exclude = rng.integers(n, size=5) if step % 7 == 3 else ()
        chosen = [int(policy.choose(exclude=exclude)[0]) for policy in made]
        if step:
            barred = None
            if len(exclude):
                barred = np.zeros(n, dtype=bool)
                barred[exclude] = True
            chosen.append(full(made[0], barred))
        assert len(set(chosen)) == 1, f"step {step}: {chosen}"
        arms = made[0].choose(3) if step % 11 == 5 else np.array(chosen[:1])
        for policy in made:
            if step % 11 == 5:
                np.testing.assert_array_equal(policy.choose(3), arms)
            policy.observe(arms, f[arms] + 0.0)
        if step % 13 == 6:
            pending = rng.integers(n, size=3)
            batches = [policy.choose(4, pending=pending).tolist() for policy in made]
            assert all(batch == batches[0] for batch in batches)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["certified", "rough", "duplicates"])
def test_long_batches_are_the_same_at_once_and_one_by_one(case):
    given_ = dict(HARD[case])
    n, d, kernel = given_.pop("n"), given_.pop("d"), given_.pop("kernel")
    regularization = given_.pop("regularization")
    X, f, _ = problem(n, d, kernel, 3, **given_)
    made = [
        ma.BKB(X, kernel, regularization=regularization, tuning=tuning, seed=1)
        for tuning in TUNINGS
    ]
    rng = np.random.default_rng(6)
    for pulls in (3, 1, 12):
        at = rng.integers(n, size=pulls)
        for policy in made:
            policy.observe(at, f[at])
        waiting = rng.integers(n, size=2)
        barred = np.zeros(n, dtype=bool)
        barred[rng.integers(n, size=20)] = True
        expected = made[0].choose(40, pending=waiting, exclude=barred).tolist()
        for policy in made[1:]:
            one_by_one = waiting.tolist()
            for _ in range(40):
                one_by_one.extend(policy.choose(pending=one_by_one, exclude=barred).tolist())
            assert one_by_one[2:] == expected
            assert policy.choose(40, pending=waiting, exclude=barred).tolist() == expected
            fewer = policy.choose(3, pending=waiting[:1], exclude=barred)
            assert fewer.tolist() == made[0].choose(3, pending=waiting[:1], exclude=barred).tolist()


@pytest.mark.parametrize("tuning", TUNINGS, ids=["dense", "listed", "short"])
def test_the_nearly_best_arms_have_the_values_of_full_scoring(tuning):
    X, f, _ = problem(200, 2, RBF(0.2), 3, duplicates=100)
    diag = np.ones(200)
    policy = ma.BKB(X, RBF(0.2), seed=1)
    scores = TableScores(Table(Arms(X, diag), np.inf, tuning, Stats()), policy.belief)
    upper = Upper(2.0)
    several = 0
    for step in range(40):
        row = [step % 5 if step % 3 else scores.arg_max(upper, None)]
        batch = Batch(X[row], diag[row], f[row], np.ones(1), np.array(row), 1)
        scores = scores.after(scores.belief.observed(batch))
        values, tolerance = upper(*_mean_and_deviation(scores.belief, X, diag))
        numbers, near, ties = scores.nearly_best(upper, None)
        np.testing.assert_allclose(near, values[numbers], rtol=1e-12)
        np.testing.assert_allclose(ties, tolerance[numbers], rtol=1e-12)
        assert (np.diff(numbers) > 0).all()
        best = values.argmax()
        assert set(np.flatnonzero(values >= values[best] - tolerance[best])) <= set(numbers)
        assert scores.arg_max(upper, None) == best_of(values, tolerance)
        several += len(numbers) > 1
    assert several > 5


def _mean_and_deviation(belief, X, diag):
    mean, variance = belief.moments(X, diag)
    return mean, np.sqrt(variance)


@pytest.mark.slow
def test_a_large_table_is_searched_as_a_small_one(monkeypatch):
    """The ways of many arms, a table of what is needed and fronts of batches, on few."""
    monkeypatch.setattr(dense, "BINS", 32)
    monkeypatch.setattr(embeddings, "ONE_CHUNK", 50)
    monkeypatch.setattr(embeddings, "WIDE", 64)
    monkeypatch.setattr(table, "FEW", 40)
    for case in ("certified", "rough", "duplicates"):
        test_dense_lazy_and_full_choose_the_same_arm(case, "certified")
        test_long_batches_are_the_same_at_once_and_one_by_one(case)


@pytest.mark.parametrize("tuning", [DENSE, LISTED], ids=["dense", "listed"])
def test_embeddings_that_are_not_kept_change_no_choice(tuning):
    X, f, _ = problem(300, 2, RBF(0.15), 0)
    runs = []
    for memory in (None, 64.0 * 300 + 8 * 300 * 12):
        policy = ma.BKB(X, RBF(0.15), memory=memory, tuning=tuning, confidence=ma.Constant(3.0))
        chosen = []
        for _ in range(50):
            arms = policy.choose()
            policy.observe(arms, f[arms])
            chosen.append(int(arms[0]))
        runs.append(chosen)
    assert runs[0] == runs[1]


def test_memory_that_is_too_little_is_said_before_anything_starts():
    with pytest.raises(MemoryBudgetError, match="raise `memory`"):
        ma.BKB(np.zeros((100, 1)), RBF(1.0), memory=100.0)


@pytest.mark.parametrize("coordinates", [6, 24])
def test_embeddings_take_no_more_memory_than_was_given(coordinates):
    n = 10_000
    X = np.random.default_rng(0).random((n, 2))
    room = 8.0 * coordinates * n
    policy = ma.BKB(X, Own(RBF(0.1), 0.1), memory=64 * n + room, tuning=Tuning(shortlist=64))
    kinds = set()
    for _ in range(coordinates + 20):
        arm = policy.choose()
        policy.observe(arm, np.sin(9 * X[arm].sum(axis=1)))
        policy.choose(3)
        core = policy._scores.table._core
        kinds.add(type(core))
        kept = core if isinstance(core, Dense) else core._list
        taken = sum(Z.nbytes for Z in kept._z._Z)
        assert taken <= room
        assert core.bytes >= taken
    assert kinds == {Dense, Listed}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("n_pulls", [3, 30, 150])
def test_a_pass_bounds_the_exact_scores(case, n_pulls):
    given_ = dict(HARD[case])
    n, d, kernel = given_.pop("n"), given_.pop("d"), given_.pop("kernel")
    regularization = given_.pop("regularization")
    X, f, _ = problem(n, d, kernel, 3, **given_)
    policy = ma.BKB(X, kernel, regularization=regularization, seed=1)
    at = np.random.default_rng(4).integers(n, size=n_pulls)
    policy.observe(at, f[at])
    belief = policy.belief
    diag = kernel.diag(X)
    mean, variance = belief.moments(X, diag)
    found = bounds(Arms(X, diag), belief)
    slack = 1e-12 + 64 * belief.rounding_seen / regularization
    assert np.abs(found.mean - mean).max() <= found.error + 1e-9
    assert (found.variance >= variance - slack - 1e-9 * variance).all()
    # All directions leave little: the bound is nearly the variance.
    if belief.m <= 16 and case == "certified":
        np.testing.assert_allclose(found.variance, variance, atol=1e-3 / regularization)


def test_a_large_dictionary_has_lists_and_means_follow():
    X, f, _ = problem(300, 3, Matern(0.2), 0)
    tuning = Tuning(shortlist=8, rough=50, quick=0)
    listed = ma.BKB(X, Matern(0.2), tuning=tuning, seed=0)
    exact = ma.BKB(X, Matern(0.2), tuning=DENSE, seed=0)
    for start, stop in ((0, 120), (120, 125)):
        at = np.arange(start, stop)
        for policy in (listed, exact):
            policy.observe(at, f[at])
        assert listed.choose().tolist() == exact.choose().tolist()
        assert "bounds" in listed.stats.counts
        assert "bounds" not in exact.stats.counts
        np.testing.assert_array_equal(listed.leading(20), exact.leading(20))
        mean, variance = listed._scores.current()
        np.testing.assert_allclose(mean, exact.scores().mean, atol=1e-9)
        np.testing.assert_allclose(variance, exact.scores().variance, rtol=1e-6)


@given(st.integers(0, 10_000), st.sampled_from([1.0, 0.01, 1e-4]))
@settings(max_examples=20)
def test_bounds_hold_across_observations_and_appends(seed, regularization):
    """Statement 5: u_t(x) ≤ μ̃_τ(x) + (D + β̃)σ̃_τ(x)."""
    rng = np.random.default_rng(seed)
    X = rng.random((80, 2))
    kernel = RBF(0.3)
    policy = ma.BKB(X, kernel, regularization=regularization)
    policy.observe(rng.integers(80, size=5), rng.standard_normal(5))
    then = policy.belief
    for _ in range(10):
        policy.observe(rng.integers(80, size=2), 3 * rng.standard_normal(2))
        mean, variance = policy.belief.moments(X, np.ones(80))
        before, spread = then.moments(X, np.ones(80))
        away = moved(then, policy.belief)
        assert (np.abs(mean - before) <= away * np.sqrt(spread) * (1 + 1e-9) + 1e-9).all()
        assert (variance <= spread * (1 + 1e-9)).all()


@given(st.integers(0, 10_000), st.lists(st.integers(1, 9), min_size=1, max_size=12))
@settings(max_examples=30)
def test_a_table_brought_forward_is_one_computed_anew(seed, portions):
    rng = np.random.default_rng(seed)
    X = rng.random((90, 2))
    policy = ma.BKB(X, RBF(0.2), regularization=0.01)
    policy.observe([0], [1.0])
    belief = policy.belief
    kept = Dense(Arms(X[:60], np.ones(60)), RBF(0.2))
    kept.compute(belief)
    changes = []
    for i, n in enumerate(portions):
        some = np.unique(rng.integers(90, size=n))
        batch = policy.batch_of(some, rng.standard_normal(len(some)), None)
        step = belief.observed(batch)
        changes.append(step.change)
        belief = step.after
        if rng.random() < 0.6:
            kept.bring(belief, changes)
            changes = []
            if i % 3 == 0 and len(kept) < 90:
                more = slice(len(kept), len(kept) + 15)
                kept.extend(belief, Arms(X[more], np.ones(15)))
            seen = len(kept)
            mean, variance = belief.moments(X[:seen], np.ones(seen))
            np.testing.assert_allclose(kept.mean, mean, atol=1e-9 * max(1.0, np.abs(mean).max()))
            assert (np.abs(kept.variance - variance) <= kept.slack + 1e-9 * variance).all()


def test_supposed_pulls_leave_what_is_real_as_it_is():
    X, f, _ = problem(400, 2, RBF(0.1), 2)
    plain, asked = (
        ma.BKB(X, RBF(0.1), tuning=LISTED, confidence=ma.Constant(3.0)) for _ in range(2)
    )
    for _ in range(40):
        asked.choose(5)
        asked.choose(None)
        arms = plain.choose()
        np.testing.assert_array_equal(asked.choose(), arms)
        for policy in (plain, asked):
            policy.observe(arms, f[arms])


@pytest.mark.slow
def test_a_choice_that_is_interrupted_leaves_no_half_table():
    class Interrupted(RBF):
        left = 10**9

        def __call__(self, X, Y):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().__call__(X, Y)

    X, f, _ = problem(9000, 2, RBF(0.1), 5)
    for tuning in (DENSE, LISTED):
        kernel = Interrupted(0.1)
        policy = ma.BKB(X, kernel, tuning=tuning, confidence=ma.Constant(3.0))
        policy.observe([0, 1], f[:2])
        interrupted = 0
        for step in range(40):
            kernel.left = 1 + step % 4
            try:
                arms = policy.choose()
            except KeyboardInterrupt:
                interrupted += 1
                kernel.left = 10**9
                arms = policy.choose()
            kernel.left = 10**9
            assert int(arms[0]) == full(policy)
            policy.observe(arms, f[arms])
        assert interrupted > 5


def test_many_steps_without_a_choice_are_followed():
    X, f, _ = problem(300, 2, RBF(0.2), 1)
    rng = np.random.default_rng(0)
    policy = ma.BKB(X, RBF(0.2), tuning=LISTED)
    policy.observe([0], f[:1])
    policy.choose()
    for _ in range(150):
        arm = rng.integers(300, size=1)
        policy.observe(arm, f[arm])
    assert int(policy.choose()[0]) == full(policy)


def test_passes_are_few_where_little_is_new():
    X, f, _ = problem(30_000, 2, RBF(0.3), 0)
    policy = ma.BKB(X, RBF(0.3), tuning=Tuning(shortlist=256, rough=0, quick=0))
    for _ in range(200):
        arms = policy.choose()
        policy.observe(arms, f[arms])
    assert policy.stats.counts["bounds"] < 60


def test_a_batch_beside_many_excluded_arms_looks_at_few():
    class Counted(RBF):
        rows = 0

        def __call__(self, X, Y):
            self.rows += len(X)
            return super().__call__(X, Y)

    X, f, _ = problem(20_000, 2, RBF(0.3), 0)
    kernel = Counted(0.3)
    # Any arm that was never tried is better than those that were: its own part is not known.
    policy = ma.BKB(X, ma.kernels.Own(kernel, 1.0), seed=0)
    policy.observe(np.arange(0, 60), f[:60])
    barred = np.arange(len(X)) % 2 == 0
    expected = full(policy, barred)
    kernel.rows = 0
    arms = policy.choose(10, exclude=barred)
    assert arms[0] == expected
    assert not barred[arms].any()
    assert kernel.rows < 2 * len(X)


def test_all_arms_alike():
    X = np.ones((500, 2))
    for tuning in (DENSE, LISTED):
        policy = ma.BKB(X, RBF(1.0), tuning=tuning)
        policy.observe([7], [1.0])
        assert policy.choose().tolist() == [0]
        policy.observe([0], [1.0])
        assert policy.choose(exclude=[0, 1]).tolist() == [2]


def test_estimate_says_what_a_run_takes():
    estimate = ma.BKB.estimate(10_000, 3, 50)
    assert estimate.bytes == estimate.least_bytes + 8 * 50 * 10_000
    assert estimate.seconds > 0
    ma.BKB(np.random.default_rng(0).random((10_000, 3)), RBF(1.0), memory=estimate.least_bytes)


def test_tuning_is_checked():
    with pytest.raises(ParameterError, match="shortlist"):
        ma.Tuning(shortlist=0)
    with pytest.raises(ParameterError, match="quick"):
        ma.Tuning(quick=-1)


def test_a_table_of_scores_is_keyed_by_the_belief():
    """A belief that the scores have not followed is computed anew, never answered from old scores."""
    X, f, _ = problem(100, 2, RBF(0.3), 0)
    policy = ma.BKB(X, RBF(0.3))
    policy.observe([0, 1], f[:2])
    policy.choose()
    state = policy._state
    policy.observe([50], [10.0])
    policy.choose()
    policy._state = state
    assert int(policy.choose()[0]) == full(policy)
    assert Stats().counts == {}
