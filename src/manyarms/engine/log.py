"""What a policy has observed of the arms of its table, one entry an observation: an immutable value
that only grows."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from manyarms.engine.growing import Stack
from manyarms.typing import Array, Indices


def _no_entries() -> Stack:
    return Stack(np.zeros((0, 4)))


@dataclass(frozen=True)
class Log:
    """Arms by number with |W_s|, weight ω and mean reward: with the rows of W, all that a belief of
    frozen features is."""

    # (n, 4), a row for each observation; numbers of arms are exact in float64.
    rows: Stack = field(default_factory=_no_entries)

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
