"""What bandits that are linear in explicit features φ(x) share: two ways to choose.

``choice="ucb"`` takes the largest μ + β̃σ, ``choice="thompson"`` the largest φ(x)ᵀθ, θ ~ N(w,
β̃²V⁻¹). As sd(f) = √λσ, the radius `Constant(1.0)` draws θ from the posterior itself. The draw is a
function of the seed, of how much was observed and of how many arms are supposed pulled. So `choose`
answers the same when it is asked twice, and a batch is a sequence of pending choices.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from manyarms.errors import ParameterError
from manyarms.policies.batches import GlobalRule
from manyarms.search.scores import TIE, Chooser, UpperBound, View, best_of
from manyarms.sketch.confidence import Constant, Radius
from manyarms.typing import Array, Mask


@runtime_checkable
class Drawable(Protocol):
    """Scores from which values of all arms can be drawn."""

    def drawn(self, beta: float, dice: np.random.Generator) -> Array: ...


@dataclass(frozen=True)
class DrawnWeights:
    """The best arm for weights drawn from the posterior, the arms before it supposed pulled."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        return best_drawn(view)


def best_drawn(view: View) -> int:
    """The best arm of a draw, a function of how much was observed and of the number of the pick."""
    if not isinstance(view.scores, Drawable):
        raise ParameterError(
            f"{type(view.scores).__name__} cannot be drawn from: choose by upper bounds"
        )
    values = view.scores.drawn(view.beta, view.chance.at(view.n_observations, view.number))
    return allowed_best(values, view.barred)


def allowed_best(values: Array, barred: Mask | None) -> int:
    """The position of the largest value that may be chosen; of ties, the lowest."""
    tolerance = TIE * np.abs(values)
    return best_of(values if barred is None else np.where(barred, -np.inf, values), tolerance)


CHOICES: dict[str, tuple[Chooser, Radius]] = {
    "ucb": (UpperBound(), Constant(2.0)),
    "thompson": (DrawnWeights(), Constant(1.0)),
}
"""The choosers, and the radius that each has unless one is given."""


def chosen_by(choice: str, confidence: Radius | None) -> dict[str, Any]:
    """The options of `Policy` that a choice stands for."""
    if choice not in CHOICES:
        raise ParameterError(f"choice must be one of {sorted(CHOICES)}, got {choice!r}")
    chooser, radius = CHOICES[choice]
    own = radius if confidence is None else confidence
    return {"chooser": chooser, "confidence": own, "batches": GlobalRule()}
