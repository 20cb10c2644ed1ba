"""CBRAP (Yu, Lyu, King; AAAI 2017): OFUL after a random Gaussian projection of the columns."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyarms.kernels import Linear
from manyarms.numbers import whole
from manyarms.policies.features import FeatureMap, Features
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, ArrayLike, Seed


class CBRAP(Features):
    """The linear bandit on φ(x) = Mx, M (m, d) with entries N(0, 1/m), m fixed beforehand: O(A·m + m²) a step.

    E φ(x)ᵀφ(y) = xᵀy, within O(√(ln A/m)) for all pairs of arms. Guarantee: none of no regret. f(x) = xᵀθ is not linear in φ(x)
    when m < d: the part of it that no weights represent costs regret linear in T, as in the authors' own bound.

    dimension : m, columns after the projection.
    The other parameters: `OFUL`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        *,
        dimension: int,
        regularization: float = 0.01,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.dimension = whole(dimension, "dimension")
        super().__init__(arms, Linear(), regularization=regularization, confidence=confidence, choice=choice, seed=seed)

    def _feature_map(self, rng: np.random.Generator) -> FeatureMap:
        shape = self.dimension, self.arms.shape[1]
        return Projection(rng.standard_normal(shape) / np.sqrt(self.dimension))


@dataclass(frozen=True)
class Projection:
    """φ(x) = Mx."""

    M: Array  # (m, d)

    def __call__(self, X: Array) -> Array:
        return np.asarray(X, dtype=np.float64) @ self.M.T
