"""The scores of a table's arms: a cache beside the belief. Who is best does not depend on how they
are kept."""

import numpy as np

from manyarms.engine.base import Arms, Belief
from manyarms.engine.frozen import Engine
from manyarms.errors import MemoryBudgetError
from manyarms.search.bounds import are_fine, bounds
from manyarms.search.dense import Path
from manyarms.search.greedy import MANY, Greedy
from manyarms.search.places import Places
from manyarms.search.scores import KeepsScores, RowsElsewhere, TableScored
from manyarms.search.table import TableScores
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats

PER_ARM = 64
"""Bytes an arm takes beside its row and its embedding: means, variances, lists."""


def check_memory(n_arms: int, memory: float) -> None:
    """Raise MemoryBudgetError where so many arms do not fit."""
    if memory < PER_ARM * n_arms:
        raise MemoryBudgetError(
            f"{n_arms:,} arms take {PER_ARM * n_arms:.3g} bytes beside their rows, "
            f"memory={memory:.3g} allows less; "
            "raise `memory`, or choose among fewer arms"
        )


def scores_of(
    belief: Belief, arms: Arms, memory: float | None, tuning: Tuning, stats: Stats
) -> TableScored:
    """The scores of arms at a belief."""
    if isinstance(belief, KeepsScores):
        return belief.scores(arms)
    if not isinstance(belief, Engine):
        raise TypeError(
            f"a belief is of frozen features, or keeps the scores of arms itself; got {belief!r}"
        )
    if isinstance(arms.rows, RowsElsewhere):
        return arms.rows.scores_at(belief, tuning)
    n = len(arms.rows)
    room = float("inf") if memory is None else memory - PER_ARM * n
    return TableScores(belief, arms, room, tuning, stats)


def offered(belief: Engine, arms: Arms) -> Greedy:
    """The scores of rows that are offered once. Many of them are bounded first."""
    n = len(arms.diag)
    base = belief.base
    if n <= MANY or not base.m or not are_fine(base):
        return Greedy(Path(belief), arms, np.full(n, np.inf), np.zeros(n))
    diag = base.kernel.diag(arms.rows) if belief.own_variance else arms.diag
    mean, variance, error = bounds(Arms(arms.rows, diag), base)
    # What float64 puts exact scores off by is far less than the error, but for r.
    variance += (belief.own_variance + 32 * base.rounding_seen) / belief.regularization
    places = Places(arms.rows)
    places.find(belief)
    mean += error
    mean[places.positions] = np.inf  # own parts may have raised them
    return Greedy(Path(belief), arms, mean, variance)
