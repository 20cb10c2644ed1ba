"""The shards of a table, in this process or as actors of Ray: how they are made and called."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np

from manyarms.cluster.rays import RayConnection, said
from manyarms.cluster.sources import Source
from manyarms.errors import ArmsError, ClusterError, MemoryBudgetError
from manyarms.kernels import Kernel
from manyarms.runtime.machine import half_the_memory
from manyarms.search import PER_ARM
from manyarms.search.shards import MOST_TRIES, Lost, News, Question, Shard
from manyarms.search.work import limit_threads
from manyarms.typing import Array, Indices


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

    def alone(self) -> "Part":
        """The same, with the rows of no other part."""
        return replace(self, source=self.source.cut(self.start, self.stop))


class AllShards(ABC):
    """All shards of a table, and the rows that were fetched from them."""

    def __init__(self, parts: list[Part]) -> None:
        self.bounds = np.array([0, *(part.stop for part in parts)], dtype=np.intp)
        self.known: list[int | None] = [None] * len(parts)
        self._rows: dict[int, Array] = {}

    @abstractmethod
    def call(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method of some shards returns for these arguments; of one that was lost,
        `Lost`."""

    @abstractmethod
    def close(self) -> None:
        """End all shards."""

    def ask(self, asked: dict[int, tuple[News, Question]]) -> dict[int, Any]:
        """The answers of some shards."""
        return self.call("ask", asked)

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""
        self.surely("check", dict.fromkeys(range(len(self.known)), (kernel, regularization)))

    def learned(self, numbers: Indices, rows: Array) -> None:
        """Remember rows: those of arms chosen, and those asked for, some thousands at most."""
        if len(self._rows) + len(numbers) > 4096:
            self._rows.clear()
        self._rows.update(zip(numbers.tolist(), rows, strict=True))

    def rows(self, numbers: Indices) -> Array:
        """Rows by number, those that are not known from their shards."""
        unknown = np.array(sorted(set(numbers.tolist()) - self._rows.keys()), dtype=np.intp)
        owner = np.searchsorted(self.bounds, unknown, side="right") - 1
        asked = {i: (unknown[owner == i],) for i in np.unique(owner).tolist()}
        found = dict(self._rows)
        for i, rows in self.surely("some", asked).items():
            found.update(zip(asked[i][0].tolist(), rows, strict=True))
            self.learned(asked[i][0], rows)
        return np.array([found[number] for number in numbers.tolist()])

    def surely(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """The answers of shards that need to know nothing for them: one that was lost is asked
        again."""
        left = asked
        answers: dict[int, Any] = {}
        for _ in range(MOST_TRIES):
            answers |= self.call(method, left)
            left = {i: asked[i] for i in left if isinstance(answers[i], Lost)}
            if not left:
                return answers
        raise answers[min(left)].error(min(left))


class HereCrew(AllShards):
    """Shards of this process, one after the other: each uses all cores for its passes."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__(parts)
        self._shards = [part.shard(len(parts)) for part in parts]

    def call(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method of some shards returns."""
        return {i: getattr(self._shards[i], method)(*given) for i, given in asked.items()}

    def close(self) -> None:
        """There is nothing to end."""


class Host:
    """What an actor runs: a shard, made from its part when it is first called."""

    def __init__(self, part: Part, neighbours: int, threads: int) -> None:
        limit_threads(threads)
        self._part = part
        self._neighbours = neighbours
        self._shard: Shard | None = None

    def call(self, digest: str | None, method: str, *arguments: Any) -> Any:
        """What a method of the shard returns; its rows must have this digest."""
        try:
            if self._shard is None:
                shard = self._part.shard(self._neighbours)
                if digest is not None and digest != shard.digest:
                    raise ArmsError(
                        f"rows {self._part.start} to {self._part.stop - 1} have changed since the "
                        "table was divided: their digest is another one; put the files back as "
                        "they were, or divide the table anew"
                    )
                self._shard = shard
            return getattr(self._shard, method)(*arguments)
        except MemoryError as error:
            self._shard = None
            if isinstance(error, MemoryBudgetError):
                raise
            raise MemoryBudgetError(f"a shard ran out of memory: {said(error)}") from error

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()


class RayCrew(AllShards):
    """Shards that are actors of Ray. Where one dies, Ray makes it again from its part, and repeats
    the call: a shard that does not know the scores it is asked about says so."""

    def __init__(self, parts: list[Part], address: str | None, cpus: int, timeout: float) -> None:
        super().__init__(parts)
        self._connection = RayConnection(address)
        self._ray = self._connection.ray
        self._timeout = timeout
        self._digests: list[str | None] = [None] * len(parts)
        self._actors: list[Any] = []
        try:
            self._host, self._neighbours = self._hosts(len(parts), cpus)
            self._threads = cpus
            # Rows of an array are in Ray's store, once.
            self._parts = [self._ray.put(part.alone()) for part in parts]
            self._actors = [self._made(i) for i in range(len(parts))]
            nothing: dict[int, tuple[Any, ...]] = dict.fromkeys(range(len(parts)), ())
            digests = self.surely("known_by", nothing)
            self._digests = [digests[i] for i in range(len(parts))]
        except BaseException:
            self.close()
            raise

    def _hosts(self, n: int, cpus: int) -> tuple[Any, int]:
        """The class of actors, and how many of n each machine has."""
        ray = self._ray
        nodes = [node for node in ray.nodes() if node["Alive"]]
        # A Ray of our own has as many actors as we like; on another one they take their cores.
        taken = 0 if self._connection.local else cpus
        there = int(ray.cluster_resources().get("CPU", 0))
        if taken * n > there:
            raise ClusterError(
                f"{n} shards of {cpus} cores need {cpus * n} cores, the cluster has {there}; "
                "divide the table among fewer shards, or add machines"
            )
        host = ray.remote(num_cpus=taken, max_restarts=-1, max_task_retries=MOST_TRIES)(Host)
        return host, -(-n // max(1, len(nodes)))

    def _made(self, i: int) -> Any:
        return self._host.remote(self._parts[i], self._neighbours, self._threads)

    def close(self) -> None:
        """End all shards, and Ray where it was started for them."""
        if self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)
        self._actors = []
        self._connection.close()

    def call(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method of some shards returns, all at the same time."""
        if asked and not self._actors:
            raise ClusterError("the shards were ended by close(); divide the table anew")
        by = monotonic() + self._timeout
        answers = {
            i: self._actors[i].call.remote(self._digests[i], method, *given)
            for i, given in asked.items()
        }
        return {i: self._answer(i, answer, by) for i, answer in answers.items()}

    def _answer(self, i: int, answer: Any, by: float) -> Any:
        """The answer of a shard; `Lost` where there is none in time, or Ray has given up."""
        ray = self._ray
        errors = ray.exceptions
        try:
            return ray.get(answer, timeout=max(0.0, by - monotonic()))
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.GetTimeoutError, errors.RayActorError, errors.OutOfMemoryError) as error:
            # A process that hangs may take long to end: another actor takes its place at once.
            ray.kill(self._actors[i])
            self._actors[i] = self._made(i)
            return Lost(said(error))
