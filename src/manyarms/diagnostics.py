"""The paper's quantities, measured: effective dimension, information gain, Theorem 1's sandwich and size, Theorem 2's regret.

Exact ones factor a u×u matrix for u distinct pulled arms: they are for tests, reports and small runs.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from manyarms.arms import as_rows
from manyarms.domains import DomainBKB
from manyarms.errors import ParameterError, StateError
from manyarms.kernels import as_kernel
from manyarms.numbers import real, whole
from manyarms.policies import BKB
from manyarms.sketch.confidence import Theory
from manyarms.sketch.dictionary import alpha_of, check_probability
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.observations import Observations
from manyarms.typing import Array, ArrayLike

__all__ = [
    "Sandwich",
    "SketchAccuracy",
    "cumulative_regret",
    "dictionary_size_bound",
    "effective_dimension",
    "information_gain",
    "random_iterate_regret",
    "regret_bound",
    "sandwich",
    "simple_regret",
    "sketch_accuracy",
]


LARGE = 5000
"""Pulled arms above which no u×u matrix is made."""


class Sandwich(NamedTuple):
    """Smallest and largest σ̃²/σ² over all arms with σ² > 0."""

    low: float
    high: float

    def holds(self, epsilon: float) -> bool:
        """Theorem 1: σ²/α ≤ σ̃² ≤ ασ², α = (1 + ε)/(1 − ε)."""
        check_probability("epsilon", epsilon)
        alpha = alpha_of(epsilon)
        return 1 / alpha <= self.low and self.high <= alpha


class SketchAccuracy(NamedTuple):
    """η = λ_max(N^½(K_UU − Z_U Z_Uᵀ)N^½)/λ and what follows from it, whatever the dictionary.

    eta_bound is Σ_u n_u r_u/λ ≥ η, which needs no u×u matrix and stands for η above 5,000 arms and after a warm start;
    theta = (η + √(η² + 4η))/2 bounds every variance: σ²/(1 + θ) ≤ σ̃² ≤ (1 + θ)σ².
    """

    eta: float
    eta_bound: float
    theta: float


def effective_dimension(X: ArrayLike, kernel: Any, regularization: float, counts: ArrayLike | None = None) -> float:
    """d_eff = Tr K(K + λI)⁻¹ of rows X, each pulled `counts` times (once by default). `policy.effective_dimension` estimates
    it from the sketch."""
    e = _spectrum(X, kernel, counts)
    return float(np.sum(e / (e + _variance(regularization))))


def information_gain(X: ArrayLike, kernel: Any, regularization: float, counts: ArrayLike | None = None) -> float:
    """½ log det(K/λ + I) of rows X, each pulled `counts` times (once by default): γ_T is its maximum over X."""
    return float(0.5 * np.log1p(_spectrum(X, kernel, counts) / _variance(regularization)).sum())


def sandwich(policy: BKB) -> Sandwich:
    """How far the sketched variances are from the exact ones, over all arms, now."""
    exact, sketched = ExactPosterior.fit(policy.kernel, _observations(policy), policy.regularization), policy.scores().variance
    _, variance = exact.moments(policy.arms, policy._diag)
    positive = variance > 0
    if not positive.any():
        return Sandwich(1.0, 1.0)
    ratio = sketched[positive] / variance[positive]
    return Sandwich(float(ratio.min()), float(ratio.max()))


def sketch_accuracy(policy: BKB | DomainBKB) -> SketchAccuracy:
    """The accuracy of the sketch on the data seen, without Theorem 1's ε: a certificate for any q̄."""
    if isinstance(policy, DomainBKB):
        rows, counts, posterior, past = policy.rows, policy.counts, policy.posterior, None
        diag = policy.kernel.diag(rows)
    else:
        (rows, diag, counts, _), posterior, past = _observations(policy), policy._fitted(), policy._past
    if isinstance(posterior, ExactPosterior):
        return SketchAccuracy(0.0, 0.0, 0.0)
    Z, r = posterior.embedding(rows, diag)
    bound = float(counts @ r) / policy.regularization + (past.residual if past else 0.0)
    if past or len(rows) > LARGE:
        return SketchAccuracy(bound, bound, _theta(bound))
    error = (policy.kernel(rows, rows) - Z @ Z.T) * np.sqrt(np.outer(counts, counts)) / policy.regularization
    eta = max(0.0, float(eigh(error, eigvals_only=True, subset_by_index=[len(rows) - 1, len(rows) - 1])[0]))
    return SketchAccuracy(eta, bound, _theta(eta))


