"""Kernels of the differences x − y, with one lengthscale ℓ or one per column: of numbers by the
distance ρ = ‖(x − y)/ℓ‖, of codes by the columns that differ.

Distances are made by matrix products, and are accurate for near-duplicates too. The textbook
‖x‖² + ‖y‖² − 2xᵀy loses all digits of a distance below 1e-8 of the data's spread, and
Matérn-½, which takes its root, loses half of the rest. Here every coordinate is split on a common
power-of-two grid, x = x_hi + x_lo with x_hi a small integer, so that

    ‖x − y‖² = ‖x_hi − y_hi‖² + 2(x_hi − y_hi)ᵀ(x_lo − y_lo) + ‖x_lo − y_lo‖²,

where the first term is a sum of integers below 2⁵³ (exact in any order of summation, on any number
of threads) and the others are 2⁻²⁴ of it. Pairs closer than the grid are subtracted directly. No
(n, m, d) array larger than a block is ever built.
"""

from abc import abstractmethod
from math import ceil, frexp, ldexp, log2
from typing import Any

import numpy as np

from manyarms.checks import NO_ARRAY
from manyarms.errors import KernelError, shortened
from manyarms.kernels.base import (
    BLOCK_PAIRS,
    Kernel,
    as_blocks,
    beside,
    by_blocks,
    namespace,
    side_by_side,
)
from manyarms.typing import AnyArray, Array, ArrayLike

LARGEST_COORDINATE = 1e150
"""In lengthscales: coordinates below it have squares that fit float64, sums of them too."""

FEW_ROWS = 8
"""Rows of Y up to which subtracting is cheaper than splitting."""


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


def as_lengthscale(lengthscale: ArrayLike) -> Array:
    """One positive number, or one per column, read-only."""
    try:
        given: AnyArray = np.asarray(lengthscale)
    except NO_ARRAY:
        given = np.array(None)  # no number: refused below
    scales = given.astype(np.float64) if given.dtype.kind in "fiu" else np.zeros(0)
    if scales.ndim > 1 or not scales.size or not np.all(np.isfinite(scales) & (scales > 0)):
        raise KernelError(
            f"lengthscale must be positive: one number, or one per column; got "
            f"{shortened(lengthscale)}"
        )
    scales.setflags(write=False)
    return scales


def check_lengthscale(kernel: Kernel, lengthscale: Array, n_columns: int) -> None:
    """Raise KernelError unless there is one lengthscale, or one for each column."""
    if lengthscale.ndim == 1 and lengthscale.size != n_columns:
        raise KernelError(
            f"{kernel!r} has {lengthscale.size} lengthscales and the rows have {n_columns} "
            "columns; give one lengthscale, or one per column"
        )


class OfDifferences(Kernel):
    """A kernel of (x − y)/ℓ with k(x, x) = 1."""

    def __init__(self, lengthscale: ArrayLike) -> None:
        self.lengthscale = as_lengthscale(lengthscale)

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    def diag_gradient(self, X: Array) -> Array:
        return np.zeros(X.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.lengthscale.tolist()})"


class Stationary(OfDifferences):
    """k(x, y) = g(ρ²) with g(0) = 1: a kernel is g, and its slope where it has a gradient."""

    @abstractmethod
    def g(self, D: Array, xp: Any) -> Array:
        """g(ρ²) elementwise by the functions of a namespace, of an array that is given away."""

    @abstractmethod
    def slope(self, D: Array) -> Array:
        """2g′(ρ²) elementwise."""

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        if self.lengthscale.ndim:
            check_lengthscale(self, self.lengthscale, Y.shape[1])
        if isinstance(Y, np.ndarray) and len(Y) <= FEW_ROWS:
            return self.g(few_squared_distances(X, Y, self.lengthscale), np)
        points = ScaledPoints(X, Y, self.lengthscale)
        xp = namespace(Y)
        # The distances are never held as a whole.
        return by_blocks(lambda some: self.g(points.of(some), xp), X, Y)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        check_lengthscale(self, self.lengthscale, Y.shape[1])
        # ∂g(ρ²)/∂x = 2g′(ρ²)(x − y)/ℓ², and Σ_j M_ij(x_i − y_j) is two products, not (n, m, d).
        M = V * self.slope(few_squared_distances(Y, X, self.lengthscale).T)
        return np.asarray((M.sum(axis=1)[:, None] * X - M @ Y) / np.square(self.lengthscale))


class RBF(Stationary):
    """The Gaussian kernel k(x, y) = exp(−ρ²/2), ρ = ‖(x − y)/ℓ‖.

    Parameters
    ----------
    lengthscale : float or array_like, (d,)
        ℓ, one for all columns or one each.
    """

    def g(self, D: Array, xp: Any) -> Array:
        D *= -0.5
        K: Array = xp.exp(D)
        return K

    def slope(self, D: Array) -> Array:
        return -self.g(D, np)


