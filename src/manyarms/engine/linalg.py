"""The factorisations the engine needs, with errors a user can act on."""

from collections.abc import Callable
from functools import partial

import numpy as np

from manyarms.errors import NumericalError
from manyarms.lapack import blas, lapack
from manyarms.typing import Array, Indices

EPS = float(np.finfo(np.float64).eps)
"""ε, the distance from 1 to the next float64: relative."""
TINY = float(np.finfo(np.float64).tiny)
"""The smallest normal float64, 2.2e-308: what a divisor that may be 0 is held above."""
CHUNK_ENTRIES = 1 << 19
"""Entries of a matrix (rows, m) computed at a time when many rows are scored: 4 MiB of float64."""
TRIANGLE_ROWS = 64
"""Rows of a triangular matrix in a product: more would multiply more zeros."""
PANEL = 32
"""Columns of a panel of LAPACK's tpqrt: within 5 % of the fastest for m from 300 to 1,200 and 128
to 1,024 rows."""
INVERTIBLE = 1e-2
"""Roots of pivots, in units of κ, above which L⁻¹ is formed: the rounding error of a product with
it grows with the condition number of L, which large pivots keep moderate."""


def chunks(n_rows: int, m: int) -> list[slice]:
    """Row slices of about CHUNK_ENTRIES entries each."""
    step = max(1, CHUNK_ENTRIES // max(1, m))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def check_rounding(regularization: float, evidence: float) -> None:
    """Raise NumericalError where the largest evidence ωk(x, x) of a row leaves λ no digits in
    float64: a sum of both has the error ε·ωk(x, x)."""
    if regularization <= EPS * evidence:
        raise NumericalError(
            f"λ = {regularization:.3g} is below the rounding of k(x, x) times the weight of an "
            f"arm, {evidence:.3g}: "
            "raise `regularization`, give a larger `noise`, or divide the columns by their size"
        )


def check_finite(found: Array | float) -> None:
    """Raise NumericalError unless a posterior mean, or what it is made of, is finite."""
    if not np.isfinite(found).all():
        raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")


def represented_below(
    n_inducing: int, kappa2: float, regularization: float, max_count: float
) -> float:
    """Largest residual r(x) of an arm that the inducing arms already represent: max(2mε κ²,
    1e-10·λ/n_max).

    What must vanish is n·r/λ, the error on the arm pulled most, so a tolerance relative to k alone
    would be wrong at small λ or after many pulls.
    """
    rounding = 2 * n_inducing * EPS * kappa2  # of r, a difference of sums of m terms up to κ²
    return float(max(rounding, 1e-10 * regularization / max(1.0, max_count)))


def pivoted_cholesky(
    K: Array, tolerance: float, *, keep_all: bool = False
) -> tuple[Array, Indices, Array]:
    """L, pivots and what is left: K[pivots][:, pivots] = L Lᵀ, largest residual first, while one
    exceeds `tolerance`.

    The pivots are a true sub-dictionary: L is the exact factor for those points. With `keep_all`
    the others stay too, each with a pivot of `tolerance` in place of its smaller residual. The
    third result is the residual diagonal (m,) of K after the pivots above the tolerance, in K's
    order.
    """
    factor, order, rank, _ = lapack.dpstrf(K, tol=tolerance, lower=1)
    rank = rank if np.diag(K).max() > tolerance else 0  # LAPACK takes the first pivot in any case
    order = order.astype(np.intp) - 1  # LAPACK counts from 1
    L = np.asfortranarray(np.tril(factor))
    L[:, rank:] = 0.0
    # r(x) = k(x, x) − ‖z(x)‖²: the rows of L are the embeddings of K's rows on the pivots.
    residual = np.empty(len(K))
    residual[order] = np.diag(K)[order] - np.einsum("ij,ij->i", L, L)
    residual[order[:rank]] = 0.0
    if not keep_all:
        return np.asfortranarray(L[:rank, :rank]), order[:rank], residual
    rest = np.arange(rank, len(K))
    L[rest, rest] = np.sqrt(tolerance)
    return L, order, residual


def cholesky(V: Array) -> Array:
    """Lower Cholesky factor of a positive definite V. Raises NumericalError when float64 cannot
    carry it."""
    if not V.size:
        return V
    factor, info = lapack.dpotrf(V, lower=1, clean=1)
    if info != 0 or not np.isfinite(factor).all():
        raise NumericalError(
            f"a {len(V)}×{len(V)} posterior matrix with diagonal from {np.diag(V).min():.3g} "
            f"to {np.diag(V).max():.3g} is "
            "singular in float64; raise `regularization` or rescale the kernel"
        )
    return np.asarray(factor)


def lower_product(T: Array, B: Array, out: Array) -> None:
    """TB into `out` for T (n, m), n ≥ m, whose row i is zero beyond column i: for large m in about
    half the time of T @ B."""
    for start in range(0, len(T), TRIANGLE_ROWS):
        stop = start + TRIANGLE_ROWS
        np.matmul(T[start:stop, :stop], B[:stop], out=out[start:stop])


def solver(L: Array) -> Callable[[Array, Array], None]:
    """The function that puts L⁻¹B of a lower triangular L and many columns B into another array,
    for use by several threads.

    By products with blocks of L, as those of NumPy leave other threads the interpreter and
    triangular routines do not; with blocks of L⁻¹ where rounding allows, which is faster still
    where m is small.
    """
    L = np.asfortranarray(L)
    kappa = np.sqrt(np.einsum("ij,ij->i", L, L).max(initial=0.0))  # as (LLᵀ)_ii = k(x_i, x_i)
    if L.size and np.diag(L).min() >= INVERTIBLE * kappa:
        return partial(lower_product, solve_lower(L, np.eye(len(L), order="F")))

    def solve(B: Array, out: Array) -> None:
        out[:] = B
        for start in range(0, len(L), TRIANGLE_ROWS):
            stop = start + TRIANGLE_ROWS
            rows = out[start:stop]
            # L₁₁X₁ = B₁ − L₁₀X₀: a product of matrices, then a small triangle, in place.
            rows -= L[start:stop, :start] @ out[:start]
            corner = L[start:stop, start:stop]
            blas.dtrsm(1.0, corner, rows.T, side=1, lower=1, trans_a=1, overwrite_b=1)

    return solve


def solve_lower(L: Array, B: Array) -> Array:
    """L⁻¹B for a lower triangular L, B (m,) or (m, n); a column-major B is overwritten."""
    return _solve(L, B, 0)


def solve_transposed(L: Array, B: Array) -> Array:
    """L⁻ᵀB for a lower triangular L, B (m,) or (m, n); a column-major B is overwritten."""
    return _solve(L, B, 1)


def _solve(L: Array, B: Array, transposed: int) -> Array:
    if not B.size:
        return B
    columns = B.reshape(len(B), -1)
    solved = blas.dtrsm(1.0, L, columns, lower=1, trans_a=transposed, overwrite_b=1)
    return np.asarray(solved).reshape(B.shape)


def squares(B: Array) -> Array:
    """Column sums of squares; `einsum` would not leave other threads the interpreter."""
    return np.asarray(np.add.reduce(np.square(B), axis=0))
