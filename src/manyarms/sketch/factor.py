"""V = λI + Σ ψψᵀ, which observations and new coordinates only enlarge, as its Cholesky factor and some rows beside it.

An update of the factor costs O(m²) whether it takes in one row ψ or sixty. So rows wait: V = C(I + BᵀB)Cᵀ, the rows of B
being C⁻¹ψ. With M = I + BBᵀ = RRᵀ, a triangle as large as there are rows waiting,

    V⁻¹z = C⁻ᵀc,   zᵀV⁻¹z = ‖c‖² + ‖y‖²,   b = C⁻¹z,  y = M⁻¹Bb,  c = b − Bᵀy:

two sums of squares, nothing that cancels. (‖b‖² − ‖R⁻¹Bb‖² would lose all digits where an observation explains most of b.)
"""

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from manyarms.errors import NumericalError
from manyarms.sketch.growing import SPARE, Stack, Triangle
from manyarms.typing import Array

WAITING = 64
"""Rows that wait at most. A fold of 64 costs 2.3 times a fold of one at m = 600 (LAPACK's tpqrt)."""


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

    def scaled(self, roots: Array) -> "Half":
        """Of the columns z times these numbers (k,)."""
        return Half(*(part * roots for part in self))

    def extended(self, zeta: Array, regularization: float) -> "Half":
        """Of columns with further coordinates ζ (j, k), in which nothing was observed."""
        more = zeta / np.sqrt(regularization)
        return self._replace(b=np.vstack([self.b, more]), c=np.vstack([self.c, more]))


@dataclass(frozen=True)
class Factor:
    """A value: V of some moment, (m, m)."""

    regularization: float  # λ
    C: Triangle
    R: Triangle  # (J, J) of the rows waiting
    _rows: (
        Stack  # (J, ≥ m) B beside Y, the rows ψ: (J, 2, ≥ m), zero beyond the coordinates of then
    )
    log_det: float  # ln det(V/λ)

    @classmethod
    def prior(cls, regularization: float) -> "Factor":
        """No coordinates, nothing observed."""
        return cls.of(regularization, Triangle.empty(), 0.0)

    @classmethod
    def of(cls, regularization: float, C: Triangle, log_det: float) -> "Factor":
        """V = CCᵀ, nothing waiting."""
        return cls(regularization, C, Triangle.empty(), _room(C.n + SPARE), log_det)

    @property
    def m(self) -> int:
        """Coordinates."""
        return self.C.n

    @property
    def _B(self) -> Array:
        return self._rows.items[:, 0, : self.m]

    def grown(self) -> "Factor":
        """With one more coordinate, in which nothing was observed: V becomes blockdiag(V, λ)."""
        row = np.zeros(self.m + 1)
        row[-1] = np.sqrt(self.regularization)
        rows = self._rows
        width = rows.items.shape[2]
        if self.m == width:
            wider = np.zeros((rows.n, 2, 2 * width))
            wider[:, :, :width] = rows.items
            rows = Stack(wider)
        return Factor(self.regularization, self.C.appended(row), self.R, rows, self.log_det)

    def half(self, Z: Array) -> Half:
        """Of columns z (m, k), or of one (m,)."""
        b = self.C.solve(Z)
        if not self.R.n:
            return Half(b, b[:0], b[:0], b)
        B = self._rows.items[:, 0, : self.C.n]
        t = self.R.solve(B @ b)
        y = self.R.solve_transposed(t)
        return Half(b, t, y, b - B.T @ y)

    def norm(self, x: Array) -> float:
        """√(xᵀVx) of x (m,)."""
        inside = self.C.transposed_product(x)
        waiting = self._B @ inside
        return float(np.sqrt(inside @ inside + waiting @ waiting))

    def observed(self, Y: Array, half: Half, N: Array) -> "Factor":
        """V + YᵀY for rows Y (k, m), given `half` of them and the lower factor N of I + YV⁻¹Yᵀ."""
        k, m = Y.shape
        if self.R.n + k > WAITING:
            return self._folded(Y)
        # I + BBᵀ grows by a row for each ψ: what is new of its factor is [R⁻¹Bb; N].
        R = self.R
        rows = np.zeros((k, 2, self._rows.items.shape[2]))
        for i in range(k):
            R = R.appended(np.concatenate([half.t[:, i], N[i, : i + 1]]))
            rows[i, 0, :m] = half.b[:, i]
        rows[:, 1, :m] = Y
        log_det = self.log_det + 2 * float(np.log(np.diag(N)).sum())
        return Factor(self.regularization, self.C, R, self._rows.appended(rows), log_det)

    def observed_one(self, psi: Array, b: Array, t: Array, pivot: float) -> "Factor":
        """V + ψψᵀ, given what `half` says of ψ (m,), and √(1 + ψᵀV⁻¹ψ)."""
        if self.R.n == WAITING:
            return self._folded(psi[None])
        m = len(psi)
        row = np.zeros((1, 2, self._rows.items.shape[2]))
        row[0, 0, :m] = b
        row[0, 1, :m] = psi
        R = self.R.appended(np.concatenate((t, (pivot,))))
        log_det = self.log_det + 2 * log(pivot)
        return Factor(self.regularization, self.C, R, self._rows.appended(row), log_det)

    @cached_property
    def folded(self) -> "Factor":
        """The same V with nothing waiting."""
        return self._folded(np.zeros((0, self.m))) if self.R.n else self

    def _folded(self, Y: Array) -> "Factor":
        """V + YᵀY with nothing waiting: [Cᵀ; Y] = Q[C′ᵀ; 0]."""
        if not self.m:
            return self
        rows = np.vstack([self._rows.items[:, 1, : self.m], Y])
        upper, _, _, _ = lapack.dtpqrt(0, min(self.m, 32), self.C.upper, np.asfortranarray(rows))
        upper *= np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
        diagonal = np.diag(upper)
        if not np.isfinite(upper).all() or diagonal.min() <= 0:
            raise NumericalError(
                "the posterior matrix is not finite in float64; raise `regularization` or rescale the kernel"
            )
        log_det = float(2 * np.log(diagonal / np.sqrt(self.regularization)).sum())
        return Factor.of(self.regularization, Triangle.of(upper.T), log_det)

    @property
    def trace_of_inverse(self) -> float:
        """Tr V⁻¹ = ‖C⁻¹‖², O(m³)."""
        inverse, _ = lapack.dtrtri(self.folded.C.upper)
        return float(np.square(np.triu(inverse)).sum())


def _room(width: int) -> Stack:
    return Stack(np.zeros((0, 2, width)))
