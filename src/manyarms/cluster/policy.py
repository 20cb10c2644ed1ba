"""`BKB` for an `Optimizer`, with the search for the next candidate on shards."""

from typing import Any

import numpy as np

from manyarms.bandit.bkb import BKB
from manyarms.cluster.table import Sharded
from manyarms.errors import ParameterError
from manyarms.typing import Array


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
