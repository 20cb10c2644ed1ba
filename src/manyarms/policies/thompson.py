"""Thompson sampling on BKB's sketch: the weights are drawn, not the values, so a step is O(A m).

    w̃ ~ N(w, β̃²V⁻¹),   f̃(x) = z(x)ᵀw̃ + β̃√(r(x)/λ)·g_x,   g_x ~ N(0, 1) independent,   x⁺ = argmax f̃(x)

so that f̃(x) ~ N(μ̃(x), β̃²σ̃²(x)) at every arm. Scoring all arms by upper bounds takes ‖C⁻¹z(x)‖² of each, O(A m²).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.policies.adaptive import Adaptive, AdaptiveState
from manyarms.policies.base import Lookahead
from manyarms.policies.rules import Blind
from manyarms.sketch.choice import TIE, largest
from manyarms.sketch.confidence import Constant, Radius
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.linalg import chunks, solve_transposed
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array, ArrayLike, Mask


class Thompson(Blind, Adaptive):
    """Thompson sampling with BKB's adaptive dictionary; the arms of a batch are independent draws (Kandasamy et al. 2018).

    Vakili, Moss, Artemev, Dutordoir and Picheny (S-GP-TS, NeurIPS 2021) prove sublinear regret for draws from an approximate
    posterior whose deviations are within a constant of the exact ones, as Theorem 1 has it for BKB's, if the radius is that of
    a confidence interval. They draw f̃ jointly; here the part outside the span of the dictionary is drawn for each arm by
    itself, with the right variance but no correlation. So this, like the radius 1 that is the default, has no guarantee.

    confidence : β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    residual : without it f̃ = zᵀw̃, which hardly varies far from the inducing arms: the variance starves there, as that of `SoR`.
    options : the others of `BKB`. While the embeddings of all arms fit `memory`, 8·A·m bytes, they are kept until the inducing
        arms change; beyond that they are computed again at every step, O(A m²).
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
        self._posterior_cache: tuple[AdaptiveState, Posterior] | None = None
        self._embedded_cache: tuple[Embedding, list[tuple[slice, Array, Array]]] | None = None
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

    def _current(self) -> Posterior:
        """The posterior now; kept, as all draws of a batch rest on it."""
        state, cached = self._state, self._posterior_cache
        if cached is None or cached[0] is not state:
            sketched = state.history.n_observations and not state.exact
            cached = self._posterior_cache = state, state.frontier.posterior() if sketched else self._fitted()
        return cached[1]

    def _embedded(self, embedding: Embedding) -> Iterable[tuple[slice, Array, Array]]:
        """z and r of all arms, some rows at a time; kept, if there is room, while the inducing arms stay."""
        if self._embedded_cache is None or self._embedded_cache[0] is not embedding:
            self._embedded_cache = None
            parts = chunks(self.n_arms, len(embedding.L))
            made = ((rows, *embedding(self.arms[rows], self._diag[rows])) for rows in parts)
            if 8 * self.n_arms * (len(embedding.L) + 1) > self.memory:
                return made
            with self.stats.timed("embeddings of all arms"):
                self._embedded_cache = embedding, list(made)
        return self._embedded_cache[1]
