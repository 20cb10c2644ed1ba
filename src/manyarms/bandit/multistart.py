"""The default maximiser of u over a box: L-BFGS-B on exact gradients from the best of many rows;
choices and steps by trying.

A local search: nothing guarantees the global maximum of u, which theorems about UCB ask for.
`AdaBKB` does without a maximiser.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from manyarms.bandit.score import Score
from manyarms.checks import whole
from manyarms.runtime.signals import load
from manyarms.space.box import Box
from manyarms.typing import Array

INCUMBENTS = 8
"""Good rows pulled that steps start from."""
SMALLEST_STEP = 1e-3
"""Standard deviation, of a column's range, of the smallest steps away from rows pulled: near the
maximum of u there."""
LARGEST_STEP = 0.3
"""And of the largest, which reach most of the box. Steps are drawn log-uniformly between the two,
and the steps of a climb without gradients start with it."""
COLUMNS_MOVED = 20
"""Columns moved in such a step, on average; all where there are fewer. As in DYCORS (Regis and
Shoemaker 2013) and TuRBO (Eriksson et al. 2019), for boxes of many columns."""
CHOICES_MOVED = 0.2
"""Probability that a choice is drawn anew in such a step."""
CLIMB_GAIN = 1e-6
"""Relative gain of a step at which a climb ends: L-BFGS-B's `ftol`."""
MOVES = 20
"""Rounds of moves over choices and steps, at most: a limit on seconds."""
HALVINGS = 12
"""Sizes of step of a climb without gradients: the last is 0.3·2⁻¹¹ = 1.5e-4 of a range."""
STEPS_TRIED = 16
"""Random steps of each size."""


@dataclass(frozen=True)
class MultiStart:
    """L-BFGS-B from the best of many rows: some drawn uniformly, a third near good rows pulled.

    Choices stay as they are in a climb, and whole numbers are rounded after it; then the best of
    all rows that differ in one choice or one step is taken, and climbed from, while that gains.
    Without a gradient a climb is random steps that shrink.

    Parameters
    ----------
    raw : int
        Rows that are scored to find starts.
    starts : int
        Climbs from the rows drawn uniformly, and as many from those near good rows.
    steps : int
        Iterations of L-BFGS-B at most.
    """

    raw: int = 384
    starts: int = 3
    steps: int = 60

    def __post_init__(self) -> None:
        for name in ("raw", "starts", "steps"):
            whole(getattr(self, name), name, at_most=10**6)

    def __call__(self, score: Score, box: Box, rng: np.random.Generator) -> Array:
        """A row of large u."""
        far = box.sample(self.raw - self.raw // 3, rng)
        near = _near(score.incumbents(INCUMBENTS), self.raw // 3, box, rng)
        starts = np.vstack([score.top(X, self.starts) for X in (far, near)])
        X, values = self._climbed(score, box, starts, rng)
        x = X[int(np.argmax(values))]
        value = float(values.max())
        for _ in range(MOVES):
            beside = box.neighbours(x)
            if not len(beside):
                break  # no choices and no whole numbers
            best = beside[[int(np.argmax(score(beside)))]]
            (climbed,), (gained,) = self._climbed(score, box, best, rng)
            if not gained > value:
                break
            x = climbed
            value = gained
        return np.asarray(x)

    def _climbed(
        self, score: Score, box: Box, X: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Better rows than these, or these, inside the box, and their scores."""
        before = score(X)
        climb = self._ascended if score.differentiable else self._wandered
        climbed = box.snap(climb(score, box, X, before, rng))
        after = score(climbed)  # rounding to steps may have lost what a climb gained
        return np.where((after >= before)[:, None], climbed, X), np.maximum(after, before)

    def _ascended(
        self, score: Score, box: Box, X: Array, values: Array, _: np.random.Generator
    ) -> Array:
        """L-BFGS-B on the sum of all rows' scores: one evaluation serves them all."""
        n = len(X)
        a = box.n_numeric
        if not a:
            return X
        # L-BFGS-B's stopping rule is for losses of size 1; rows that all score alike have none.
        scores = values[np.isfinite(values)]  # a row that is barred has −∞
        scale = max(1e-12, float(np.ptp(scores)) if len(scores) > 1 else 1.0)

        # One vector of all rows' numbers for L-BFGS-B; choices stay as they are.
        def placed(flat: Array) -> Array:
            return np.hstack([flat.reshape(n, a), X[:, a:]])

        def loss(flat: Array) -> tuple[float, Array]:
            values, gradients = score.both(placed(flat))
            return -float(values.sum()) / scale, -gradients[:, :a].ravel() / scale

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": CLIMB_GAIN}
        load("scipy.optimize")
        found = scipy.optimize.minimize(
            loss,
            X[:, :a].ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * (n * a),
            options=options,
        )
        return placed(np.clip(found.x, 0.0, 1.0))

    def _wandered(
        self, score: Score, box: Box, X: Array, values: Array, rng: np.random.Generator
    ) -> Array:
        """The best of steps of half the size each time."""
        a = box.n_numeric
        for halvings in range(HALVINGS):
            size = LARGEST_STEP * 0.5**halvings
            steps = np.repeat(X[:, None], STEPS_TRIED, axis=1)
            steps[:, :, :a] += size * rng.standard_normal((len(X), STEPS_TRIED, a))
            steps = box.snap(steps.reshape(-1, box.dimension)).reshape(steps.shape)
            X, values = score.improved(X, values, steps)
        return X


def _near(rows: Array, n: int, box: Box, rng: np.random.Generator) -> Array:
    """Rows a step away from some, (n, d)."""
    if not len(rows):
        return rows
    X = rows[rng.integers(len(rows), size=n)]
    a = box.n_numeric
    d = box.dimension
    scales = SMALLEST_STEP * (LARGEST_STEP / SMALLEST_STEP) ** rng.random((n, 1))
    moved = rng.random((n, d)) < COLUMNS_MOVED / d
    X[:, :a] += np.where(moved[:, :a], scales * rng.standard_normal((n, a)), 0.0)
    anew = rng.random((n, d - a)) < CHOICES_MOVED
    X[:, a:] = np.where(anew, box.sample(n, rng)[:, a:], X[:, a:])
    return box.snap(X)
