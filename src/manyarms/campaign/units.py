"""From the user's values to rewards a Gaussian process can model, and back.

Values of the better half keep their distances. The worse half goes by rank: a diverged training
that is a million times worse than the median must not drown the differences that matter (the
half-rank warp of Vizier's Gaussian process bandit, Song et al. 2024). The map is strictly
increasing and piecewise linear, so predictions are mapped back.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from manyarms.typing import Array

ROUNDING, SMALLEST = 1e-12, 1e-100
"""Values closer than the first, relative to the median and the best, or than the second are taken
as equal."""
HIGHEST = 3.0
"""Reward of the best value, at most, in `half_log`."""


@dataclass(frozen=True)
class Warp:
    """A strictly increasing map through knots, straight on beyond the first and the last but not
    below a floor."""

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
    def half_rank(cls, means: Array) -> "Warp":
        """Made for the mean values of distinct arms: the median goes to 0, the better half has root
        mean square 1."""
        median = float(np.median(means))
        equal = max(ROUNDING * max(abs(median), abs(float(means.max()))), SMALLEST)
        better = means[means >= median] - median
        largest = float(better.max())
        if largest > equal:
            scale = largest * float(np.sqrt(np.mean(np.square(better / largest))))
        else:
            scale = median - float(means.min())
            scale = scale if scale > equal else max(abs(median), 1.0)
        worse = np.unique(means[means < median - equal])
        ranks = np.searchsorted(np.sort(means), worse) + 0.5
        rewards = np.concatenate([scipy.special.ndtri(ranks / len(means)), [0.0, 1.0]])
        return cls(
            np.concatenate([worse, [median, median + scale]]), rewards, float(rewards[0]) - 1.0
        )

    @classmethod
    def half_log(cls, means: Array, least: float) -> "Warp":
        """As `half_rank`, but worse values go to −ln(1 + distance to the median), and the unit is
        at least `least` and large enough for the best value to be at most HIGHEST.

        For a domain in which values pile up where they are good: their differences soon are noise.
        It nowhere stretches: where a smooth function is flat, ranks would be those of noise.
        """
        half = cls.half_rank(means)
        median, unit = float(half.values[-2]), float(half.values[-1] - half.values[-2])
        unit = max(unit, least, (float(means.max()) - median) / HIGHEST)
        worse = half.values[:-2]
        rewards = np.concatenate([-np.log1p((median - worse) / unit), [0.0, 1.0]])
        return cls(
            np.concatenate([worse, [median, median + unit]]), rewards, float(rewards[0]) - 1.0
        )

    @property
    def slope(self) -> float:
        """Of the better half: rewards a value."""
        return float((self.rewards[-1] - self.rewards[-2]) / (self.values[-1] - self.values[-2]))

    def shifted(self, by: float) -> "Warp":
        """Rewards less a constant."""
        return Warp(self.values, self.rewards - by, self.floor - by)

    def reward(self, values: Array) -> Array:
        return np.maximum(_through(self.values, self.rewards, values), self.floor)

    def value(self, rewards: Array) -> Array:
        return _through(self.rewards, self.values, rewards)


def _through(x: Array, y: Array, at: Array) -> Array:
    """Linear interpolation, and the outermost pieces continued."""
    piece = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    slope = (y[piece + 1] - y[piece]) / (x[piece + 1] - x[piece])
    return np.asarray(y[piece] + slope * (at - x[piece]))
