"""Thompson sampling: draws have the posterior's mean and variance, a step does not embed all arms anew."""

import itertools

import numpy as np
import pytest
from problems import RKHSProblem, play
from scipy.stats import kstest

import manyarms as ma
from manyarms.policies import adaptive

KERNEL = ma.kernels.RBF(0.1)


def played(steps=60, entries=0, monkeypatch=None, **options):
    if monkeypatch:
        monkeypatch.setattr(adaptive, "EXACT_ENTRIES", entries)
    problem = RKHSProblem(KERNEL, n_arms=300, seed=2)
    policy = ma.policies.Thompson(problem.arms, KERNEL, regularization=0.05, seed=1, **options)
    play(policy, problem.pull, steps)
    return policy


@pytest.mark.parametrize("entries", [0, 1 << 18])  # on the sketch, on the exact posterior
def test_a_draw_has_the_mean_and_the_variance_of_the_posterior(entries, monkeypatch):
    policy = played(entries=entries, monkeypatch=monkeypatch, confidence=ma.Constant(1.5))
    draws = np.array([policy._sample(policy.beta, number) for number in range(2000)])
    mean, deviation = policy.predict()
    normal = (draws - mean) / (1.5 * deviation)
    np.testing.assert_allclose(normal.mean(axis=0), 0.0, atol=4.5 / np.sqrt(2000))
    np.testing.assert_allclose(normal.var(axis=0), 1.0, atol=4.5 * np.sqrt(2 / 2000))
    for arm in (0, 100, int(np.argmin(deviation)), int(np.argmax(deviation))):
        assert kstest(normal[:, arm], "norm").pvalue > 1e-4


def test_draws_of_close_arms_agree_in_the_span_of_the_dictionary():
    policy = played(residual=False)
    draws = np.array([policy._sample(policy.beta, number) for number in range(2000)])
    posterior = policy._fitted()
    Z, r = posterior.embedding(policy.arms, np.ones(300))
    expected = 0.05 * Z @ np.linalg.solve(posterior.C @ posterior.C.T, Z.T)  # λ ZV⁻¹Zᵀ
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.1 * expected.max())
    np.testing.assert_allclose(np.diag(expected) + r, policy.predict().std ** 2, atol=1e-9)


def test_without_the_residual_exploration_starves():
    kernel = ma.kernels.RBF(np.sqrt(1 / 200))  # Figure 1's exp(−100 (x − x′)²)
    arms = np.linspace(0, 1, 101)[:, None]
    deviations = []
    for residual in (True, False):
        policy = ma.policies.Thompson(arms, kernel, regularization=0.01, residual=residual)
        policy.observe(np.arange(0, 51, 5), np.zeros(11))
        deviations.append(np.std([policy._sample(policy.beta, number)[90] for number in range(500)]))
    assert deviations[0] == pytest.approx(1.0, abs=0.15)
    assert deviations[1] < 1e-3


def test_the_largest_draw_is_chosen():
    policy = played()
    batch = policy.choose(5)
    for number, arm in enumerate(batch):
        assert arm == np.argmax(policy._sample(policy.beta, number))
    assert np.unique(policy.choose(40)).size > 5


def test_embeddings_are_kept_until_the_inducing_arms_change():
    problem = RKHSProblem(KERNEL, n_arms=300, seed=2)
    policy = ma.policies.Thompson(problem.arms, KERNEL, regularization=0.05, seed=1)
    embeddings = []
    for _ in range(200):
        play(policy, problem.pull, 1)
        policy.choose(2)
        embeddings.append(policy._state.frontier.tracked.posterior.embedding)
    changes = 1 + sum(new is not old for old, new in itertools.pairwise(embeddings))
    assert policy.stats.counts["embeddings of all arms"] == changes < 100


def test_choices_do_not_depend_on_the_memory():
    kept, streamed = played(), played(memory=30_000)
    assert streamed._embedded_cache is None
    np.testing.assert_array_equal(kept.counts, streamed.counts)


def test_it_finds_the_best_arm():
    problem = RKHSProblem(KERNEL, n_arms=300, seed=2)
    policy = ma.policies.Thompson(problem.arms, KERNEL, regularization=0.01, seed=1)
    chosen = play(policy, problem.pull, 300)
    assert (problem.f.max() - problem.f[chosen[-100:]]).mean() < 0.1 * (problem.f.max() - problem.f.mean())
