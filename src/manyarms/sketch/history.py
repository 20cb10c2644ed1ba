"""What was observed, as sufficient statistics: a value, so that nothing is ever half done."""

from dataclasses import dataclass, field

import numpy as np

from manyarms.errors import ObservationError
from manyarms.typing import Array, Indices


def _no_arms() -> Indices:
    return np.zeros(0, dtype=np.intp)


def _no_numbers() -> Array:
    return np.zeros(0)


@dataclass(frozen=True)
class History:
    """Distinct arms pulled, in the order of their numbers, with weight n and reward sum s of each.

    An observation with noise ξ_i weighs ξ²/ξ_i² (1 where no noise is given), so that by default n
    counts pulls and s adds rewards.
    """

    pulled: Indices = field(default_factory=_no_arms)  # (u,)
    counts: Array = field(default_factory=_no_numbers)  # (u,)
    sums: Array = field(default_factory=_no_numbers)  # (u,)
    n_observations: int = 0

    def positions(self, arms: Indices) -> Indices:
        """Where these arms are among those pulled; −1 for those that are not."""
        at = np.searchsorted(self.pulled, arms)
        found = np.append(self.pulled, -1)[at] == arms
        return np.where(found, at, -1)

    def add(
        self, arms: Indices, rewards: Array, weights: Array, n_observations: int | None = None
    ) -> "History":
        """With more rewards, each arm once, for one observation each or `n_observations` in all."""
        new = np.searchsorted(self.pulled, arms)
        if len(self.pulled) and np.array_equal(self.pulled.take(new, mode="clip"), arms):
            pulled = self.pulled
            counts = self.counts.copy()
            sums = self.sums.copy()
        else:
            pulled = np.union1d(self.pulled, arms)
            old = np.searchsorted(pulled, self.pulled)
            new = np.searchsorted(pulled, arms)
            counts = np.zeros(len(pulled))
            counts[old] = self.counts
            sums = np.zeros(len(pulled))
            sums[old] = self.sums
        with np.errstate(over="ignore", invalid="ignore"):
            counts[new] += weights
            sums[new] += weights * rewards
        if not (np.isfinite(counts).all() and np.isfinite(sums).all()):
            raise ObservationError(
                "the rewards of an arm, times their weights ξ²/noise², add up beyond float64; "
                "rescale the rewards"
            )
        n = self.n_observations + (len(arms) if n_observations is None else n_observations)
        return History(pulled, counts, sums, n)


def by_arm(arms: Indices, rewards: Array, weights: Array) -> tuple[Indices, Array, Array]:
    """Each arm once, in index order: its number, weighted mean reward and total weight."""
    if len(arms) == 1:
        return arms, rewards, weights
    distinct, at = np.unique(arms, return_inverse=True)
    if len(distinct) == len(arms):
        order = np.argsort(arms, kind="stable")
        return arms[order], rewards[order], weights[order]
    total = np.bincount(at, weights).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return distinct, np.bincount(at, weights * rewards) / total, total
