"""Kernels of some of the columns, for tables with columns of different kinds, and of bits that are
packed."""

from dataclasses import dataclass

import numpy as np

from manyarms.checks import whole
from manyarms.errors import KernelError, shortened
from manyarms.kernels.adapters import as_kernel
from manyarms.kernels.base import Kernel, check_kernels
from manyarms.kernels.discrete import BITS, unpack
from manyarms.kernels.distances import as_blocks
from manyarms.typing import Array


@dataclass(frozen=True)
class On(Kernel):
    """``kernel`` of the columns from ``start`` up to ``stop``.

    Parameters
    ----------
    kernel : Kernel
        What the columns are compared by; also a scikit-learn kernel or a function of two blocks.
    start, stop : int
        The first column, and the one after the last.
    """

    kernel: Kernel
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            # A frozen dataclass has no other way to keep what it was given in another form.
            object.__setattr__(self, "kernel", as_kernel(self.kernel))
        whole(self.start, "start", at_least=0, error=KernelError)
        whole(
            self.stop,
            "stop (the column after the last)",
            at_least=self.start + 1,
            error=KernelError,
        )

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        self._check(Y)
        return self.kernel(X[:, self.start : self.stop], Y[:, self.start : self.stop])

    def diag(self, X: Array) -> Array:
        self._check(X)
        return self.kernel.diag(np.asarray(X)[:, self.start : self.stop])

    @property
    def differentiable(self) -> bool:
        return self.kernel.differentiable

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        gradient = np.zeros(X.shape)  # other columns move nothing
        columns = slice(self.start, self.stop)
        gradient[:, columns] = self.kernel.gradient(X[:, columns], Y[:, columns], V)
        return gradient

    def diag_gradient(self, X: Array) -> Array:
        gradient = np.zeros(X.shape)
        columns = slice(self.start, self.stop)
        gradient[:, columns] = self.kernel.diag_gradient(X[:, columns])
        return gradient

    def _check(self, X: Array) -> None:
        if X.shape[1] < self.stop:
            raise KernelError(f"{self!r} needs {self.stop} columns, the rows have {X.shape[1]}")


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
