"""Where the rows that a belief has tried are among the arms of a table."""

import numpy as np

from manyarms.engine.frozen import Frozen
from manyarms.engine.own import Owned
from manyarms.equal import equal_rows, row_keys
from manyarms.typing import AnyArray, Array, Indices, Mask

BLOCK = 1 << 13
"""Rows whose keys are computed at a time: they stay in cache."""


class Places:
    """The arms of a table that were tried, and which of the tried rows each of them is.

    Equal rows are tried together. Nothing is looked for where the kernel has no own parts.
    """

    def __init__(self, rows: AnyArray) -> None:
        self._rows = rows
        self._keys: Array | None = None
        self._n_found = 0  # tried rows looked for so far
        self.positions: Indices = np.zeros(0, dtype=np.intp)  # of arms
        self.places: Indices = np.zeros(0, dtype=np.intp)  # among the rows tried

    def find(self, belief: Frozen | Owned, *, anew: bool = False) -> None:
        """Find the rows that a belief has tried since the last one."""
        if isinstance(belief, Frozen):
            return
        if anew:
            self._n_found = 0
            self.positions = self.positions[:0]
            self.places = self.places[:0]
        tried = belief.tried.rows
        new = tried[self._n_found :]
        if len(new):
            arms, which = self._equal_to(new)
            self.positions = np.concatenate([self.positions, arms])
            self.places = np.concatenate([self.places, which + self._n_found])
            self._n_found = len(tried)

    def and_shut(self, shut: Mask | None) -> Mask:
        """These arms and those that are shut, as a mask."""
        closed = np.zeros(len(self._rows), dtype=bool) if shut is None else shut.copy()
        closed[self.positions] = True
        return closed

    def _equal_to(self, rows: Array) -> tuple[Indices, Indices]:
        """All pairs of an arm and one of some rows that are equal."""
        if self._keys is None:
            blocks = range(0, len(self._rows), BLOCK)
            keys = [row_keys(np.asarray(self._rows[i : i + BLOCK], dtype=float)) for i in blocks]
            self._keys = np.concatenate([np.zeros(0), *keys])
        wanted = np.unique(row_keys(rows))
        if len(wanted) == 1:
            some = np.flatnonzero(self._keys == wanted[0])
        else:
            at = np.minimum(np.searchsorted(wanted, self._keys), len(wanted) - 1)
            some = np.flatnonzero(wanted[at] == self._keys)
        arms, which = equal_rows(np.asarray(self._rows[some], dtype=np.float64), rows)
        return some[arms], which
