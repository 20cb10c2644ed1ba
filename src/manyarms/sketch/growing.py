"""Arrays and triangles that only grow: successive values share one buffer, so that a step copies O(m) and not O(m²)."""

import numpy as np
from scipy.linalg import blas, lapack

from manyarms.typing import AnyArray, Array

SPARE = 64
"""Free places that a buffer starts with."""


class Stack:
    """Items that are only ever appended.

    A value never changes. One that is made by `appended` writes behind what the older one sees, or, where another value wrote
    there already, into a buffer of its own.
    """

    __slots__ = ("_buffer", "_written", "items", "n")

    items: AnyArray  # (n, …), not to be written to
    n: int

    def __init__(self, items: AnyArray) -> None:
        self.n = len(items)
        self.items = items
        self._buffer = items
        self._written = [self.n]

    def appended(self, more: AnyArray) -> "Stack":
        """The stack with more items on it."""
        n = self.n
        stop = n + len(more)
        grown = object.__new__(Stack)
        if self._written[0] == n and stop <= len(self._buffer):
            grown._buffer = self._buffer
            grown._written = self._written
        else:
            grown._buffer = np.empty(
                (SPARE + stop + n // 2, *self._buffer.shape[1:]), dtype=self._buffer.dtype
            )
            grown._buffer[:n] = self.items
            grown._written = [n]
        grown._buffer[n:stop] = more
        grown._written[0] = stop
        grown.items = grown._buffer[:stop]
        grown.n = stop
        return grown


class Triangle:
    """A lower triangular matrix T (n, n) that grows by rows. Its rows lie one behind the other: packed storage."""

    def __init__(self, n: int, packed: Stack) -> None:
        self.n = n
        self.packed = packed  # n(n + 1)/2 numbers
        self._upper_cache: Array | None = None

    @classmethod
    def empty(cls) -> "Triangle":
        """No rows yet."""
        return cls(0, Stack(np.zeros(0)))

    @classmethod
    def of(cls, lower: Array) -> "Triangle":
        """The lower triangle of a matrix (n, n)."""
        if not len(lower):
            return cls.empty()
        upper = np.asfortranarray(lower.T)
        packed, _ = lapack.dtrttp(upper, uplo="U")
        made = cls(len(lower), Stack(packed))
        made._upper_cache = upper
        return made

    def appended(self, row: Array) -> "Triangle":
        """The matrix with one more row (n + 1,)."""
        return Triangle(self.n + 1, self.packed.appended(row))

    def row(self, i: int) -> Array:
        """Row i up to its diagonal, (i + 1,)."""
        start = i * (i + 1) // 2
        return self.packed.items[start : start + i + 1]

    def last_rows(self, p: int) -> tuple[Array, Array]:
        """The rows from p on: what stands before column p (n − p, p), and the triangle behind it (n − p, n − p)."""
        k = self.n - p
        ahead = np.empty((k, p))
        corner = np.zeros((k, k), order="F")
        for i in range(k):
            row = self.row(p + i)
            ahead[i] = row[:p]
            corner[i, : i + 1] = row[p:]
        return ahead, corner

    @property
    def upper(self) -> Array:
        """Tᵀ as a full matrix (n, n), column-major."""
        if self._upper_cache is None:
            self._upper_cache, _ = lapack.dtpttr(self.n, self.packed.items, uplo="U")
        return np.asarray(self._upper_cache)

    @property
    def diagonal(self) -> Array:
        """(n,)."""
        i = np.arange(self.n)
        return np.asarray(self.packed.items[i * (i + 3) // 2])

    def solve(self, b: Array) -> Array:
        """T⁻¹b, b (n,) or (n, k)."""
        if not b.size:
            return np.zeros(b.shape)
        if b.ndim == 1:
            return np.asarray(blas.dtpsv(self.n, self.packed.items, b, trans=1))
        if b.shape[1] == 1:
            return np.asarray(blas.dtpsv(self.n, self.packed.items, b[:, 0], trans=1))[:, None]
        return np.asarray(blas.dtrsm(1.0, self.upper, b, trans_a=1))

    def solve_transposed(self, b: Array) -> Array:
        """T⁻ᵀb, b (n,) or (n, k)."""
        if not b.size:
            return np.zeros(b.shape)
        if b.ndim == 1:
            return np.asarray(blas.dtpsv(self.n, self.packed.items, b))
        if b.shape[1] == 1:
            return np.asarray(blas.dtpsv(self.n, self.packed.items, b[:, 0]))[:, None]
        return np.asarray(blas.dtrsm(1.0, self.upper, b))

    def transposed_product(self, x: Array) -> Array:
        """Tᵀx, x (n,)."""
        return np.asarray(blas.dtpmv(self.n, self.packed.items, x)) if self.n else x
