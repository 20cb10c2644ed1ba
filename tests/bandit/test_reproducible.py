"""The same seed gives the same arms, whatever the threads and the thresholds of the search, duplicates included."""

import numpy as np
import pytest
from problems import RKHSProblem, play
from threadpoolctl import threadpool_limits

import manyarms as ma

KERNEL = ma.kernels.RBF(0.15)


def arms_played(policy, confidence, steps=80, **options):
    problem = RKHSProblem(KERNEL, n_arms=500, d=2, seed=4)
    arms = np.vstack([problem.arms, problem.arms[::-1]])
    f = np.concatenate([problem.f, problem.f[::-1]])
    bandit = policy(arms, KERNEL, regularization=0.01, confidence=confidence, seed=11, **options)
    rng = np.random.default_rng(0)
    return play(bandit, lambda chosen: f[chosen] + 0.1 * rng.standard_normal(len(chosen)), steps)


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB])
@pytest.mark.parametrize("confidence", [ma.Constant(2.0), ma.LogDet(1.0, 0.1)])
def test_threads_change_no_choice(policy, confidence):
    with threadpool_limits(1):
        expected = arms_played(policy, confidence)
    assert np.unique(expected).size > 10
    with threadpool_limits(2):
        np.testing.assert_array_equal(arms_played(policy, confidence), expected)


@pytest.mark.parametrize("confidence", [ma.Constant(2.0), ma.Certified(1.0, 0.1)])
@pytest.mark.parametrize(
    "tuning",
    [
        ma.Tuning(rough=0, quick=0),
        ma.Tuning(shortlist=16, rough=0, quick=0),
    ],
    ids=repr,
)
def test_the_search_changes_no_choice(tuning, confidence):
    expected = arms_played(ma.BKB, confidence)
    np.testing.assert_array_equal(arms_played(ma.BKB, confidence, tuning=tuning), expected)


def test_passes_over_many_arms_on_several_threads_change_no_choice():
    rng = np.random.default_rng(2)
    X = rng.random((40_000, 2))  # ten chunks
    f = np.sin(7 * X[:, 0]) * np.cos(5 * X[:, 1])
    played = []
    for tuning in (
        ma.Tuning(),
        ma.Tuning(rough=0, quick=0),
        ma.Tuning(shortlist=64, rough=0, quick=0),
    ):
        bandit = ma.BKB(X, KERNEL, confidence=ma.Constant(3.0), tuning=tuning, seed=1)
        played.append(play(bandit, lambda chosen: f[chosen], 40))
    np.testing.assert_array_equal(played[0], played[1])
    np.testing.assert_array_equal(played[0], played[2])


def test_a_generator_is_a_seed():
    by_number, by_generator = (
        ma.BKB(np.arange(50.0)[:, None], KERNEL, seed=s) for s in (5, np.random.default_rng(5))
    )
    assert by_number.choose() == by_generator.choose()


def test_different_seeds_draw_different_dictionaries():
    X = np.linspace(0, 1, 300)[:, None]
    drawn = []
    for seed in range(2):
        policy = ma.BKB(X, KERNEL, rule=ma.Sampled(5.0), regularization=100.0, seed=seed)
        policy.observe(np.arange(300), np.zeros(300))
        drawn.append(policy.inducing)
    assert not np.array_equal(*drawn)
