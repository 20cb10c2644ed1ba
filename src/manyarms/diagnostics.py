"""The paper's quantities, measured.

Effective dimension, information gain, Theorem 1's sandwich and size, Theorem 2's regret.
Exact ones factor a u×u matrix for u distinct pulled arms: they are for tests, reports and small
runs.
"""

from typing import Any, NamedTuple

import numpy as np

from manyarms.bandit.policy import Learner, Policy
from manyarms.checks import as_rows, flat, probability, real, whole
from manyarms.engine.confidence import Evidence, Theory
from manyarms.engine.dictionary import alpha_of
from manyarms.engine.exact import ExactPosterior
from manyarms.engine.frozen import Frozen
from manyarms.engine.history import by_arm
from manyarms.engine.sampled import Drawn
from manyarms.errors import NumericalError, ParameterError, StateError, shortened
from manyarms.kernels import as_kernel
from manyarms.lapack import in_one_thread, linalg
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


class Sandwich(NamedTuple):
    """Smallest and largest σ̃²/σ² over all arms with σ² > 0.

    Attributes
    ----------
    low, high : float
        The two ratios.
    """

    low: float
    high: float

    def holds(self, epsilon: float) -> bool:
        """Theorem 1: σ²/α ≤ σ̃² ≤ ασ², α = (1 + ε)/(1 − ε)."""
        probability("epsilon", epsilon)
        alpha = alpha_of(epsilon)
        return 1 / alpha <= self.low and self.high <= alpha


class SketchAccuracy(NamedTuple):
    """η = λ_max(RᵀR)/λ, R what the sketch leaves out of the rows observed; what follows from it.

    Attributes
    ----------
    eta : float
        A bound on η (η itself where a dictionary is drawn and at most 500 rows are outside it).
    eta_bound : float
        e = Σ ωr/λ ≥ η.
    theta : float
        θ = (η + √(η² + 4η))/2, which bounds every variance: σ²/(1 + θ) ≤ σ̃² ≤ (1 + θ)σ².
    """

    eta: float
    eta_bound: float
    theta: float


@in_one_thread
def effective_dimension(
    X: ArrayLike, kernel: Any, regularization: float, counts: ArrayLike | None = None
) -> float:
    """d_eff = Tr K(K + λI)⁻¹ of rows, exactly.

    `policy.effective_dimension` estimates it from the sketch.

    Parameters
    ----------
    X : array_like, (u, d)
        Rows.
    kernel : Kernel
        k.
    regularization : float
        λ.
    counts : array_like, (u,), optional
        How often each was pulled; once by default.

    Returns
    -------
    float
        d_eff.
    """
    e = _spectrum(X, kernel, counts)
    return float(np.sum(e / (e + _variance(regularization))))  # Eq. 5


@in_one_thread
def information_gain(
    X: ArrayLike, kernel: Any, regularization: float, counts: ArrayLike | None = None
) -> float:
    """½ log det(K/λ + I) of rows: γ_T is its maximum over all sets of T rows.

    Parameters
    ----------
    X : array_like, (u, d)
        Rows.
    kernel : Kernel
        k.
    regularization : float
        λ.
    counts : array_like, (u,), optional
        How often each was pulled; once by default.

    Returns
    -------
    float
        The information gain.
    """
    # det(K/λ + I) is the product of 1 + e_i/λ over the eigenvalues.
    return float(0.5 * np.log1p(_spectrum(X, kernel, counts) / _variance(regularization)).sum())


@in_one_thread
def sandwich(policy: Policy) -> Sandwich:
    """How far the sketched variances of all arms are from the exact ones, given all observed.

    Parameters
    ----------
    policy : Policy
        One with a table, that has observed something.

    Returns
    -------
    Sandwich
        The smallest and the largest ratio.
    """
    seen = _observations(policy)
    exact = ExactPosterior.fit(policy.kernel, *seen, policy.regularization)
    sketched = policy.scores().variance
    _, variance = exact.moments(policy.arms, policy.kernel.diag(policy.arms))
    # Where k(x, x) = 0 both variances are 0, and have no ratio.
    positive = variance > 0
    if not positive.any():
        return Sandwich(1.0, 1.0)  # k(x, x) = 0 everywhere: nothing to compare
    ratio = sketched[positive] / variance[positive]
    return Sandwich(float(ratio.min()), float(ratio.max()))


