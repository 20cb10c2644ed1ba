"""Exact GP-UCB: incremental equals rebuilt, and the rows stay proportional to the distinct arms."""

import numpy as np
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.sketch.covariance import SPARE_ROWS

KERNEL = ma.kernels.RBF(0.2)


def test_rows_grow_with_distinct_arms_not_with_pulls():
    problem = RKHSProblem(KERNEL, n_arms=100, seed=0)
    policy = ma.GPUCB(problem.arms, KERNEL, regularization=0.01, seed=0)
    for step in range(600):
        arms = policy.choose()
        policy.observe(arms, problem.pull(arms))
        distinct = len(np.unique(policy._state.history.pulled))
        assert policy._state.covariance.n_rows <= 2 * distinct + SPARE_ROWS, step
    assert distinct < 60


def test_incremental_equals_rebuilt():
    problem = RKHSProblem(KERNEL, n_arms=100, seed=1)
    policy = ma.GPUCB(problem.arms, KERNEL, regularization=0.01, seed=0)
    for _ in range(300):
        play(policy, problem.pull, 1)
        mean, variance = policy._moments_at(policy.arms, np.ones(100))
        np.testing.assert_allclose(policy.scores().mean, mean, atol=1e-8)
        np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-8)


def test_repeats_in_one_call_are_one_row():
    policy = ma.GPUCB(np.linspace(0, 1, 50)[:, None], KERNEL)
    policy.observe(np.full(5000, 7), np.arange(5000.0))
    assert policy._state.covariance.n_rows == 1
    assert policy.counts[7] == 5000
    assert policy.evidence.n_observations == 5000
