"""Beliefs that are linear in features φ(x) fixed beforehand: a regression, and what it cannot see.

    μ(x) = φ(x)ᵀw,    σ²(x) = o(x) + φ(x)ᵀV⁻¹φ(x),    V = λI + Σ ω φφᵀ

The part o(x) = r(x)/λ is zero where φ(x)ᵀφ(y) is the kernel itself. Where φ(x) = z(x) are
coordinates of a projection Pφ(x) on rows that never change, r(x) = ‖(I − P)φ(x)‖² is what the
projection leaves out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.history import by_arm
from manyarms.engine.linalg import check_finite, check_rounding
from manyarms.engine.ridge import Regression, Ridge, mean_norm
from manyarms.kernels import Kernel
from manyarms.search.scores import AllScored
from manyarms.typing import Array, Indices

FeatureMap = Callable[[Array, Array], tuple[Array, Array]]
"""Of rows (n, d) and their k(x, x) (n,): features φ (n, m) and o (n,), float64."""
MakesMap = Callable[[Kernel, Arms, float, np.random.Generator], FeatureMap]
"""φ for a kernel, a table of arms and λ, drawn where it is random."""


@dataclass(frozen=True)
class OnFeatures:
    """The rule that makes a linear belief.

    makes_map : gives φ.
    regression : gives the regression before anything is observed, of λ and m.
    guarantee : what is known of the posterior as one of the kernel's functions.
    """

    makes_map: MakesMap
    regression: Callable[[float, int], Regression] = Ridge.prior
    guarantee: Posterior = "none"

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> "LinearBelief":
        """The belief before anything is observed."""
        feature_map = self.makes_map(kernel, arms, regularization, rng)
        features, _ = feature_map(arms.rows[:1].astype(np.float64), arms.diag[:1])
        regression = self.regression(regularization, features.shape[1])
        return LinearBelief(self, kernel, regularization, noise, feature_map, regression)


@dataclass(frozen=True)
class LinearBelief:
    """What is known of f. It keeps nothing of a row but its part in V and w."""

    rule: OnFeatures
    kernel: Kernel
    regularization: float  # λ
    noise: float  # ξ
    feature_map: FeatureMap
    regression: Regression
    n_observations: int = 0
    trace: float = 0.0  # Σ ω φᵀφ/λ: φᵀφ is the kernel here
    left_out: float = 0.0  # e = Σ ω o(x)

    @property
    def guarantee(self) -> Posterior:
        """What is known of the posterior."""
        return self.rule.guarantee

    @cached_property
    def evidence(self) -> Evidence:
        """What a radius is a function of."""
        regression = self.regression
        return Evidence(
            self.regularization,
            self.noise,
            self.guarantee,
            n_observations=self.n_observations,
            trace=self.trace,
            log_det=regression.log_det,
            left_out=self.left_out,
            largest=lambda: self.left_out + regression.error,
            information=float(np.square(np.sqrt(regression.log_det) + np.sqrt(self.left_out))),
            mean=lambda: mean_norm(regression),
            dimension=lambda: regression.dimension + self.left_out,
        )

    def features(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """φ (n, m) and o (n,) of rows."""
        if len(rows) != 1:
            return self.feature_map(rows, diag)
        # A product with one row rounds otherwise than one with many. The features of an arm are to
        # be the same in both.
        features, outside = self.feature_map(np.repeat(rows, 2, axis=0), np.repeat(diag, 2))
        return features[:1], outside[:1]

    def observed(self, batch: Batch, record: Record | None = None) -> Step:
        """The belief after these observations. There is nothing to decide."""
        features, outside = self.features(batch.rows, batch.diag)
        squares = np.einsum("ij,ij->i", features, features)
        check_rounding(self.regularization, squares, batch.weights)
        regression = self.regression.observed(features, batch.rewards, batch.weights)
        check_finite(regression.w)
        after = replace(
            self,
            regression=regression,
            n_observations=self.n_observations + batch.n_observations,
            trace=self.trace + float(batch.weights @ squares) / self.regularization,
            left_out=self.left_out + float(batch.weights @ outside),
        )
        return Step(after, Record.nothing(len(batch)))

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ and σ² of rows, (n,) each."""
        features, outside = self.features(rows, diag)
        return _product(features, self.regression.w), outside + self.regression.leverage(features)

    def scores(self, arms: Arms) -> "LinearScores":
        """The scores of arms, whose features are kept: 8·A·m bytes."""
        features, outside = self.features(arms.rows, arms.diag)
        regression = self.regression
        mean = _product(features, regression.w)
        inside = regression.leverage(features)
        return LinearScores(features, outside, regression, mean, inside, regression.log_det)


@dataclass(frozen=True)
class LinearScores(AllScored):
    """Scores of arms, brought forward at every observation: O(A·m)."""

    features: Array  # (A, m)
    outside: Array  # (A,) o
    regression: Regression  # with what is supposed
    mean: Array  # (A,) μ, without what is supposed
    inside: Array  # (A,) φᵀV⁻¹φ
    settled: float  # log det(V/λ) when the variances were computed anew last

    def after(self, step: Step) -> "LinearScores":
        if not isinstance(step.after, LinearBelief):
            raise TypeError(f"these scores follow a linear belief, got {step.after!r}")
        regression = step.after.regression
        return self._brought(regression, _product(self.features, regression.w))

    def supposing(self, positions: Indices) -> "LinearScores":
        n = len(positions)
        arms, rewards, weights = by_arm(positions, np.zeros(n), np.ones(n))
        supposed = self.regression.observed(self.features[arms], rewards, weights)
        return self._brought(supposed, self.mean)

    def _brought(self, regression: Regression, mean: Array) -> "LinearScores":
        inside, settled = regression.lowered(self.features, self.inside, self.settled)
        return LinearScores(self.features, self.outside, regression, mean, inside, settled)

    def current(self) -> tuple[Array, Array]:
        return self.mean, self.outside + self.inside

    def drawn(self, beta: float, dice: np.random.Generator) -> Array:
        """φᵀθ of all arms, θ ~ N(w, β²V⁻¹), V with what is supposed, (A,)."""
        normal = dice.standard_normal(len(self.regression.w))
        return np.asarray(self.mean + beta * (self.features @ self.regression.drawn(normal)))


def _product(features: Array, w: Array) -> Array:
    """Φw; not finite, and no warning, where rewards are beyond float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(features @ w)
