"""What a kernel is, and the algebra on kernels: scaling by a constant, sums, products."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real

import numpy as np

from manyarms.errors import KernelError
from manyarms.typing import Array


class Kernel(ABC):
    """A covariance function k(x, y) of two rows, evaluated on blocks of rows."""

    @abstractmethod
    def __call__(self, X: Array, Y: Array) -> Array:
        """k(x, y) for every row x of X (n, d) and y of Y (m, d), shape (n, m)."""

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """k(x, x) for every row x of X (n, d), shape (n,)."""

    def __add__(self, other: "Kernel") -> "Kernel":
        if isinstance(other, Kernel):
            return Sum(self, other)
        raise KernelError(f"cannot add {other!r} to {self!r}: wrap it in manyarms.kernels.as_kernel first")

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, Real):
            return Scaled(self, float(other))
        raise KernelError(f"cannot multiply {self!r} by {other!r}: give a number, or wrap it in manyarms.kernels.as_kernel")

    __rmul__ = __mul__


@dataclass(frozen=True)
class Scaled(Kernel):
    """c · k(x, y), written ``c * kernel``."""

    kernel: Kernel
    constant: float

    def __post_init__(self) -> None:
        check_positive("constant", self.constant)

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.kernel(X, Y)
        return np.multiply(K, self.constant, out=K)

    def diag(self, X: Array) -> Array:
        return self.constant * self.kernel.diag(X)


@dataclass(frozen=True)
class Sum(Kernel):
    """k₁(x, y) + k₂(x, y), written ``first + second``."""

    first: Kernel
    second: Kernel

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.first(X, Y)
        return np.add(K, self.second(X, Y), out=K)

    def diag(self, X: Array) -> Array:
        return self.first.diag(X) + self.second.diag(X)


@dataclass(frozen=True)
class Product(Kernel):
    """k₁(x, y) · k₂(x, y), written ``first * second``."""

    first: Kernel
    second: Kernel

    def __call__(self, X: Array, Y: Array) -> Array:
        K = self.first(X, Y)
        return np.multiply(K, self.second(X, Y), out=K)

    def diag(self, X: Array) -> Array:
        return self.first.diag(X) * self.second.diag(X)


def check_positive(name: str, value: float, *, or_zero: bool = False) -> None:
    """Raise KernelError unless the parameter is a positive (or zero, where allowed) finite number."""
    ok = np.isfinite(value) and (value >= 0 if or_zero else value > 0)
    if not ok:
        raise KernelError(f"{name} must be a {'non-negative' if or_zero else 'positive'} finite number, got {value!r}")
