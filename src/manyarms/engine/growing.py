"""Arrays and triangles that only grow: successive values share one buffer, so that a step copies
O(m) and not O(m²).

V = λI + Σ ψψᵀ, which observations and new coordinates only enlarge, as its Cholesky factor and some
rows beside it.

An update of the factor costs O(m²) whether it takes in one row ψ or sixty. So rows wait: V = C(I +
BᵀB)Cᵀ, the rows of B being C⁻¹ψ. With M = I + BBᵀ = RRᵀ, a triangle as large as there are rows
waiting,

    V⁻¹z = C⁻ᵀc,   zᵀV⁻¹z = ‖c‖² + ‖y‖²,   b = C⁻¹z,  y = M⁻¹Bb,  c = b − Bᵀy:

two sums of squares, nothing that cancels. (‖b‖² − ‖R⁻¹Bb‖² would lose all digits where an
observation explains most of b.)
"""

from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from manyarms.engine.linalg import PANEL, cholesky
from manyarms.errors import NumericalError
from manyarms.lapack import blas, lapack
from manyarms.typing import AnyArray, Array

SPARE_PLACES = 64
"""Free places, in items or in columns, that a buffer starts with: short runs never copy one."""
WAITING = 64
"""Rows that wait at most. A fold of 64 costs 2.3 times a fold of one at m = 600 (LAPACK's
tpqrt)."""
NOTHING = np.zeros(0)


def longer(x: Array, last: float) -> Array:
    """x (n,) with one more number. `np.append` takes four times as long."""
    made = np.empty(len(x) + 1)
    made[:-1] = x
    made[-1] = last
    return made


