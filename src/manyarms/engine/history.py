"""What was observed, as values, so that nothing is ever half done: sufficient statistics of rows,
and one entry an observation."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyarms.engine.growing import Stack
from manyarms.errors import ObservationError
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class History:
    """The different rows observed, each once, in the order of their first observation.

    An observation with noise ξ_i weighs ω = ξ²/ξ_i² (1 where no noise is given), so that by default
    n counts pulls and s adds rewards.
    """

    rows: Array  # (u, d)
    diag: Array  # (u,) k(x, x)
    keys: Indices  # (u,) numbers of arms, −1 for rows that were only given by value
    counts: Array  # (u,) n = Σ ω
    sums: Array  # (u,) s = Σ ω y
    n_observations: int
    places: dict[bytes, int]  # of the rows, by content

    @classmethod
    def none(cls, n_features: int) -> "History":
        """Nothing was observed."""
        empty = np.zeros(0)
        nowhere = np.zeros(0, dtype=np.intp)
        return cls(np.zeros((0, n_features)), empty, nowhere, empty, empty, 0, {})

    def added(
        self,
        rows: Array,
        diag: Array,
        rewards: Array,
        weights: Array,
        keys: Indices,
        n_observations: int,
    ) -> tuple["History", Indices]:
        """With more observations, (n, d) and (n,), for so many rewards, and the places (n,) of the
        rows."""
        places = dict(self.places)
        contents = [row.tobytes() for row in rows + 0.0]  # −0 is 0
        # A row that is new gets the next place, and a row that comes twice the place it has.
        at = np.array([places.setdefault(each, len(places)) for each in contents], dtype=np.intp)
        new = np.flatnonzero(at >= len(self.keys))
        new = new[np.unique(at[new], return_index=True)[1]]
        # A row first given by value (−1) may turn out to be an arm of the table.
        numbers = np.concatenate([self.keys, keys[new]])
        numbers[at] = np.maximum(numbers[at], keys)
        with np.errstate(over="ignore", invalid="ignore"):
            counts = _added(self.counts, at, weights, len(places))
            sums = _added(self.sums, at, weights * rewards, len(places))
        if not (np.isfinite(counts).all() and np.isfinite(sums).all()):
            raise ObservationError(
                "the rewards of an arm, times their weights ξ²/noise², add up beyond float64; "
                "rescale the rewards"
            )
        history = History(
            np.vstack([self.rows, rows[new]]),
            np.concatenate([self.diag, diag[new]]),
            numbers,
            counts,
            sums,
            self.n_observations + n_observations,
            places,
        )
        return history, at


def _added(before: Array, at: Indices, more: Array, n: int) -> Array:
    """(n,): what was there before, and more (k,) at these places."""
    total = np.bincount(at, more, minlength=n).astype(np.float64)
    total[: len(before)] += before
    return total


def by_arm(arms: Indices, rewards: Array, weights: Array) -> tuple[Indices, Array, Array]:
    """Each arm once, in index order: its number, weighted mean reward and total weight."""
    if len(arms) == 1:
        return arms, rewards, weights  # the usual call: what follows would take longer than a step
    distinct, at = np.unique(arms, return_inverse=True)
    if len(distinct) == len(arms):
        order = np.argsort(arms, kind="stable")
        return arms[order], rewards[order], weights[order]
    total = np.bincount(at, weights).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return distinct, np.bincount(at, weights * rewards) / total, total


NO_ENTRIES = Stack(np.zeros((0, 4)))
"""Of a log in which nothing is."""


@dataclass(eq=False)
class Log:
    """A value: arms by number with |W_s|, weight ω and mean reward. With the rows of W that is all
    that a belief of frozen features is."""

    # (n, 4), a row for each observation; numbers of arms are exact in float64.
    rows: Stack = NO_ENTRIES

    def added(self, arms: Indices, sizes: Indices, weights: Array, rewards: Array) -> "Log":
        """The log with more entries, (n,) each."""
        rows = self.rows.grown(len(arms))
        entries = rows.items[self.rows.n :]
        entries[:, 0] = arms
        entries[:, 1] = sizes
        entries[:, 2] = weights
        entries[:, 3] = rewards
        return Log(rows)

    def __len__(self) -> int:
        return self.rows.n

    @property
    def arms(self) -> Indices:
        """(n,), oldest first."""
        return self.rows.items[:, 0].astype(np.intp)

    @property
    def sizes(self) -> Indices:
        """(n,) how many inducing rows the feature of each has."""
        return self.rows.items[:, 1].astype(np.intp)

    @property
    def weights(self) -> Array:
        """(n,) ω."""
        return np.asarray(self.rows.items[:, 2])

    @property
    def rewards(self) -> Array:
        """(n,)."""
        return np.asarray(self.rows.items[:, 3])

    @cached_property
    def pulled(self) -> Indices:
        """The different arms, in index order, (u,)."""
        return np.unique(self.arms)
