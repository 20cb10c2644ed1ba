"""The score u(x) = μ̃(x) + β̃σ̃(x) of any row, with its gradient: what a maximiser is given."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyarms.beliefs.frozen import Frozen
from manyarms.kernels import Kernel
from manyarms.sketch.factor import Half
from manyarms.typing import Array

SMALLEST = 1e-14
"""σ̃² of k(x, x)/λ below which it is rounding."""
SHORT = 8
"""Rows of largest mean that are scored for each incumbent."""


@dataclass(frozen=True)
class Score:
    """With the inducing rows W, k = k_W(x), z = L⁻¹k and J = ∂k/∂x:

    μ̃ = kᵀα,  σ̃² = r/λ + zᵀV⁻¹z,  ∇u = Jᵀ(α − β̃/(λσ̃)·L⁻ᵀ(z − λV⁻¹z)) + β̃/(2λσ̃)·∇k(x, x).
    """

    belief: Frozen
    beta: float
    recent: Array  # (k, d) rows told last

    @property
    def kernel(self) -> Kernel:
        """k."""
        return self.belief.kernel

    @property
    def differentiable(self) -> bool:
        """`gradient` works."""
        return self.kernel.differentiable

    @cached_property
    def alpha(self) -> Array:
        """α = L⁻ᵀw, (m,): μ̃ = Σ α_i k(w_i, ·)."""
        return self.belief.L.solve_transposed(self.belief.w)

    def __call__(self, X: Array) -> Array:
        """u at the rows of X (n, d), (n,)."""
        return self._parts(X)[0]

    def gradient(self, X: Array) -> Array:
        """∇u at the rows of X (n, d), (n, d)."""
        return self.both(X)[1]

    def both(self, X: Array) -> tuple[Array, Array]:
        """u (n,) and ∇u (n, d)."""
        values, sigma, Z, half = self._parts(X)
        belief = self.belief
        lam = belief.regularization
        slope = (self.beta / (lam * sigma))[:, None]
        explained = belief.L.solve_transposed(Z.T - lam * belief.factor.C.solve_transposed(half.c)).T
        moved = self.kernel.gradient(X, belief.W, self.alpha - slope * explained)
        return values, moved + 0.5 * slope * self.kernel.diag_gradient(X)

    def _parts(self, X: Array) -> tuple[Array, Array, Array, Half]:
        """u (n,), σ̃ (n,), z (n, m) and half of it."""
        belief = self.belief
        diag = self.kernel.diag(X)
        Z, r = belief.features(X, diag)
        half = belief.factor.half(Z.T)
        least = SMALLEST / belief.regularization * np.maximum(diag, 1e-300)
        sigma = np.sqrt(np.maximum(r / belief.regularization + half.quad, least))
        return Z @ belief.w + self.beta * sigma, sigma, Z, half

    def incumbents(self, n: int) -> Array:
        """The n rows of largest u, (≤ n, d), among inducing rows and those told last: of those of largest mean."""
        W = self.belief.W
        X = np.unique(np.vstack([W, self.recent]), axis=0)
        mean = self.kernel(W, X).T @ self.alpha
        X = X[np.argsort(-mean, kind="stable")[: SHORT * n]]
        return np.asarray(X[np.argsort(-self(X), kind="stable")[:n]])