def _theta(eta: float) -> float:
    return float((eta + np.sqrt(eta**2 + 4 * eta)) / 2)


def dictionary_size_bound(
    epsilon: float, oversampling: float, effective_dimension: float, kappa2: float, regularization: float
) -> float:
    """Theorem 1: |S_t| ≤ 3(1 + κ²/λ) α q̄ d_eff, κ² a bound on k(x, x)."""
    check_probability("epsilon", epsilon)
    real(oversampling, "oversampling", "positive", above=0)
    real(effective_dimension, "effective_dimension", "non-negative", at_least=0)
    kappa2, regularization = _kappa2(kappa2), _variance(regularization)
    return 3 * (1 + kappa2 / regularization) * alpha_of(epsilon) * oversampling * effective_dimension


def regret_bound(theory: Theory, horizon: int, effective_dimension: float, kappa2: float, regularization: float) -> float:
    """Theorem 2: a bound on R_T for BKB with this radius, q̄ = oversampling_for(ε, δ/2, T) and d_eff of the arms it pulled.

        R_T ≤ 2β_T √(α T · κ²/λ / ln(1 + κ²/λ) · ℓ d_eff),   ℓ = 1 + ln(1 + κ²T/λ),
        β_T = ξ√(2[α²ℓ d_eff + ln 2/δ]) + (1 + 1/√(1−ε)) √λF

    from r_{t+1} ≤ 2β̃_tσ̃_t(x_{t+1}), Cauchy–Schwarz, σ̃² ≤ ασ² and d̃ ≤ αd_eff. The paper sums the variances *after* each pull;
    the factor x/ln(1 + x), x = κ²/λ, is what summing those before it costs.
    """
    if not isinstance(theory, Theory) or theory.double:
        raise ParameterError(f"theory must be a Theory radius with a norm that is known, got {theory!r}")
    whole(horizon, "horizon")
    real(effective_dimension, "effective_dimension", "non-negative", at_least=0)
    kappa2, regularization = _kappa2(kappa2), _variance(regularization)
    ratio = kappa2 / regularization
    log_det = (1 + np.log1p(ratio * horizon)) * effective_dimension
    deviation = theory.noise * np.sqrt(2 * (theory.alpha**2 * log_det + np.log(2 / theory.delta)))
    beta = deviation + (1 + 1 / np.sqrt(1 - theory.epsilon)) * np.sqrt(regularization) * theory.norm
    return float(2 * beta * np.sqrt(theory.alpha * horizon * ratio / np.log1p(ratio) * log_det))


def cumulative_regret(values: ArrayLike, optimum: float) -> Array:
    """R_t = Σ_{s≤t} f(x⋆) − f(x_s) for every t, from the noise-free values f(x_s) of the arms pulled, (T,)."""
    return np.asarray(np.cumsum(optimum - np.asarray(values, dtype=np.float64)))


def simple_regret(values: ArrayLike, optimum: float) -> Array:
    """f(x⋆) − max_{s≤t} f(x_s) for every t, (T,)."""
    return optimum - np.maximum.accumulate(np.asarray(values, dtype=np.float64))


def random_iterate_regret(values: ArrayLike, optimum: float) -> Array:
    """f(x⋆) − E f(x̄_t) = R_t/t for x̄_t drawn uniformly from the arms pulled up to t, for every t, (T,)."""
    regret = cumulative_regret(values, optimum)
    return regret / np.arange(1, len(regret) + 1)


def _variance(regularization: Any) -> float:
    return real(regularization, "regularization", "a positive variance", above=0)


def _kappa2(value: Any) -> float:
    return real(value, "kappa2", "a positive bound on k(x, x)", above=0)


def _observations(policy: BKB) -> Observations:
    if not isinstance(policy, BKB):
        raise ParameterError(f"only BKB has a sketch to diagnose, got {policy!r}")
    if not policy._state.history.n_observations:
        raise StateError("no arm was observed yet: call observe() first")
    return policy._observations(policy._state.history)


def _spectrum(X: ArrayLike, kernel: Any, counts: ArrayLike | None) -> Array:
    """Eigenvalues of N^½KN^½, which are those of the t×t matrix K up to zeros."""
    rows = as_rows(X)
    n = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    if n.shape != (len(rows),) or not (np.isfinite(n) & (n >= 0)).all():
        raise ParameterError(f"counts must be non-negative, one for each of the {len(rows)} rows; got {counts!r}")
    K = as_kernel(kernel)(rows, rows) * np.sqrt(np.outer(n, n))
    return np.asarray(np.maximum(eigh(K, eigvals_only=True), 0.0))
