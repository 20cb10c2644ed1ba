"""What an optimizer holds beside its settings: candidates, model and what became of every
candidate."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.model import Model
from manyarms.campaign.trials import CandidateId, Trial
from manyarms.pool.ids import plain
from manyarms.typing import Indices, Mask


class Size(NamedTuple):
    """How large a sketch was."""

    n_results: int
    n_inducing: int
    effective_dimension: float


GROWTH = 1.05
"""A size is taken when there are so many times more results than at the last: the effective
dimension costs O(m³)."""


class Told(NamedTuple):
    """What one call of `tell` brought, and how large the sketch was after it, where that was looked
    at."""

    trials: list[Trial]
    size: Size | None


@dataclass(frozen=True)
class State:
    """Everything that changes, replaced as a whole."""

    pool: Any  # a Pool; of a box the points known
    order: Indices  # positions in the order of the random start
    model: Model
    n_told: int  # entries of the log that count
    n_trials: int
    pending: tuple[int, ...]  # positions in the pool
    results: Indices  # (n,) values told of each candidate
    retired: Mask  # (n,)
    failed: Mask  # (n,)

    def names(self, positions: Iterable[int]) -> list[CandidateId]:
        """The ids of candidates, as Python ints and strings; of a box, points that may be changed
        without harm."""
        return [copy(plain(self.pool.ids[position])) for position in positions]

    @property
    def out(self) -> Mask:
        """Retired or failed, (n,)."""
        return self.retired | self.failed

    @property
    def tries(self) -> Indices:
        """Values told or awaited of each candidate, (n,)."""
        tries = self.results.copy()
        np.add.at(tries, np.array(self.pending, dtype=np.intp), 1)
        return tries

    def over(self, pool: Any, order: Indices, model: Model) -> "State":
        """The same of a pool that has grown: nothing is known of the new candidates."""
        more = np.zeros(len(pool) - len(self.pool), dtype=bool)
        return replace(
            self,
            pool=pool,
            order=order,
            model=model,
            results=np.concatenate([self.results, more.astype(np.intp)]),
            retired=np.concatenate([self.retired, more]),
            failed=np.concatenate([self.failed, more]),
        )


def start_order(seed: int, n: int) -> Indices:
    """The order of the random start of n candidates."""
    return np.random.default_rng([seed, 1]).permutation(n)


def grown_order(order: Indices, seed: int, n: int) -> Indices:
    """The same with n candidates more."""
    more = np.random.default_rng([seed, len(order) + n]).permutation(n)
    return np.concatenate([order, len(order) + more])


def size_of(model: Model) -> Size:
    """Of the sketch now; of a policy without one, the different arms observed are counted."""
    policy = model.policy
    inducing = getattr(policy, "inducing", None)
    size = np.count_nonzero(policy.counts) if inducing is None else len(inducing)
    return Size(model.n_results, int(size), float(policy.effective_dimension))


def is_size_due(n_results: int, last: int) -> bool:
    """Whether to look at the size after so many results, `last` being those of the last time."""
    return n_results >= max(last + 1, GROWTH * last)
