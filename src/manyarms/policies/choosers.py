"""How an arm is picked, given the scores of all arms: the other half of a policy beside its belief."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from manyarms.search.scores import ArmScores, Upper
from manyarms.sketch.dictionary import Chance
from manyarms.sketch.log import Log
from manyarms.typing import Mask


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
    """Picks one arm."""

    looks: ClassVar[bool]  # at scores; False where they need not be brought forward for it

    def pick(self, view: View) -> int: ...


@dataclass(frozen=True)
class UpperBound:
    """The arm of largest μ̃ + β̃σ̃."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        return view.scores.arg_max(Upper(view.beta), view.barred)
