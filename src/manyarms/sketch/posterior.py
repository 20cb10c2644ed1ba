"""The sketched posterior: μ̃ and the DTC variance σ̃² of the paper's Eq. (3), streamed over rows."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import norm

from manyarms.errors import NumericalError
from manyarms.kernels import Kernel
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.linalg import TINY, cholesky, chunks, solve_cholesky, solve_lower
from manyarms.typing import Array


@dataclass(frozen=True)
class Posterior:
    """Linear regression on the embedding: V = Σ n z zᵀ + λI = CCᵀ, w = V⁻¹ Σ s z."""

    embedding: Embedding
    regularization: float
    C: Array  # (m, m)
    w: Array  # (m,)

    @classmethod
    def prior(cls, kernel: Kernel, n_features: int, regularization: float) -> "Posterior":
        """Nothing observed: an empty dictionary, μ̃ = 0 and σ̃² = k(x, x)/λ."""
        nowhere = Embedding(kernel, np.zeros((0, n_features)), np.zeros((0, 0)))
        return cls(nowhere, regularization, np.zeros((0, 0)), np.zeros(0))

    @classmethod
    def solve(
        cls, embedding: Embedding, Z: Array, counts: Array, sums: Array, regularization: float
    ) -> "Posterior":
        """The posterior given embeddings Z (u, m) of the rows observed, and their n and s (u,)."""
        V = (Z * counts[:, None]).T @ Z
        V[np.diag_indices_from(V)] += regularization
        C = cholesky(V)
        w = solve_cholesky(C, Z.T @ sums)
        if not np.isfinite(w).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        return cls(embedding, regularization, C, w)

    @property
    def log_det(self) -> float:
        """ln det(V/λ)."""
        return float(2 * np.log(np.diag(self.C) / np.sqrt(self.regularization)).sum())

    @property
    def norm(self) -> float:
        """‖μ̃‖ in the RKHS: z is isometric on the span of the inducing arms, so it is ‖w‖."""
        return float(norm(self.w))

    @property
    def spread(self) -> float:
        """σ̃ of ⟨f, μ̃/‖μ̃‖⟩: √(wᵀV⁻¹w)/‖w‖."""
        return float(norm(solve_lower(self.C, self.w.copy()))) / max(self.norm, TINY)

    def moments(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃(x) = z(x)ᵀw and σ̃²(x) = r(x)/λ + ‖C⁻¹z(x)‖² for every row of X; `diag` holds k(x, x).

        The paper writes σ̃² = (k(x, x) − zᵀZᵀZV⁻¹z)/λ. With ZᵀZ = V − λI that is r/λ + zᵀV⁻¹z: the
        part outside the span of the dictionary, which no observation shrinks, and the part inside.
        Both are non-negative but for rounding.
        """
        mean = np.empty(len(X))
        variance = np.empty(len(X))
        for rows in chunks(len(X), len(self.w)):
            Z, r = self.embedding(X[rows], diag[rows])
            mean[rows] = Z @ self.w
            B = solve_lower(self.C, Z.T)
            variance[rows] = np.maximum(r / self.regularization + np.einsum("ij,ij->j", B, B), 0.0)
        return mean, variance
