"""A table whose rows are divided among shards: the `arms` of a policy, or of an `Optimizer`'s; and
the shards, in this process or as actors of Ray."""

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic
from types import TracebackType
from typing import Any, Self

import numpy as np

from manyarms.bandit.bkb import BKB
from manyarms.checks import as_bytes, real, whole
from manyarms.cluster.rays import RayConnection, said
from manyarms.cluster.sources import Source, source_of
from manyarms.engine.base import Belief
from manyarms.engine.frozen import Engine
from manyarms.errors import (
    ArmsError,
    ClusterError,
    MemoryBudgetError,
    ParameterError,
    UnknownArmError,
    shortened,
)
from manyarms.kernels import Kernel
from manyarms.runtime.machine import half_the_memory
from manyarms.search import PER_ARM
from manyarms.search.scores import ArmScores
from manyarms.search.shards import MOST_TRIES, Crew, Lost, Shard, ShardedScores
from manyarms.search.tuning import Tuning
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
        return Shard(self.source.read(self.start, self.stop), self.start, memory - needed)

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


class Sharded:
    """Rows that are divided among shards, each an actor on a Ray cluster or a part of this process.

    Given to a policy as its `arms`: the same arms are chosen as with one table. The driver, this
    process, never holds the rows; those of arms that are chosen are fetched. A shard whose process
    dies reads its rows again, is told what is known, and goes on.

    Parameters
    ----------
    data : str, path or array_like (A, d)
        A .npy or .parquet file, a folder or pattern of such files ("rows/*.parquet"), or a URL that
        fsspec reads. Every machine must see the files. An array is sent to the shards.
    shards : int
        In how many parts, of consecutive rows and equal size.
    address : str, optional
        Of a Ray cluster: "auto" for the one that `ray start` started here, or "host:port". Without
        one, Ray is started on this machine, and ends with the last table that uses it.
    in_process : bool
        Keep the shards in this process, without Ray.
    cpus : int
        Cores of each shard; its passes use as many threads.
    memory : float or str, optional
        Bytes that a shard may use, such as 2e9 or "2 GB". By default, half of its machine's memory
        is divided among the shards there.
    timeout : float
        Seconds after which a shard that has not answered is ended and made again. A pass over all
        its rows must take less.

    Raises
    ------
    ArmsError
        A file is missing, is no table of finite numbers, has other columns than the others, or has
        changed.
    ClusterError
        The address cannot be reached, runs another version of Ray, or has too few cores; or a shard
        was lost again and again.
    MemoryBudgetError
        A shard does not fit its memory.
    """

    def __init__(
        self,
        data: Any,
        shards: int = 2,
        *,
        address: str | None = None,
        in_process: bool = False,
        cpus: int = 1,
        memory: float | str | None = None,
        timeout: float = 600.0,
    ) -> None:
        shards = whole(shards, "shards", at_most=10_000)
        cpus = whole(cpus, "cpus", at_most=10_000)
        seconds = real(timeout, "timeout", "a positive number of seconds", above=0)
        if memory is not None:
            memory = as_bytes(memory)
        if in_process and address is not None:
            raise ParameterError(
                f"in_process=True has no cluster, got address="
                f"{shortened(address)} too; give one of them"
            )
        source = source_of(data)
        n, _ = source.shape
        if shards > n:
            raise ParameterError(f"shards must be at most the {n} rows of the table, got {shards}")
        self.shape = source.shape
        bounds = np.linspace(0, n, shards + 1).astype(int).tolist()
        parts = [Part(source, start, stop, memory) for start, stop in pairwise(bounds)]
        self._crew: Crew
        if in_process:
            self._crew = HereCrew(parts)
        else:
            self._crew = RayCrew(parts, address, cpus, seconds)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: Indices) -> Array:
        """Rows by number."""
        some = np.atleast_1d(np.asarray(numbers, dtype=np.intp))
        if some.size and not (some.min() >= 0 and some.max() < len(self)):
            raise UnknownArmError(
                f"rows are numbered 0 to {len(self) - 1}, got {shortened(numbers)}"
            )
        rows = self._crew.rows(some)
        return rows if np.ndim(numbers) else rows[0]

    def diagonal_of(self, kernel: Kernel, regularization: float) -> Any:
        """k(x, x) by number; the shards check that of all rows."""
        self._crew.check(kernel, regularization)
        return _Diagonal(self, kernel)

    def scores_at(self, belief: Belief, tuning: Tuning) -> ArmScores:
        """The scores of all rows at a belief."""
        if not isinstance(belief, Engine):
            raise ParameterError(
                f"shards follow a belief of frozen features, rule=Inserted(…), got "
                f"{shortened(belief)}"
            )
        return ShardedScores.at(self._crew, belief, tuning)

    def close(self) -> None:
        """End the shards, and Ray where it was started for them. Called again, it does nothing."""
        self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        n, d = self.shape
        return f"Sharded({n:,} rows of {d} columns in {len(self._crew.known)} shards)"


class _Diagonal:
    """k(x, x) of rows that are elsewhere, by number."""

    def __init__(self, table: Sharded, kernel: Kernel) -> None:
        self._table = table
        self._kernel = kernel

    def __getitem__(self, numbers: Indices) -> Any:
        diag = self._kernel.diag(self._table[np.atleast_1d(np.asarray(numbers))])
        return diag if np.ndim(numbers) else diag[0]

    take = __getitem__  # as a policy asks for several


class OnShards:
    """The `policy` of an `Optimizer` or a `Study` whose passes over a pool run on shards:
    ``Optimizer(pool, policy=OnShards(8, address="auto"))``, and ``Study.open(path, policy=…)``.

    The pool stays in this process: its names, its types, its encoded rows. A copy of the rows is
    sent to the shards, once. A refit sends the new kernel and what is known. After `add`, the
    search runs in this process until the next refit.

    Parameters
    ----------
    shards : int
        In how many parts.
    **options
        Of `Sharded`: address, in_process, cpus, memory, timeout.
    """

    makes = BKB  # so it gets the options of one

    def __init__(self, shards: int = 2, **options: Any) -> None:
        self._shards = whole(shards, "shards", at_most=10_000)
        unknown = options.keys() - {"address", "in_process", "cpus", "memory", "timeout"}
        if unknown:
            raise ParameterError(
                f"OnShards has no option {unknown.pop()!r}; it has those of Sharded"
            )
        self._options = options
        self._rows: Array | None = None
        self._table: Sharded | None = None

    def __call__(self, arms: Array, kernel: Any, **settings: Any) -> BKB:
        """The policy over these rows.

        Parameters
        ----------
        arms : ndarray, (A, d)
            The rows of a pool.
        kernel : Kernel
            Learned, or given.
        **settings
            Of `BKB`.

        Returns
        -------
        BKB
            Its table is divided.
        """
        if not isinstance(arms, np.ndarray):
            raise ParameterError(
                f"OnShards divides the rows of a pool, got "
                f"{shortened(arms)}; a box has no rows, leave "
                "`policy` out"
            )
        if self._table is None or self._rows is not arms:
            self.close()
            self._table = Sharded(arms, min(self._shards, len(arms)), **self._options)
            self._rows = arms
        return BKB(self._table, kernel, **settings)

    def close(self) -> None:
        """End the shards."""
        if self._table is not None:
            self._table.close()
        self._table = None
        self._rows = None
