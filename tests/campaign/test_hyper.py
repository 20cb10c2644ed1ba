"""The likelihood against the plain formula, its gradient against differences, and parameters against those of the data."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal

from manyarms.campaign.fitting import Fixed, Mixed, Summary, fit, likelihood
from manyarms.kernels import RBF

MIXED = Mixed(numeric=2, codes=2, bits=5)
OWN = Mixed(numeric=2, codes=2, bits=5, own=True)


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.hstack(
        [rng.random((n, 2)), rng.integers(3, size=(n, 2)), rng.integers(2, size=(n, 5))]
    ).astype(float)


def by_arm(rows, values):
    """Summary from a list of replicates for every row."""
    means, counts = (
        np.array([np.mean(v) for v in values]),
        np.array([len(v) for v in values], dtype=float),
    )
    within = sum(float(np.sum(np.square(v - np.mean(v)))) for v in values)
    return Summary(rows, means, counts, within, float(counts.sum() - len(counts)))


@pytest.mark.parametrize(
    "shape",
    [
        MIXED,
        OWN,
        Mixed(2, 2, 5, (1,)),
        Mixed(2, 2, 5, (0, 1), own=True),
        Mixed(2, 2, 5, rbf=True),
        Mixed(2, 0, 0),
        Mixed(0, 2, 0),
        Fixed(RBF(0.4)),
    ],
    ids=repr,
)
def test_gram_is_the_kernel_and_gradients_are_those_of_differences(shape):
    X = table(12)
    if shape == Mixed(2, 0, 0):
        X = X[:, :2]
    if shape == Mixed(0, 2, 0):
        X = X[:, 2:4]
    theta, gram = np.random.default_rng(1).standard_normal(len(shape.prior[0])), shape.gram(X)
    np.testing.assert_allclose(gram(theta)[0], shape.kernel(theta)(X, X), atol=1e-12)
    rng = np.random.default_rng(2)
    evidence = by_arm(X, [rng.standard_normal(k) for k in rng.integers(1, 4, size=12)])
    x = np.append(theta, [0.3, -1.0])
    off = check_grad(
        lambda x: likelihood(gram, evidence, x)[0], lambda x: likelihood(gram, evidence, x)[1], x
    )
    assert off < 1e-5


def test_the_likelihood_is_that_of_all_replicates():
    """With a known mean of zero it differs from the joint density of all observations by a constant only."""
    rng = np.random.default_rng(0)
    X, counts = table(6), np.array([1, 3, 2, 1, 4, 2])
    values = [rng.standard_normal(k) for k in counts]
    evidence, which, gram = by_arm(X, values), np.repeat(np.arange(6), counts), MIXED.gram(X)

    def dense(x):
        K = np.exp(x[-2]) * MIXED.kernel(x[:-2])(X, X)
        S = K[np.ix_(which, which)] + np.exp(x[-1]) * np.eye(len(which))
        m = likelihood(gram, evidence, x)[2]
        return -multivariate_normal(np.full(len(which), m), S).logpdf(np.concatenate(values))

    points = [
        np.array([0.1, -0.5, 0.2, 0.9, s, n]) for s, n in ((0.0, -1.0), (1.0, -2.0), (-0.5, 0.3))
    ]
    differences = [likelihood(gram, evidence, x)[0] - dense(x) for x in points]
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


def test_parameters_of_the_data_are_found():
    rng = np.random.default_rng(0)
    X = rng.random((200, 3))
    shape, truth = Mixed(3, 0, 0), np.log([0.3, 0.3, 30.0])
    K = 4.0 * shape.kernel(truth)(X, X) + 1e-10 * np.eye(200)
    f = 7.0 + np.linalg.cholesky(K) @ rng.standard_normal(200)
    found = fit(shape, by_arm(X, [f[i] + 0.2 * rng.standard_normal(2) for i in range(200)]))
    assert 0.15 < np.sqrt(found.noise) < 0.25
    assert np.all(np.exp(found.theta[:2]) < 0.6)
    assert np.exp(found.theta[2]) > 2.0
    assert 1.0 < found.scale < 16.0


def test_a_row_with_and_without_a_told_noise_has_one_part_of_its_own():
    X = np.repeat(table(6), 2, axis=0)  # each row twice
    theta = OWN.prior[0]
    np.testing.assert_allclose(OWN.gram(X)(theta)[0], OWN.kernel(theta)(X, X), atol=1e-12)
    evidence = Summary(X, np.arange(12.0), np.full(12, np.inf), 0.0, 0.0, np.full(12, 0.1))
    x = np.append(theta, [0.3, -1.0])
    gram = OWN.gram(X)
    off = check_grad(
        lambda x: likelihood(gram, evidence, x)[0], lambda x: likelihood(gram, evidence, x)[1], x
    )
    assert off < 1e-5


def test_what_replicates_agree_on_is_no_noise():
    """Values that scatter from row to row, and are the same when a row is tried again."""
    rng = np.random.default_rng(0)
    X = rng.random((80, 2))
    values = [np.full(2, each) for each in np.sin(4 * X[:, 0]) + 0.5 * rng.standard_normal(80)]
    found = fit(Mixed(2, 0, 0, own=True), by_arm(X, values))
    assert found.noise < 1.1e-4
    assert 0.3 < np.sqrt(found.scale * np.exp(found.theta[-1])) < 0.8


def test_few_observations_stay_near_the_priors():
    found = fit(MIXED, by_arm(table(1), [np.array([0.0])]))
    np.testing.assert_allclose(found.theta, MIXED.prior[0], atol=0.2)


def test_a_known_noise_is_kept():
    rng = np.random.default_rng(0)
    evidence = by_arm(table(30), [rng.standard_normal(1) for _ in range(30)])
    first = fit(MIXED, evidence, noise=0.04)
    assert first.noise == pytest.approx(0.04)
    again = fit(MIXED, evidence, noise=0.04, start=first.start)
    assert again.loss <= first.loss + 1e-9


def test_constant_rewards_and_duplicated_rows_do_no_harm():
    X = np.repeat(table(5), 4, axis=0)
    found = fit(MIXED, by_arm(X, [np.zeros(1)] * 20))
    assert np.isfinite(found.loss)
    assert np.isfinite(found.theta).all()
