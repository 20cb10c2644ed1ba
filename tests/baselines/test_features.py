"""Policies linear in explicit features, against dense formulas; what the features stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import play
from scipy.special import factorial2
from scipy.stats import norm

import manyarms as ma
from manyarms.baselines import CBRAP, OFUL, QFF, RFF, SOFUL, fourier
from manyarms.baselines.features import LinearScores, Ridge, SketchedRidge, mean_norm
from manyarms.baselines.fourier import (
    ACCURACY,
    MOST_FEATURES,
    draw,
    grid,
    kernel_error,
    nodes_for,
    quadrature,
)
from manyarms.baselines.linear import Sketched
from manyarms.engine.base import Arms
from manyarms.errors import KernelError, MemoryBudgetError, ObservationError, ParameterError
from manyarms.kernels import RBF, Linear, Matern, On

RNG = np.random.default_rng(3)
ARMS = RNG.standard_normal((60, 5)) / np.sqrt(5)
THETA = RNG.standard_normal(5)


def dense(features, pulls, rewards, regularization, X):
    """wᵀφ and φᵀV⁻¹φ, one row a pull, by inverses."""
    F = features[pulls]
    V = regularization * np.eye(features.shape[1]) + F.T @ F
    return (
        X @ np.linalg.solve(V, F.T @ rewards),
        np.einsum("ij,jk,ik->i", X, np.linalg.inv(V), X),
        V,
    )


def scored(features, regularization):
    """Scores of arms with these features, nothing observed."""
    ridge = Ridge.prior(regularization, features.shape[1])
    nothing = np.zeros(len(features))
    return LinearScores(features, nothing, ridge, nothing, ridge.leverage(features), 0.0)


def followed(scores, arms, rewards, weights):
    """The scores after observations."""
    ridge = scores.regression.observed(scores.features[arms], rewards, weights)
    return scores._brought(ridge, scores.features @ ridge.w)


def features_of(policy, X):
    """φ of rows."""
    return policy.belief.features(X, np.ones(len(X)))[0]


def played(bandit, steps, theta=THETA, noise=0.1, seed=0):
    rng, rewards = np.random.default_rng(seed), []

    def pull(arms):
        rewards.append(float(bandit.arms[arms[0]] @ theta + noise * rng.standard_normal()))
        return rewards[-1:]

    return play(bandit, pull, steps), np.array(rewards)


class TestRidge:
    @given(
        st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=9), max_size=10),
        st.sampled_from([1e-4, 0.01, 3.0]),
    )
    def test_any_sequence_of_observations_equals_the_dense_formula(self, calls, regularization):
        features, rng = ARMS[:20], np.random.default_rng(0)
        scores, pulls, rewards = scored(features, regularization), [], []
        for call in calls:
            arms = np.unique(call)
            y, weights = rng.standard_normal(len(arms)), 1.0 + np.arange(len(arms)) % 3
            scores = followed(scores, arms, y, weights)
            pulls += list(np.repeat(arms, weights.astype(int)))
            rewards += list(np.repeat(y, weights.astype(int)))
        mean, variance, V = dense(
            features, np.array(pulls, dtype=int), np.array(rewards), regularization, features
        )
        ridge = scores.regression
        np.testing.assert_allclose(scores.mean, mean, atol=1e-9)
        np.testing.assert_allclose(scores.current()[1], variance, rtol=1e-9)
        np.testing.assert_allclose(
            ridge.log_det, np.linalg.slogdet(V / regularization)[1], rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(ridge.leverage(features[:4]), variance[:4], rtol=1e-8, atol=1e-9)
        weights = np.diag(features @ np.linalg.inv(V) @ features.T)[np.array(pulls, dtype=int)]
        assert ridge.dimension == pytest.approx(weights.sum(), rel=1e-6, abs=1e-9)
        length, spread = mean_norm(ridge)
        assert length == pytest.approx(np.linalg.norm(ridge.w))
        expected = np.sqrt(ridge.w @ np.linalg.solve(V, ridge.w))
        assert length * spread == pytest.approx(expected, rel=1e-8)

    def test_lowered_variances_keep_their_digits(self):
        scores, rng = scored(ARMS, 1e-6), np.random.default_rng(1)
        settled = set()
        for _ in range(1500):
            scores = followed(scores, rng.integers(60, size=1), np.ones(1), np.ones(1))
            settled.add(scores.settled)
        np.testing.assert_allclose(scores.inside, scores.regression.leverage(ARMS), rtol=1e-10)
        assert (
            len(settled) <= scores.regression.log_det / np.log(16) + 1 < 60
        )  # of 1,500: the rest was subtracted

    def test_a_draw_has_the_posterior_covariance(self):
        ridge = Ridge.prior(0.1, 5).observed(ARMS[:3], np.zeros(3), np.ones(3))
        D = np.column_stack([ARMS @ ridge.drawn(e) for e in np.eye(5)])
        _, _, V = dense(ARMS, np.arange(3), np.zeros(3), 0.1, ARMS)
        np.testing.assert_allclose(D @ D.T, ARMS @ np.linalg.inv(V) @ ARMS.T, atol=1e-12)

    def test_rewards_beyond_float64_are_a_typed_error_that_changes_nothing(self):
        for bandit in (OFUL(1e3 * ARMS), SOFUL(1e3 * ARMS, size=2)):
            with pytest.raises(ObservationError, match="at most"):
                bandit.observe([1, 2], [1.7e308, -1.7e308])
            assert bandit.counts.sum() == 0


class TestOFUL:
    def test_it_is_gpucb_with_a_linear_kernel(self):
        radius = ma.LogDet(norm=2.0, noise=0.1)
        oful, gpucb = (
            OFUL(ARMS, confidence=radius, seed=4),
            ma.GPUCB(ARMS, Linear(), confidence=radius, seed=4),
        )
        pulls, rewards = played(oful, 60)
        assert list(pulls) == list(played(gpucb, 60)[0])
        np.testing.assert_allclose(oful.scores(), gpucb.scores(), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(oful.beta, gpucb.beta, rtol=1e-9)
        np.testing.assert_allclose(oful.effective_dimension, gpucb.effective_dimension, rtol=1e-6)
        mean, variance, V = dense(ARMS, pulls, rewards, 0.01, ARMS)
        np.testing.assert_allclose(oful.scores()[:2], [mean, variance], rtol=1e-8, atol=1e-10)
        ellipsoid = (
            0.1 * np.sqrt(2 * np.log(np.sqrt(np.linalg.det(V / 0.01)) / 0.1)) + np.sqrt(0.01) * 2.0
        )  # Theorem 2
        assert oful.beta == pytest.approx(ellipsoid)

    def test_scaling_the_arms_with_rewards_and_regularization_changes_no_choice(self):
        for choice in ("ucb", "thompson"):
            for make in (
                OFUL,
                lambda X, **o: CBRAP(X, dimension=3, **o),
                lambda X, **o: SOFUL(X, size=2, **o),
            ):
                one, other = (
                    make(ARMS, choice=choice),
                    make(1024 * ARMS, choice=choice, regularization=0.01 * 1024**2),
                )
                assert list(played(one, 25)[0]) == list(played(other, 25, noise=0.1 * 1024)[0])

    def test_the_ellipsoid_holds_the_weights(self):
        held = []
        for seed in range(30):
            bandit = OFUL(
                ARMS, confidence=ma.LogDet(norm=float(np.linalg.norm(THETA)), noise=0.1), seed=seed
            )
            played(bandit, 40, seed=seed)
            mean, variance, _ = bandit.scores()
            held.append(
                (np.abs(mean - ARMS @ THETA) <= bandit.beta * np.sqrt(variance) + 1e-12).all()
            )
        assert sum(held) >= 27  # δ = 0.1

    def test_an_unknown_rule_is_a_typed_error(self):
        with pytest.raises(ParameterError, match="thompson"):
            OFUL(ARMS, choice="greedy")


class TestThompson:
    def test_an_arm_is_chosen_as_often_as_it_is_best_in_the_posterior(self):
        for make in (OFUL, lambda X, **o: SOFUL(X, size=2, **o)):
            bandit = make(ARMS[:2], choice="thompson", regularization=0.5, seed=7)
            bandit.observe([0, 1, 0], [0.3, 0.2, 0.1])
            mean, dice = bandit.scores().mean, np.random.default_rng(7)
            sd = np.sqrt(
                0.5 * bandit.belief.moments(ARMS[:1] - ARMS[1:2], np.ones(1))[1][0]
            )  # of f(0) − f(1)
            scores = bandit.belief.scores(Arms(ARMS[:2], np.ones(2)))
            wins = [np.argmax(scores.drawn(bandit.beta, dice)) == 0 for _ in range(2000)]
            expected = norm.cdf((mean[0] - mean[1]) / sd)
            assert np.mean(wins) == pytest.approx(
                expected, abs=4 * np.sqrt(expected * (1 - expected) / 2000)
            )

    def test_a_new_observation_is_a_new_draw(self):
        bandit = OFUL(ARMS, choice="thompson", regularization=100.0, seed=1)
        assert np.unique(played(bandit, 30)[0]).size > 10
        other = OFUL(ARMS, choice="thompson", regularization=100.0, seed=2)
        assert list(played(other, 30)[0]) != list(played(bandit, 30)[0])


class TestCBRAP:
    def test_it_is_ridge_regression_on_projected_arms(self):
        bandit = CBRAP(ARMS, dimension=3, seed=2)
        F, _ = bandit.belief.feature_map(ARMS, np.ones(len(ARMS)))
        pulls, rewards = played(bandit, 25)
        mean, variance, _ = dense(F, pulls, rewards, 0.01, F)
        np.testing.assert_allclose(bandit.scores()[:2], [mean, variance], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(bandit.evidence.trace, np.square(F[pulls]).sum() / 0.01)

    def test_inner_products_are_kept_on_average(self):
        rng, X = np.random.default_rng(0), ARMS[:6]
        grams = []
        for _ in range(600):
            F = features_of(CBRAP(X, dimension=2, seed=rng), X)
            grams.append(F @ F.T)
            rng.random(64)
        np.testing.assert_allclose(
            np.mean(grams, axis=0), X @ X.T, atol=5 * np.std(grams, axis=0).max() / np.sqrt(600)
        )

    def test_what_the_projection_loses_is_never_learned(self):
        arms = np.random.default_rng(0).standard_normal((200, 40))
        f = arms @ np.random.default_rng(1).standard_normal(40)
        bandit = CBRAP(arms, dimension=5, regularization=0.01)
        bandit.observe(np.tile(np.arange(200), 20), np.tile(f, 20))
        assert bandit.predict().std.max() < 0.02
        assert np.abs(bandit.predict().mean - f).max() > 1.0  # confident and wrong


class TestFrequentDirections:
    @given(st.integers(1, 9), st.integers(0, 2**32), st.floats(0.0, 3.0), st.integers(1, 4))
    def test_the_covariance_error_bound(self, m, seed, decay, block):
        """0 ⪯ AᵀA − BᵀB ⪯ ρ̄I and ρ̄ ≤ ‖A − A_k‖²_F/(m − k) for all k < m, by eigenvalues."""
        A = np.random.default_rng(seed).standard_normal((40, 8)) * np.arange(1.0, 9.0) ** -decay
        sketch = SketchedRidge.prior(m, 1.0, 8)
        for start in range(0, 40, block):
            rows = A[start : start + block]
            sketch = sketch.observed(rows, np.zeros(len(rows)), np.ones(len(rows)))
        B = np.sqrt(sketch.values)[:, None] * sketch.directions
        assert len(B) <= m
        error = np.linalg.eigvalsh(A.T @ A - B.T @ B)
        rounding = 1e-12 * np.square(A).sum()
        assert -rounding <= error[0]
        assert error[-1] <= sketch.lost + rounding
        tails = np.cumsum(np.square(np.linalg.svd(A)[1])[::-1])[::-1]  # ‖A − A_k‖²_F, k = 0, 1, …
        for k in range(min(m, 8)):
            assert (
                sketch.lost
                <= tails[k] / (m + 1 - k) + rounding
                <= tails[k] / (m - k) + 2 * rounding
            )
        if m >= 8:
            assert sketch.lost == 0
            np.testing.assert_allclose(B.T @ B, A.T @ A, atol=rounding)

    def test_its_ridge_is_the_dense_one(self):
        rng = np.random.default_rng(0)
        for n in (1, 3, 30):
            rows, y, weights = rng.standard_normal((n, 6)), rng.standard_normal(n), rng.random(n)
            sketch = SketchedRidge.prior(4, 0.3, 6).observed(rows, y, weights)
            V = 0.3 * np.eye(6) + (sketch.directions.T * sketch.values) @ sketch.directions
            X, x = rng.standard_normal((7, 6)), rng.standard_normal(6)
            np.testing.assert_allclose(
                sketch.leverage(X), np.einsum("ij,jk,ik->i", X, np.linalg.inv(V), X)
            )
            np.testing.assert_allclose(sketch.w, np.linalg.solve(V, rows.T @ (weights * y)))
            np.testing.assert_allclose(sketch.power(x, -1), np.linalg.solve(V, x))
            length, spread = mean_norm(sketch)
            expected = np.sqrt(sketch.w @ np.linalg.solve(V, sketch.w))
            assert length * spread == pytest.approx(expected)
            half = sketch.drawn(x)
            np.testing.assert_allclose(sketch.drawn(half), np.linalg.solve(V, x))


class TestSOFUL:
    @pytest.mark.parametrize("choice", ["ucb", "thompson"])
    def test_a_sketch_as_wide_as_the_arms_is_oful(self, choice):
        bandits = OFUL(ARMS, choice=choice, seed=1), SOFUL(ARMS, size=5, choice=choice, seed=1)
        pulls, rewards = played(bandits[0], 50)
        for arm, reward in zip(pulls, rewards, strict=True):
            bandits[1].observe(arm, reward)
        np.testing.assert_allclose(bandits[1].scores(), bandits[0].scores(), rtol=1e-8, atol=1e-9)
        assert bandits[1].evidence.eta == 0
        assert bandits[1].evidence.information == pytest.approx(bandits[0].evidence.information)
        if choice == "ucb":
            assert list(played(SOFUL(ARMS, size=5, seed=1), 50)[0]) == list(pulls)

    def test_arms_of_low_rank_lose_nothing(self):
        arms = ARMS[:, :2] @ np.random.default_rng(0).standard_normal((2, 9))
        bandit, oful = SOFUL(arms, size=2), OFUL(arms)
        pulls, rewards = played(oful, 30, theta=np.ones(9))
        bandit.observe(pulls, rewards)
        assert bandit.evidence.eta < 1e-9
        np.testing.assert_allclose(bandit.scores()[:2], oful.scores()[:2], rtol=1e-6, atol=1e-8)

    def test_the_weights_are_the_sketched_ones_with_the_whole_sum_of_rewards(self):
        bandit = SOFUL(ARMS, size=2, regularization=0.3)
        pulls, rewards = played(bandit, 30)
        sketch = bandit.belief.regression
        V = 0.3 * np.eye(5) + (sketch.directions.T * sketch.values) @ sketch.directions
        np.testing.assert_allclose(
            bandit.scores().mean, ARMS @ np.linalg.solve(V, ARMS[pulls].T @ rewards)
        )
        exact = dense(ARMS, pulls, rewards, 0.3, ARMS)[2]
        assert np.linalg.slogdet(exact / 0.3)[1] <= bandit.evidence.information
        assert np.linalg.eigvalsh(exact - V).max() <= 0.3 * bandit.evidence.eta * (1 + 1e-9)

    def test_its_radius_holds_the_weights_where_the_sketch_is_poor(self):
        length, held = float(np.linalg.norm(THETA)), []
        for seed in range(30):
            bandit = SOFUL(
                ARMS,
                size=1,
                confidence=Sketched(norm=length, noise=0.1),
                regularization=0.3,
                noise=0.1,
                seed=seed,
            )
            played(bandit, 40, seed=seed)
            mean, variance, _ = bandit.scores()
            held.append((np.abs(mean - ARMS @ THETA) <= bandit.beta * np.sqrt(variance)).all())
        assert bandit.evidence.eta > 1
        assert sum(held) >= 27  # δ = 0.1

    def test_its_radius_is_for_it_alone(self):
        with pytest.raises(ParameterError, match="SOFUL only"):
            _ = OFUL(ARMS, confidence=Sketched(1.0, 0.1)).beta
        with pytest.raises(ParameterError):
            Sketched(norm=-1.0, noise=0.1)


class TestQuadrature:
    @pytest.mark.parametrize("n", [1, 2, 5, 12, 20])
    def test_polynomials_up_to_degree_2n_minus_1_are_exact(self, n):
        nodes, weights = quadrature(n)
        for degree in range(2 * n):
            moment = (
                0.0 if degree % 2 else float(factorial2(max(degree - 1, 1), exact=True))
            )  # E ω^p = (p − 1)!!
            scale = np.abs(nodes**degree) @ weights
            assert nodes**degree @ weights == pytest.approx(moment, abs=1e-10 * max(1.0, scale))
        missed = float(factorial2(2 * n - 1, exact=True)) - nodes ** (2 * n) @ weights
        assert missed == pytest.approx(
            float(np.prod(np.arange(1.0, n + 1))), rel=1e-6
        )  # n!: the next one is not

    def test_the_kernel_error_on_the_unit_cube_decays_exponentially(self):
        X = np.random.default_rng(0).random((60, 2))
        X[:4] = [[0, 0], [1, 1], [0, 1], [1, 0]]
        errors = []
        for n in (4, 6, 8, 10):
            F = features_of(QFF(X, RBF(0.4), nodes=n), X)
            assert F.shape == (60, n**2)
            errors.append(np.abs(F @ F.T - RBF(0.4)(X, X)).max())
        assert (np.diff(np.log(errors)) < np.log(0.2)).all()
        assert errors[-1] < 2e-4

    def test_half_of_the_grid_carries_all_of_it(self):
        frequencies, weights = grid([3, 4, 5])
        assert frequencies.shape == (30, 3)
        assert weights.sum() == pytest.approx(1.0)
        axes = [quadrature(n) for n in (3, 4, 5)]
        delta = np.array([0.3, -0.7, 0.2])
        product = np.prod(
            [np.cos(nodes * d) @ p for (nodes, p), d in zip(axes, delta, strict=True)]
        )
        assert weights @ np.cos(frequencies @ delta) == pytest.approx(product)
        assert (
            np.linalg.norm(grid([3, 3])[0], axis=1).min() == 0
        )  # an odd grid has its middle, once
        assert features_of(QFF(ARMS[:, :2], RBF(1.0), nodes=3), ARMS[:, :2]).shape[1] == 9

    @pytest.mark.parametrize("span", [0.0, 0.5, 3.0, 14.0])
    def test_default_nodes_are_enough_and_not_many_more(self, span):
        n = nodes_for(span)
        assert kernel_error(n, span) <= ACCURACY
        assert n == 1 or kernel_error(n - 1 - n // 40, span) > ACCURACY
        lags = np.linspace(0, span, 1001)
        nodes, weights = quadrature(n)
        assert (
            np.abs(np.cos(np.outer(lags, nodes)) @ weights - np.exp(-(lags**2) / 2)).max()
            <= 1.01 * ACCURACY
        )

    def test_too_many_features_are_a_typed_error(self):
        assert nodes_for(1e9) > MOST_FEATURES
        with pytest.raises(ParameterError, match="additive"):
            QFF(ARMS, RBF(0.2))
        with pytest.raises(ParameterError, match="at most 4096"):
            QFF(ARMS, RBF(5.0), nodes=8)
        with pytest.raises(ParameterError):
            QFF(ARMS, RBF(5.0), nodes=0)


class TestFourier:
    ADDITIVE = 2.0 * On(RBF([0.8, 1.1]), 0, 2) + On(0.5 * On(RBF(0.9), 1, 2), 2, 5)

    def test_additive_kernels_have_few_features(self):
        F = features_of(QFF(ARMS, self.ADDITIVE), ARMS)
        assert F.shape[1] < 400
        np.testing.assert_allclose(F @ F.T, self.ADDITIVE(ARMS, ARMS), atol=1e-3)

    @pytest.mark.parametrize(
        "kernel", [RBF(1.0), Matern(1.0, 0.5), Matern(1.0, 1.5), Matern(1.0, 2.5)]
    )
    def test_random_frequencies_have_the_spectral_density(self, kernel):
        lags = np.outer(np.linspace(0.0, 3.0, 10), [0.6, 0.8])
        waves = np.cos(draw(kernel, (20_000, 2), np.random.default_rng(5)) @ lags.T)
        np.testing.assert_allclose(
            waves.mean(axis=0), kernel(lags, np.zeros((1, 2)))[:, 0], atol=4 / np.sqrt(20_000)
        )

    def test_random_features_have_the_kernel_on_average(self):
        kernel = self.ADDITIVE + Matern([0.5, 0.7, 1.0, 1.0, 1.0], 1.5)
        F = features_of(RFF(ARMS[:12], kernel, frequencies=100, seed=5), ARMS[:12])
        assert F.shape == (12, 600)
        np.testing.assert_allclose(
            F @ F.T, kernel(ARMS[:12], ARMS[:12]), atol=3.5 * 4 / np.sqrt(100)
        )
        np.testing.assert_allclose(np.square(F).sum(axis=1), kernel.diag(ARMS[:12]))

    def test_features_that_do_not_fit_into_memory_are_refused_before_they_are_made(self):
        """8·m² of 200 million features is more than any machine has."""
        with pytest.raises(MemoryBudgetError, match=r"200,000,000 features of 12 arms .* use BKB"):
            RFF(ARMS[:12], RBF(1.0), frequencies=10**8)
        # 5·8·200² bytes of the factor and 2.5·8·12·200 of the features.
        needed = 5 * 8 * 200**2 + 2.5 * 8 * 12 * 200
        fourier.check_memory(n_arms=12, m=200, allowed=needed + 1.0)
        with pytest.raises(MemoryBudgetError, match="fewer features"):
            fourier.check_memory(n_arms=12, m=200, allowed=needed - 1.0)

        class Endless(np.ndarray):
            def __len__(self):
                return 10**12

        arms = Arms(ARMS[:, :2].view(Endless), np.ones(60))
        with pytest.raises(MemoryBudgetError):
            fourier.quadrature_waves(8, RBF(5.0), arms, 0.1, RNG)

    def test_an_arm_has_the_same_features_alone_and_among_others(self):
        policy = RFF(ARMS, RBF(1.0), frequencies=70)
        together = features_of(policy, ARMS)
        for i in (0, 7, 59):
            np.testing.assert_array_equal(features_of(policy, ARMS[i : i + 1])[0], together[i])

    @pytest.mark.parametrize("kernel", [Linear(), RBF(1.0) * RBF(2.0), lambda X, Y: X @ Y.T])
    def test_other_kernels_are_typed_errors(self, kernel):
        for policy in (RFF, QFF):
            with pytest.raises(KernelError):
                policy(ARMS, kernel)
        with pytest.raises(KernelError, match="RBF kernels"):
            QFF(ARMS, Matern(1.0))

    def test_many_nodes_are_gpucb(self):
        arms = np.random.default_rng(0).random((50, 1))
        f = np.sin(6 * arms[:, 0])
        qff, gpucb = QFF(arms, RBF(0.3), nodes=40, seed=1), ma.GPUCB(arms, RBF(0.3), seed=1)
        assert list(play(qff, lambda a: f[a], 25)) == list(play(gpucb, lambda a: f[a], 25))
        np.testing.assert_allclose(qff.scores()[:2], gpucb.scores()[:2], rtol=1e-4, atol=1e-6)

    def test_random_features_starve_where_quadrature_does_not(self):
        """The paper's Figure 1: k = exp(−100(x − y)²), data on [0, 0.5], looked at from 0.9."""
        kernel, arms = RBF(np.sqrt(0.005)), np.linspace(0, 0.5, 400)[:, None]
        rows, sds = np.append(arms, [[0.9], [1.0]], axis=0), {}
        for D in (3, 10, 100):
            policies = [RFF(rows, kernel, frequencies=D, seed=seed) for seed in range(9)]
            sds[D] = np.median([self.away(policy) for policy in policies])
        assert sds[3] < 0.15 < 0.5 < sds[10] < 0.9 < sds[100]
        assert self.away(QFF(rows, kernel)) > 0.99
        assert self.away(ma.GPUCB(rows, kernel)) > 0.99

    def away(self, policy):
        policy.observe(np.arange(400), np.sin(20 * policy.arms[:400, 0]))
        return float(policy.predict([[0.9]]).std[0])