class Matern(Stationary):
    """The Matérn kernel of smoothness ν, ρ = ‖(x − y)/ℓ‖.

    ν = ½: exp(−ρ);  ν = 3/2: (1 + √3ρ) exp(−√3ρ);  ν = 5/2: (1 + √5ρ + 5ρ²/3) exp(−√5ρ).

    Parameters
    ----------
    lengthscale : float or array_like, (d,)
        ℓ, one for all columns or one each.
    nu : float
        ν: 0.5, 1.5 or 2.5.
    """

    def __init__(self, lengthscale: ArrayLike, nu: float = 2.5) -> None:
        super().__init__(lengthscale)
        if not isinstance(nu, float | int) or nu not in (0.5, 1.5, 2.5):
            raise KernelError(
                f"nu must be 0.5, 1.5 or 2.5, got "
                f"{shortened(nu)}; for other values pass scikit-learn's "
                "Matern"
            )
        self.nu = nu

    def g(self, D: Array, xp: Any) -> Array:
        D *= 2 * self.nu
        R = xp.sqrt(D)  # √(2ν)ρ, of which all three are functions
        K: Array = xp.exp(-R)
        if self.nu > 0.5:
            if self.nu == 2.5:
                D *= 1 / 3  # 5ρ²/3
                R += D
            R += 1.0
            K *= R
        return K

    @property
    def differentiable(self) -> bool:
        return self.nu > 0.5

    def slope(self, D: Array) -> Array:
        if not self.differentiable:
            raise KernelError(f"{self!r} has a kink at x = y and no gradient; use nu=1.5 or nu=2.5")
        # 2g′(ρ²): −3e^{−√3ρ} for ν = 3/2, −(5/3)(1 + √5ρ)e^{−√5ρ} for ν = 5/2; no 1/ρ is left.
        R = np.sqrt(2 * self.nu * D)
        return -3.0 * np.exp(-R) if self.nu == 1.5 else -5.0 / 3.0 * (1.0 + R) * np.exp(-R)

    def __repr__(self) -> str:
        return f"Matern({self.lengthscale.tolist()}, nu={self.nu})"


class Hamming(OfDifferences):
    """k(x, y) = exp(−Σ_j [x_j ≠ y_j]/ℓ_j) of rows of codes.

    Parameters
    ----------
    lengthscale : float or array_like, (d,)
        ℓ, one for all columns or one each.
    """

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        check_lengthscale(self, self.lengthscale, Y.shape[1])
        exponents = _Exponents(Y, self.lengthscale)
        exp = namespace(Y).exp
        return by_blocks(lambda rows: exp(exponents.of(X[rows, :])), X, Y)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return np.zeros(X.shape)  # codes do not move by little


class _Exponents:
    """−Σ_j [x_j ≠ y_j]/ℓ_j for rows Y (m, d) of codes.

    With a column for every level that y_j takes, 1 where x_j is that level and else 0, it is
    Σ_j [x_j = y_j]/ℓ_j − Σ_j 1/ℓ_j, a product of matrices. Weights 1/ℓ_j on a grid of a power of
    two have sums that are exact in any order, so that equal rows have exactly 0.
    """

    def __init__(self, Y: Array, lengthscale: Array) -> None:
        xp = namespace(Y)
        self._Y = Y
        self._weights = np.broadcast_to(1.0 / lengthscale, Y.shape[1])
        unique = getattr(xp, "unique_values", np.unique)  # NumPy 1 has no `unique_values`
        levels = [unique(Y[:, c]) for c in range(Y.shape[1])]
        columns = np.repeat(np.arange(len(levels)), [level.shape[0] for level in levels])
        self._by_product = len(columns) <= 128  # beyond, columns are compared one by one
        if not self._by_product:
            return
        total = float(self._weights.sum())
        grid = np.ldexp(1.0, int(np.frexp(total)[1]) - np.finfo(np.float64).nmant)
        weights = np.rint(self._weights / grid) * grid
        self._total = float(weights.sum())
        self._columns = beside(columns, Y)
        self._levels = side_by_side(*(level[None, :] for level in levels))
        of_columns = beside(weights[columns], Y)[:, None]
        is_level = xp.take(Y, self._columns, axis=1) == self._levels
        self._equal = xp.where(is_level.T, of_columns, xp.zeros_like(of_columns))

    def of(self, X: Array) -> Array:
        """Of rows X (n, d), (n, m)."""
        xp = namespace(X)
        if self._by_product:
            hot = xp.take(X, self._columns, axis=1)
            hot = xp.where(hot == self._levels, xp.ones_like(hot), xp.zeros_like(hot))
            exponents: Array = hot @ self._equal
            exponents -= self._total
            return exponents
        exponents = xp.zeros_like(X[:, :1] * self._Y[:, 0])
        for c, weight in enumerate(self._weights.tolist()):
            differs = X[:, c, None] != self._Y[:, c]
            exponents = xp.where(differs, exponents - weight, exponents)
        return exponents
