"""The score u(x) = μ̃(x) + β̃σ̃(x) of any row, with its gradient: what a maximiser is given."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyarms.engine.embedding import columns
from manyarms.engine.frozen import Engine
from manyarms.engine.growing import Triangle
from manyarms.engine.linalg import TINY, squares
from manyarms.kernels import Kernel
from manyarms.lapack import in_one_thread
from manyarms.typing import Array

ROUNDED_VARIANCE = 1e-14
"""σ̃², in units of k(x, x)/λ, below which it is rounding, some 50 ε: ∇u divides by σ̃."""
SCORED_EACH = 2
"""Rows of each kind that are scored for one incumbent: largest mean is not yet largest u."""

NUMBERS_AT_ONCE = 1 << 22
"""Entries of a kernel matrix of rows and W that are in memory at once: 32 MB."""


@dataclass(frozen=True)
class Score:
    """u = μ̃ + β̃σ̃ of any rows, by value: what a maximiser is given.

    With the inducing rows W, k = k_W(x), z = L⁻¹k and J = ∂k/∂x:

    μ̃ = kᵀα,  σ̃² = r/λ + zᵀV⁻¹z,  ∇u = Jᵀ(α − β̃/(λσ̃)·L⁻ᵀ(z − λV⁻¹z)) + β̃/(2λσ̃)·∇k(x, x).

    Own parts add v/λ to σ̃² at rows never tried, which is all but finitely many.

    Parameters
    ----------
    belief : Frozen or Owned
        What is known of f; pulls may be supposed in it.
    beta : float
        β̃.
    recent : ndarray, (k, d)
        Rows told last, to start from.
    rewards : ndarray, (k,)
        Their rewards.
    barred : frozenset of bytes
        Rows, as bytes, that must not be chosen: u is −∞ there.
    """

    belief: Engine
    beta: float
    recent: Array
    rewards: Array
    barred: frozenset[bytes] = frozenset()

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
        base = self.belief.base
        return base.L.solve_transposed(base.w)

    @in_one_thread
    def __call__(self, X: Array) -> Array:
        """u at the rows of X (n, d), by blocks, (n,)."""
        size = max(1, NUMBERS_AT_ONCE // max(1, len(self.belief.W)))
        blocks = [self._parts(X[start : start + size])[0] for start in range(0, len(X), size)]
        values = np.concatenate([np.zeros(0), *blocks])
        if self.barred:
            values[[row.tobytes() in self.barred for row in X]] = -np.inf
        return values

    def gradient(self, X: Array) -> Array:
        """∇u at the rows of X (n, d), (n, d)."""
        return self.both(X)[1]

    @in_one_thread
    def both(self, X: Array) -> tuple[Array, Array]:
        """u (n,) and ∇u (n, d)."""
        values, sigma, Z, half = self._parts(X)
        base = self.belief.base
        lam = base.regularization
        # λσ̃² = k(x, x) − ‖z‖² + λzᵀV⁻¹z, so ∇σ̃ = (½∇k(x, x) − JᵀL⁻ᵀ(z − λV⁻¹z))/(λσ̃).
        slope = (self.beta / (lam * sigma))[:, None]
        explained = base.L.solve_transposed(Z - lam * self._C.solve_transposed(half)).T
        moved = base.kernel.gradient(X, base.W, self.alpha - slope * explained)
        return values, moved + 0.5 * slope * base.kernel.diag_gradient(X)

    @cached_property
    def _C(self) -> Triangle:
        """The factor of V with nothing waiting beside it: many rows are scored."""
        return self.belief.base.factor.folded.C

    def _parts(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """u (n,), σ̃ (n,), z (m, n) and C⁻¹z (m, n), V = CCᵀ."""
        belief = self.belief
        base = belief.base
        lam = base.regularization
        diag = base.kernel.diag(X)
        Z = base.L.solve(columns(base.kernel, base.W, X))
        half = self._C.solve(Z)
        left_out = np.maximum(diag - squares(Z), 0.0)  # r(x)
        least = ROUNDED_VARIANCE * np.maximum(diag, TINY / ROUNDED_VARIANCE)
        variance = np.maximum(left_out + lam * squares(half), least) / lam
        mean = base.w @ Z
        if belief.tried is not None:
            mean, variance = belief.corrected(mean, variance, belief.tried.places(X))
        sigma = np.sqrt(variance)
        return mean + self.beta * sigma, sigma, Z, half

    @in_one_thread
    def incumbents(self, n: int) -> Array:
        """n rows of large u, (≤ n, d): inducing ones, or told last and of large reward."""
        base = self.belief.base
        mean = base.L.upper.T @ base.w  # K_WW α
        inducing = base.W[np.argsort(-mean, kind="stable")[: SCORED_EACH * n]]
        told = self.recent[np.argsort(-self.rewards, kind="stable")[: SCORED_EACH * n]]
        X = np.unique(np.vstack([inducing, told]), axis=0)  # a row may be both
        return self.top(X, n)

    def top(self, X: Array, n: int) -> Array:
        """The n rows of X of largest u, largest first, (≤ n, d)."""
        return np.asarray(X[np.argsort(-self(X), kind="stable")[:n]])

    def improved(self, X: Array, values: Array, changed: Array) -> tuple[Array, Array]:
        """Each row of X (n, d) or, where its u is larger, the best of the rows (n, k, d) that it
        may change to; and their u, (n,)."""
        scores = self(changed.reshape(-1, X.shape[1])).reshape(len(X), -1)
        each = np.arange(len(X))
        best = np.argmax(scores, axis=1)
        reached = scores[each, best]
        gains = reached > values
        return np.where(gains[:, None], changed[each, best], X), np.where(gains, reached, values)