def sketch_accuracy(policy: Learner) -> SketchAccuracy:
    """The accuracy of the sketch on the data seen, without Theorem 1's ε: for every rule.

    Parameters
    ----------
    policy : Policy or DomainBKB
        One with a sketch, that has observed something.

    Returns
    -------
    SketchAccuracy
        Bounds on η and on every variance.

    Raises
    ------
    ParameterError
        The posterior is exact, or nothing is known of its sketch.
    """
    evidence = _evidence(policy)
    if evidence.guarantee == "exact":  # η = 0 would be true, and say nothing
        raise ParameterError(f"only a sketch has an accuracy, the posterior of {policy!r} is exact")
    # Where observations fade statement 1 holds all the same: it is for any weights.
    if evidence.guarantee == "none" and not isinstance(getattr(policy, "belief", None), Frozen):
        raise ParameterError(f"how accurate the sketch of {policy!r} is, is not known")
    if not evidence.n_observations:
        raise StateError("no arm was observed yet: call observe() first")
    # By η, which is at most e: the bound by e holds as well, and is wider.
    eta = evidence.eta
    return SketchAccuracy(eta, evidence.left_out, _theta(eta))


def _theta(eta: float) -> float:
    return float((eta + np.sqrt(eta**2 + 4 * eta)) / 2)  # statement 1 of docs/theory.md


def dictionary_size_bound(
    epsilon: float,
    oversampling: float,
    effective_dimension: float,
    kappa2: float,
    regularization: float,
) -> float:
    """Theorem 1: |S_t| ≤ 3(1 + κ²/λ) α q̄ d_eff.

    Parameters
    ----------
    epsilon : float
        ε, of which α = (1 + ε)/(1 − ε).
    oversampling : float
        q̄.
    effective_dimension : float
        d_eff.
    kappa2 : float
        κ², a bound on k(x, x).
    regularization : float
        λ.

    Returns
    -------
    float
        The bound on the number of rows of S.
    """
    probability("epsilon", epsilon)
    real(oversampling, "oversampling", "positive", above=0)
    real(effective_dimension, "effective_dimension", "non-negative", at_least=0)
    ratio = _kappa2(kappa2) / _variance(regularization)
    return 3 * (1 + ratio) * alpha_of(epsilon) * oversampling * effective_dimension


def regret_bound(
    theory: Theory, horizon: int, effective_dimension: float, kappa2: float, regularization: float
) -> float:
    """Theorem 2: a bound on R_T for BKB with this radius, and on 2Σβ̃_tσ̃_t(x_{t+1}).

        R_T ≤ 2κF + 2β_T √(α T · x/ln(1 + x) · ℓ d_eff),   x = κ²/λ,   ℓ = 1 + ln(1 + xT),
        β_T = ξ√(α² ℓ d_eff + 2 ln 2/δ) + (1 + 1/√(1−ε)) √λF.

    It holds for one arm a step, noise that is not told, and ``rule=Sampled(oversampling_for(ε, δ/2,
    T))``, with probability 1 − δ. d_eff is that of the arms pulled. Step by step:

    1. r_{t+1} ≤ 2β̃_tσ̃_t(x_{t+1}) while f is inside the intervals. The first arm is drawn at
       random, not chosen, and costs at most 2 max|f| ≤ 2κF.
    2. β̃_t ≤ β_T: Tr K_t ≤ κ²T and d̃_t ≤ α·d_eff, which grows with t.
    3. Σσ̃_t(x_{t+1}) ≤ √(T Σσ̃²_t(x_{t+1})) by Cauchy and Schwarz.
    4. σ̃²_t ≤ ασ²_t by Theorem 1.
    5. Σσ²_t(x_{t+1}) ≤ x/ln(1 + x) · log det(K_T/λ + I). These are variances *before* each pull, at
       most x, and ln(1 + σ²_t(x_{t+1})) add up to the log-determinant. The paper sums variances
       after each pull, which needs no such factor.
    6. log det(K_T/λ + I) ≤ ℓ d_eff: the paper's Eq. 6.

    Parameters
    ----------
    theory : Theory
        The radius; its norm is known, not guessed.
    horizon : int
        T.
    effective_dimension : float
        d_eff of the arms pulled.
    kappa2 : float
        κ², a bound on k(x, x).
    regularization : float
        λ.

    Returns
    -------
    float
        The bound on R_T.
    """
    if not isinstance(theory, Theory) or theory.double:
        raise ParameterError(
            f"theory must be a Theory radius with a norm that is known, got {shortened(theory)}"
        )
    whole(horizon, "horizon", at_most=10**18)
    real(effective_dimension, "effective_dimension", "non-negative", at_least=0)
    kappa2 = _kappa2(kappa2)
    regularization = _variance(regularization)
    ratio = kappa2 / regularization

    # Step 2, by the radius itself. It bounds log det by α(1 + ln(1 + trace)) times d̃.
    largest = Evidence(
        regularization,
        theory.noise,
        "resampled",
        trace=ratio * horizon,
        dimension=lambda: theory.alpha * effective_dimension,
    )
    beta = theory(largest)

    log_det = (1 + np.log1p(ratio * horizon)) * effective_dimension  # step 6
    exact_variances = ratio / np.log1p(ratio) * log_det  # step 5
    first = 2 * np.sqrt(kappa2) * theory.norm  # step 1
    # Steps 3 and 4 make the root.
    return float(first + 2 * beta * np.sqrt(horizon * theory.alpha * exact_variances))


