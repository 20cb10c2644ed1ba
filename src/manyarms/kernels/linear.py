"""Kernels of the inner product xᵀy."""

from dataclasses import dataclass

import numpy as np

from manyarms.errors import KernelError
from manyarms.kernels.base import Kernel, check_positive
from manyarms.typing import Array


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = xᵀy + c, c = ``bias``: linear bandits (OFUL, LinUCB)."""

    bias: float = 0.0

    def __post_init__(self) -> None:
        check_positive("bias", self.bias, or_zero=True)

    def __call__(self, X: Array, Y: Array) -> Array:
        return X @ Y.T + self.bias

    def diag(self, X: Array) -> Array:
        return np.asarray(np.einsum("ij,ij->i", X, X) + self.bias)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """k(x, y) = (xᵀy + c)ᵖ, p = ``degree``, c = ``bias``."""

    degree: int = 2
    bias: float = 1.0

    def __post_init__(self) -> None:
        check_positive("bias", self.bias, or_zero=True)
        if not isinstance(self.degree, int) or self.degree < 1:
            raise KernelError(f"degree must be a whole number from 1, got {self.degree!r}")

    def __call__(self, X: Array, Y: Array) -> Array:
        return Linear(self.bias)(X, Y) ** self.degree

    def diag(self, X: Array) -> Array:
        return Linear(self.bias).diag(X) ** self.degree
