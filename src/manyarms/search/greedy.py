"""Arms that are chosen with some pulls supposed: batches, and rows that are offered once.

Pulls that are only supposed leave the means as they are and lower the variances. So a score of
before is a bound on the score of now. The arms of largest bound are followed exactly, and as long
as the best of them is above the bounds of all others, it is the best of all (lazy greedy: Minoux
1978). The batch is the one that scoring all arms for each pick would make.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from manyarms.engine.base import Arms, Step
from manyarms.engine.frozen import Engine
from manyarms.search.dense import Dense, Path
from manyarms.search.scores import Acquisition, Rising, best_of
from manyarms.typing import Array, Indices, Mask

MANY = 2048
"""Arms up to which all are followed."""
FEWEST = 1024
"""Of more arms, so many at least join those that are followed at a time."""
PART = 128
"""And one in so many: a look at the bounds of all takes about as long as their embeddings, m some
hundred."""


NONE: Indices = np.zeros(0, dtype=np.intp)


class Followed:
    """The arms of largest bound, their scores, and bounds on the values of all others: these hold
    while more is supposed."""

    def __init__(self, positions: Indices = NONE, scores: Dense | None = None) -> None:
        self.positions = positions
        self.scores = scores
        self.others: dict[Rising, float] = {}

    def highest_other(self, acquisition: Rising, mean: Array, variance: Array) -> float:
        """What no other arm exceeds, by bounds on means and variances of all arms."""
        known = self.others.get(acquisition)
        if known is None:
            bound = acquisition.upper(mean, np.sqrt(variance))
            bound[self.positions] = -np.inf
            known = self.others[acquisition] = float(bound.max(initial=-np.inf))
        return known


@dataclass
class Greedy:
    """Scores of arms with some pulls supposed.

    One that supposes more shares what is followed: it belongs to the one that was asked last.
    """

    path: Path  # from where the bounds are of to the belief with what is supposed
    arms: Arms  # diag is that of the whole kernel
    mean: Array  # (n,) bounds on μ̃ from above; infinite where nothing is known yet
    variance: Array  # (n,) on σ̃², of this belief and of all that suppose more
    followed: Followed = field(default_factory=Followed)

    @property
    def belief(self) -> Engine:
        """With what is supposed."""
        return self.path.belief

    def supposing(self, positions: Indices) -> "Greedy":
        """If these arms were pulled once more each: the bounds hold all the more."""
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        return self.after(self.belief.supposing(rows, self.arms.diag[positions]))

    def after(self, step: Step) -> "Greedy":
        """After a step that is only supposed."""
        return replace(self, path=self.path.after(step))

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value, scored; of those that tie with it, the lowest index."""
        near = self._near(acquisition, barred)
        if len(near) == 1:
            return int(near[0])
        _, values, tolerance = self._scored(near, acquisition)
        return int(near[best_of(values, tolerance)])

    def nearly_best(
        self, acquisition: Acquisition, barred: Mask | None
    ) -> tuple[Indices, Array, Array]:
        """Every arm that may be the best, or tie with it, as `TableScores` has them."""
        return self._scored(self._near(acquisition, barred), acquisition)

    def _scored(self, near: Indices, acquisition: Acquisition) -> tuple[Indices, Array, Array]:
        mean, variance = self.moments(near)
        return near, *acquisition(mean, np.sqrt(variance))

    def _near(self, acquisition: Acquisition, barred: Mask | None) -> Indices:
        """Positions of the arms whose value may be the largest, in index order."""
        n = len(self.mean)
        if not isinstance(acquisition, Rising):
            return np.arange(n) if barred is None else np.flatnonzero(~barred)
        followed = self.followed
        more = n
        if n > MANY:
            more = max(FEWEST, n // PART)
        while True:
            near = followed.positions
            least = -np.inf
            if followed.scores is not None:
                followed.scores.bring(self.path)
                shut = None if barred is None else barred[followed.positions]
                some, least = followed.scores.near(self.belief, acquisition, shut)
                near = followed.positions[some]
            if least > followed.highest_other(acquisition, self.mean, self.variance):
                return np.sort(near)
            some = self._foremost(acquisition, barred, least, more)
            if not len(some):
                return np.sort(near)
            self._follow(some)
            more *= 2

    def _foremost(
        self, acquisition: Rising, barred: Mask | None, least: float, size: int
    ) -> Indices:
        """So many other arms of largest bound, where one of them reaches a value: more than may be
        the best now, as the next picks will be below this one."""
        bound = acquisition.upper(self.mean, np.sqrt(self.variance))
        bound[self.followed.positions] = -np.inf
        open_ = bound if barred is None else np.where(barred, -np.inf, bound)
        if open_.max(initial=-np.inf) < max(least, np.finfo(np.float64).min):
            return NONE
        cut = -np.inf
        if size < len(bound):
            cut = max(float(np.partition(open_, -size)[-size]), np.finfo(np.float64).min)
        some = np.flatnonzero(open_ >= cut)
        if barred is not None:
            # Barred arms of large bound are followed too, where they are few: what is said of all
            # others is closer then.
            shut = np.flatnonzero(barred & (bound >= cut) & (bound > -np.inf))
            if len(shut) <= size:
                some = np.sort(np.concatenate([some[~barred[some]], shut]))
        return some[bound[some] > -np.inf]

    def _follow(self, positions: Indices) -> None:
        """Follow more arms."""
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        base = self.belief.base
        arms = Arms(rows, base.kernel.diag(rows))
        followed = self.followed
        scores = followed.scores
        followed.scores = None  # what is interrupted is not used again
        if scores is None:
            scores = Dense(arms, base.kernel)
            scores.compute(self.belief)
        else:
            scores.extend(self.belief, arms)
        followed.scores = scores
        followed.positions = np.concatenate([followed.positions, positions])
        followed.others.clear()

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms."""
        return self.moments()

    def means(self) -> tuple[Array, float]:
        """μ̃ of all arms, right but for rounding."""
        return self.moments()[0], 0.0

    def largest_mean(self, positions: Indices) -> float:
        """The largest μ̃ of some arms."""
        return float(self.moments(np.unique(positions))[0].max())

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all."""
        some: Indices | slice = slice(None) if positions is None else positions
        return self.belief.moments(self.arms.rows[some], self.arms.diag[some])
