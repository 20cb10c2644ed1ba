"""What a row has of its own: a part of f that no other row tells of."""

from dataclasses import dataclass

import numpy as np

from manyarms.checks import real, store
from manyarms.errors import KernelError
from manyarms.kernels.base import Kernel, Scaled, Sum, check_kernels
from manyarms.kernels.distances import as_blocks
from manyarms.typing import Array, Indices

FASTER_THAN_SORTING = 20_000
"""Comparisons of numbers up to which comparing every two rows is faster than sorting them."""


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
        expected = "a finite variance, not negative"
        variance = real(self.variance, "variance", expected, at_least=0, error=KernelError)
        store(self, variance=variance)

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = as_blocks(X, Y)
        K = self.kernel(X, Y)
        K[equal_rows(X, Y)] += self.variance
        return K

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(X) + self.variance

    @property
    def differentiable(self) -> bool:
        return self.kernel.differentiable

    def gradient(self, X: Array, Y: Array, V: Array) -> Array:
        return self.kernel.gradient(X, Y, V)  # [x = y] is 0 almost everywhere

    def diag_gradient(self, X: Array) -> Array:
        return self.kernel.diag_gradient(X)


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


def equal_rows(X: Array, Y: Array) -> tuple[Indices, Indices]:
    """All pairs (i, j) with x_i = y_j, of many rows in O((n + m)(d + log m)) and not O(nmd)."""
    if len(X) * Y.size <= FASTER_THAN_SORTING:
        found = np.nonzero((X[:, None] == Y).all(axis=2))
        return found[0], found[1]
    keys = row_keys(Y)
    order = np.argsort(keys, kind="stable")
    wanted = row_keys(X)
    first = np.searchsorted(keys, wanted, side="left", sorter=order)
    after = np.searchsorted(keys, wanted, side="right", sorter=order)
    count = after - first
    rows = np.repeat(np.arange(len(X)), count)
    # The places first, first + 1, …, after − 1 of each row that has any.
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    columns = order[np.repeat(first, count) + within]
    equal = (X[rows] == Y[columns]).all(axis=1)
    return rows[equal], columns[equal]


def row_keys(X: Array) -> Array:
    """A number a row, the same for equal rows whatever block they are in: it is summed column by
    column."""
    keys = np.zeros(len(X))
    for j, column in enumerate(X.T):
        keys += np.sqrt(2.0 + 3.0 * j) * column
    return keys
