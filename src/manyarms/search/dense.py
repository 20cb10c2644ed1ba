"""The scores of all arms, brought forward at every observation: O(A m), and nothing to decide."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyarms.beliefs.base import Arms, Belief, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.search.scores import Acquisition, Upper, best_of
from manyarms.search.table import Followed, Table, following, supposed_step
from manyarms.stats import Stats
from manyarms.typing import Array, Indices, Mask

MANY = 64
"""Arms that may be best, above which variances are computed anew before they are scored: rounding may be why."""


@dataclass
class Dense:
    """A table, made when it is needed, and the steps it has still to follow."""

    belief: Frozen
    arms: Arms
    room: float  # bytes that embeddings may take
    threaded: bool
    stats: Stats
    table: Table | None = None
    _waiting: tuple[Followed, ...] = ()

    def after(self, step: Step) -> "Dense":
        """At the belief after one more step."""
        waiting = following(self._waiting, step)
        belief = waiting[-1].belief
        if self.table is None:
            waiting = ()
        return Dense(belief, self.arms, self.room, self.threaded, self.stats, self.table, waiting)

    def supposing(self, positions: Indices) -> "Dense":
        """If these arms were pulled once more each."""
        self.now()  # a table made by what is only supposed would be thrown away with it
        return self.after(supposed_step(self.belief, self.arms, positions))

    def now(self) -> Table:
        """The table, up to date."""
        if self.table is None:
            with self.stats.timed("passes"):
                self.table = Table.at(
                    self.arms, self.belief, room=self.room, threaded=self.threaded
                )
        elif self._waiting:
            self.table = self.table.brought(self._waiting)
        self._waiting = ()
        return self.table

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms, as they are kept."""
        table = self.now()
        return table.mean, table.variance

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all."""
        return moments_of(self.belief, self.arms, positions)

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        return self.now().embedded()

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value; those that may be are scored by `Belief.moments`."""
        table = self.now()
        some = may_be_best(table, acquisition, barred)
        if len(some) > MANY and table.n_steps:
            table = self.table = table.afresh()
            some = may_be_best(table, acquisition, barred)
        return scored_best(table, some, acquisition)


def moments_of(belief: Belief, arms: Arms, positions: Indices | None) -> tuple[Array, Array]:
    """μ̃ and σ̃² of some of the arms, or of all, by the one function that scores."""
    if positions is None:
        return belief.moments(arms.rows, arms.diag)
    return belief.moments(arms.rows[positions].astype(np.float64, copy=False), arms.diag[positions])


def may_be_best(table: Table, acquisition: Acquisition, barred: Mask | None) -> Indices:
    """Positions of the arms whose value may be the largest, or tie with it, given the rounding of what is kept."""
    some: Indices | slice = slice(None)
    if isinstance(acquisition, Upper):
        # No score is off by more than β̃√slack: most arms are far below the best.
        values, tolerance = acquisition(table.mean, np.sqrt(table.variance))
        if barred is not None:
            values[barred] = -np.inf
        best = int(np.argmax(values))
        if values[best] == -np.inf:  # all arms of a short list are barred
            return np.zeros(0, dtype=np.intp)
        margin = 2 * acquisition.beta * float(np.sqrt(table.largest_slack)) + 8 * float(
            tolerance[best]
        )
        some = np.flatnonzero(values >= values[best] - margin)
        if len(some) == 1:
            return some
    elif barred is not None:
        some = np.flatnonzero(~barred)
    positions = np.arange(len(table.mean))[some]
    slack = table.slack(positions)
    mean = table.mean[positions]
    variance = table.variance[positions]
    highest, tolerance = acquisition(mean, np.sqrt(variance + slack))
    lowest, _ = acquisition(mean, np.sqrt(np.maximum(variance - slack, 0.0)))
    # A value may fall with the deviation (probability of improvement): either end may be the larger.
    low = np.minimum(highest, lowest)
    best = int(np.argmax(low))
    return np.asarray(positions[np.maximum(highest, lowest) >= low[best] - 4 * tolerance[best]])


def scored_best(table: Table, some: Indices, acquisition: Acquisition) -> int:
    """The best of the arms at these positions, scored by the one function that scores."""
    if len(some) == 1:
        return int(some[0])
    mean, variance = moments_of(table.belief, table.arms, some)
    return int(some[best_of(*acquisition(mean, np.sqrt(variance)))])
