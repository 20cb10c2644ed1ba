"""The Nyström embedding z(x) = L⁻¹ k_S(x) and its residual r(x) = k(x, x) − ‖z(x)‖²."""

from dataclasses import dataclass

import numpy as np

from manyarms.engine.linalg import EPS, cholesky, pivoted_cholesky, solve_lower, solve_transposed
from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import shown
from manyarms.typing import Array, Indices

PSD_TOLERANCE = 1e-6
"""Of κ². A residual below −1e-6·κ² is no rounding error, which is some 1e-13·κ² for m = 1,000, nor
that of a kernel computed in float32 (1e-7): the kernel is not positive semi-definite."""
ROUNDINGS = 10
"""Rounding errors, of each of m terms, that a residual may be off by: ten times the usual bound."""


@dataclass(frozen=True)
class Embedding:
    """Projection on the span of the inducing rows.

    It is the paper's (K_S^{1/2})⁺ k_S(·) up to a rotation, on which nothing depends.
    """

    kernel: Kernel
    inducing_rows: Array  # (m, d)
    L: Array  # (m, m)

    @classmethod
    def fit(
        cls, kernel: Kernel, rows: Array, tolerance: float | None
    ) -> tuple["Embedding", Indices]:
        """The embedding of a dictionary, and which of its rows it rests on.

        They are those whose residual exceeds the tolerance.
        Without a tolerance all rows stay, the smallest pivots held at ε·κ². Dropping a
        near-duplicate moves the mean by the *root* of its residual times the difference of its
        rewards: too much where the posterior is to be the exact one.
        """
        K = kernel(rows, rows)
        check_covariance(K, rows, kernel)
        kappa2 = float(np.diag(K).max())
        keep_all = tolerance is None and kappa2 > 0
        L, kept, residual = pivoted_cholesky(
            K, EPS * kappa2 if tolerance is None else tolerance, keep_all=keep_all
        )
        worst = int(residual.argmin())
        if residual[worst] < -PSD_TOLERANCE * kappa2:
            raise not_positive(
                kernel, rows[worst], residual[worst], rows[kept[np.abs(K[worst, kept]).argmax()]]
            )
        return cls(kernel, rows[kept], L), kept

    def __call__(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """z(x) (n, m) and r(x) = k(x, x) − ‖z(x)‖² (n,) for every row of X; `diag` holds k(x, x).

        r is not negative but for rounding, which a small pivot ρ² magnifies by κ²/ρ². It is not
        clamped: the error in z that makes r too small makes zᵀV⁻¹z too large by as much, up to the
        bound ε·κ²·n_max/λ of the sum.
        """
        if not len(self.L):
            return np.zeros((len(X), 0)), diag
        Z = solve_lower(self.L, self.kernel(X, self.inducing_rows).T).T
        r = diag - np.einsum("ij,ij->i", Z, Z)
        self._check_residual(X, diag, Z, r)
        return Z, r

    def _check_residual(self, X: Array, diag: Array, Z: Array, r: Array) -> None:
        """Raise KernelError where the smallest residual is negative beyond rounding.

        r = k(x, x) − 2aᵀk_S(x) + aᵀK_SS a with a = L⁻ᵀz. Each number k(y, y′) of this sum carries a
        rounding error of ε√(k(y, y) k(y′, y′)), so that r carries ε(√k(x, x) + Σ|a_s|√k(s, s))².
        Where inducing rows are far larger than x this is far more than ε·k(x, x).
        """
        worst = int(r.argmin())
        kappa2 = diag.max()
        magnified = ROUNDINGS * len(self.L) * EPS * kappa2 / np.square(np.diag(self.L).min())
        allowed = (PSD_TOLERANCE + magnified) * kappa2
        if r[worst] >= -allowed:
            return
        # Seldom: the sharper bound of the docstring costs a solution.
        inducing = np.einsum("ij,ij->i", self.L, self.L)  # k(s, s), as LLᵀ = K_SS
        a = solve_transposed(self.L, Z[worst].copy())
        size = np.sqrt(diag[worst]) + np.abs(a) @ np.sqrt(inducing)
        if r[worst] < -allowed - ROUNDINGS * len(self.L) * EPS * np.square(size):
            against = self.inducing_rows[np.abs(self.L @ Z[worst]).argmax()]  # largest |k(x, s)|
            raise not_positive(self.kernel, X[worst], r[worst], against)

    def check(self, X: Array, diag: Array, r: Array) -> None:
        """Raise KernelError where a residual r (n,) of rows is negative beyond rounding."""
        worst = int(r.argmin()) if len(r) else 0
        if r.min(initial=0.0) < -PSD_TOLERANCE * diag.max(initial=0.0):
            self(X[worst : worst + 1], diag[worst : worst + 1])


def ridged_factor(kernel: Kernel, rows: Array, ridge: Array) -> Array:
    """G (n, n) with GGᵀ = K + diag(ridge).

    Raises KernelError, naming a pair, where there is none and the kernel is at fault.
    """
    T = kernel(rows, rows)
    T[np.diag_indices_from(T)] += ridge
    try:
        return cholesky(T)
    except NumericalError:
        # A pivoted factorisation says which row is at fault, and raises where the kernel is.
        Embedding.fit(kernel, rows, EPS * float(kernel.diag(rows).max()))
        raise


def not_positive(kernel: Kernel, x: Array, variance: float, y: Array) -> KernelError:
    """What to say of a row x whose variance is negative given others, y being one of them."""
    return KernelError(
        f"the kernel is not positive semi-definite: x = {shown(kernel, x)} has the negative "
        f"variance {variance:.3g} given rows such as y = {shown(kernel, y)}; "
        "use a kernel that is a covariance"
    )


def check_kernel(kernel: Kernel, rows: Array, diag: Array) -> None:
    """Raise KernelError unless it is a covariance on some rows; `diag` holds its own k(x, x)."""
    K = kernel(rows, rows)
    check_covariance(K, rows, kernel)
    if np.abs(np.diag(K) - diag).max() > PSD_TOLERANCE * max(diag.max(), np.diag(K).max()):
        raise KernelError(
            f"{kernel!r} has k(x, x) = {np.diag(K)[0]} by rows but {diag[0]} by diag(); noise "
            "belongs into `regularization`: leave a white-noise kernel out"
        )


def check_covariance(K: Array, rows: Array, kernel: Kernel) -> None:
    """Raise KernelError unless K is symmetric and satisfies k(x, y)² ≤ k(x, x) k(y, y)."""
    d = np.diag(K)
    slack = PSD_TOLERANCE * d.max()
    asymmetry = np.abs(K - K.T)
    if asymmetry.max() > slack:
        i, j = np.unravel_index(int(asymmetry.argmax()), K.shape)
        raise KernelError(
            f"the kernel is not symmetric: k(x, y) = {K[i, j]} but k(y, x) = {K[j, i]} for "
            f"x = {shown(kernel, rows[i])}, y = {shown(kernel, rows[j])}"
        )
    # Every 2×2 minor of a positive semi-definite K is non-negative.
    root = np.sqrt(np.maximum(d, 0.0))
    excess = np.abs(K) - np.outer(root, root)
    if excess.max() > slack:
        i, j = np.unravel_index(int(excess.argmax()), K.shape)
        raise KernelError(
            f"the kernel is not positive semi-definite: |k(x, y)| = {abs(K[i, j])} exceeds "
            f"√(k(x, x) k(y, y)) = {root[i] * root[j]} for x = {shown(kernel, rows[i])}, "
            f"y = {shown(kernel, rows[j])}; "
            "use a kernel that is a covariance"
        )
