"""Bags of numbers: rows of whole numbers from 0 on, in any order, some perhaps twice, negative ones standing for nothing.

What strings, graphs and sets have in common. With c_w(x) how often w is in the bag x, their kernels need Σ_w c_w(x) c_w(y).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from manyarms.typing import Array

Bags = npt.NDArray[np.int64]
ENTRIES = 1 << 22
"""Numbers held at a time."""


class Counts:
    """The counts c_w(y) of some bags, to be compared with those of many others; b·c_w(y) where `scale` holds b (m,)."""

    def __init__(self, Y: Bags, scale: Array | None = None) -> None:
        held = Y >= 0
        self._words, columns = np.unique(Y[held], return_inverse=True)
        rows = np.repeat(np.arange(len(Y)), held.sum(axis=1))
        values = np.ones(len(rows)) if scale is None else scale[rows]
        counts: Any = csr_array((values, (columns, rows)), shape=(len(self._words), len(Y)))
        self._counts = counts.toarray() if np.prod(counts.shape) <= ENTRIES else counts

    def shared(self, X: Bags) -> Array:
        """Σ_w c_w(x) c_w(y), (n, m)."""
        if not len(self._words):
            return np.zeros((len(X), self._counts.shape[1]))
        at = np.minimum(np.searchsorted(self._words, X), len(self._words) - 1)
        known = self._words[at] == X
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        ours: Any = csr_array((np.ones(starts[-1]), at[known], starts), shape=(len(X), len(self._words)))
        K = ours @ self._counts
        return np.asarray(K if isinstance(K, np.ndarray) else K.toarray())


def squares(X: Bags) -> Array:
    """Σ_w c_w(x)², (n,): equal numbers are neighbours once sorted, and the p-th of c adds 2p − 1 to c²."""
    total, before = np.zeros(len(X)), np.zeros(len(X))
    columns = np.sort(X, axis=1).T
    for j, column in enumerate(columns):
        again = column == columns[j - 1] if j else np.zeros(len(X), dtype=bool)
        before = np.where(again, before + 1, 0.0)
        total += np.where(column >= 0, 2 * before + 1, 0.0)
    return total


def cosines(theirs: Bags, ours: Callable[[slice], Bags], n: int) -> Array:
    """Σ_w c_w(x) c_w(y)/√(Σ_w c_w(x)² Σ_w c_w(y)²), (n, m), for n bags made slice by slice; 1 for two empty ones."""
    sizes = squares(theirs)
    counts = Counts(theirs, 1 / np.sqrt(np.maximum(sizes, 1)))
    K = np.empty((n, len(theirs)))
    step = max(1, ENTRIES // theirs.shape[1])
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        bags = ours(rows)
        size = squares(bags)
        K[rows] = counts.shared(bags)
        K[rows] /= np.sqrt(np.maximum(size, 1))[:, None]
        K[start + np.flatnonzero(size == 0)[:, None], np.flatnonzero(sizes == 0)] = 1.0
    return K
