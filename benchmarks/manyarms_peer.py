"""`ma.Optimizer` over a table, as it comes and with other settings."""

from typing import Any

from tables import Table

import manyarms as ma

VARIANTS: dict[str, dict[str, Any]] = {
    "manyarms": {},
    "manyarms-0.1": {},
    "manyarms-earn": {"goal": "earn"},
}
"""By name, what is given to `Optimizer` besides the table. Version 0.1 is run by its own code: `peers.py --old`."""


class ManyArms:
    """The recommended candidate is that of `best()`; nothing is said about noise."""

    def __init__(self, table: Table, seed: int, options: dict[str, Any]) -> None:
        pool = ma.Pool.from_frame(table.frame, columns=table.columns)
        self._optimizer = ma.Optimizer(pool, seed=seed, **options)

    def ask(self) -> int:
        (row,) = self._optimizer.ask()
        return int(row)

    def tell(self, row: int, value: float | None) -> None:
        self._optimizer.tell(row, ma.FAILED if value is None else value)

    def lose(self, row: int) -> None:
        self._optimizer.release(row)

    def recommend(self) -> int:
        best: Any = self._optimizer.best()
        # Version 0.1 answers with the candidate itself.
        return int(getattr(best, "recommended", best).id)
