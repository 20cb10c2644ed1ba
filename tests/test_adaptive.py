"""The adaptive variant: lazy equals full, incremental equals rebuilt, and the dictionary is redrawn when it is stale."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.errors import MemoryBudgetError, ParameterError
from manyarms.policies.base import Policy
from manyarms.sketch import lazy, levels, linalg, store, tracked
from manyarms.sketch.choice import arg_max
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.posterior import Posterior

RADII = [ma.Constant(2.0), ma.LogDet(2.0, 0.1), ma.Theory(2.0, 0.1)]


def adaptive(arms, kernel, **options):
    return ma.BKB(arms, kernel, resparsify="adaptive", **options)


@pytest.fixture(params=[30, 200])
def short_lists(request, monkeypatch):
    """Lists, chunks and waiting rooms so small that every tier is used on small problems."""
    monkeypatch.setattr(lazy, "SWEPT", request.param)
    monkeypatch.setattr(lazy, "LIST_LENGTH", 10)
    monkeypatch.setattr(lazy, "SHARE", 3)
    monkeypatch.setattr(levels, "SAMPLE", 90)
    monkeypatch.setattr(levels, "SWEEP", 64)
    monkeypatch.setattr(lazy, "PATIENCE", 20)
    monkeypatch.setattr(lazy, "HOT", 40)
    monkeypatch.setattr(tracked, "WAITING", 8)
    monkeypatch.setattr(lazy, "WAITING", 8)
    monkeypatch.setattr(store, "CHUNK", 100)
    monkeypatch.setattr(store, "ENTRIES", 1 << 10)


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("confidence", RADII, ids=lambda radius: type(radius).__name__)
@pytest.mark.parametrize(("d", "lengthscale"), [(1, 0.05), (2, 0.15), (6, 0.7)])
def test_the_lazy_arg_max_is_the_full_one(confidence, d, lengthscale):
    kernel = ma.kernels.RBF(lengthscale)
    for seed in range(2):
        problem = RKHSProblem(kernel, n_arms=700, d=d, norm=2.0, seed=seed)
        arms, f = np.vstack([problem.arms, problem.arms[:200]]), np.concatenate([problem.f, problem.f[:200]])
        policy = adaptive(arms, kernel, confidence=confidence, seed=seed)
        rng = np.random.default_rng(seed)
        for step in range(120):
            chosen = policy.choose(4) if step % 40 == 39 else policy.choose()
            if step:
                assert policy.choose()[0] == arg_max(policy.scores()), step
            policy.observe(chosen, f[chosen] + 0.1 * rng.standard_normal(len(chosen)))


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("confidence", RADII, ids=lambda radius: type(radius).__name__)
@pytest.mark.parametrize(("d", "lengthscale", "oversampling"), [(1, 0.05, 5.0), (2, 0.15, 0.5), (6, 0.7, 1.0)])
def test_lazy_batches_are_the_full_ones(confidence, d, lengthscale, oversampling):
    kernel = ma.kernels.RBF(lengthscale)
    problem = RKHSProblem(kernel, n_arms=700, d=d, norm=2.0, seed=4)
    arms, f = np.vstack([problem.arms, problem.arms[:200]]), np.concatenate([problem.f, problem.f[:200]])
    policy = adaptive(arms, kernel, confidence=confidence, oversampling=oversampling, seed=4)
    rng = np.random.default_rng(4)
    for step in range(30):
        pending = rng.integers(900, size=step % 3)
        chosen = policy.choose(4, pending=pending)
        if step:
            np.testing.assert_array_equal(chosen, Policy.choose(policy, 4, pending=pending), err_msg=str(step))
        policy.observe(chosen, f[chosen] + 0.1 * rng.standard_normal(len(chosen)))


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("confidence", RADII, ids=lambda radius: type(radius).__name__)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_excluded_arms_are_passed_over_as_by_full_scoring(confidence, share):
    kernel = ma.kernels.RBF(0.15)
    problem = RKHSProblem(kernel, n_arms=700, d=2, norm=2.0, seed=5)
    policy = adaptive(problem.arms, kernel, confidence=confidence, seed=5)
    rng = np.random.default_rng(5)
    policy.observe(3, 0.0)
    for step in range(60):
        barred = rng.random(700) < share if step % 2 else problem.f > np.quantile(problem.f, 1 - share)
        barred[step] = False
        chosen = policy.choose(1 + step % 3, exclude=barred)
        np.testing.assert_array_equal(chosen, Policy.choose(policy, 1 + step % 3, exclude=barred), err_msg=str(step))
        assert not barred[chosen].any()
        policy.observe(chosen, problem.pull(chosen))


@pytest.mark.parametrize("confidence", RADII, ids=lambda radius: type(radius).__name__)
def test_the_lazy_arg_max_is_the_full_one_at_full_size(confidence):
    kernel = ma.kernels.RBF(0.4)
    problem = RKHSProblem(kernel, n_arms=12_000, d=4, norm=2.0, seed=3)
    policy = adaptive(problem.arms, kernel, confidence=confidence)
    for step in range(150):
        chosen = policy.choose()
        if step and step % 5 == 0:
            assert chosen[0] == arg_max(policy.scores())
        policy.observe(chosen, problem.pull(chosen))
    assert policy._state.frontier.tracked.n_arms < 3000


@pytest.mark.usefixtures("short_lists")
@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(0, 29), min_size=1, max_size=5),
            st.sampled_from(["choose", "batch", "redraw", "more"]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_after_any_sequence_the_state_is_that_of_a_rebuild(operations):
    arms = np.random.default_rng(0).random((30, 2))
    kernel = ma.kernels.Matern(0.4, 1.5)
    policy = adaptive(arms, kernel, regularization=0.05, oversampling=1.0)
    rng = np.random.default_rng(1)
    for operation in operations:
        if operation == "choose":
            policy.choose()
        elif operation == "batch":
            policy.choose(3, pending=[0, 1])
        elif operation == "redraw":
            policy.redraw()
        elif operation == "more":
            policy.redraw(policy.oversampling * 1.5)
        else:
            policy.observe(operation, rng.standard_normal(len(operation)))
    state = policy._state
    if not state.history.n_observations:
        return
    embedding, kept = Embedding.fit(kernel, arms[state.inducing], 0.0)
    where = np.searchsorted(state.history.pulled, state.inducing[kept])
    rebuilt = Posterior.fit(embedding, where, policy._observations(state.history), 0.05)
    mean, variance = rebuilt.moments(arms, np.ones(30))
    np.testing.assert_allclose(policy.scores().mean, mean, atol=1e-8)
    np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-8)
    held = state.frontier.tracked
    np.testing.assert_allclose(held.mean, mean[held.arms], atol=1e-8)
    np.testing.assert_allclose(held.variance, variance[held.arms], rtol=1e-8)
    assert 1 <= policy.evidence.staleness <= 2
    assert len(policy.inducing) <= 2 * len(policy.dictionary)
    assert set(policy.dictionary) <= set(np.flatnonzero(policy.counts))


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("confidence", RADII, ids=lambda radius: type(radius).__name__)
@pytest.mark.parametrize(("d", "lengthscale"), [(2, 0.15), (6, 0.7)])
def test_bounds_hold_after_observations_and_appends(confidence, d, lengthscale):
    kernel = ma.kernels.RBF(lengthscale)
    problem = RKHSProblem(kernel, n_arms=600, d=d, norm=2.0, seed=5)
    policy = adaptive(problem.arms, kernel, confidence=confidence)
    across_appends = 0
    for step in range(100):
        play(policy, problem.pull, 1)
        frontier, scores = policy._state.frontier, policy.scores()
        rounding = 1e-9 * np.abs(scores.ucb).max()
        for depth, level in enumerate(frontier._levels):
            arms, made = level.arms_at(np.arange(level.n_arms)), level.bounds.made
            mean, variance = made.posterior.moments(problem.arms[arms], np.ones(len(arms)))
            np.testing.assert_allclose(made.mean, mean, atol=1e-9)
            np.testing.assert_allclose(made.quad + made.residual, variance, rtol=1e-6, atol=1e-9)
            assert (made.quad + made.residual >= variance * (1 - 1e-9)).all()
            reach = level.bounds.anchor.reach(frontier.tracked, policy.beta)
            if reach is None:
                continue
            across_appends += len(made.posterior.w) < len(frontier.tracked.posterior.w)
            assert (level.bounds.upper(reach) >= scores.ucb[arms] - rounding).all(), step
            if depth and level.holds(frontier.tracked, policy.beta, np.inf):
                left_out = np.setdiff1d(np.arange(600), arms)
                above = frontier._levels[depth - 1]
                left_out = np.intersect1d(left_out, above.arms_at(np.arange(above.n_arms)))
                assert (scores.ucb[left_out] <= level.promised.promise.theta + rounding).all(), step
    assert across_appends > 20
    assert policy.stats.counts["updates"] > 1


def test_the_dictionary_is_redrawn_only_when_stale():
    kernel = ma.kernels.RBF(0.2)
    problem = RKHSProblem(kernel, n_arms=400, d=1, seed=2)
    policy = adaptive(problem.arms, kernel)
    drawn, fresh = policy._state.drawn, 0
    for _ in range(300):
        play(policy, problem.pull, 1)
        fresh += policy._state.drawn is not drawn
        drawn = policy._state.drawn
        assert policy.evidence.staleness <= 2
    assert 5 < fresh < 60


def test_it_regrets_no_more_than_algorithm_one():
    ratios = []
    for seed in range(10):
        regret = []
        for resparsify in ("adaptive", "always"):
            kernel = ma.kernels.RBF(0.15)
            problem = RKHSProblem(kernel, n_arms=300, norm=3.0, noise=0.3, seed=seed)
            policy = ma.BKB(problem.arms, kernel, regularization=0.09, resparsify=resparsify, seed=seed)
            regret.append(np.sum(problem.f.max() - problem.f[play(policy, problem.pull, 200)]))
        ratios.append(regret[0] / regret[1])
    print(f"regret against Algorithm 1: median {np.median(ratios):.3f}")
    assert np.median(ratios) <= 1.05


def test_embeddings_are_not_appended_to_small_pivots():
    kernel = ma.kernels.RBF(1.0)
    close = np.array([[0.0], [1e-6]])
    embedding, _ = Embedding.fit(kernel, close, None)
    assert embedding.append(np.array([[0.5]]), 1e-12) is None
    embedding, _ = Embedding.fit(kernel, close[:1], None)
    assert embedding.append(close[1:], None) is None
    grown, kept = embedding.append(close[1:], 1e-10)
    assert grown is embedding
    assert len(kept) == 0
    grown, kept = embedding.append(np.array([[2.0], [3.0]]), 1e-10)
    assert grown.extends(embedding)
    assert not embedding.extends(grown)
    np.testing.assert_allclose(grown.L @ grown.L.T, kernel(grown.inducing_rows, grown.inducing_rows), atol=1e-12)


def test_any_memory_gives_the_same_arms():
    kernel = ma.kernels.RBF(0.3)
    problem = RKHSProblem(kernel, n_arms=5000, d=2, seed=6)
    least, played = lazy.bytes_beside(*problem.arms.shape), []
    for memory in (None, least, least + 8 * 32 * 5000):  # all rows of Z kept, none, up to 32
        policy = adaptive(problem.arms, kernel, memory=memory)
        rng = np.random.default_rng(0)
        played.append(play(policy, lambda arms, rng=rng: problem.f[arms] + 0.1 * rng.standard_normal(len(arms)), 100))
        held = [level.store for level in policy._state.frontier._levels if level.store]
        assert sum(part.bytes for part in held) <= (memory - least if memory else 1e9)
        assert bool(held[0].bytes) == (memory is None)
    assert len(policy.inducing) > 32
    np.testing.assert_array_equal(played[1], played[0])
    np.testing.assert_array_equal(played[2], played[0])


def test_too_little_memory_is_a_typed_error_before_anything_starts():
    with pytest.raises(MemoryBudgetError, match="memory"):
        adaptive(np.zeros((1000, 1)), ma.kernels.RBF(1.0), memory=10_000)
    with pytest.raises(ParameterError):
        adaptive(np.zeros((1000, 1)), ma.kernels.RBF(1.0), memory=-1)


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("confidence", RADII, ids=lambda radius: type(radius).__name__)
@pytest.mark.parametrize(("d", "lengthscale"), [(1, 0.05), (2, 0.5)])
def test_lazy_batches_that_a_rule_ends_are_the_full_ones(confidence, d, lengthscale):
    kernel = ma.kernels.RBF(lengthscale)
    problem = RKHSProblem(kernel, n_arms=700, d=d, norm=2.0, seed=7)
    policy = adaptive(problem.arms, kernel, regularization=0.5, confidence=confidence, seed=7)
    rng, longest, step = np.random.default_rng(7), 0, 0
    while longest < 5:  # each round has about as many as all before it
        step += 1
        pending = rng.integers(700, size=step % 2)
        chosen = policy.choose(None, pending=pending)
        np.testing.assert_array_equal(chosen, Policy.choose(policy, None, pending=pending), err_msg=str(step))
        arms = np.concatenate([chosen, pending])
        policy.observe(arms, problem.pull(arms))
        longest = max(longest, len(chosen))


def test_the_estimate_is_what_a_run_holds():
    n, m = 4000, 12
    told = ma.BKB.estimate(n, 3, m)
    with pytest.raises(MemoryBudgetError):
        adaptive(np.zeros((n, 3)), ma.kernels.RBF(1.0), memory=0.99 * told.least_bytes)
    arms = np.random.default_rng(0).random((n, 3))
    policy = adaptive(arms, ma.kernels.RBF(0.5), memory=told.bytes)
    for arm in range(m):
        policy.observe(arm, 0.0)
    frontier = policy._state.frontier
    assert len(policy.inducing) == m
    frontier._bring(0, lazy.Search(1.0, 0.0, None, lambda at: (np.zeros(len(at)), np.zeros(len(at)))))
    assert frontier._all.bytes == pytest.approx(told.bytes - told.least_bytes)
    assert told.seconds > 0
    assert ma.BKB.estimate(10 * n, 3, m).bytes == pytest.approx(10 * told.bytes)
    with pytest.raises(ParameterError):
        ma.BKB.estimate(0, 3, m)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 2, 3), (1, 1, 1), (7, 3, 5), (40, 64, 11)])
def test_updated_factors_are_those_of_the_sum(m, k, n):
    rng = np.random.default_rng(m)
    G, Y, B = rng.random((m + 2, m)), rng.standard_normal((k, m)), rng.random((m, n))
    C = linalg.cholesky(G.T @ G + 0.1 * np.eye(m))
    updated, rotated = linalg.updated_cholesky(C, Y, B)
    np.testing.assert_allclose(updated @ updated.T, C @ C.T + Y.T @ Y, atol=1e-12 * (1 + k))
    np.testing.assert_allclose(updated @ rotated, C @ B, atol=1e-12)
    assert (np.diag(updated) > 0).all()


def test_a_factor_that_drifted_is_made_anew(monkeypatch):
    kernel = ma.kernels.RBF(0.3)
    arms = np.random.default_rng(2).random((50, 2))
    played, factored, made = [], 0, Posterior.solve

    def solve(*given):
        nonlocal factored
        factored += 1
        return made(*given)

    monkeypatch.setattr(Posterior, "solve", solve)
    for drift in (tracked.DRIFT, 0.0):
        monkeypatch.setattr(tracked, "DRIFT", drift)
        policy, factored = adaptive(arms, kernel), 0
        rng = np.random.default_rng(3)
        played.append(play(policy, lambda chosen, rng=rng: np.sin(chosen) + 0.1 * rng.standard_normal(1), 60))
        assert factored > 10 if drift == 0 else factored <= 3
    np.testing.assert_array_equal(*played)


def test_what_is_replaced_is_freed_at_once():
    """Frontiers hold several numbers of every arm: none may wait for the garbage collector."""
    policy = adaptive(np.random.default_rng(0).random((300, 2)), ma.kernels.RBF(0.3))
    policy.observe([0, 1], [0.0, 1.0])
    gc.disable()
    try:
        for _ in range(5):
            before = weakref.ref(policy._state.frontier)
            policy.observe(policy.choose(3, pending=[2]), np.zeros(3))
            assert before() is None
    finally:
        gc.enable()
