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
from manyarms.search.embeddings import InMemory, capacity
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
AHEAD = 128
"""One in so many arms is looked at for the picks of a batch to come: a look at the bounds of all
takes about as long as their embeddings, m some hundred."""
NUMBERS = 8
"""Numbers kept of an arm on the list beside z and its row: scores, positions."""
SPARE = 512
"""Arms that join for the picks to come."""
BLOCK = 1 << 13
"""Arms that are scored at a time."""


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
        self.belief: Engine | None = None
        self.places = Places(arms.rows)
        self._shortlist = shortlist
        self._room = room  # bytes that embeddings may take
        self._stats = stats
        self._is_supposed = False  # pulls that come are only supposed
        self._error = 0.0  # of the means, at most; it is in them

    def __len__(self) -> int:
        return len(self.arms.diag)

    @property
    def bytes(self) -> float:
        """Bytes that the list takes: z, and rows of the table, of which a longer list is a copy."""
        m = 0 if self.belief is None else self.belief.m
        return len(self._numbers) * self._bytes_each(m)

    def _bytes_each(self, m: int) -> float:
        return 8.0 * (capacity(m) + 2 * int(self.arms.rows.shape[1]) + NUMBERS)

    @classmethod
    def beside(
        cls, core: "Dense | Listed", belief: Engine, shortlist: int, room: float, stats: Stats
    ) -> "Listed":
        """For pulls that are only supposed: the bounds are those of now."""
        made = cls(core.arms, shortlist, room, stats)
        made.places = copy(core.places)
        made._is_supposed = True
        made._start(belief, *core.bounds())
        return made

    def bounds(self) -> tuple[Array, Array, float]:
        """What μ̃ and σ̃² of the part of f that arms share do not exceed, the latter but for a slack:
        new arrays."""
        mean = self._mean + self._away * np.sqrt(self._variance)
        variance = self._variance.copy()
        mean[self._numbers], variance[self._numbers], slack = self._list.bounds()
        return mean, variance, max(slack, self._slack)

    def compute(self, belief: Engine) -> None:
        """Bounds of all arms, and an empty list."""
        self.belief = None
        self._stats.count("bounds")
        base = belief.base
        mean, variance, self._error = bounds(self.arms, base)
        mean += self._error
        self.places.find(belief, anew=True)
        self._start(belief, mean, variance, 32 * base.rounding_seen / base.regularization)

    def _start(self, belief: Engine, mean: Array, variance: Array, slack: float) -> None:
        """From bounds on the part of f that arms share: on variances but for a slack."""
        base = belief.base
        self._then = belief
        self._mean = mean
        self._variance = variance
        self._largest = float(variance.max(initial=0.0))
        self._slack = slack
        self._more = slack + belief.own_variance / belief.regularization  # of rows never tried
        self._is_listed = np.zeros(len(self), dtype=bool)
        self._numbers = NONE
        self._list = Dense(Arms(self.arms.rows[:0], self.arms.diag[:0]), base.kernel)
        self._list.belief = belief
        # By acquisition: what no arm off the list exceeds, while pulls are only supposed.
        self._others: dict[Rising, float] = {}
        self.belief = belief

    def bring(self, belief: Engine, changes: Changes) -> None:
        """To a belief, after these changes: the list only."""
        before = self.belief
        m = belief.m
        if changes is None or before is None or (m > before.m and self._outgrows(m)):
            self.compute(belief)
            return
        self.belief = None
        self._list.bring(belief, changes)
        self.places.find(belief)
        self.belief = belief

    def near(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> tuple[Indices, float]:
        """Positions, ascending, of the arms whose value may be the largest, and a value that the
        best of them reaches. None where all are shut."""
        if not isinstance(acquisition, Rising):
            return np.arange(len(self)) if shut is None else np.flatnonzero(~shut), -np.inf
        self._join(belief, self.places.positions)
        joined = self._join_supposed if self._is_supposed else self._join_more
        while True:
            closed = None if shut is None else shut[self._numbers]
            near, least = self._list.near(belief, acquisition, closed)
            if least >= self._others.get(acquisition, np.inf):
                return np.sort(self._numbers[near]), least
            beside = joined(belief, acquisition, shut, least)
            if beside is not None:
                return np.sort(np.concatenate([self._numbers[near], beside])), least

    def _join_more(
        self, belief: Engine, acquisition: Rising, shut: Mask | None, least: float
    ) -> Indices | None:
        """Put arms on the list that reach a value, or make the bounds anew. Where that is done, or
        cannot be, those that the list lacks."""
        closed = self._is_listed if shut is None else self._is_listed | shut
        if least > -np.inf:
            more, _ = self._reaching(acquisition, closed, least)
        else:
            foremost = self._foremost(acquisition, closed, self._shortlist)
            more, _ = self._reaching(acquisition, closed, foremost)
            more = more[: self._shortlist]
        if not len(more):
            return NONE
        n = len(self)
        room = min(JOINING * n // max(1, belief.base.m), n // (2 * LARGE_PART))
        room = max(self._shortlist, room)
        is_fresh = self._then is self.belief
        is_full = self._is_full(min(len(more), room)) and least > -np.inf
        if is_full and is_fresh:
            return more
        if is_full or (len(more) > room and not is_fresh):
            self.compute(belief)
            self._join(belief, self.places.positions)
        else:
            self._join(belief, more[:room])
        return None

    def _join_supposed(
        self, belief: Engine, acquisition: Rising, shut: Mask | None, least: float
    ) -> Indices | None:
        """The same where pulls are only supposed: arms are scored, and these scores are bounds.
        Only those that still reach the value join, and those that later picks may need."""
        # Few that are shut join as well, so that what is said of all others is close.
        is_open = shut is None or np.count_nonzero(shut & ~self._is_listed) <= self._shortlist
        closed = self._is_listed if is_open else self._is_listed | np.asarray(shut)
        ahead = max(self._shortlist, len(self) // AHEAD)
        # Where the list is poor nearly all arms reach its best: those of the largest bounds first.
        foremost = self._foremost(acquisition, closed, ahead)
        target = foremost if is_open or least < foremost else least
        some, _ = self._reaching(acquisition, closed, target)
        if not len(some):
            return NONE
        self._score(belief, some)
        values, ties = acquisition(self._mean[some], np.sqrt(self._variance[some] + self._more))
        order = np.argsort(-values, kind="stable")
        some = some[order]
        values = values[order]
        n_needed = 0
        if least > -np.inf:
            n_needed = int(np.count_nonzero(values + 8 * ties[order] >= least))
            if self._is_full(n_needed):
                more, _ = self._reaching(acquisition, closed, least)
                return more if shut is None else more[~shut[more]]
            if target == least and not (n_needed or is_open):
                return NONE
        n_more = max(n_needed, SPARE)
        self._join(belief, some[:n_more])
        if is_open:
            self._others[acquisition] = max([target, *values[n_more : n_more + 1]])
        return None

    def _score(self, belief: Engine, positions: Indices) -> None:
        """The scores of some arms become their bounds."""
        for start in range(0, len(positions), BLOCK):
            some = positions[start : start + BLOCK]
            rows = np.asarray(self.arms.rows[some], dtype=np.float64)
            mean = np.empty(len(some))
            variance = np.empty(len(some))
            z = InMemory(belief.base.kernel)
            z.extend(Arms(rows, self.arms.diag[some]))
            z.embed(belief.base, mean, variance)
            self._mean[some] = mean
            self._variance[some] = variance

    def _outgrows(self, m: int, more: int = 0, share: float = 1.0) -> bool:
        """Whether the list, with so many more arms, is too long for a share of the memory."""
        most = share * self._room / self._bytes_each(m)
        return len(self._numbers) + more > max(self._shortlist, len(self) // AHEAD, most)

    def _is_full(self, more: int) -> bool:
        """Whether so many more arms are too many for the list, which must have room to grow."""
        is_large = len(self._numbers) + more > max(self._shortlist, len(self) / LARGE_PART)
        m = 0 if self.belief is None else self.belief.m
        return is_large or self._outgrows(m, more, 0.5)

    @property
    def _away(self) -> float:
        """D since the bounds were made."""
        now = self.belief
        return 0.0 if now is None or now is self._then else moved(self._then.base, now.base)

    def _reaching(self, acquisition: Rising, closed: Mask, least: float) -> tuple[Indices, Array]:
        """Arms that are not closed and may reach a value, and bounds on theirs, largest first."""
        if least == np.inf:
            return NONE, np.zeros(0)
        some, values = reaching(
            self._mean,
            self._variance,
            closed,
            acquisition,
            least,
            self._more,
            self._largest,
            self._away,
        )
        order = np.argsort(-values, kind="stable")
        return some[order], values[order]

    def _foremost(self, acquisition: Rising, closed: Mask, size: int) -> float:
        """A value that an arm or more may reach of those that are not closed, and about so many;
        infinite where all are closed."""
        at, _, _ = peak(self._mean, self._variance, closed, acquisition.beta, self._more)
        if at < 0:
            return np.inf
        step = max(1, len(self) // SAMPLE)
        some = np.append(np.arange(0, len(self), step), at)
        some = some[~closed[some]]
        variance = self._variance[some]
        mean = self._mean[some] + self._away * np.sqrt(variance)
        values, _ = acquisition(mean, np.sqrt(variance + self._more))
        n = min(len(values), size // step + 1)
        return float(min(np.partition(values, -n)[-n], values[-1]))

    def _join(self, belief: Engine, positions: Indices) -> None:
        """Put arms on the list that are not on it."""
        new = np.unique(positions[~self._is_listed[positions]])
        if not len(new):
            return
        self.belief = None
        rows = np.asarray(self.arms.rows[new], dtype=np.float64)
        self._list.extend(belief, Arms(rows, self.arms.diag[new]))
        self._numbers = np.concatenate([self._numbers, new])
        self._is_listed[new] = True
        self.belief = belief

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
