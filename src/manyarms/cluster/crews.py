"""The shards of a table, in this process or as actors of Ray: how they are made and called."""

import os
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np

from manyarms.cluster.rays import RayConnection, said
from manyarms.cluster.sources import Source
from manyarms.errors import ArmsError, ClusterError, MemoryBudgetError
from manyarms.runtime.machine import half_the_memory
from manyarms.search import PER_ARM
from manyarms.search.shards import MOST_TRIES, Crew, Lost, Shard
from manyarms.search.work import limit_threads
from manyarms.typing import Indices


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


def bounds_of(parts: list[Part]) -> Indices:
    """Where parts begin, and where the last ends."""
    return np.array([0, *(part.stop for part in parts)], dtype=np.intp)


class HereCrew(Crew):
    """Shards of this process, one after the other: each uses all cores for its passes."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__(bounds_of(parts))
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


class RayCrew(Crew):
    """Shards that are actors of Ray. Where one dies, Ray makes it again from its part, and repeats
    the call: a shard that does not know the scores it is asked about says so."""

    def __init__(self, parts: list[Part], address: str | None, cpus: int, timeout: float) -> None:
        super().__init__(bounds_of(parts))
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
