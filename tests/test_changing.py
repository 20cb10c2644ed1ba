"""Arm sets that change from choice to choice: the same choices as dense formulas on the rows of now."""

import copy
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import dense
from problems import fingerprint, read_only

import manyarms as ma
from manyarms.arms.seen import Index
from manyarms.errors import ArmsError, KernelError, ParameterError, UnknownArmError
from manyarms.policies import DTC, GPEI, OFUL, RFF, LocalBatch, MiniMeta, SketchEI, SupKernelUCB, Thompson, Uniform, adaptive

KERNEL = ma.kernels.Matern(0.3, 1.5)
UNIVERSE = read_only(np.random.default_rng(3).random((40, 2)))
TABLE = UNIVERSE[:15]
LAMBDA = 0.02
FULL = 1e300


def gpucb(arms=None, **options):
    return ma.GPUCB(arms, KERNEL, **{"regularization": LAMBDA, **size_of(arms), **options})


def bkb(resparsify, oversampling=2.0):
    def make(arms=None, **options):
        given = {"regularization": LAMBDA, "oversampling": oversampling, "resparsify": resparsify, **size_of(arms)}
        return ma.BKB(arms, KERNEL, **{**given, **options})

    make.__name__ = f"{resparsify}{'' if oversampling < FULL else '_full'}"
    return make


def size_of(arms):
    return {"n_features": 2} if arms is None else {}


SKETCHES = [bkb(variant) for variant in ("adaptive", "always", "incremental", "insertion")]
EXACT = [gpucb, bkb("always", FULL), bkb("insertion", FULL)]
FULL_ADAPTIVE = bkb("adaptive", FULL)
every_policy = pytest.mark.parametrize("policy", [*SKETCHES, *EXACT, FULL_ADAPTIVE], ids=lambda policy: policy.__name__)
with_or_without_table = pytest.mark.parametrize("table", [None, TABLE], ids=["no_table", "table"])


def reward(rows, rng):
    return np.sin(5 * rows[:, 0]) + 0.1 * rng.standard_normal(len(rows))


def moments(bandit, rows, y, X, supposed):
    """μ̃ and σ̃² at X from the list of all rows observed, one a pull; of those supposed the variances only."""
    whole = np.vstack([rows, supposed, X])
    pulls, everything = np.arange(len(rows)), np.arange(len(rows) + len(supposed))
    nothing = np.zeros(len(everything))
    if isinstance(bandit, ma.GPUCB):
        mean, _ = dense.exact(KERNEL, whole, pulls, y, LAMBDA, X)
        return mean, dense.exact(KERNEL, whole, everything, nothing, LAMBDA, X)[1]
    known = np.vstack([whole, bandit.rows(bandit.inducing)])
    inducing = np.arange(len(whole), len(known))
    mean, variance = dense.sketched(KERNEL, known, inducing, pulls, y, LAMBDA, X)
    if len(supposed):
        D = np.unique(np.vstack([known[inducing], supposed]), axis=0)
        at = len(known) + np.arange(len(D))
        variance = dense.sketched(KERNEL, np.vstack([known, D]), at, everything, nothing, LAMBDA, X)[1]
    return mean, variance


def dense_choice(bandit, rows, y, X, n, pending):
    chosen = []
    while len(chosen) < n:
        mean, variance = moments(bandit, rows, y, X, np.vstack([pending, X[chosen]]))
        chosen.append(int(np.argmax(mean + bandit.beta * np.sqrt(np.maximum(variance, 0)))))
    return chosen


