"""Batch-BKB's local rule against its definition, with the covariance of all arms."""

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.baselines.variants import LocalBatch, LocalRule, squared_covariances
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.1)
LAZY = ma.Tuning(shortlist=8, rough=0, quick=0)


def played(steps=40, **options):
    problem = RKHSProblem(KERNEL, n_arms=100, seed=3)
    policy = LocalBatch(problem.arms, KERNEL, regularization=0.2, seed=3, **options)
    play(policy, problem.pull, steps)
    return problem, policy


def covariance(policy):
    """k̃ of all arms: unit vectors in the place of each arm's coordinates, by the belief's V."""
    X, lam, belief = policy.arms, policy.regularization, policy.belief
    Z, _ = belief.features(X, np.ones(len(X)))
    C = belief.factor.folded.C.upper.T
    return (KERNEL(X, X) - Z @ Z.T) / lam + Z @ np.linalg.solve(C @ C.T, Z.T)


def shrinkage(policy, batch):
    """max over x of 1 + Σ k̃²(x, x_s)/σ̃²(x)."""
    Q = covariance(policy)
    np.testing.assert_allclose(np.diag(Q), policy.scores().variance, rtol=1e-6)
    return 1 + (np.square(Q[:, batch]).sum(axis=1) / np.diag(Q)).max()


@pytest.mark.parametrize("tuning", [ma.Tuning(), LAZY], ids=["dense", "lazy"])
@pytest.mark.parametrize("threshold", [2.0, 3.0])
def test_a_batch_goes_on_until_some_arm_may_have_shrunk(tuning, threshold):
    problem, policy = played(tuning=tuning, threshold=threshold)
    gained = 0
    while gained < 3:
        batch = policy.choose(None)
        by_global_rule = 1 + np.count_nonzero(
            1 + policy.scores().variance[batch].cumsum() <= threshold
        )
        assert shrinkage(policy, batch[:-1]) <= threshold < shrinkage(policy, batch)
        assert len(batch) >= by_global_rule
        gained += len(batch) - by_global_rule
        halves = policy.choose(None, pending=batch[: len(batch) // 2])
        assert shrinkage(policy, np.concatenate([batch[: len(batch) // 2], halves])) > threshold
        np.testing.assert_array_equal(batch, policy.choose(None))
        policy.observe(batch, problem.pull(batch))


def test_what_arms_have_of_their_own_counts_in_the_local_rule():
    kernel = ma.kernels.Own(KERNEL, 0.3)
    problem = RKHSProblem(KERNEL, n_arms=100, seed=3)
    policy = LocalBatch(problem.arms, kernel, regularization=0.2, rule=ma.Inserted(0.0))
    policy.observe(np.arange(0, 60, 2), problem.pull(np.arange(0, 60, 2)))
    batch = policy.choose(None)
    # Where W is all, k̃ is the exact posterior covariance of the whole kernel.
    rows = problem.arms[:60:2]
    K = kernel(problem.arms, rows)
    A = kernel(rows, rows) + 0.2 * np.eye(30)
    Q = (kernel(problem.arms, problem.arms) - K @ np.linalg.solve(A, K.T)) / 0.2
    sums = squared_covariances(policy._scores, batch)
    np.testing.assert_allclose(sums, np.square(Q[:, batch]).sum(axis=1), rtol=1e-3)
    shrunk = [1 + (np.square(Q[:, batch[:n]]).sum(axis=1) / np.diag(Q)).max() for n in (-1, None)]
    assert shrunk[0] <= 2.0 < shrunk[1]


def test_it_is_for_beliefs_with_embeddings():
    policy = ma.BKB(np.arange(5.0)[:, None], KERNEL, rule=ma.Sampled(), batches=LocalRule())
    policy.observe(0, 1.0)
    with pytest.raises(ParameterError, match="Inserted"):
        policy.choose(None)
    with pytest.raises(ParameterError):
        LocalRule(1.0)
