"""Squared Euclidean distances by matrix products, accurate for near-duplicates too.

The textbook ‖x‖² + ‖y‖² − 2xᵀy loses all digits of a distance below 1e-8 of the data's spread, and
Matérn-½, which takes its root, loses half of the rest. Here every coordinate is split on a common
power-of-two grid, x = x_hi + x_lo with x_hi a small integer, so that

    ‖x − y‖² = ‖x_hi − y_hi‖² + 2(x_hi − y_hi)ᵀ(x_lo − y_lo) + ‖x_lo − y_lo‖²,

where the first term is a sum of integers below 2⁵³ (exact in any order of summation, on any number
of threads) and the others are 2⁻²⁴ of it. Pairs closer than the grid are subtracted directly. No
(n, m, d) array larger than a block is ever built.
"""

from collections.abc import Callable
from math import ceil, frexp, ldexp, log2
from typing import Any

import numpy as np

from manyarms.errors import KernelError
from manyarms.typing import AnyArray, Array

BLOCK_PAIRS = 1 << 16
"""Pairs computed at a time: 512 KiB of float64, so that a block's passes stay in cache."""

LARGEST_COORDINATE = 1e150
"""In lengthscales: coordinates below it have squares that fit float64, sums of them too."""

FEW_ROWS = 8
"""Rows of Y up to which subtracting is cheaper than splitting."""


def namespace(X: Any) -> Any:
    """The functions for an array, by the array API standard (https://data-apis.org/array-api): on a
    device those of its library, by array-api-compat."""
    if isinstance(X, np.ndarray):
        return np
    from array_api_compat import array_namespace  # noqa: PLC0415  an extra

    return array_namespace(X)


def beside(values: AnyArray, X: Any) -> Any:
    """An array of NumPy as one where X is."""
    if isinstance(X, np.ndarray):
        return values
    # What cannot be written to is not taken without a warning.
    return namespace(X).asarray(np.array(values), device=X.device)


def as_blocks(X: Any, Y: Any) -> tuple[Array, Array]:
    """Both blocks of rows as float64 arrays of as many columns; those on a device stay there."""
    if isinstance(X, np.ndarray) or not hasattr(type(X), "device"):
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


def by_blocks(of: Callable[[slice], Array], X: Array, Y: Array) -> Array:
    """What a function gives for some rows of X, for all of them, (n, m): block by block, each of
    which stays in cache; at once on a device."""
    if not isinstance(Y, np.ndarray):
        return of(slice(None))
    K = np.empty((len(X), len(Y)))
    for rows in row_blocks(len(X), len(Y)):
        K[rows] = of(rows)
    return K


class ScaledPoints:
    """Rows of X and Y, centred, divided by the lengthscale and split on one grid."""

    def __init__(self, X: Array, Y: Array, lengthscale: Array) -> None:
        xp = namespace(Y)
        scale = beside(lengthscale, Y)
        with np.errstate(over="ignore"):
            # Centred, what has to be split is the spread of the rows and not where they lie.
            centre = xp.mean(Y, axis=0)
            X = (X - centre) / scale
            Y = (Y - centre) / scale
        spread = max((float(xp.max(xp.abs(rows))) for rows in (X, Y) if rows.shape[0]), default=0.0)
        # Written so that NaN is refused, too.
        if not spread < LARGEST_COORDINATE:
            raise _overflow(lengthscale)
        # d · (2 · 2^bits)² ≤ 2⁵³ keeps every partial sum of the integer part exact.
        bits = (51 - ceil(log2(max(1, X.shape[1])))) // 2
        # From 2^−1000 on the inverse of the grid fits float64.
        exponent = max(frexp(spread)[1] - bits, -1000) if spread > 0 else 0
        # In units of the grid, 2^exponent, whole numbers are multiples of it: x_hi = round(x).
        self._unit = ldexp(1.0, 2 * exponent)
        self._X = X * ldexp(1.0, -exponent)
        self._Y = Y * ldexp(1.0, -exponent)
        hi = xp.round(self._Y)
        lo = self._Y - hi  # exact: both are multiples of the last bit of Y, and |y_lo| ≤ ½
        ones = xp.ones_like(Y[:, :1])
        # Columns such that a row (−2x, ‖x‖², 1) times (y, 1, ‖y‖²) is ‖x − y‖², of each part.
        self._Y_integer = side_by_side(hi, ones, _dots(hi, hi)).T
        rest = 2 * _dots(hi, lo) + _dots(lo, lo)
        self._Y_rest = side_by_side(lo, self._Y, ones, rest).T

    def of(self, rows: slice) -> Array:
        """‖x − y‖² in units of the lengthscale of some rows of X and all of Y."""
        xp = namespace(self._X)
        X = self._X[rows, :]
        hi = xp.round(X)
        lo = X - hi
        ones = xp.ones_like(X[:, :1])
        # Signs and factors go into the x side: y is prepared once for all blocks.
        twice_hi = -2 * hi
        # The integer part is exact: whole numbers below 2⁵³. Then come the two small terms.
        D = side_by_side(twice_hi, _dots(hi, hi), ones) @ self._Y_integer
        rest = 2 * _dots(hi, lo) + _dots(lo, lo)
        D += side_by_side(twice_hi, -2 * lo, rest, ones) @ self._Y_rest
        # Where ‖x − y‖² < 2 in units of the grid, the parts x_lo may be all of it, and cancel.
        near = D < 2.0
        if xp.any(near):
            (at,) = xp.nonzero(xp.reshape(near, (-1,)))
            i = at // D.shape[1]
            j = at % D.shape[1]
            columns = range(X.shape[1])
            apart = (xp.take(X[:, c], i) - xp.take(self._Y[:, c], j) for c in columns)
            D[near] = sum(difference**2 for difference in apart)
        D *= self._unit  # back from units of the grid, by a power of two: exact
        return D


def few_squared_distances(X: Array, Y: Array, lengthscale: Array) -> Array:
    """‖(x − y)/ℓ‖² for a few rows of Y, by subtraction, shape (n, m)."""
    D = np.empty((len(Y), len(X)))
    # A row of Y at a time where all would not stay in cache.
    step = len(Y) if X.size * len(Y) <= BLOCK_PAIRS else 1
    with np.errstate(over="ignore"):
        for start in range(0, len(Y), max(1, step)):
            some = slice(start, start + step)
            difference = X - Y[some, None]
            difference /= lengthscale
            np.einsum("ijk,ijk->ij", difference, difference, out=D[some])
    if not D.max(initial=0.0) <= LARGEST_COORDINATE**2:  # Matérn takes five times as much
        raise _overflow(lengthscale)
    return D.T


def _overflow(lengthscale: Array) -> KernelError:
    return KernelError(
        f"rows divided by lengthscale {lengthscale} must be finite and below "
        f"{LARGEST_COORDINATE:.0e}; use a larger lengthscale or smaller features"
    )


def _dots(X: Array, Y: Array) -> Array:
    products: Array = namespace(X).sum(X * Y, axis=1)[:, None]
    return products


def side_by_side(*parts: Array) -> Array:
    joined = getattr(namespace(parts[0]), "concat", np.concatenate)  # NumPy 1 has no `concat`
    return joined(parts, axis=1)
