"""Ridge regression on explicit features φ(x): V = λI + Σ ω φφᵀ = CCᵀ, w = V⁻¹ Σ ω y φ.

μ(x) = φ(x)ᵀw and σ²(x) = φ(x)ᵀV⁻¹φ(x) are the exact posterior of the kernel φ(x)ᵀφ(y). An
observation costs O(m²) for V, and O(A·m) for the variances of A arms. Those are lowered from what
they were: with Y the rows √ω φ just observed,

    (V + YᵀY)⁻¹ = V⁻¹ − V⁻¹Yᵀ (I + YV⁻¹Yᵀ)⁻¹ YV⁻¹.

No variance shrinks by more than det V_t/det V_τ since a time τ (Abbasi-Yadkori et al. 2011, Lemma
12). So they are computed anew, O(A·m²), whenever that ratio exceeds `SHRUNK`. That happens at most
log det(V/λ)/ln SHRUNK times, and subtracting never costs digits.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack, norm

from manyarms.errors import NumericalError
from manyarms.sketch.linalg import (
    TINY,
    cholesky,
    chunks,
    solve_lower,
    solve_transposed,
    updated_cholesky,
)
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
        C, rotated = updated_cholesky(self.C, Y, self.c[:, None])
        with np.errstate(over="ignore", invalid="ignore"):
            c = rotated[:, 0] + solve_lower(C, Y.T @ (roots * rewards))
        if not (np.isfinite(C).all() and np.isfinite(c).all()):
            raise NumericalError("the posterior is not finite in float64; rescale the rewards")
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
    def spread(self) -> float:
        """σ of ⟨θ, w/‖w‖⟩: √(wᵀV⁻¹w)/‖w‖."""
        return float(norm(solve_lower(self.C, self.w.copy()))) / max(float(norm(self.w)), TINY)

    @property
    def dimension(self) -> float:
        """Σ ω σ²(x_s) over what was observed: m − λ Tr V⁻¹."""
        inverse, _ = lapack.dtrtri(self.C, lower=1)
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
