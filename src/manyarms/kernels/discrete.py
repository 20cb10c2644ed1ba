"""Kernels of rows without a geometry: codes of categories, and sets of bits."""

import numpy as np

from manyarms.checks import NO_ARRAY
from manyarms.errors import ArmsError, KernelError
from manyarms.kernels.base import Kernel
from manyarms.kernels.distances import (
    as_blocks,
    beside,
    by_blocks,
    namespace,
    row_blocks,
    side_by_side,
)
from manyarms.kernels.stationary import as_lengthscale, check_lengthscale
from manyarms.typing import AnyArray, Array, ArrayLike

BITS = 52
"""Bits in a packed number: whole numbers of so many are exact in float64."""


LEVELS_BY_PRODUCT = 128
"""Levels of all columns up to which codes are compared by a product of matrices."""


class Hamming(Kernel):
    """k(x, y) = exp(−Σ_j [x_j ≠ y_j]/ℓ_j) of rows of codes.

    Parameters
    ----------
    lengthscale : float or array_like, (d,)
        ℓ, one for all columns or one each.
    """

    def __init__(self, lengthscale: ArrayLike) -> None:
        self.lengthscale = as_lengthscale(lengthscale)

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        check_lengthscale(self, self.lengthscale, Y.shape[1])
        exponents = _Exponents(Y, self.lengthscale)
        exp = namespace(Y).exp
        return by_blocks(lambda rows: exp(exponents.of(X[rows, :])), X, Y)

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    @property
    def differentiable(self) -> bool:
        return True

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return np.zeros(X.shape)  # codes do not move by little

    def __repr__(self) -> str:
        return f"Hamming({self.lengthscale.tolist()})"


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
        self._by_product = len(columns) <= LEVELS_BY_PRODUCT
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


class Tanimoto(Kernel):
    """k(x, y) = xᵀy/(‖x‖² + ‖y‖² − xᵀy): shared bits over bits in either (Ralaivola et al. 2005,
    for molecules).

    Two rows of zeros have k = 1.

    Parameters
    ----------
    packed : bool
        Rows are bits that `pack` has packed; else bits or non-negative counts.
    """

    def __init__(self, *, packed: bool = False) -> None:
        self.packed = packed

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        _check_counts(Y)
        K = _shared(X, Y) if self.packed else X @ Y.T  # xᵀy
        union = self._sizes(X)[:, None] + self._sizes(Y) - K
        empty = union == 0
        K[empty] = union[empty] = 1.0
        K /= union
        return K

    def _sizes(self, X: Array) -> Array:
        if self.packed:
            return np.asarray(np.bitwise_count(X.astype(np.uint64)).sum(axis=1, dtype=np.float64))
        sizes: Array = namespace(X).sum(X * X, axis=1)
        return sizes

    def diag(self, X: Array) -> Array:
        _check_counts(X)  # of all arms, once: here and not whenever they are a block
        return np.ones(len(X))

    def __repr__(self) -> str:
        return f"Tanimoto({'packed=True' if self.packed else ''})"


class MinMax(Kernel):
    """k(x, y) = Σ_j min(x_j, y_j)/Σ_j max(x_j, y_j) of rows of non-negative counts: Tanimoto for
    bits (Ralaivola et al. 2005).

    Two rows of zeros have k = 1.
    """

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        _check_counts(Y)
        K = np.zeros((len(X), len(Y)))
        for rows in row_blocks(len(X), len(Y)):
            for x, y in zip(X[rows].T, Y.T, strict=True):
                K[rows] += np.minimum(x[:, None], y)
        union = X.sum(axis=1)[:, None] + Y.sum(axis=1) - K  # max(a, b) = a + b − min(a, b)
        return np.asarray(np.divide(K, union, out=np.ones_like(K), where=union > 0))

    def diag(self, X: Array) -> Array:
        _check_counts(X)
        return np.ones(len(X))

    def __repr__(self) -> str:
        return "MinMax()"


def pack(bits: ArrayLike) -> Array:
    """Rows of 0 and 1 as whole numbers of 52 bits: exact in float64, 1/52 of the memory.

    Parameters
    ----------
    bits : array_like, (n, b)
        0 and 1.

    Returns
    -------
    ndarray, (n, ⌈b/52⌉)
        For ``Tanimoto(packed=True)``.

    Raises
    ------
    ArmsError
        Something is neither 0 nor 1.
    """
    bits = _rows_of_bits(bits)
    n, b = bits.shape
    width = -(-b // BITS)  # ⌈b/BITS⌉
    words = np.empty((n, width))
    powers = 2.0 ** np.arange(BITS)
    for rows in row_blocks(n, width):  # a float64 for each bit only of some rows at a time
        padded = np.zeros((rows.stop - rows.start, width * BITS))
        padded[:, :b] = bits[rows]
        other = (padded != 0) & (padded != 1)
        if other.any():
            raise ArmsError(
                f"bits must be 0 or 1, got {padded[other][0]}; a threshold makes bits of "
                "numbers: X > 0.5"
            )
        words[rows] = padded.reshape(-1, width, BITS) @ powers
    return words


def _rows_of_bits(bits: ArrayLike) -> AnyArray:
    if np.ma.is_masked(bits):
        raise ArmsError("bits must not be masked; fill the masked ones or leave the rows out")
    try:
        array: AnyArray = np.asarray(bits)
    except NO_ARRAY as error:
        raise ArmsError(f"bits must be rows of 0 and 1, (n, b): {error}") from error
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiub":
        raise ArmsError(
            f"bits must be rows of 0 and 1, (n, b), got {array.dtype} of shape {array.shape}"
        )
    return array


def unpack(words: Array, n_bits: int) -> Array:
    """The rows of 0 and 1 that `pack` was given.

    Parameters
    ----------
    words : ndarray, (n, w)
        What `pack` returned.
    n_bits : int
        Columns that it was given.

    Returns
    -------
    ndarray, (n, n_bits)
        0 and 1.
    """
    # Bit i of a number is what is left of it shifted by i, and'ed with 1.
    bits = words.astype(np.uint64)[:, :, None] >> np.arange(BITS, dtype=np.uint64) & np.uint64(1)
    return bits.reshape(len(words), -1)[:, :n_bits].astype(np.float64)


def _shared(X: Array, Y: Array) -> Array:
    """How many bits packed rows have in common, (n, m)."""
    K = np.empty((len(X), len(Y)))
    words = np.ascontiguousarray(Y.T.astype(np.uint64))
    # A column of packed numbers at a time: AND, and count the bits (popcount).
    for rows in row_blocks(len(X), len(Y)):
        common = np.zeros((len(Y), rows.stop - rows.start), dtype=np.uint32)  # half of float64
        for x, y in zip(np.ascontiguousarray(X[rows].T.astype(np.uint64)), words, strict=True):
            common += np.bitwise_count(y[:, None] & x)
        K[rows] = common.T
    return K


def _check_counts(X: Array) -> None:
    if namespace(X).any(X < 0):
        raise KernelError(
            f"Tanimoto and MinMax take bits or counts, got {X.min()}; use another kernel for "
            "real-valued columns"
        )
