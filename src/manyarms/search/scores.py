"""What a policy asks of the scores of its arms, and how it picks one: the largest upper bound, or
otherwise.

Scores are held as a cache beside the belief. They are never part of the state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from manyarms.checks import LARGEST
from manyarms.engine.base import Arms, Belief, Step
from manyarms.engine.dictionary import Chance
from manyarms.engine.history import Log
from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import shown
from manyarms.search.tuning import Tuning
from manyarms.typing import Array, Indices, Mask

TIE = 1e-9
"""Scores closer to the largest than this, relative to |μ̃| + β̃σ̃ there, are ties."""

ROWS = 1 << 16
"""Rows whose k(x, x) is computed at a time: a mapped table is not copied as a whole."""

Acquisition = Callable[[Array, Array], tuple[Array, Array]]
"""Of means and deviations σ̃, (n,) each: what is to be largest, monotone in either, and by how much
rounding may change it."""


class Rising:
    """An acquisition that rises with the mean and with the deviation: bounds on both bound it.

    So most arms are passed over by what they cannot exceed.
    """

    beta: float  # β̃, by which deviations are multiplied

    def __call__(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        """Values, and by how much rounding may change each."""
        raise NotImplementedError

    def needed(self, value: float, deviation: Array) -> Array:
        """Means below which arms of such deviations do not reach a value."""
        raise NotImplementedError


@dataclass(frozen=True)
class Upper(Rising):
    """u = μ̃ + β̃σ̃ (Eq. 4 of the paper)."""

    beta: float

    def __call__(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        width = self.beta * deviation
        return mean + width, TIE * (abs(mean) + width)

    def needed(self, value: float, deviation: Array) -> Array:
        """What β̃σ̃ leaves of the value."""
        return value - self.beta * deviation


class Scores(NamedTuple):
    """μ̃, σ̃² (leverage units) and μ̃ + β̃σ̃ of every arm, each (A,)."""

    mean: Array
    variance: Array
    ucb: Array


class ArmScores(Protocol):
    """Scores of arms at a belief: a value."""

    def after(self, step: Step) -> Self:
        """At the belief after one more step."""

    def supposing(self, positions: Indices) -> "ArmScores":
        """If these arms were pulled once more each: variances fall, means stay."""

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value that may be chosen; of those that tie with it, the lowest
        index."""

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms as they are kept: right but for rounding."""

    def means(self, positions: Indices | None = None) -> tuple[Array, float]:
        """μ̃ of some arms, or of all, as they are kept, and what they may be wrong by beyond
        rounding."""

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all, by the one function that scores."""


class AllScored(ArmScores, Protocol):
    """Scores of arms that are all known: the other methods follow from `current`."""

    def means(self, positions: Indices | None = None) -> tuple[Array, float]:
        return self.moments(positions)[0], 0.0

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


@runtime_checkable
class RowsElsewhere(Protocol):
    """The rows of a table that are not in this process. Those of a few arms are fetched."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, numbers: Indices) -> Array: ...

    def diagonal_of(self, kernel: Kernel, regularization: float) -> Array:
        """k(x, x) of all rows, checked; what can be asked for some of them by number."""

    def scores_at(self, belief: Belief, tuning: Tuning) -> ArmScores:
        """The scores of all rows at a belief."""


def diagonal(kernel: Kernel, rows: Array, regularization: float) -> Array:
    """k(x, x) of rows, (n,): finite, not negative, and within what λ allows."""
    blocks = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
    parts = [kernel.diag(block.astype(np.float64, copy=False)) for block in blocks]
    diag: Array = np.concatenate([np.zeros(0), *parts])
    bad = ~(np.isfinite(diag) & (diag >= 0))  # NaN is neither
    if bad.any():
        raise KernelError(
            f"k(x, x) must be finite and not negative, got {diag[bad][0]} at x = "
            f"{shown(kernel, rows[bad][0])}"
        )
    if diag.max(initial=0.0) > LARGEST * regularization:
        raise NumericalError(
            f"k(x, x)/λ must be at most {LARGEST:.0e}, got k(x, x) = {diag.max():.3g} and λ = "
            f"{regularization:.3g}: raise `regularization`, or scale the kernel down"
        )
    return diag


def best_of(values: Array, tolerance: Array, barred: Mask | None = None) -> int:
    """The position of the largest value that may be chosen; of those within its tolerance, the
    lowest.

    The values are the caller's to give away.
    """
    if barred is not None:
        values[barred] = -np.inf
    best = int(np.argmax(values))
    return int(np.argmax(values >= values[best] - tolerance[best]))


class View(NamedTuple):
    """What a chooser may look at."""

    scores: ArmScores  # with the pulls before this one supposed, where the chooser looks at them
    beta: float  # β̃
    regularization: float  # λ
    barred: Mask | None  # arms that must not be picked
    n_arms: int  # that may be picked; behind them there may be arms that are only pending
    log: Log  # what was observed of the arms that are scored; empty where they were given by value
    n_observations: int
    number: int  # arms pending or picked before this one in the same batch
    chance: Chance  # of the policy; a chooser draws by `chance.at(n_observations, number)`


class Chooser(Protocol):
    """Picks one arm: the other half of a policy beside its belief."""

    looks: ClassVar[bool]  # at scores; False where they need not be brought forward for it

    def pick(self, view: View) -> int: ...


@dataclass(frozen=True)
class UpperBound:
    """The arm of largest μ̃ + β̃σ̃ (line 5 of Algorithm 1)."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        return view.scores.arg_max(Upper(view.beta), view.barred)
