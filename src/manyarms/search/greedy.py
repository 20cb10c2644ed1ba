"""Arms that are chosen with some pulls supposed: batches, and rows that are offered once.

Pulls that are only supposed leave the means as they are and lower the variances. So a score of
before is a bound on the score of now. The arms of largest bound are followed exactly, and as long
as the best of them is above the bounds of all others, it is the best of all (lazy greedy: Minoux
1978). The batch is the one that scoring all arms for each pick would make.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Engine
from manyarms.search.dense import Dense, Path
from manyarms.search.scores import Acquisition, Rising, best_of
from manyarms.typing import Array, Indices, Mask

MANY = 2048
"""Arms up to which all are followed; of more, half as many at first."""
WIDER = 4
"""By how much more are followed where those of now are used up."""


@dataclass
class Front:
    """The arms of largest bound, and a bound on the values of all others: it holds while more is
    supposed."""

    positions: Indices  # in index order
    scores: Dense
    theta: float


@dataclass
class Greedy:
    """Scores of arms with some pulls supposed.

    One that supposes more shares bounds and fronts: what is made closer holds for itself, and for
    those that come after it, but no longer for this one.
    """

    path: Path  # from where the bounds are of to the belief with what is supposed
    arms: Arms  # diag is that of the whole kernel
    mean: Array  # (n,) bounds on μ̃ from above; infinite where nothing is known yet
    variance: Array  # (n,) on σ̃², of this belief and of all that suppose more
    fronts: dict[Rising, Front] = field(default_factory=dict)

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
        size = n if n <= MANY else MANY // 2
        front = self.fronts.get(acquisition) or self._foremost(acquisition, size)
        while True:
            front.scores.bring(self.path)
            shut = None if barred is None else barred[front.positions]
            near, least = front.scores.near(self.belief, acquisition, shut)
            if least > front.theta or len(front.positions) == n:
                return front.positions[near]
            # What is supposed, or barred, has used the front up.
            front = self._foremost(acquisition, min(n, WIDER * len(front.positions)))

    def _foremost(self, acquisition: Rising, size: int) -> Front:
        """So many arms of largest bound, by the bounds of now."""
        bound = acquisition.upper(self.mean, np.sqrt(self.variance))
        positions = np.arange(len(bound))
        theta = -np.inf
        if size < len(bound):
            positions = np.sort(np.argpartition(bound, -size)[-size:])
            bound[positions] = -np.inf
            theta = float(bound.max())
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        kernel = self.belief.base.kernel
        scores = Dense(Arms(rows, kernel.diag(rows)), kernel)
        scores.compute(self.belief)
        mean, variance = scores.current(self.belief)
        self.mean[positions] = mean
        self.variance[positions] = variance + scores.slack
        front = self.fronts[acquisition] = Front(positions, scores, theta)
        return front

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
