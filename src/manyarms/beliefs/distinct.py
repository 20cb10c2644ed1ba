"""The different rows that were observed, with the weight and the weighted reward sum of each."""

from dataclasses import dataclass

import numpy as np

from manyarms.beliefs.base import Batch
from manyarms.errors import ObservationError
from manyarms.sketch.observations import Observations
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class Distinct:
    """A value. Rows are in the order of their first observation, so that they keep their places."""

    observations: Observations
    keys: Indices  # (u,) numbers of arms, −1 for rows that were only given by value
    places: dict[bytes, int]  # of the rows, by content

    @classmethod
    def none(cls, n_features: int) -> "Distinct":
        """Nothing was observed."""
        empty = np.zeros(0)
        rows = np.zeros((0, n_features))
        return cls(Observations(rows, empty, empty, empty), np.zeros(0, dtype=np.intp), {})

    def with_batch(self, batch: Batch) -> tuple["Distinct", Indices]:
        """With a batch among them, and the places (n,) of its rows."""
        places = dict(self.places)
        at = np.array([places.setdefault(row.tobytes(), len(places)) for row in batch.rows])
        u = len(self.keys)
        first = np.flatnonzero(at >= u)
        first = first[np.unique(at[first], return_index=True)[1]]
        rows, diag, counts, sums = self.observations
        if len(first):
            rows = np.vstack([rows, batch.rows[first]])
            diag = np.concatenate([diag, batch.diag[first]])
        with np.errstate(over="ignore", invalid="ignore"):
            counts = _added(counts, at, batch.weights, len(diag))
            sums = _added(sums, at, batch.weights * batch.rewards, len(diag))
        if not (np.isfinite(counts).all() and np.isfinite(sums).all()):
            raise ObservationError(
                "the rewards of an arm, times their weights ξ²/noise², add up beyond float64; "
                "rescale the rewards"
            )
        keys = np.concatenate([self.keys, batch.keys[first]])
        keys[at] = np.maximum(keys[at], batch.keys)
        return Distinct(Observations(rows, diag, counts, sums), keys, places), at


def _added(before: Array, at: Indices, more: Array, n: int) -> Array:
    """(n,): what was there before, and more (k,) at these places."""
    total = np.bincount(at, more, minlength=n).astype(np.float64)
    total[: len(before)] += before
    return total
