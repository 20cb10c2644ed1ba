"""SupKernelUCB: elimination, independence of a level's arms from its rewards, the radius."""

from dataclasses import replace

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.baselines.supkernel import n_levels
from manyarms.engine.base import Arms, Batch
from manyarms.engine.exact import Exact
from manyarms.errors import ArmsError, ParameterError

KERNEL = ma.kernels.RBF(0.1)
SupKernelUCB, FixedDesign = ma.baselines.SupKernelUCB, ma.baselines.FixedDesign


def test_a_clearly_bad_arm_is_eliminated():
    """Three arms that share nothing: 1, 0.9 and −1. Once all widths are below ½ the bad one is out for good."""
    arms, f = np.array([[0.0], [10.0], [20.0]]), np.array([1.0, 0.9, -1.0])
    rng = np.random.default_rng(0)
    policy = SupKernelUCB(arms, KERNEL, regularization=0.01, horizon=500, seed=0)
    chosen = play(policy, lambda pulled: f[pulled] + 0.1 * rng.standard_normal(1), 300)
    bad = np.flatnonzero(chosen == 2)
    assert len(bad) <= 3
    assert bad[-1] < 12
    mean, variance = policy.belief.levels[0].moments(arms, np.ones(3))
    # Its interval at level 1 excludes it: μ + βσ < max(μ + βσ) − 2·½κ.
    upper = mean + policy.beta * np.sqrt(variance)
    assert upper[2] < upper.max() - 1.0
    assert np.mean(chosen[-100:] == 0) > 0.9


def test_which_arm_joins_a_level_does_not_depend_on_the_rewards_of_that_level():
    """Replace the rewards of level s, and of those deeper, by anything: an arm chosen at level s is still chosen there."""
    problem = RKHSProblem(KERNEL, n_arms=60, seed=1)
    policy = SupKernelUCB(problem.arms, KERNEL, regularization=0.01, horizon=400, seed=0)
    rng, reached = np.random.default_rng(0), set()
    table = Arms(policy.arms, np.ones(60))
    for _ in range(150):
        play(policy, problem.pull, 1)
        arm, state, belief = int(policy.choose()[0]), policy._state, policy.belief
        row = table.rows[[arm]]
        s = belief.level_of(
            np.array([level.moments(row, np.ones(1))[1] for level in belief.levels])
        )[0]
        if s < 0:
            continue
        reached.add(s)
        levels = list(belief.levels)
        for deeper in range(s, len(levels)):
            history = levels[deeper].history
            if history.n_observations:
                u = len(history.keys)
                fake = rng.standard_normal(u) * 10
                batch = Batch(
                    policy.arms[history.keys], np.ones(u), fake, history.counts, history.keys, u
                )
                prior = Exact().prior(KERNEL, table, 0.01, 0.1, rng)
                levels[deeper] = prior.observed(batch).after
        policy._state = state._replace(belief=replace(belief, levels=tuple(levels)))
        assert policy.choose()[0] == arm
        policy._state = state
    assert len(reached) >= 2


def test_the_levels_partition_what_was_observed():
    problem = RKHSProblem(KERNEL, n_arms=60, seed=2)
    policy = SupKernelUCB(problem.arms, KERNEL, regularization=0.01, horizon=400, seed=0)
    play(policy, problem.pull, 120)
    samples = [level.history for level in policy.belief.levels]
    assert sum(sample.n_observations for sample in samples) <= 120
    counts = np.zeros(60)
    for sample in samples:
        np.add.at(counts, sample.keys, sample.counts)
    assert (counts <= policy.counts).all()
    for sample, level in zip(
        samples, policy.belief.levels, strict=True
    ):  # each posterior is that of its own sample
        alone = ma.GPUCB(problem.arms, KERNEL, regularization=0.01)
        if sample.n_observations:
            alone.observe(
                sample.keys, sample.sums / sample.counts, noise=0.1 / np.sqrt(sample.counts)
            )
        mean, variance = level.moments(policy.arms, np.ones(len(policy.arms)))
        np.testing.assert_allclose(mean, alone.scores().mean, atol=1e-8)
        np.testing.assert_allclose(variance, alone.scores().variance, rtol=1e-6, atol=1e-9)


def test_the_fixed_design_radius_covers():
    """|μ(x) − f(x)| ≤ βσ(x) for all arms, when arms are pulled without a look at rewards."""
    radius = FixedDesign(norm=1.0, noise=0.1, horizon=100, delta=0.1)
    misses = 0
    for seed in range(40):
        problem = RKHSProblem(KERNEL, n_arms=50, norm=1.0, noise=0.1, seed=seed)
        policy = ma.GPUCB(problem.arms, KERNEL, regularization=0.01, confidence=radius)
        pulls = np.random.default_rng(seed).integers(50, size=100)
        policy.observe(pulls, problem.pull(pulls))
        mean, variance, _ = policy.scores()
        misses += (np.abs(mean - problem.f) > policy.beta * np.sqrt(variance)).any()
    assert misses <= 4


def test_levels_end_at_one_over_the_root_of_the_horizon():
    for horizon in (1, 2, 100, 1024, 10_000):
        assert 2.0 ** -n_levels(horizon) <= 1 / np.sqrt(horizon) or horizon == 1
    with pytest.raises(ParameterError, match="horizon"):
        SupKernelUCB(np.zeros((2, 1)), KERNEL, horizon=0)
    with pytest.raises(ParameterError, match="norm"):
        FixedDesign(norm=0.0, noise=0.1)


def test_radii_that_look_at_rewards_and_tables_that_are_missing_are_refused():
    with pytest.raises(ParameterError, match="double"):
        SupKernelUCB(np.zeros((2, 1)), KERNEL, confidence=ma.LogDet(1.0, 0.1, double=True))
    with pytest.raises(ArmsError, match="GPUCB"):
        SupKernelUCB(None, KERNEL, n_features=2)
