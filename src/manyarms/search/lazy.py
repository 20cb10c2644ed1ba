"""The arg max of upper bounds without looking at every arm.

Let a table be of time τ. Ã only grows, so that at a later time t, appends included,

    u_t(x) ≤ μ̃_τ(x) + (D + β̃_t) σ̃_τ(x),    D = ‖w̃_t − w̃_τ‖ in Ã_τ = √(‖Δw‖²_{V_τ} + λ‖w₊‖²),

w₊ the coordinates that are new. A *list* of arms comes with a promise: no arm of the table it was made from that is left out
scores above θ while D ≤ D_max and β̃ ≤ β_max. Lists are nested, each made from the one above; the last is short and is brought
forward at every step. While its best arm is above every θ, and every promise holds, that arm is the best of all. Otherwise
another list is made from the table above the first broken promise, as long as one that is short enough leaves out no arm that
may be best; else that table is brought forward, and answers itself.

Pulls that are only supposed leave the means as they are and lower the variances: the same bounds hold. So only the last list
follows them, and what is made anew on the way serves the next real step too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.search.dense import may_be_best, moments_of, scored_best
from manyarms.search.scores import Acquisition, Upper, best_of
from manyarms.search.table import Followed, Table, following, supposed_step
from manyarms.search.tuning import Tuning
from manyarms.stats import Stats
from manyarms.typing import Array, Indices, Mask

AHEAD = 0.1
"""How much a radius may grow while a list lasts, in units of D_max."""
PATIENCE = 0.25
"""D_max of the first list, in units of β̃. It is halved when a list turns out too short, doubled when one ends too early."""
LEAST_PATIENCE = 2.0**-10
MOST_PATIENCE = 1.0
SOME = 16
"""Arms that are scored to see whether a list is short enough."""
FIRST_BLOCK = 64
"""Arms scored at a time when a list is of no use, best bound first; each time four times as many."""


@dataclass(frozen=True)
class Pledge:
    """No arm outside the list scores above θ while D ≤ `most_moved` and β̃ ≤ `most_beta`."""

    theta: float
    most_moved: float
    most_beta: float
    barred: Indices  # arms that were barred, and are not on the list for that


@dataclass(frozen=True)
class Level:
    """The table of a list, and the steps it has still to follow."""

    numbers: Indices | None  # (n,) its arms; None for all
    table: Table
    promise: Pledge | None  # None for all arms
    waiting: tuple[Followed, ...] = ()

    def moved(self, belief: Frozen) -> float:
        """D from the table's time to the belief's."""
        old = self.table.belief
        inside = old.factor.norm(belief.w[: old.m] - old.w)
        outside = np.sqrt(belief.regularization) * float(np.linalg.norm(belief.w[old.m :]))
        return float(np.hypot(inside, outside))

    def shut(self, barred: Mask | None) -> Mask | None:
        """Which of its arms must not be chosen."""
        return barred if barred is None or self.numbers is None else barred[self.numbers]


@dataclass
class Lazy:
    """Levels from all arms down to a short list."""

    belief: Frozen
    arms: Arms  # all of them
    room: float  # bytes that embeddings may take
    tuning: Tuning
    stats: Stats
    levels: list[Level] = field(default_factory=list)  # at the last real belief; made when needed
    supposed: tuple[Followed, ...] = ()  # steps beyond it
    patience: dict[int, float] = field(default_factory=dict)  # of each depth; shared by all values
    _front: tuple[Table, int, Table] | None = None  # the last list's, with some supposed steps

    def after(self, step: Step) -> "Lazy":
        """At the belief after one more step."""
        belief = following((), step)[-1].belief
        levels = [replace(level, waiting=following(level.waiting, step)) for level in self.levels]
        return replace(self, belief=belief, levels=levels, supposed=(), _front=None)

    def supposing(self, positions: Indices) -> "Lazy":
        """If these arms were pulled once more each. What is real is shared with this value."""
        self._start()
        supposed = following(self.supposed, supposed_step(self.belief, self.arms, positions))
        return replace(self, belief=supposed[-1].belief, supposed=supposed)

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms, as they are kept."""
        table = self._brought(0).table.brought(self.supposed)
        return table.mean, table.variance

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all."""
        return moments_of(self.belief, self.arms, positions)

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        return self._brought(0).table.embedded()

    def _start(self) -> None:
        """The level of all arms, if there is none yet."""
        if not self.levels:
            with self.stats.timed("passes"):
                table = Table.at(self.arms, self.belief, room=self.room, threaded=True)
            self.levels.append(Level(None, table, None))

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value."""
        if not isinstance(acquisition, Upper):
            table = self._brought(0).table.brought(self.supposed)
            return scored_best(table, may_be_best(table, acquisition, barred), acquisition)
        self._start()
        depth = self._first_broken(acquisition.beta, barred)
        if depth is not None:
            del self.levels[depth:]
            self._extend(acquisition, barred)
        if self.supposed and len(self.levels) == 1:
            # The table of all arms follows no step that is only supposed: others would have to copy it.
            return self._by_bounds(0, acquisition, barred)
        while True:
            last = self.levels[-1]
            table = self._front_table()
            some = may_be_best(table, acquisition, last.shut(barred))
            depth = self._first_above(self._least(table, some, acquisition))
            if depth is None:
                best = scored_best(table, some, acquisition)
                return best if last.numbers is None else int(last.numbers[best])
            if not self.levels[depth - 1].waiting:
                # The table above is of now, and still leaves out too much: because of what is supposed, or of ties.
                return self._by_bounds(depth - 1, acquisition, barred)
            self._learn(depth, 0.5, acquisition.beta)
            del self.levels[depth:]
            self._brought(depth - 1)
            if self.supposed:
                return self._by_bounds(depth - 1, acquisition, barred)

    def _first_broken(self, beta: float, barred: Mask | None) -> int | None:
        """The first list whose promise no longer holds; None where all do."""
        for depth, (above, level) in enumerate(
            zip(self.levels, self.levels[1:], strict=False), start=1
        ):
            promise = level.promise
            if promise is None or beta > promise.most_beta:
                return depth
            if len(promise.barred) and (barred is None or not barred[promise.barred].all()):
                return depth
            if above.moved(self.belief) > promise.most_moved:
                self._learn(depth, 2.0, beta)
                return depth
        # A last list that is long wants another one below it.
        long = len(self.levels[-1].table.mean) > 2 * self.tuning.shortlist
        return len(self.levels) if long else None

    def _first_above(self, least: float) -> int | None:
        """The first list that leaves out arms which may score more than so much."""
        for depth, level in enumerate(self.levels[1:], start=1):
            if level.promise is not None and level.promise.theta >= least:
                return depth
        return None

    def _least(self, table: Table, some: Indices, acquisition: Upper) -> float:
        """A lower bound on the largest score of these arms, less what counts as a tie."""
        if not len(some):
            return -np.inf
        low = np.maximum(table.variance[some] - table.slack(some), 0.0)
        values, tolerance = acquisition(table.mean[some], np.sqrt(low))
        best = int(np.argmax(values))
        return float(values[best] - 4 * tolerance[best])

    def _learn(self, depth: int, factor: float, beta: float) -> None:
        """Lists of this depth ended too early, or were too short: the next one allows for more movement, or for less."""
        promise = self.levels[depth].promise
        if promise is not None and beta > 0:
            patience = factor * promise.most_moved / beta
            self.patience[depth] = min(MOST_PATIENCE, max(LEAST_PATIENCE, patience))

    def _brought(self, depth: int) -> Level:
        """A level brought to the last real belief."""
        self._start()
        level = self.levels[depth]
        if level.waiting:
            with self.stats.timed("passes" if depth == 0 else f"passes over list {depth}"):
                level = replace(level, table=level.table.brought(level.waiting), waiting=())
            # What lists below it promise was measured from the table of before.
            self.levels[depth:] = [level]
        return level

    def _front_table(self) -> Table:
        """The table of the last list, at the belief of now."""
        table = self._brought(len(self.levels) - 1).table
        if not self.supposed:
            return table
        done = 0
        front = table
        if self._front is not None and self._front[0] is table:
            _, done, front = self._front
        front = front.brought(self.supposed[done:])
        self._front = (table, len(self.supposed), front)
        return front

    def _extend(self, acquisition: Upper, barred: Mask | None) -> None:
        """Make lists below the last level while that pays; where it does not, bring that level forward."""
        while True:
            level = self.levels[-1]
            if len(level.table.mean) <= 2 * self.tuning.shortlist:
                return
            made = None
            if level.waiting or self.supposed:
                made = self._list(level, acquisition, barred)
            if made is None:
                self._brought(len(self.levels) - 1)
                return
            self.levels.append(made)

    def _list(self, level: Level, acquisition: Upper, barred: Mask | None) -> Level | None:
        """A list of the arms of largest bound; None where that would leave out arms which may be best now."""
        table = level.table
        depth = len(self.levels)
        length = max(self.tuning.shortlist, int(self.tuning.share * len(table.mean)))
        moved = level.moved(self.belief)
        sd = np.sqrt(table.variance + table.largest_slack)
        shut = level.shut(barred)
        mean = table.mean if shut is None else np.where(shut, -np.inf, table.mean)
        best = self._score_of_some(level, mean + (moved + acquisition.beta) * sd, acquisition)
        # As much movement as is usual, or a little more than there was: what leaves out no arm above the best one.
        usual = self.patience.get(depth, PATIENCE) * acquisition.beta
        for most_moved in (max(usual, 2 * moved), 1.25 * moved):
            beta = acquisition.beta + AHEAD * most_moved
            bound = mean + (most_moved + beta) * sd
            theta = float(np.partition(bound, -length - 1)[-length - 1])
            if theta < best:
                break
        else:
            return None
        positions = np.flatnonzero(bound > theta)
        numbers = positions if level.numbers is None else level.numbers[positions]
        gone = np.zeros(0, dtype=np.intp)
        if shut is not None:
            gone = np.flatnonzero(shut)
            gone = gone if level.numbers is None else level.numbers[gone]
        promise = Pledge(theta, most_moved, beta, gone)
        return Level(numbers, table.part(positions), promise, level.waiting)

    def _score_of_some(self, level: Level, bound: Array, acquisition: Upper) -> float:
        """The largest score of now among some arms of large bound: that of the best arm is not less."""
        n = min(SOME, len(bound))
        some = np.argpartition(bound, -n)[-n:]
        some = some[np.isfinite(bound[some])]
        mean, variance = moments_of(self.belief, level.table.arms, some)
        values, tolerance = acquisition(mean, np.sqrt(variance))
        best = int(np.argmax(values))
        return float(values[best] - 8 * tolerance[best])

    def _by_bounds(self, depth: int, acquisition: Upper, barred: Mask | None) -> int:
        """The best arm of a level by scoring its arms, best bound first, until no bound is above the best score."""
        level = self._brought(depth)
        table = level.table
        bound = table.mean + acquisition.beta * np.sqrt(table.variance + table.largest_slack)
        shut = level.shut(barred)
        if shut is not None:
            bound[shut] = -np.inf
        order = np.argsort(-bound, kind="stable")
        scored = 0
        size = FIRST_BLOCK
        values = np.zeros(0)
        tolerance = np.zeros(0)
        while scored < len(order):
            if scored:
                best = int(np.argmax(values))
                if bound[order[scored]] < values[best] - 4 * tolerance[best]:
                    break
            some = order[scored : scored + size]
            mean, variance = moments_of(self.belief, table.arms, some)
            more, ties = acquisition(mean, np.sqrt(variance))
            values = np.concatenate([values, np.where(np.isinf(bound[some]), -np.inf, more)])
            tolerance = np.concatenate([tolerance, ties])
            scored += len(some)
            size *= 4
        self.stats.count("arms scored by bounds", scored)
        positions = order[:scored]
        in_order = np.argsort(positions)
        best = int(positions[in_order][best_of(values[in_order], tolerance[in_order])])
        return best if level.numbers is None else int(level.numbers[best])
