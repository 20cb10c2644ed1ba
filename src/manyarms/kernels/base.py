"""What a kernel is: blocks of rows, in memory or on a device, and k of each pair of them.

The algebra on kernels: scaling by a constant, sums, products, and a part of f that no other row
tells of. Kernels written elsewhere: scikit-learn objects, functions of two blocks, functions of two
rows. And kernels of some of the columns, for tables with columns of different kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from manyarms.checks import real, store, whole
from manyarms.equal import equal_rows
from manyarms.errors import KernelError, ManyArmsError, shortened
from manyarms.typing import AnyArray, Array

BLOCK_PAIRS = 1 << 16
"""Pairs computed at a time: 512 KiB of float64, so that a block's passes stay in cache."""


def namespace(X: Any) -> Any:
    """The functions for an array, by the array API standard (https://data-apis.org/array-api): on a
    device those of its library, by array-api-compat."""
    if isinstance(X, np.ndarray):
        return np
    from array_api_compat import array_namespace  # noqa: PLC0415  an extra

    return array_namespace(X)


def beside(values: AnyArray, X: Any) -> Any:
    """An array of NumPy as one where X is."""
    if isinstance(X, np.ndarray):
        return values
    # What cannot be written to is not taken without a warning.
    return namespace(X).asarray(np.array(values), device=X.device)


def as_blocks(X: Any, Y: Any) -> tuple[Array, Array]:
    """Both blocks of rows as float64 arrays of as many columns; those on a device stay there."""
    if isinstance(X, np.ndarray) or not hasattr(type(X), "device"):
        X = np.asarray(X, dtype=np.float64)
        Y = np.asarray(Y, dtype=np.float64)
    if X.ndim != 2 or Y.ndim != 2 or X.shape[1] != Y.shape[1]:
        raise KernelError(
            f"a kernel takes two blocks of rows with as many columns, got shapes {X.shape} and "
            f"{Y.shape}"
        )
    return X, Y


def row_blocks(n_rows: int, n_columns: int) -> list[slice]:
    """Row slices of about BLOCK_PAIRS entries each."""
    step = max(1, BLOCK_PAIRS // max(1, n_columns))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def by_blocks(of: Callable[[slice], Array], X: Array, Y: Array) -> Array:
    """What a function gives for some rows of X, for all of them, (n, m): block by block, each of
    which stays in cache; at once on a device."""
    if not isinstance(Y, np.ndarray):
        return of(slice(None))
    K = np.empty((len(X), len(Y)))
    for rows in row_blocks(len(X), len(Y)):
        K[rows] = of(rows)
    return K


def side_by_side(*parts: Array) -> Array:
    joined = getattr(namespace(parts[0]), "concat", np.concatenate)  # NumPy 1 has no `concat`
    return joined(parts, axis=1)


class Kernel(ABC):
    """A covariance function k(x, y) of two rows, evaluated on blocks of rows.

    A kernel of your own gives `__call__` and `diag`; `gradient` where a box is searched. One that
    is made of kernels has a gradient where all of them have.
    """

    @abstractmethod
    def __call__(self, X: Array, Y: Array) -> Array:
        """k(x, y) for every row x of X (n, d) and y of Y (m, d), a new array of shape (n, m)."""

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """k(x, x) for every row x of X (n, d), shape (n,)."""

    @property
    def differentiable(self) -> bool:
        """`gradient` works."""
        parts = [part for part in vars(self).values() if isinstance(part, Kernel)]
        has_gradient = type(self).gradient is not Kernel.gradient
        return has_gradient and all(part.differentiable for part in parts)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        """Σ_j V_ij ∂k(x_i, y_j)/∂x_i for rows X (n, d), Y (m, d) and weights V (n, m), shape (n,
        d)."""
        raise KernelError(
            f"{self!r} has no gradient; use RBF, Matern with nu 1.5 or 2.5, Linear or Polynomial"
        )

    def diag_gradient(self, X: Array) -> Array:
        """∇k(x, x) for every row x of X (n, d), shape (n, d): by symmetry twice ∂k(x, y)/∂x at y =
        x."""
        return 2 * self.gradient(X, X, np.eye(len(X)))  # the weights pick the pairs (x_i, x_i)

    def __add__(self, other: "Kernel") -> "Kernel":
        if isinstance(other, Kernel):
            return Sum(self, other)
        raise KernelError(
            f"cannot add "
            f"{shortened(other)} to {self!r}: wrap it in manyarms.kernels.as_kernel first"
        )

    __radd__ = __add__

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, Real) and not isinstance(other, bool):
            return Scaled(self, other)
        raise KernelError(
            f"cannot multiply {self!r} by {shortened(other)}: give a number, or wrap it in "
            "manyarms.kernels.as_kernel"
        )

    __rmul__ = __mul__


