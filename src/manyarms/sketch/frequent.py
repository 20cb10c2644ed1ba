"""Frequent directions: AᵀA of a stream of rows, in m rows.

(Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016.)

Rows are added to the sketch B; where more than m remain after a singular value decomposition, all
squared singular values are lowered by the (m + 1)-th, ρ, and the m largest are kept. With ρ̄ the
sum of the ρ so far,

    0 ⪯ AᵀA − BᵀB ⪯ ρ̄I,   ρ̄ ≤ ‖A − A_k‖²_F/(m + 1 − k) for every k ≤ m,

A_k the best approximation of rank k: every shrink takes at least (m + 1)ρ from ‖B‖²_F, and at most
kρ of that in the top k directions of A. Papers that count the row just added call this a sketch of
m + 1 rows.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import norm

from manyarms.sketch.linalg import TINY
from manyarms.typing import Array


@dataclass(frozen=True)
class FrequentDirections:
    """B as BᵀB = Σ_i v_i d_i d_iᵀ, with orthonormal directions d_i."""

    size: int  # m
    values: Array  # (k,) v, not negative, largest first, k ≤ m
    directions: Array  # (k, d)
    error: float  # ρ̄

    @classmethod
    def empty(cls, size: int, n_columns: int) -> "FrequentDirections":
        """No rows yet."""
        return cls(size, np.zeros(0), np.zeros((0, n_columns)), 0.0)

    def add(self, rows: Array) -> "FrequentDirections":
        """The sketch with more rows (n, d) of A, shrunk at most once."""
        m = self.size
        B = np.vstack([np.sqrt(self.values)[:, None] * self.directions, rows])
        _, roots, directions = np.linalg.svd(B, full_matrices=False)
        values = np.square(roots)
        shrink = float(values[m]) if len(values) > m else 0.0
        return FrequentDirections(
            m, np.maximum(values[:m] - shrink, 0.0), directions[:m], self.error + shrink
        )

    @property
    def complete(self) -> bool:
        """The directions span all of the space."""
        k, d = self.directions.shape
        return bool(k == d)

    def power(self, x: Array, regularization: float, exponent: float) -> Array:
        """(λI + BᵀB)^exponent x, (d,)."""
        z = self.directions @ x
        inside = self.directions.T @ ((self.values + regularization) ** exponent * z)
        return (
            inside
            if self.complete
            else inside + regularization**exponent * (x - self.directions.T @ z)
        )

    def leverage(self, X: Array, regularization: float) -> Array:
        """xᵀ(λI + BᵀB)⁻¹x for every row of X: the parts outside and inside the directions."""
        Z = np.square(X @ self.directions.T)
        inside = Z @ (1 / (self.values + regularization))
        if self.complete:
            return np.asarray(inside)
        outside = np.einsum("ij,ij->i", X, X) - Z.sum(axis=1)
        return np.asarray(np.maximum(outside, 0.0) / regularization + inside)

    def log_det_bound(self, regularization: float) -> float:
        """A bound on log det(I + AᵀA/λ), by AᵀA ⪯ BᵀB + ρ̄I."""
        eigenvalues = np.zeros(self.directions.shape[1])
        eigenvalues[: len(self.values)] = self.values
        return float(np.log1p((eigenvalues + self.error) / regularization).sum())


@dataclass(frozen=True)
class SketchedRidge:
    """Ridge regression as in `sketch/ridge.py`, with Ṽ = λI + BᵀB of a sketch in place of V."""

    regularization: float
    sketch: FrequentDirections
    b: Array  # (d,) Σ ω y φ

    def observed(self, features: Array, rewards: Array, weights: Array) -> "SketchedRidge":
        """The regression with these observations, (k, d) and (k,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            b = self.b + features.T @ (weights * rewards)
        sketch = self.sketch.add(np.sqrt(weights)[:, None] * features)
        return SketchedRidge(self.regularization, sketch, b)

    def lowered(self, features: Array, variance: Array, settled: float) -> tuple[Array, float]:
        """σ̃² of rows (n, d), anew: a sketch that shrinks can raise them."""
        return self.leverage(features), settled

    @cached_property
    def w(self) -> Array:
        """w̃ = Ṽ⁻¹b, (d,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.sketch.power(self.b, self.regularization, -1)

    @property
    def log_det(self) -> float:
        """A bound on log det(V/λ)."""
        return self.sketch.log_det_bound(self.regularization)

    @property
    def error(self) -> float:
        """ρ̄/λ: no direction has lost more of V/λ."""
        return self.sketch.error / self.regularization

    @property
    def spread(self) -> float:
        """σ̃ of ⟨θ, w̃/‖w̃‖⟩."""
        half = self.sketch.power(self.w, self.regularization, -0.5)
        return float(norm(half)) / max(float(norm(self.w)), TINY)

    @property
    def dimension(self) -> float:
        """Tr BᵀB(λI + BᵀB)⁻¹, of the rows that the sketch stands for."""
        values = self.sketch.values
        return float((values / (values + self.regularization)).sum())

    def drawn(self, normal: Array) -> Array:
        """Ṽ^{−½}g of g (d,) standard normal."""
        return self.sketch.power(normal, self.regularization, -0.5)

    def leverage(self, features: Array) -> Array:
        """σ̃² of rows (n, d)."""
        return self.sketch.leverage(features, self.regularization)
