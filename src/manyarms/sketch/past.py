"""A table of past observations that became part of the prior: sums over its rows, which are not looked at again.

Let P₀ project on the span of a dictionary W₀ drawn from the table, Φ its rows. P₀ΦᵀΦP₀ + λI is within α of ΦᵀΦ + λI where W₀ is
as Theorem 1 asks, and stays so when the same is added to both. So for later steps the table is a prior accurate within α, held
in O(m²) numbers. Inducing arms that are appended are orthogonal to P₀Φ: the sums are padded with zeros.
"""

from dataclasses import dataclass

import numpy as np

from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History
from manyarms.sketch.linalg import solve_lower
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class Past:
    """Sums over the rows of a table, in the coordinates of the dictionary drawn from it."""

    history: History  # what the table holds
    inducing: Indices  # (m,) W₀
    embedding: Embedding
    V: Array  # (m, m) Σ n z zᵀ
    b: Array  # (m,) Σ s z
    residual: float  # Σ n r/λ

    def on(self, embedding: Embedding) -> tuple[Array, Array]:
        """V and b in the coordinates of another embedding whose span holds W₀."""
        m, n = len(self.b), len(embedding.L)
        if embedding.extends(self.embedding):
            return np.pad(self.V, (0, n - m)), np.pad(self.b, (0, n - m))
        # Columns of T are the basis of W₀'s span in the other coordinates: T = L⁻¹ K_{WW₀} L₀⁻ᵀ.
        K = embedding.kernel(self.embedding.inducing_rows, embedding.inducing_rows)
        T = solve_lower(embedding.L, solve_lower(self.embedding.L, np.asfortranarray(K)).T)
        return T @ self.V @ T.T, T @ self.b
