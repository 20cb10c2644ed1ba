"""W, and the embedding z(x) = L⁻¹k_W(x) of any row with its residual r(x) = k(x, x) − ‖z(x)‖²."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from manyarms.engine.growing import Stack, Triangle
from manyarms.engine.linalg import EPS, cholesky, pivoted_cholesky
from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import shown
from manyarms.lapack import blas
from manyarms.typing import Array, Indices, Mask

PSD_TOLERANCE = 1e-6
"""Of κ². A residual below −1e-6·κ² is no rounding error, which is some 1e-13·κ² for m = 1,000, nor
that of a kernel computed in float32 (1e-7): the kernel is not positive semi-definite."""
FEW = 8
"""Rows up to which a kernel of W and the rows is cheaper than one of the rows and W: see
`kernels/stationary.py`."""
RECENT = 64
"""Rows whose embeddings are remembered."""


class Embedded(NamedTuple):
    """The embedding of a row: of one that is in W as L has it, with r = 0 exactly."""

    z: Array  # (m,)
    r: float  # not negative
    spread: float  # ‖L⁻ᵀz‖₁, by which rounding of r is magnified
    known: bool  # the row is in W


@dataclass(eq=False)
class Inducing:
    """A value: W in the order in which its rows entered, and the factor LLᵀ = K_WW.

    z is the paper's (K_S^{1/2})⁺k_S(·) up to a rotation, on which nothing depends.
    """

    kernel: Kernel
    _rows: Stack  # (m, d)
    _keys: Stack  # (m,)
    L: Triangle
    # Of the rows by their bytes. All values share it, so what it says is checked.
    _places: dict[bytes, int] = field(default_factory=dict)
    _recent_cache: dict[bytes, Embedded] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = self._rows.items  # (m, d)
        self.keys = self._keys.items  # numbers of the arms in W, (m,), −1 for rows given by value

    @classmethod
    def none(cls, kernel: Kernel, d: int) -> "Inducing":
        """No rows yet."""
        keys = np.zeros(0, dtype=np.intp)
        return cls(kernel, Stack(np.zeros((0, d))), Stack(keys), Triangle.of(np.zeros((0, 0))))

    @classmethod
    def fit(
        cls, kernel: Kernel, rows: Array, keys: Indices, tolerance: float | None
    ) -> tuple["Inducing", Indices]:
        """W of a dictionary, largest residuals first, and which of its rows these are.

        They are those whose residual exceeds the tolerance.
        Without a tolerance all rows stay, the smallest pivots held at ε·κ². Dropping a
        near-duplicate moves the mean by the *root* of its residual times the difference of its
        rewards: too much where the posterior is to be the exact one.
        """
        K = kernel(rows, rows)
        check_covariance(K, rows, kernel)
        kappa2 = float(np.diag(K).max())
        keep_all = tolerance is None and kappa2 > 0
        least = EPS * kappa2 if tolerance is None else tolerance
        L, kept, residual = pivoted_cholesky(K, least, keep_all=keep_all)
        worst = int(residual.argmin())
        if residual[worst] < -PSD_TOLERANCE * kappa2:
            near = rows[kept[np.abs(K[worst, kept]).argmax()]]
            raise not_positive(kernel, rows[worst], residual[worst], near)
        places = {row.tobytes(): i for i, row in enumerate(rows[kept])}
        return cls(kernel, Stack(rows[kept]), Stack(keys[kept]), Triangle.of(L), places), kept

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is only remembered.
        return Inducing, (self.kernel, self._rows, self._keys, self.L, self._places)

    def appended(
        self, rows: Array, keys: Indices, z: Array, *, supposed: bool = False
    ) -> "Inducing":
        """With more rows (j, d). z are their rows of L, one behind the other; each ends with √r."""
        m = self.L.n
        # What is only supposed is forgotten soon: it must not stay in a dictionary that all share.
        places = self._places.copy() if supposed else self._places
        for i, row in enumerate(rows, start=m):
            places[row.tobytes()] = i
        L = self.L.with_rows(z, len(rows))
        return Inducing(
            self.kernel, self._rows.appended(rows), self._keys.appended(keys), L, places
        )

    def place(self, row: Array) -> int:
        """Where a row is in W; −1 where it is not."""
        m = self.L.n
        key = row.tobytes()
        place = self._places.get(key, m)
        return place if place < m and self.rows[place].tobytes() == key else -1

    def feature(self, row: Array, diag: float) -> Embedded:
        """The embedding of one row (d,). An arm that is pulled again and again is embedded once
        while W stays as it is."""
        recent = self._recent_cache
        key = row.tobytes()
        found = recent.get(key)
        if found is None:
            if len(recent) == RECENT:
                recent.clear()
            found = recent[key] = self._feature(row, diag)
        return found

    def _feature(self, row: Array, diag: float) -> Embedded:
        L = self.L
        if not L.n:
            return Embedded(np.zeros(0), diag, 0.0, False)
        place = self.place(row)
        if place >= 0:
            z = np.zeros(L.n)
            z[: place + 1] = L.row(place)
            return Embedded(z, 0.0, 0.0, True)
        z = L.solve(self.kernel(self.rows, row[None])[:, 0])
        r = diag - float(z.dot(z))
        if r < -PSD_TOLERANCE * diag:
            self.check_positive(row[None], np.array([diag]), z[None], np.array([r]))
        return Embedded(z, max(r, 0.0), float(np.abs(L.solve_transposed(z)).sum()), False)

    def features(self, rows: Array, diag: Array) -> tuple[Array, Array, Mask]:
        """Of rows (n, d): z (n, m), r (n,), in W (n,)."""
        in_W = np.zeros(len(rows), dtype=bool)
        if not self.L.n:
            return np.zeros((len(rows), 0)), diag.copy(), in_W
        Z = self.L.solve(columns(self.kernel, self.rows, rows)).T
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
        """u of columns z (m, k), none of them of a row in W: L⁻ᵀz in float32, twice as fast and
        right to some digits."""
        spread = np.zeros(z.shape[1])
        if z.size:
            L = self.L.upper.astype(np.float32)
            alpha = blas.strsm(1.0, L, z.astype(np.float32), overwrite_b=1)
            spread = np.abs(alpha, out=alpha).sum(axis=0)
        return np.asarray(EPS * kappa2 * np.square(1 + spread))

    def check_positive(self, rows: Array, diag: Array, Z: Array, r: Array) -> None:
        """Raise KernelError where k(x, x) − ‖z‖² of a row is negative beyond rounding."""
        for i in np.flatnonzero(r < -PSD_TOLERANCE * diag):
            kappa2 = float(np.square(self.L.row(0)[0]) + diag[i])
            rounding = self.rounding(Z[i][:, None], kappa2)[0]
            if r[i] < -PSD_TOLERANCE * diag[i] - 100 * rounding:
                near = np.abs(self.kernel(self.rows, rows[i : i + 1])[:, 0]).argmax()
                raise not_positive(self.kernel, rows[i], r[i], self.rows[near])


def columns(kernel: Kernel, W: Array, X: Array) -> Array:
    """k_W(x) of rows X (n, d), as columns (m, n)."""
    return kernel(W, X) if len(X) <= FEW else kernel(X, W).T


def ridged_factor(kernel: Kernel, rows: Array, ridge: Array) -> Array:
    """G (n, n) with GGᵀ = K + diag(ridge).

    Raises KernelError, naming a pair, where there is none and the kernel is at fault.
    """
    T = kernel(rows, rows)
    T[np.diag_indices_from(T)] += ridge
    try:
        return cholesky(T)
    except NumericalError:
        # A pivoted factorisation says which row is at fault, and raises where the kernel is.
        tolerance = EPS * float(kernel.diag(rows).max())
        Inducing.fit(kernel, rows, np.arange(len(rows)), tolerance)
        raise


def not_positive(kernel: Kernel, x: Array, variance: float, y: Array) -> KernelError:
    """What to say of a row x whose variance is negative given others, y being one of them."""
    return KernelError(
        f"the kernel is not positive semi-definite: x = {shown(kernel, x)} has the negative "
        f"variance {variance:.3g} given rows such as y = {shown(kernel, y)}; "
        "use a kernel that is a covariance"
    )


def check_kernel(kernel: Kernel, rows: Array, diag: Array) -> None:
    """Raise KernelError unless it is a covariance on some rows; `diag` holds its own k(x, x)."""
    K = kernel(rows, rows)
    check_covariance(K, rows, kernel)
    if np.abs(np.diag(K) - diag).max() > PSD_TOLERANCE * max(diag.max(), np.diag(K).max()):
        raise KernelError(
            f"{kernel!r} has k(x, x) = {np.diag(K)[0]} by rows but {diag[0]} by diag(); noise "
            "belongs into `regularization`: leave a white-noise kernel out"
        )


def check_covariance(K: Array, rows: Array, kernel: Kernel) -> None:
    """Raise KernelError unless K is symmetric and satisfies k(x, y)² ≤ k(x, x) k(y, y)."""
    d = np.diag(K)
    slack = PSD_TOLERANCE * d.max()
    asymmetry = np.abs(K - K.T)
    if asymmetry.max() > slack:
        i, j = np.unravel_index(int(asymmetry.argmax()), K.shape)
        raise KernelError(
            f"the kernel is not symmetric: k(x, y) = {K[i, j]} but k(y, x) = {K[j, i]} for "
            f"x = {shown(kernel, rows[i])}, y = {shown(kernel, rows[j])}"
        )
    # Every 2×2 minor of a positive semi-definite K is non-negative.
    root = np.sqrt(np.maximum(d, 0.0))
    excess = np.abs(K) - np.outer(root, root)
    if excess.max() > slack:
        i, j = np.unravel_index(int(excess.argmax()), K.shape)
        raise KernelError(
            f"the kernel is not positive semi-definite: |k(x, y)| = {abs(K[i, j])} exceeds "
            f"√(k(x, x) k(y, y)) = {root[i] * root[j]} for x = {shown(kernel, rows[i])}, "
            f"y = {shown(kernel, rows[j])}; "
            "use a kernel that is a covariance"
        )
