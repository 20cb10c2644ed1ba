"""Dictionary, embedding, posterior, arg max: each formula against the paper's."""

import numpy as np
import pytest
from oracles import dense

import manyarms as ma
from manyarms.engine.dictionary import Chance, draw_dictionary, inclusion_probability
from manyarms.engine.embedding import Inducing
from manyarms.engine.exact import ExactPosterior
from manyarms.engine.linalg import (
    INVERTIBLE,
    cholesky,
    lower_product,
    pivoted_cholesky,
    solve_lower,
    solve_transposed,
    solver,
)
from manyarms.errors import KernelError, NumericalError, ParameterError
from manyarms.search.scores import Upper, best_of

KERNEL = ma.kernels.RBF(0.3)


class TestDictionary:
    def test_a_row_of_weight_n_is_drawn_once(self):
        p, n = np.array([0.0, 0.1, 0.2, 1.0, 1.0]), np.array([3.0, 1.0, 4.0, 1.0, 7.0])
        expected = np.minimum(1.0, n * p)
        np.testing.assert_allclose(inclusion_probability(p / 5.0, n, 5.0), expected, atol=1e-15)
        assert (
            inclusion_probability(p / 5.0, n, 5.0) >= 1 - (1 - p) ** n - 1e-15
        ).all()  # one of n pulls is drawn

    def test_probability_above_one_counts_as_one(self):
        assert inclusion_probability(np.array([100.0]), np.array([1.0]), 5.0) == 1
        assert inclusion_probability(np.array([100.0]), np.array([1.0]), 1e308) == 1

    def test_tiny_probabilities_do_not_round_to_zero(self):
        assert inclusion_probability(np.array([1e-20]), np.array([10.0]), 1.0) == pytest.approx(
            1e-19
        )

    def test_frequencies_follow_the_probabilities(self):
        chance = Chance.of(np.random.default_rng(0))
        probability = np.array([0.1, 0.5, 0.9, 1.0])
        hits = np.zeros(4)
        for _ in range(2000):
            drawn, chance = draw_dictionary(probability, chance)
            hits[drawn] += 1
        np.testing.assert_allclose(hits / 2000, probability, atol=0.04)

    def test_an_empty_draw_keeps_the_most_probable_arm(self):
        chance = Chance.of(np.random.default_rng(0))
        assert draw_dictionary(np.array([0.0, 1e-300, 0.0]), chance)[0] == [1]

    def test_oversampling_is_theorem_ones(self):
        assert ma.oversampling_for(0.5, 0.1, 200) == pytest.approx(6 * 3 * np.log(8000) / 0.25)
        for wrong in ((0.0, 0.1, 10), (1.0, 0.1, 10), (0.5, 0.0, 10), (0.5, 0.1, 0)):
            with pytest.raises(ParameterError):
                ma.oversampling_for(*wrong)