@every_policy
@with_or_without_table
def test_on_random_subsets_choices_equal_a_computation_from_scratch(policy, table):
    bandit, rng = policy(table, seed=1), np.random.default_rng(7)
    rows, y = np.zeros((0, 2)), np.zeros(0)
    for step in range(90):
        X = UNIVERSE[rng.permutation(40)[: rng.integers(2, 13)]]
        n = 3 if step % 10 == 9 else 1
        pending = UNIVERSE[rng.integers(40, size=2)] if step % 15 == 14 else np.zeros((0, 2))
        i = bandit.choose(n, arms=X, pending=pending)
        if step:
            assert i.tolist() == dense_choice(bandit, rows, y, X, n, pending), step
        new = reward(X[i], rng)
        bandit.observe(X[i], new)
        rows, y = np.vstack([rows, X[i]]), np.concatenate([y, new])
        if table is not None and step % 5 == 0:
            assert bandit.choose()[0] == np.argmax(bandit.scores().ucb)
            own = bandit.choose(2)
            bandit.observe(own, np.zeros(2))
            rows, y = np.vstack([rows, table[own]]), np.concatenate([y, np.zeros(2)])
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    numbers = np.flatnonzero(bandit.counts)
    assert len(numbers) == len(distinct)  # each stored once
    order = np.lexsort(bandit.rows(numbers).T[::-1])
    np.testing.assert_array_equal(bandit.rows(numbers)[order], distinct)
    np.testing.assert_array_equal(bandit.counts[numbers][order], counts)
    assert bandit.best in numbers


operations = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.integers(0, 11), min_size=1, max_size=5)),
        st.tuples(st.just("numbers"), st.lists(st.integers(0, 5), min_size=1, max_size=5)),
        st.tuples(st.just("batch"), st.lists(st.integers(0, 11), min_size=1, max_size=6)),
        st.tuples(st.just("redraw"), st.just([])),
    ),
    min_size=1,
    max_size=12,
)


@every_policy
@settings(max_examples=25)
@given(operations, st.booleans())
def test_any_sequence_of_operations_equals_the_dense_formula(policy, calls, table):
    bandit, rng = policy(UNIVERSE[:6] if table else None), np.random.default_rng(0)
    rows, y = np.zeros((0, 2)), np.zeros(0)
    for kind, arms in calls:
        pulled = np.array(arms, dtype=int)
        if kind == "redraw":
            if isinstance(bandit, ma.BKB):
                bandit.redraw()
            continue
        if kind == "batch":
            X = UNIVERSE[pulled]
            i = bandit.choose(2, arms=X)
            given, pulled = X[i], pulled[i]
        else:
            given = arms if kind == "numbers" and table else UNIVERSE[pulled]
        new = rng.standard_normal(len(pulled))
        bandit.observe(given, new)
        rows, y = np.vstack([rows, UNIVERSE[pulled]]), np.concatenate([y, new])
    if not len(rows):
        return
    expected = moments(bandit, rows, y, UNIVERSE, np.zeros((0, 2)))
    prediction = bandit.predict(UNIVERSE)
    np.testing.assert_allclose(prediction.mean, expected[0], atol=1e-8)
    np.testing.assert_allclose(prediction.std**2 / LAMBDA, expected[1], rtol=1e-7)
    scored = bandit._among(UNIVERSE, KERNEL.diag(UNIVERSE), append=True)
    np.testing.assert_allclose(scored.mean, expected[0], atol=1e-8)
    np.testing.assert_allclose(scored.variance, expected[1], rtol=1e-7)
    if policy in EXACT:
        np.testing.assert_allclose(
            expected[1], dense.exact(KERNEL, rows, np.arange(len(rows)), y, LAMBDA, UNIVERSE)[1], rtol=1e-6
        )


@pytest.mark.parametrize("policy", [gpucb, bkb("always", FULL), FULL_ADAPTIVE], ids=lambda policy: policy.__name__)
def test_a_table_and_the_same_rows_given_at_every_choice(policy):
    """Numbers differ, and with them which uniform draw decides about which arm: so for a full dictionary only."""
    fixed, changing, rng = policy(UNIVERSE, seed=4), policy(None, seed=4), np.random.default_rng(0)
    for _ in range(60):
        i = fixed.choose(2)
        np.testing.assert_array_equal(changing.choose(2, arms=UNIVERSE), i)
        new = reward(UNIVERSE[i], rng)
        fixed.observe(i, new)
        changing.observe(UNIVERSE[i], new)


