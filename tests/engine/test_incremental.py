"""Dictionaries that are updated: the law of each step, and what is kept."""

import itertools

import numpy as np
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.baselines import Incremental, Insertion
from manyarms.engine.dictionary import inclusion_probability
from manyarms.engine.sampled import Candidates
from manyarms.errors import ParameterError

KERNEL = ma.kernels.RBF(0.1)
ARMS = np.linspace(0, 1, 200)[:, None]


def observed(rule, seed, calls=6):
    policy = ma.BKB(ARMS, KERNEL, regularization=1.0, rule=rule, seed=seed)
    beliefs = [policy.belief]
    for call in range(calls):
        policy.observe(np.random.default_rng(call).integers(200, size=40), np.zeros(40))
        beliefs.append(policy.belief)
    return policy, beliefs


def candidates(variance, counts, before, inside, fresh=None):
    return Candidates(variance, counts, counts if fresh is None else fresh, before, inside)


def test_a_row_stays_with_the_ratio_of_its_probabilities():
    rng = np.random.default_rng(0)
    before, after = rng.random(50), rng.random(50)
    inside = rng.random(50) < 0.5
    before[:5] = 0.0  # new rows
    inside[:5] = False
    drawn = Incremental().draws(candidates(after, np.ones(50), before, inside), after)
    for p, q, was_in, found in zip(before, after, inside, drawn, strict=True):
        assert found == pytest.approx(min(1.0, q / p) if was_in else max(0.0, (q - p) / (1 - p)))


def test_marginals_are_those_of_a_fresh_draw():
    """With the same leverages throughout, S_t is as a fresh draw would be: P(i ∈ S_t) = p_t."""
    rng = np.random.default_rng(0)
    rule = Incremental()
    first, *sequence = [rng.random(100) for _ in range(5)] + [np.resize([0.1, 0.8, 0.5, 0.0], 100)]
    hits = np.zeros(100)
    for _ in range(1500):
        before, inside = first, rng.random(100) < first
        for after in sequence:
            inside = rng.random(100) < rule.draws(
                candidates(after, np.ones(100), before, inside), after
            )
            before = after
        hits += inside
    np.testing.assert_allclose(hits / 1500, sequence[-1], atol=0.065)


def test_insertion_never_deletes_and_enters_by_leverage():
    for seed in range(5):
        policy, beliefs = observed(Insertion(1.0), seed)
        for old, new in itertools.pairwise(beliefs):
            assert set(old.dictionary) <= set(new.dictionary)
        assert len(policy.belief.dictionary) < len(policy.belief.variance)
    variance = np.linspace(0.0, 3.0, 40)
    fresh = np.resize([0.0, 1.0, 2.5], 40)
    inside = np.arange(40) % 4 == 0
    rule = Insertion(0.7)
    rows = candidates(variance, np.full(40, 9.0), np.zeros(40), inside, fresh)
    drawn = rule.draws(rows, rule.inclusion(rows))
    np.testing.assert_allclose(
        drawn[~inside], np.minimum(1.0, 0.7 * fresh * variance / (1 + variance))[~inside]
    )
    assert (drawn[inside] == 1).all()
    before = policy.belief.dictionary
    policy.redraw(1e300)
    np.testing.assert_array_equal(policy.belief.dictionary, before)


def test_redrawing_incrementally_has_the_new_law():
    policy, _ = observed(Incremental(1.0), 0)
    policy.redraw(1e300)
    belief = policy.belief
    assert len(belief.dictionary) == np.count_nonzero(policy.counts)
    expected = inclusion_probability(belief.variance, belief.seen.counts, 1.0).sum()
    policy.redraw(1.0)
    assert len(policy.belief.dictionary) == pytest.approx(expected, abs=5 * np.sqrt(expected))


@pytest.mark.parametrize("rule", [Incremental(5.0), Insertion(5.0)])
def test_the_sketch_is_about_as_accurate_as_a_fresh_one(rule):
    problem = RKHSProblem(KERNEL, n_arms=300, seed=1)
    policy = ma.BKB(problem.arms, KERNEL, regularization=0.1, rule=rule, seed=0)
    chosen = play(policy, problem.pull, 200)
    assert ma.diagnostics.sandwich(policy).holds(0.5)
    assert len(policy.belief.dictionary) <= len(np.unique(chosen))
    assert policy.guarantee == "resampled"
    assert (problem.f.max() - problem.f[chosen[-50:]]).mean() < 0.1 * (
        problem.f.max() - problem.f.mean()
    )
    with pytest.raises(ParameterError):
        type(rule)(0.0)
