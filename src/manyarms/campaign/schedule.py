"""When a model is fitted, and when a box is searched elsewhere: functions of the results alone.

Whoever reads the same results has the same schedule, whether they came one by one or all at once.
So units are made of results here, never of what a model learned from them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyarms.campaign.fitting import LEAST_NOISE_SHARE
from manyarms.campaign.trials import Results
from manyarms.campaign.units import Warp

SURPRISE = 5.0
"""Refit at once when a reward beats the best one known at the last fit by this much: the scaling is
out of date."""
GAIN = 0.01
"""Units by which a value must be better than the best one, or the search of a box goes nowhere."""
STALLED = 30
"""Results asked for in a row, none better than the best one, after which a search of a box has
stalled."""
SHARE = 4
"""A search elsewhere also waits until a quarter of all results have come since the last
improvement, so that it takes a smaller share of a longer run."""


@dataclass(frozen=True)
class Schedule:
    """When a model is fitted anew, and in which units."""

    start: int  # results of candidates drawn at random, or by a prior, before the model chooses
    growth: float  # a fit comes when there are so many times more results than at the last
    thorough: float  # the same of fits that look for a kernel everywhere, not near the last such
    least_noise: float = LEAST_NOISE_SHARE  # variance of rewards
    noises: float = 0.0  # standard deviations of the noise in a unit, at least
    patience: int | None = None  # results without a gain before a search elsewhere; None: no such


TABLE = Schedule(start=4, growth=1.2, thorough=1.0)
"""Of a table: every fit looks everywhere. More random candidates cost more than they teach
(docs/experiments/defaults.md)."""
LEVELS = Schedule(start=8, growth=1.05, thorough=1.2, least_noise=1e-6, noises=10.0)
"""Of a box that is a product of levels, which is searched from many starts anyway. It has no table
to look at, so it begins with more random points. Near a maximum differences are small parts of a
unit, so the noise may be smaller. A unit has ten standard deviations of it at least, while that is
less than the standard deviation of all means."""
BOX = Schedule(**{**vars(LEVELS), "patience": STALLED})
"""Of other boxes."""


class Gains(NamedTuple):
    """The best value so far, and how many results were asked for since it was last improved."""

    top: float = -np.inf
    stalled: int = 0

    def after(self, value: float, n_asked: int, least: float) -> "Gains":
        """After results of which this is the best, and of which so many were asked for; less than
        `least` is no gain."""
        return Gains(value) if value > self.top + least else Gains(self.top, self.stalled + n_asked)


NO_GAINS = Gains()


@dataclass(frozen=True)
class Plan:
    """What the first n results say of fits, and of a search elsewhere."""

    n: int = 0
    fitted: int = 0  # results of the last fit, 0 before the first
    thorough: int = 0  # results of the last fit that looked everywhere
    surprise: float = np.inf  # a value above this asks for a fit
    least_gain: float = 0.0
    gains: Gains = NO_GAINS
    elsewhere: int | None = None  # results when a search elsewhere began, None while there is none
    others: Gains = NO_GAINS  # of that search

    def after(self, results: Results, schedule: Schedule) -> "Plan":
        """The plan of all results, of which this one knows the first n."""
        plan = self
        new = results.at(slice(self.n, None))
        start = self.n
        for stop in (self.n + new.ends).tolist():
            plan = plan._told(results, start, stop, schedule)
            start = stop
        return plan

    def _told(self, results: Results, start: int, stop: int, schedule: Schedule) -> "Plan":
        """After one more `tell`."""
        values = results.values[start:stop]
        highest = float(values.max())
        fitted, thorough = self.fitted, self.thorough
        surprise, least_gain = self.surprise, self.least_gain
        is_due = self.elsewhere is None and stop >= max(fitted + 1, int(schedule.growth * fitted))
        if is_due or highest > surprise:
            if not is_due or stop >= schedule.thorough * thorough:
                thorough = stop
            fitted = stop
            known = results.at(slice(stop))
            units = Warp.half_log(known.by_arm.means, float(known.values.max()))
            surprise = float(units.value(units.reward(known.values.max()) + SURPRISE))
            least_gain = GAIN / units.slope
        found = Plan(
            stop, fitted, thorough, surprise, least_gain, self.gains, self.elsewhere, self.others
        )
        return found._searched(results, start, schedule.patience) if schedule.patience else found

    def _searched(self, results: Results, start: int, patience: int) -> "Plan":
        """With what the results from `start` on say of the search: it goes on, begins or ends."""
        values, known = results.values[start : self.n], results.known[start : self.n]
        n_asked = int((known >= 0).sum())
        gains = self.gains.after(float(values.max()), n_asked, self.least_gain)
        elsewhere, others = self.elsewhere, self.others
        if elsewhere is None and gains.stalled >= max(patience, self.n // SHARE):
            elsewhere, others = self.n, NO_GAINS
        elif elsewhere is not None:
            mine = values[(known < 0) | (known >= elsewhere)]
            if len(mine):
                others = others.after(float(mine.max()), n_asked, self.least_gain)
            if others.stalled >= patience:
                elsewhere, gains = None, Gains(gains.top)
        return Plan(
            self.n,
            self.fitted,
            self.thorough,
            self.surprise,
            self.least_gain,
            gains,
            elsewhere,
            others,
        )


def elsewhere(results: Results, start: int) -> Results:
    """The results that a search elsewhere knows, which began when there were so many: later ones,
    but for those asked for before."""
    later = results.at(slice(start, None))
    return later.at((later.known < 0) | (later.known >= start))
