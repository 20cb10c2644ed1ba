"""The score u(x) = μ̃(x) + β̃σ̃(x) of any row, with its gradient: what a maximiser is given."""

from dataclasses import dataclass

import numpy as np

from manyarms.domains.pulled import Pulled
from manyarms.typing import Array

SMALLEST = 1e-14
"""σ̃² of k(x, x)/λ below which it is rounding."""


@dataclass(frozen=True)
class Score:
    """With the basis rows B of the posterior, k = k_B(x) and J = ∂k/∂x:

    μ̃ = kᵀα,  λσ̃² = k(x, x) − kᵀQk,  ∇u = Jᵀ(α − β̃/(λσ̃)·Qk) + β̃/(2λσ̃)·∇k(x, x).
    """

    pulled: Pulled
    beta: float

    @property
    def differentiable(self) -> bool:
        """`gradient` works."""
        return self.pulled.kernel.differentiable

    def __call__(self, X: Array) -> Array:
        """u at the rows of X (n, d), (n,)."""
        return self._parts(X)[0]

    def gradient(self, X: Array) -> Array:
        """∇u at the rows of X (n, d), (n, d)."""
        return self.both(X)[1]

    def both(self, X: Array) -> tuple[Array, Array]:
        """u (n,) and ∇u (n, d)."""
        values, sigma, halves = self._parts(X)
        kernel, posterior, lam = self.pulled.kernel, self.pulled.posterior, self.pulled.regularization
        slope = (self.beta / (lam * sigma))[:, None]
        V = posterior.weights - slope * posterior.explained(halves)
        return values, kernel.gradient(X, posterior.basis, V) + 0.5 * slope * kernel.diag_gradient(X)

    def _parts(self, X: Array) -> tuple[Array, Array, Array]:
        """u (n,), σ̃ (n,) and what KQ is made of."""
        pulled, posterior = self.pulled, self.pulled.posterior
        diag = pulled.kernel.diag(X)
        K = pulled.kernel(posterior.basis, X).T  # a kernel of few right-hand rows costs least
        least = SMALLEST / pulled.regularization * np.maximum(diag, 1e-300)
        halves = posterior.halves(K)
        sigma = np.sqrt(np.maximum(posterior.variance(halves, diag), least))
        return K @ posterior.weights + self.beta * sigma, sigma, halves

    def incumbents(self, n: int) -> Array:
        """The n rows pulled of largest u, (≤ n, d): O(um), as their variances are known."""
        pulled, posterior = self.pulled, self.pulled.posterior
        mean = pulled.kernel(posterior.basis, pulled.rows).T @ posterior.weights
        return pulled.rows[np.argsort(-(mean + self.beta * np.sqrt(pulled.variance)), kind="stable")[:n]]
