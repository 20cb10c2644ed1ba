"""The exact posterior, Eqs. (1) and (2) with the 1/λ that (2) lacks, on counts instead of repeated rows.

μ(x) = k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ (s/n),   σ²(x) = (k(x, x) − k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ k_U(x))/λ
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from manyarms.kernels import Kernel
from manyarms.sketch.embedding import ridged_factor
from manyarms.sketch.linalg import cholesky, chunks, solve_lower, solve_transposed, squares
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

    def appended(self, more: Observations) -> "ExactPosterior":
        """The posterior given other rows as well, O(u²) each: G and G⁻¹(s/n) keep what they have and grow."""
        E = self.coordinates(more.rows)
        T = self.kernel(more.rows, more.rows) - E.T @ E
        T[np.diag_indices_from(T)] += self.regularization / more.counts
        u, n = len(self.rows), len(self.rows) + len(more.rows)
        G = np.zeros((n, n), order="F")
        G[:u, :u], G[u:, :u], G[u:, u:] = self.G, E.T, cholesky(T)
        b = solve_lower(G[u:, u:], more.sums / more.counts - E.T @ self.b)
        return ExactPosterior(self.kernel, np.vstack([self.rows, more.rows]), self.regularization, G, np.append(self.b, b))

    @property
    def basis(self) -> Array:
        """The rows B of μ(x) = k_B(x)ᵀα and λσ²(x) = k(x, x) − k_B(x)ᵀQk_B(x)."""
        return self.rows

    @cached_property
    def weights(self) -> Array:
        """α = (K_UU + λN⁻¹)⁻¹(s/n), (u,)."""
        return solve_transposed(self.G, self.b.copy())

    def halves(self, K: Array) -> Array:
        """G⁻¹Kᵀ, (u, n), for K = k(X, B): what `variance` and `explained` take."""
        return solve_lower(self.G, np.array(K.T, order="F"))

    def variance(self, halves: Array, diag: Array) -> Array:
        """σ²(x), (n,); `diag` holds k(x, x)."""
        return np.maximum(diag - squares(halves), 0.0) / self.regularization

    def explained(self, halves: Array) -> Array:
        """KQ, (n, u): Q = (K_UU + λN⁻¹)⁻¹."""
        return solve_transposed(self.G, np.array(halves, order="F")).T

    def variance_at_rows(self, counts: Array) -> Array:
        """σ² at the rows, (u,): as K(K + λN⁻¹)⁻¹ = I − λN⁻¹Q, it is 1/n − λQ_uu/n², Q_uu the squares of a column of G⁻¹."""
        inverse = np.asarray(lapack.dtrtri(self.G, lower=1)[0])
        return np.maximum(1.0 / counts - self.regularization * squares(inverse) / np.square(counts), 0.0)

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
