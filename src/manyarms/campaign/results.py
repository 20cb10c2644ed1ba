"""The results that a model learns from, and what follows from them alone: units of rewards, when a
model is fitted, and when a box is searched elsewhere.

Whoever reads the same results has the same units and the same schedule, whether they came one by
one or all at once. So nothing here depends on what a model learned from them.

Rewards are what a Gaussian process can model. Values of the better half keep their distances. The
worse half goes by logarithm: a diverged training that is a million times worse than the median must
not drown the differences that matter. Ranks, as in the half-rank warp of Vizier's Gaussian process
bandit (Song et al. 2024), would bound them as well, but stretch what lies close together: where
most values differ by noise alone, noise would fill the scale (docs/experiments/defaults.md). The
map is strictly increasing and piecewise linear, so predictions are mapped back.

No answer is ever infinite or NaN, because values are at most 1e100 in size (`checks.LARGEST`) and
units are made so that rewards, their noise and the slopes of the map stay moderate: every unit
comes from `_halves`, every noise from `Warp.noise`, every map from `_distinct` knots.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manyarms.typing import Array, Indices, Mask

LEAST_DEVIATION = 1e-100
"""Standard deviation of a noise that was told, at least: its inverse square is finite."""
EQUAL_SHARE, SMALLEST_GAP = 1e-12, 1e-100
"""Two values are equal if they differ by less than the first number as a share of their size, or by
less than the second number: that is rounding."""
FIRST = 10
"""Results of which the median is the usual value of a candidate: later ones were chosen for being
good."""
TAIL = 2.0
"""A value counts as no further below the usual one than so many times what the best mean is above
it, where the scale of values is asked for: a few that are very bad say nothing of the others."""
MOST_SCATTER = 10.0
"""Units by which a single value may be above the best mean, at most. Noise explains it up to there,
and `fitting` allows noise of up to three units."""
MOST_NOISE = 1e50
"""Standard deviation of a reward, at most: a value so uncertain says nothing, and the square of its
square still fits float64."""
APART = 1e-9
"""Difference between the rewards of two knots, at least. Rewards are at most √n in size for n
arms."""
LEAST_REWARD_NOISE = 1e-5
"""Standard deviation of the noise of a reward, at least: smaller noise counts as this much, so that
rounding stays harmless."""
LEAST_NOISE_SHARE = 1e-4
"""Noise variance of a fit of a table, at least: rounding is still harmless."""
HIGHEST = 3.0
"""Reward of the best mean, at most."""
DEEP = 3.0
"""Depth below 0 from which the logarithm is taken two more times, so that the worst value of all is
at about −5."""
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


class Results(NamedTuple):
    """What a model learns from: the results that have a value, in the order told, (n,) each."""

    arms: Indices
    values: Array  # signed: larger is better
    noise: Array  # standard deviations, NaN where none was told
    tells: Indices  # the number of the `tell` that brought each, never falling
    known: Indices  # results that there were when it was asked for, −1 where nobody asked

    @classmethod
    def at_once(cls, arms: Indices, values: Array, noise: Array) -> "Results":
        """Results that one `tell` brought, and nobody had asked for."""
        n = len(arms)
        return cls(arms, values, noise, np.zeros(n, dtype=np.intp), np.full(n, -1))

    def at(self, places: Any) -> "Results":
        """Some of them, by a slice, a mask or their places."""
        return Results(*(column[places] for column in self))

    @property
    def ends(self) -> Indices:
        """How many results there were after each `tell`."""
        n = len(self.tells)
        return np.append(np.flatnonzero(np.diff(self.tells)) + 1, n)[:n]

    @property
    def weights(self) -> Array:
        """The inverse squares of the noise that was told, 1 where none was."""
        told = np.maximum(self.noise, LEAST_DEVIATION)
        return 1 / np.square(np.where(np.isnan(told), 1.0, told))

    @property
    def by_arm(self) -> "ByArm":
        """Mean values of distinct arms."""
        told = ~np.isnan(self.noise)
        keys, at = np.unique(2 * self.arms + told, return_inverse=True)
        weights = self.weights
        total = np.bincount(at, weights).astype(np.float64)
        means = np.bincount(at, weights * self.values) / total
        return ByArm(keys // 2, keys % 2 == 1, total, means, at)

    @property
    def spread(self) -> float:
        """Standard deviation of the means of distinct arms, without a tail of bad ones."""
        means = self.by_arm.means
        usual = float(np.median(self.at(slice(FIRST)).by_arm.means))
        return float(np.maximum(means, usual - TAIL * (means.max() - usual)).std())

    def begin(self, other: "Results") -> bool:
        """Whether others begin with these."""
        n = len(self.arms)
        return n <= len(other.arms) and all(
            np.array_equal(mine, theirs[:n], equal_nan=mine.dtype.kind == "f")
            for mine, theirs in zip(self, other, strict=True)
        )


class ByArm(NamedTuple):
    """Results by arm; of an arm those whose noise was told are apart."""

    arms: Indices  # (u,)
    known: Mask  # (u,) whether their noise was told
    total: Array  # (u,) their weights: how many, or the sum of the inverse squares of their noise
    means: Array  # (u,) of values
    at: Indices  # (n,) which of these each result is of


@dataclass(frozen=True)
class Warp:
    """A strictly increasing map through knots. It continues as a straight line beyond the first and
    the last knot, and never goes below a floor."""

    values: Array  # (k,) increasing
    rewards: Array  # (k,) increasing
    floor: float = (
        -np.inf
    )  # least reward: one bad value must not drown all others before the map is made anew

    @classmethod
    def identity(cls) -> "Warp":
        """Rewards are values."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]))

    @classmethod
    def half_log(cls, means: Array, best: float, least: float = 0.0) -> "Warp":
        """Made for the mean values of distinct arms, and the best single value: the median goes to
        0 and the better half has root mean square 1, or less where the unit that makes it so is
        below `least` or puts the best mean above HIGHEST. A value d units below the median goes to
        −ln(1 + d), or less far where that is beyond DEEP."""
        median, unit, worse = _halves(means, best)
        unit = max(unit, least, (float(means.max()) - median) / HIGHEST)
        values = np.concatenate([worse, [median, median + unit]])
        rewards = np.concatenate([-_depth((median - worse) / unit), [0.0, 1.0]])
        floor = float(rewards[0]) - 1.0
        return cls(*_distinct(values, rewards), floor)

    @property
    def slope(self) -> float:
        """Of the better half: rewards a value."""
        return float((self.rewards[-1] - self.rewards[-2]) / (self.values[-1] - self.values[-2]))

    def noise(self, sd: Array | float) -> Array:
        """The standard deviations of rewards that belong to these standard deviations of values."""
        return np.clip(np.multiply(sd, self.slope), LEAST_REWARD_NOISE, MOST_NOISE)

    def shifted(self, by: float) -> "Warp":
        """The same map with a constant subtracted from rewards."""
        return Warp(self.values, self.rewards - by, self.floor - by)

    def reward(self, values: Array) -> Array:
        return np.maximum(_through(self.values, self.rewards, values), self.floor)

    def value(self, rewards: Array) -> Array:
        return _through(self.rewards, self.values, rewards)


