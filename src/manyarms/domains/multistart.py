"""The default maximiser of u over a box: L-BFGS-B on exact gradients from the best of many rows;
choices and steps by trying.

A local search: nothing guarantees the global maximum of u, which theorems about UCB ask for.
`AdaBKB` does without a maximiser.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from manyarms.domains.box import Box
from manyarms.domains.score import Score
from manyarms.numbers import whole
from manyarms.typing import Array

SCALES = (1e-3, 0.3)
"""Standard deviations of steps away from rows pulled: drawn log-uniformly between these."""
MOVED = 20
"""Columns moved in such a step, on average; all where there are fewer."""
GAIN = 1e-6
"""Relative gain of a step at which a climb ends."""
MOVES = 20
"""Rounds of moves over choices and steps, at most."""


@dataclass(frozen=True)
class MultiStart:
    """L-BFGS-B from the best of `raw` rows: `starts` of those drawn uniformly, and of the third
    that is near good rows pulled.

    Choices stay as they are in a climb, and whole numbers are rounded after it; then the best of
    all rows that differ in one choice or one step is taken, and climbed from, while that gains.
    Without a gradient a climb is random steps that shrink.
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
        near = _near(score.incumbents(8), self.raw // 3, box, rng)
        X, values = self._climbed(
            score, box, np.vstack([self._top(score, X) for X in (far, near) if len(X)]), rng
        )
        x, value = X[int(np.argmax(values))], float(values.max())
        for _ in range(MOVES):
            beside = box.neighbours(x)
            if not len(beside):
                break
            (best,), (gained,) = self._climbed(
                score, box, beside[[int(np.argmax(score(beside)))]], rng
            )
            if not gained > value:
                break
            x, value = best, gained
        return np.asarray(x)

    def _top(self, score: Score, X: Array) -> Array:
        return X[np.argsort(-score(X), kind="stable")[: self.starts]]

    def _climbed(
        self, score: Score, box: Box, X: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Better rows than these, or these, inside the box, and their scores."""
        before = score(X)
        climb = self._ascended if score.differentiable else self._wandered
        climbed = box.snap(climb(score, box, X, before, rng))
        after = score(climbed)
        return np.where((after >= before)[:, None], climbed, X), np.maximum(after, before)

    def _ascended(
        self, score: Score, box: Box, X: Array, values: Array, _: np.random.Generator
    ) -> Array:
        """L-BFGS-B on the sum of all rows' scores: one evaluation serves them all."""
        n, a = len(X), box.n_numeric
        if not a:
            return X
        scale = max(1e-12, float(np.ptp(values)) if n > 1 else 1.0)

        def placed(flat: Array) -> Array:
            rows = X.copy()
            rows[:, :a] = flat.reshape(n, a)
            return rows

        def loss(flat: Array) -> tuple[float, Array]:
            values, gradients = score.both(placed(flat))
            return -float(values.sum()) / scale, -gradients[:, :a].ravel() / scale

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": GAIN}
        found = minimize(
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
        X, values = X.copy(), values.copy()
        for halvings in range(12):
            for i, x in enumerate(X):
                steps = np.repeat(x[None], 16, axis=0)
                steps[:, : box.n_numeric] += (
                    0.3 * 0.5**halvings * rng.standard_normal((16, box.n_numeric))
                )
                steps = box.snap(steps)
                gains = score(steps)
                if gains.max() > values[i]:
                    X[i], values[i] = steps[int(np.argmax(gains))], gains.max()
        return X


def _near(rows: Array, n: int, box: Box, rng: np.random.Generator) -> Array:
    """Rows a step away from some, (n, d)."""
    if not len(rows):
        return rows
    X, a, d = rows[rng.integers(len(rows), size=n)], box.n_numeric, box.dimension
    scales = SCALES[0] * (SCALES[1] / SCALES[0]) ** rng.random((n, 1))
    moved = rng.random((n, d)) < MOVED / d
    X[:, :a] += np.where(moved[:, :a], scales * rng.standard_normal((n, a)), 0.0)
    X[:, a:] = np.where(rng.random((n, d - a)) < 0.2, box.sample(n, rng)[:, a:], X[:, a:])
    return box.snap(X)
