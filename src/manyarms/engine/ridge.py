"""Ridge regression on explicit features φ(x): V = λI + Σ ω φφᵀ = CCᵀ, w = V⁻¹ Σ ω y φ.

μ(x) = φ(x)ᵀw and σ²(x) = φ(x)ᵀV⁻¹φ(x) are the exact posterior of the kernel φ(x)ᵀφ(y). An
observation costs O(m²) for V, and O(A·m) for the variances of A arms. Those are lowered from what
they were: with Y the rows √ω φ just observed,

    (V + YᵀY)⁻¹ = V⁻¹ − V⁻¹Yᵀ (I + YV⁻¹Yᵀ)⁻¹ YV⁻¹.

No variance shrinks by more than det V_t/det V_τ since a time τ (Abbasi-Yadkori et al. 2011, Lemma
12). So they are computed anew, O(A·m²), whenever that ratio exceeds `SHRUNK`. That happens at most
log det(V/λ)/ln SHRUNK times, and subtracting never costs digits.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from manyarms.engine.linalg import (
    TINY,
    check_finite,
    cholesky,
    chunks,
    solve_lower,
    solve_transposed,
    updated_cholesky,
)
from manyarms.lapack import in_one_thread, lapack, linalg
from manyarms.typing import Array

SHRUNK = 16.0
"""Growth of det V after which variances are computed anew: they lose little more than a digit."""


@dataclass(frozen=True)
class Ridge:
    """The regression after some observations. Another observation gives another value."""

    regularization: float
    C: Array  # (m, m)
    c: Array  # (m,) C⁻¹ Σ ω y φ
    last: tuple[Array, Array] | None = None  # C before the last observation, and its rows Y (k, m)

    @classmethod
    def prior(cls, regularization: float, m: int) -> "Ridge":
        """Nothing observed: V = λI."""
        C = np.asfortranarray(np.sqrt(regularization) * np.eye(m))
        return cls(regularization, C, np.zeros(m))

    def observed(self, features: Array, rewards: Array, weights: Array) -> "Ridge":
        """The regression with these observations, (k, m) and (k,)."""
        roots = np.sqrt(weights)
        Y = roots[:, None] * features
        # Σ ω y φ = Cc, so that C′⁻¹ of it and of what is new is c′.
        C, rotated = updated_cholesky(self.C, Y, self.c[:, None])
        with np.errstate(over="ignore", invalid="ignore"):
            c = rotated[:, 0] + solve_lower(C, Y.T @ (roots * rewards))
        check_finite(C)
        check_finite(c)
        return Ridge(self.regularization, C, c, (self.C, Y))

    def lowered(self, features: Array, variance: Array, settled: float) -> tuple[Array, float]:
        """σ² of rows (n, m) now, given those before the last observation.

        `settled` is log det(V/λ) when they were computed anew last; the second result is what it is
        now.
        """
        if self.last is None:
            return variance, settled
        C, Y = self.last
        if len(Y) >= len(C) or self.log_det - settled > np.log(SHRUNK):
            return self.leverage(features), self.log_det
        # NNᵀ = I + YV⁻¹Yᵀ, and φᵀV⁻¹Yᵀ(NNᵀ)⁻¹YV⁻¹φ = ‖N⁻¹YV⁻¹φ‖² is what σ² falls by.
        G = solve_lower(C, Y.T.copy())
        N = cholesky(np.eye(len(Y)) + G.T @ G)
        H = solve_lower(N, (features @ solve_transposed(C, G)).T)
        return np.asarray(np.maximum(variance - np.einsum("ij,ij->j", H, H), 0.0)), settled

    @cached_property
    def w(self) -> Array:
        """V⁻¹ Σ ω y φ, (m,)."""
        return solve_transposed(self.C, self.c.copy())

    @cached_property
    def log_det(self) -> float:
        """log det(V/λ)."""
        return float(2 * np.log(np.diag(self.C) / np.sqrt(self.regularization)).sum())

    @property
    def error(self) -> float:
        """V is exact."""
        return 0.0

    @property
    def dimension(self) -> float:
        """Σ ω σ²(x_s) over what was observed: m − λ Tr V⁻¹."""
        if not len(self.C):  # LAPACK takes no empty matrix, and says so on the terminal
            return 0.0
        inverse, _ = lapack.dtrtri(self.C, lower=1)  # Tr V⁻¹ = ‖C⁻¹‖²
        return float(len(self.C) - self.regularization * np.square(np.tril(inverse)).sum())

    def drawn(self, normal: Array) -> Array:
        """V^{−½}g of g (m,) standard normal: its covariance is V⁻¹."""
        return solve_transposed(self.C, normal.copy())

    def leverage(self, features: Array) -> Array:
        """σ² = ‖C⁻¹φ‖² of rows (n, m)."""
        variance = np.empty(len(features))
        for rows in chunks(len(features), len(self.C)):
            B = solve_lower(self.C, np.array(features[rows].T, order="F"))
            variance[rows] = np.einsum("ij,ij->j", B, B)
        return variance


@dataclass(frozen=True)
class SketchedRidge:
    """The same with Ṽ = λI + BᵀB in place of V, B of m rows: frequent directions.

    (Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016.)
    Rows of A, the √ω φ, are added to the sketch B; where more than m remain after a singular value
    decomposition, all squared singular values are lowered by the (m + 1)-th, ρ, and the m largest
    are kept. With ρ̄ the sum of the ρ so far,

        0 ⪯ AᵀA − BᵀB ⪯ ρ̄I,   ρ̄ ≤ ‖A − A_k‖²_F/(m + 1 − k) for every k ≤ m,

    A_k the best approximation of rank k: every shrink takes at least (m + 1)ρ from ‖B‖²_F, and at
    most kρ of that in the top k directions of A. Papers that count the row just added call this a
    sketch of m + 1 rows.
    """

    size: int  # m
    regularization: float
    values: Array  # (k,) v, not negative, largest first, k ≤ m: BᵀB = Σ_i v_i d_i d_iᵀ
    directions: Array  # (k, d) d_i, orthonormal
    lost: float  # ρ̄
    b: Array  # (d,) Σ ω y φ

    @classmethod
    def prior(cls, size: int, regularization: float, d: int) -> "SketchedRidge":
        """Nothing observed."""
        return cls(size, regularization, np.zeros(0), np.zeros((0, d)), 0.0, np.zeros(d))

    def observed(self, features: Array, rewards: Array, weights: Array) -> "SketchedRidge":
        """The regression with these observations, (k, d) and (k,); the sketch shrinks at most
        once."""
        m = self.size
        with np.errstate(over="ignore", invalid="ignore"):
            b = self.b + features.T @ (weights * rewards)
        rows = np.sqrt(weights)[:, None] * features
        B = np.vstack([np.sqrt(self.values)[:, None] * self.directions, rows])
        _, roots, directions = np.linalg.svd(B, full_matrices=False)
        values = np.square(roots)
        # Liberty's shrink: ρ, the (m + 1)-th squared singular value, is taken from all.
        shrink = float(values[m]) if len(values) > m else 0.0
        return replace(
            self,
            values=np.maximum(values[:m] - shrink, 0.0),
            directions=directions[:m],
            lost=self.lost + shrink,
            b=b,
        )

    def lowered(self, features: Array, variance: Array, settled: float) -> tuple[Array, float]:
        """σ̃² of rows (n, d), anew: a sketch that shrinks can raise them."""
        return self.leverage(features), settled

    @property
    def complete(self) -> bool:
        """The directions span all of the space."""
        return len(self.directions) == len(self.b)

    def power(self, x: Array, exponent: float) -> Array:
        """Ṽ^exponent x, (d,): the parts inside and outside the directions."""
        z = self.directions @ x
        inside = self.directions.T @ ((self.values + self.regularization) ** exponent * z)
        if self.complete:
            return np.asarray(inside)
        return np.asarray(inside + self.regularization**exponent * (x - self.directions.T @ z))

    def leverage(self, features: Array) -> Array:
        """σ̃² = φᵀṼ⁻¹φ of rows (n, d)."""
        Z = np.square(features @ self.directions.T)
        inside = np.asarray(Z @ (1 / (self.values + self.regularization)))
        if self.complete:
            return inside
        outside = np.einsum("ij,ij->i", features, features) - Z.sum(axis=1)
        return np.asarray(np.maximum(outside, 0.0) / self.regularization + inside)

    @cached_property
    def w(self) -> Array:
        """w̃ = Ṽ⁻¹b, (d,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.power(self.b, -1)

    @property
    def log_det(self) -> float:
        """A bound on log det(V/λ), by AᵀA ⪯ BᵀB + ρ̄I."""
        eigenvalues = np.zeros(len(self.b))  # of BᵀB, 0 outside its directions
        eigenvalues[: len(self.values)] = self.values
        return float(np.log1p((eigenvalues + self.lost) / self.regularization).sum())

    @property
    def error(self) -> float:
        """ρ̄/λ: no direction has lost more of V/λ."""
        return self.lost / self.regularization

    @property
    def dimension(self) -> float:
        """Tr BᵀB(λI + BᵀB)⁻¹, of the rows that the sketch stands for."""
        return float((self.values / (self.values + self.regularization)).sum())

    def drawn(self, normal: Array) -> Array:
        """Ṽ^{−½}g of g (d,) standard normal."""
        return self.power(normal, -0.5)


Regression = Ridge | SketchedRidge


@in_one_thread
def mean_norm(regression: Regression) -> tuple[float, float]:
    """‖w‖, and σ of ⟨θ, w/‖w‖⟩: what is known of the direction of the mean."""
    length = float(linalg.norm(regression.w))
    direction = regression.w / max(length, TINY)
    return length, float(np.sqrt(regression.leverage(direction[None])[0]))
