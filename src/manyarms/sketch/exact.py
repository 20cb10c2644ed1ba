"""The exact posterior on counts instead of repeated rows.

Eqs. (1) and (2) of the paper, with the 1/λ that (2) lacks:

μ(x) = k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ (s/n),   σ²(x) = (k(x, x) − k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ k_U(x))/λ
"""

from dataclasses import dataclass

import numpy as np

from manyarms.kernels import Kernel
from manyarms.sketch.embedding import ridged_factor
from manyarms.sketch.linalg import chunks, solve_lower
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

    def coordinates(self, X: Array) -> Array:
        """E = G⁻¹ k_U(X), shape (u, n): λσ²(x) = k(x, x) − ‖e(x)‖² and μ(x) = e(x)ᵀ G⁻¹(s/n)."""
        return solve_lower(self.G, self.kernel(X, self.rows).T)

    def moments(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ(x) and σ²(x) (leverage units) for every row of X; `diag` holds k(x, x)."""
        mean = np.empty(len(X))
        variance = np.empty(len(X))
        for rows in chunks(len(X), len(self.b)):
            E = self.coordinates(X[rows])
            mean[rows] = E.T @ self.b
            left = diag[rows] - np.einsum("ij,ij->j", E, E)
            variance[rows] = np.maximum(left, 0.0) / self.regularization
        return mean, variance
