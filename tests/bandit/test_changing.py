"""Arm sets that change from choice to choice: the same choices as dense formulas on the rows of now."""

import copy
import time

import numpy as np
import pytest
from oracles import dense
from problems import fingerprint, read_only

import manyarms as ma
from manyarms.errors import ArmsError, KernelError, ParameterError, UnknownArmError

KERNEL = ma.kernels.Matern(0.3, 1.5)
UNIVERSE = read_only(np.random.default_rng(3).random((40, 2)))
TABLE = UNIVERSE[:15]
LAMBDA = 0.02


def gpucb(arms=None, **options):
    return ma.GPUCB(arms, KERNEL, **{"regularization": LAMBDA, **size_of(arms), **options})


def bkb(name, rule):
    def make(arms=None, **options):
        return ma.BKB(
            arms, KERNEL, **{"regularization": LAMBDA, "rule": rule, **size_of(arms), **options}
        )

    make.__name__ = name
    return make


def size_of(arms):
    return {"n_features": 2} if arms is None else {}


FULL = bkb("full", ma.Inserted(0.0))
FROZEN = [
    bkb("inserted", ma.Inserted()),
    bkb("loose", ma.Inserted(0.5)),
    bkb("capped", ma.Inserted(most=5)),
    FULL,
]
every_policy = pytest.mark.parametrize(
    "policy", [*FROZEN, gpucb], ids=lambda policy: policy.__name__
)
with_or_without_table = pytest.mark.parametrize("table", [None, TABLE], ids=["no_table", "table"])


def reward(rows, rng):
    return np.sin(5 * rows[:, 0]) + 0.1 * rng.standard_normal(len(rows))


def frozen(W, rows, sizes, y, X):
    """μ̃ and σ̃² at X: each row enters with the first |W_s| coordinates of its embedding."""
    L = np.linalg.cholesky(KERNEL(W, W))
    Z = np.linalg.solve(L, KERNEL(W, rows)).T
    Z[np.arange(len(W)) >= np.asarray(sizes)[:, None]] = 0.0
    V = LAMBDA * np.eye(len(W)) + Z.T @ Z
    at = np.linalg.solve(L, KERNEL(W, X))
    outside = KERNEL.diag(X) - np.square(at).sum(axis=0)
    return at.T @ np.linalg.solve(V, Z.T @ y), outside / LAMBDA + (at * np.linalg.solve(V, at)).sum(
        axis=0
    )


@pytest.mark.slow
@every_policy
@with_or_without_table
def test_on_random_subsets_choices_equal_a_computation_from_scratch(policy, table):
    bandit, rng = policy(table, seed=1), np.random.default_rng(7)
    rows, sizes, y = np.zeros((0, 2)), [], np.zeros(0)

    def dense_moments(X):
        if policy is gpucb:
            whole = np.vstack([rows, X])
            return dense.exact(KERNEL, whole, np.arange(len(rows)), y, LAMBDA, X)
        return frozen(bandit.belief.W, rows, sizes, y, X)

    for step in range(90):
        X = UNIVERSE[rng.permutation(40)[: rng.integers(2, 13)]]
        i = bandit.choose(arms=X)
        if step:
            mean, variance = dense_moments(X)
            assert i[0] == np.argmax(mean + bandit.beta * np.sqrt(variance)), step
        pulled = UNIVERSE[rng.integers(40, size=2)] if step % 10 == 9 else X[i]
        new = reward(pulled, rng)
        record = bandit.observe(pulled, new)
        rows, sizes, y = (
            np.vstack([rows, pulled]),
            [*sizes, *record.sizes],
            np.concatenate([y, new]),
        )
        if table is not None and step % 5 == 0:
            assert bandit.choose()[0] == np.argmax(bandit.scores().ucb) == bandit.highest()
            own = np.unique(bandit.choose(2))
            record = bandit.observe(own, np.zeros(len(own)))
            rows, sizes, y = (
                np.vstack([rows, table[own]]),
                [*sizes, *record.sizes],
                np.append(y, np.zeros(len(own))),
            )
    mean, variance = dense_moments(UNIVERSE)
    predicted = bandit.predict(UNIVERSE)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-8)
    np.testing.assert_allclose(predicted.std**2 / LAMBDA, variance, rtol=1e-6)
    assert bandit.evidence.n_observations == len(rows)


@pytest.mark.parametrize("policy", [gpucb, FULL, FROZEN[0]], ids=lambda policy: policy.__name__)
def test_a_table_and_the_same_rows_given_at_every_choice(policy):
    fixed, changing, rng = policy(UNIVERSE, seed=4), policy(None, seed=4), np.random.default_rng(0)
    for _ in range(60):
        i = fixed.choose()
        np.testing.assert_array_equal(changing.choose(arms=UNIVERSE), i)
        new = reward(UNIVERSE[i], rng)
        fixed.observe(i, new)
        changing.observe(UNIVERSE[i], new)


@every_policy
def test_a_row_given_by_value_gets_no_number(policy):
    bandit = policy(TABLE)
    bandit.observe(np.vstack([UNIVERSE[20:22], [[-0.0, 0.5]]]), [1.0, 2.0, 3.0])
    assert bandit.n_arms == len(bandit.counts) == len(bandit.scores().mean) == 15
    assert not bandit.counts.any()
    assert len(bandit.log) == 0
    with pytest.raises(ma.errors.StateError, match="table"):
        bandit.best  # noqa: B018
    bandit.observe([3], [0.5])
    assert bandit.best == 3
    assert bandit.evidence.n_observations == 4


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
            assert [
                int(bandit.choose(arms=X, pending=X[batch[:j]])[0]) for j in range(3)
            ] == batch.tolist()
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
    together, alone = (
        [copy.copy(bandit), copy.copy(bandit)],
        [copy.deepcopy(bandit), copy.deepcopy(bandit)],
    )
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


