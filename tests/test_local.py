"""Batch-BKB's local rule against its definition, with the covariance of all arms."""

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.policies import adaptive
from manyarms.policies.base import Policy

KERNEL = ma.kernels.RBF(0.1)


def played(steps=40, **options):
    problem = RKHSProblem(KERNEL, n_arms=100, seed=3)
    policy = ma.policies.LocalBatch(problem.arms, KERNEL, regularization=0.2, seed=3, **options)
    play(policy, problem.pull, steps)
    return problem, policy


def covariance(policy):
    """k̃ of all arms on the inducing ones, dense."""
    X, lam, n = policy.arms, policy.regularization, policy.counts
    K, S = KERNEL(X, X), policy.inducing
    U, s, _ = np.linalg.svd(K[np.ix_(S, S)])
    Z = K[:, S] @ U / np.sqrt(s)
    V = (Z * n[:, None]).T @ Z + lam * np.eye(len(S))
    return (K - Z @ Z.T) / lam + Z @ np.linalg.solve(V, Z.T)


def shrinkage(policy, batch):
    """max over x of 1 + Σ k̃²(x, x_s)/σ̃²(x)."""
    Q = covariance(policy)
    np.testing.assert_allclose(np.diag(Q), policy.scores().variance, rtol=1e-6)
    return 1 + (np.square(Q[:, batch]).sum(axis=1) / np.diag(Q)).max()


@pytest.mark.parametrize("entries", [0, 1 << 18])  # on the sketch, on the exact posterior
def test_a_batch_goes_on_until_some_arm_may_have_shrunk_by_two(entries, monkeypatch):
    monkeypatch.setattr(adaptive, "EXACT_ENTRIES", entries)
    problem, policy = played()
    gained = 0
    while gained < 3:
        batch = policy.choose(None)
        by_global_rule = 1 + np.count_nonzero(1 + policy.scores().variance[batch].cumsum() <= 2)
        assert shrinkage(policy, batch[:-1]) <= 2 < shrinkage(policy, batch)
        assert len(batch) >= by_global_rule
        gained += len(batch) - by_global_rule
        np.testing.assert_array_equal(batch, Policy._batch(policy, np.zeros(0, dtype=np.intp), None))
        halves = policy.choose(None, pending=batch[: len(batch) // 2])
        assert shrinkage(policy, np.concatenate([batch[: len(batch) // 2], halves])) > 2
        policy.observe(batch, problem.pull(batch))


def test_kept_embeddings_grow_with_the_inducing_arms_and_equal_new_ones(monkeypatch):
    monkeypatch.setattr(adaptive, "EXACT_ENTRIES", 0)
    problem, policy = played(5)
    small = ma.policies.LocalBatch(problem.arms, KERNEL, regularization=0.2, seed=3, memory=60_000)
    extended = 0
    for step in range(60):
        embedding = policy._current().embedding
        held = policy._embedded_cache
        extended += bool(held and held[0] is not embedding and embedding.extends(held[0]))
        for rows, Z, r in policy._embedded(embedding):
            expected = embedding(policy.arms[rows], policy._diag[rows])
            np.testing.assert_allclose(Z, expected[0], atol=1e-9)
            np.testing.assert_allclose(r, expected[1], atol=1e-9)
        policy.observe([step], [0.0])
    assert extended > 3
    batches = [small.choose(None) for _ in range(2)]
    np.testing.assert_array_equal(*batches)
