"""What a policy asks of the scores of its arms: who is best. Held as a cache beside the belief, never part of the state."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.typing import Array, Indices, Mask

TIE = 1e-9
"""Scores closer to the largest than this, relative to |μ̃| + β̃σ̃ there, are ties."""

Acquisition = Callable[[Array, Array], tuple[Array, Array]]
"""Of means and deviations σ̃, (n,) each: what is to be largest, monotone in either, and by how much rounding may change it."""


class Upper:
    """u = μ̃ + β̃σ̃ (Eq. 4 of the paper)."""

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def __call__(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        width = self.beta * deviation
        tolerance = np.abs(mean)
        tolerance += width
        tolerance *= TIE
        width += mean
        return width, tolerance


class Scores(NamedTuple):
    """μ̃, σ̃² (leverage units) and μ̃ + β̃σ̃ of every arm, each (A,)."""

    mean: Array
    variance: Array
    ucb: Array


class ArmScores(Protocol):
    """Scores of the arms of a table at a belief, as a value."""

    def after(self, step: Step) -> Self:
        """At the belief after one more step."""

    def supposing(self, positions: Indices) -> Self:
        """If these arms were pulled once more each: variances fall, means stay."""

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value that may be chosen; of those that tie with it, the lowest index."""

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms as they are kept: right but for rounding."""

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all, by the one function that scores."""


class AllScored(ArmScores, Protocol):
    """Scores of arms that are all known: the other methods follow from `current`."""

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        mean, variance = self.current()
        return (mean, variance) if positions is None else (mean[positions], variance[positions])

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        mean, variance = self.current()
        return best_of(*acquisition(mean, np.sqrt(variance)), barred)


@runtime_checkable
class KeepsScores(Protocol):
    """A belief that keeps the scores of arms itself."""

    def scores(self, arms: Arms) -> ArmScores: ...


def best_of(values: Array, tolerance: Array, barred: Mask | None = None) -> int:
    """The position of the largest value that may be chosen; of those within its tolerance, the lowest.

    The values are the caller's to give away.
    """
    if barred is not None:
        values[barred] = -np.inf
    best = int(np.argmax(values))
    return int(np.argmax(values >= values[best] - tolerance[best]))