class Stack:
    """Items that are only ever appended.

    A value never changes. One that is made by `appended` writes behind what the older one sees, or,
    where another value wrote there already, into a buffer of its own.
    """

    __slots__ = ("_buffer", "_written", "items", "n")

    items: AnyArray  # (n, …), not to be written to
    n: int

    def __init__(self, items: AnyArray) -> None:
        self.n = len(items)
        self.items = items
        self._buffer = items
        self._written = [self.n]

    def __reduce__(self) -> tuple[type["Stack"], tuple[AnyArray]]:
        return Stack, (self.items,)  # without what is free in the buffer

    def grown(self, k: int) -> Self:
        """The stack with room for k more items, which are 0 until the caller writes them."""
        n = len(self.items)
        grown = object.__new__(type(self))
        grown.n = stop = n + k
        if self._written[0] == n and stop <= len(self._buffer):
            # Nobody has written behind what this value sees: go on in the same buffer.
            grown._buffer = self._buffer
            grown._written = self._written
        else:
            # Half as much again: n items are copied O(1) times each over all appends.
            room = (SPARE_PLACES + stop + n // 2, *self._buffer.shape[1:])
            grown._buffer = np.zeros(room, dtype=self._buffer.dtype)
            grown._buffer[:n] = self.items
            grown._written = [n]
        grown._written[0] = stop
        grown.items = grown._buffer[:stop]
        return grown

    def appended(self, more: AnyArray) -> Self:
        """The stack with more items on it."""
        if not len(more):
            return self  # also where the items cannot be written to: those of a snapshot
        grown = self.grown(len(more))
        grown.items[self.n :] = more
        return grown


class Triangle(Stack):
    """A lower triangular matrix T (n, n) that grows by rows. Its rows lie one behind the other:
    packed storage, n(n + 1)/2 items."""

    __slots__ = ("_upper_cache",)

    def __init__(self, n: int, packed: Array) -> None:
        super().__init__(packed)
        self.n = n
        self._upper_cache: Array | None = None

    def __reduce__(self) -> tuple[type["Stack"], tuple[Any, ...]]:
        return Triangle, (self.n, self.items)

    @classmethod
    def of(cls, lower: Array) -> "Triangle":
        """The lower triangle of a matrix (n, n)."""
        if not len(lower):
            return cls(0, np.zeros(0))
        upper = np.asfortranarray(lower.T)
        packed, _ = lapack.dtrttp(upper, uplo="U")
        made = cls(len(lower), packed)
        made._upper_cache = upper
        return made

    def with_rows(self, rows: Array, k: int) -> "Triangle":
        """The matrix with k more rows, one behind the other."""
        grown = self.grown(len(rows))
        grown.items[len(self.items) :] = rows
        grown.n = self.n + k
        grown._upper_cache = None
        return grown

    def with_row(self, row: Array, last: float) -> "Triangle":
        """The matrix with one more row: some numbers (≤ n,), then 0, and the last one."""
        grown = self.grown(self.n + 1)
        start = len(self.items)
        grown.items[start : start + len(row)] = row
        grown.items[-1] = last
        grown.n = self.n + 1
        grown._upper_cache = None
        return grown

    def row(self, i: int) -> Array:
        """Row i up to its diagonal, (i + 1,)."""
        start = i * (i + 1) // 2
        return self.items[start : start + i + 1]

    def last_rows(self, p: int) -> tuple[Array, Array]:
        """The rows from p on: what stands before column p (n − p, p), and the triangle behind it (n
        − p, n − p)."""
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
            self._upper_cache, _ = lapack.dtpttr(self.n, self.items, uplo="U")
        return np.asarray(self._upper_cache)

    def solve(self, b: Array, trans: int = 1) -> Array:
        """T⁻¹b, b (n,) or (n, k); T⁻ᵀb where `trans` is 0.

        BLAS reads columns: the packed rows of T are the packed columns of Tᵀ, hence `trans`.
        """
        if not b.size:
            return np.zeros(b.shape)
        if b.ndim == 1:
            solved: Array = blas.dtpsv(self.n, self.items, b, trans=trans)
            return solved
        if b.shape[1] == 1:
            return self.solve(b.ravel(), trans)[:, None]
        return np.asarray(blas.dtrsm(1.0, self.upper, b, trans_a=trans))

    def solve_transposed(self, b: Array) -> Array:
        """T⁻ᵀb, b (n,) or (n, k)."""
        return self.solve(b, 0)

    def transposed_product(self, x: Array) -> Array:
        """Tᵀx, x (n,)."""
        return np.asarray(blas.dtpmv(self.n, self.items, x)) if self.n else x


class Half(NamedTuple):
    """Of columns z (m, k): what V⁻¹z and zᵀV⁻¹z are made of."""

    b: Array  # (m, k) C⁻¹z
    t: Array  # (J, k) R⁻¹Bb
    y: Array  # (J, k)
    c: Array  # (m, k)

    @property
    def quad(self) -> Array:
        """zᵀV⁻¹z, (k,)."""
        return np.asarray(np.square(self.c).sum(axis=0) + np.square(self.y).sum(axis=0))

    @property
    def gram(self) -> Array:
        """ZᵀV⁻¹Z, (k, k)."""
        return np.asarray(self.c.T @ self.c + self.y.T @ self.y)


@dataclass(eq=False)
class Factor:
    """A value: V of some moment, (m, m)."""

    regularization: float  # λ
    C: Triangle
    R: Triangle  # (J, J) of the rows waiting
    waiting: Stack  # (J, 2, ≥ m) rows of B and the ψ themselves, 0 beyond the coordinates of then
    log_det: float  # ln det(V/λ)

    @classmethod
    def of(cls, regularization: float, C: Array) -> "Factor":
        """V = CCᵀ, nothing waiting."""
        log_det = float(2 * np.log(np.diag(C) / np.sqrt(regularization)).sum())
        waiting = Stack(np.zeros((0, 2, len(C) + SPARE_PLACES)))
        return cls(regularization, Triangle.of(C), Triangle.of(C[:0, :0]), waiting, log_det)

    def grown(self) -> "Factor":
        """With one more coordinate, in which nothing was observed: V becomes blockdiag(V, λ)."""
        waiting = self.waiting
        width = waiting.items.shape[2]
        if self.C.n == width:
            # The rows that wait need one column more: twice as many, so that this is rare.
            wider = np.zeros((waiting.n, 2, 2 * width))
            wider[:, :, :width] = waiting.items
            waiting = Stack(wider)
        C = self.C.with_row(NOTHING, sqrt(self.regularization))
        return Factor(self.regularization, C, self.R, waiting, self.log_det)

    def half(self, Z: Array) -> Half:
        """Of columns z (m, k), or of one (m,)."""
        b = self.C.solve(Z)
        if not self.R.n:
            return Half(b, b[:0], b[:0], b)
        B = self.waiting.items[:, 0, : self.C.n]
        t = self.R.solve(B @ b)
        y = self.R.solve_transposed(t)
        return Half(b, t, y, b - B.T @ y)

    def norm(self, x: Array) -> float:
        """√(xᵀVx) of x (m,)."""
        # xᵀC(I + BᵀB)Cᵀx.
        inside = self.C.transposed_product(x)
        waiting = self.waiting.items[:, 0, : self.C.n] @ inside
        return float(np.sqrt(inside @ inside + waiting @ waiting))

    def observed_one(self, psi: Array, b: Array, t: Array, pivot: float) -> "Factor":
        """V + ψψᵀ, given what `half` says of ψ (m,), and √(1 + ψᵀV⁻¹ψ)."""
        if self.R.n == WAITING:
            return self.fold(psi[None]).with_coordinates()
        m = len(psi)
        waiting = self.waiting.grown(1)
        waiting.items[-1, 0, :m] = b
        waiting.items[-1, 1, :m] = psi
        # Of M = I + BBᵀ, as Cholesky has it. With 1 + ψᵀV⁻¹ψ in its place, which is more accurate,
        # the errors of R would grow from row to row.
        R = self.R.with_row(t, sqrt(max(1.0, 1.0 + float(b.dot(b)) - float(t.dot(t)))))
        log_det = self.log_det + 2 * log(pivot)  # det(V + ψψᵀ) = det V·(1 + ψᵀV⁻¹ψ)
        return Factor(self.regularization, self.C, R, waiting, log_det)

    @cached_property
    def folded(self) -> "Factor":
        """The same V with nothing waiting."""
        return self.fold(np.zeros((0, self.C.n))).with_coordinates() if self.R.n else self

    def fold(self, Y: Array) -> "Fold":
        """V + YᵀY for rows Y (k, m), nothing waiting."""
        m = self.C.n
        rows = np.asfortranarray(np.vstack([self.waiting.items[:, 1, :m], Y]))
        if not m:
            return Fold(self.regularization, np.zeros((0, 0)), rows, rows)
        upper, V, T, _ = lapack.dtpqrt(0, min(m, PANEL), self.C.upper, rows, overwrite_b=1)
        return Fold(self.regularization, upper, V, T)

    def faded(self, gamma: float) -> "Factor":
        """γV + (1 − γ)λI, nothing waiting: the sum and its factor, O(m³)."""
        m = self.C.n
        if not m:
            return self
        rows = np.asfortranarray(np.vstack([self.C.upper, self.waiting.items[:, 1, :m]]))
        V = blas.dsyrk(gamma, rows, trans=1, lower=1)  # γ(CCᵀ + Σψψᵀ), its lower triangle
        V[np.diag_indices(m)] += (1 - gamma) * self.regularization
        return Factor.of(self.regularization, cholesky(V))

    @cached_property
    def trace_of_inverse(self) -> float:
        """Tr V⁻¹ = ‖C⁻¹‖², O(m³)."""
        inverse, _ = lapack.dtrtri(self.folded.C.upper)
        return float(np.square(np.triu(inverse)).sum())


class Fold(NamedTuple):
    """V + YᵀY = C′C′ᵀ by [Cᵀ; Y] = Q[C′ᵀ; 0], with Q as LAPACK's tpqrt leaves it."""

    regularization: float  # λ
    upper: Array  # (m, m) C′ᵀ, but for the signs of its rows
    V: Array  # (k, m)
    T: Array

    def solve(self, B: Array) -> Array:
        """C′⁻¹B in the first p coordinates, B (p, k)."""
        p = len(B)
        return blas.dtrsm(1.0, self.upper[:p, :p], B, trans_a=1) if B.size else B

    def with_coordinates(self, more: Array | None = None) -> Factor:
        """The factor with j more coordinates: λ, and what the last rows observed have there, (k,
        j)."""
        m = len(self.upper)
        upper = self.upper
        if more is not None and more.size:
            j = more.shape[1]
            # Qᵀ acts on the new columns [0; more]; below what it puts beside C′ᵀ, √λI and the rest
            # are factored alike.
            beside = np.zeros((m, j), order="F")
            rest = np.zeros((len(self.V), j), order="F")
            rest[len(rest) - len(more) :] = more
            if m:
                beside, rest, _ = lapack.dtpmqrt(0, self.V, self.T, beside, rest, trans="T")
            corner = np.sqrt(self.regularization) * np.eye(j, order="F")
            corner, _, _, _ = lapack.dtpqrt(0, min(j, PANEL), corner, rest)
            upper = np.zeros((m + j, m + j), order="F")
            upper[:m, :m] = self.upper
            upper[:m, m:] = beside
            upper[m:, m:] = corner
        upper *= np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
        if not np.isfinite(upper).all() or np.diag(upper).min(initial=1.0) <= 0:
            raise NumericalError(
                "the posterior matrix is not finite in float64; raise `regularization` or "
                "rescale the kernel"
            )
        return Factor.of(self.regularization, upper.T)
