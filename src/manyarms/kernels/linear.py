"""Kernels of the inner product xᵀy."""

from dataclasses import dataclass

import numpy as np

from manyarms.checks import real, store, whole
from manyarms.errors import KernelError
from manyarms.kernels.base import Kernel
from manyarms.kernels.distances import as_blocks
from manyarms.typing import Array


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = xᵀy + c: linear bandits (OFUL, LinUCB).

    Parameters
    ----------
    bias : float
        c, the variance of a constant, 0 or more.
    """

    bias: float = 0.0

    def __post_init__(self) -> None:
        store(self, bias=_checked_bias(self.bias))

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        K = X @ Y.T
        K += self.bias
        return K

    def diag(self, X: Array) -> Array:
        return np.asarray(np.einsum("ij,ij->i", X, X) + self.bias)

    @property
    def differentiable(self) -> bool:
        return True

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return V @ Y


@dataclass(frozen=True)
class Polynomial(Kernel):
    """k(x, y) = (xᵀy + c)ᵖ.

    Parameters
    ----------
    degree : int
        p, 1 or more.
    bias : float
        c, 0 or more.
    """

    degree: int = 2
    bias: float = 1.0

    def __post_init__(self) -> None:
        store(
            self,
            bias=_checked_bias(self.bias),
            degree=whole(self.degree, "degree", at_most=1000, error=KernelError),
        )

    def __call__(self, X: Array, Y: Array) -> Array:
        K = Linear(self.bias)(X, Y)
        K **= self.degree
        return K

    def diag(self, X: Array) -> Array:
        return Linear(self.bias).diag(X) ** self.degree

    @property
    def differentiable(self) -> bool:
        return True

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        # ∂(xᵀy + c)ᵖ/∂x = p(xᵀy + c)ᵖ⁻¹y.
        slope: Array = self.degree * Linear(self.bias)(X, Y) ** (self.degree - 1)
        return (V * slope) @ Y


def _checked_bias(bias: float) -> float:
    return real(bias, "bias", "a non-negative finite number", at_least=0, error=KernelError)
