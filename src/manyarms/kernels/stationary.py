"""Kernels of the distance ρ = ‖(x − y)/ℓ‖, with one lengthscale ℓ or one per column."""

from abc import abstractmethod

import numpy as np

from manyarms.checks import NO_ARRAY
from manyarms.errors import KernelError, shortened
from manyarms.kernels.base import Kernel
from manyarms.kernels.distances import (
    FEW_ROWS,
    ScaledPoints,
    as_blocks,
    by_blocks,
    few_squared_distances,
    namespace,
)
from manyarms.typing import AnyArray, Array, ArrayLike


def as_lengthscale(lengthscale: ArrayLike) -> Array:
    """One positive number, or one per column, read-only."""
    try:
        given: AnyArray = np.asarray(lengthscale)
        if given.size and given.dtype.kind not in "fiu":
            raise TypeError(f"of {given.dtype}")
        scales = given.astype(np.float64)
    except NO_ARRAY as error:
        raise KernelError(
            f"lengthscale must be one number or one per column, got {shortened(lengthscale)}"
        ) from error
    if scales.ndim > 1 or scales.size == 0 or not np.all(np.isfinite(scales) & (scales > 0)):
        raise KernelError(
            f"lengthscale must be positive: one number, or one per column; got "
            f"{shortened(lengthscale)}"
        )
    scales.setflags(write=False)
    return scales


def check_lengthscale(kernel: Kernel, lengthscale: Array, n_columns: int) -> None:
    """Raise KernelError unless there is one lengthscale, or one for each column."""
    if lengthscale.ndim == 1 and lengthscale.size != n_columns:
        raise KernelError(
            f"{kernel!r} has {lengthscale.size} lengthscales and the rows have {n_columns} "
            "columns; "
            "give one lengthscale, or one per column"
        )


class Stationary(Kernel):
    """k(x, y) = g(ρ²) with g(0) = 1."""

    def __init__(self, lengthscale: ArrayLike) -> None:
        self.lengthscale = as_lengthscale(lengthscale)

    @abstractmethod
    def _of_squared_distance(self, D: Array) -> Array:
        """g(ρ²) elementwise, of an array that is given away."""

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        check_lengthscale(self, self.lengthscale, Y.shape[1])
        if isinstance(Y, np.ndarray) and len(Y) <= FEW_ROWS:
            return self._of_squared_distance(few_squared_distances(X, Y, self.lengthscale))
        points = ScaledPoints(X, Y, self.lengthscale)
        # The distances are never held as a whole.
        return by_blocks(lambda some: self._of_squared_distance(points.of(some)), X, Y)

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    @property
    def differentiable(self) -> bool:
        return True

    def _slope(self, D: Array) -> Array:
        """2g′(ρ²) elementwise."""
        raise NotImplementedError

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        check_lengthscale(self, self.lengthscale, Y.shape[1])
        # ∂g(ρ²)/∂x = 2g′(ρ²)(x − y)/ℓ², and Σ_j M_ij(x_i − y_j) is two products, not (n, m, d).
        M = V * self._slope(few_squared_distances(Y, X, self.lengthscale).T)
        return np.asarray((M.sum(axis=1)[:, None] * X - M @ Y) / np.square(self.lengthscale))

    def diag_gradient(self, X: Array) -> Array:
        return np.zeros(X.shape)  # k(x, x) = 1 everywhere

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.lengthscale.tolist()})"


class RBF(Stationary):
    """The Gaussian kernel k(x, y) = exp(−ρ²/2), ρ = ‖(x − y)/ℓ‖.

    Parameters
    ----------
    lengthscale : float or array_like, (d,)
        ℓ, one for all columns or one each.
    """

    def _of_squared_distance(self, D: Array) -> Array:
        D *= -0.5
        K: Array = namespace(D).exp(D)
        return K

    def _slope(self, D: Array) -> Array:
        return -np.exp(-0.5 * D)


class Matern(Stationary):
    """The Matérn kernel of smoothness ν, ρ = ‖(x − y)/ℓ‖.

    ν = ½: exp(−ρ);  ν = 3/2: (1 + √3ρ) exp(−√3ρ);  ν = 5/2: (1 + √5ρ + 5ρ²/3) exp(−√5ρ).

    Parameters
    ----------
    lengthscale : float or array_like, (d,)
        ℓ, one for all columns or one each.
    nu : float
        ν: 0.5, 1.5 or 2.5.
    """

    def __init__(self, lengthscale: ArrayLike, nu: float = 2.5) -> None:
        super().__init__(lengthscale)
        if not isinstance(nu, float | int) or nu not in (0.5, 1.5, 2.5):
            raise KernelError(
                f"nu must be 0.5, 1.5 or 2.5, got {nu!r}; for other values pass scikit-learn's "
                "Matern"
            )
        self.nu = nu

    def _of_squared_distance(self, D: Array) -> Array:
        xp = namespace(D)
        D *= 2 * self.nu
        R = xp.sqrt(D)  # √(2ν)ρ, of which all three are functions
        K: Array = xp.exp(-R)
        if self.nu > 0.5:
            if self.nu == 2.5:
                D *= 1 / 3  # 5ρ²/3
                R += D
            R += 1.0
            K *= R
        return K

    @property
    def differentiable(self) -> bool:
        return self.nu > 0.5

    def _slope(self, D: Array) -> Array:
        if not self.differentiable:
            raise KernelError(f"{self!r} has a kink at x = y and no gradient; use nu=1.5 or nu=2.5")
        # 2g′(ρ²): −3e^{−√3ρ} for ν = 3/2, −(5/3)(1 + √5ρ)e^{−√5ρ} for ν = 5/2; no 1/ρ is left.
        R = np.sqrt(2 * self.nu * D)
        return -3.0 * np.exp(-R) if self.nu == 1.5 else -5.0 / 3.0 * (1.0 + R) * np.exp(-R)

    def __repr__(self) -> str:
        return f"Matern({self.lengthscale.tolist()}, nu={self.nu})"
