"""The loops over all arms: kernel columns, a step of embeddings, means and variances, and the
filters. Compiled (`_sweep.c`) where this installation has it, else by NumPy: the same functions.

Nothing that a belief keeps is computed here, so that models do not depend on the build.
"""

import os
from typing import NamedTuple

import numpy as np

from manyarms.kernels import RBF, Hamming, Kernel, Matern, On, Product, Scaled, Tanimoto
from manyarms.kernels.stationary import check_lengthscale
from manyarms.typing import AnyArray, Array, Indices, Mask

SWITCH = "MANYARMS_NO_SWEEP"
"""Set to anything but 0, this variable of the environment chooses NumPy."""

if os.environ.get(SWITCH, "0") in ("", "0"):
    try:
        from manyarms import _sweep
    except ImportError:  # no wheel for this machine, and no compiler when it was installed
        COMPILED, STATE = False, "not built: NumPy does its work"
    else:
        COMPILED, STATE = True, "used"
else:
    COMPILED, STATE = False, f"switched off by {SWITCH}: NumPy does its work"

CODES: dict[tuple[type[Kernel], float | None, bool | None], int] = {
    (RBF, None, None): 0,
    (Matern, 0.5, None): 1,
    (Matern, 1.5, None): 2,
    (Matern, 2.5, None): 3,
    (Hamming, None, None): 4,
    (Tanimoto, None, True): 5,  # of unpacked bits, a product of matrices is as fast
}
"""Kernels by class, ν and whether bits are packed, as `_sweep.c` numbers them."""


class KernelFactor(NamedTuple):
    """A kernel of the columns from `start` to `stop` (None: to the last), and its kind."""

    kind: int
    kernel: Kernel
    start: int
    stop: int | None


class Formula(NamedTuple):
    """constant · product of factors for rows of so many columns, as `_sweep.c` takes it."""

    parts: memoryview  # kind, start and stop of each factor, (f, 3)
    weights: memoryview  # 1/ℓ of all columns of all factors
    constant: float


