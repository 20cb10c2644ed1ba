"""Baselines that any method must beat: uniform play and ε-greedy.

Both learn BKB's sketch beside what they choose, so that `predict`, `scores` and `best` mean the same as everywhere.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.numbers import real
from manyarms.policies.adaptive import Adaptive
from manyarms.policies.base import Lookahead
from manyarms.policies.rules import Blind
from manyarms.policies.working import AdaptiveState
from manyarms.sketch.choice import arg_max, score
from manyarms.typing import Array, ArrayLike, Mask


class Uniform(Blind, Adaptive):
    """An arm uniformly at random, at every step. Regret is linear in T: what others' regret is measured against.

    Options are those of `BKB`. A choice is O(1).
    """

    _state: AdaptiveState

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        return _any_arm(self._dice(number), self.n_arms, barred)

    def _dice(self, number: int) -> np.random.Generator:
        """What decides after t observations, `number` arms pending: `choose` stays pure."""
        return self._state.chance.at(self._state.history.n_observations, number)


class EpsilonGreedy(Uniform):
    """With probability ε an arm uniformly at random, else the arm of largest mean μ̃ on BKB's sketch (found lazily).

    With a constant ε regret is linear, at least ε times that of uniform play. On A arms with independent rewards
    ε_t = min(1, c/t) has logarithmic regret if c is large enough for the gaps (Auer, Cesa-Bianchi, Fischer 2002, Theorem 3);
    for means that are estimated on a sketch no guarantee is known.

    epsilon : a probability, or a function of the number t ≥ 1 of observations, such as ``lambda t: 50 / t``; what exceeds 1
        counts as 1.
    options : those of `BKB`.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        epsilon: float | Callable[[int], float] = 0.1,
        **options: Any,
    ) -> None:
        self.epsilon = epsilon if callable(epsilon) else real(epsilon, "epsilon", "a probability, not negative", at_least=0)
        super().__init__(arms, kernel, **options)

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        dice = self._dice(number)
        return _any_arm(dice, self.n_arms, barred) if dice.random() < self._epsilon_now() else self._greedy(barred)

    def _epsilon_now(self) -> float:
        if not callable(self.epsilon):
            return self.epsilon
        epsilon = self.epsilon(max(1, self._state.history.n_observations))
        return real(epsilon, "what epsilon returns", "a probability, not negative", at_least=0)

    def _greedy(self, barred: Mask | None) -> int:
        """The arm of largest mean: of largest upper bound, the radius 0."""
        state = self._state
        if state.exact or not state.history.n_observations:
            return arg_max(score(*self.scores()[:2], 0.0, barred))
        return state.frontier.arg_max(0.0, self._accuracy(), barred)


def _any_arm(dice: np.random.Generator, n_arms: int, barred: Mask | None) -> int:
    return int(dice.integers(n_arms) if barred is None else dice.choice(np.flatnonzero(~barred)))
