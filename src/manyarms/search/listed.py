"""The arms that may be best where embeddings of all arms are too much: bounds of all, and a list.

Let bounds be of time τ. Ã only grows, so that at a later time t, appends included,

    μ̃_t(x) ≤ μ̃_τ(x) + Dσ̃_τ(x),  σ̃_t ≤ σ̃_τ,    D = ‖w̃_t − w̃_τ‖ in Ã_τ = √(‖Δw‖²_{V_τ} + λ‖w₊‖²),

w₊ the coordinates that are new. A list of arms is followed exactly. At each step those of the
others whose bound reaches the best value on the list join it. When they are too many, the bounds
are made anew, by a pass over all arms.

Where the kernel has own parts, D is that of the part that arms share, and every tried arm is on the
list: of an arm that was never tried, no result of another moves the own part.
"""

import numpy as np

from manyarms.engine.base import Arms
from manyarms.engine.frozen import Engine, Frozen
from manyarms.search.bounds import bounds
from manyarms.search.dense import Dense, Path, reaching
from manyarms.search.greedy import Followed
from manyarms.search.places import Places
from manyarms.search.scores import Acquisition, Rising, Upper
from manyarms.search.sweep import peak
from manyarms.search.work import Stats
from manyarms.typing import Array, Indices, Mask

JOINING = 64
"""Arms that may join the list between two passes, in units of n/m: then their embeddings, m²
products each, take about as long as a pass."""
SAMPLE = 1 << 15
"""Arms that tell about how many others have a larger bound."""
USUAL = 3.0
"""A radius, in standard deviations of f, of those that batches are chosen by."""
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

    def __len__(self) -> int:
        return len(self.arms.diag)

    def compute(self, belief: Engine) -> None:
        """Bounds of all arms, and a list of those of largest bound."""
        self.belief = None
        self._stats.count("bounds")
        base = belief.base
        found = bounds(self.arms, base)
        self._then = base
        self._mean = found.mean + found.error
        self._error = found.error
        self._variance = found.variance
        self._largest = float(found.variance.max(initial=0.0))
        self._own = belief.own_variance / belief.regularization + (
            32 * base.rounding_seen / base.regularization
        )
        self.places.find(belief, anew=True)
        self._is_listed = np.zeros(len(self), dtype=bool)
        self._numbers = np.zeros(0, dtype=np.intp)
        self._list = Dense(Arms(self.arms.rows[:0], self.arms.diag[:0]), base.kernel)
        self._list.belief = base
        self.belief = base
        self._join(belief, self._foremost(Upper(USUAL * np.sqrt(base.regularization))))

    def bring(self, path: Path) -> None:
        """To the belief at the end of a path: the list only."""
        belief = path.belief
        if self.belief is belief.base:
            return
        changes = path.changes_since(self.belief)
        if changes is None:
            self.compute(belief)
            return
        self.belief = None
        self._list.follow(belief, changes)
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
        while True:
            closed = None if shut is None else shut[self._numbers]
            near, least = self._list.near(belief, acquisition, closed)
            if not len(near):
                more = self._foremost(acquisition, shut)
                if not len(more):
                    return more, -np.inf
            else:
                more = self._reaching(acquisition, shut, least)
                if not len(more):
                    return np.sort(self._numbers[near]), least
            is_fresh = self._then is self.belief
            n = len(self)
            room = min(JOINING * n // max(1, belief.base.m), n // (2 * LARGE_PART))
            room = max(self._shortlist, room)
            if len(more) > room and not is_fresh:
                self.compute(belief)
            elif len(self._numbers) + min(len(more), room) > self._longest:
                if is_fresh:
                    return np.sort(np.concatenate([self._numbers[near], more])), least
                self.compute(belief)
            else:
                self._join(belief, more[:room])

    @property
    def _longest(self) -> float:
        """Arms that a list may have."""
        m = 0 if self.belief is None else self.belief.m
        return max(self._shortlist, min(len(self) / LARGE_PART, self._room / (8 * max(1, m))))

    def _reaching(self, acquisition: Rising, shut: Mask | None, least: float) -> Indices:
        """Arms that are not on the list and may reach a value, those of largest bound first."""
        base = self.belief
        away = 0.0 if base is None or base is self._then else moved(self._then, base)
        closed = self._is_listed if shut is None else self._is_listed | shut
        some, values = reaching(
            self._mean, self._variance, closed, acquisition, least, self._own, self._largest, away
        )
        return some[np.argsort(-values, kind="stable")]

    def _foremost(self, acquisition: Rising, shut: Mask | None = None) -> Indices:
        """About as many arms of largest bound as a list begins with, of those that are not shut."""
        closed = self._is_listed if shut is None else self._is_listed | shut
        at, _, _ = peak(self._mean, self._variance, closed, acquisition.beta, self._own)
        if at < 0:
            return np.zeros(0, dtype=np.intp)
        step = max(1, len(self) // SAMPLE)
        sample = np.sqrt(self._variance[::step] + self._own)
        values = acquisition.upper(self._mean[::step], sample)
        values[closed[::step]] = -np.inf
        n = min(len(values), self._shortlist // step + 1)
        least = float(np.partition(values, -n)[-n])
        some = self._reaching(acquisition, shut, least)[: self._shortlist]
        return some if len(some) else np.array([at])

    def _join(self, belief: Engine, positions: Indices) -> None:
        """Put arms on the list that are not on it."""
        new = positions[~self._is_listed[positions]]
        if not len(new):
            return
        new = np.unique(new)
        base = self.belief
        self.belief = None
        rows = np.asarray(self.arms.rows[new], dtype=np.float64)
        self._list.extend(belief, Arms(rows, self.arms.diag[new]))
        self._numbers = np.concatenate([self._numbers, new])
        self._is_listed[new] = True
        self.belief = base

    # Reading

    def refresh(self, belief: Engine, near: Indices, most: int) -> bool:
        """Compute the list anew where many arms may be best: rounding may be why."""
        return self._list.refresh(belief, near, most)

    def highest(self, belief: Engine) -> tuple[Array, Array]:
        """What μ̃ and σ̃² of all arms do not exceed now: new arrays."""
        away = 0.0 if self.belief is self._then else moved(self._then, belief.base)
        mean = self._mean + away * np.sqrt(self._variance)
        variance = self._variance + self._own
        mean[self._numbers], exact = self._list.current(belief)
        variance[self._numbers] = exact + self._list.slack
        return mean, variance

    def followed(self, belief: Engine) -> Followed:
        """A list for pulls that are only supposed, and by which bounds are close."""
        self.near(belief, Upper(USUAL * np.sqrt(belief.regularization)), None)
        return Followed(self._numbers, self._list.copy())

    def means(self, belief: Engine) -> tuple[Array, float]:
        """μ̃ of all arms, and what they may be wrong by beyond rounding."""
        if self._then is not self.belief:
            self.compute(belief)
        self._join(belief, self.places.positions)
        mean = self._mean - self._error
        mean[self._numbers] = self._list.current(belief)[0]
        return mean, self._error

    def means_of(self, belief: Engine, positions: Indices) -> Array:
        """μ̃ of some arms, which join the list."""
        self._join(belief, positions)
        where = np.zeros(len(self), dtype=np.intp)
        where[self._numbers] = np.arange(len(self._numbers))
        return self._list.current(belief)[0][where[positions]]
