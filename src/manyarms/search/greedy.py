"""Arms that are chosen by bounds from before: batches, and rows that are offered once.

Pulls that are only supposed leave the means as they are and lower the variances. So a score of
before is a bound on the score of now, and those of largest bound are scored by the one function
that scores, until no bound is left above the best score (lazy greedy: Minoux 1978). The batch is
the one that scoring all arms for each pick would make.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Engine
from manyarms.search.scores import Acquisition, Rising, best_of
from manyarms.sketch.linalg import EPS
from manyarms.typing import Array, Indices, Mask

MANY = 2048
"""Arms above which those of largest bound come first, half as many."""
FIRST = 16
"""Arms of largest bound that are scored first. Then as many again as were scored."""


class Front(NamedTuple):
    """The arms of largest bound, and a bound on the values of all others: it holds while more is
    supposed."""

    acquisition: Rising
    positions: Indices  # in index order
    theta: float


@dataclass
class Greedy:
    """Scores of arms with some pulls supposed. `arg_max` makes the bounds closer.

    One that supposes more shares them: bounds that it makes closer hold for itself, and for those
    that come after it, but no longer for this one.
    """

    belief: Engine  # with what is supposed
    arms: Arms  # diag is that of the whole kernel
    mean: Array  # (n,) bounds on μ̃ from above; infinite where nothing is known yet
    variance: Array  # (n,) on σ̃², of this belief and of all that suppose more
    fronts: dict[Rising, Front] = field(default_factory=dict)

    def supposing(self, positions: Indices) -> "Greedy":
        """If these arms were pulled once more each: the bounds hold all the more."""
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        return self.after(self.belief.supposing(rows, self.arms.diag[positions]))

    def after(self, step: Step) -> "Greedy":
        """After a step that is only supposed."""
        belief: Engine = step.after  # type: ignore[assignment]
        return replace(self, belief=belief)

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value, scored; of those that tie with it, the lowest index."""
        positions, values, tolerance = self.nearly_best(acquisition, barred)
        return int(positions[best_of(values, tolerance)])

    def nearly_best(
        self, acquisition: Acquisition, barred: Mask | None
    ) -> tuple[Indices, Array, Array]:
        """Every arm that may be the best, or tie with it, as `TableScores` has them."""
        n = len(self.mean)
        if not isinstance(acquisition, Rising):
            positions = np.arange(n) if barred is None else np.flatnonzero(~barred)
            mean, variance = self.moments(positions)
            return positions, *acquisition(mean, np.sqrt(variance))
        if n > MANY:
            front = self.fronts.get(acquisition) or self._foremost(acquisition)
            best, least = self._best_of(front.positions, acquisition, barred)
            if least <= front.theta:
                # What is supposed, or barred, has used the front up.
                front = self._foremost(acquisition)
                best, least = self._best_of(front.positions, acquisition, barred)
            if least > front.theta:
                return best
        return self._best_of(np.arange(n), acquisition, barred)[0]

    def _foremost(self, acquisition: Rising) -> Front:
        """The front by the bounds of now."""
        bound = acquisition.upper(self.mean, np.sqrt(self.variance))
        positions = _largest(bound, np.arange(len(bound)), MANY // 2)
        bound[positions] = -np.inf
        front = Front(acquisition, positions, float(bound.max()))
        self.fronts[acquisition] = front
        return front

    def _best_of(
        self, among: Indices, acquisition: Rising, barred: Mask | None
    ) -> tuple[tuple[Indices, Array, Array], float]:
        """The best of some arms, and what others must reach to tie with one like it."""
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
            least = float(values[best] - 8 * tolerance[best])
            some = _largest(bound, np.flatnonzero(bound >= least), n_scored)
        scored = values > -np.inf
        return (among[scored], values[scored], tolerance[scored]), least

    def _slack(self, variance: Array) -> Array:
        """How far rounding may put a variance above one that was computed before."""
        base = self.belief.base
        residual = 32 * base.rounding_seen / base.regularization
        return np.asarray(8 * EPS * (1 + base.m) * variance + residual)

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


def _largest(bound: Array, positions: Indices, n: int) -> Indices:
    """Of some positions the n of largest bound, in index order; all where there are no more."""
    if len(positions) <= n:
        return positions
    return np.sort(positions[np.argpartition(bound[positions], -n)[-n:]])
