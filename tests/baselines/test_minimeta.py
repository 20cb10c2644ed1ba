"""mini-META: epochs of the right length, few unique arms, and what the policy inside would choose."""

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.2)
MiniMeta = ma.baselines.MiniMeta


def inner(name, arms, **options):
    found = {"ucb": ma.GPUCB, "ei": ma.baselines.GPEI, "ts": ma.baselines.Thompson, "bkb": ma.BKB}
    return found[name](arms, KERNEL, regularization=0.04, seed=3, **options)


@pytest.mark.parametrize("name", ["ucb", "ei", "ts", "bkb"])
def test_an_arm_is_evaluated_until_its_quota_is_observed(name):
    problem = RKHSProblem(KERNEL, n_arms=70, seed=1)
    policy, plain = MiniMeta(inner(name, problem.arms), threshold=1.5), inner(name, problem.arms)
    lengths = []
    while sum(lengths) < 40:  # the longer an arm was evaluated, the longer it will be
        arm = int(plain.choose()[0])
        quota = max(
            1, int((1.5**2 - 1) / plain.belief.moments(problem.arms[[arm]], np.ones(1))[1][0])
        )
        lengths.append(quota)
        np.testing.assert_array_equal(policy.choose(None), np.full(quota, arm))
        assert len(policy.choose(None, pending=np.full(quota, arm))) == 0
        for left in range(quota, 0, -1):
            np.testing.assert_array_equal(policy.choose(None), np.full(left, arm))
            assert policy.choose() == arm
            y = problem.pull(np.array([arm]))
            policy.observe(arm, y)
            plain.observe(arm, y)
    assert max(lengths) > 3


def test_variances_shrink_by_the_square_of_the_threshold_at_most_in_an_epoch():
    problem = RKHSProblem(KERNEL, n_arms=70, seed=1)
    policy = MiniMeta(ma.GPUCB(problem.arms, KERNEL, regularization=0.04), threshold=1.5)
    while policy.counts.sum() < 300:
        epoch, before = policy.choose(None), policy.scores().variance
        policy.observe(epoch, problem.pull(epoch))
        if len(epoch) > 1:
            assert (before <= 1.5**2 * policy.scores().variance * (1 + 1e-9)).all()


def test_few_unique_arms_for_many_evaluations():
    problem = RKHSProblem(KERNEL, n_arms=200, seed=2)
    policy, plain = (MiniMeta(ma.GPUCB(problem.arms, KERNEL)), ma.GPUCB(problem.arms, KERNEL))
    chosen, every = play(policy, problem.pull, 400), play(plain, problem.pull, 400)
    assert np.count_nonzero(np.diff(chosen)) < 0.3 * np.count_nonzero(np.diff(every))
    gap = problem.f.max() - problem.f
    assert gap[chosen[-100:]].mean() < 0.1 * gap.mean()


def test_the_policy_given_is_left_alone():
    arms = np.linspace(0, 1, 20)[:, None]
    given = ma.BKB(arms, KERNEL)
    policy = MiniMeta(given)
    policy.observe([1, 2], [0.0, 1.0])
    assert given.counts.sum() == 0
    assert policy.counts.sum() == 2


def test_an_excluded_arm_interrupts_its_epoch():
    policy = MiniMeta(
        ma.GPUCB(np.linspace(0, 1, 20)[:, None], KERNEL, regularization=1.0), threshold=4.0
    )
    policy.observe(5, 1.0)
    assert policy.choose() == 5
    assert policy.choose(exclude=[5]) != 5


def test_wrong_settings_are_typed_errors():
    with pytest.raises(ParameterError, match="threshold"):
        MiniMeta(ma.GPUCB(np.zeros((2, 1)), KERNEL), threshold=1.0)
    with pytest.raises(ParameterError, match="policy"):
        MiniMeta(KERNEL)


def test_arms_given_by_value_have_no_epochs():
    arms = np.linspace(0, 1, 20)[:, None]
    policy, plain = (
        MiniMeta(ma.GPUCB(arms, KERNEL, regularization=1.0)),
        ma.GPUCB(arms, KERNEL, regularization=1.0),
    )
    for bandit in (policy, plain):
        bandit.observe(arms[[5]] + 0.001, [1.0])
    np.testing.assert_array_equal(policy.choose(3, arms=arms[:8]), plain.choose(3, arms=arms[:8]))
    assert policy.evidence.n_observations == 1


def test_all_else_is_the_policy_s():
    policy = MiniMeta(ma.GPUCB(np.linspace(0, 1, 20)[:, None], KERNEL))
    policy.observe([1, 2], [0.0, 1.0])
    assert policy.guarantee == "exact"
    assert policy.highest() == np.argmax(policy.scores().ucb)
    assert repr(policy).startswith("MiniMeta(GPUCB(20 arms")
    with pytest.raises(AttributeError, match="_nothing"):
        _ = policy._nothing
    with pytest.raises(AttributeError, match="nothing"):
        _ = policy.nothing