def cumulative_regret(values: ArrayLike, optimum: float) -> Array:
    """R_t = Σ_{s≤t} f(x⋆) − f(x_s) for every t.

    Parameters
    ----------
    values : array_like, (T,)
        f(x_s) of the arms pulled, without noise.
    optimum : float
        f(x⋆).

    Returns
    -------
    ndarray, (T,)
        R_1, …, R_T.
    """
    return np.asarray(np.cumsum(_lacking(values, optimum)))


def simple_regret(values: ArrayLike, optimum: float) -> Array:
    """f(x⋆) − max_{s≤t} f(x_s) for every t.

    Parameters
    ----------
    values : array_like, (T,)
        f(x_s) of the arms pulled, without noise.
    optimum : float
        f(x⋆).

    Returns
    -------
    ndarray, (T,)
        What the best arm so far lacks.
    """
    return np.asarray(np.minimum.accumulate(_lacking(values, optimum)))


def random_iterate_regret(values: ArrayLike, optimum: float) -> Array:
    """f(x⋆) − E f(x̄_t) = R_t/t, x̄_t drawn uniformly from the arms pulled up to t.

    Parameters
    ----------
    values : array_like, (T,)
        f(x_s) of the arms pulled, without noise.
    optimum : float
        f(x⋆).

    Returns
    -------
    ndarray, (T,)
        R_t/t.
    """
    regret = cumulative_regret(values, optimum)
    return regret / np.arange(1, len(regret) + 1)


def _lacking(values: ArrayLike, optimum: float) -> Array:
    """What each arm pulled lacks, f(x⋆) − f(x_s)."""
    best = real(optimum, "optimum", "a finite number")
    return best - flat(values, "the values of the arms pulled").astype(np.float64)


def _variance(regularization: Any) -> float:
    return real(regularization, "regularization", "a positive variance", above=0)


def _kappa2(value: Any) -> float:
    return real(value, "kappa2", "a positive bound on k(x, x)", above=0)


def _observations(policy: Policy) -> tuple[Array, Array, Array]:
    """The rows (u, d) that a policy has observed, each once, with weight and reward sum (u,)."""
    evidence = _evidence(policy)
    if not evidence.n_observations:
        raise StateError("no arm was observed yet: call observe() first")
    if isinstance(policy.belief, Drawn):
        # Algorithm 1 draws from all rows observed, so it keeps them.
        seen = policy.belief.seen
        return seen.rows, seen.counts, seen.sums
    log = policy.log
    pulled, rewards, weights = by_arm(log.arms, log.rewards, log.weights)
    rows = policy.arms[pulled].astype(np.float64, copy=False)
    # The log has arms of the table only. Tr K_t/λ counts all rows: it tells if there were others.
    known = float(weights @ policy.kernel.diag(rows)) / policy.regularization
    if not np.isclose(known, evidence.trace, rtol=1e-6):
        raise StateError(
            "the policy has observed rows that were given by value, which it does not keep: the "
            "exact posterior of all it has observed is not known"
        )
    return rows, weights, weights * rewards


def _evidence(policy: Any) -> Evidence:
    found = getattr(policy, "evidence", None)
    if not isinstance(found, Evidence):
        raise ParameterError(
            f"policy must be one that has observed something, got {shortened(policy)}"
        )
    return found


def _spectrum(X: ArrayLike, kernel: Any, counts: ArrayLike | None) -> Array:
    """Eigenvalues of N^½KN^½, which are those of the t×t matrix K up to zeros."""
    rows = as_rows(X)
    n = np.ones(len(rows)) if counts is None else flat(counts, "counts")
    if n.shape != (len(rows),) or not (n >= 0).all():
        raise ParameterError(
            f"counts must be non-negative, one for each of the {len(rows)} rows; got "
            f"{shortened(counts)}"
        )
    # Pulls of one arm are equal rows of K: merged into one, they weigh by √n on each side.
    root = np.sqrt(n)
    K = root[:, None] * as_kernel(kernel)(rows, rows) * root
    if not np.isfinite(K).all():
        raise NumericalError("k(x, y) times the counts is beyond float64; rescale the rows")
    return np.asarray(np.maximum(linalg.eigh(K, eigvals_only=True), 0.0))  # rounding may leave −ε
