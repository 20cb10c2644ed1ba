"""A kernel on some of the columns, so that a table with columns of different kinds has a product of kernels."""

from dataclasses import dataclass

import numpy as np

from manyarms.errors import KernelError
from manyarms.kernels.base import Kernel, as_blocks
from manyarms.typing import Array


@dataclass(frozen=True)
class On(Kernel):
    """``kernel`` of the columns from ``start`` up to ``stop``."""

    kernel: Kernel
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise KernelError(f"columns run from start ≥ 0 up to a later stop, got {self.start} and {self.stop}")

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        self._check(Y)
        return self.kernel(X[:, self.start : self.stop], Y[:, self.start : self.stop])

    def diag(self, X: Array) -> Array:
        self._check(X)
        return self.kernel.diag(np.asarray(X)[:, self.start : self.stop])

    def _check(self, X: Array) -> None:
        if X.shape[1] < self.stop:
            raise KernelError(f"{self!r} needs {self.stop} columns, the rows have {X.shape[1]}")
