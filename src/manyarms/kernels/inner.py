"""Kernels of the inner product xᵀy: linear ones, and those of bits and counts."""

from dataclasses import dataclass

import numpy as np

from manyarms.checks import as_rows, real, store, table_of, whole
from manyarms.errors import ArmsError, KernelError, shortened
from manyarms.kernels.base import Kernel, as_blocks, check_kernels, namespace, row_blocks
from manyarms.typing import Array, ArrayLike

BITS = 52
"""Bits in a packed number: whole numbers of so many are exact in float64."""


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = xᵀy + c: linear bandits (OFUL, LinUCB).

    Parameters
    ----------
    bias : float
        c, the variance of a constant, 0 or more.
    """

    bias: float = 0.0

    def __post_init__(self) -> None:
        _check_bias(self)

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        K = X @ Y.T
        K += self.bias
        return K

    def diag(self, X: Array) -> Array:
        return np.asarray(np.einsum("ij,ij->i", X, X) + self.bias)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return V @ Y


@dataclass(frozen=True)
class Polynomial(Kernel):
    """k(x, y) = (xᵀy + c)ᵖ.

    Parameters
    ----------
    degree : int
        p, 1 or more.
    bias : float
        c, 0 or more.
    """

    degree: int = 2
    bias: float = 1.0

    def __post_init__(self) -> None:
        _check_bias(self)
        store(self, degree=whole(self.degree, "degree", at_most=1000, error=KernelError))

    def __call__(self, X: Array, Y: Array) -> Array:
        K = Linear(self.bias)(X, Y)
        K **= self.degree
        return K

    def diag(self, X: Array) -> Array:
        return Linear(self.bias).diag(X) ** self.degree

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        # ∂(xᵀy + c)ᵖ/∂x = p(xᵀy + c)ᵖ⁻¹y.
        slope: Array = self.degree * Linear(self.bias)(X, Y) ** (self.degree - 1)
        return (V * slope) @ Y


@dataclass(frozen=True, kw_only=True)
class Tanimoto(Kernel):
    """k(x, y) = xᵀy/(‖x‖² + ‖y‖² − xᵀy): shared bits over bits in either (Ralaivola et al. 2005,
    for molecules).

    Two rows of zeros have k = 1.

    Parameters
    ----------
    packed : bool
        Rows are bits that `pack` has packed; else bits or non-negative counts.
    """

    packed: bool = False

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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Unpacked(Kernel):
    """``kernel`` of rows whose last columns are bits that `pack` has packed, as 0 and 1.

    Parameters
    ----------
    kernel : Kernel
        A kernel of rows in which the bits are columns of their own.
    n_bits : tuple of int
        How many bits each packed column of the table had.
    """

    kernel: Kernel
    n_bits: tuple[int, ...]

    def __post_init__(self) -> None:
        check_kernels(self, self.kernel)
        if not isinstance(self.n_bits, tuple) or not self.n_bits:
            raise KernelError(
                "n_bits must be a tuple, the bits of each packed column, got "
                f"{shortened(self.n_bits)}"
            )
        for n in self.n_bits:
            whole(n, "a number of n_bits", error=KernelError)

    def __call__(self, X: Array, Y: Array) -> Array:
        return self.kernel(self._rows(X), self._rows(Y))

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(self._rows(X))

    def _rows(self, X: Array) -> Array:
        widths = [-(-b // BITS) for b in self.n_bits]  # ⌈b/BITS⌉
        start = X.shape[1] - sum(widths)
        ends = np.cumsum([start, *widths])
        words = [
            unpack(X[:, low:high], b)
            for low, high, b in zip(ends, ends[1:], self.n_bits, strict=False)
        ]
        return np.hstack([X[:, :start], *words])


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
    rows_of_bits = table_of(bits, "bits")
    n, b = rows_of_bits.shape
    if not b:
        raise ArmsError("bits must have a column at least, got none")
    width = -(-b // BITS)  # ⌈b/BITS⌉
    words = np.empty((n, width))
    powers = 2.0 ** np.arange(BITS)
    for rows in row_blocks(n, width):  # a float64 for each bit only of some rows at a time
        padded = np.zeros((rows.stop - rows.start, width * BITS))
        padded[:, :b] = rows_of_bits[rows]
        other = (padded != 0) & (padded != 1)
        if other.any():
            raise ArmsError(
                f"bits must be 0 or 1, got {padded[other][0]}; a threshold makes bits of "
                "numbers: X > 0.5"
            )
        words[rows] = padded.reshape(-1, width, BITS) @ powers
    return words


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
    packed = as_rows(words).astype(np.uint64)
    n_bits = whole(n_bits, "n_bits", at_most=BITS * packed.shape[1])
    # Bit i of a number is what is left of it shifted by i, and'ed with 1.
    bits = packed[:, :, None] >> np.arange(BITS, dtype=np.uint64) & np.uint64(1)
    return bits.reshape(len(packed), -1)[:, :n_bits].astype(np.float64)


def _check_bias(kernel: Linear | Polynomial) -> None:
    wanted = "a non-negative finite number"
    store(kernel, bias=real(kernel.bias, "bias", wanted, at_least=0, error=KernelError))


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
