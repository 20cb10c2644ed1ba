"""Bags of numbers, some of them perhaps more than once: what strings, graphs and sets have in
common.

With c_w(x) how often w is in the bag x, their kernels need Σ_w c_w(x) c_w(y).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from manyarms.errors import ArmsError
from manyarms.typing import Array, Indices

NUMBER_LIMIT = 2**52
"""Numbers in a bag are below this: rows are float64, which holds such whole numbers exactly."""
AT_ONCE = 1 << 22
"""Numbers held at a time: 32 MiB of int64."""

Numbers = npt.NDArray[np.int64]


class Bags(NamedTuple):
    """Bag i holds ``numbers[starts[i]:starts[i + 1]]``."""

    numbers: Numbers
    starts: Indices  # (n + 1,)

    @classmethod
    def of(cls, rows: Array, below: int = NUMBER_LIMIT) -> "Bags":
        """The numbers of each row that are not negative, all below some number."""
        held = checked(rows, below) >= 0
        return cls(rows[held].astype(np.int64), ends_of(held.sum(axis=1)))

    def squares(self) -> Array:
        """Σ_w c_w(x)², (n,): runs of equal numbers, each bag sorted."""
        n = len(self.starts) - 1
        total = np.zeros(n)
        most = int(self.numbers.max(initial=0)) + 1
        # A key is the bag times `most` plus the number: so many bags that it fits 64 bits.
        step = 2**62 // most
        for start in range(0, n, step):
            bounds = self.starts[start : start + step + 1]
            keys = (
                np.repeat(np.arange(len(bounds) - 1) * most, np.diff(bounds))
                + self.numbers[bounds[0] : bounds[-1]]
            )
            # Sorted, equal numbers of one bag are a run: its length is c_w(x).
            keys.sort()
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            counts = np.diff(first, append=len(keys))
            total[start : start + step] = np.bincount(
                keys[first] // most, np.square(counts), len(bounds) - 1
            )
        return total


def checked(rows: Array, below: int = NUMBER_LIMIT) -> Array:
    """Rows as an encoder makes them, whole numbers from −1 on and below some number, or
    ArmsError."""
    if rows.size and not (
        rows.min() >= -1 and rows.max() < below and (np.floor(rows) == rows).all()
    ):
        bad = rows[~((rows >= -1) & (rows < below) & (np.floor(rows) == rows))]
        raise ArmsError(
            "rows of objects are those that kernel.encode(objects) gives, whole numbers from "
            f"-1 to {below - 1}, got {bad[0]}; "
            "encode the objects, or give them as a list"
        )
    return rows


def ends_of(sizes: npt.NDArray[np.integer[Any]]) -> Indices:
    """Where parts of these sizes start, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


class Counts:
    """The counts c_w(y) of some bags, to be compared with those of many others; b·c_w(y) where
    `scale` holds b (m,)."""

    def __init__(self, Y: Bags, scale: Array | None = None, entries: int = AT_ONCE) -> None:
        self._words, columns = np.unique(Y.numbers, return_inverse=True)
        m = len(Y.starts) - 1
        rows = np.repeat(np.arange(m), np.diff(Y.starts))
        values = np.ones(len(rows)) if scale is None else scale[rows]
        # A matrix with a row for each word, in which repeated entries add up to c_w(y).
        counts: Any = scipy.sparse.csr_array((values, (columns, rows)), shape=(len(self._words), m))
        # Dense while it is small: what comes of a product with it is dense in any case.
        self._counts = counts.toarray() if len(self._words) * m <= entries else counts

    def shared(self, X: Bags) -> Array:
        """Σ_w c_w(x) c_w(y), (n, m)."""
        if not len(self._words):
            return np.zeros((len(X.starts) - 1, self._counts.shape[1]))
        # Words of x that no y has get the weight 0, at whatever place they would stand.
        at = np.minimum(np.searchsorted(self._words, X.numbers), len(self._words) - 1)
        known = (self._words[at] == X.numbers).astype(np.float64)
        ours: Any = scipy.sparse.csr_array(
            (known, at, X.starts), shape=(len(X.starts) - 1, len(self._words))
        )
        K = ours @ self._counts
        return np.asarray(K if isinstance(K, np.ndarray) else K.toarray())


def cosines(X: Array, Y: Array, bags: Callable[[Array], Bags], entries: int = AT_ONCE) -> Array:
    """Σ_w c_w(x) c_w(y)/√(Σ_w c_w(x)² Σ_w c_w(y)²), (n, m), of the bags of all rows; 1 for two
    empty ones.

    About so many `entries` are held at a time.
    """
    theirs = bags(Y)
    sizes = theirs.squares()
    counts = Counts(theirs, 1 / np.sqrt(np.maximum(sizes, 1)), entries)
    K = np.empty((len(X), len(Y)))
    # As many rows of X as have some `entries` numbers, if they are as large as those of Y.
    step = max(1, entries * len(Y) // max(1, len(theirs.numbers)))
    for start in range(0, len(X), step):
        ours = bags(X[start : start + step])
        size = ours.squares()
        block = counts.shared(ours)
        block /= np.sqrt(np.maximum(size, 1))[:, None]
        block[np.ix_(size == 0, sizes == 0)] = 1.0  # two empty bags are alike
        K[start : start + step] = block
    return K
