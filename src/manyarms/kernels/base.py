"""What a kernel is, and the algebra on kernels: scaling by a constant, sums, products, and a part
of f that no other row tells of."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from manyarms.checks import real, store
from manyarms.equal import equal_rows
from manyarms.errors import KernelError, shortened
from manyarms.kernels.distances import as_blocks
from manyarms.typing import Array


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
            f"cannot add {other!r} to {self!r}: wrap it in manyarms.kernels.as_kernel first"
        )

    __radd__ = __add__

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, Real) and not isinstance(other, bool):
            return Scaled(self, other)
        raise KernelError(
            f"cannot multiply {self!r} by {other!r}: give a number, or wrap it in "
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
