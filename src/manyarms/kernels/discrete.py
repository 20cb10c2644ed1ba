"""Kernels of rows without a geometry: codes of categories, and sets of bits."""

import numpy as np

from manyarms.errors import KernelError
from manyarms.kernels.base import Kernel, as_blocks
from manyarms.kernels.distances import row_blocks
from manyarms.kernels.stationary import as_lengthscale, check_lengthscale
from manyarms.typing import Array, ArrayLike


class Hamming(Kernel):
    """k(x, y) = exp(−Σ_j [x_j ≠ y_j]/ℓ_j) of rows of codes; ℓ = ``lengthscale``, one for all columns or one each."""

    def __init__(self, lengthscale: ArrayLike) -> None:
        self.lengthscale = as_lengthscale(lengthscale)

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        check_lengthscale(self, self.lengthscale, Y.shape[1])
        weights = np.broadcast_to(-1.0 / self.lengthscale, Y.shape[1])
        K = np.empty((len(X), len(Y)))
        for rows in row_blocks(len(X), len(Y)):
            exponent = np.zeros((rows.stop - rows.start, len(Y)))
            for x, y, weight in zip(X[rows].T, Y.T, weights, strict=True):
                exponent += weight * (x[:, None] != y)
            np.exp(exponent, out=K[rows])
        return K

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    def __repr__(self) -> str:
        return f"Hamming({self.lengthscale.tolist()})"


class Tanimoto(Kernel):
    """k(x, y) = xᵀy/(‖x‖² + ‖y‖² − xᵀy): shared bits over bits in either (Ralaivola et al. 2005, for molecules).

    Rows are bits or non-negative counts; two rows of zeros have k = 1.
    """

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        _check_counts(Y)
        K = X @ Y.T
        union = np.einsum("ij,ij->i", X, X)[:, None] + np.einsum("ij,ij->i", Y, Y) - K
        return np.asarray(np.divide(K, union, out=np.ones_like(K), where=union > 0))

    def diag(self, X: Array) -> Array:
        _check_counts(X)  # of all arms, once: here and not whenever they are a block
        return np.ones(len(X))

    def __repr__(self) -> str:
        return "Tanimoto()"


def _check_counts(X: Array) -> None:
    if X.min(initial=0.0) < 0:
        raise KernelError(f"Tanimoto takes bits or counts, got {X.min()}; use another kernel for real-valued columns")
