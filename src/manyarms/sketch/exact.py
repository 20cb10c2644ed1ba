"""The exact posterior, Eqs. (1) and (2) with the 1/λ that (2) lacks, on counts instead of repeated rows.

μ(x) = k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ (s/n),   σ²(x) = (k(x, x) − k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ k_U(x))/λ
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from manyarms.kernels import Kernel
from manyarms.sketch.embedding import ridged_factor
from manyarms.sketch.linalg import chunks, solve_lower, solve_transposed
from manyarms.sketch.observations import Observations
from manyarms.typing import Array


@dataclass(frozen=True)
class ExactPosterior:
    """The factor GGᵀ = K_UU + λN⁻¹ and G⁻¹(s/n)."""

    kernel: Kernel
    rows: Array  # (u, d)
    regularization: float
    G: Array  # (u, u)
    b: Array  # (u,)

    @classmethod
    def fit(cls, kernel: Kernel, observed: Observations, regularization: float) -> "ExactPosterior":
        """The posterior given what was observed."""
        rows, _, counts, sums = observed
        G = ridged_factor(kernel, rows, regularization / counts)
        return cls(kernel, rows, regularization, G, solve_lower(G, sums / counts))

    @property
    def basis(self) -> Array:
        """The rows B of μ(x) = k_B(x)ᵀα and λσ²(x) = k(x, x) − k_B(x)ᵀQk_B(x)."""
        return self.rows

    @cached_property
    def weights(self) -> Array:
        """α = (K_UU + λN⁻¹)⁻¹(s/n), (u,)."""
        return solve_transposed(self.G, self.b.copy())

    @cached_property
    def _inverse(self) -> Array:
        """Q = (K_UU + λN⁻¹)⁻¹."""
        lower = np.asarray(lapack.dpotri(self.G, lower=1)[0])  # zero above the diagonal, as G is
        Q = lower + lower.T
        Q[np.diag_indices_from(Q)] /= 2
        return Q

    def explained(self, K: Array) -> Array:
        """KQ, (n, u), for K = k(X, B)."""
        return np.asarray(K @ self._inverse)

    def variance_at_rows(self, counts: Array) -> Array:
        """σ² at the rows, (u,): as K(K + λN⁻¹)⁻¹ = I − λN⁻¹Q, it is 1/n − λQ_uu/n²."""
        return np.maximum(1.0 / counts - self.regularization * np.diag(self._inverse) / np.square(counts), 0.0)

    def coordinates(self, X: Array) -> Array:
        """E = G⁻¹ k_U(X), shape (u, n): λσ²(x) = k(x, x) − ‖e(x)‖² and μ(x) = e(x)ᵀ G⁻¹(s/n)."""
        return solve_lower(self.G, self.kernel(X, self.rows).T)

    def moments(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ(x) and σ²(x) (leverage units) for every row of X; `diag` holds k(x, x)."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for rows in chunks(len(X), len(self.b)):
            E = self.coordinates(X[rows])
            mean[rows] = E.T @ self.b
            variance[rows] = np.maximum(diag[rows] - np.einsum("ij,ij->j", E, E), 0.0) / self.regularization
        return mean, variance
