"""A table whose rows are divided among shards: the `arms` of a policy, or of an `Optimizer`'s."""

from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np

from manyarms.bandit.bkb import BKB
from manyarms.checks import as_bytes, real, whole
from manyarms.cluster.crews import HereCrew, Part, RayCrew
from manyarms.cluster.sources import source_of
from manyarms.engine.base import Belief
from manyarms.engine.frozen import Engine
from manyarms.errors import ParameterError, UnknownArmError
from manyarms.kernels import Kernel
from manyarms.search.scores import ArmScores
from manyarms.search.shards import Crew, ShardedScores
from manyarms.search.tuning import Tuning
from manyarms.typing import Array, Indices


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
                f"in_process=True has no cluster, got address={address!r} too; give one of them"
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
            raise UnknownArmError(f"rows are numbered 0 to {len(self) - 1}, got {numbers!r:.80}")
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
                f"shards follow a belief of frozen features, rule=Inserted(…), got {belief!r}"
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
        self._shards = shards
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
                f"OnShards divides the rows of a pool, got {arms!r:.200}; a box has no rows, leave "
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
