"""Exact GP-UCB: incremental equals rebuilt, and the rows stay proportional to the distinct arms."""

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.engine.exact import SPARE_ROWS, ExactPosterior

KERNEL = ma.kernels.RBF(0.2)


def test_rows_grow_with_distinct_arms_not_with_pulls():
    problem = RKHSProblem(KERNEL, n_arms=100, seed=0)
    policy = ma.GPUCB(problem.arms, KERNEL, regularization=0.01, seed=0)
    for step in range(600):
        arms = policy.choose()
        policy.observe(arms, problem.pull(arms))
        distinct = len(np.unique(policy.belief.history.keys))
        assert policy.belief.posterior.G.n <= 2 * distinct + SPARE_ROWS, step
    assert distinct < 60


def test_incremental_equals_rebuilt():
    problem = RKHSProblem(KERNEL, n_arms=100, seed=1)
    policy = ma.GPUCB(problem.arms, KERNEL, regularization=0.01, seed=0)
    for _ in range(300):
        play(policy, problem.pull, 1)
        seen = policy.belief.history
        rebuilt = ExactPosterior.fit(KERNEL, seen.rows, seen.counts, seen.sums, 0.01)
        mean, variance = rebuilt.moments(policy.arms, np.ones(100))
        found = policy.belief.moments(policy.arms, np.ones(100))
        np.testing.assert_allclose(found[0], mean, atol=1e-8)
        np.testing.assert_allclose(found[1], variance, rtol=1e-8)
        np.testing.assert_allclose(policy.scores().mean, mean, atol=1e-8)
        np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-8)


def test_repeats_in_one_call_are_one_row():
    policy = ma.GPUCB(np.linspace(0, 1, 50)[:, None], KERNEL)
    policy.observe(np.full(5000, 7), np.arange(5000.0))
    assert policy.belief.posterior.G.n == 1
    assert policy.counts[7] == 5000
    assert policy.evidence.n_observations == 5000


def test_rows_by_value_are_merged_and_found_in_the_table():
    """Equal rows are one arm, whether they are given by number or by value, at once or one after the other."""
    table = np.linspace(0, 1, 30)[:, None]
    strange = np.array([[0.123], [0.456], [0.123]])
    by_number = ma.GPUCB(np.vstack([table, strange[:2]]), KERNEL)
    by_number.observe([3, 3, 30, 31, 30], [1.0, 2.0, 0.5, -1.0, 0.7])
    by_value = ma.GPUCB(table, KERNEL)
    by_value.observe(table[[3]], [1.0])
    by_value.observe(strange, [0.5, -1.0, 0.7])
    by_value.observe(3, 2.0)
    assert by_value.belief.posterior.G.n == 4
    np.testing.assert_array_equal(by_value.belief.history.keys, [3, -1, -1])
    X = np.linspace(-1, 2, 20)[:, None]
    for found, expected in zip(by_value.predict(X), by_number.predict(X), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)
    for found, expected in zip(by_value.predict(), by_number.predict(), strict=True):
        np.testing.assert_allclose(found, expected[:30], atol=1e-10)
    ours, theirs = by_value.evidence, by_number.evidence
    assert (ours.n_observations, ours.guarantee) == (5, "exact")
    for name in ("trace", "log_det", "information", "effective_dimension"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name)), name
    assert ours.mean() == pytest.approx(theirs.mean())
    assert by_value.counts.sum() == 1  # the table's arm by number


def test_the_evidence_is_that_of_dense_formulas():
    problem = RKHSProblem(KERNEL, n_arms=60, seed=2)
    policy = ma.GPUCB(problem.arms, KERNEL, regularization=0.05)
    told = play(policy, problem.pull, 50)
    noise = np.full(50, np.sqrt(0.05))
    policy.observe([4, 4], [0.3, 0.1], noise=0.7)
    rows = problem.arms[[*told, 4, 4]]
    weights = 0.05 / np.square([*noise, 0.7, 0.7])
    K = KERNEL(rows, rows) * np.sqrt(np.outer(weights, weights)) / 0.05
    evidence = policy.evidence
    assert evidence.trace == pytest.approx(np.trace(K))
    assert evidence.log_det == pytest.approx(np.linalg.slogdet(K + np.eye(52))[1])
    assert evidence.information == evidence.log_det
    assert evidence.effective_dimension == pytest.approx(
        np.trace(np.linalg.solve(K + np.eye(52), K))
    )


def test_scores_with_supposed_pulls_are_values():
    """Two ways on from one value do not disturb each other, nor what is observed afterwards."""
    problem = RKHSProblem(KERNEL, n_arms=40, seed=3)
    policy = ma.GPUCB(problem.arms, KERNEL)
    play(policy, problem.pull, 10)
    scores = policy._scores
    one = scores.supposing(np.array([3]))
    other = scores.supposing(np.array([30]))
    further = one.supposing(np.array([7]))
    again = policy._scores.supposing(np.array([3])).supposing(np.array([7]))
    policy.observe(20, 5.0)
    for found, pulls in ((one, [3]), (other, [30]), (further, [3, 7]), (again, [3, 7])):
        fresh = ma.GPUCB(problem.arms, KERNEL)
        fresh.observe(policy.log.arms[:-1], policy.log.rewards[:-1])
        mean = fresh.predict().mean
        fresh.observe(pulls, mean[pulls])
        np.testing.assert_allclose(found.current()[0], mean, atol=1e-9)
        np.testing.assert_allclose(found.current()[1], fresh.scores().variance, rtol=1e-9)
