"""All shards of a table, in this process; and what every crew has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.cluster.sources import Source
from manyarms.errors import ArmsError, MemoryBudgetError
from manyarms.kernels import Kernel
from manyarms.runtime.machine import half_the_memory
from manyarms.search import PER_ARM
from manyarms.search.shards import News, Question, Shard
from manyarms.typing import Array, Indices

MOST_FETCHED = 4096
"""Rows of arms that the driver remembers: those chosen, and those asked for."""


@dataclass(frozen=True)
class Part:
    """Some rows of a table, by which its shard is made, again and again."""

    source: Source
    start: int
    stop: int
    memory: float | None  # bytes; None for a share of the machine's

    def shard(self, neighbours: int) -> Shard:
        """The shard, on a machine that has so many of them."""
        n = self.stop - self.start
        memory = half_the_memory() / neighbours if self.memory is None else self.memory
        needed = (PER_ARM + self.source.row_bytes) * n
        if needed > memory:
            raise MemoryBudgetError(
                f"rows {self.start} to {self.stop - 1} take {needed:.3g} bytes, a shard may use "
                f"{memory:.3g}; divide the table among more shards or machines, or raise `memory`"
            )
        # Embeddings that outgrow their buffers are copied: for a moment there are two of them.
        room = (memory - needed) / 2
        return Shard(self.source.read(self.start, self.stop), self.start, room)


@dataclass(frozen=True)
class Division:
    """How a table is divided."""

    source: Source
    bounds: Indices  # (n_shards + 1,)
    memory: float | None

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def part(self, i: int, source: Source | None = None) -> Part:
        """One of them, with another source where one is given."""
        start, stop = int(self.bounds[i]), int(self.bounds[i + 1])
        return Part(source or self.source, start, stop, self.memory)


class Fetched:
    """Rows that the driver remembers, by number."""

    def __init__(self, bounds: Indices, fetch: Callable[[int, Indices], Array]) -> None:
        self._bounds = bounds
        self._fetch = fetch
        self._rows: dict[int, Array] = {}

    def learned(self, numbers: Indices, rows: Array) -> None:
        """Remember rows."""
        if len(self._rows) + len(numbers) > MOST_FETCHED:
            self._rows.clear()
        self._rows.update(zip(numbers.tolist(), rows, strict=True))

    def rows(self, numbers: Indices) -> Array:
        """Rows by number, those that are not known from their shards."""
        unknown = np.array(sorted(set(numbers.tolist()) - self._rows.keys()), dtype=np.intp)
        found = dict(self._rows)
        owner = np.searchsorted(self._bounds, unknown, side="right") - 1
        for i in np.unique(owner).tolist():
            mine = unknown[owner == i]
            rows = self._fetch(i, mine)
            found.update(zip(mine.tolist(), rows, strict=True))
            self.learned(mine, rows)
        return np.array([found[number] for number in numbers.tolist()])


class HereCrew:
    """Shards of this process, one after the other: each uses all cores for its passes."""

    def __init__(self, parts: Division) -> None:
        self.bounds = parts.bounds
        self.known: list[int | None] = [None] * len(parts)
        self._shards = [parts.part(i).shard(len(parts)) for i in range(len(parts))]
        self._fetched = Fetched(self.bounds, lambda i, numbers: self._shards[i].some(numbers))
        self.learned = self._fetched.learned
        self.rows = self._fetched.rows

    def ask(self, asked: dict[int, tuple[News, Question]]) -> dict[int, Any]:
        """The answers of some shards."""
        return {i: self._shards[i].ask(*message) for i, message in asked.items()}

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""
        for shard in self._shards:
            shard.check(kernel, regularization)

    def close(self) -> None:
        """There is nothing to end."""


def changed(part: Part) -> ArmsError:
    """The error for rows that are not those of before."""
    return ArmsError(
        f"rows {part.start} to {part.stop - 1} have changed since the table was divided: their "
        "digest is another one; put the files back as they were, or divide the table anew"
    )
