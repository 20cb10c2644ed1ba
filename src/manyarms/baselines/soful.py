"""SOFUL (Kuzborskij, Cella, Cesa-Bianchi; AISTATS 2019): OFUL and linear Thompson sampling on frequent directions.

Ṽ = λI + BᵀB of the sketch takes the place of V, in w̃ = Ṽ⁻¹Σ s x and in σ̃² = xᵀṼ⁻¹x. As V − ρ̄I ⪯ Ṽ ⪯ V, for f(x) = xᵀθ

    w̃ − θ = Ṽ⁻¹(V − Ṽ − λI)θ + Ṽ⁻¹Σ(noise)x,

‖V − Ṽ − λI‖ ≤ max(λ, ρ̄ − λ) and Ṽ⁻¹ ⪯ (1 + ρ̄/λ)V⁻¹, from which the radius `Sketched` follows: the paper's, with what the sketch
knows of log det V in place of a bound in m, d and T.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from manyarms.errors import ParameterError
from manyarms.kernels import Linear
from manyarms.numbers import real, whole
from manyarms.policies.features import FeatureMap, Features, FeaturesState
from manyarms.policies.oful import as_features
from manyarms.sketch.confidence import Evidence, Radius
from manyarms.sketch.dictionary import check_probability
from manyarms.sketch.frequent import FrequentDirections, SketchedRidge
from manyarms.sketch.history import History
from manyarms.typing import Array, ArrayLike, Indices, Seed


@dataclass(frozen=True)
class SketchedEvidence(Evidence):
    """Evidence with the error of the sketch; its `information` is a bound on log det(V/λ)."""

    error: float = 0.0  # ρ̄/λ


@dataclass(frozen=True)
class Sketched:
    """ξ√((1 + ρ̄/λ)(log det(V/λ) + 2 ln 1/δ)) + max(1, ρ̄/λ − 1)√λF, the determinant by its bound: a radius for `SOFUL`.

    Contains f(x) = xᵀθ for all arms and all steps with probability 1 − δ when ‖θ‖ ≤ F = ``norm`` and the noise is
    ξ-sub-Gaussian, ξ = ``noise``. Linear in ρ̄, which grows with t where the spectrum has a tail beyond the sketch.
    """

    norm: float
    noise: float
    delta: float = 0.1

    def __post_init__(self) -> None:
        real(self.norm, "norm", "a positive bound on the norm of the weights", above=0)
        real(self.noise, "noise", "a non-negative standard deviation", at_least=0)
        check_probability("delta", self.delta)

    def __call__(self, evidence: Evidence) -> float:
        if not isinstance(evidence, SketchedEvidence):
            raise ParameterError("the radius Sketched is for SOFUL only: use LogDet or Theory with other policies")
        deviation = self.noise * np.sqrt((1 + evidence.error) * (evidence.information - 2 * np.log(self.delta)))
        return float(deviation + max(1.0, evidence.error - 1) * np.sqrt(evidence.regularization) * self.norm)


class SOFUL(Features):
    """OFUL on a frequent-directions sketch of fixed size m: O(m²d) an observation, O(A·m·d) to score all arms.

    Guarantee: with ``confidence=Sketched(norm, noise)``, regret Õ((1 + ρ̄/λ)^{3/2} d√T). Where all arms lie in m dimensions
    ρ̄ = 0 and it is OFUL. Where the spectrum is heavy beyond m, ρ̄ grows like T and the bound is void: regret may be linear.
    Thompson sampling has Õ(((1 + ρ̄/λ)d)^{3/2}√T). `Theory` and `LogDet` know nothing of ρ̄ and promise nothing here.

    size : m, directions kept (a sketch of m + 1 rows, as the paper counts).
    The other parameters: `OFUL`.
    """

    _exact = False

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        *,
        size: int,
        regularization: float = 0.01,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.size = whole(size, "size")
        super().__init__(arms, Linear(), regularization=regularization, confidence=confidence, choice=choice, seed=seed)

    def _feature_map(self, rng: np.random.Generator) -> FeatureMap:
        return as_features

    def _prior(self, features: Array) -> SketchedRidge:
        d = features.shape[1]
        return SketchedRidge(features, self.regularization, FrequentDirections.empty(self.size, d), np.zeros(d))

    def _no_evidence(self) -> SketchedEvidence:
        return SketchedEvidence(**vars(super()._no_evidence()))

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> FeaturesState:
        state = super()._observed(history, arms, rewards, weights)
        error = cast(SketchedRidge, state.model).sketch.error / self.regularization
        return replace(state, evidence=replace(cast(SketchedEvidence, state.evidence), error=error))