class Columns:
    """k(X, W) of a kernel for blocks of rows.

    Parameters
    ----------
    kernel : Kernel
        Compiled are products of RBF, Matern, Hamming and packed Tanimoto, of some columns each.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._constant = 1.0
        self._factors: list[KernelFactor] = []
        self._formulas: dict[int, Formula | None] = {}
        self.compiled = COMPILED and self._covers(kernel, 0, None)

    def into(self, out: Array, X: AnyArray, W: Array) -> None:
        """out[a, i] = k(x_i, w_a), (j, n), for rows X (n, d) of float64 or float32 and W (j, d) of
        float64.

        Rows of `out` may be parts of longer ones.
        """
        d = X.shape[1]
        if self.compiled and d == W.shape[1]:
            if d not in self._formulas:
                self._formulas[d] = self._formula(d)
            formula = self._formulas[d]
            # False where something in the rows is the kernel's to judge.
            if formula and _sweep.columns(out, np.ascontiguousarray(X), W, *formula):
                return
        out[:] = self.kernel(np.asarray(X, dtype=np.float64), W).T

    def _covers(self, kernel: Kernel, start: int, stop: int | None) -> bool:
        """Whether there is a formula for a kernel of these columns, whose factors are noted."""
        # By the very class: a subclass may compute something else.
        kind = type(kernel)
        if isinstance(kernel, Scaled) and kind is Scaled:
            self._constant *= kernel.constant
            return self._covers(kernel.kernel, start, stop)
        if isinstance(kernel, Product) and kind is Product:
            first = self._covers(kernel.first, start, stop)
            return first and self._covers(kernel.second, start, stop)
        if isinstance(kernel, On) and kind is On:
            # Those of columns that are no columns of the outer one are refused by the kernel.
            inside = stop is None or start + kernel.stop <= stop
            return inside and self._covers(kernel.kernel, start + kernel.start, start + kernel.stop)
        nu = kernel.nu if isinstance(kernel, Matern) else None
        packed = kernel.packed if isinstance(kernel, Tanimoto) else None
        code = CODES.get((kind, nu, packed))
        if code is None:
            return False
        self._factors.append(KernelFactor(code, kernel, start, stop))
        return True

    def _formula(self, d: int) -> Formula | None:
        """For rows of d columns; None where the kernel itself must be asked."""
        parts = []
        weights = []
        for kind, kernel, start, given in self._factors:
            stop = d if given is None else given
            if stop > d:
                return None
            parts.append((kind, start, stop))
            weight: Array | float = 1.0
            if isinstance(kernel, RBF | Matern | Hamming):
                check_lengthscale(kernel, kernel.lengthscale, stop - start)
                with np.errstate(over="ignore"):
                    weight = 1.0 / kernel.lengthscale
            weights.append(np.broadcast_to(weight, stop - start))
        inverse = np.concatenate(weights)
        # A lengthscale near the ends of what float64 holds has none.
        numbers = np.append(inverse, self._constant)
        if not (np.isfinite(numbers) & (numbers >= np.finfo(np.float64).tiny)).all():
            return None
        table = np.array(parts, dtype=np.intp)
        return Formula(table.data, inverse.data, self._constant)


def step_in_numpy(
    Z: Array,
    p: int,
    m: int,
    ahead: Array,
    corner: Array,
    G: Array,
    surprise: Array,
    mean: Array,
    variance: Array,
) -> None:
    """Rows p to m − 1 of Z, kernel columns, become coordinates corner⁻¹(Z[p:m] − ahead Z[:p]);
    then with H = G Z[:m] (k, n) the means rise by surpriseᵀH and variances fall by Σ H², to no
    less than 0.

    Parameters
    ----------
    Z : ndarray, (capacity, n)
        Embeddings of n arms, a coordinate a row.
    p, m : int
        Coordinates that there are, and those afterwards.
    ahead, corner : ndarray, (m − p, p) and (m − p, m − p)
        The new rows of the lower triangular factor; not read where m = p.
    G, surprise : ndarray, (k, m) and (k,)
        What was learned.
    mean, variance : ndarray, (n,)
        Brought forward in place.
    """
    new = Z[p:m]
    if p < m:
        new -= ahead @ Z[:p]
    for a, row in enumerate(corner[: m - p]):
        new[a] -= row[:a] @ new[:a]
        new[a] /= row[a]
    H = G @ Z[:m]
    mean += surprise @ H
    variance -= np.einsum("kn,kn->n", H, H)
    np.maximum(variance, 0.0, out=variance)


def peak_in_numpy(
    mean: Array, variance: Array, shut: Mask | AnyArray | None, beta: float, offset: float
) -> tuple[int, float, float]:
    """The lowest index, of arms that are not shut, of the largest mean + β√max(variance + offset,
    0), that value, and the largest of the others; (−1, −∞, −∞) where all are shut."""
    upper = np.maximum(variance + offset, 0.0)
    np.sqrt(upper, out=upper)
    upper *= beta
    upper += mean
    if shut is not None:
        upper[np.asarray(shut, dtype=bool)] = -np.inf
    top = np.fmax.reduce(upper, initial=-np.inf)
    if top == -np.inf:
        return -1, -np.inf, -np.inf
    at = int(np.argmax(upper == top))
    upper[at] = -np.inf
    return at, float(top), float(np.fmax.reduce(upper))


def reach_in_numpy(
    mean: Array, variance: Array, shut: Mask | AnyArray | None, need: Array, scale: float
) -> Indices:
    """Ascending positions of arms that are not shut and whose mean is at least
    need[min(⌊variance · scale⌋, last)]."""
    steps = np.clip(variance * scale, 0.0, len(need) - 1).astype(np.intp)
    reaches = mean >= need[steps]
    if shut is not None:
        reaches &= ~np.asarray(shut, dtype=bool)
    return np.flatnonzero(reaches)


def _reach(
    mean: Array, variance: Array, shut: Mask | AnyArray | None, need: Array, scale: float
) -> Indices:
    places = np.empty(len(mean), dtype=np.intp)
    return places[: _sweep.reach(mean, variance, shut, need, scale, places)].copy()


step = _sweep.step if COMPILED else step_in_numpy
peak = _sweep.peak if COMPILED else peak_in_numpy
reach = _reach if COMPILED else reach_in_numpy
