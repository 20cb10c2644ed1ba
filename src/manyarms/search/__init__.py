"""The scores of a table's arms: a cache beside the belief. Who is best does not depend on how they
are kept."""

from manyarms.beliefs.base import Arms, Belief
from manyarms.beliefs.frozen import Frozen
from manyarms.beliefs.own import Owned
from manyarms.errors import MemoryBudgetError
from manyarms.search.full import Full
from manyarms.search.lazy import Lazy
from manyarms.search.scores import ArmScores, KeepsScores, RowsElsewhere
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
) -> ArmScores:
    """The scores of arms at a belief: by lists where they are many."""
    if isinstance(belief, KeepsScores):
        return belief.scores(arms)
    if isinstance(belief, Owned):
        return Full(belief, arms)
    if not isinstance(belief, Frozen):
        raise TypeError(
            f"a belief is of frozen features, or keeps the scores of arms itself; got {belief!r}"
        )
    if isinstance(arms.rows, RowsElsewhere):
        return arms.rows.scores_at(belief, tuning)
    n = len(arms.rows)
    room = float("inf") if memory is None else memory - PER_ARM * n
    return Lazy(belief, arms, room, tuning, stats)
