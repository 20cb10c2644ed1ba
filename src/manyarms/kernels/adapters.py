"""Kernels written elsewhere: scikit-learn objects, functions of two blocks, functions of two
rows; and kernels of some of the columns, for tables with columns of different kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from manyarms.checks import store, whole
from manyarms.errors import KernelError, ManyArmsError, shortened
from manyarms.kernels.base import Kernel
from manyarms.kernels.distances import as_blocks, row_blocks
from manyarms.typing import AnyArray, Array


class FromCallable(Kernel):
    """A function of two blocks of rows.

    Parameters
    ----------
    function : callable
        From X (n, d) and Y (m, d) to k(x, y), (n, m).
    """

    advice = "a function of two single rows goes through manyarms.kernels.Pairwise"

    def __init__(self, function: Callable[[Array, Array], Any]) -> None:
        if isinstance(function, type) or not callable(function):
            raise KernelError(
                "kernel must be a manyarms kernel such as kernels.RBF(0.3), a scikit-learn kernel "
                f"object or a function of two blocks of rows, got {shortened(function)}; "
                f"{self.advice}"
            )
        self.function: Any = function

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        K = np.empty((len(X), len(Y)))
        # In blocks: a function of rows may make (n, m, d) arrays.
        for rows in row_blocks(len(X), len(Y)):
            K[rows] = self._checked(
                partial(self._block, X[rows], Y), (rows.stop - rows.start, len(Y))
            )
        return K

    def diag(self, X: Array) -> Array:
        diag = np.empty(len(X))
        # Of a larger block more entries are thrown away, of smaller ones there are more calls.
        step = 32
        for start in range(0, len(X), step):
            some = X[start : start + step]
            diag[start : start + step] = np.diag(self(some, some))
        return diag

    def _block(self, X: Array, Y: Array) -> Any:
        return self.function(X, Y)

    def _checked(self, evaluate: Callable[[], Any], shape: tuple[int, ...]) -> Array:
        """What the function gave, as a new float64 array of that shape."""
        try:
            K: AnyArray = np.asarray(evaluate())
        except ManyArmsError:
            raise  # it says what is wrong already
        except Exception as error:  # whatever a user's function raises
            raise KernelError(f"{self!r} failed: {error!r}; {self.advice}") from error
        if K.shape != shape or K.dtype.kind not in "fiub":
            raise KernelError(
                f"{self!r} must give real numbers of shape {shape}, got {K.dtype} of shape "
                f"{K.shape}; {self.advice}"
            )
        K = K.astype(np.float64)  # a copy: the function may keep what it returned
        if not np.isfinite(K).all():
            raise KernelError(
                f"{self!r} gave {K[~np.isfinite(K)][0]}; a kernel must be finite on all arms"
            )
        return K

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.function, '__name__', self.function)!s})"


class FromObject(FromCallable):
    """An object with ``kernel(X, Y)`` and ``kernel.diag(X)``.

    Such are scikit-learn's, and `Kernel` subclasses made elsewhere, with their gradients.

    Parameters
    ----------
    kernel : object
        What it gives is checked at every call.
    """

    advice = "it must give k(x, y) for two blocks of rows, and k(x, x) as its diag"

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        if not callable(getattr(kernel, "diag", None)):
            raise KernelError(f"{shortened(kernel)} has no method diag; {self.advice}")

    def diag(self, X: Array) -> Array:
        return self._checked(lambda: self.function.diag(X), (len(X),))

    @property
    def differentiable(self) -> bool:
        return isinstance(self.function, Kernel) and self.function.differentiable

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        if not self.differentiable:
            return super().gradient(X, Y, V)
        return self._checked(lambda: self.function.gradient(X, Y, V), X.shape)

    def diag_gradient(self, X: Array) -> Array:
        return self._checked(lambda: self.function.diag_gradient(X), X.shape)


class Pairwise(FromCallable):
    """A function of two single rows. Slow: one Python call a pair.

    Parameters
    ----------
    function : callable
        From x (d,) and y (d,) to a real number.
    """

    advice = "it must give one real number for two rows"

    def diag(self, X: Array) -> Array:
        return self._checked(lambda: [self.function(x, x) for x in X], (len(X),))

    def _block(self, X: Array, Y: Array) -> Any:
        return [[self.function(x, y) for y in Y] for x in X]


def as_kernel(kernel: Any) -> Kernel:
    """The kernel itself, or the adapter that fits.

    Parameters
    ----------
    kernel : Kernel, object or callable
        A kernel of this package, a scikit-learn kernel object or a function of two blocks of rows.

    Returns
    -------
    Kernel
        What policies take.

    Raises
    ------
    KernelError
        It is neither; a class, for instance, instead of an object.
    """
    # The package's own kernels need no check; what others wrote is checked at every call.
    if isinstance(kernel, Kernel) and type(kernel).__module__.startswith("manyarms."):
        return kernel
    return FromObject(kernel) if hasattr(kernel, "diag") else FromCallable(kernel)


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
            store(self, kernel=as_kernel(self.kernel))
        start = whole(self.start, "start", at_least=0, error=KernelError)
        name = "stop (the column after the last)"
        whole(self.stop, name, at_least=start + 1, error=KernelError)

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        return self.kernel(self._some(X), self._some(Y))

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(self._some(np.asarray(X)))

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        gradient = np.zeros(X.shape)  # other columns move nothing
        some = self.kernel.gradient(self._some(X), self._some(Y), V)
        gradient[:, self.start : self.stop] = some
        return gradient

    def _some(self, X: Array) -> Array:
        if X.shape[1] < self.stop:
            raise KernelError(f"{self!r} needs {self.stop} columns, the rows have {X.shape[1]}")
        return X[:, self.start : self.stop]
