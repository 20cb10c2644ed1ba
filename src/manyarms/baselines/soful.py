"""SOFUL (Kuzborskij, Cella, Cesa-Bianchi; AISTATS 2019): linear bandits on frequent directions.

Ṽ = λI + BᵀB of the sketch takes the place of V, in w̃ = Ṽ⁻¹Σ ω y x and in σ̃² = xᵀṼ⁻¹x. As V − ρ̄I
⪯ Ṽ ⪯ V, for f(x) = xᵀθ

    w̃ − θ = Ṽ⁻¹(V − Ṽ − λI)θ + Ṽ⁻¹Σ(noise)x,

‖V − Ṽ − λI‖ ≤ max(λ, ρ̄ − λ) and Ṽ⁻¹ ⪯ (1 + ρ̄/λ)V⁻¹, from which the radius `Sketched` follows: the
paper's, with what the sketch knows of log det V in place of a bound in m, d and T.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyarms.baselines.features import chosen_by
from manyarms.baselines.oful import columns
from manyarms.beliefs.linear import OnFeatures
from manyarms.errors import ParameterError
from manyarms.kernels import Linear
from manyarms.numbers import real, whole
from manyarms.policies.policy import Policy
from manyarms.sketch.confidence import Radius
from manyarms.sketch.dictionary import check_probability
from manyarms.sketch.evidence import Evidence
from manyarms.sketch.frequent import FrequentDirections, SketchedRidge
from manyarms.typing import ArrayLike, Seed


@dataclass(frozen=True)
class Sketched:
    """ξ√((1 + ρ̄/λ)(log det(V/λ) + 2 ln 1/δ)) + max(1, ρ̄/λ − 1)√λF; ρ̄/λ is `Evidence.eta`.

    It contains f(x) = xᵀθ for all arms and all steps with probability 1 − δ when ‖θ‖ ≤ F = ``norm``
    and the noise is ξ-sub-Gaussian, ξ = ``noise``. It is linear in ρ̄, which grows with t where the
    spectrum has a tail beyond the sketch.
    """

    norm: float
    noise: float
    delta: float = 0.1

    def __post_init__(self) -> None:
        real(self.norm, "norm", "a positive bound on the norm of the weights", above=0)
        real(self.noise, "noise", "a non-negative standard deviation", at_least=0)
        check_probability("delta", self.delta)

    def __call__(self, evidence: Evidence) -> float:
        if evidence.guarantee != "none":
            raise ParameterError(
                "the radius Sketched is for SOFUL only: use Certified or LogDet with other policies"
            )
        information = evidence.log_det - 2 * np.log(self.delta)
        deviation = self.noise * np.sqrt((1 + evidence.eta) * information)
        bias = max(1.0, evidence.eta - 1) * np.sqrt(evidence.regularization) * self.norm
        return float(deviation + bias)


class SOFUL(Policy):
    """OFUL on a sketch of fixed size m: O(m²d) an observation, O(A·m·d) to score all arms.

    Guarantee: with ``confidence=Sketched(norm, noise)``, regret Õ((1 + ρ̄/λ)^{3/2} d√T). Where all
    arms lie in m dimensions ρ̄ = 0 and it is OFUL. Where the spectrum is heavy beyond m, ρ̄ grows
    like T and the bound is void: regret may be linear. Thompson sampling has Õ(((1 +
    ρ̄/λ)d)^{3/2}√T). `Theory` and `LogDet` know nothing of ρ̄ and promise nothing here.

    size : m, directions kept (a sketch of m + 1 rows, as the paper counts).
    The other parameters: `OFUL`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        *,
        size: int,
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.size = whole(size, "size")
        super().__init__(
            arms,
            Linear(),
            rule=OnFeatures(columns, self._regression, radius_guarantee="none"),
            regularization=regularization,
            noise=noise,
            seed=seed,
            **chosen_by(choice, confidence),
        )

    def _regression(self, regularization: float, m: int) -> SketchedRidge:
        return SketchedRidge(regularization, FrequentDirections.empty(self.size, m), np.zeros(m))
