"""What a radius is a function of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Guarantee = Literal["exact", "certified", "theorem 1", "none"]
"""What holds of a posterior: it is the exact one; it is that of frozen features (docs/theory.md); its dictionary was drawn as
Theorem 1 asks, or at least as Algorithm 1 does; nothing is known."""


def _nothing() -> float:
    """Nothing was observed."""
    return 0.0


def _zero() -> tuple[float, float]:
    """The mean is zero, and so is its deviation."""
    return 0.0, 0.0


@dataclass(frozen=True)
class Evidence:
    """What a radius may depend on, after t observations."""

    regularization: float  # λ
    noise: float  # ξ, for which an observation weighs ω = 1
    guarantee: Guarantee
    n_arms: float = 1  # ∞ where arms are not counted: a box
    norm: float | None = None  # the current guess of ‖f‖, where it is doubled
    n_observations: int = 0
    trace: float = 0.0  # Tr K_t/λ = Σ ω k(x, x)/λ
    log_det: float = 0.0  # ℓ = ln det(V/λ) of the features as they entered; of the exact posterior ln det(K_t/λ + I)
    left_out: float = 0.0  # e = Σ ω r/λ over the observations
    information: float = 0.0  # a bound on ln det(K_t/λ + I) that theorems of the paper use
    # η, the largest eigenvalue of what is left out, or a bound on it that is at most e.
    largest: Callable[[], float] = _nothing
    # ‖μ̃_t‖ in the RKHS, and σ̃ of ⟨f, μ̃_t/‖μ̃_t‖⟩; O(m²).
    mean: Callable[[], tuple[float, float]] = _zero
    dimension: Callable[[], float] = _nothing  # d̃ = Σ ω σ̃²(x_s); O(m³)

    @property
    def eta(self) -> float:
        """η, or a bound on it: how far the sketch is from the exact posterior on what was observed."""
        return self.largest()

    @property
    def effective_dimension(self) -> float:
        """d̃, an estimate of Tr K(K + λI)⁻¹."""
        return self.dimension()

    def of(self, n_arms: float, norm: float | None) -> "Evidence":
        """The same of a policy with so many arms and such a guess."""
        # `dataclasses.replace` takes longer than a radius.
        other = object.__new__(Evidence)
        other.__dict__.update(self.__dict__, n_arms=n_arms, norm=norm)
        return other
