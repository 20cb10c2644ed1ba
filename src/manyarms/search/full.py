"""Scores of all arms by the one function that scores, anew at each belief: nothing is brought
forward, nothing is passed over."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Engine
from manyarms.search.scores import ROWS, AllScored
from manyarms.sketch.linalg import chunks
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class Full(AllScored):
    """At a belief."""

    belief: Engine
    arms: Arms

    def after(self, step: Step) -> "Full":
        """At the belief after one more step."""
        return Full(step.after, self.arms)  # type: ignore[arg-type]

    def supposing(self, positions: Indices) -> "Full":
        """If these arms were pulled once more each."""
        rows = self._rows(positions)
        return self.after(self.belief.supposing(rows, self.arms.diag[positions]))

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms."""
        mean, variance = self._all
        return mean.copy(), variance.copy()

    @cached_property
    def _all(self) -> tuple[Array, Array]:
        n = len(self.arms.rows)
        parts = [self.moments(np.arange(i, min(i + ROWS, n))) for i in range(0, n, ROWS)]
        mean, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return mean, variance

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all."""
        if positions is None:
            return self.current()
        return self.belief.moments(self._rows(positions), self.arms.diag[positions])

    def largest_mean(self, positions: Indices) -> float:
        """The largest μ̃ of some arms."""
        return float(self.moments(np.unique(positions))[0].max())

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Some arms, z (m, n) and r (n,) of k's part, for all arms."""
        base = self.belief.base
        n = len(self.arms.rows)
        for some in chunks(n, max(1, base.m)):
            rows = self._rows(np.arange(n)[some])
            Z, r = base.features(rows, base.kernel.diag(rows))
            yield some, Z.T, r

    def _rows(self, positions: Indices) -> Array:
        return self.arms.rows[positions].astype(np.float64, copy=False)
