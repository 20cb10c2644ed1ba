"""What was observed, as sufficient statistics: an immutable value, so that a failed update leaves nothing half done."""

from dataclasses import dataclass, field

import numpy as np

from manyarms.arms.seen import Seen
from manyarms.errors import ObservationError
from manyarms.typing import Array, Indices


def _no_arms() -> Indices:
    return np.zeros(0, dtype=np.intp)


@dataclass(frozen=True)
class History:
    """Distinct arms pulled, in index order, with the weight n and the weighted reward sum s of each.

    An observation with noise ξ_i weighs λ/ξ_i² (1 where no noise is given), so n counts pulls and s adds rewards by default.
    Arms are numbered through: those of the policy's table, then those `seen` by value.
    """

    pulled: Indices = field(default_factory=_no_arms)  # (u,)
    counts: Array = field(default_factory=lambda: np.zeros(0))  # (u,)
    sums: Array = field(default_factory=lambda: np.zeros(0))  # (u,)
    n_observations: int = 0
    seen: Seen = field(default_factory=Seen)

    def positions(self, arms: Indices) -> Indices:
        """Where these arms are among those pulled; −1 for those that are not."""
        at = np.searchsorted(self.pulled, arms)
        found = np.append(self.pulled, -1)[at] == arms
        return np.where(found, at, -1)

    def add(self, arms: Indices, rewards: Array, weights: Array, n_observations: int | None = None) -> "History":
        """The history with more rewards; each arm comes once, standing for one observation or for `n_observations` in all."""
        new = np.searchsorted(self.pulled, arms)
        if len(self.pulled) and np.array_equal(self.pulled.take(new, mode="clip"), arms):
            pulled, counts, sums = self.pulled, self.counts.copy(), self.sums.copy()
        else:
            pulled = np.union1d(self.pulled, arms)
            counts, sums = np.zeros(len(pulled)), np.zeros(len(pulled))
            old, new = np.searchsorted(pulled, self.pulled), np.searchsorted(pulled, arms)
            counts[old], sums[old] = self.counts, self.sums
        with np.errstate(over="ignore", invalid="ignore"):
            counts[new] += weights
            sums[new] += weights * rewards
        if not (np.isfinite(counts).all() and np.isfinite(sums).all()):
            raise ObservationError(
                "the rewards of an arm, times their weights λ/noise², add up beyond float64; rescale the rewards"
            )
        n = self.n_observations + (len(arms) if n_observations is None else n_observations)
        return History(pulled, counts, sums, n, self.seen)


def by_arm(arms: Indices, rewards: Array, weights: Array) -> tuple[Indices, Array, Array]:
    """The same evidence with each arm once, in index order: its total weight and its weighted mean reward."""
    if len(arms) == 1:
        return arms, rewards, weights
    distinct, at = np.unique(arms, return_inverse=True)
    if len(distinct) == len(arms):
        order = np.argsort(arms, kind="stable")
        return arms[order], rewards[order], weights[order]
    total = np.bincount(at, weights).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return distinct, np.bincount(at, weights * rewards) / total, total
