"""What ends a batch of no given size, `choose(None)`.

The rule is that of Batch-BKB (Calandriello, Carratino, Lazaric, Valko, Rosasco; ICML 2020).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from manyarms.checks import real
from manyarms.search.scores import ArmScores
from manyarms.typing import Indices

GoesOn = Callable[[Indices], bool]
"""Told arms as they come into a batch, by position: whether another one may follow."""


class BatchRule(Protocol):
    """Decides how long a batch may be."""

    def started(self, scores: ArmScores) -> GoesOn:
        """Of a batch that begins with these scores."""


@dataclass(frozen=True)
class GlobalRule:
    """A batch goes on while 1 + Σσ̃²(x_s) ≤ C over its arms, with the variances at its beginning.

    Then no variance has shrunk by more than C when the batch ends. What that proves of the regret
    asks for a radius √C times as large as for one arm at a time (docs/theory.md, "Batches and
    delays"); the radius of a policy is taken as it is.

    Parameters
    ----------
    threshold : float
        C, above 1.
    """

    threshold: float = 2.0

    def __post_init__(self) -> None:
        real(self.threshold, "threshold", "a number C above 1", above=1)

    def started(self, scores: ArmScores) -> GoesOn:
        """Of a batch that begins with these variances."""
        shrunk = 1.0

        def goes_on(positions: Indices) -> bool:
            nonlocal shrunk
            if len(positions):
                # The bound below is of variances as the batch began; supposed ones are smaller.
                _, variance = scores.moments(positions)
                # 1 + Σσ̃²(x_s) bounds by how much any variance has shrunk (Batch-BKB, ICML 2020).
                shrunk += float(variance.sum())
            return shrunk <= self.threshold

        return goes_on
