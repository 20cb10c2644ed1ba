"""What a kernel is, and the algebra on kernels: scaling by a constant, sums, products."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from manyarms.checks import real, store
from manyarms.errors import KernelError, shortened
from manyarms.typing import Array


class Kernel(ABC):
    """A covariance function k(x, y) of two rows, evaluated on blocks of rows.

    A kernel of your own gives `__call__` and `diag`; `gradient` where a box is searched.
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
        return False

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
        expected = "a positive finite number"
        constant = real(self.constant, "constant", expected, above=0, error=KernelError)
        store(self, constant=constant)

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.kernel(X, Y)
        K *= self.constant
        return K

    def diag(self, X: Array) -> Array:
        return self.constant * self.kernel.diag(X)

    @property
    def differentiable(self) -> bool:
        return self.kernel.differentiable

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return self.constant * self.kernel.gradient(X, Y, V)

    def diag_gradient(self, X: Array) -> Array:
        return self.constant * self.kernel.diag_gradient(X)


@dataclass(frozen=True)
class Sum(Kernel):
    """k₁(x, y) + k₂(x, y), written ``first + second``.

    Parameters
    ----------
    first, second : Kernel
        k₁ and k₂.
    """

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        check_kernels(self, self.first, self.second)

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.first(X, Y)
        K += self.second(X, Y)
        return K

    def diag(self, X: Array) -> Array:
        return self.first.diag(X) + self.second.diag(X)

    @property
    def differentiable(self) -> bool:
        return self.first.differentiable and self.second.differentiable

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return self.first.gradient(X, Y, V) + self.second.gradient(X, Y, V)


@dataclass(frozen=True)
class Product(Kernel):
    """k₁(x, y) · k₂(x, y), written ``first * second``.

    Parameters
    ----------
    first, second : Kernel
        k₁ and k₂.
    """

    first: Kernel
    second: Kernel

    def __post_init__(self) -> None:
        check_kernels(self, self.first, self.second)

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.first(X, Y)
        K *= self.second(X, Y)
        return K

    def diag(self, X: Array) -> Array:
        return self.first.diag(X) * self.second.diag(X)

    @property
    def differentiable(self) -> bool:
        return self.first.differentiable and self.second.differentiable

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        # ∂(k₁k₂) = k₂∂k₁ + k₁∂k₂. By symmetry k(X, Y) is k(Y, X)ᵀ: X has few rows.
        first = self.first(Y, X).T
        second = self.second(Y, X).T
        return self.first.gradient(X, Y, V * second) + self.second.gradient(X, Y, V * first)


def check_kernels(whole: Kernel, *parts: Any) -> None:
    """Raise KernelError unless a kernel is made of kernels."""
    for part in parts:
        if not isinstance(part, Kernel):
            raise KernelError(
                f"{type(whole).__name__} takes kernels such as kernels.RBF(0.3), got "
                f"{shortened(part)}; others go through manyarms.kernels.as_kernel"
            )
