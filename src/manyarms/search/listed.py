"""The arms that may be best by bounds of all, and a list that is followed exactly.

Let bounds be of time τ. Ã only grows, so that at a later time t, appends included,

    μ̃_t(x) ≤ μ̃_τ(x) + Dσ̃_τ(x),  σ̃_t ≤ σ̃_τ,    D = ‖w̃_t − w̃_τ‖ in Ã_τ = √(‖Δw‖²_{V_τ} + λ‖w₊‖²),

w₊ the coordinates that are new. A list of arms is followed exactly. At each step those of the
others whose bound reaches the best value on the list join it. When they are too many, the bounds
are made anew, by a pass over all arms. This serves where embeddings of all arms are too much.

Pulls that are only supposed leave the means as they are and lower variances: D stays, and the
bounds hold for all picks of a batch (lazy greedy: Minoux 1978). So what no arm off the list exceeds
is remembered, and most picks look at the list only.

Where the kernel has own parts, D is that of the part that arms share, and every tried arm is on the
list: of an arm that was never tried, no result of another moves the own part.
"""

from copy import copy

import numpy as np

from manyarms.engine.base import Arms
from manyarms.engine.frozen import Engine, Frozen
from manyarms.search.bounds import bounds
from manyarms.search.dense import NONE, Changes, Dense, reaching
from manyarms.search.places import Places
from manyarms.search.scores import Acquisition, Rising
from manyarms.search.sweep import peak
from manyarms.search.work import Stats
from manyarms.typing import Array, Indices, Mask

JOINING = 64
"""Arms that may join the list between two passes, in units of n/m: then their embeddings, m²
products each, take about as long as a pass."""
SAMPLE = 1 << 15
"""Arms that tell about how many others have a larger bound."""
LARGE_PART = 4
"""One in so many arms on the list is no list."""


def moved(before: Frozen, now: Frozen) -> float:
    """D from one belief to a later one."""
    m = before.m
    inside = before.factor.norm(now.w[:m] - before.w)
    outside = np.sqrt(now.regularization) * float(np.linalg.norm(now.w[m:]))
    return float(np.hypot(inside, outside))


