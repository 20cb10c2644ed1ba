"""The scores of a table's arms: a cache beside the belief. Who is best does not depend on how they
are kept."""

from manyarms.engine.base import Arms, Belief
from manyarms.engine.frozen import Engine
from manyarms.errors import MemoryBudgetError, shortened
from manyarms.search.scores import ArmScores, KeepsScores, RowsElsewhere
from manyarms.search.table import FEW, Table, TableScores
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats

PER_ARM = 64
"""Bytes an arm takes beside its row and its embedding: means, variances, lists."""


ONCE = Tuning(rough=0, quick=0)
"""Many rows that are offered once: bounds of all, and a list, cost less than their embeddings."""


def check_memory(n_arms: int, memory: float) -> None:
    """Raise MemoryBudgetError where so many arms do not fit."""
    if memory < PER_ARM * n_arms:
        raise MemoryBudgetError(
            f"{n_arms:,} arms take {PER_ARM * n_arms:.3g} bytes beside their rows, "
            f"memory={memory:.3g} allows less; "
            "raise `memory`, or choose among fewer arms"
        )


def scores_of(belief: Belief, arms: Arms, memory: float, tuning: Tuning, stats: Stats) -> ArmScores:
    """The scores of arms at a belief."""
    if isinstance(belief, KeepsScores):
        return belief.scores(arms)
    if not isinstance(belief, Engine):
        raise TypeError(
            f"a belief is of frozen features, or keeps the scores of arms itself; got "
            f"{shortened(belief)}"
        )
    if isinstance(arms.rows, RowsElsewhere):
        return arms.rows.scores_at(belief, tuning)
    return TableScores(Table(arms, memory - PER_ARM * len(arms.rows), tuning, stats), belief)


def offered(belief: Belief, arms: Arms, memory: float, stats: Stats) -> ArmScores:
    """The scores of rows that are offered once."""
    if len(arms.rows) <= FEW:
        return scores_of(belief, arms, memory, Tuning(), stats)
    scores = scores_of(belief, arms, memory, ONCE, stats)
    return scores.apart() if isinstance(scores, TableScores) else scores
