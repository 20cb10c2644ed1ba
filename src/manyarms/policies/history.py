"""What was observed, as sufficient statistics: an immutable value, so that a failed update leaves nothing half done."""

from dataclasses import dataclass, field

import numpy as np

from manyarms.errors import ObservationError
from manyarms.typing import Array, Indices


def _no_arms() -> Indices:
    return np.zeros(0, dtype=np.intp)


@dataclass(frozen=True)
class History:
    """Distinct arms pulled, in index order, with the weight n and the weighted reward sum s of each.

    An observation with noise ξ_i weighs λ/ξ_i² (1 where no noise is given), so n counts pulls and s adds rewards by default.
    """

    pulled: Indices = field(default_factory=_no_arms)  # (u,)
    counts: Array = field(default_factory=lambda: np.zeros(0))  # (u,)
    sums: Array = field(default_factory=lambda: np.zeros(0))  # (u,)
    n_observations: int = 0

    def add(self, arms: Indices, rewards: Array, weights: Array) -> "History":
        """The history with more observations, in any order; the same arm may come several times."""
        pulled = np.union1d(self.pulled, arms)
        counts, sums = np.zeros(len(pulled)), np.zeros(len(pulled))
        old, new = np.searchsorted(pulled, self.pulled), np.searchsorted(pulled, arms)
        counts[old], sums[old] = self.counts, self.sums
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(counts, new, weights)
            np.add.at(sums, new, weights * rewards)
        if not (np.isfinite(counts).all() and np.isfinite(sums).all()):
            raise ObservationError("the sum of the rewards of an arm is beyond float64; rescale the rewards")
        return History(pulled, counts, sums, self.n_observations + len(arms))
