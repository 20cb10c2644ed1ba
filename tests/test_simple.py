"""Uniform play and ε-greedy: what they draw, and how often."""

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.errors import ParameterError
from manyarms.policies import adaptive

KERNEL = ma.kernels.RBF(0.2)


def test_uniform_play_is_uniform():
    policy = ma.policies.Uniform(np.linspace(0, 1, 10)[:, None], KERNEL, seed=1)
    counts = np.bincount(play(policy, np.sin, 2000), minlength=10)
    assert np.square(counts - 200).sum() / 200 < 27.9  # χ² of 9 degrees of freedom, 0.1 %
    batch = policy.choose(2000)
    assert np.square(np.bincount(batch, minlength=10) - 200).sum() / 200 < 27.9


@pytest.mark.parametrize("entries", [0, 1 << 18])  # on the sketch, on the exact posterior
def test_epsilon_is_how_often_the_largest_mean_is_left(entries, monkeypatch):
    monkeypatch.setattr(adaptive, "EXACT_ENTRIES", entries)
    problem = RKHSProblem(KERNEL, n_arms=1000, seed=3)
    policy = ma.policies.EpsilonGreedy(problem.arms, KERNEL, epsilon=0.3, oversampling=1e300, seed=0)
    play(policy, problem.pull, 40)
    assert (policy._state.exact is None) == (entries == 0)
    greedy = int(np.argmax(policy.scores().mean))
    batch = policy.choose(400)
    assert np.mean(batch != greedy) == pytest.approx(0.3, abs=0.08)
    assert np.unique(batch).size > 60


def test_epsilon_may_decay():
    arms = np.linspace(0, 1, 50)[:, None]
    always = ma.policies.EpsilonGreedy(arms, KERNEL, epsilon=lambda t: 7.0, seed=0)
    never = ma.policies.EpsilonGreedy(arms, KERNEL, epsilon=lambda t: 1e-9 / t, seed=0)
    for policy in (always, never):
        policy.observe(30, 1.0)
    assert np.unique(always.choose(100)).size > 30
    assert (never.choose(100) == 30).all()
    seen = []
    policy = ma.policies.EpsilonGreedy(arms, KERNEL, epsilon=lambda t: seen.append(t) or 1 / t)
    play(policy, np.sin, 4)
    assert seen == [1, 2, 3]


def test_wrong_epsilon_is_a_typed_error():
    for wrong in (-0.1, np.nan, "0.1", None):
        with pytest.raises(ParameterError, match="epsilon"):
            ma.policies.EpsilonGreedy(np.zeros((3, 1)), KERNEL, epsilon=wrong)
    policy = ma.policies.EpsilonGreedy(np.zeros((3, 1)), KERNEL, epsilon=lambda t: -1.0)
    policy.observe(0, 0.0)
    with pytest.raises(ParameterError, match="epsilon"):
        policy.choose()
