"""Baselines that any method must beat: uniform play and ε-greedy.

Both learn BKB's sketch beside what they choose, so that `predict`, `scores` and `best` mean the
same as everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyarms.beliefs.frozen import Inserted
from manyarms.numbers import real
from manyarms.policies.policy import Policy
from manyarms.search.scores import Upper, View
from manyarms.typing import ArrayLike


@dataclass(frozen=True)
class AnyArm:
    """An arm uniformly at random, whatever is known."""

    looks: ClassVar[bool] = False

    def pick(self, view: View) -> int:
        return _any_arm(_dice(view), view)


@dataclass(frozen=True)
class Greedy:
    """With probability ε an arm uniformly at random, else the arm of largest mean."""

    epsilon: float | Callable[[int], float]

    looks: ClassVar[bool] = False  # at variances, which supposed pulls would change

    def __post_init__(self) -> None:
        if not callable(self.epsilon):
            real(self.epsilon, "epsilon", "a probability, not negative", at_least=0)

    def pick(self, view: View) -> int:
        dice = _dice(view)
        if dice.random() < self._now(max(1, view.n_observations)):
            return _any_arm(dice, view)
        return view.scores.arg_max(Upper(0.0), view.barred)

    def _now(self, t: int) -> float:
        if not callable(self.epsilon):
            return self.epsilon
        epsilon = self.epsilon(t)
        return real(epsilon, "what epsilon returns", "a probability, not negative", at_least=0)


def _dice(view: View) -> np.random.Generator:
    """What decides after t observations, so many arms pending: `choose` stays pure."""
    return view.chance.at(view.n_observations, view.number)


def _any_arm(dice: np.random.Generator, view: View) -> int:
    if view.barred is None:
        return int(dice.integers(view.n_arms))
    return int(dice.choice(np.flatnonzero(~view.barred)))


class Uniform(Policy):
    """An arm uniformly at random, at every step.

    Regret is linear in T: what others' regret is measured against. A choice is O(1). Options are
    those of `BKB`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path | None,
        kernel: Any,
        *,
        rule: Inserted = Inserted(),
        **options: Any,
    ) -> None:
        super().__init__(arms, kernel, rule=rule, chooser=AnyArm(), **options)


class EpsilonGreedy(Policy):
    """With probability ε an arm uniformly at random, else that of largest mean on BKB's sketch.

    With a constant ε regret is linear, at least ε times that of uniform play. On A arms with
    independent rewards ε_t = min(1, c/t) has logarithmic regret if c is large enough for the gaps
    (Auer, Cesa-Bianchi, Fischer 2002, Theorem 3); for means that are estimated on a sketch no
    guarantee is known.

    epsilon : a probability, or a function of the number t ≥ 1 of observations, such as ``lambda t:
        50 / t``; what exceeds 1 counts as 1.
    rule, options : those of `BKB`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path | None,
        kernel: Any,
        *,
        epsilon: float | Callable[[int], float] = 0.1,
        rule: Inserted = Inserted(),
        **options: Any,
    ) -> None:
        super().__init__(arms, kernel, rule=rule, chooser=Greedy(epsilon), **options)
