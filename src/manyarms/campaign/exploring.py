"""Suggestions of candidates never tried.

With a small radius most suggestions are of candidates known to be good. That costs little, and
finds no better ones once the model is sure of itself. So some suggestions are chosen among the
others, by a radius that grows. They are c·n^(2/3) of n: a falling share.
"""

from dataclasses import dataclass

from manyarms.engine.confidence import Growing, Radius

UNTRIED_RADIUS = Growing(1.5)
"""Radius of a suggestion that must be untried: 2.3 standard deviations after 10 results, 3.5 after
200. With a smaller one, candidates unlike all tried ones lose to neighbours of good ones."""


@dataclass(frozen=True)
class Exploration:
    """How many suggestions are candidates that were never tried, and by which radius they are
    chosen."""

    share: float = 3.0  # c; with 3 it is half of the first 200
    radius: Radius = UNTRIED_RADIUS

    def is_due(self, n: int) -> bool:
        """Whether the suggestion after n others should be a candidate that was never tried."""
        return int(self.share * (n + 1) ** (2 / 3)) > int(self.share * n ** (2 / 3))
