"""Passes over all arms on a device such as a graphics card, by the array API standard.

Rows are moved there once. A pass sends W, L, C and w, and brings back two numbers an arm,

    μ̃ = zᵀw,   σ̃² = (k(x, x) − ‖z‖²)/λ + ‖C⁻¹z‖²,   z = L⁻¹k_W(x),   V = CCᵀ,

all in float64. Factors are made on the CPU. What comes back only filters, as every table of scores
does: who may be best is scored by `Belief.moments` on the CPU, so that choices do not depend on the
device.

`xp` is a namespace of the standard (https://data-apis.org/array-api), by array-api-compat, and
formulas use nothing else. Today it is PyTorch's: only `device_of` and `Device.free` know that.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, frexp, ldexp, log2
from typing import Any

import numpy as np

from manyarms.beliefs.base import Arms, Belief
from manyarms.beliefs.frozen import Frozen
from manyarms.errors import KernelError, MemoryBudgetError, ParameterError
from manyarms.kernels import (
    RBF,
    Hamming,
    Kernel,
    Linear,
    Matern,
    On,
    Own,
    Polynomial,
    Product,
    Scaled,
    Sum,
    Tanimoto,
)
from manyarms.kernels.distances import LARGEST_COORDINATE, NEAR
from manyarms.lapack import controller
from manyarms.machine import half_the_memory
from manyarms.sketch.linalg import solve_lower
from manyarms.typing import AnyArray, Array, Indices

CORNER = 64
"""Rows of a triangle that are solved for at once, by the inverse of a corner of so many."""
ROWS = 1 << 13
"""Arms to a chunk where they fit: with a few hundred inducing rows that is a million numbers."""
SIZE = 1024
"""Inducing rows for which chunks have room."""
BLOCKS = 16
"""Blocks in which z of a chunk is kept: every pass adds one, so that no other value is written to,
and then they are joined."""
MOVED = 1 << 16
"""Rows that are moved at a time: a mapped table is not read as a whole."""
AT_ONCE = 8
"""Arrays as large as the kernel values of a chunk that a pass has at most, of Matérn kernels."""

Formula = Callable[[Any, Any, Any], Any]
"""k(x, y) of all pairs, (n, m), of xp, X (n, d) and Y (m, d), arrays of xp in float64."""


# Devices


@dataclass(frozen=True)
class Device:
    """Where arrays of a namespace are."""

    xp: Any
    where: Any  # as the namespace has it
    name: str

    def sent(self, array: AnyArray) -> Any:
        """A copy of an array on the device."""
        # What cannot be written to is not taken without a warning.
        return self.xp.asarray(np.array(array), device=self.where)

    def brought(self, array: Any) -> Array:
        """An array of the device as one of NumPy."""
        from array_api_compat import to_device  # noqa: PLC0415  an extra

        return np.asarray(to_device(array, "cpu"))

    @property
    def free(self) -> float:
        """Bytes that may be taken."""
        if self.where.type == "cpu":
            return half_the_memory()
        import torch  # noqa: PLC0415  an extra

        return float(getattr(torch, self.where.type).mem_get_info(self.where)[0])


@cache
def device_of(name: str) -> Device:
    """The device of a name such as "cuda", tried."""
    try:
        import torch  # noqa: PLC0415  an extra
        from array_api_compat import torch as xp  # noqa: PLC0415
    except ImportError as error:
        raise ParameterError(
            f"device={name!r} needs PyTorch and array-api-compat: pip install 'manyarms[torch]', "
            f"or leave `device` out ({error})"
        ) from error
    # It has threads of its own, which must not fight over the cores either.
    controller.cache_clear()
    try:
        where = torch.device(name)
    except RuntimeError as error:
        raise _not_usable(name, error) from error
    return tried(xp, where, name)


def tried(xp: Any, where: Any, name: str) -> Device:
    """The device, once it has added two numbers in float64."""
    # Namespaces raise what comes, AssertionError too.
    try:
        _added(xp, xp.float32, where)
    except Exception as error:
        raise _not_usable(name, error) from error
    try:
        found = _added(xp, xp.float64, where)
    except Exception as error:
        raise ParameterError(
            f"device={name!r} has no float64, which scores need: use another device, or leave "
            f"`device` out ({_first_line(error)})"
        ) from error
    return Device(xp, where, str(found))


def _added(xp: Any, dtype: Any, where: Any) -> Any:
    """The device on which 1 + 1 was computed, and brought back."""
    two = 1 + xp.ones(1, dtype=dtype, device=where)
    if float(two[0]) != 2.0:
        raise ArithmeticError(f"1 + 1 is {float(two[0])} there")
    return two.device


def _not_usable(name: str, error: Exception) -> ParameterError:
    return ParameterError(
        f"device must be one that PyTorch can use here, such as 'cuda', 'cuda:1' or 'cpu', got "
        f"{name!r}: {_first_line(error)}"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_device(name: str, belief: Belief, n_arms: int, *, here: bool) -> None:
    """Raise ParameterError or KernelError where passes of this belief cannot be on the device;
    `here` unless the rows are in other processes, and the device too."""
    if not isinstance(belief, Frozen) or not n_arms:
        raise ParameterError(
            f"device={name!r} is for passes over a table, with rule=Inserted(…): leave `device` "
            f"out, got {type(belief).__name__} beliefs and {n_arms} arms"
        )
    on_device(belief.kernel)
    if here:
        device_of(name)


# Kernels


def on_device(kernel: Kernel) -> Formula:
    """The formula of a kernel.

    It is found by the very class: one that inherits may compute something else.
    """
    of = FORMULAS.get(type(kernel))
    if of is None:
        names = sorted(each.__name__ for each in FORMULAS)
        raise KernelError(
            f"{kernel!r} has no formula for devices; those of {', '.join(names)} have: use these, "
            "or leave `device` out"
        )
    return of(kernel)


def _rbf(kernel: RBF) -> Formula:
    return lambda xp, X, Y: xp.exp(-0.5 * _squared_distances(xp, X, Y, kernel))


def _matern(kernel: Matern) -> Formula:
    def of(xp: Any, X: Any, Y: Any) -> Any:
        D = 2 * kernel.nu * _squared_distances(xp, X, Y, kernel)
        R = xp.sqrt(D)  # √(2ν)ρ
        if kernel.nu == 0.5:
            return xp.exp(-R)
        return (1 + R if kernel.nu == 1.5 else 1 + R + D / 3) * xp.exp(-R)

    return of


def _squared_distances(xp: Any, X: Any, Y: Any, kernel: RBF | Matern) -> Any:
    """‖(x − y)/ℓ‖² of all pairs.

    As `kernels/distances.py` has it, and says why: x = x_hi + x_lo with x_hi whole numbers, whose
    products are exact, and pairs that are near are subtracted.
    """
    scale = xp.asarray(np.array(kernel.lengthscale), device=X.device)
    centre = xp.mean(X, axis=0)
    X = (X - centre) / scale
    Y = (Y - centre) / scale
    spread = max(float(xp.max(xp.abs(X))), float(xp.max(xp.abs(Y))))
    if not spread < LARGEST_COORDINATE:
        raise KernelError(
            f"rows divided by lengthscale {kernel.lengthscale} must be finite and below "
            f"{LARGEST_COORDINATE:.0e}; use a larger lengthscale or smaller features"
        )
    d = X.shape[1]
    # d · (2 · 2^bits)² ≤ 2⁵³ keeps every partial sum of the integer part exact.
    bits = (51 - ceil(log2(max(1, d)))) // 2
    exponent = max(frexp(spread)[1] - bits, -1000) if spread > 0 else 0
    X = X * ldexp(1.0, -exponent)
    Y = Y * ldexp(1.0, -exponent)
    X_hi = xp.round(X)
    Y_hi = xp.round(Y)
    X_lo = X - X_hi
    Y_lo = Y - Y_hi
    one_x = xp.ones((X.shape[0], 1), dtype=X.dtype, device=X.device)
    one_y = xp.ones((Y.shape[0], 1), dtype=X.dtype, device=X.device)

    def dots(A: Any, B: Any) -> Any:
        return xp.sum(A * B, axis=1)[:, None]

    # A row (−2x, ‖x‖², 1) times (y, 1, ‖y‖²) is ‖x − y‖², of each part.
    left = xp.concat([-2 * X_hi, dots(X_hi, X_hi), one_x], axis=1)
    D = left @ xp.concat([Y_hi, one_y, dots(Y_hi, Y_hi)], axis=1).T
    rest = 2 * dots(X_hi, X_lo) + dots(X_lo, X_lo)
    left = xp.concat([-2 * X_hi, -2 * X_lo, rest, one_x], axis=1)
    rest = 2 * dots(Y_hi, Y_lo) + dots(Y_lo, Y_lo)
    D += left @ xp.concat([Y_lo, Y, one_y, rest], axis=1).T
    near = D < NEAR
    i, j = xp.nonzero(near)
    if i.shape[0]:
        apart = (xp.take(X[:, c], i) - xp.take(Y[:, c], j) for c in range(d))
        D[near] = sum(difference**2 for difference in apart)
    D *= ldexp(1.0, 2 * exponent)
    return D


def _linear(kernel: Linear) -> Formula:
    return lambda xp, X, Y: X @ Y.T + kernel.bias


def _polynomial(kernel: Polynomial) -> Formula:
    return lambda xp, X, Y: (X @ Y.T + kernel.bias) ** kernel.degree


def _hamming(kernel: Hamming) -> Formula:
    def of(xp: Any, X: Any, Y: Any) -> Any:
        exponent = xp.zeros((X.shape[0], Y.shape[0]), dtype=X.dtype, device=X.device)
        for c, weight in enumerate(np.broadcast_to(1.0 / kernel.lengthscale, X.shape[1])):
            exponent -= float(weight) * xp.astype(X[:, c][:, None] != Y[:, c], X.dtype)
        return xp.exp(exponent)

    return of


def _tanimoto(kernel: Tanimoto) -> Formula:
    if kernel.packed:
        raise KernelError(
            f"{kernel!r} has no formula for devices: give rows of bits and Tanimoto(), or leave "
            "`device` out"
        )

    def of(xp: Any, X: Any, Y: Any) -> Any:
        K = X @ Y.T
        union = xp.sum(X * X, axis=1)[:, None] + xp.sum(Y * Y, axis=1) - K
        # Two rows of zeros have k = 1.
        return xp.where(union > 0, K, 1.0) / xp.where(union > 0, union, 1.0)

    return of


def _on(kernel: On) -> Formula:
    of = on_device(kernel.kernel)
    columns = slice(kernel.start, kernel.stop)
    return lambda xp, X, Y: of(xp, X[:, columns], Y[:, columns])


def _own(kernel: Own) -> Formula:
    of = on_device(kernel.kernel)

    def with_own(xp: Any, X: Any, Y: Any) -> Any:
        equal = X[:, 0][:, None] == Y[:, 0]
        for c in range(1, X.shape[1]):
            equal = equal & (X[:, c][:, None] == Y[:, c])
        return of(xp, X, Y) + kernel.variance * xp.astype(equal, X.dtype)

    return with_own


def _scaled(kernel: Scaled) -> Formula:
    of = on_device(kernel.kernel)
    return lambda xp, X, Y: kernel.constant * of(xp, X, Y)


def _sum(kernel: Sum) -> Formula:
    first = on_device(kernel.first)
    second = on_device(kernel.second)
    return lambda xp, X, Y: first(xp, X, Y) + second(xp, X, Y)


def _product(kernel: Product) -> Formula:
    first = on_device(kernel.first)
    second = on_device(kernel.second)
    return lambda xp, X, Y: first(xp, X, Y) * second(xp, X, Y)


FORMULAS: dict[type[Kernel], Callable[[Any], Formula]] = {
    Hamming: _hamming,
    Linear: _linear,
    Matern: _matern,
    On: _on,
    Own: _own,
    Polynomial: _polynomial,
    Product: _product,
    RBF: _rbf,
    Scaled: _scaled,
    Sum: _sum,
    Tanimoto: _tanimoto,
}


# Passes


@dataclass(frozen=True)
class ArmsOnDevice:
    """A value: the rows of a table on a device and, while they fit, their z, in chunks of arms."""

    device: Device
    rows: Any  # (n, d), float32 where they are
    diag: Any  # (n,) k(x, x)
    chunks: list[slice]
    room: float  # bytes that z of all arms may take
    Z: tuple[tuple[Any, ...], ...] = ()  # of each chunk: blocks (j, k), one below the other

    @classmethod
    def moved(cls, device: Device, arms: Arms) -> "ArmsOnDevice":
        """Copied to the device, where they stay."""
        n, d = arms.rows.shape
        needed = (d * arms.rows.dtype.itemsize + 8) * n
        free = device.free
        if needed > free:
            raise MemoryBudgetError(
                f"{n:,} rows of {d} columns take {needed:.3g} bytes on {device.name}, which has "
                f"{free:.3g}: leave `device` out, give rows in float32, or fewer of them"
            )
        xp = device.xp
        dtype = xp.float32 if arms.rows.dtype == np.float32 else xp.float64
        rows = xp.empty((n, d), dtype=dtype, device=device.where)
        for start in range(0, n, MOVED):
            rows[start : start + MOVED] = device.sent(arms.rows[start : start + MOVED])
        # Half of what is left is for z. A quarter is for a chunk, of SIZE inducing rows at least.
        left = free - needed
        step = min(ROWS, max(1, int(left / 4 / (8 * AT_ONCE * (SIZE + d)))))
        chunks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        return cls(device, rows, device.sent(arms.diag), chunks, left / 2)

    def keeps(self, m: int) -> bool:
        """Whether m coordinates of every arm fit."""
        return bool(8 * self.rows.shape[0] * m <= self.room)

    def at(self, belief: Frozen, p: int = 0) -> tuple["ArmsOnDevice", Array, Array]:
        """With z at a belief, of which the first p coordinates may be kept; μ̃ and σ̃²: O(nm²)."""
        xp = self.device.xp
        C = TriangleThere(self.device, belief.factor.folded.C.upper.T)
        w = self.device.sent(belief.w)

        def scored(chunk: slice, blocks: tuple[Any, ...]) -> tuple[Any, Any]:
            if not blocks:
                return xp.zeros_like(self.diag[chunk]), self.diag[chunk] / belief.regularization
            Z = xp.concat(blocks)
            r = xp.clip(self.diag[chunk] - _squares(xp, Z), min=0.0)
            return w @ Z, r / belief.regularization + _squares(xp, C.solve(Z))

        return self._each(belief, p, scored)

    def lowered(self, belief: Frozen, p: int, G: Array) -> tuple["ArmsOnDevice", Array, Array]:
        """The same by a product, the first p coordinates kept: μ̃, and what σ̃² falls by, ‖Gz‖² for
        rows G (k, m): O(nm)."""
        xp = self.device.xp
        M = self.device.sent(np.vstack([G, belief.w]))

        def scored(_: slice, blocks: tuple[Any, ...]) -> tuple[Any, Any]:
            H = _times(M, blocks)
            return H[-1], _squares(xp, H[:-1])

        return self._each(belief, p, scored)

    def columns(self, i: int, some: Indices | slice) -> Array:
        """z (m, k) of some arms of a chunk."""
        Z = self.device.xp.concat(self.Z[i])
        if not isinstance(some, slice):
            Z = self.device.xp.take(Z, self.device.sent(some), axis=1)
        return self.device.brought(Z)

    def _each(
        self, belief: Frozen, p: int, scored: Callable[[slice, tuple[Any, ...]], tuple[Any, Any]]
    ) -> tuple["ArmsOnDevice", Array, Array]:
        """Two numbers an arm, of chunk after chunk and its z."""
        device = self.device
        n, d = self.rows.shape
        keeps = self.keeps(belief.m)
        p = p if self.Z else 0
        most = 8 * AT_ONCE * self.chunks[0].stop * (belief.m + d)
        if most > device.free:
            raise MemoryBudgetError(
                f"a pass takes {most:.3g} bytes on {device.name}, which has {device.free:.3g}: end "
                "what else runs there, or leave `device` out"
            )
        embedded = self._embedder(belief, p)
        first = np.empty(n)
        second = np.empty(n)
        kept = []
        for i, chunk in enumerate(self.chunks):
            blocks = embedded(i)
            a, b = scored(chunk, blocks)
            first[chunk] = device.brought(a)
            second[chunk] = device.brought(b)
            if keeps:
                kept.append(blocks)
        return replace(self, Z=tuple(kept)), first, second

    def _embedder(self, belief: Frozen, p: int) -> Callable[[int], tuple[Any, ...]]:
        """Of the number of a chunk, its z in blocks, all but the first p coordinates computed:
        Z₊ = L₊₊⁻¹(K₊ − L₊Z)."""
        device = self.device
        xp = device.xp
        of = on_device(belief.kernel)
        W = device.sent(belief.W[p:])
        ahead, corner = belief.L.last_rows(p)
        L = device.sent(ahead)
        triangle = TriangleThere(device, corner)

        def embedded(i: int) -> tuple[Any, ...]:
            kept = self.Z[i] if p else ()
            if p == belief.m:
                return kept
            K = of(xp, W, xp.astype(self.rows[self.chunks[i]], xp.float64))
            if p:
                K = K - _times(L, kept)
            blocks = (*kept, triangle.solve(K))
            return blocks if len(blocks) <= BLOCKS else (xp.concat(blocks),)

        return embedded


def _times(M: Any, blocks: tuple[Any, ...]) -> Any:
    """MZ for Z in blocks, one below the other."""
    start = blocks[0].shape[0]
    total = M[:, :start] @ blocks[0]
    for block in blocks[1:]:
        stop = start + block.shape[0]
        total += M[:, start:stop] @ block
        start = stop
    return total


def _squares(xp: Any, B: Any) -> Any:
    """Column sums of squares."""
    return xp.sum(B * B, axis=0)


class TriangleThere:
    """A lower triangular matrix (m, m) on a device.

    Systems are solved by products of matrices, which every namespace has and devices do best.
    """

    def __init__(self, device: Device, L: Array) -> None:
        self._xp = device.xp
        self._L = device.sent(np.ascontiguousarray(L))
        corners = [L[i : i + CORNER, i : i + CORNER] for i in range(0, len(L), CORNER)]
        self._inverses = [
            device.sent(solve_lower(np.asfortranarray(each), np.eye(len(each), order="F")))
            for each in corners
        ]

    def solve(self, B: Any) -> Any:
        """L⁻¹B, B (m, k)."""
        L = self._L
        X = self._xp.empty_like(B)
        for i, inverse in enumerate(self._inverses):
            start = CORNER * i
            stop = start + inverse.shape[0]
            # L₁₁X₁ = B₁ − L₁₀X₀.
            right = B[start:stop] - L[start:stop, :start] @ X[:start]
            found = inverse @ right
            # An inverse loses digits with the condition number of its corner. One step of
            # refinement brings them back (Higham 2002, chapter 12).
            X[start:stop] = found + inverse @ (right - L[start:stop, start:stop] @ found)
        return X