def _halves(means: Array, best: float) -> tuple[float, float, Array]:
    """The median, a unit for what is better, and the different values that are worse."""
    median = float(np.median(means))
    equal = max(EQUAL_SHARE * max(abs(median), abs(float(means.max()))), SMALLEST_GAP)
    better = means[means >= median] - median
    largest = float(better.max())
    if largest > equal:
        unit = largest * float(np.sqrt(np.mean(np.square(better / largest))))
    else:
        unit = median - float(means.min())
        unit = unit if unit > equal else max(abs(median), 1.0)
    worse = np.unique(means[means < median - equal])
    # Float64 can tell such a unit from 0 beside the median.
    unit = max(unit, equal, (best - float(means.max())) / MOST_SCATTER)
    return median, unit, worse


def _depth(distances: Array) -> Array:
    """How far below 0 rewards are, of distances to the median in units."""
    depth = np.log1p(distances)
    beyond = np.log1p(np.log1p(np.maximum(depth - DEEP, 0.0)))
    return np.minimum(depth, DEEP) + beyond


def _distinct(values: Array, rewards: Array) -> tuple[Array, Array]:
    """The knots without those that nearly coincide with the next one, in values or rewards, so that
    all slopes and their inverses are finite."""
    size = np.maximum(np.abs(values[:-1]), np.abs(values[1:]))
    apart = np.diff(values) > np.maximum(EQUAL_SHARE * size, SMALLEST_GAP)
    apart &= np.diff(rewards) > APART
    kept = np.append(apart, True)
    kept[-2:] = True
    return values[kept], rewards[kept]


def _through(x: Array, y: Array, at: Array) -> Array:
    """Linear interpolation, and the outermost pieces continued."""
    piece = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    slope = (y[piece + 1] - y[piece]) / (x[piece + 1] - x[piece])
    return np.asarray(y[piece] + slope * (at - x[piece]))


@dataclass(frozen=True)
class Schedule:
    """When a model is fitted anew, and in which units."""

    start: int  # results of candidates drawn at random, or by a prior, before the model chooses
    growth: float  # a fit comes when there are so many times more results than at the last
    thorough: float  # the same of fits that look for a kernel everywhere, not near the last such
    least_noise: float = LEAST_NOISE_SHARE  # variance of rewards
    noises: float = 0.0  # standard deviations of the noise in a unit, at least
    spread: bool = False  # whether a unit is no less than the spread of all values
    patience: int | None = None  # results without a gain before a search elsewhere; None: no such


TABLE = Schedule(start=4, growth=1.2, thorough=1.0, spread=True)
"""Of a table: every fit looks everywhere. Once a run has settled most values are of good candidates
and differ by noise. In such units no other candidate could look better, whatever its value may be.
So a unit remembers what values there were. More random candidates cost more than they teach
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
