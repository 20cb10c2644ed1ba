"""Thompson sampling on BKB's sketch: the weights are drawn, not the values, so a step is O(A m).

    w̃ ~ N(w, β̃²V⁻¹),   f̃(x) = z(x)ᵀw̃ + β̃√(r(x)/λ)·g_x,   g_x ~ N(0, 1) independent,   x⁺ = argmax f̃(x)

so that f̃(x) ~ N(μ̃(x), β̃²σ̃²(x)) at every arm. Scoring all arms by upper bounds takes ‖C⁻¹z(x)‖² of each, O(A m²).
"""

from pathlib import Path
from typing import Any

import numpy as np

from manyarms.policies.base import Lookahead
from manyarms.policies.embedded import Embedded
from manyarms.policies.rules import Blind
from manyarms.policies.working import AdaptiveState
from manyarms.sketch.choice import TIE, largest
from manyarms.sketch.confidence import Constant, Radius
from manyarms.sketch.linalg import solve_transposed
from manyarms.typing import Array, ArrayLike, Mask


class Thompson(Blind, Embedded):
    """Thompson sampling with BKB's adaptive dictionary; the arms of a batch are independent draws (Kandasamy et al. 2018).

    Vakili, Moss, Artemev, Dutordoir and Picheny (S-GP-TS, NeurIPS 2021) prove sublinear regret for draws from an approximate
    posterior whose deviations are within a constant of the exact ones, as Theorem 1 has it for BKB's, if the radius is that of
    a confidence interval. They draw f̃ jointly; here the part outside the span of the dictionary is drawn for each arm by
    itself, with the right variance but no correlation. So this, like the radius 1 that is the default, has no guarantee.

    confidence : β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    residual : without it f̃ = zᵀw̃, which hardly varies far from the inducing arms: the variance starves there, as that of `SoR`.
    options : the others of `BKB`; for `memory` see `Embedded`.
    """

    _state: AdaptiveState

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        confidence: Radius = Constant(1.0),
        residual: bool = True,
        **options: Any,
    ) -> None:
        self.residual = bool(residual)
        super().__init__(arms, kernel, confidence=confidence, **options)

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        values = self._sample(beta, number)
        return largest(values, TIE * np.abs(values), barred)

    def _sample(self, beta: float, number: int) -> Array:
        """f̃ of every arm, (A,): draw `number` after so many observations."""
        dice = self._state.chance.at(self._state.history.n_observations, number)
        posterior = self._current()
        # cov(C⁻ᵀg) = C⁻ᵀC⁻¹ = V⁻¹
        w = posterior.w + beta * solve_transposed(posterior.C, dice.standard_normal(len(posterior.w)))
        values = np.empty(self.n_arms)
        for rows, Z, r in self._embedded(posterior.embedding):
            values[rows] = Z @ w
            if self.residual:
                outside = np.sqrt(np.maximum(r, 0.0) / self.regularization)
                values[rows] += beta * outside * dice.standard_normal(len(r))
        return values
