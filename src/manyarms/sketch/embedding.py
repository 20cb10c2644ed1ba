"""The Nyström embedding z(x) = L⁻¹ k_S(x) and its residual r(x) = k(x, x) − ‖z(x)‖²."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import shown
from manyarms.sketch.linalg import EPS, cholesky, pivoted_cholesky, solve_lower
from manyarms.typing import Array, Indices

PSD_TOLERANCE = 1e-6
"""A residual below −1e-6·κ² is no rounding error: the kernel is not positive semi-definite."""
APPENDABLE = 1e-8
"""Smallest pivot, of κ², on which other rows may be appended."""


@dataclass(frozen=True)
class Embedding:
    """Projection on the span of the inducing rows; the paper's (K_S^{1/2})⁺ k_S(·) up to a rotation that nothing depends on."""

    kernel: Kernel
    inducing_rows: Array  # (m, d)
    L: Array  # (m, m)

    @classmethod
    def fit(cls, kernel: Kernel, rows: Array, tolerance: float | None) -> tuple["Embedding", Indices]:
        """The embedding of a dictionary, and which of its rows it rests on: those whose residual exceeds the tolerance.

        Without a tolerance all rows stay, the smallest pivots held at ε·κ². Dropping a near-duplicate moves the mean by the
        *root* of its residual times the difference of its rewards: too much where the posterior is to be the exact one.
        """
        K = kernel(rows, rows)
        check_covariance(K, rows, kernel)
        kappa2 = float(np.diag(K).max())
        keep_all = tolerance is None and kappa2 > 0
        L, kept, residual = pivoted_cholesky(K, EPS * kappa2 if tolerance is None else tolerance, keep_all=keep_all)
        worst = int(residual.argmin())
        if residual[worst] < -PSD_TOLERANCE * kappa2:
            raise _negative_variance(kernel, rows[worst], residual[worst], rows[kept[np.abs(K[worst, kept]).argmax()]])
        return cls(kernel, rows[kept], L), kept

    @classmethod
    def in_order(cls, kernel: Kernel, rows: Array) -> "Embedding | None":
        """The embedding with a coordinate for each row, in their order; None where a pivot is too small for that."""
        K = kernel(rows, rows)
        L, info = lapack.dpotrf(K, lower=1, clean=1)
        small = bool(info) or np.square(np.diag(L)).min() < APPENDABLE * np.diag(K).max()
        return None if small else cls(kernel, rows, np.asfortranarray(L))

    def append(self, rows: Array, tolerance: float | None) -> tuple["Embedding", Indices] | None:
        """The embedding of the inducing rows and these, and which of these it rests on; the old coordinates stay.

        None where that would not be accurate: without pivoting over all rows, rounding is magnified by each small pivot for all
        that come after it. Then fit them together.
        """
        if not len(self.L):
            return None
        K = self.kernel(rows, rows)
        check_covariance(K, rows, self.kernel)
        kappa2 = max(float(np.diag(K).max()), float(np.einsum("ij,ij->i", self.L, self.L).max()))
        smallest = APPENDABLE * kappa2
        if np.square(np.diag(self.L).min()) < smallest:
            return None
        Z, _ = self(rows, np.diag(K))
        L, kept, _ = pivoted_cholesky(K - Z @ Z.T, tolerance or 0.0)
        if not len(kept):
            return self, kept
        if np.square(np.diag(L).min()) < smallest or (tolerance is None and len(kept) < len(rows)):
            return None
        m, j = len(self.L), len(kept)
        grown = np.zeros((m + j, m + j), order="F")
        grown[:m, :m], grown[m:, :m], grown[m:, m:] = self.L, Z[kept], L
        return Embedding(self.kernel, np.vstack([self.inducing_rows, rows[kept]]), grown), kept

    def extends(self, other: "Embedding") -> bool:
        """These coordinates begin with all those of the other."""
        m = len(other.L)
        return m <= len(self.L) and bool(np.array_equal(self.inducing_rows[:m], other.inducing_rows))

    def __call__(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """z(x) (n, m) and r(x) = k(x, x) − ‖z(x)‖² (n,) for every row of X; `diag` holds k(x, x).

        r is not negative but for rounding, which a small pivot ρ² magnifies by κ²/ρ². It is not clamped: the error in z that
        makes r too small makes zᵀV⁻¹z too large by as much, up to the bound ε·κ²·n_max/λ of the sum.
        """
        return self.extend(X, diag, np.zeros((len(X), 0)), diag)

    def extend(self, X: Array, diag: Array, Z: Array, r: Array) -> tuple[Array, Array]:
        """The same where the first p coordinates Z (n, p) are known, those of an embedding that this one extends, and their r.

        The others are L₊₊⁻¹(k₊ − L₊z).
        """
        p, L = Z.shape[1], self.L
        if p == len(L):
            return Z, r
        K = self.kernel(X, self.inducing_rows[p:])
        zeta = solve_lower(L[p:, p:], K.T - L[p:, :p] @ Z.T if p else K.T).T
        Z, r = np.hstack([Z, zeta]) if p else zeta, r - np.einsum("ij,ij->i", zeta, zeta)
        worst, kappa2 = int(r.argmin()), diag.max()
        magnified = 10 * len(L) * EPS * kappa2 / np.square(np.diag(L).min())
        if r[worst] < -(PSD_TOLERANCE + magnified) * kappa2:
            raise _negative_variance(self.kernel, X[worst], r[worst], self.inducing_rows[np.abs(L @ Z[worst]).argmax()])
        return Z, r

    def check(self, X: Array, diag: Array, r: Array) -> None:
        """Raise KernelError where a residual r (n,) of the rows of X, computed elsewhere, is negative beyond rounding."""
        worst = int(r.argmin())
        if r[worst] < -PSD_TOLERANCE * diag.max():
            self(X[worst : worst + 1], diag[worst : worst + 1])


def ridged_factor(kernel: Kernel, rows: Array, ridge: Array) -> Array:
    """G (n, n) with GGᵀ = K + diag(ridge). Raises KernelError, naming a pair, where the kernel is at fault if there is none."""
    T = kernel(rows, rows)
    T[np.diag_indices_from(T)] += ridge
    try:
        return cholesky(T)
    except NumericalError:
        Embedding.fit(kernel, rows, EPS * float(kernel.diag(rows).max()))
        raise


def _negative_variance(kernel: Kernel, x: Array, variance: float, y: Array) -> KernelError:
    return KernelError(
        f"the kernel is not positive semi-definite: given the inducing rows, x = {shown(kernel, x)} has the negative variance "
        f"{variance:.3g}, most of it against y = {shown(kernel, y)}; use a kernel that is a covariance"
    )


def check_kernel(kernel: Kernel, rows: Array, diag: Array) -> None:
    """Raise KernelError unless it is a covariance on some rows; `diag` holds its own k(x, x)."""
    K = kernel(rows, rows)
    check_covariance(K, rows, kernel)
    if np.abs(np.diag(K) - diag).max() > PSD_TOLERANCE * max(diag.max(), np.diag(K).max()):
        raise KernelError(
            f"{kernel!r} has k(x, x) = {np.diag(K)[0]} by rows but {diag[0]} by diag(); noise belongs into "
            "`regularization`: leave a white-noise kernel out"
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
    root = np.sqrt(np.maximum(d, 0.0))
    excess = np.abs(K) - np.outer(root, root)
    if excess.max() > slack:
        i, j = np.unravel_index(int(excess.argmax()), K.shape)
        raise KernelError(
            f"the kernel is not positive semi-definite: |k(x, y)| = {abs(K[i, j])} exceeds √(k(x, x) k(y, y)) = "
            f"{root[i] * root[j]} for x = {shown(kernel, rows[i])}, y = {shown(kernel, rows[j])}; "
            "use a kernel that is a covariance"
        )
