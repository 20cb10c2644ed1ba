"""Rows that are offered once: the same choices as a loop that scores all of them, and bounds that hold."""

import numpy as np
import pytest
from problems import read_only

import manyarms as ma

RBF = ma.kernels.RBF(0.6)
KERNELS = [
    RBF,
    ma.kernels.RBF([0.5, 0.7, 0.9, 1.1]),
    ma.kernels.Matern(0.8, 0.5),
    ma.kernels.Matern(0.8, 1.5),
    ma.kernels.Matern(0.8, 2.5),
    3.0 * RBF + ma.kernels.Linear(1.0),
    ma.kernels.On(RBF, 0, 2) * ma.kernels.On(ma.kernels.Matern(0.5), 2, 4),
    1e-6 * RBF,
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def policy_of(kernel, n=60, most=20):
    rng = np.random.default_rng(1)
    rows = rng.random((n, 4))
    scale = float(kernel.diag(rows).max())
    policy = ma.BKB(
        None, kernel, n_features=4, rule=ma.Inserted(most=most), regularization=0.01 * scale
    )
    policy.observe(rows, np.sqrt(scale) * (np.sin(5 * rows[:, 0]) + rows[:, 2]))
    return policy


def offers(n=5000, seed=2):
    return read_only(np.random.default_rng(seed).random((n, 4)))


def ten_by_a_loop(policy, X, n, barred=()):
    """Each arm by scoring every row, those before it supposed pulled."""
    belief, chosen = policy.belief, []
    diag = policy.kernel.diag(X)
    for _ in range(n):
        mean, variance = belief.moments(X, diag)
        upper = mean + policy.beta * np.sqrt(variance)
        upper[list(barred)] = -np.inf
        arm = int(np.argmax(upper))
        chosen.append(arm)
        belief = belief.supposing(X[arm : arm + 1], diag[arm : arm + 1]).after
    return chosen


@every_kernel
def test_ten_of_many_rows_are_those_of_a_loop_over_all(kernel):
    policy, X = policy_of(kernel), offers()
    assert policy.choose(10, arms=X).tolist() == ten_by_a_loop(policy, X, 10)
    assert policy.choose(10, arms=X[:50]).tolist() == ten_by_a_loop(policy, X[:50], 10)


def test_excluded_rows_are_passed_over_however_many_they_are():
    policy, X = policy_of(RBF), offers()
    first = policy.choose(3, arms=X)
    assert policy.choose(3, arms=X, exclude=first).tolist() == ten_by_a_loop(policy, X, 3, first)
    mean, variance = policy.belief.moments(X, RBF.diag(X))
    best = np.argsort(-(mean + policy.beta * np.sqrt(variance)))[:2500]
    assert policy.choose(3, arms=X, exclude=best).tolist() == ten_by_a_loop(policy, X, 3, best)


def test_a_batch_past_the_most_inducing_rows_holds_different_rows():
    policy, X = policy_of(ma.kernels.RBF(0.2), 60, 20), offers(200)
    assert policy.belief.m == 20
    assert len(set(policy.choose(8, arms=X).tolist())) == 8
    policy.observe(X[:3], np.zeros(3))
    assert policy.belief.m == 20
