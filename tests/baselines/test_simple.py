"""Uniform play and ε-greedy: what they draw, and how often."""

import re

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.checks import as_bytes
from manyarms.errors import MemoryBudgetError, ParameterError

KERNEL = ma.kernels.RBF(0.2)


def test_uniform_play_is_uniform():
    policy = ma.baselines.Uniform(np.linspace(0, 1, 10)[:, None], KERNEL, seed=1)
    counts = np.bincount(play(policy, np.sin, 2000), minlength=10)
    assert np.square(counts - 200).sum() / 200 < 27.9  # χ² of 9 degrees of freedom, 0.1 %
    batch = policy.choose(2000)
    assert np.square(np.bincount(batch, minlength=10) - 200).sum() / 200 < 27.9


@pytest.mark.parametrize(
    "tuning", [ma.Tuning(), ma.Tuning(shortlist=8, rough=0, quick=0)], ids=["dense", "lazy"]
)
def test_epsilon_is_how_often_the_largest_mean_is_left(tuning):
    problem = RKHSProblem(KERNEL, n_arms=1000, seed=3)
    policy = ma.baselines.EpsilonGreedy(problem.arms, KERNEL, epsilon=0.3, tuning=tuning, seed=0)
    play(policy, problem.pull, 40)
    greedy = int(np.argmax(policy.scores().mean))
    batch = policy.choose(400)
    assert np.mean(batch != greedy) == pytest.approx(0.3, abs=0.08)
    assert np.unique(batch).size > 60


def test_uniform_play_among_rows_given_by_value_is_uniform():
    policy = ma.baselines.Uniform(None, KERNEL, n_features=1, seed=1)
    offers = np.linspace(0, 1, 10)[:, None]
    policy.observe(offers[:1], [0.0])
    chosen = policy.choose(2000, arms=offers, pending=offers[3:5])
    assert np.square(np.bincount(chosen, minlength=10) - 200).sum() / 200 < 27.9


def test_epsilon_may_decay():
    arms = np.linspace(0, 1, 50)[:, None]
    always = ma.baselines.EpsilonGreedy(arms, KERNEL, epsilon=lambda t: 7.0, seed=0)
    never = ma.baselines.EpsilonGreedy(arms, KERNEL, epsilon=lambda t: 1e-9 / t, seed=0)
    for policy in (always, never):
        policy.observe(30, 1.0)
    assert np.unique(always.choose(100)).size > 30
    assert (never.choose(100) == 30).all()
    seen = []
    policy = ma.baselines.EpsilonGreedy(arms, KERNEL, epsilon=lambda t: seen.append(t) or 1 / t)
    play(policy, np.sin, 4)
    assert seen == [1, 2, 3]


def test_wrong_epsilon_is_a_typed_error():
    for wrong in (-0.1, np.nan, "0.1", None):
        with pytest.raises(ParameterError, match="epsilon"):
            ma.baselines.EpsilonGreedy(np.zeros((3, 1)), KERNEL, epsilon=wrong)
    policy = ma.baselines.EpsilonGreedy(np.zeros((3, 1)), KERNEL, epsilon=lambda t: -1.0)
    policy.observe(0, 0.0)
    with pytest.raises(ParameterError, match="epsilon"):
        policy.choose()


def test_memory_is_that_of_bkb():
    """Policies on BKB's sketch take half of the machine unless they are told, and refuse what cannot work."""
    arms = np.linspace(0, 1, 100)[:, None]
    for policy in (
        ma.baselines.Uniform,
        ma.baselines.EpsilonGreedy,
        ma.baselines.SketchEI,
        ma.baselines.SketchPI,
    ):
        assert policy(arms, KERNEL).memory == ma.BKB(arms, KERNEL).memory
        assert policy(arms, KERNEL, memory=1e6).memory == 1e6
        with pytest.raises(MemoryBudgetError):
            policy(arms, KERNEL, memory=100.0)
        with pytest.raises(ParameterError, match="memory"):
            policy(arms, KERNEL, memory="much")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2_000_000, 2e6),
        ("1.5e9", 1.5e9),
        ("500 MB", 5e8),
        (" 2GB ", 2e9),
        (".5 kb", 500.0),
        ("3 B", 3.0),
        ("2 GiB", 2.0 * 2**30),
        ("1TiB", 2.0**40),
    ],
)
def test_memory_may_be_given_in_words(given, expected):
    assert as_bytes(given) == expected
    arms = np.zeros((1, 1))
    if expected > 1000:
        assert ma.BKB(arms, KERNEL, memory=given).memory == expected


@pytest.mark.parametrize(
    "given",
    [
        "much",
        "",
        "GB",
        "-2 GB",
        "0 MB",
        "2 XB",
        "1,5 GB",
        "2 GB 3",
        "1e999",
        "1e-999",
        b"1",
        0,
        True,
    ],
)
def test_memory_that_is_no_number_of_bytes_is_said(given):
    with pytest.raises(ParameterError, match=re.escape(f"got {given!r}")):
        ma.BKB(np.zeros((1, 1)), KERNEL, memory=given)
