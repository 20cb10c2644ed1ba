"""All arms scored anew at every belief, O(A m²): for beliefs that can be asked and not followed."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manyarms.beliefs.base import Arms, Batch, Belief, Step
from manyarms.search.scores import Acquisition, best_of
from manyarms.typing import Array, Indices, Mask


@dataclass(frozen=True)
class Full:
    """Scores of all arms at a belief."""

    belief: Belief
    arms: Arms
    mean: Array | None = None  # of before what is supposed, which leaves means as they are

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        mean, variance = self.belief.moments(self.arms.rows, self.arms.diag)
        return mean if self.mean is None else self.mean, variance

    def after(self, step: Step) -> "Full":
        return Full(step.after, self.arms)

    def supposing(self, positions: Indices) -> "Full":
        mean, _ = self._moments
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        n = len(positions)
        batch = Batch(rows, self.arms.diag[positions], mean[positions], np.ones(n), positions, n)
        return Full(self.belief.supposing(batch), self.arms, mean)

    def current(self) -> tuple[Array, Array]:
        return self._moments

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        mean, variance = self._moments
        return (mean, variance) if positions is None else (mean[positions], variance[positions])

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        mean, variance = self._moments
        values, tolerance = acquisition(mean, np.sqrt(variance))
        if barred is not None:
            values[barred] = -np.inf
        return best_of(values, tolerance)
