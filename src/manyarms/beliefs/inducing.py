"""The inducing rows W, which only grow, and the embedding on them: z(x) = L⁻¹k_W(x), r(x) = k(x, x) − ‖z(x)‖²."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from manyarms.kernels import Kernel
from manyarms.sketch.embedding import not_positive
from manyarms.sketch.growing import Stack, Triangle
from manyarms.sketch.linalg import EPS
from manyarms.typing import Array, Indices, Mask

FEW = 8
"""Rows up to which a kernel of W and the rows is cheaper than one of the rows and W: see `kernels/distances.py`."""
RECENT = 64
"""Rows whose embeddings are remembered."""
NEGATIVE = 1e-6
"""A residual below minus this part of k(x, x) is no rounding: the kernel is not positive semi-definite."""


class Embedded(NamedTuple):
    """The embedding of a row: of one that is in W as L has it, with r = 0 exactly."""

    z: Array  # (m,)
    r: float  # not negative
    spread: float  # ‖L⁻ᵀz‖₁, by which rounding of r is magnified
    known: bool  # the row is in W


@dataclass(frozen=True)
class Inducing:
    """A value: W in the order in which its rows entered, and the factor LLᵀ = K_WW."""

    kernel: Kernel
    _rows: Stack  # (m, d)
    _keys: Stack  # (m,)
    L: Triangle
    _places: dict[bytes, int] = field(
        default_factory=dict
    )  # of rows; shared by all values, so checked when read
    _recent_cache: dict[bytes, tuple[Triangle, "Embedded"]] = field(
        default_factory=dict
    )  # a cache, shared as well

    @classmethod
    def none(cls, kernel: Kernel, n_features: int) -> "Inducing":
        """No rows yet."""
        return cls(
            kernel,
            Stack(np.zeros((0, n_features))),
            Stack(np.zeros(0, dtype=np.intp)),
            Triangle.empty(),
        )

    @property
    def m(self) -> int:
        """|W|."""
        return self.L.n

    @property
    def rows(self) -> Array:
        """(m, d)."""
        return self._rows.items

    @property
    def keys(self) -> Indices:
        """The numbers of the arms in W, (m,), −1 for rows given by value."""
        return self._keys.items

    def appended(self, rows: Array, keys: Indices | int, z: Array) -> "Inducing":
        """With one more row (d,), or several (j, d). z are their rows of L, one behind the other; each ends with √r."""
        rows = np.atleast_2d(rows)
        for i, row in enumerate(rows, start=self.m):
            self._places[row.tobytes()] = i
        return Inducing(
            self.kernel,
            self._rows.appended(rows),
            self._keys.appended(np.atleast_1d(keys)),
            Triangle(self.m + len(rows), self.L.packed.appended(z)),
            self._places,
            self._recent_cache,
        )

    def place(self, row: Array) -> int:
        """Where a row is in W; −1 where it is not."""
        place = self._places.get(row.tobytes(), self.m)
        return place if place < self.m and np.array_equal(self.rows[place], row) else -1

    def feature(self, row: Array, diag: float) -> "Embedded":
        """The embedding of one row (d,). An arm that is pulled again and again is embedded once while W stays as it is."""
        key = row.tobytes()
        known = self._recent_cache.get(key)
        if known is not None and known[0] is self.L:
            return known[1]
        found = self._feature(row, diag)
        if len(self._recent_cache) >= RECENT:
            self._recent_cache.clear()
        self._recent_cache[key] = (self.L, found)
        return found

    def _feature(self, row: Array, diag: float) -> "Embedded":
        place = self.place(row)
        if place >= 0:
            z = np.zeros(self.m)
            z[: place + 1] = self.L.row(place)
            return Embedded(z, 0.0, 0.0, True)
        if not self.m:
            return Embedded(np.zeros(0), diag, 0.0, False)
        z = self.L.solve(self.kernel(self.rows, row[None])[:, 0])
        r = diag - float(z @ z)
        if r < -NEGATIVE * diag:
            self.check_positive(row[None], np.array([diag]), z[None], np.array([r]))
        return Embedded(z, max(r, 0.0), float(np.abs(self.L.solve_transposed(z)).sum()), False)

    def features(self, rows: Array, diag: Array) -> tuple[Array, Array, Mask]:
        """Of rows (n, d): z (n, m), r (n,), in W (n,)."""
        in_W = np.zeros(len(rows), dtype=bool)
        if not self.m:
            return np.zeros((len(rows), 0)), diag.copy(), in_W
        K = self.kernel(self.rows, rows) if len(rows) <= FEW else self.kernel(rows, self.rows).T
        Z = self.L.solve(K).T
        r = diag - np.einsum("ij,ij->i", Z, Z)
        for i in [i for i, row in enumerate(rows) if row.tobytes() in self._places]:
            place = self.place(rows[i])
            if place >= 0:
                in_W[i] = True
                Z[i] = 0.0
                Z[i, : place + 1] = self.L.row(place)
        r[in_W] = 0.0
        self.check_positive(rows, diag, Z, r)
        return Z, np.maximum(r, 0.0), in_W

    def rounding(self, z: Array, kappa2: float) -> Array:
        """u of columns z (m, k), none of them of a row in W: L⁻ᵀz in float32, twice as fast and right to some digits."""
        spread = np.zeros(z.shape[1])
        if z.size:
            L = self.L.upper.astype(np.float32)
            alpha = blas.strsm(1.0, L, z.astype(np.float32), overwrite_b=1)
            spread = np.abs(alpha, out=alpha).sum(axis=0)
        return np.asarray(EPS * kappa2 * np.square(1 + spread))

    def check_positive(self, rows: Array, diag: Array, Z: Array, r: Array) -> None:
        """Raise KernelError where k(x, x) − ‖z‖² of a row is negative beyond rounding."""
        for i in np.flatnonzero(r < -NEGATIVE * diag):
            kappa2 = float(np.square(self.L.row(0)[0]) + diag[i])
            if r[i] < -NEGATIVE * diag[i] - 100 * self.rounding(Z[i][:, None], kappa2)[0]:
                near = np.abs(self.kernel(self.rows, rows[i : i + 1])[:, 0]).argmax()
                raise not_positive(self.kernel, rows[i], r[i], self.rows[near])
