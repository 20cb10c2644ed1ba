"""Ridge regression on explicit features φ(x) of all arms: V = λI + Σ n φφᵀ = CCᵀ, w = V⁻¹ Σ s φ.

μ(x) = φ(x)ᵀw and σ²(x) = φ(x)ᵀV⁻¹φ(x), the exact posterior of the kernel φ(x)ᵀφ(y). An observation is O(m²) for V and O(A·m)
for the variances of all arms, which are lowered from what they were: with Y the rows √n φ just observed,

    (V + YᵀY)⁻¹ = V⁻¹ − V⁻¹Yᵀ (I + YV⁻¹Yᵀ)⁻¹ YV⁻¹.

No variance shrinks by more than det V_t/det V_τ since a time τ (Abbasi-Yadkori et al. 2011, Lemma 12), so they are computed
anew, O(A·m²), whenever that ratio exceeds `SHRUNK`, at most log det(V/λ)/ln SHRUNK times: subtracting never costs digits.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import norm

from manyarms.errors import NumericalError
from manyarms.sketch.linalg import cholesky, chunks, solve_lower, solve_transposed, updated_cholesky
from manyarms.typing import Array, Indices

SHRUNK = 16.0
"""Growth of det V after which the variances of all arms are computed anew."""


@dataclass(frozen=True)
class Ridge:
    """The regression after some observations; another observation gives another value."""

    features: Array  # Φ, (A, m)
    regularization: float
    C: Array  # (m, m)
    c: Array  # (m,) C⁻¹ Σ s φ
    variance: Array  # (A,) σ²
    settled: float  # log det(V/λ) when the variances were computed last

    @classmethod
    def prior(cls, features: Array, regularization: float) -> "Ridge":
        """Nothing observed: V = λI."""
        m = features.shape[1]
        C = np.asfortranarray(np.sqrt(regularization) * np.eye(m))
        return cls(features, regularization, C, np.zeros(m), _leverage(C, features), 0.0)

    def observed(self, arms: Indices, rewards: Array, weights: Array) -> "Ridge":
        """The regression with these observations, each arm once."""
        Y = np.sqrt(weights)[:, None] * self.features[arms]
        C, rotated = updated_cholesky(self.C, Y, self.c[:, None])
        with np.errstate(over="ignore", invalid="ignore"):
            c = rotated[:, 0] + solve_lower(C, Y.T @ (np.sqrt(weights) * rewards))
        if not (np.isfinite(C).all() and np.isfinite(c).all()):
            raise NumericalError("the posterior is not finite in float64; rescale the rewards")
        grown = _log_det(C, self.regularization)
        if len(arms) < len(C) and grown - self.settled <= np.log(SHRUNK):
            return Ridge(self.features, self.regularization, C, c, self._lowered(Y), self.settled)
        return Ridge(self.features, self.regularization, C, c, _leverage(C, self.features), grown)

    def _lowered(self, Y: Array) -> Array:
        """The variances of all arms once the rows of Y (k, m) are added to V."""
        G = solve_lower(self.C, Y.T.copy())
        L = cholesky(np.eye(len(Y)) + G.T @ G)
        H = solve_lower(L, (self.features @ solve_transposed(self.C, G)).T)
        return np.asarray(np.maximum(self.variance - np.einsum("ij,ij->j", H, H), 0.0))

    @cached_property
    def w(self) -> Array:
        """V⁻¹ Σ s φ, (m,)."""
        return solve_transposed(self.C, self.c.copy())

    @cached_property
    def mean(self) -> Array:
        """μ of all arms, (A,)."""
        return _product(self.features, self.w)

    @property
    def norm(self) -> float:
        """‖w‖."""
        return float(norm(self.w))

    @property
    def information(self) -> float:
        """log det(V/λ)."""
        return _log_det(self.C, self.regularization)

    def deviation(self, normal: Array) -> Array:
        """φ(x)ᵀV^{−½}g of all arms (A,), for g (m,) standard normal: one joint draw of variances σ²."""
        return self.features @ solve_transposed(self.C, normal.copy())

    def moments(self, features: Array) -> tuple[Array, Array]:
        """μ and σ² at other rows, given their features (n, m)."""
        return _product(features, self.w), _leverage(self.C, features)


def _leverage(C: Array, features: Array) -> Array:
    """φᵀV⁻¹φ = ‖C⁻¹φ‖² for every row of features."""
    variance = np.empty(len(features))
    for rows in chunks(len(features), len(C)):
        B = solve_lower(C, np.array(features[rows].T, order="F"))
        variance[rows] = np.einsum("ij,ij->j", B, B)
    return variance


def _log_det(C: Array, regularization: float) -> float:
    return float(2 * np.log(np.diag(C)).sum() - len(C) * np.log(regularization))


def _product(features: Array, w: Array) -> Array:
    """Φw; not finite, and no warning, where rewards are beyond float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(features @ w)