@dataclass(frozen=True)
class Scaled(Kernel):
    """c · k(x, y), written ``c * kernel``.

    Parameters
    ----------
    kernel : Kernel
        k.
    constant : float
        c, above 0.
    """

    kernel: Kernel
    constant: float

    def __post_init__(self) -> None:
        check_kernels(self, self.kernel)
        wanted = "a positive finite number"
        store(self, constant=real(self.constant, "constant", wanted, above=0, error=KernelError))

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.kernel(X, Y)
        K *= self.constant
        return K

    def diag(self, X: Array) -> Array:
        return self.constant * self.kernel.diag(X)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return self.constant * self.kernel.gradient(X, Y, V)


@dataclass(frozen=True)
class Pair(Kernel):
    """A kernel made of two."""

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        check_kernels(self, self.first, self.second)


class Sum(Pair):
    """k₁(x, y) + k₂(x, y), written ``first + second``.

    Parameters
    ----------
    first, second : Kernel
        k₁ and k₂.
    """

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.first(X, Y)
        K += self.second(X, Y)
        return K

    def diag(self, X: Array) -> Array:
        return self.first.diag(X) + self.second.diag(X)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return self.first.gradient(X, Y, V) + self.second.gradient(X, Y, V)


class Product(Pair):
    """k₁(x, y) · k₂(x, y), written ``first * second``.

    Parameters
    ----------
    first, second : Kernel
        k₁ and k₂.
    """

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.first(X, Y)
        K *= self.second(X, Y)
        return K

    def diag(self, X: Array) -> Array:
        return self.first.diag(X) * self.second.diag(X)

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        # ∂(k₁k₂) = k₂∂k₁ + k₁∂k₂. By symmetry k(X, Y) is k(Y, X)ᵀ: X has few rows.
        first = self.first(Y, X).T
        second = self.second(Y, X).T
        return self.first.gradient(X, Y, V * second) + self.second.gradient(X, Y, V * first)


@dataclass(frozen=True)
class Own(Kernel):
    """k(x, y) + v·[x = y].

    A value of f then has a part that depends on its row alone, of variance v. Unlike noise it is
    the same whenever the row is evaluated, so that evaluating a row twice tells it.

    Parameters
    ----------
    kernel : Kernel
        k.
    variance : float
        v, not negative.
    """

    kernel: Kernel
    variance: float

    def __post_init__(self) -> None:
        check_kernels(self, self.kernel)
        wanted = "a finite variance, not negative"
        store(self, variance=real(self.variance, "variance", wanted, at_least=0, error=KernelError))

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        K = self.kernel(X, Y)
        K[equal_rows(X, Y)] += self.variance
        return K

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(X) + self.variance

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return self.kernel.gradient(X, Y, V)  # [x = y] is 0 almost everywhere


def check_kernels(whole: Kernel, *parts: Any) -> None:
    """Raise KernelError unless a kernel is made of kernels."""
    for part in parts:
        if not isinstance(part, Kernel):
            raise KernelError(
                f"{type(whole).__name__} takes kernels such as kernels.RBF(0.3), got "
                f"{shortened(part)}; others go through manyarms.kernels.as_kernel"
            )


def without_own(kernel: Kernel) -> tuple[Kernel, float]:
    """k and v of a kernel that is k(x, y) + v·[x = y] as `Own`, its multiples and sums have it; v
    is 0 for any other, products with `Own` included."""
    # By the very class: one that inherits may compute something else.
    if type(kernel) is Own:
        inner, variance = without_own(kernel.kernel)
        return inner, variance + kernel.variance
    if type(kernel) is Scaled:
        inner, variance = without_own(kernel.kernel)
        if inner is not kernel.kernel:
            return Scaled(inner, kernel.constant), kernel.constant * variance
    if type(kernel) is Sum:
        first, v = without_own(kernel.first)
        second, w = without_own(kernel.second)
        if first is not kernel.first or second is not kernel.second:
            return Sum(first, second), v + w
    return kernel, 0.0


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
        start = whole(self.start, "start", at_least=0, at_most=10**9, error=KernelError)
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
