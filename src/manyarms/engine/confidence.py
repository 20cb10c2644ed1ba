"""The radius β̃ of the scores μ̃ + β̃σ̃: what is proved of frozen features, the paper's Theorem 2,
and the choices of practice.

A radius is a function of the evidence so far. σ̃ is in leverage units (the standard deviation of f
is √λσ̃), hence the √λ. Any function ``Evidence -> float`` is a radius too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import log, log1p, sqrt
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from manyarms.checks import probability, real, store
from manyarms.engine.dictionary import Draws, alpha_of
from manyarms.errors import ParameterError
from manyarms.lapack import in_one_thread

Posterior = Literal["exact", "certified", "resampled", "sketched", "none"]
"""What a belief knows of itself. It is the exact posterior; its features are frozen (statements 1
and 2 of docs/theory.md); it sees all rows through one dictionary that is drawn again (statements 1
and 6); it bounds V on both sides by frequent directions; or nothing is known."""
Guarantee = Posterior | Literal["theorem 1"]
"""The same of a policy, which has a radius: "theorem 1" where the dictionary was drawn as Theorem 1
asks for the ε and δ of that."""
POSTERIORS: dict[Posterior, str] = {
    "exact": "the exact posterior",
    "certified": "features that are frozen",
    "resampled": "a dictionary that is drawn again",
    "sketched": "a sketch by frequent directions",
    "none": "a sketch of which nothing is known",
}
"""The same in the words of messages."""
Proofs = Mapping[Posterior, str]
"""Why a radius holds, for each thing that may be known about the posterior."""
FROZEN = "features are frozen when seen, so the confidence bound of the sketch holds"
EXACT = "the posterior is exact, and its confidence bound holds at all steps at once"


def _nothing() -> float:
    """Nothing was observed."""
    return 0.0


def _zero() -> tuple[float, float]:
    """The mean is zero, and so is its deviation."""
    return 0.0, 0.0


@dataclass
class Evidence:
    """What a radius may depend on, after t observations.

    Numbers that cost more than O(1) are functions, called when a radius asks for them.
    """

    regularization: float  # λ
    noise: float  # ξ, for which an observation weighs ω = 1
    guarantee: Posterior
    n_arms: float = 1  # ∞ where arms are not counted: a box
    norm: float | None = None  # the current guess of ‖f‖, where it is doubled
    n_observations: int = 0
    trace: float = 0.0  # Tr K_t/λ = Σ ω k(x, x)/λ
    # ℓ = ln det(V/λ) of the features as they entered; of the exact posterior ln det(K_t/λ + I).
    log_det: float = 0.0
    left_out: float = 0.0  # e = Σ ω r/λ over the observations
    information: float = 0.0  # a bound on ln det(K_t/λ + I) that theorems of the paper use
    draws: Draws | None = None  # of a dictionary that is drawn as Theorem 1 says
    # η, the largest eigenvalue of what is left out, or a bound on it that is at most e.
    largest: Callable[[], float] = _nothing
    # ‖μ̃_t‖ in the RKHS, and σ̃ of ⟨f, μ̃_t/‖μ̃_t‖⟩; O(m²).
    mean: Callable[[], tuple[float, float]] = _zero
    dimension: Callable[[], float] = _nothing  # d̃ = Σ ω σ̃²(x_s); O(m³)

    @property
    def eta(self) -> float:
        """η, or a bound on it: how far the sketch is from the exact posterior on what was
        observed."""
        return self.largest()

    @property
    @in_one_thread
    def effective_dimension(self) -> float:
        """d̃, an estimate of Tr K(K + λI)⁻¹."""
        return self.dimension()

    def of(self, n_arms: float, norm: float | None) -> "Evidence":
        """The same of a policy with so many arms and such a guess."""
        # `dataclasses.replace` takes longer than a radius.
        other = object.__new__(Evidence)
        other.__dict__.update(self.__dict__, n_arms=n_arms, norm=norm)
        return other


Radius = Callable[[Evidence], float]


@runtime_checkable
class Promising(Protocol):
    """A radius that says when it holds."""

    def promised(self, evidence: Evidence) -> tuple[float | None, str]:
        """The probability that f is inside everywhere and what it rests on; or None and why."""


@dataclass(frozen=True)
class Promise:
    """What radii with a probability share: a bound on ‖f‖, the noise and δ.

    Parameters
    ----------
    norm : float
        F, a bound on the norm of f in the space of the kernel.
    noise : float
        ξ: the noise is ξ-sub-Gaussian, such as Gaussian of standard deviation ξ.
    delta : float
        δ, the probability that some interval misses f.
    double : bool
        The norm is a first guess, doubled whenever the data refute it (`updated_norm`). A guess
        that is too small but never refuted is not covered.
    """

    norm: float
    noise: float
    delta: float = 0.1
    double: bool = False
    proofs: ClassVar[Proofs] = {}

    def __post_init__(self) -> None:
        store(
            self,
            norm=real(self.norm, "norm", "a positive bound on the RKHS norm of f", above=0),
            noise=real(self.noise, "noise", "a non-negative standard deviation", at_least=0),
            delta=probability("delta", self.delta),
        )

    def promised(self, evidence: Evidence) -> tuple[float | None, str]:
        """The probability that f is inside everywhere and what it rests on; or None and why."""
        # A subclass computes something else: what is proved of its base says nothing of it.
        proofs: Proofs = vars(type(self)).get("proofs", {})
        if evidence.guarantee not in proofs:
            return None, self._unproved(evidence)
        if self.double:
            guess = (
                "the norm of f is a guess, and one that was never refuted may still be too small"
            )
            return None, guess
        conditions = f"if ‖f‖ ≤ {self.norm:g} and the noise is {self.noise:g}-sub-Gaussian"
        return 1 - self.delta, f"{proofs[evidence.guarantee]}, {conditions}"

    def _unproved(self, evidence: Evidence) -> str:
        return f"{type(self).__name__} is not proved for {POSTERIORS[evidence.guarantee]}"

    def check(self, evidence: Evidence, advice: str) -> None:
        """Raise ParameterError where the radius is not proved for such a posterior."""
        if evidence.guarantee not in self.proofs:
            raise ParameterError(f"{self._unproved(evidence)}: {advice}")

    def norm_in(self, evidence: Evidence) -> float:
        """F, or the guess of now."""
        return self.norm if evidence.norm is None else evidence.norm

    def deviation(self, information: float, delta: float) -> float:
        """ξ√(ℓ + 2 ln 1/δ): what the noise adds (Abbasi-Yadkori et al. 2011, Theorem 1)."""
        return self.noise * sqrt(information + 2 * log(1 / delta))


@dataclass(frozen=True)
class Certified(Promise):
    """√(ξ²(ℓ + 2 ln 1/δ) + λF²) + √(λη) F, ℓ = ln det(V/λ): for frozen features and for the exact
    posterior (η = 0).

    With probability 1 − δ, |f(x) − μ̃_t(x)| ≤ β̃_tσ̃_t(x) for all t and all x, finite sets or not:
    docs/theory.md has the proof and its conditions. Among them: noise that is told is not estimated
    from the same rewards; a delay does not depend on the reward; the kernel is not refitted and the
    rewards are not centred by the data.

    Parameters
    ----------
    norm : float
        F, a bound on the norm of f in the space of the kernel.
    noise : float
        ξ: the noise is ξ-sub-Gaussian, such as Gaussian of standard deviation ξ.
    delta : float
        δ, the probability that some interval misses f.
    double : bool
        The norm is a first guess, doubled whenever the data refute it. Such intervals are
        heuristic.
    """

    proofs: ClassVar[Proofs] = {"exact": EXACT, "certified": FROZEN}

    def __call__(self, evidence: Evidence) -> float:
        self.check(
            evidence,
            "use BKB with rule=Inserted() or GPUCB, or Resampled where a dictionary is drawn again",
        )
        lam = evidence.regularization
        norm = self.norm_in(evidence)
        # Statement 2 of docs/theory.md: ‖w⋆ − w̃′‖² in Ã, were every row represented …
        deviation = self.deviation(evidence.log_det, self.delta)
        inside = deviation * deviation + lam * norm**2
        # … and the bias ‖b‖ ≤ √(λη)F of what is left out of the rows.
        return sqrt(inside) + sqrt(lam * evidence.eta) * norm


@dataclass(frozen=True)
class Resampled(Promise):
    """ξ√(ℓ + e + 2 ln 1/δ) + (1 + √η)√λF: for dictionaries that are drawn again (`Sampled`),
    whatever q̄ is.

    All rows are projected by one P that depends on the whole run; ℓ, e and η are of the rows as now
    projected. The kernel of projected rows is below the exact one, hence the bound. It does not
    hold for frozen features.

    Parameters
    ----------
    norm : float
        F, a bound on the norm of f in the space of the kernel.
    noise : float
        ξ: the noise is ξ-sub-Gaussian.
    delta : float
        δ, the probability that some interval misses f.
    double : bool
        The norm is a first guess, doubled whenever the data refute it.
    """

    proofs: ClassVar[Proofs] = {
        "exact": EXACT,
        "resampled": "all results are seen through one dictionary, and the radius pays for the "
        "rest",
    }

    def __call__(self, evidence: Evidence) -> float:
        self.check(
            evidence,
            "it is for dictionaries that are drawn again, rule=Sampled(); for frozen features and "
            "the exact posterior use Certified",
        )
        eta = evidence.eta
        # Statement 6: the ridge biases by √λF, the projection by √(λη)F.
        bias = (1 + sqrt(eta)) * sqrt(evidence.regularization) * self.norm_in(evidence)
        # ℓ_K ≤ ℓ + e, as log det(I + A + B) ≤ log det(I + A) + Tr B.
        return self.deviation(evidence.log_det + evidence.left_out, self.delta) + bias


@dataclass(frozen=True)
class TheoremTwo(Promise):
    """What `Theory` and `LogDet` share: ξ√(L_t + 2 ln 1/δ′) + b√λF, L_t ≥ ln det(K_t/λ + I).

    The paper's Theorem 2 has b = 1 + 1/√(1−ε), and spends δ/2 on Theorem 1
    (``oversampling_for(epsilon, delta / 2, horizon)``) and δ′ = δ/2 here. The exact posterior has b
    = 1 and δ′ = δ, frozen features b = 1 + √η and δ′ = δ: there the radius is larger than
    `Certified`, hence holds too.
    """

    epsilon: float = 0.5
    proofs: ClassVar[Proofs] = {
        "exact": EXACT,
        "certified": FROZEN,
        "resampled": "Theorem 2 of the paper",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        store(self, epsilon=probability("epsilon", self.epsilon))

    def promised(self, evidence: Evidence) -> tuple[float | None, str]:
        """The probability that f is inside everywhere and what it rests on; or None and why."""
        lack = self.lack(evidence) if evidence.guarantee == "resampled" else None
        return super().promised(evidence) if lack is None else (None, lack)

    def lack(self, evidence: Evidence) -> str | None:
        """Why Theorem 1 does not cover the dictionary, None where it does."""
        if evidence.draws is None:
            return "Theorem 1 does not speak of a dictionary that is drawn so"
        return evidence.draws.lack(self.epsilon, self.delta / 2)

    @property
    def alpha(self) -> float:
        """α = (1 + ε)/(1 − ε)."""
        return alpha_of(self.epsilon)

    def _radius(self, evidence: Evidence, information: float) -> float:
        sampled = evidence.guarantee == "resampled"
        # Terms (a) and (c) of the paper's proof: I − P ⪯ λA⁻¹/(1 − ε) where S is drawn.
        bias = 1 + (1 / sqrt(1 - self.epsilon) if sampled else sqrt(evidence.eta))
        # Term (b). Half of δ is Theorem 1's where S is drawn.
        deviation = self.deviation(information, self.delta / 2 if sampled else self.delta)
        return deviation + bias * sqrt(evidence.regularization) * self.norm_in(evidence)


class Theory(TheoremTwo):
    """Theorem 2: ξ√(α(1 + ln(1 + Tr K_t/λ)) d̃_t + 2 ln 1/δ′) + b√λF.

    The factor 1 + ln(1 + Tr K_t/λ) replaces the paper's 2 ln(κ²t), which fails for small κ²t. The
    paper doubles the first term under the root as well; the bound of Abbasi-Yadkori et al. (2011)
    does not need it.

    Parameters
    ----------
    norm : float
        F, a bound on the norm of f in the space of the kernel.
    noise : float
        ξ: the noise is ξ-sub-Gaussian.
    delta : float
        δ, the probability that some interval misses f. Half of it is for Theorem 1.
    double : bool
        The norm is a first guess, doubled whenever the data refute it.
    epsilon : float
        ε of Theorem 1, which the dictionary was drawn for.
    """

    proofs: ClassVar[Proofs] = TheoremTwo.proofs

    def __call__(self, evidence: Evidence) -> float:
        sampled = evidence.guarantee == "resampled"
        alpha = self.alpha if sampled else 1.0
        # Eq. 6, with ‖K_t‖ ≤ Tr K_t, and d_eff ≤ αd̃ by Theorem 1.
        bound = alpha * (1 + log1p(evidence.trace)) * evidence.effective_dimension
        # Of frozen features d̃ is not the exact one, and ℓ is known: the larger bound holds.
        known = evidence.log_det if evidence.guarantee == "certified" else 0.0
        return self._radius(evidence, max(bound, known))


class LogDet(TheoremTwo):
    """Theorem 2 before its last step: ξ√(Σ_s ln(1 + ασ̃²(x_s)) + 2 ln 1/δ′) + b√λF, each variance
    as before x_s.

    The sum bounds ln det(K_t/λ + I) by the chain rule, and is smaller than what `Theory` bounds it
    by. Of frozen features (√ℓ + √e)² takes its place.

    Parameters
    ----------
    norm : float
        F, a bound on the norm of f in the space of the kernel.
    noise : float
        ξ: the noise is ξ-sub-Gaussian.
    delta : float
        δ, the probability that some interval misses f. Half of it is for Theorem 1.
    double : bool
        The norm is a first guess, doubled whenever the data refute it.
    epsilon : float
        ε of Theorem 1, which the dictionary was drawn for.
    """

    proofs: ClassVar[Proofs] = TheoremTwo.proofs

    def __call__(self, evidence: Evidence) -> float:
        return self._radius(evidence, evidence.information)


@dataclass(frozen=True)
class Bayes:
    """√λ·√(2 ln(A t² π²/6δ)), t − 1 observations made: for the exact posterior, if f is drawn from
    the GP itself and the noise is Gaussian of variance λ (Srinivas et al. 2010, Theorem 1), A arms.

    Noise that is told with a result has that variance. The failures of all steps t = 1, 2, … add up
    to δ, as Σ 1/t² = π²/6. On a sketch nothing is proved.

    Parameters
    ----------
    delta : float
        δ, the probability that some interval misses f.
    """

    delta: float = 0.1

    def __post_init__(self) -> None:
        store(self, delta=probability("delta", self.delta))

    def promised(self, evidence: Evidence) -> tuple[float | None, str]:
        """The probability that f is inside everywhere and what it rests on; or None and why."""
        if type(self) is not Bayes:
            return None, f"{type(self).__name__} is not proved"
        if evidence.guarantee != "exact":
            return None, "Bayes is proved for the exact posterior, and this one is a sketch"
        draw = "if f is a draw of the Gaussian process with this kernel and the noise is Gaussian"
        return 1 - self.delta, f"{draw}, as large as was said (Srinivas et al. 2010)"

    def __call__(self, evidence: Evidence) -> float:
        if evidence.n_arms == np.inf:
            raise ParameterError(
                "Bayes is a bound over finitely many arms; over a box use Certified, Constant "
                "or Growing"
            )
        step = evidence.n_observations + 1
        union = np.log(evidence.n_arms) + 2 * np.log(step) + np.log(np.pi**2 / (6 * self.delta))
        return float(np.sqrt(evidence.regularization * 2 * union))


@dataclass(frozen=True)
class Constant:
    """c√λ: c posterior standard deviations of f.

    It is what practitioners use. No promise holds over many arms at once.

    Parameters
    ----------
    c : float
        How many standard deviations.
    """

    c: float = 2.0

    def __post_init__(self) -> None:
        meaning = "a non-negative number of standard deviations"
        store(self, c=real(self.c, "c", meaning, at_least=0))

    def __call__(self, evidence: Evidence) -> float:
        return self.c * sqrt(evidence.regularization)


@dataclass(frozen=True)
class Growing:
    """c√(λ ln(1 + t)), or `most`√λ once that is less: like `Constant`, but more is explored the
    longer the run.

    Of the order theory asks for where `most` is infinite; c comes with no promise.

    Parameters
    ----------
    c : float
        Standard deviations, times √ln(1 + t).
    most : float
        How many at most, however long the run.
    """

    c: float = 1.3
    most: float = np.inf

    def __post_init__(self) -> None:
        meaning = "a non-negative number of standard deviations"
        store(self, c=real(self.c, "c", meaning, at_least=0))
        if not (isinstance(self.most, float) and self.most == np.inf):
            store(self, most=real(self.most, "most", f"{meaning}, or infinity", at_least=0))

    def __call__(self, evidence: Evidence) -> float:
        grown = self.c * np.sqrt(np.log1p(max(1, evidence.n_observations)))
        return float(np.sqrt(evidence.regularization) * min(grown, self.most))


def updated_norm(radius: Radius, evidence: Evidence) -> float | None:
    """The guess of ‖f‖ after this evidence: doubled until ‖μ̃_t‖ ≤ F + β̃_t(F)σ̃(g), g =
    μ̃_t/‖μ̃_t‖. None where nothing is doubled.

    Inside the confidence set, ‖f − μ̃_t‖ ≤ β̃_t in the norm of V, F ≥ ⟨f, g⟩ ≥ ‖μ̃_t‖ − β̃_tσ̃(g):
    a guess that breaks it is refuted by the data. The σ̃ of a unit direction is at most 1/√λ, and
    far less where much was observed.
    """
    if evidence.norm is None:
        return None
    norm = evidence.norm
    mean_norm, spread = evidence.mean()
    # A larger F widens β̃ too, so that this ends: the right side grows at least as F does.
    while mean_norm > norm + radius(replace(evidence, norm=norm)) * spread:
        norm *= 2
    return norm


def first_norm(radius: Radius) -> float | None:
    """The first guess of ‖f‖ of a radius that doubles it, else None."""
    return radius.norm if isinstance(radius, Promise) and radius.double else None
