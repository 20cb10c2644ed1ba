"""What a list of arms promises of those it leaves out.

An acquisition a that rises with mean and deviation is bounded at a later time by
a(μ̃_τ + Dσ̃_τ, σ̃_τ). So a few pairs (μ, σ) such that every arm left out has a mean and a deviation
no larger than those of one pair, a *skyline*, bound its value at all of them: for any radius, any
incumbent, any D, without a look at the arms again.
"""

from collections.abc import Callable

import numpy as np

from manyarms.search.scores import Rising
from manyarms.typing import Array

BINS = 256
"""Bins of deviations. A wider one promises less: β̃σ̃ of an arm is taken for larger by 1/256 of the
largest one."""
ROOMS = (1.0, 0.1, 0.01)
"""How much further the posterior may move until θ is computed anew, in units of β̃; the first that
leaves θ small enough."""


class Skyline:
    """Pairs (mean, deviation), (k,) each: deviations fall and means rise along it."""

    def __init__(self, mean: Array, deviation: Array) -> None:
        largest = float(deviation.max(initial=0.0))
        bins = (deviation * (BINS / largest if largest else 0.0)).astype(np.intp)
        np.minimum(bins, BINS - 1, out=bins)
        highest = np.full(BINS, -np.inf)
        np.maximum.at(highest, bins, mean)
        edges = np.linspace(0.0, largest, BINS + 1)[1:]
        edges[-1] = largest
        # A bin counts where its mean is above those of all bins of larger deviations.
        above = np.maximum.accumulate(np.append(-np.inf, highest[:0:-1]))[::-1]
        some = np.flatnonzero(highest > above)[::-1]
        self.mean = highest[some]
        self.deviation = edges[some]

    def highest(self, acquisition: Rising, moved: float) -> float:
        """A bound on the values of all arms, D = moved from their time."""
        bound = acquisition.upper(self.mean, self.deviation, moved)
        return float(bound.max(initial=-np.inf))


class Promise:
    """No arm left out has a value above θ, for acquisitions up to one, and D up to some D_max.

    Where that is not enough, θ is computed anew from a skyline, which is made when first needed.
    """

    def __init__(
        self, theta: float, acquisition: Rising, moved: float, skyline: Callable[[], Skyline]
    ) -> None:
        self.planned = moved
        self._theta = theta
        self._acquisition = acquisition
        self._moved = moved
        self._make = skyline
        self._skyline: Skyline | None = None

    def keeps_below(self, least: float, acquisition: Rising, moved: float) -> bool:
        """Whether no arm left out reaches so much."""
        holds = moved <= self._moved and acquisition.is_below(self._acquisition)
        if holds and self._theta < least:
            return True
        if self._skyline is None:
            self._skyline = self._make()
        if self._skyline.highest(acquisition, moved) >= least:
            return False
        # With as much room for the next steps as there is.
        for room in ROOMS:
            further = moved + room * acquisition.beta
            ahead = acquisition.ahead(room * acquisition.beta)
            theta = self._skyline.highest(ahead, further)
            if theta < least:
                self._theta = theta
                self._acquisition = ahead
                self._moved = further
                break
        return True
