"""Rows that are offered once: bounds on all of them, exact scores of the few that may be best.

Scores of such rows are thrown away after the choice, so nothing is kept for later steps. Many rows
are bounded from above first (`search/rough.py`). Then those of largest bound
are scored by `Frozen.moments`, until no bound is left above the best score. Pulls that are only
supposed leave the means as they are and lower the variances. So an old score is a bound on the
score of now, and the next arm of a batch rescores those only whose bound may still win.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.search.rough import is_fine_enough, rough_scores
from manyarms.search.scores import Acquisition, Rising, best_of
from manyarms.sketch.linalg import EPS
from manyarms.typing import Array, Indices, Mask

MANY = 2048
"""Rows above which bounds come first. They take some 5 ms, as do the scores of 1,000 rows."""
FIRST = 16
"""Rows of largest bound that are scored first. Then as many again as were scored."""
RANGE = 1e20
"""k(x, x) between 1/RANGE and RANGE fits float32, squares included."""


class FrontRows(NamedTuple):
    """The rows of largest bound, and a bound on the values of all others: old bounds hold while
    more is supposed."""

    acquisition: Rising  # the largest for which that holds
    positions: Indices  # in index order
    theta: float


@dataclass
class Offered:
    """Scores of rows, for one choice by a rising acquisition. `arg_max` sharpens the bounds."""

    belief: Frozen  # with what is supposed
    arms: Arms
    mean: Array  # (n,) bounds on μ̃ from above; infinite where nothing is known yet
    variance: Array  # (n,) on σ̃², of this belief and of all that suppose more
    front: FrontRows | None = None

    @classmethod
    def at(cls, belief: Frozen, arms: Arms) -> "Offered":
        """Of rows at a belief."""
        n = len(arms.rows)
        kappa2 = arms.diag.max(initial=0.0)
        fits = n > MANY and belief.m and 1 / RANGE < kappa2 < RANGE
        if fits and is_fine_enough(belief):
            mean, variance, error = rough_scores(arms, belief)
            # What float64 puts exact scores off by is far less than the error, but for r.
            variance += 32 * belief.rounding_seen / belief.regularization
            return cls(belief, arms, mean + error, variance)
        return cls(belief, arms, np.full(n, np.inf), np.zeros(n))

    def after(self, step: Step) -> "Offered":
        """Rows that are offered once follow no step: they are bounded anew."""
        belief: Frozen = step.after  # type: ignore[assignment]
        return Offered.at(belief, self.arms)

    def supposing(self, positions: Indices) -> "Offered":
        """If these rows were pulled once more each: the bounds hold all the more."""
        rows = self.arms.rows[positions]
        step = self.belief.supposing(rows, self.arms.diag[positions])
        belief: Frozen = step.after  # type: ignore[assignment]
        return Offered(belief, self.arms, self.mean.copy(), self.variance.copy(), self.front)

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The row of largest value, scored; of those that tie with it, the lowest index."""
        if not isinstance(acquisition, Rising):
            mean, variance = self.moments()
            return best_of(*acquisition(mean, np.sqrt(variance)), barred)
        everyone = np.arange(len(self.mean))
        if len(everyone) > MANY:
            front = self.front
            if front is None or not acquisition.is_below(front.acquisition):
                front = self._foremost(acquisition)
            arm, least = self._best_of(front.positions, acquisition, barred)
            if least <= front.theta:
                # What is supposed, or barred, has used the front up.
                front = self._foremost(acquisition)
                arm, least = self._best_of(front.positions, acquisition, barred)
            self.front = front
            if least > front.theta:
                return arm
        return self._best_of(everyone, acquisition, barred)[0]

    def _foremost(self, acquisition: Rising) -> FrontRows:
        """The front by the bounds of now."""
        bound = acquisition.upper(self.mean, np.sqrt(self.variance))
        positions = _largest(bound, np.arange(len(bound)), MANY // 2)
        bound[positions] = -np.inf
        return FrontRows(acquisition, positions, float(bound.max()))

    def _best_of(
        self, among: Indices, acquisition: Rising, barred: Mask | None
    ) -> tuple[int, float]:
        """The best of some rows, and what others must reach to tie with it."""
        bound = acquisition.upper(self.mean[among], np.sqrt(self.variance[among]))
        if barred is not None:
            bound[barred[among]] = -np.inf
        values = np.full(len(bound), -np.inf)
        tolerance = np.zeros(len(bound))
        some = np.flatnonzero(bound == np.inf)
        if not len(some):
            some = _largest(bound, np.flatnonzero(bound > -np.inf), FIRST)
        n_scored = 0
        least = -np.inf
        while len(some):
            at = among[some]
            mean, variance = self.moments(at)
            self.mean[at] = mean
            self.variance[at] = variance + self._slack(variance)
            values[some], tolerance[some] = acquisition(mean, np.sqrt(variance))
            bound[some] = -np.inf
            n_scored += len(some)
            best = int(np.argmax(values))
            least = float(values[best] - tolerance[best])
            some = _largest(bound, np.flatnonzero(bound >= least), n_scored)
        return int(among[best_of(values, tolerance)]), least

    def _slack(self, variance: Array) -> Array:
        """How far rounding may put a variance above one that was computed before: see
        `Table.slack`."""
        belief = self.belief
        residual = 32 * belief.rounding_seen / belief.regularization
        return np.asarray(8 * EPS * (1 + belief.m) * variance + residual)

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all rows."""
        return self.moments()

    def means(self) -> tuple[Array, float]:
        """μ̃ of all rows, right but for rounding."""
        return self.moments()[0], 0.0

    def largest_mean(self, positions: Indices) -> float:
        """The largest μ̃ of some rows."""
        return float(self.moments(np.unique(positions))[0].max())

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some rows, or of all."""
        some: Indices | slice = slice(None) if positions is None else positions
        return self.belief.moments(self.arms.rows[some], self.arms.diag[some])


def _largest(bound: Array, positions: Indices, n: int) -> Indices:
    """Of some positions the n of largest bound, in index order; all where there are no more."""
    if len(positions) <= n:
        return positions
    return np.sort(positions[np.argpartition(bound[positions], -n)[-n:]])
