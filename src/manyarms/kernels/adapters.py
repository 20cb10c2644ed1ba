"""Kernels written elsewhere: scikit-learn objects, functions of two blocks, functions of two rows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from manyarms.errors import KernelError
from manyarms.kernels.base import Kernel
from manyarms.kernels.distances import row_blocks
from manyarms.typing import AnyArray, Array

DIAGONAL_BLOCK = 32
"""Rows evaluated together when a function of two blocks is asked for its diagonal."""


class FromCallable(Kernel):
    """A function of two blocks of rows, ``function(X, Y) -> (n, m)``."""

    def __init__(self, function: Callable[[Array, Array], Any]) -> None:
        self.function = function

    def __call__(self, X: Array, Y: Array) -> Array:
        K = np.empty((len(X), len(Y)))
        for rows in row_blocks(len(X), len(Y)):
            K[rows] = self._block(X[rows], Y)
        return K

    def diag(self, X: Array) -> Array:
        starts = range(0, len(X), DIAGONAL_BLOCK)
        blocks = (X[start : start + DIAGONAL_BLOCK] for start in starts)
        return np.concatenate([np.zeros(0), *(np.diag(self._block(block, block)) for block in blocks)])

    def _block(self, X: Array, Y: Array) -> Array:
        advice = "a function of two single rows goes through manyarms.kernels.Pairwise"
        try:
            K = self.function(X, Y)
        except Exception as error:
            raise KernelError(f"{self!r} failed on blocks of shapes {X.shape} and {Y.shape}: {error}; {advice}") from error
        return _real_matrix(self, K, (len(X), len(Y)), advice)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.function, '__name__', self.function)!s})"


class FromSklearn(FromCallable):
    """A scikit-learn kernel object: ``kernel(X, Y)`` and ``kernel.diag(X)``."""

    def diag(self, X: Array) -> Array:
        return _real_matrix(self, self.function.diag(X), (len(X),), "it must return k(x, x) for every row")  # type: ignore[attr-defined]


class Pairwise(FromCallable):
    """A function of two single rows, ``function(x, y) -> float``. Slow: one Python call a pair."""

    def diag(self, X: Array) -> Array:
        return np.concatenate([np.zeros(0), *(self._block(x[None], x[None])[0] for x in X)])

    def _block(self, X: Array, Y: Array) -> Array:
        K = [[self.function(x, y) for y in Y] for x in X]
        return _real_matrix(self, K, (len(X), len(Y)), "it must return one real number for two rows")


def as_kernel(kernel: Any) -> Kernel:
    """The kernel itself, or the adapter that fits a scikit-learn kernel object or a plain function of two blocks."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, type) or not callable(kernel):
        raise KernelError(
            f"kernel must be a manyarms kernel such as kernels.RBF(0.3), a scikit-learn kernel object or "
            f"a function of two blocks of rows; got {kernel!r}"
        )
    return FromSklearn(kernel) if hasattr(kernel, "diag") else FromCallable(kernel)


def _real_matrix(kernel: Kernel, value: Any, shape: tuple[int, ...], advice: str) -> Array:
    K: AnyArray = np.asarray(value)
    if K.shape != shape or K.dtype.kind not in "fiub":
        raise KernelError(f"{kernel!r} must give real numbers of shape {shape}, got {K.dtype} of shape {K.shape}; {advice}")
    K = K.astype(np.float64)
    if not np.isfinite(K).all():
        raise KernelError(f"{kernel!r} gave {K[~np.isfinite(K)][0]}; a kernel must be finite on all arms")
    return K
