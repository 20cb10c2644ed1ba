"""Squared Euclidean distances by matrix products, accurate for near-duplicates too.

The textbook ‖x‖² + ‖y‖² − 2xᵀy loses all digits of a distance below 1e-8 of the data's spread, and
Matérn-½, which takes its root, loses half of the rest. Here every coordinate is split on a common
power-of-two grid, x = x_hi + x_lo with x_hi a small integer, so that

    ‖x − y‖² = ‖x_hi − y_hi‖² + 2(x_hi − y_hi)ᵀ(x_lo − y_lo) + ‖x_lo − y_lo‖²,

where the first term is a sum of integers below 2⁵³ (exact in any order of summation, on any number
of threads) and the others are 2⁻²⁴ of it. Pairs closer than the grid are subtracted directly. No
(n, m, d) array larger than a block is ever built.
"""

from collections.abc import Iterator

import numpy as np

from manyarms.errors import KernelError
from manyarms.typing import AnyArray, Array, ArrayLike

BLOCK_PAIRS = 1 << 16
"""Pairs computed at a time: 512 KiB of float64, so that a block's passes stay in cache."""

SPLIT_ROWS = 1 << 14
"""Rows split at a time: operations so large leave other threads the interpreter."""

LARGEST_COORDINATE = 1e150
"""In lengthscales: coordinates below it have squares that fit float64, sums of them too."""

FEW_ROWS = 8
"""Rows of Y up to which subtracting is cheaper than splitting."""

EPS = float(np.finfo(np.float64).eps)
"""ε, the distance from 1 to the next float64."""
FLOAT32 = float(np.finfo(np.float32).eps)
"""The same of float32."""
CLOSE = 1e-5
"""What rough squared distances may be off by for a product in float32: some ten roundings of a
kernel."""

NEAR = 2.0
"""‖x − y‖² in squared units of the grid below which a pair is subtracted: there the parts x_lo may
be all of the distance, and cancel."""


def as_blocks(X: ArrayLike, Y: ArrayLike) -> tuple[Array, Array]:
    """Both blocks of rows as float64 arrays of as many columns."""
    X = np.asarray(X, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.float64)
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
        raise KernelError(
            f"a kernel takes two blocks of rows with as many columns, got shapes {X.shape} and "
            f"{Y.shape}"
        )
    return X, Y


