"""What ends a batch of no given size, `choose(None)`.

The rule is that of Batch-BKB (Calandriello, Carratino, Lazaric, Valko, Rosasco; ICML 2020).
"""

from dataclasses import dataclass
from typing import Protocol

from manyarms.checks import real
from manyarms.search.scores import ArmScores
from manyarms.typing import Indices


class BatchRule(Protocol):
    """Decides how long a batch may be."""

    def started(self, scores: ArmScores) -> "RunningBatch":
        """A batch that begins with these scores."""


class RunningBatch(Protocol):
    """A batch that is being made."""

    def goes_on(self, positions: Indices) -> bool:
        """Whether another arm may follow once these are in the batch."""


@dataclass(frozen=True)
class GlobalRule:
    """A batch goes on while 1 + Σσ̃²(x_s) ≤ C over its arms, with the variances at its beginning.

    Then no variance has shrunk by more than C when the batch ends, so that it costs no more regret
    than one arm at a time, up to constants.

    Parameters
    ----------
    threshold : float
        C, above 1.
    """

    threshold: float = 2.0

    def __post_init__(self) -> None:
        real(self.threshold, "threshold", "a number C above 1", above=1)

    def started(self, scores: ArmScores) -> "_Sum":
        """A batch that begins with these variances."""
        return _Sum(self.threshold, scores)


class _Sum:
    def __init__(self, threshold: float, scores: ArmScores) -> None:
        self._threshold = threshold
        self._scores = scores
        self._shrunk = 1.0

    def goes_on(self, positions: Indices) -> bool:
        if len(positions):
            # The bound below is of variances as the batch began; supposed ones are smaller.
            _, variance = self._scores.moments(positions)
            # 1 + Σσ̃²(x_s) bounds by how much any variance has shrunk (Batch-BKB, ICML 2020).
            self._shrunk += float(variance.sum())
        return self._shrunk <= self._threshold