@every_policy
def test_a_row_of_the_table_is_that_arm(policy):
    doubled = np.vstack([TABLE, TABLE]).astype(np.float32)
    by_number, by_value = policy(doubled), policy(doubled)
    by_number.observe([3, 0, 3], [1.0, 2.0, 3.0])
    by_value.observe(doubled[[18, 0, 3]], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(by_number.counts, by_value.counts)
    np.testing.assert_array_equal(by_number.scores(), by_value.scores())
    by_value.observe([[-0.0, 0.5], [0.0, 0.5], [0.1, 0.1]], [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(by_value.rows([30, 31]), [[0.0, 0.5], [0.1, 0.1]])
    np.testing.assert_array_equal(by_value.counts[30:], [2, 1])
    by_value.observe(30, 1.0)
    assert by_value.counts[30] == 3
    assert len(by_value.scores().mean) == by_value.n_arms == 30


@every_policy
@with_or_without_table
def test_choosing_is_pure_and_repeatable(policy, table):
    runs = []
    for _ in range(2):
        bandit, rng, chosen = policy(table, seed=9), np.random.default_rng(5), []
        for _ in range(8):
            X = rng.random((6, 2))
            before = fingerprint(bandit)
            batch = bandit.choose(3, arms=X)
            assert [int(bandit.choose(arms=X, pending=X[batch[:j]])[0]) for j in range(3)] == batch.tolist()
            assert not np.isin(bandit.choose(2, arms=X, exclude=batch), batch).any()
            rule = bandit.choose(None, arms=X)
            np.testing.assert_array_equal(bandit.choose(None, arms=X), rule)
            assert fingerprint(bandit) == before
            bandit.observe(X[batch], reward(X[batch], rng))
            chosen.append((batch.tolist(), rule.tolist()))
        runs.append(chosen)
        bandit.observe(X[:0], [])
    assert runs[0] == runs[1]


@every_policy
def test_the_first_row_is_uniform_and_fixed_by_the_seed(policy):
    X = np.random.default_rng(0).random((10, 2))
    firsts = [int(policy(seed=seed).choose(arms=X)[0]) for seed in range(60)]
    assert np.unique(firsts).size == 10
    assert firsts == [int(policy(seed=seed).choose(arms=X)[0]) for seed in range(60)]


@every_policy
@with_or_without_table
def test_copies_that_see_other_rows_do_not_disturb_each_other(policy, table):
    rng = np.random.default_rng(2)
    start, paths, X = rng.random((12, 2)), rng.random((2, 20, 2)), rng.random((30, 2))
    bandit = policy(table)
    bandit.observe(start, reward(start, np.random.default_rng(0)))
    together, alone = [copy.copy(bandit), copy.copy(bandit)], [copy.deepcopy(bandit), copy.deepcopy(bandit)]
    for step in range(20):
        for one, path in zip(together, paths, strict=True):
            one.observe(path[step : step + 1], path[step, :1])
    for one, path in zip(alone, paths, strict=True):
        for step in range(20):
            one.observe(path[step : step + 1], path[step, :1])
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a.predict(X), b.predict(X))
        np.testing.assert_array_equal(a.choose(5, arms=X), b.choose(5, arms=X))
    assert not np.array_equal(together[0].predict(X).mean, together[1].predict(X).mean)


@pytest.mark.parametrize("entries", [0, 1 << 18], ids=["sketch", "exact_start"])
def test_the_lazy_arg_max_of_a_table_passes_over_rows_seen_elsewhere(entries, monkeypatch):
    monkeypatch.setattr(adaptive, "EXACT_ENTRIES", entries)
    rng = np.random.default_rng(0)
    arms = rng.random((1000 if entries else 10_000, 2))
    bandit = ma.BKB(arms, ma.kernels.RBF(0.3), regularization=0.1)
    for _ in range(12):
        X = rng.random((8, 2))
        bandit.observe(X, 3 + reward(X, rng))  # better than any of the table's
        i = bandit.choose()
        assert i[0] == np.argmax(bandit.scores().ucb)
        assert max(bandit.choose(3, exclude=i)) < len(arms)
        assert bandit.choose(None).max() < len(arms)
        bandit.observe(i, reward(arms[i], rng))
    assert bandit.best >= len(arms)


@every_policy
@with_or_without_table
def test_bad_input_is_a_typed_error_and_changes_nothing(policy, table):
    bandit, X = policy(table), UNIVERSE[:4]
    for _ in range(2):
        before = fingerprint(bandit)
        for arms in (np.zeros((0, 2)), np.zeros((3, 3)), np.zeros(2), [[0.0, np.nan]], [["a", "b"]], [[0.0, 1.0], [0.0]]):
            with pytest.raises(ArmsError):
                bandit.choose(arms=arms)
        with pytest.raises(ArmsError):
            bandit.choose(arms=ma.joined([0.1, 0.2, 0.3], X))
        for pending in ([[0.0]], [[np.inf, 0.0]], [99]):
            with pytest.raises(ArmsError):
                bandit.choose(arms=X, pending=pending)
        with pytest.raises(UnknownArmError):
            bandit.choose(arms=X, exclude=[4])
        for arms, rewards in (
            (np.zeros((1, 3)), [0.0]),
            ([[0.0, np.nan]], [0.0]),
            (X, [0.0]),
            (X[0], [0.0, 0.0]),
            (X, [np.nan] * 4),
        ):
            with pytest.raises(ma.errors.ManyArmsError):
                bandit.observe(arms, rewards)
        assert fingerprint(bandit) == before
        bandit.observe(X[:2], [0.0, 1.0])
    if table is None:
        for ask in (bandit.choose, bandit.scores, bandit.predict, lambda: bandit.choose(None), lambda: bandit.choose(2)):
            with pytest.raises(ArmsError, match="without arms"):
                ask()
        with pytest.raises((ArmsError, ParameterError), match=r"without arms|only BKB"):
            ma.diagnostics.sandwich(bandit)
        with pytest.raises(UnknownArmError):
            policy().observe(0, 1.0)


def test_a_kernel_that_fails_in_the_middle_changes_nothing():
    calls = [0]

    def fragile(X, Y):
        calls[0] += 1
        if calls[0] > limit:
            raise RuntimeError("no more")
        return KERNEL(X, Y)

    for make in (ma.GPUCB, ma.BKB):
        limit, done = 10**9, False
        bandit = make(None, fragile, n_features=2)
        bandit.observe(UNIVERSE[:6], np.zeros(6))
        before, want = fingerprint(bandit), bandit.choose(3, arms=UNIVERSE)
        for more in range(1, 40):
            limit = calls[0] + more
            try:
                bandit.observe(UNIVERSE[6:9], np.ones(3))
                done = True
                break
            except KernelError:
                limit = 10**9
                assert fingerprint(bandit) == before
                np.testing.assert_array_equal(bandit.choose(3, arms=UNIVERSE), want)
        assert done
        assert more > 2
        limit = 10**9
        other = make(None, fragile, n_features=2)
        other.observe(UNIVERSE[:6], np.zeros(6))
        other.observe(UNIVERSE[6:9], np.ones(3))
        np.testing.assert_array_equal(bandit.predict(UNIVERSE), other.predict(UNIVERSE))


def test_wrong_kernels_are_found_at_the_first_choice():
    for kernel in (lambda X, Y: -(X @ Y.T), ma.kernels.RBF([1.0, 2.0, 3.0]), lambda X, Y: np.exp(X[:, :1] - Y[:, :1].T)):
        with pytest.raises(KernelError):
            ma.BKB(None, kernel, n_features=2).choose(arms=UNIVERSE)


@pytest.mark.parametrize(
    "policy",
    [
        lambda: DTC(TABLE, KERNEL),
        lambda: GPEI(TABLE, KERNEL),
        lambda: LocalBatch(TABLE, KERNEL),
        lambda: MiniMeta(ma.GPUCB(TABLE, KERNEL)),
        lambda: OFUL(TABLE),
        lambda: RFF(TABLE, KERNEL),
        lambda: SketchEI(TABLE, KERNEL),
        lambda: SupKernelUCB(TABLE, KERNEL),
        lambda: Thompson(TABLE, KERNEL),
        lambda: Uniform(TABLE, KERNEL),
    ],
)
def test_policies_that_cannot_say_so(policy):
    bandit = policy()
    before = fingerprint(bandit)
    with pytest.raises(ArmsError, match="BKB and GPUCB take arms by value"):
        bandit.choose(arms=TABLE)
    with pytest.raises(ArmsError, match="BKB and GPUCB take arms by value"):
        bandit.observe(TABLE[:2], [0.0, 0.0])
    assert fingerprint(bandit) == before


def test_a_policy_has_a_table_or_a_number_of_features():
    for make in (ma.BKB, ma.GPUCB):
        with pytest.raises(ParameterError, match="n_features"):
            make(None, KERNEL)
        with pytest.raises(ParameterError, match="n_features"):
            make(TABLE, KERNEL, n_features=2)
    with pytest.raises(ArmsError, match="needs its arms"):
        Thompson(None, KERNEL, n_features=2)
    with pytest.raises(ArmsError):
        MiniMeta(ma.BKB(None, KERNEL, n_features=2))


def test_the_bayes_radius_is_for_the_arms_of_now():
    few, many = np.random.default_rng(0).random((3, 2)), np.random.default_rng(0).random((3000, 2))
    radii = []

    def confidence(evidence):
        radii.append(evidence.n_arms)
        return ma.Bayes(0.1)(evidence)

    bandit = gpucb(confidence=confidence)
    for X in (few, many):
        bandit.choose(arms=X)
    assert radii == [3, 3000]


@pytest.mark.parametrize("seed", range(4))
def test_the_guarantee_holds_for_sets_that_change(seed):
    """Theorem 2 with the best arm of each set in the place of the best: f within μ̃ ± β̃σ̃ on all rows, R_T ≤ 2Σβ̃σ̃."""
    rng, T, noise, kernel = np.random.default_rng([seed, 1]), 60, 0.1, ma.kernels.RBF(0.3)
    centres, a = rng.random((8, 2)), rng.standard_normal(8)
    a /= np.sqrt(a @ kernel(centres, centres) @ a)
    radius = ma.LogDet(norm=1.0, noise=noise, delta=0.1)
    oversampling = ma.oversampling_for(0.5, 0.05, T)
    bandit = ma.BKB(None, kernel, n_features=2, regularization=noise**2, oversampling=oversampling, confidence=radius)
    regret, allowed = 0.0, 0.0
    for t in range(T):
        X = rng.random((rng.integers(1, 30), 2)) * (0.3 if t % 3 else 1.0)
        f, i = kernel(X, centres) @ a, bandit.choose(arms=X)[0]
        mean, std = bandit.predict(X)
        width = bandit.beta * std / noise
        assert (np.abs(f - mean) <= width).all()
        if t:
            regret, allowed = regret + f.max() - f[i], allowed + 2 * width[i]
        bandit.observe(X[[i]], f[[i]] + noise * rng.standard_normal(1))
    assert regret <= allowed


def test_rows_of_equal_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr("manyarms.arms.seen._hashes", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    rows = np.array([[1.0], [2.0], [1.0], [3.0]])
    index = Index.of(rows)
    np.testing.assert_array_equal(index.find(np.array([[3.0], [1.0], [4.0]]), rows), [3, 0, -1])
    more = np.array([[4.0], [1.0]])
    np.testing.assert_array_equal(index.with_more(more).find(more, np.vstack([rows, more])), [4, 0])


ELSEWHERE = """
import pickle, sys
import numpy as np
policy, rows = pickle.loads(sys.stdin.buffer.read())
policy.observe(rows, np.ones(len(rows)))
print(policy.counts.tolist())
"""


def test_a_policy_pickled_knows_its_rows_in_another_process():
    policy, new = ma.BKB(TABLE[:3], KERNEL), UNIVERSE[20:22]
    policy.observe(np.vstack([TABLE[:1], new]), np.zeros(3))
    told = pickle.dumps((policy, np.vstack([TABLE[:1], new])))
    found = subprocess.run([sys.executable, "-c", ELSEWHERE], input=told, capture_output=True, check=True)
    assert found.stdout.decode().strip() == "[2.0, 0.0, 0.0, 2.0, 2.0]"


class TestContexts:
    def test_the_context_stands_in_front_of_every_arm(self):
        np.testing.assert_array_equal(ma.joined([7, 8], [[1.0], [2.0]]), [[7, 8, 1], [7, 8, 2]])

    @pytest.mark.parametrize("context", [[[1.0]], 3.0, [], [np.nan], ["a"], [[1.0], [1.0, 2.0]], np.ma.array([1.0], mask=[1])])
    def test_a_context_that_is_none_is_a_typed_error(self, context):
        with pytest.raises(ArmsError):
            ma.joined(context, [[1.0]])

    def test_a_product_kernel_is_the_product_of_both(self):
        rng = np.random.default_rng(0)
        c, a = rng.random((9, 3)), rng.random((9, 2))
        first, second, X = ma.kernels.RBF(0.4), ma.kernels.Matern(0.2), np.hstack([c, a])
        kernel = ma.kernels.On(first, 0, 3) * ma.kernels.On(second, 3, 5)
        np.testing.assert_allclose(kernel(X, X[:4]), first(c, c[:4]) * second(a, a[:4]), rtol=1e-12)

    def test_a_context_of_the_wrong_length_is_a_typed_error(self):
        kernel = ma.kernels.On(ma.kernels.RBF(0.4), 0, 2) * ma.kernels.On(ma.kernels.RBF(0.2), 2, 3)
        bandit, arms = ma.BKB(None, kernel, n_features=3), np.linspace(0, 1, 5)[:, None]
        for context in ([0.1], [0.1, 0.2, 0.3]):
            before = fingerprint(bandit)
            with pytest.raises(ArmsError, match="3 features"):
                bandit.choose(arms=ma.joined(context, arms))
            assert fingerprint(bandit) == before

    def test_the_best_arm_follows_the_context(self):
        kernel = ma.kernels.On(ma.kernels.RBF(0.4), 0, 1) * ma.kernels.On(ma.kernels.RBF(0.3), 1, 2)
        arms, rng = np.linspace(0, 1, 21)[:, None], np.random.default_rng(0)
        seeing, blind = ma.BKB(None, kernel, n_features=2), ma.BKB(arms, ma.kernels.RBF(0.3))

        def f(context, i):
            return 1 - np.square(arms[i, 0] - context)

        regrets = np.zeros((2, 150))
        for t in range(150):
            context = rng.random()
            X = ma.joined([context], arms)
            i, j = seeing.choose(arms=X), blind.choose()
            regrets[:, t] = 1 - f(context, i[0]), 1 - f(context, j[0])
            seeing.observe(X[i], f(context, i) + 0.1 * rng.standard_normal(1))
            blind.observe(j, f(context, j) + 0.1 * rng.standard_normal(1))
        assert regrets[0, 75:].mean() < 0.2 * regrets[1, 75:].mean()


def test_a_choice_costs_the_same_after_ten_thousand_arms():
    """Time of choose(arms=ten rows), 10,000 arms observed over 1,000 observed; `pytest -rP` prints it."""
    rng = np.random.default_rng(0)
    bandit = ma.BKB(None, ma.kernels.RBF(0.7), n_features=2, regularization=0.05)
    costs, sizes, chosen = [], [], []
    for n in (1000, 9000):
        for rows in rng.random((n // 500, 500, 2)):
            bandit.observe(rows, reward(rows, rng))
        spent = []
        for X in rng.random((60, 10, 2)):
            start = time.perf_counter()
            chosen.append(bandit.choose(arms=X))
            spent.append(time.perf_counter() - start)
        costs.append(float(np.median(spent)))
        sizes.append(len(bandit.inducing))
    print(
        f"choose(arms=10 rows): {costs[0] * 1e3:.3f} ms after 1,000 arms (m = {sizes[0]}), "
        f"{costs[1] * 1e3:.3f} ms after 10,000 (m = {sizes[1]}): ratio {costs[1] / costs[0]:.2f}"
    )
    assert len(bandit.counts) == 10_000
    assert costs[1] < 3 * costs[0]


def test_play_without_a_table_learns():
    rng, regret = np.random.default_rng(1), []
    bandit = bkb("adaptive", 5.0)()
    for _ in range(150):
        X = rng.random((10, 2))
        i = bandit.choose(arms=X)
        f = np.sin(5 * X[:, 0])
        regret.append(f.max() - f[i[0]])
        bandit.observe(X[i], reward(X[i], rng))
    assert np.mean(regret[75:]) < 0.1
