"""Dictionaries that are updated: the law of each step, and what is kept."""

import itertools

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.sketch.dictionary import inclusion_probability

KERNEL = ma.kernels.RBF(0.1)
ARMS = np.linspace(0, 1, 200)[:, None]


def observed(resparsify, seed, oversampling=1.0, calls=6):
    policy = ma.BKB(ARMS, KERNEL, regularization=1.0, oversampling=oversampling, resparsify=resparsify, seed=seed)
    states = [policy._state]
    for call in range(calls):
        policy.observe(np.random.default_rng(call).integers(200, size=40), np.zeros(40))
        states.append(policy._state)
    return policy, states


def test_an_arm_stays_with_the_ratio_of_its_probabilities():
    policy, (*_, old, new) = observed("incremental", 0)
    p = policy._draw(old, new.history, np.zeros(len(new.inclusion)), new.inclusion)
    before = dict(zip(old.history.pulled, old.inclusion, strict=True))
    for arm, after, drawn in zip(new.history.pulled, new.inclusion, p, strict=True):
        if arm in old.dictionary:
            assert drawn == pytest.approx(min(1.0, after / before[arm]))
        else:
            earlier = before.get(arm, 0.0)
            assert drawn == pytest.approx(max(0.0, (after - earlier) / (1 - earlier)))


def test_marginals_are_those_of_a_fresh_draw():
    """With the same leverages throughout, S_t is as a fresh draw would be: P(i ∈ S_t) = p_t."""
    rng, p = np.random.default_rng(0), np.array([0.1, 0.8, 0.5, 0.0])
    policy, (*_, old, _) = observed("incremental", 0)
    history = old.history
    sequence = [rng.random(len(history.pulled)) for _ in range(4)] + [np.resize(p, len(history.pulled))]
    hits = np.zeros(len(history.pulled))
    for _ in range(1500):
        state, inside = old, rng.random(len(history.pulled)) < old.inclusion
        for after in sequence:
            state = state.__class__(**{**vars(state), "dictionary": history.pulled[inside]})
            inside = rng.random(len(history.pulled)) < policy._draw(state, history, after, after)
            state = state.__class__(**{**vars(state), "inclusion": after})
        hits += inside
    np.testing.assert_allclose(hits / 1500, sequence[-1], atol=0.065)


def test_insertion_never_deletes_and_enters_by_leverage():
    for seed in range(5):
        policy, states = observed("insertion", seed)
        for old, new in itertools.pairwise(states):
            assert set(old.dictionary) <= set(new.dictionary)
        old, new = states[-2], states[-1]
        variance = np.linspace(0.0, 3.0, len(new.history.pulled))
        p = policy._draw(old, new.history, variance, new.inclusion)
        fresh = policy.counts[new.history.pulled]
        fresh[np.searchsorted(new.history.pulled, old.history.pulled)] -= old.history.counts
        outside = ~np.isin(new.history.pulled, old.dictionary)
        expected = 1 - (1 - np.minimum(1.0, variance / (1 + variance))) ** fresh
        np.testing.assert_allclose(p[outside], expected[outside])
        assert (p[~outside] == 1).all()
        assert len(new.dictionary) < len(new.history.pulled)
    before = policy.dictionary
    policy.redraw(1e300)
    np.testing.assert_array_equal(policy.dictionary, before)


def test_redrawing_incrementally_has_the_new_law():
    policy, _ = observed("incremental", 0)
    policy.redraw(1e300)
    assert len(policy.dictionary) == np.count_nonzero(policy.counts)
    expected = inclusion_probability(policy._state.pulled_variance, policy._state.history.counts, 1.0).sum()
    policy.redraw(1.0)
    assert len(policy.dictionary) == pytest.approx(expected, abs=5 * np.sqrt(expected))


@pytest.mark.parametrize("resparsify", ["incremental", "insertion"])
def test_the_sketch_is_about_as_accurate_as_a_fresh_one(resparsify):
    problem = RKHSProblem(KERNEL, n_arms=300, seed=1)
    policy = ma.BKB(problem.arms, KERNEL, regularization=0.1, oversampling=5.0, resparsify=resparsify, seed=0)
    chosen = play(policy, problem.pull, 200)
    assert ma.diagnostics.sandwich(policy).holds(0.5)
    assert len(policy.dictionary) <= len(np.unique(chosen))
    assert (problem.f.max() - problem.f[chosen[-50:]]).mean() < 0.1 * (problem.f.max() - problem.f.mean())