class Listed:
    """Bounds of all arms at some belief, and scores of the arms on a list at that of now.

    `belief` is that of now; None where something was interrupted.
    """

    def __init__(self, arms: Arms, shortlist: int, room: float, stats: Stats) -> None:
        self.arms = arms  # diag is that of the kernel that arms share
        self.belief: Frozen | None = None
        self.places = Places(arms.rows)
        self._shortlist = shortlist
        self._room = room  # bytes that embeddings may take
        self._stats = stats
        self._is_supposed = False  # pulls that come are only supposed

    def __len__(self) -> int:
        return len(self.arms.diag)

    @classmethod
    def beside(
        cls, dense: Dense, belief: Engine, shortlist: int, room: float, stats: Stats
    ) -> "Listed":
        """For pulls that are only supposed: the bounds are the scores of now."""
        made = cls(dense.arms, shortlist, room - 8.0 * len(dense) * belief.base.m, stats)
        made.places = copy(dense.places)
        made._is_supposed = True
        made._start(belief, dense.mean.copy(), dense.variance.copy(), dense.slack, 0.0)
        return made

    def supposing(self) -> "Listed":
        """The same, which goes on by itself with pulls that are only supposed."""
        made = copy(self)
        made.places = copy(self.places)
        made._list = self._list.copy()
        made._is_listed = self._is_listed.copy()
        made._is_supposed = True
        made._others = {}
        return made

    def compute(self, belief: Engine) -> None:
        """Bounds of all arms, and an empty list."""
        self.belief = None
        self._stats.count("bounds")
        base = belief.base
        mean, variance, error = bounds(self.arms, base)
        mean += error
        self.places.find(belief, anew=True)
        self._start(belief, mean, variance, 32 * base.rounding_seen / base.regularization, error)

    def _start(
        self, belief: Engine, mean: Array, variance: Array, slack: float, error: float
    ) -> None:
        """From bounds on the part of f that arms share: on variances but for a slack."""
        base = belief.base
        self._then = base
        self._mean = mean
        self._error = error  # of the means, at most; it is in them
        self._variance = variance
        self._largest = float(variance.max(initial=0.0))
        self._more = slack + belief.own_variance / belief.regularization  # of rows never tried
        self._is_listed = np.zeros(len(self), dtype=bool)
        self._numbers = NONE
        self._list = Dense(Arms(self.arms.rows[:0], self.arms.diag[:0]), base.kernel)
        self._list.belief = base
        # By acquisition: what no arm off the list exceeds, while pulls are only supposed.
        self._others: dict[Rising, float] = {}
        self.belief = base

    def bring(self, belief: Engine, changes: Changes) -> None:
        """To a belief, after these changes: the list only."""
        if changes is None or self.belief is None:
            self.compute(belief)
            return
        self.belief = None
        self._list.bring(belief, changes)
        self.places.find(belief)
        self.belief = belief.base

    def near(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> tuple[Indices, float]:
        """Positions, ascending, of the arms whose value may be the largest, and a value that the
        best of them reaches. None where all are shut."""
        if not isinstance(acquisition, Rising):
            return np.arange(len(self)) if shut is None else np.flatnonzero(~shut), -np.inf
        self._join(belief, self.places.positions)
        n = len(self)
        room = min(JOINING * n // max(1, belief.base.m), n // (2 * LARGE_PART))
        room = max(self._shortlist, room)
        while True:
            near, least = self._list.near(
                belief, acquisition, None if shut is None else shut[self._numbers]
            )
            if least >= self._others.get(acquisition, np.inf):
                break
            # For the picks to come more arms join than this one needs, of those that are shut too.
            ahead = self._is_supposed and (
                shut is None or np.count_nonzero(shut & ~self._is_listed) <= self._shortlist
            )
            closed = self._is_listed if ahead or shut is None else self._is_listed | shut
            target = least
            if ahead or not len(near):
                foremost = self._foremost(acquisition, closed)
                if foremost is None:
                    break
                target = min(least, foremost) if len(near) else foremost
            some, values = self._reaching(acquisition, closed, target)
            if ahead and len(some) <= min(room, self._longest - len(self._numbers)):
                self._join(belief, some)
                self._others[acquisition] = target
                continue
            if shut is not None:
                open_ = ~shut[some]
                some, values = some[open_], values[open_]
            needed = some[values >= least] if len(near) else some[: self._shortlist]
            if not len(needed):
                break
            is_fresh = self._then is self.belief
            is_full = len(self._numbers) + min(len(needed), room) > self._longest and len(near)
            if is_full and is_fresh:
                return np.sort(np.concatenate([self._numbers[near], needed])), least
            if is_full or (len(needed) > room and not is_fresh):
                self.compute(belief)
                self._join(belief, self.places.positions)
            else:
                self._join(belief, needed[:room])
        return np.sort(self._numbers[near]), least

    @property
    def _longest(self) -> float:
        """Arms that a list may have."""
        m = 0 if self.belief is None else self.belief.m
        return max(self._shortlist, min(len(self) / LARGE_PART, self._room / (8 * max(1, m))))

    def _reaching(self, acquisition: Rising, closed: Mask, least: float) -> tuple[Indices, Array]:
        """Arms that are not closed and may reach a value, and bounds on theirs, largest first."""
        base = self.belief
        away = 0.0 if base is None or base is self._then else moved(self._then, base)
        some, values = reaching(
            self._mean, self._variance, closed, acquisition, least, self._more, self._largest, away
        )
        order = np.argsort(-values, kind="stable")
        return some[order], values[order]

    def _foremost(self, acquisition: Rising, closed: Mask) -> float | None:
        """A value that an arm or more may reach of those that are not closed, and about as many as
        join a list at a time; None where all are closed."""
        at, _, _ = peak(self._mean, self._variance, closed, acquisition.beta, self._more)
        if at < 0:
            return None
        step = max(1, len(self) // SAMPLE)
        some = np.append(np.arange(0, len(self), step), at)
        some = some[~closed[some]]
        values, _ = acquisition(self._mean[some], np.sqrt(self._variance[some] + self._more))
        n = min(len(values), self._shortlist // step + 1)
        return float(min(np.partition(values, -n)[-n], values[-1]))

    def _join(self, belief: Engine, positions: Indices) -> None:
        """Put arms on the list that are not on it."""
        new = np.unique(positions[~self._is_listed[positions]])
        if not len(new):
            return
        base = self.belief
        self.belief = None
        rows = np.asarray(self.arms.rows[new], dtype=np.float64)
        self._list.extend(belief, Arms(rows, self.arms.diag[new]))
        self._numbers = np.concatenate([self._numbers, new])
        self._is_listed[new] = True
        self.belief = base

    # Reading

    def refresh(self, belief: Engine) -> bool:
        """Compute the scores on the list anew, unless they are new."""
        return self._list.refresh(belief)

    def means(self, belief: Engine, positions: Indices | None = None) -> tuple[Array, float]:
        """μ̃ of some arms, which join the list, or of all, and what they may be wrong by beyond
        rounding."""
        if positions is not None:
            self._join(belief, positions)
            where = np.zeros(len(self), dtype=np.intp)
            where[self._numbers] = np.arange(len(self._numbers))
            return self._list.means(belief, where[positions])
        if self._then is not self.belief:
            self.compute(belief)
        self._join(belief, self.places.positions)
        mean = self._mean - self._error
        mean[self._numbers], _ = self._list.means(belief)
        return mean, self._error
