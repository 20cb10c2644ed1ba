"""Thompson sampling on BKB's sketch: the weights are drawn, not the values, so a step is O(A m).

    w̃ ~ N(w, β̃²V⁻¹),   f̃(x) = z(x)ᵀw̃ + β̃√(r(x)/λ)·g_x,   g_x ~ N(0, 1),   x⁺ = argmax f̃(x)

so that f̃(x) ~ N(μ̃(x), β̃²σ̃²(x)) at every arm. Scoring all arms by upper bounds takes ‖C⁻¹z(x)‖²
of each, O(A m²).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyarms.baselines.features import allowed_best
from manyarms.beliefs.base import Rule
from manyarms.beliefs.frozen import Inserted
from manyarms.errors import ParameterError
from manyarms.policies.batches import BatchRule, GlobalRule
from manyarms.policies.policy import Policy
from manyarms.search.lazy import Lazy
from manyarms.search.scores import View
from manyarms.search.tuning import Tuning
from manyarms.sketch.confidence import Constant, Radius
from manyarms.typing import Array, ArrayLike, Seed


@dataclass(frozen=True)
class ThompsonChooser:
    """The arm of largest f̃. The arms of a batch are independent draws, so nothing is supposed."""

    residual: bool = True
    looks: ClassVar[bool] = False

    def pick(self, view: View) -> int:
        if not isinstance(view.scores, Lazy):
            raise ParameterError(
                "Thompson sampling needs the embeddings of all arms: use rule=Inserted()"
            )
        dice = view.chance.at(view.n_observations, view.number)
        return allowed_best(self.values(view.scores, view.beta, dice), view.barred)

    def values(self, scores: Lazy, beta: float, dice: np.random.Generator) -> Array:
        """f̃ of every arm, (A,)."""
        belief = scores.belief
        # cov(C⁻ᵀg) = C⁻ᵀC⁻¹ = V⁻¹
        deviation = belief.factor.folded.C.solve_transposed(dice.standard_normal(belief.m))
        w = belief.w + beta * deviation
        parts: list[Array] = []
        for _, Z, r in scores.embedded():
            values = w @ Z
            if self.residual:
                outside = np.sqrt(r / belief.regularization)
                values = values + beta * outside * dice.standard_normal(len(r))
            parts.append(values)
        return np.concatenate(parts)


class Thompson(Policy):
    """Thompson sampling on BKB's sketch. Arms of a batch are independent draws (Kandasamy 2018).

    Vakili, Moss, Artemev, Dutordoir and Picheny (S-GP-TS, NeurIPS 2021) prove sublinear regret for
    draws from an approximate posterior whose deviations are within a constant of the exact ones, as
    those of the sketch are, if the radius is that of a confidence interval. They draw f̃ jointly;
    here the part outside the span of the inducing arms is drawn for each arm by itself, with the
    right variance but no correlation. So this, like the radius 1 that is the default, has no
    guarantee.

    confidence : β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    residual : without it f̃ = zᵀw̃, which hardly varies far from the inducing arms: the variance
        starves there, as that of `SoR`.
    The other parameters: `BKB`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path | None,
        kernel: Any,
        *,
        residual: bool = True,
        regularization: float = 0.01,
        noise: float | None = None,
        rule: Rule = Inserted(),
        confidence: Radius = Constant(1.0),
        batches: BatchRule = GlobalRule(),
        memory: float | None = None,
        tuning: Tuning = Tuning(),
        seed: Seed = 0,
        n_features: int | None = None,
    ) -> None:
        self.residual = bool(residual)
        super().__init__(
            arms,
            kernel,
            rule=rule,
            chooser=ThompsonChooser(self.residual),
            batches=batches,
            regularization=regularization,
            noise=noise,
            confidence=confidence,
            memory=memory,
            tuning=tuning,
            seed=seed,
            n_features=n_features,
        )
