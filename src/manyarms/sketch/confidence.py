"""The radius β̃ of the scores μ̃ + β̃σ̃: Theorem 2, its log-determinant form, and the choices made in practice.

A radius is a function of the evidence so far. σ̃ is in leverage units (the standard deviation of f is √λσ̃), hence the √λ.
Any function ``Evidence -> float`` is a radius too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from manyarms.errors import ParameterError
from manyarms.numbers import real, whole
from manyarms.sketch.dictionary import alpha_of, check_probability


@dataclass(frozen=True)
class Evidence:
    """What a radius may depend on, after t observations."""

    n_arms: float  # ∞ where arms are not counted: a box
    regularization: float  # λ
    exact: bool  # the posterior is the exact one: α = 1 and no bias from a sketch
    norm: float | None = None  # the current guess of ‖f‖, where it is doubled
    n_observations: int = 0
    trace: float = 0.0  # Tr K_t/λ = Σ_u n_u k(u, u)/λ
    effective_dimension: float = 0.0  # d̃ = Σ_u n_u σ̃²(u)
    information: float = 0.0  # Σ_s ln(1 + ασ̃²(x_s)), each variance as before x_s was observed; ≥ log det(K_t/λ + I)
    mean_norm: float = 0.0  # ‖μ̃_t‖ in the RKHS
    mean_spread: float | None = None  # σ̃ of ⟨f, μ̃_t/‖μ̃_t‖⟩, a unit direction: at most 1/√λ, which None stands for
    staleness: float = 1.0  # c_t = 1 + Σσ̃²_τ(x_s) over the pulls since the dictionary was drawn at τ


Radius = Callable[[Evidence], float]


@dataclass(frozen=True)
class TheoremTwo:
    """What `Theory` and `LogDet` share: ξ√(L_t + 2 ln 1/δ′) + (1 + √(1/(1−ε) + c_t − 1)) √λF, L_t ≥ log det(K_t/λ + I).

    c_t = 1 where the dictionary is drawn at every step; one drawn at τ < t has c_t = 1 + Σσ̃²_τ(x_s) over the pulls since.

    Contains f for all arms and all steps with probability 1 − δ when ‖f‖ ≤ F = ``norm`` and the noise is ξ-sub-Gaussian,
    ξ = ``noise``. A sketch spends δ/2 on Theorem 1 (``oversampling_for(epsilon, delta / 2, horizon)``) and δ′ = δ/2 here; the
    exact posterior has ε = 0, one √λF, and δ′ = δ.

    Infinite sets of arms take Chowdhury and Gopalan's (ICML 2017, Theorem 2) constants, and with them a ``horizon`` T:
    ξ√((1 + 2/T)(L_t + 2 + 2 ln 1/δ′)), for all x and all t ≤ T. (Theirs is for λ = 1 + 2/T; scaling the kernel gives any λ.)

    With ``double=True`` the norm is a first guess, doubled whenever the data refute it: when the theorem rules out what is
    seen for a true bound (`updated_norm`). A guess that is too small but never refuted is not covered by the theorem.
    """

    norm: float
    noise: float
    epsilon: float = 0.5
    delta: float = 0.1
    double: bool = False
    horizon: int | None = None

    def __post_init__(self) -> None:
        if self.horizon is not None:
            whole(self.horizon, "horizon")
        real(self.norm, "norm", "a positive bound on the RKHS norm of f", above=0)
        real(self.noise, "noise", "a non-negative standard deviation", at_least=0)
        check_probability("epsilon", self.epsilon)
        check_probability("delta", self.delta)

    @property
    def alpha(self) -> float:
        """α = (1 + ε)/(1 − ε)."""
        return alpha_of(self.epsilon)

    def _radius(self, evidence: Evidence, log_det: float) -> float:
        bias = 1.0 if evidence.exact else 1 + np.sqrt(1 / (1 - self.epsilon) + evidence.staleness - 1)
        delta = self.delta if evidence.exact else self.delta / 2
        norm = self.norm if evidence.norm is None else evidence.norm
        if evidence.n_arms < np.inf:
            deviation = self.noise * np.sqrt(log_det - 2 * np.log(delta))
        elif self.horizon is None or evidence.n_observations > self.horizon:
            raise ParameterError(
                f"over an infinite set of arms {type(self).__name__} holds for a horizon that is given beforehand: pass "
                f"horizon=, at least the {evidence.n_observations} observations there are, got {self.horizon}"
            )
        else:
            deviation = self.noise * np.sqrt((1 + 2 / self.horizon) * (log_det + 2 - 2 * np.log(delta)))
        return float(deviation + bias * np.sqrt(evidence.regularization) * norm)


class Theory(TheoremTwo):
    """Theorem 2: ξ√(2[αc_t(1 + ln(1 + Tr K_t/λ)) d̃_t + ln 1/δ′]) + (1 + √(1/(1−ε) + c_t − 1)) √λF.

    The factor 1 + ln(1 + Tr K_t/λ) replaces the paper's 2 ln(κ²t), which fails for small κ²t.
    Parameters and promise: `TheoremTwo`.
    """

    def __call__(self, evidence: Evidence) -> float:
        alpha = 1.0 if evidence.exact else self.alpha * evidence.staleness
        return self._radius(evidence, 2 * alpha * (1 + np.log1p(evidence.trace)) * evidence.effective_dimension)


class LogDet(TheoremTwo):
    """Theorem 2 before its last step: ξ√(Σ_s ln(1 + ασ̃²_τ(x_s)) + 2 ln 1/δ′) + (1 + √(1/(1−ε) + c_t − 1)) √λF.

    The sum bounds log det(K_t/λ + I) by the chain rule, for O(1) a step, and is smaller than what `Theory` bounds it by.
    Parameters and promise: `TheoremTwo`.
    """

    def __call__(self, evidence: Evidence) -> float:
        return self._radius(evidence, evidence.information)


@dataclass(frozen=True)
class Bayes:
    """√λ·√(2 ln(A t² π²/6δ)): f drawn from the GP itself (Srinivas et al. 2010, Theorem 1), A arms, t observations."""

    delta: float = 0.1

    def __post_init__(self) -> None:
        check_probability("delta", self.delta)

    def __call__(self, evidence: Evidence) -> float:
        if evidence.n_arms == np.inf:
            raise ParameterError("Bayes is a bound over finitely many arms; over a box use LogDet, Constant or Growing")
        t = max(1, evidence.n_observations)
        union = np.log(evidence.n_arms) + 2 * np.log(t) + np.log(np.pi**2 / (6 * self.delta))
        return float(np.sqrt(evidence.regularization * 2 * union))


@dataclass(frozen=True)
class Constant:
    """c√λ: c posterior standard deviations of f. What practitioners use; no promise holds over many arms at once."""

    c: float = 2.0

    def __post_init__(self) -> None:
        real(self.c, "c", "a non-negative number of standard deviations", at_least=0)

    def __call__(self, evidence: Evidence) -> float:
        return float(self.c * np.sqrt(evidence.regularization))


@dataclass(frozen=True)
class Growing:
    """c√(λ ln(1 + t)), or `most`√λ once that is less: like `Constant`, but more is explored the longer the run.

    Of the order theory asks for where `most` is infinite; c comes with no promise.
    """

    c: float = 1.3
    most: float = np.inf

    def __post_init__(self) -> None:
        real(self.c, "c", "a non-negative number of standard deviations", at_least=0)
        if not isinstance(self.most, Real) or not self.most >= 0:
            raise ParameterError(f"most must be a non-negative number of standard deviations, or infinity, got {self.most!r}")

    def __call__(self, evidence: Evidence) -> float:
        grown = self.c * np.sqrt(np.log1p(max(1, evidence.n_observations)))
        return float(np.sqrt(evidence.regularization) * min(grown, self.most))


def updated_norm(radius: Radius, evidence: Evidence) -> float | None:
    """The guess of ‖f‖ after this evidence: doubled until ‖μ̃_t‖ ≤ F + β̃_t(F)σ̃(g), g = μ̃_t/‖μ̃_t‖. None where nothing is doubled.

    Inside the confidence set, ‖f − μ̃_t‖ ≤ β̃_t in the norm of V, F ≥ ⟨f, g⟩ ≥ ‖μ̃_t‖ − β̃_tσ̃(g): a guess that breaks it is
    refuted by the data. The σ̃ of a unit direction is at most 1/√λ, and far less where much was observed.
    """
    if evidence.norm is None:
        return None
    norm, spread = evidence.norm, evidence.mean_spread
    if spread is None:
        spread = 1 / np.sqrt(evidence.regularization)
    while evidence.mean_norm > norm + radius(replace(evidence, norm=norm)) * spread:
        norm *= 2
    return norm


def first_norm(radius: Radius) -> float | None:
    """The first guess of ‖f‖ of a radius that doubles it, else None."""
    return radius.norm if isinstance(radius, TheoremTwo) and radius.double else None


def alpha_in(radius: Radius) -> float:
    """The α that `Evidence.information` carries for this radius."""
    return radius.alpha if isinstance(radius, TheoremTwo) else 1.0
