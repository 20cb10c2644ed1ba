"""The same seed gives the same arms, whatever the threads and the block sizes, duplicates included."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from problems import RKHSProblem, play
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.kernels import distances
from manyarms.sketch import linalg, store

KERNEL = ma.kernels.RBF(0.15)


def arms_played(policy, confidence, steps=80):
    problem = RKHSProblem(KERNEL, n_arms=500, d=2, seed=4)
    arms = np.vstack([problem.arms, problem.arms[::-1]])
    f = np.concatenate([problem.f, problem.f[::-1]])
    bandit = policy(arms, KERNEL, regularization=0.01, confidence=confidence, seed=11)
    rng = np.random.default_rng(0)
    return play(bandit, lambda chosen: f[chosen] + 0.1 * rng.standard_normal(len(chosen)), steps)


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB])
@pytest.mark.parametrize("confidence", [ma.Constant(2.0), ma.LogDet(1.0, 0.1)])
def test_threads_and_blocks_change_no_choice(policy, confidence, monkeypatch):
    with threadpool_limits(1):
        expected = arms_played(policy, confidence)
    assert np.unique(expected).size > 10
    for threads, block, chunk in ((2, 1 << 16, 1 << 19), (1, 1000, 7777), (2, 1 << 13, 1 << 14)):
        monkeypatch.setattr(distances, "BLOCK_PAIRS", block)
        monkeypatch.setattr(linalg, "CHUNK_ENTRIES", chunk)
        monkeypatch.setattr(store, "CHUNK", chunk >> 7)
        monkeypatch.setattr(store, "ENTRIES", chunk >> 4)
        monkeypatch.setattr(store, "_pool", lambda pool=ThreadPoolExecutor(threads): pool)
        with threadpool_limits(threads):
            np.testing.assert_array_equal(arms_played(policy, confidence), expected)


def test_a_generator_is_a_seed():
    by_number, by_generator = (ma.BKB(np.arange(50.0)[:, None], KERNEL, seed=s) for s in (5, np.random.default_rng(5)))
    assert by_number.choose() == by_generator.choose()


def test_different_seeds_draw_different_dictionaries():
    X = np.linspace(0, 1, 300)[:, None]
    drawn = []
    for seed in range(2):
        policy = ma.BKB(X, KERNEL, regularization=1.0, seed=seed)
        policy.observe(np.arange(300), np.zeros(300))
        policy.redraw()
        drawn.append(policy.dictionary)
    assert not np.array_equal(*drawn)
