"""Embeddings on a device such as a graphics card, by the array API standard.

Rows are moved there once. A pass sends W, L, C and w, and brings back two numbers an arm,

    μ̃ = zᵀw,   σ̃² = (k(x, x) − ‖z‖²)/λ + ‖C⁻¹z‖²,   z = L⁻¹k_W(x),   V = CCᵀ,

all in float64; a sweep brings back μ̃, and what σ̃² falls by. Factors are made on the CPU, and
kernels are those of `kernels`. What comes back only filters: who may be best is scored by
`Belief.moments` on the CPU, so that choices do not depend on the device.

`xp` is a namespace of the standard (https://data-apis.org/array-api), by array-api-compat, and
formulas use nothing else. Today it is PyTorch's: only `device_of` and `Device.free` know that.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from manyarms.engine.base import Arms, Belief
from manyarms.engine.frozen import Engine, Frozen
from manyarms.engine.linalg import solve_lower
from manyarms.errors import KernelError, MemoryBudgetError, ParameterError, shortened
from manyarms.kernels import Kernel
from manyarms.lapack import controller
from manyarms.runtime.machine import half_the_memory
from manyarms.typing import AnyArray, Array

CORNER = 64
"""Rows of a triangle that are solved for at once, by the inverse of a corner of so many."""
ROWS = 1 << 13
"""Arms to a chunk: with a few hundred inducing rows that is a million numbers."""


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

    def room(self, arms: Arms) -> float:
        """Bytes that embeddings of a table may take there, beside its rows: half of what is left.

        MemoryBudgetError where the rows do not fit.
        """
        needed = arms.rows.nbytes + arms.diag.nbytes
        free = self.free
        if needed > free:
            n, d = arms.rows.shape
            raise MemoryBudgetError(
                f"{n:,} rows of {d} columns take {needed:.3g} bytes on {self.name}, which has "
                f"{free:.3g}: leave `device` out, give rows in float32, or fewer of them"
            )
        return (free - needed) / 2


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
    """The device, once it has added two numbers in float32, and in float64."""
    for dtype in (xp.float32, xp.float64):
        # Namespaces raise what comes, AssertionError too.
        try:
            two = 1 + xp.ones(1, dtype=dtype, device=where)
            if float(two[0]) != 2.0:
                raise ArithmeticError(f"1 + 1 is {float(two[0])} there")
        except Exception as error:
            if dtype is xp.float32:
                raise _not_usable(name, error) from error
            raise ParameterError(
                f"device={name!r} has no float64, which scores need: use another device, or leave "
                f"`device` out ({_first_line(error)})"
            ) from error
    return Device(xp, where, str(two.device))


def _not_usable(name: str, error: Exception) -> ParameterError:
    return ParameterError(
        f"device must be one that PyTorch can use here, such as 'cuda', 'cuda:1' or 'cpu', got "
        f"{shortened(name)}: {_first_line(error)}"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_device(name: str, belief: Belief, rows: Array | None) -> None:
    """Raise ParameterError or KernelError where passes of this belief cannot be on the device; rows
    are some of the table, None where the device is that of other processes."""
    if not isinstance(belief, Engine) or (rows is not None and not len(rows)):
        raise ParameterError(
            f"device={name!r} is for passes over a table, with rule=Inserted(…): leave `device` "
            f"out, got {type(belief).__name__} beliefs and "
            f"{'a table' if rows is None or len(rows) else 'no table'}"
        )
    if rows is not None:
        device = device_of(name)
        there = OnDevice(belief.base.kernel, device)
        there.extend(Arms(rows, np.zeros(len(rows))))
        there.columns(device.sent(rows.astype(np.float64)), 0)


class OnDevice:
    """z of some arms on a device, in chunks of arms, as columns; their rows are there too."""

    def __init__(self, kernel: Kernel, device: Device) -> None:
        self._kernel = kernel
        self._device = device
        self._chunks: list[slice] = []
        self._rows: list[Any] = []  # of each chunk (k, d), in float32 where they are
        self._diag: list[Any] = []
        self._Z: list[Any] = []
        self.bytes = 0.0  # of this process: z is elsewhere

    def copy(self, m: int) -> "OnDevice":
        """The same, which goes on by itself: arrays there are never written to."""
        made = copy(self)
        made._Z = self._Z.copy()
        return made

    def extend(self, arms: Arms) -> None:
        """To these arms, which begin with those of before."""
        n = len(arms.diag)
        for start in range(self._chunks[-1].stop if self._chunks else 0, n, ROWS):
            chunk = slice(start, min(start + ROWS, n))
            self._chunks.append(chunk)
            self._rows.append(self._device.sent(arms.rows[chunk]))
            self._diag.append(self._device.sent(arms.diag[chunk]))
            self._Z.append(None)

    def embed(self, base: Frozen, mean: Array, variance: Array, since: int = 0) -> None:
        """Compute z, μ̃ and σ̃² anew, of all arms, or of those from one on that `extend` brought."""
        device = self._device
        xp = device.xp
        W = device.sent(base.W)
        w = device.sent(base.w)
        L = TriangleThere(device, base.L.upper.T)
        C = TriangleThere(device, base.factor.folded.C.upper.T)
        for i, chunk in enumerate(self._chunks):
            if chunk.start >= since:
                Z = self._Z[i] = L.solve(self.columns(W, i))
                half = C.solve(Z)
                r = xp.clip(self._diag[i] - xp.sum(Z * Z, axis=0), min=0.0)
                spread = r / base.regularization + xp.sum(half * half, axis=0)
                mean[chunk] = device.brought(w @ Z)
                variance[chunk] = device.brought(spread)

    def sweep(
        self,
        base: Frozen,
        p: int,
        G: Array,
        surprise: Array,
        mean: Array,
        variance: Array,
        *,
        means_anew: bool,
    ) -> None:
        """The same as in memory. Means are always computed anew: they are one more row of the
        product."""
        device = self._device
        xp = device.xp
        ahead, corner = base.L.last_rows(p)
        left = device.sent(ahead)
        triangle = TriangleThere(device, corner)
        new = device.sent(base.W[p:])
        M = device.sent(np.vstack([base.w, G]))
        for i, chunk in enumerate(self._chunks):
            Z = self._Z[i]
            if base.m > p:
                more = triangle.solve(self.columns(new, i) - left @ Z)
                Z = self._Z[i] = xp.concat([Z, more])
            H = M @ Z
            mean[chunk] = device.brought(H[0, :])
            H = H[1:, :]
            lowered = variance[chunk] - device.brought(xp.sum(H * H, axis=0))
            np.maximum(lowered, 0.0, out=variance[chunk])

    def parts(self, m: int) -> Iterator[tuple[slice, Array]]:
        """Positions and z (m, k) of all arms, some at a time."""
        for chunk, Z in zip(self._chunks, self._Z, strict=True):
            yield chunk, self._device.brought(Z[:m, :])

    def columns(self, W: Any, i: int) -> Any:
        """k(W, X), (m, k), of rows W that are there and the arms of a chunk."""
        xp = self._device.xp
        rows = xp.astype(self._rows[i], xp.float64)
        try:
            K = self._kernel(W, rows)
        except Exception as error:  # what knows NumPy only raises what comes
            raise self._refused(_first_line(error)) from error
        if type(K) is not type(rows):
            raise self._refused(f"it gives {type(K).__name__}")
        return K

    def _refused(self, why: str) -> KernelError:
        return KernelError(
            f"{self._kernel!r} cannot be computed on {self._device.name}: {why}. RBF, Matern, "
            "Linear, Polynomial, Hamming, Tanimoto of bits that are not packed, and what On, sums, "
            "products and factors make of them can: use these, or leave `device` out"
        )


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
            right = B[start:stop, :] - L[start:stop, :start] @ X[:start, :]
            found = inverse @ right
            # An inverse loses digits with the condition number of its corner. One step of
            # refinement brings them back (Higham 2002, chapter 12).
            X[start:stop, :] = found + inverse @ (right - L[start:stop, start:stop] @ found)
        return X