def row_blocks(n_rows: int, n_columns: int) -> list[slice]:
    """Row slices of about BLOCK_PAIRS entries each."""
    step = max(1, BLOCK_PAIRS // max(1, n_columns))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


class ScaledPoints:
    """Rows of X and Y, centred, divided by the lengthscale and split on one grid."""

    def __init__(self, X: Array, Y: Array, lengthscale: Array) -> None:
        with np.errstate(over="ignore"):
            # Centred, what has to be split is the spread of the rows and not where they lie.
            centre = Y.mean(axis=0)
            X = (X - centre) / lengthscale
            Y = (Y - centre) / lengthscale
        spread = max(np.abs(X).max(initial=0.0), np.abs(Y).max(initial=0.0))
        # Written so that NaN is refused, too.
        if not spread < LARGEST_COORDINATE:
            raise _overflow(lengthscale)
        # d · (2 · 2^bits)² ≤ 2⁵³ keeps every partial sum of the integer part exact.
        bits = (51 - int(np.ceil(np.log2(max(1, X.shape[1]))))) // 2
        exponent = int(np.frexp(spread)[1]) - bits if spread > 0 else 0
        # In units of the grid, 2^exponent, whole numbers are multiples of it: x_hi = rint(x).
        self.unit = float(np.ldexp(1.0, 2 * exponent))
        self.X = np.ldexp(X, -exponent)
        self.Y = np.ldexp(Y, -exponent)
        Y_hi = np.rint(self.Y)
        Y_lo = self.Y - Y_hi  # exact: both are multiples of the last bit of Y, and |Y_lo| ≤ ½
        ones = np.ones((len(Y), 1))
        # Columns such that a row (−2x, ‖x‖², 1) times (y, 1, ‖y‖²) is ‖x − y‖², of each part.
        self._Y_integer = np.hstack([Y_hi, ones, _norms(Y_hi)]).T
        self._Y_rest = np.hstack([Y_lo, self.Y, ones, 2 * _dots(Y_hi, Y_lo) + _norms(Y_lo)]).T

    def squared_distances(self, out: Array) -> Iterator[Array]:
        """‖x − y‖² in units of the lengthscale, (rows, m), for slice after slice of the rows of X
        and all of Y: parts of `out` (n, m), one after the other.

        Rows are split many at a time: large operations leave other threads the interpreter.
        """
        for start in range(0, len(self.X), SPLIT_ROWS):
            X = self.X[start : start + SPLIT_ROWS]
            hi = np.rint(X)
            lo = X - hi
            ones = np.ones((len(X), 1))
            # Signs and factors go into the x side: y is prepared once for all blocks.
            twice_hi = -2 * hi
            integer = np.hstack([twice_hi, _norms(hi), ones])
            rest = np.hstack([twice_hi, -2 * lo, 2 * _dots(hi, lo) + _norms(lo), ones])
            for rows in row_blocks(len(X), len(self.Y)):
                D = out[start + rows.start : start + rows.stop]
                np.matmul(integer[rows], self._Y_integer, out=D)  # exact: whole numbers below 2⁵³
                D += rest[rows] @ self._Y_rest  # the two small terms
                if D.min(initial=np.inf) < NEAR:
                    i, j = np.divmod(np.flatnonzero(D < NEAR), D.shape[1])
                    near = X[rows]
                    D[i, j] = sum(np.square(near[i, c] - self.Y[j, c]) for c in range(X.shape[1]))
                D *= self.unit  # back from units of the grid, by a power of two: exact
                yield D


class RoughPoints:
    """Rows Y, centred and divided by the lengthscale, for distances to many blocks of rows by the
    textbook formula."""

    def __init__(self, Y: Array, lengthscale: Array) -> None:
        d = Y.shape[1]
        self._centre = Y.mean(axis=0)
        self._lengthscale = lengthscale
        Y = (Y - self._centre) / lengthscale
        norms = _norms(Y)
        self._largest = float(norms.max())
        # A row (x, ‖x‖², 1) times (−2y, 1, ‖y‖²) is ‖x − y‖².
        self._right = np.hstack([-2 * Y, np.ones((len(Y), 1)), norms]).T
        with np.errstate(over="ignore"):
            self._right32 = self._right.astype(np.float32)
        self._terms = 2 * (d + 5)

    def squared_distances(self, X: Array) -> tuple[AnyArray, float]:
        """‖x − y‖² ≥ 0 in float32, (n, m), and what it may be wrong by before it is rounded to
        that: by (d + 5)ε of the sum of all terms, which is at most 2(‖x‖² + ‖y‖²).

        Infinite where it does not fit float32. The product itself is in float32 where rows are so
        near one another that this is CLOSE.
        """
        d = X.shape[1]
        left = np.ones((len(X), d + 2))
        scaled = np.subtract(X, self._centre, out=left[:, :d])
        scaled /= self._lengthscale
        norms = _norms(scaled)
        left[:, d : d + 1] = norms
        largest = self._terms * (float(norms.max(initial=0.0)) + self._largest)
        error = FLOAT32 * largest
        if error <= CLOSE:
            D = left.astype(np.float32) @ self._right32
        else:
            error = EPS * largest
            with np.errstate(over="ignore"):
                D = (left @ self._right).astype(np.float32)
        np.maximum(D, 0.0, out=D)
        return D, error


def few_squared_distances(X: Array, Y: Array, lengthscale: Array) -> Array:
    """‖(x − y)/ℓ‖² for a few rows of Y, by subtraction, shape (n, m)."""
    with np.errstate(over="ignore"):
        if X.size * len(Y) <= BLOCK_PAIRS:  # else a row of Y at a time, to stay in cache
            D = _by_subtraction(X, Y, lengthscale)
        else:
            D = np.vstack([_by_subtraction(X, y[None], lengthscale) for y in Y])
    if not D.max(initial=0.0) <= LARGEST_COORDINATE**2:  # Matérn takes five times as much
        raise _overflow(lengthscale)
    return D.T


def _by_subtraction(X: Array, Y: Array, lengthscale: Array) -> Array:
    difference = X - Y[:, None]
    difference /= lengthscale
    return np.asarray(np.einsum("ijk,ijk->ij", difference, difference))


def _overflow(lengthscale: Array) -> KernelError:
    return KernelError(
        f"rows divided by lengthscale {lengthscale} must be finite and below "
        f"{LARGEST_COORDINATE:.0e}; use a larger lengthscale or smaller features"
    )


def _norms(X: Array) -> Array:
    return _dots(X, X)


def _dots(X: Array, Y: Array) -> Array:
    products: Array = np.einsum("ij,ij->i", X, Y)[:, None]
    return products
