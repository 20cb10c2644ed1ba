"""Arms given by value: rows that no table holds, each kept once, and rows of a table found by what is in them."""

from dataclasses import dataclass, field

import numpy as np

from manyarms.arms.groups import hashes_of
from manyarms.typing import AnyArray, Array, Indices

ROWS_HASHED = 1 << 16
"""Rows hashed at a time."""


@dataclass(frozen=True)
class Index:
    """Where rows of given content are: hashes in ascending order, and the row of each; of equal rows the first counts."""

    hashes: AnyArray  # (n,) uint64
    order: Indices  # (n,)

    @classmethod
    def of(cls, rows: Array) -> "Index":
        """An index of all rows: 16 bytes each, about half a second for a million."""
        parts = [_hashes(rows[start : start + ROWS_HASHED]) for start in range(0, len(rows), ROWS_HASHED)]
        hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order)

    def find(self, wanted: Array, rows: Array) -> Indices:
        """Which of the indexed rows each of the wanted ones equals, −1 where none."""
        found = np.full(len(wanted), -1, dtype=np.intp)
        hashes = _hashes(wanted)
        first, last = (np.searchsorted(self.hashes, hashes, side=side) for side in ("left", "right"))
        for j in np.flatnonzero(first < last):
            alike = (i for i in self.order[first[j] : last[j]] if np.array_equal(rows[i], wanted[j]))
            found[j] = next(alike, -1)
        return found

    def with_more(self, rows: Array) -> "Index":
        """The index with these rows behind the others."""
        hashes = _hashes(rows)
        at, new = np.searchsorted(self.hashes, hashes, side="right"), len(self.order) + np.arange(len(rows))
        first = np.argsort(hashes, kind="stable")  # several may go to one place: in their own order
        return Index(np.insert(self.hashes, at[first], hashes[first]), np.insert(self.order, at[first], new[first]))


@dataclass(frozen=True)
class Seen:
    """Rows observed by value, in the order they came, with k(x, x). A value: more rows are another one."""

    rows: Array = field(default_factory=lambda: np.zeros((0, 0)))  # (n, d)
    diag: Array = field(default_factory=lambda: np.zeros(0))  # (n,)
    index: Index = field(default_factory=lambda: Index.of(np.zeros((0, 0))))

    def __len__(self) -> int:
        return len(self.diag)

    def find(self, wanted: Array) -> Indices:
        """Which of these each of the wanted rows equals, −1 where none."""
        return self.index.find(wanted, self.rows)

    def with_more(self, rows: Array, diag: Array) -> "Seen":
        """These and others, which are not among them."""
        grown = np.vstack([self.rows, rows]) if len(self) else rows
        return Seen(grown, np.concatenate([self.diag, diag]), self.index.with_more(rows))

    def since(self, n: int) -> tuple[Array, Array]:
        """Those that came after the first n, with k(x, x)."""
        return self.rows[n:], self.diag[n:]


def _hashes(rows: Array) -> AnyArray:
    return hashes_of(rows.astype(np.float64) + 0.0)  # −0 is 0
