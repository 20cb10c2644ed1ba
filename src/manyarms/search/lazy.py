"""The arg max without looking at every arm, of what rises with mean and deviation.

Let a table be of time τ. Ã only grows, so that at a later time t, appends included,

    μ̃_t(x) ≤ μ̃_τ(x) + Dσ̃_τ(x),  σ̃_t ≤ σ̃_τ,    D = ‖w̃_t − w̃_τ‖ in Ã_τ = √(‖Δw‖²_{V_τ} + λ‖w₊‖²),

w₊ the coordinates that are new. So the value a(μ̃_t, σ̃_t) of an acquisition that rises with both,
an upper bound or expected improvement, is at most a(μ̃_τ + Dσ̃_τ, σ̃_τ). A *list* of arms comes with
a promise (`skyline.py`): no arm of the table it was made from that is left out has a value above θ.
Lists are nested, each made from the one above; the last is short and is brought forward at every
step. While its best arm is above every θ, that arm is the best of all. Otherwise another list is
made from the table above the first broken promise, as long as one that is short enough leaves out
no arm that may be best; else that table is brought forward, and answers itself.

Bounds are enough for lists, so that where W is large a pass over all arms computes no more than
those (`rough.py`): the table of all arms is *rough* then, and a list from it has an exact table of
its own.

Where arms are few there are no lists: the table of all arms is brought forward at every step.

Pulls that are only supposed leave the means as they are and lower the variances: the same bounds
hold. So only the last list follows them, and what is made anew on the way serves the next real step
too.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.search.devices import ArmsOnDevice, device_of
from manyarms.search.incumbent import Leaders
from manyarms.search.rough import is_fine_enough
from manyarms.search.scores import Acquisition, Rising, best_of
from manyarms.search.skyline import Promise, Skyline
from manyarms.search.table import Store, Table
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats
from manyarms.typing import Array, Indices, Mask

PATIENCE = 0.25
"""D_max of the first list, in units of β̃. A list that is too short halves it, one that ends too
early doubles it."""
LEAST_PATIENCE = 2.0**-10
MOST_PATIENCE = 1.0
SOME = 8
"""Arms that are scored to see whether a list is short enough."""
LOOKED_AT = 1 << 15
"""Arms whose bounds tell about how many others have a larger one."""
FIRST_BLOCK = 64
"""Arms of largest bound that are scored first when a list is of no use."""
MANY = 64
"""Arms that may be best, above which variances are computed anew: rounding may be why."""
ROOMY = 3
"""Arms on the list that serves the rest of a batch, for each that may be best when it is made."""
BATCH = 0.25
"""Arms on that list at least, as a part of those on any other: it is followed by few of them."""
FOLLOWED = 3
"""Supposed pulls that the table of all arms follows where it is small. More of them pay for a
list."""
EMBEDDED = 16
"""Arms of a list from a rough table, as a share of the table times m: their embeddings take
n_list·m² products, about as long as a tenth of the rough pass."""
ROUGH_PASSES = 128
"""Embeddings of all arms take as long as 2 + m/ROUGH_PASSES of these (docs/scaling.md)."""
ASKED_ONCE = 256
"""Rows of W above which the first answer comes from a rough pass also where arms are few."""
STEPS = 4
"""Steps that are kept beyond those that a table follows, half as many as W has rows."""


@dataclass(frozen=True)
class Level:
    """The table of a list, and what it promises of the arms that are left out."""

    numbers: Indices | None  # (n,) its arms; None for all
    table: Table
    at: int  # the step that the table is of
    promise: Promise | None = None  # None for all arms: none is left out
    barred: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # and left out so

    def moved(self, belief: Frozen) -> float:
        """D from the table's time to the belief's."""
        old = self.table.belief
        inside = old.factor.norm(belief.w[: old.m] - old.w)
        outside = np.sqrt(belief.regularization) * float(np.linalg.norm(belief.w[old.m :]))
        return float(np.hypot(inside, outside))

    def shut(self, barred: Mask | None) -> Mask | None:
        """Which of its arms must not be chosen."""
        return barred if barred is None or self.numbers is None else barred[self.numbers]

    def arm(self, position: int) -> int:
        """The number of the arm at a position."""
        return position if self.numbers is None else int(self.numbers[position])


@dataclass(frozen=True)
class Left:
    """The arms of a table that a list leaves out."""

    table: Table
    listed: Indices  # positions of those that are on it, or were dropped by finer bounds
    shut: Mask | None  # those that must not be chosen do not count
    finer: tuple[Array, Array] | None = None  # of the ones dropped so: (k,) means, deviations

    def skyline(self) -> Skyline:
        """What bounds them."""
        mean, deviation = self.table.highest()
        left = np.ones(len(mean), dtype=bool)
        left[self.listed] = False
        if self.shut is not None:
            left &= ~self.shut
        mean = mean[left]
        deviation = deviation[left]
        if self.finer is not None:
            mean = np.concatenate([mean, self.finer[0]])
            deviation = np.concatenate([deviation, self.finer[1]])
        return Skyline(mean, deviation)


@dataclass(frozen=True)
class Front:
    """The best arms of a level with some pulls supposed: while more is supposed no arm that is left
    out scores above θ."""

    of: Table  # of the level, without what is supposed
    positions: Indices  # (n,) in it
    table: Table
    done: int  # supposed steps that the table is after
    theta: float
    acquisition: Rising  # the largest for which that holds
    barred: Indices  # positions in the level that are left out because they are barred


@dataclass
class Lazy:
    """Levels from all arms down to a short list."""

    belief: Frozen
    arms: Arms  # all of them
    room: float  # bytes that embeddings may take
    tuning: Tuning
    stats: Stats
    levels: list[Level] = field(default_factory=list)  # made when needed, by real steps only
    now: int = 0  # real steps so far
    trail: tuple[Step, ...] = ()  # the last of them
    supposed: tuple[Step, ...] = ()  # steps beyond them
    patience: dict[int, float] = field(default_factory=dict)  # of each depth; shared by all values
    _n_rough: int = 0  # rough passes since embeddings were computed
    _front: tuple[Table, int, Table] | None = None  # of a level, with some supposed steps
    _fronts: tuple[Front, ...] = ()  # of that, of the last two acquisitions: a batch may take turns
    _leaders: Leaders = field(default_factory=Leaders)
    _standing: Frozen | None = None  # the belief without what is supposed, where something is

    def after(self, step: Step) -> "Lazy":
        """At the belief after one more step."""
        made = copy(self)
        made.belief = step.after  # type: ignore[assignment]
        made.levels = self.levels.copy()
        made.now = self.now + 1
        made.trail = (*self.trail, step)[-(len(made.belief.w) // 2 + STEPS) :]
        made.supposed = ()
        made._standing = None
        made._front = None
        made._fronts = ()
        made._leaders = self._leaders.after(step)
        return made

    def over(self, arms: Arms) -> "Lazy":
        """The same belief over other arms. Where they begin with those of now, and all of these
        were bounded, only the others are."""
        made = Lazy(self.belief, arms, self.room, self.tuning, self.stats)
        n = len(self.arms.rows)
        if not (self.levels and self.levels[0].table.is_rough and n < len(arms.rows)):
            return made
        if self.tuning.device is not None:  # where all may belong now
            return made
        if not np.array_equal(arms.rows[:n], self.arms.rows):
            return made
        level = self.levels[0]
        more = Store(Arms(arms.rows[n:], arms.diag[n:]), self.room)
        joined = level.table.joined(Table.roughly(more, level.table.belief), arms)
        made.levels = [replace(level, table=joined)]
        made.now = self.now
        made.trail = self.trail
        return made

    def supposing(self, positions: Indices) -> "Lazy":
        """If these arms were pulled once more each. What is real is shared with this value."""
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        return self.after_supposed(self.belief.supposing(rows, self.arms.diag[positions]))

    def after_supposed(self, step: Step) -> "Lazy":
        """At the belief after a step of pulls that are only supposed, of any rows."""
        if self._dense or not self.levels:
            self._brought(0)
        made = copy(self)
        made._standing = self._real
        made.belief = step.after  # type: ignore[assignment]
        made.supposed = (*self.supposed, step)
        return made

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms, as they are kept."""
        table = self._exact_table()
        return table.mean, table.variance

    def means(self) -> tuple[Array, float]:
        """μ̃ of all arms, as they are kept, and what they may be wrong by beyond rounding."""
        table = self._brought(0).table  # what is only supposed leaves the means where they are
        return table.mean, table.mean_error

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all."""
        some: Indices | slice = slice(None) if positions is None else positions
        return self.belief.moments(self.arms.rows[some], self.arms.diag[some])

    def largest_mean(self, positions: Indices) -> float:
        """The largest μ̃ of some arms. What is only supposed leaves it where it is."""
        if not self.levels:
            self._brought(0)
        self._leaders.add(positions, self._highest)
        last = len(self.levels) - 1
        level = self.levels[last]
        # A list is brought forward for the choice that follows, a table of very many arms is not.
        if self._dense or (last and len(level.table.mean) <= 2 * self.tuning.shortlist):
            level = self._brought(last)
        listed = level.numbers
        if level.at < self.now or level.table.is_rough:
            listed = np.zeros(0, dtype=np.intp)  # its means are not those of now
        return self._leaders.largest(self._real, self.arms, listed, level.table.mean)

    def _highest(self, positions: Indices) -> tuple[Array, Array]:
        """What the means and deviations of some arms cannot exceed now."""
        level = self.levels[0]
        mean, deviation = level.table.highest(positions)
        return mean + level.moved(self._real) * deviation, deviation

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        return self._brought(0).table.embedded()

    @property
    def _dense(self) -> bool:
        """All arms are brought forward at every step, once there is one: who only asks after many
        results were read needs no embeddings."""
        few = len(self.arms.rows) <= self.tuning.dense
        return few and (self.now > 0 or self.belief.m <= ASKED_ONCE)

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value."""
        level, some = self._contenders(acquisition, barred)
        best = 0
        if len(some) > 1:
            best = best_of(*self._scored(level.table, some, acquisition))
        return level.arm(int(some[best]))

    def nearly_best(
        self, acquisition: Acquisition, barred: Mask | None
    ) -> tuple[Indices, Array, Array]:
        """Every arm that may be the best, or tie with it: numbers that ascend, values, and by how
        much each value may tie. At least one arm must not be barred."""
        level, some = self._contenders(acquisition, barred)
        numbers = some if level.numbers is None else level.numbers[some]
        return numbers, *self._scored(level.table, some, acquisition)

    def _contenders(self, acquisition: Acquisition, barred: Mask | None) -> tuple[Level, Indices]:
        """A level, and the positions in it of the arms that may be best, in ascending order."""
        # A long batch has lists even where arms are few: they hold as long as it lasts.
        many = len(self.arms.rows) > 2 * self.tuning.shortlist and len(self.supposed) > FOLLOWED
        if not isinstance(acquisition, Rising) or (self._dense and not many):
            table = self._exact_table()
            some = table.may_be_best(acquisition, barred)
            if len(some) > MANY and table.n_steps and not self.supposed:
                table = Table.at(table.store, table.belief, table.belief.m)
                self.levels[:] = [Level(None, table, self.now)]
                some = table.may_be_best(acquisition, barred)
            return self.levels[0], some
        return self._by_lists(acquisition, barred)

    # Tables

    def _brought(self, depth: int) -> Level:
        """A level brought to the last real belief."""
        if not self.levels:
            self.stats.count("passes")
            table = self._of_all(self._store_of_all(), self._real, 0)
            self.levels.append(Level(None, table, self.now))
        level = self.levels[depth]
        behind = self.now - level.at
        if behind:
            if not self._dense:
                self.stats.count(f"passes over list {depth}" if depth else "passes")
            table = level.table
            steps = self.trail[-behind:] if behind <= len(self.trail) else ()
            if not depth and (table.is_rough or not table.can_follow(steps)):
                table = self._of_all(table.store, self._real, table.belief.m)
            elif steps:
                table = table.brought(steps)
            else:
                table = Table.at(table.store, self._real, table.belief.m)
            level = replace(level, table=table, at=self.now)
            # What lists below it promise was measured from the table of before.
            self.levels[depth:] = [level]
        return level

    def _store_of_all(self) -> Store:
        """All arms, moved to the device where there is one and they are many."""
        device = self.tuning.device
        if device is None or len(self.arms.rows) <= self.tuning.dense:
            return Store(self.arms, self.room)
        moved = ArmsOnDevice.moved(device_of(device), self.arms)
        self.stats.count(f"arms on {moved.device.name}", len(self.arms.rows))
        return Store(self.arms, self.room, moved)

    def _of_all(self, store: Store, belief: Frozen, p: int) -> Table:
        """The table of all arms, everything computed but the first p coordinates."""
        if store.device is not None:
            return Table.at(store, belief, p)
        if self._dense or belief.m <= self.tuning.rough or not is_fine_enough(belief):
            if store.Z:
                return Table.at(store, belief, p)
            # A rough table has let go of embeddings, which later steps go on from.
            return Table.at(Store(self.arms, self.room), belief)
        # Each rough pass is paid again at the next, embeddings only once: when rough passes have
        # cost as much as these, no order of steps makes both cost more than twice the better one.
        if self._n_rough > 2 + belief.m // ROUGH_PASSES:
            fresh = Store(self.arms, self.room)
            if fresh.keeps(belief.m):
                self._n_rough = 0
                return Table.at(fresh, belief)
        self._n_rough += 1
        self.stats.count("rough passes")
        return Table.roughly(store, belief)

    def _exact_table(self) -> Table:
        """The table of all arms at the belief of now, not a rough one."""
        rough = self._brought(0).table
        if rough.is_rough:
            self.stats.count("passes")
            table = Table.at(Store(self.arms, self.room), rough.belief)
            self.levels[:] = [Level(None, table, self.now)]
        return self._front_table(0)

    @property
    def _real(self) -> Frozen:
        """The belief without what is only supposed."""
        return self.belief if self._standing is None else self._standing

    def _front_table(self, depth: int) -> Table:
        """The table of a level, at the belief of now."""
        table = self._brought(depth).table
        if not self.supposed:
            return table
        done = 0
        front = table
        if self._front is not None and self._front[0] is table:
            _, done, front = self._front
        if done < len(self.supposed):
            front = front.brought(self.supposed[done:])
        self._front = (table, len(self.supposed), front)
        return front

    # Lists

    def _by_lists(self, acquisition: Rising, barred: Mask | None) -> tuple[Level, Indices]:
        """The arms whose upper bound may be the largest."""
        if not self.levels:
            self._brought(0)
        depth = self._first_broken(barred)
        if depth is not None:
            del self.levels[depth:]
            self._extend(acquisition, barred)
        if self.levels[-1].table.is_rough and not self.supposed:
            return self._by_bounds(0, acquisition, barred)
        listed = self.supposed and len(self.levels) == 1
        # The table of all arms follows no step that is only supposed: it would have to be copied.
        if listed and not self._list_for_batch(0, acquisition, barred):
            return self._by_bounds(0, acquisition, barred)
        while True:
            some, least = self._best_of_last(acquisition, barred)
            depth = self._first_above(least, acquisition)
            if depth is None:
                return self.levels[-1], some
            above = self.levels[depth - 1]
            if above.at == self.now:
                # It is of now, and still leaves out too much: because of what is supposed, or of
                # ties.
                if self.supposed and not listed:
                    # Below the first level from which enough arms can be left out.
                    listed = any(
                        self._list_for_batch(i, acquisition, barred) for i in reversed(range(depth))
                    )
                    if listed:
                        continue
                return self._by_bounds(depth - 1, acquisition, barred)
            if above.moved(self.belief) > self._planned(depth):
                # It lasted as long as it was made for: another one from the same table.
                self._learn(depth, 2.0, acquisition.beta)
                del self.levels[depth:]
                self._extend(acquisition, barred)
                return self._by_lists(acquisition, barred)
            self._learn(depth, 0.5, acquisition.beta)
            del self.levels[depth:]
            brought = self._brought(depth - 1)
            if self.supposed or brought.table.is_rough:
                return self._by_bounds(depth - 1, acquisition, barred)

    def _best_of_last(self, acquisition: Rising, barred: Mask | None) -> tuple[Indices, float]:
        """Positions in the last level of its arms that may be best, and a score that the best of
        them reaches."""
        level = self.levels[-1]
        shut = level.shut(barred)
        if self.supposed:
            found = self._best_in_front(level, acquisition, shut)
            if found is not None:
                return found
        table = self._front_table(len(self.levels) - 1)
        if self.supposed and len(table.mean) > 2 * self.tuning.shortlist:
            bound = _bounds(table, acquisition, 0.0, shut)
            theta = _threshold(bound, self.tuning.shortlist)
            positions = np.flatnonzero(bound > theta)
            if len(positions):  # they may all tie
                part = table.part(positions)
                done = len(self.supposed)
                gone = _indices(shut)
                front = Front(level.table, positions, part, done, theta, acquisition, gone)
                self._fronts = (front, *self._fronts)[:2]
        some = table.may_be_best(acquisition, shut)
        return some, _least(table, some, acquisition)

    def _best_in_front(
        self, level: Level, acquisition: Rising, shut: Mask | None
    ) -> tuple[Indices, float] | None:
        """The same where it is among the arms that were best some supposed pulls ago; else
        None."""
        for front in self._fronts:
            if front.of is not level.table or not acquisition.is_below(front.acquisition):
                continue
            if len(front.barred) and (shut is None or not shut[front.barred].all()):
                continue
            table = front.table.brought(self.supposed[front.done :])
            now = replace(front, table=table, done=len(self.supposed))
            self._fronts = tuple(now if each is front else each for each in self._fronts)
            some = table.may_be_best(acquisition, None if shut is None else shut[front.positions])
            least = _least(table, some, acquisition)
            if least > front.theta:
                return front.positions[some], least
        return None

    def _first_broken(self, barred: Mask | None) -> int | None:
        """The first list that leaves out an arm which may be chosen again; None where none does,
        and the last one is short."""
        for depth, level in enumerate(self.levels[1:], start=1):
            if len(level.barred) and (barred is None or not barred[level.barred].all()):
                return depth
            if not self._planned(depth) and self.levels[depth - 1].at < self.now:
                return depth  # it was made for a batch, which is over
        # A last list that is long wants another one below it, but for one that is as long as its
        # batch needs it.
        last = len(self.levels) - 1
        for_a_batch = last and not self._planned(last)
        long = len(self.levels[last].table.mean) > 2 * self.tuning.shortlist
        return last + 1 if long and not for_a_batch else None

    def _first_above(self, least: float, acquisition: Rising) -> int | None:
        """The first list that leaves out arms whose value may be larger than so much."""
        for depth, level in enumerate(self.levels[1:], start=1):
            above = self.levels[depth - 1]
            # What is only supposed leaves the means where they are.
            moved = above.moved(self.belief) if above.at < self.now else 0.0
            promise = level.promise
            if promise is not None and not promise.keeps_below(least, acquisition, moved):
                return depth
        return None

    def _planned(self, depth: int) -> float:
        """How far the posterior may move, as planned when a list was made."""
        promise = self.levels[depth].promise
        return promise.planned if promise is not None else np.inf

    def _learn(self, depth: int, factor: float, beta: float) -> None:
        """Lists of this depth ended too early, or were too short: the next one allows for more
        movement, or less."""
        usual = self._planned(depth)
        if beta > 0 and usual:  # none is usual for a list that was made for a batch
            patience = factor * usual / beta
            self.patience[depth] = min(MOST_PATIENCE, max(LEAST_PATIENCE, patience))

    def _extend(self, acquisition: Rising, barred: Mask | None) -> None:
        """Make lists below the last level while that pays; else bring that level forward."""
        while True:
            level = self.levels[-1]
            if len(level.table.mean) <= 2 * self.tuning.shortlist:
                return
            made = None
            if level.at < self.now or level.table.is_rough:
                made = self._list(level, acquisition, barred)
            if made is not None:
                self.levels.append(made)
                continue
            brought = self._brought(len(self.levels) - 1)
            # A rough table does not answer itself: a list from the one of now may.
            if brought is level or not brought.table.is_rough:
                return

    def _list(self, level: Level, acquisition: Rising, barred: Mask | None) -> Level | None:
        """A list of the arms of largest bound; None where it would leave out arms which may be
        best."""
        table = level.table
        share = self.tuning.share
        n_scored = SOME
        if table.is_rough or table.is_bare:
            share = min(share, EMBEDDED / max(1, self.belief.m))
            n_scored = FIRST_BLOCK
        length = max(self.tuning.shortlist, int(share * len(table.mean)))
        moved = level.moved(self.belief) if level.at < self.now else 0.0
        shut = level.shut(barred)
        bound = _bounds(table, acquisition, moved, shut)
        best = self._score_of_some(table, bound, acquisition, n_scored)
        # As much movement as is usual, or a little more than there was: what leaves out no arm
        # above the best one.
        usual = self.patience.get(len(self.levels), PATIENCE) * acquisition.beta
        for most_moved in (max(usual, 2 * moved), 1.25 * moved):
            ahead = acquisition.ahead(most_moved)
            bound = _bounds(table, ahead, most_moved, shut)
            theta = _threshold(bound, length)
            if theta < best:
                break
        else:
            return None
        return self._of(level, bound, theta, most_moved, ahead, shut, best)

    def _of(
        self,
        level: Level,
        bound: Array,
        theta: float,
        most_moved: float,
        acquisition: Rising,
        shut: Mask | None,
        best: float,
    ) -> Level:
        """The list of the arms of a level whose bound is above θ, or of fewer where the level is
        rough: all whose value may be above `best` are on it."""
        table = level.table
        positions = np.flatnonzero(bound > theta)
        left = Left(table, positions, shut)
        if table.is_rough and len(positions) > 2 * self.tuning.shortlist:
            mean, deviation = table.finer(positions)
            finer = acquisition.upper(mean, deviation, most_moved)
            np.minimum(finer, bound[positions], out=finer)
            length = max(self.tuning.shortlist, ROOMY * int((finer >= best).sum()))
            if 2 * length <= len(positions):
                within = _threshold(finer, length)
                out = finer <= within
                left = replace(left, finer=(mean[out], deviation[out]))
                positions = positions[~out]
                theta = max(theta, within)
        promise = Promise(theta, acquisition, most_moved, left.skyline)
        gone = _indices(shut)
        numbers = positions
        if level.numbers is not None:
            numbers = level.numbers[positions]
            gone = level.numbers[gone]
        if not table.is_rough:
            return Level(numbers, table.part(positions), level.at, promise, gone)
        arms = table.store.arms
        store = Store(Arms(arms.rows[positions], arms.diag[positions]), self.room)
        belief = table.belief if level.at == self.now else self._real
        self.stats.count("arms embedded for a list", len(positions))
        return Level(numbers, Table.at(store, belief), self.now, promise, gone)

    def _score_of_some(
        self, table: Table, bound: Array, acquisition: Rising, n: int = SOME
    ) -> float:
        """The largest score of now among some arms of large bound: that of the best arm is not
        less."""
        some = np.flatnonzero(bound >= _threshold(bound, 8 * n))
        n = min(n, len(some))
        some = some[np.argpartition(bound[some], -n)[-n:]]
        some = some[np.isfinite(bound[some])]
        values, tolerance = self._scored(table, some, acquisition)
        best = int(np.argmax(values))
        return float(values[best] - 8 * tolerance[best])

    def _scored(self, table: Table, some: Indices, acquisition: Acquisition) -> tuple[Array, Array]:
        """Values of now of arms at some positions of a table of then, and by how much they may
        tie."""
        arms = table.store.arms
        mean, variance = self.belief.moments(arms.rows[some], arms.diag[some])
        return acquisition(mean, np.sqrt(variance))

    def _by_bounds(
        self, depth: int, acquisition: Rising, barred: Mask | None
    ) -> tuple[Level, Indices]:
        """The arms of a level that may be best: those of largest bound are scored, more and more
        of them, until one scores above the bounds of all others."""
        level, bound, least = self._bounded(depth, acquisition, barred)
        some = np.flatnonzero(bound >= least)
        some = some[np.argsort(-bound[some])]
        values = np.zeros(0)
        size = FIRST_BLOCK
        while len(values) < len(some) and bound[some[len(values)]] >= least:
            block = some[len(values) : len(values) + size]
            found, tolerance = self._scored(level.table, block, acquisition)
            best = int(np.argmax(found))
            least = max(least, float(found[best] - 8 * tolerance[best]))
            values = np.append(values, found)
            size *= 2
        self.stats.count("arms scored by bounds", len(values))
        return level, np.sort(some[: len(values)][values >= least])

    def _list_for_batch(self, depth: int, acquisition: Rising, barred: Mask | None) -> bool:
        """Make a list that serves the rest of a batch, below a level: while pulls are only
        supposed, D = 0. False where it would be no shorter than the level."""
        level, bound, least = self._bounded(depth, acquisition, barred)
        usual = max(self.tuning.shortlist, int(BATCH * self.tuning.share * len(bound)))
        length = max(ROOMY * int((bound >= least).sum()), usual)
        if 2 * length > len(bound):
            return False
        theta = _threshold(bound, length)
        shut = level.shut(barred)
        made = self._of(level, bound, theta, 0.0, acquisition, shut, least)
        self.levels[depth + 1 :] = [made]
        return True

    def _bounded(
        self, depth: int, acquisition: Rising, barred: Mask | None
    ) -> tuple[Level, Array, float]:
        """A level at the last real belief, bounds on the scores of its arms, and a score that the
        best of them reaches."""
        level = self._brought(depth)
        table = level.table
        bound = _bounds(table, acquisition, 0.0, level.shut(barred))
        return level, bound, self._score_of_some(table, bound, acquisition, FIRST_BLOCK)


def _threshold(values: Array, n: int) -> float:
    """What about n of the values are above; of very many, by every so many of them."""
    step = max(1, min(len(values) // LOOKED_AT, n // FIRST_BLOCK))
    some = values[::step]
    n = min(len(some), n // step + 1)
    return float(np.partition(some, -n)[-n])


def _indices(mask: Mask | None) -> Indices:
    return np.zeros(0, dtype=np.intp) if mask is None else np.flatnonzero(mask)


def _bounds(table: Table, acquisition: Rising, moved: float, shut: Mask | None) -> Array:
    """Bounds on the values of the arms of a table, −∞ of those that are shut."""
    bound = table.upper(acquisition, moved)
    if shut is not None:
        bound[shut] = -np.inf
    return bound


def _least(table: Table, some: Indices, acquisition: Rising) -> float:
    """A lower bound on the largest value of these arms, which nearly tie, less what is a tie."""
    return table.least(int(some[0]), acquisition) if len(some) else -np.inf
