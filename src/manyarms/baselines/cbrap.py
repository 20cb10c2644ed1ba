"""CBRAP (Yu, Lyu, King; AAAI 2017): OFUL after a random Gaussian projection of the columns."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyarms.baselines.features import chosen_by
from manyarms.beliefs.base import Arms
from manyarms.beliefs.linear import OnFeatures
from manyarms.kernels import Kernel, Linear
from manyarms.numbers import whole
from manyarms.policies.policy import Policy
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, ArrayLike, Seed


class CBRAP(Policy):
    """The linear bandit on φ(x) = Mx, M (m, d) with entries N(0, 1/m): O(A·m + m²) a step.

    E φ(x)ᵀφ(y) = xᵀy, within O(√(ln A/m)) for all pairs of arms. Guarantee: none of no regret. f(x)
    = xᵀθ is not linear in φ(x) when m < d: the part of it that no weights represent costs regret
    linear in T, as in the authors' own bound.

    dimension : m, columns after the projection.
    The other parameters: `OFUL`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        *,
        dimension: int,
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        self.dimension = whole(dimension, "dimension")
        super().__init__(
            arms,
            Linear(),
            rule=OnFeatures(self._projection),
            regularization=regularization,
            noise=noise,
            seed=seed,
            **chosen_by(choice, confidence),
        )

    def _projection(self, kernel: Kernel, arms: Arms, rng: np.random.Generator) -> "Projection":
        shape = (self.dimension, arms.rows.shape[1])
        return Projection(rng.standard_normal(shape) / np.sqrt(self.dimension))


@dataclass(frozen=True)
class Projection:
    """φ(x) = Mx."""

    M: Array  # (m, d)

    def __call__(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return np.asarray(X, dtype=np.float64) @ self.M.T, np.zeros(len(X))
