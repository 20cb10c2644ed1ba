"""The arg max of the scores, with ties decided the same way everywhere."""

from typing import NamedTuple

import numpy as np

from manyarms.typing import Array, Mask

TIE = 1e-9
"""Scores closer to the largest than this, relative to |μ̃| + β̃σ̃ there, are ties."""


class Scores(NamedTuple):
    """μ̃, σ̃² (leverage units) and μ̃ + β̃σ̃ of every arm, each (A,)."""

    mean: Array
    variance: Array
    ucb: Array


def score(mean: Array, variance: Array, beta: float, barred: Mask | None = None) -> Scores:
    """u(x) = μ̃(x) + β̃σ̃(x) (Eq. 3); −∞ for arms that must not be chosen."""
    ucb = mean + beta * np.sqrt(variance)
    if barred is not None:
        ucb[barred] = -np.inf
    return Scores(mean, variance, ucb)


def arg_max(scores: Scores) -> int:
    """The arm of largest score; of those that tie with it within rounding, the lowest index.

    The tolerance scales with rewards and kernel together, so that rescaling a problem does not change its choices.
    """
    mean, _, ucb = scores
    best = int(np.argmax(ucb))
    tolerance = TIE * (abs(mean[best]) + abs(ucb[best] - mean[best]))
    return int(np.argmax(ucb >= ucb[best] - tolerance))


def largest(values: Array, tolerance: Array, barred: Mask | None = None) -> int:
    """The arm of largest value that may be chosen; of those within the tolerance of it (its own), the lowest index."""
    allowed = values if barred is None else np.where(barred, -np.inf, values)
    best = int(np.argmax(allowed))
    return int(np.argmax(allowed >= allowed[best] - tolerance[best]))
