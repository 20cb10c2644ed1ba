"""Choosers that roll dice, on BKB's sketch: uniform play, ε-greedy and Thompson sampling.

All learn BKB's sketch beside what they choose, so that `predict`, `scores` and `best` mean the same
as everywhere. What is drawn is a function of how much was observed and of the number of the pick,
so that `choose` stays pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from manyarms.bandit.policy import Policy
from manyarms.checks import real, truth
from manyarms.engine.base import Rule
from manyarms.engine.confidence import Constant, Radius
from manyarms.engine.frozen import Inserted
from manyarms.errors import ParameterError
from manyarms.search.scores import TIE, Upper, View, best_of
from manyarms.search.table import TableScores
from manyarms.typing import Array, TableLike


@dataclass(frozen=True)
class AnyArm:
    """An arm uniformly at random, whatever is known."""

    looks: ClassVar[bool] = False

    def pick(self, view: View) -> int:
        return _any_arm(view.chance.at(view.n_observations, view.number), view)


@dataclass(frozen=True)
class MostlyGreedy:
    """With probability ε an arm uniformly at random, else the arm of largest mean."""

    epsilon: float | Callable[[int], float]

    looks: ClassVar[bool] = False  # at variances, which supposed pulls would change

    def __post_init__(self) -> None:
        if not callable(self.epsilon):
            _probability(self.epsilon, "epsilon")

    def pick(self, view: View) -> int:
        dice = view.chance.at(view.n_observations, view.number)
        epsilon = self.epsilon
        if callable(epsilon):
            epsilon = _probability(epsilon(max(1, view.n_observations)), "what epsilon returns")
        if dice.random() >= epsilon:
            return view.scores.arg_max(Upper(0.0), view.barred)  # radius 0: the largest mean
        return _any_arm(dice, view)


def _probability(value: Any, name: str) -> float:
    return real(value, name, "a probability, not negative", at_least=0)


def _any_arm(dice: np.random.Generator, view: View) -> int:
    if view.barred is None:
        return int(dice.integers(view.n_arms))
    return int(dice.choice(np.flatnonzero(~view.barred)))


class Uniform(Policy):
    """An arm uniformly at random, at every step.

    Regret is linear in T: what others' regret is measured against. A choice is O(1).

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f, for `predict`.
    rule : Inserted
        Which rows enter the inducing set.
    **options
        The others of `BKB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
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

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    epsilon : float or callable
        A probability, or a function of the number t ≥ 1 of observations, such as ``lambda t: 50 /
        t``; what exceeds 1 counts as 1.
    rule : Inserted
        Which rows enter the inducing set.
    **options
        The others of `BKB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        epsilon: float | Callable[[int], float] = 0.1,
        rule: Inserted = Inserted(),
        **options: Any,
    ) -> None:
        super().__init__(arms, kernel, rule=rule, chooser=MostlyGreedy(epsilon), **options)


@dataclass(frozen=True)
class ThompsonChooser:
    """The arm of largest f̃, the weights being drawn and not the values, so that a step is O(A m).

        w̃ ~ N(w, β̃²V⁻¹),   f̃(x) = z(x)ᵀw̃ + β̃√(r(x)/λ)·g_x,   g_x ~ N(0, 1)

    f̃(x) ~ N(μ̃(x), β̃²σ̃²(x)) at every arm. Scoring all arms by upper bounds takes ‖C⁻¹z(x)‖² of
    each, O(A m²). The arms of a batch are independent draws, so nothing is supposed.
    """

    residual: bool = True
    looks: ClassVar[bool] = False

    def pick(self, view: View) -> int:
        if not isinstance(view.scores, TableScores):
            raise ParameterError(
                "Thompson sampling needs the embeddings of all arms: use rule=Inserted() and a "
                "table in this process"
            )
        dice = view.chance.at(view.n_observations, view.number)
        values = self.values(view.scores, view.beta, dice)
        return best_of(values, TIE * np.abs(values), view.barred)

    def values(self, scores: TableScores, beta: float, dice: np.random.Generator) -> Array:
        """f̃ of every arm, (A,)."""
        belief = scores.belief
        base = belief.base
        # cov(C⁻ᵀg) = C⁻ᵀC⁻¹ = V⁻¹
        deviation = base.factor.folded.C.solve_transposed(dice.standard_normal(base.m))
        w = base.w + beta * deviation  # w̃ ~ N(w, β̃²V⁻¹)
        parts: list[Array] = []
        for _, Z, r in scores.embedded():
            values = w @ Z  # z(x)ᵀw̃
            if self.residual:
                outside = np.sqrt(r / belief.regularization)
                values = values + beta * outside * dice.standard_normal(len(r))
            parts.append(values)
        drawn: Array = np.concatenate(parts)
        if belief.tried is not None:
            places = belief.tried.places(scores.arms.rows)
            drawn, own = belief.corrected(drawn, np.zeros(len(drawn)), places)
            if self.residual:
                drawn += beta * np.sqrt(own) * dice.standard_normal(len(own))
        return drawn


class Thompson(Policy):
    """Thompson sampling on BKB's sketch. Arms of a batch are independent draws (Kandasamy 2018).

    Vakili, Moss, Artemev, Dutordoir and Picheny (S-GP-TS, NeurIPS 2021) prove sublinear regret for
    draws from an approximate posterior whose deviations are within a constant of the exact ones, as
    those of the sketch are, if the radius is that of a confidence interval. They draw f̃ jointly;
    here the part outside the span of the inducing arms is drawn for each arm by itself, with the
    right variance but no correlation. So this, like the radius 1 that is the default, has no
    guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    residual : bool
        Without it f̃ = zᵀw̃, which hardly varies far from the inducing arms: the variance starves
        there, as that of `SoR`.
    rule : Rule
        `Inserted`: draws need the embeddings of all arms.
    confidence : Radius
        β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    **options
        The others of `BKB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        residual: bool = True,
        rule: Rule = Inserted(),
        confidence: Radius = Constant(1.0),
        **options: Any,
    ) -> None:
        chooser = ThompsonChooser(truth(residual, "residual"))
        super().__init__(arms, kernel, rule=rule, chooser=chooser, confidence=confidence, **options)