class TestLinearAlgebra:
    def test_pivots_are_a_factored_sub_dictionary(self):
        X = np.random.default_rng(0).random((40, 1))
        K = KERNEL(X, X)
        L, pivots, residual = pivoted_cholesky(K, 1e-8)
        assert len(pivots) < 40
        np.testing.assert_allclose(L @ L.T, K[np.ix_(pivots, pivots)], atol=1e-14)
        assert np.abs(residual).max() <= 1e-8

    def test_keeping_all_factors_the_matrix_to_rounding(self):
        X = np.repeat(np.random.default_rng(0).random((10, 1)), 4, axis=0)
        K = KERNEL(X, X)
        L, pivots, _ = pivoted_cholesky(K, np.finfo(float).eps, keep_all=True)
        np.testing.assert_allclose(L @ L.T, K[np.ix_(pivots, pivots)], atol=1e-14)

    def test_solves(self):
        rng = np.random.default_rng(1)
        A = rng.random((6, 6)) + 6 * np.eye(6)
        C = cholesky(A @ A.T)
        b = rng.random(6)
        solved = solve_transposed(C, solve_lower(C, b.copy()))
        np.testing.assert_allclose(solved, np.linalg.solve(A @ A.T, b))
        np.testing.assert_allclose(C @ solve_lower(C, A.copy()), A)

    @pytest.mark.parametrize("m", [1, 63, 64, 65, 200])
    @pytest.mark.parametrize("least", [0.5, INVERTIBLE / 10])
    def test_a_solver_solves_by_the_inverse_or_by_blocks(self, m, least):
        rng = np.random.default_rng(m)
        L = np.tril(rng.uniform(-1, 1, (m, m)) / np.sqrt(m), -1) + np.diag(
            np.linspace(1.0, least, m)
        )
        B = rng.random((5, m)).T
        kept = B.copy()
        found = np.empty((m, 5))
        solver(L)(B, found)
        np.testing.assert_allclose(L @ found, B, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(B, kept)

    @pytest.mark.parametrize("m", [1, 63, 64, 65, 200])
    def test_a_product_with_a_triangle_and_rows_below_it(self, m):
        rng = np.random.default_rng(m)
        T, B = np.tril(rng.random((m + 2, m))), rng.random((m, 7))
        found = np.empty((m + 2, 7))
        lower_product(T, B, found)
        np.testing.assert_allclose(found, T @ B, rtol=1e-13)

    def test_a_singular_posterior_is_a_typed_error(self):
        with pytest.raises(NumericalError, match="regularization"):
            cholesky(np.ones((3, 3)))


class TestPosterior:
    @pytest.mark.parametrize(
        "kernel", [KERNEL, ma.kernels.Matern(0.5, 1.5), ma.kernels.Linear(1.0), 3.0 * KERNEL]
    )
    def test_it_is_the_papers_equation_three(self, kernel):
        rng = np.random.default_rng(3)
        arms = rng.random((30, 2))
        S, U = np.array([0, 3, 5, 8]), np.arange(12)
        counts = rng.integers(1, 5, 12)
        pulls = np.repeat(U, counts)
        rewards = rng.standard_normal(len(pulls))
        policy = ma.BKB(arms, kernel, regularization=0.1, rule=ma.Sampled(), seed=0)
        policy.observe(pulls, rewards)
        belief = policy.belief.on(S)
        W, kept = Inducing.fit(kernel, arms[S], S, 1e-14)
        np.testing.assert_array_equal(W.keys, S[kept])
        Z, _, in_W = W.features(arms[U], kernel.diag(arms[U]))
        np.testing.assert_array_equal(np.flatnonzero(in_W), np.sort(S[kept]))
        np.testing.assert_array_equal(Z[S[kept]], W.L.upper.T)
        mean, variance = belief.moments(arms, kernel.diag(arms))
        expected = dense.sketched(kernel, arms, S, pulls, rewards, 0.1, arms)
        np.testing.assert_allclose(mean, expected[0], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(variance, expected[1], rtol=1e-9)
        np.testing.assert_allclose(belief.variance, expected[1][U], rtol=1e-9)

    def test_exact_posterior_is_equations_one_and_two(self):
        rng = np.random.default_rng(4)
        arms = rng.random((20, 2))
        counts = rng.integers(1, 5, 8)
        means = rng.standard_normal(8)
        posterior = ExactPosterior.fit(KERNEL, arms[:8], 1.0 * counts, counts * means, 0.1)
        mean, variance = posterior.moments(arms, KERNEL.diag(arms))
        pulls = np.repeat(np.arange(8), counts)
        rewards = np.repeat(means, counts)
        expected = dense.exact(KERNEL, arms, pulls, rewards, 0.1, arms)
        np.testing.assert_allclose(mean, expected[0], rtol=1e-10)
        np.testing.assert_allclose(variance, expected[1], rtol=1e-10)

    def test_leverage_scores_are_variances_of_the_rows_observed(self):
        X = np.random.default_rng(5).random((15, 1))
        posterior = ExactPosterior.fit(KERNEL, X, np.ones(15), np.zeros(15), 0.3)
        _, variance = posterior.moments(X, np.ones(15))
        np.testing.assert_allclose(variance, dense.leverage_scores(KERNEL(X, X), 0.3), rtol=1e-10)

    def test_the_prior_is_an_empty_dictionary(self):
        X = np.random.default_rng(6).random((5, 2))
        prior = ma.BKB(X, KERNEL, regularization=0.5, rule=ma.Sampled()).belief
        mean, variance = prior.moments(X, np.ones(5))
        assert (mean == 0).all()
        assert (variance == 2).all()


class TestIndefiniteKernels:
    X = np.array([[0.0], [1.0], [2.0]])

    @pytest.mark.parametrize(
        ("function", "words"),
        [
            (lambda X, Y: 1.0 + 0.5 * np.abs(X - Y.T), "exceeds"),
            (
                lambda X, Y: np.where(X == Y.T, 1.0, np.where(np.abs(X - Y.T) == 1, 0.9, -0.9)),
                "negative variance",
            ),
            (lambda X, Y: np.exp(-np.abs(X - Y.T)) + 0.1 * (X > Y.T), "symmetric"),
        ],
    )
    def test_the_error_names_a_pair(self, function, words):
        with pytest.raises(KernelError, match=words) as caught:
            Inducing.fit(ma.kernels.FromCallable(function), self.X, np.arange(3), 1e-12)
        assert "x = [" in str(caught.value)
        assert "y = [" in str(caught.value)

    def test_an_arm_outside_the_dictionary_reveals_it_too(self):
        kernel = ma.kernels.FromCallable(
            lambda X, Y: np.where(X == Y.T, 1.0, np.where(np.abs(X - Y.T) == 1, 0.9, -0.9))
        )
        W, _ = Inducing.fit(kernel, self.X[:2], np.arange(2), 1e-12)
        with pytest.raises(KernelError, match=r"x = \[2\.\].*such as y = \["):
            W.features(self.X, np.ones(3))


def arg_max(mean, variance, beta):
    return best_of(*Upper(beta)(mean, np.sqrt(variance)))


class TestArgMax:
    def test_ties_within_rounding_go_to_the_lowest_index(self):
        mean = np.array([0.0, 1.0, 1.0 + 1e-12, 1.0 + 1e-10, 0.5])
        assert arg_max(mean, np.ones(5), 1.0) == 1

    def test_differences_above_rounding_count(self):
        assert arg_max(np.array([1.0, 1.0 + 1e-8]), np.ones(2), 1.0) == 1

    @pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
    def test_choices_do_not_depend_on_the_scale(self, scale):
        mean = np.array([0.1, 0.3, 0.2])
        assert arg_max(scale * mean, scale**2 * np.array([1.0, 1.1, 1.3]), 0.4) == 1

    def test_nothing_but_zeros(self):
        assert arg_max(np.zeros(3), np.zeros(3), 2.0) == 0