@every_policy
@with_or_without_table
def test_bad_input_is_a_typed_error_and_changes_nothing(policy, table):
    bandit, X = policy(table), UNIVERSE[:4]
    for _ in range(2):
        before = fingerprint(bandit)
        for arms in (
            np.zeros((0, 2)),
            np.zeros((3, 3)),
            np.zeros(2),
            [[0.0, np.nan]],
            [["a", "b"]],
            [[0.0, 1.0], [0.0]],
        ):
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
        several = (lambda: bandit.choose(None), lambda: bandit.choose(2))
        for ask in (bandit.choose, bandit.scores, bandit.predict, bandit.highest, *several):
            with pytest.raises(ArmsError, match="without arms"):
                ask()
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
    for kernel in (
        lambda X, Y: -(X @ Y.T),
        ma.kernels.RBF([1.0, 2.0, 3.0]),
        lambda X, Y: np.exp(X[:, :1] - Y[:, :1].T),
    ):
        with pytest.raises(KernelError):
            ma.BKB(None, kernel, n_features=2).choose(arms=UNIVERSE)


@pytest.mark.parametrize("name", ["GPEI", "SketchEI", "Thompson", "Uniform", "OFUL", "RFF", "DTC"])
def test_baselines_take_arms_by_value_too(name):
    make = getattr(ma.baselines, name)
    bandit = make(TABLE) if name == "OFUL" else make(TABLE, KERNEL)
    rng = np.random.default_rng(0)
    for _ in range(10):
        X = UNIVERSE[rng.permutation(40)[:6]]
        i = bandit.choose(arms=X)
        assert 0 <= i[0] < 6
        bandit.observe(X[i], reward(X[i], rng))
    assert bandit.evidence.n_observations == 10


def test_a_policy_has_a_table_or_a_number_of_features():
    for make in (ma.BKB, ma.GPUCB):
        with pytest.raises(ParameterError, match="n_features"):
            make(None, KERNEL)
        with pytest.raises(ParameterError, match="n_features"):
            make(TABLE, KERNEL, n_features=2)


def test_the_bayes_radius_is_for_the_arms_of_now():
    few, many = np.random.default_rng(0).random((3, 2)), np.random.default_rng(0).random((3000, 2))
    radii = []

    def confidence(evidence):
        radii.append(evidence.n_arms)
        return ma.Bayes(0.1)(evidence)

    bandit = gpucb(confidence=confidence)
    bandit.observe(few, np.zeros(3))
    del radii[:]
    for X in (few, many):
        bandit.choose(arms=X)
    assert radii == [3, 3000]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "radius", [ma.Certified, ma.LogDet, ma.Theory], ids=lambda radius: radius.__name__
)
def test_the_guarantee_holds_for_sets_that_change(radius, seed):
    """With the best arm of each set in the place of the best: f within μ̃ ± β̃σ̃ on all rows, R_T ≤ 2Σβ̃σ̃."""
    rng, T, noise, kernel = np.random.default_rng([seed, 1]), 60, 0.1, ma.kernels.RBF(0.3)
    centres, a = rng.random((8, 2)), rng.standard_normal(8)
    a /= np.sqrt(a @ kernel(centres, centres) @ a)
    confidence = radius(norm=1.0, noise=noise, delta=0.1)
    bandit = ma.BKB(None, kernel, n_features=2, regularization=noise**2, confidence=confidence)
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


class TestContexts:
    def test_the_context_stands_in_front_of_every_arm(self):
        np.testing.assert_array_equal(ma.joined([7, 8], [[1.0], [2.0]]), [[7, 8, 1], [7, 8, 2]])

    @pytest.mark.parametrize(
        "context",
        [[[1.0]], 3.0, [], [np.nan], ["a"], [[1.0], [1.0, 2.0]], np.ma.array([1.0], mask=[1])],
    )
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


def test_a_choice_costs_the_same_after_ten_thousand_rows():
    """Time of choose(arms=ten rows), 10,000 rows observed over 1,000 observed; `pytest -rP` prints it."""
    rng = np.random.default_rng(0)
    bandit = ma.BKB(
        None, ma.kernels.RBF(0.7), n_features=2, regularization=0.05, rule=ma.Inserted(most=30)
    )
    costs = []
    for n in (1000, 9000):
        for rows in rng.random((n // 500, 500, 2)):
            bandit.observe(rows, reward(rows, rng))
        spent = []
        for X in rng.random((60, 10, 2)):
            start = time.perf_counter()
            bandit.choose(arms=X)
            spent.append(time.perf_counter() - start)
        costs.append(float(np.median(spent)))
    print(
        f"choose(arms=10 rows): {costs[0] * 1e3:.3f} ms after 1,000 rows, {costs[1] * 1e3:.3f} ms after 10,000"
    )
    assert bandit.evidence.n_observations == 10_000
    assert costs[1] < 2 * costs[0]


def test_play_without_a_table_learns():
    rng, regret = np.random.default_rng(1), []
    bandit = FROZEN[0]()
    for _ in range(150):
        X = rng.random((10, 2))
        i = bandit.choose(arms=X)
        f = np.sin(5 * X[:, 0])
        regret.append(f.max() - f[i[0]])
        bandit.observe(X[i], reward(X[i], rng))
    assert np.mean(regret[75:]) < 0.1
