"""From the user's values to rewards a Gaussian process can model, and back.

Values of the better half keep their distances. The worse half goes by logarithm: a diverged
training that is a million times worse than the median must not drown the differences that matter.
Ranks, as in the half-rank warp of Vizier's Gaussian process bandit (Song et al. 2024), would bound
them as well, but stretch what lies close together: where most values differ by noise alone, noise
would fill the scale (docs/experiments/defaults.md). The map is strictly increasing and piecewise
linear, so predictions are mapped back.

No answer is ever infinite or NaN, because values are at most 1e100 in size (`numbers.LARGEST`) and
units are made so that rewards, their noise and the slopes of the map stay moderate: every unit
comes from `_halves`, every noise from `Warp.noise`, every map from `_distinct` knots.
"""

from dataclasses import dataclass

import numpy as np

from manyarms.typing import Array

EQUAL_SHARE, SMALLEST_GAP = 1e-12, 1e-100
"""Two values are equal if they differ by less than the first number as a share of their size, or by
less than the second number: that is rounding."""
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
HIGHEST = 3.0
"""Reward of the best mean, at most."""
DEEP = 3.0
"""Depth below 0 from which the logarithm is taken two more times, so that the worst value of all is
at about −5."""


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
