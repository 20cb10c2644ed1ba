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

STATIONARY = {(RBF, None): 0, (Matern, 0.5): 1, (Matern, 1.5): 2, (Matern, 2.5): 3}
HAMMING, TANIMOTO, PACKED = 4, 5, 6
"""Kinds of factors, as `_sweep.c` numbers them."""


class Factor(NamedTuple):
    """A kernel of the columns from `start` to `stop` (None: the last), and its kind."""

    kind: int
    kernel: Kernel
    start: int
    stop: int | None


class Formula(NamedTuple):
    """constant · product of factors, as arrays: kind, start and stop of each (f, 3), and the
    weights of all their columns."""

    parts: Indices
    weights: Array
    constant: float


class Columns:
    """k(X, W) of a kernel for blocks of rows, (j, n)."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._factors: list[Factor] = []
        self._windows: list[On] = []
        self._constant = 1.0
        self.compiled = COMPILED and self._covers(kernel, 0, None)
        self._formulas: dict[int, Formula | None] = {}

    def into(self, out: Array, X: AnyArray, W: Array) -> None:
        """out[a, i] = k(x_i, w_a) for rows X (n, d) of float64 or float32 and W (j, d)."""
        if self.compiled and X.shape[1] == W.shape[1]:
            formula = self._formula(W)
            # False: there is something in the rows that the kernel itself must judge.
            if formula and _sweep.columns(out, X, W, *formula):
                return
        out[:] = self.kernel(np.asarray(X, dtype=np.float64), W).T

    def _covers(  # noqa: PLR0911  a case each
        self, kernel: Kernel, start: int, stop: int | None
    ) -> bool:
        """Flatten the kernel of these columns; by its very class, as a subclass may compute
        something else."""
        if type(kernel) is Scaled:
            self._constant *= kernel.constant
            return self._covers(kernel.kernel, start, stop)
        if type(kernel) is Product:
            first = self._covers(kernel.first, start, stop)
            return first and self._covers(kernel.second, start, stop)
        if type(kernel) is On:
            # Columns of columns: the inner ones must be within the outer ones.
            if stop is not None and start + kernel.stop > stop:
                return False
            return self._covers(kernel.kernel, start + kernel.start, start + kernel.stop)
        if type(kernel) is Hamming:
            kind = HAMMING
        elif type(kernel) is Tanimoto:
            kind = PACKED if kernel.packed else TANIMOTO
        elif isinstance(kernel, RBF | Matern):
            nu = kernel.nu if isinstance(kernel, Matern) else None
            if (type(kernel), nu) not in STATIONARY:
                return False
            kind = STATIONARY[type(kernel), nu]
        else:
            return False
        self._factors.append(Factor(kind, kernel, start, stop))
        return True

    def _formula(self, W: Array) -> Formula | None:
        d = W.shape[1]
        if d not in self._formulas:
            self._formulas[d] = self._made(d)
        return self._formulas[d]

    def _made(self, d: int) -> Formula | None:
        """For rows of d columns; None where the kernel itself must be asked."""
        parts = []
        weights = []
        for kind, kernel, start, given in self._factors:
            stop = d if given is None else given
            if stop > d:
                return None
            parts.append((kind, start, stop))
            if isinstance(kernel, RBF | Matern | Hamming):
                check_lengthscale(kernel, kernel.lengthscale, stop - start)
                with np.errstate(over="ignore"):
                    weights.append(np.broadcast_to(1.0 / kernel.lengthscale, stop - start))
            else:
                weights.append(np.ones(stop - start))
        all_weights = np.concatenate(weights)
        # A lengthscale near the ends of what float64 holds has no inverse there.
        normal = np.isfinite(all_weights) & (all_weights >= np.finfo(np.float64).tiny)
        if not normal.all():
            return None
        return Formula(np.array(parts, dtype=np.intp), all_weights, self._constant)


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
) -> tuple[int, float]:
    """The lowest index, of arms that are not shut, of the largest mean + β√max(variance + offset,
    0), and that value; (−1, −∞) where all are shut."""
    upper = np.maximum(variance + offset, 0.0)
    np.sqrt(upper, out=upper)
    upper *= beta
    upper += mean
    if shut is not None:
        upper[np.asarray(shut, dtype=bool)] = -np.inf
    top = np.fmax.reduce(upper, initial=-np.inf)
    if top == -np.inf:
        return -1, -np.inf
    return int(np.argmax(upper == top)), float(top)


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


def squares_in_numpy(Z: Array) -> Array:
    """Σ over rows of Z², (n,)."""
    return np.asarray(np.einsum("mn,mn->n", Z, Z))


def _reach(
    mean: Array, variance: Array, shut: Mask | AnyArray | None, need: Array, scale: float
) -> Indices:
    places = np.empty(len(mean), dtype=np.intp)
    return places[: _sweep.reach(mean, variance, shut, need, scale, places)].copy()


def _squares(Z: Array) -> Array:
    sums = np.empty(Z.shape[1])
    _sweep.squares(Z, sums)
    return sums


step = _sweep.step if COMPILED else step_in_numpy
peak = _sweep.peak if COMPILED else peak_in_numpy
reach = _reach if COMPILED else reach_in_numpy
squares = _squares if COMPILED else squares_in_numpy
