"""What a radius is a function of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Guarantee = Literal["exact", "certified", "theorem 1", "none"]
"""What holds of a posterior: it is the exact one; it is that of frozen features (docs/theory.md); its dictionary was drawn as
Theorem 1 asks, or at least as Algorithm 1 does; nothing is known."""


def _nothing() -> float:
    """d̃ before anything was observed."""
    return 0.0


def _zero() -> tuple[float, float]:
    """‖μ̃‖ and its σ̃ before anything was observed."""
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
    eta: float = 0.0  # a bound on η = λ_max of what is left out, at most e
    information: float = 0.0  # a bound on ln det(K_t/λ + I) that theorems of the paper use
    largest: Callable[[], float] | None = None  # η itself, where `eta` is only e; O(u³) for u rows
    mean: Callable[[], tuple[float, float]] = _zero  # ‖μ̃_t‖ in the RKHS, and σ̃ of ⟨f, μ̃_t/‖μ̃_t‖⟩; O(m²)
    dimension: Callable[[], float] = _nothing  # d̃ = Σ ω σ̃²(x_s); O(m³)

    @property
    def exact(self) -> bool:
        """The posterior is the exact one."""
        return self.guarantee == "exact"

    @property
    def effective_dimension(self) -> float:
        """d̃, an estimate of Tr K(K + λI)⁻¹."""
        return self.dimension()

    def of(self, n_arms: float, norm: float | None) -> "Evidence":
        """The same of a policy with so many arms and such a guess."""
        if n_arms == self.n_arms and norm == self.norm:
            return self
        return replace(self, n_arms=n_arms, norm=norm)
