"""SupKernelUCB (Valko, Korda, Munos, Flaounas, Cristianini; UAI 2013).

It eliminates arms over levels of independent rewards:

    s ← 1, Â₁ ← all arms
    repeat  μ, σ ← the exact posterior given the sample Ψ_s of level s, on Â_s; width = βσ
        if all widths ≤ 1/√T      choose argmax μ + βσ
        elif all widths ≤ 2⁻ˢ     Â_{s+1} ← {x ∈ Â_s : μ + βσ ≥ max(μ + βσ) − 2·2⁻ˢ}, s ← s + 1
        else                      choose the widest arm of Â_s; it joins Ψ_s

1/√T is rounded down to a power of 2, that of the last level.

Which arms join Ψ_s depends on widths, and on the rewards of levels below s only: given those, the
rewards in Ψ_s are independent, so that a radius of order √ln(AT) is enough where GP-UCB needs √γ_T.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from manyarms.bandit.policy import Policy
from manyarms.checks import probability, real, whole
from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Constant, Evidence, Radius, first_norm
from manyarms.engine.exact import Exact, ExactBelief, ExactScores
from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.kernels import Kernel
from manyarms.search.scores import TIE, Upper, View, best_of
from manyarms.typing import Array, Indices, TableLike


@dataclass(frozen=True)
class FixedDesign:
    """ξ√(2 ln(2AST/δ)) + √λF, a radius for rewards that are independent given their arms.

    It contains f for all A arms, S levels and T steps with probability 1 − δ, if the rewards of a
    level are so, ‖f‖ ≤ F and the noise is ξ-sub-Gaussian.

    Parameters
    ----------
    norm : float
        F, a bound on the norm of f in the space of the kernel.
    noise : float
        ξ, the scale of the noise.
    horizon : int
        T, steps that the promise is for.
    delta : float
        δ, the probability that some interval misses f.
    """

    norm: float
    noise: float
    horizon: int = 10_000
    delta: float = 0.1

    def __post_init__(self) -> None:
        real(self.norm, "norm", "a positive bound on the RKHS norm of f", above=0)
        real(self.noise, "noise", "a non-negative standard deviation", at_least=0)
        whole(self.horizon, "horizon", at_most=10**18)
        probability("delta", self.delta)

    def promised(self, evidence: Evidence) -> tuple[float | None, str]:
        """No probability: what is known rests on the rewards of all levels at once."""
        return None, (
            "FixedDesign is proved for rewards that are independent given their arms, and those of "
            "all results together are not"
        )

    def __call__(self, evidence: Evidence) -> float:
        # Two-sided, over A arms, S levels and T steps: each may fail with δ/(2AST).
        union = np.log(2.0 * evidence.n_arms * n_levels(self.horizon) * self.horizon / self.delta)
        return float(self.noise * np.sqrt(2 * union) + np.sqrt(evidence.regularization) * self.norm)


def n_levels(horizon: int) -> int:
    """S, the first s with 2⁻ˢ ≤ 1/√T."""
    return max(1, int(np.ceil(0.5 * np.log2(horizon))))


@dataclass(frozen=True)
class LevelRule:
    """The rule of the belief: T, and the radius of which widths are made."""

    horizon: int
    confidence: Radius

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> "LevelledBelief":
        """The belief before anything is observed."""
        if not len(arms.rows):
            raise ArmsError(
                "SupKernelUCB compares widths with the largest k(x, x) of its table: "
                "give its arms when it is made, or use GPUCB, which does without"
            )
        prior = Exact().prior(kernel, arms, regularization, noise, rng)
        S = n_levels(self.horizon)
        limits = np.sqrt(arms.diag.max()) * 2.0 ** -np.arange(1, S + 1)  # κ2⁻ˢ
        n_arms = len(arms.rows)
        return LevelledBelief(
            **vars(prior), rule=self, n_arms=n_arms, limits=limits, levels=(prior,) * S
        )


@dataclass(frozen=True, kw_only=True)
class LevelledBelief(ExactBelief):
    """What all observations say, exactly, and what those of each level do."""

    rule: LevelRule
    n_arms: int
    limits: Array  # (S,) κ2⁻ˢ, s from 1
    levels: tuple[ExactBelief, ...]  # the posterior given Ψ_s, s from 0

    @property
    def beta(self) -> float:
        """The radius of the widths."""
        return float(self.rule.confidence(self.evidence.of(self.n_arms, None)))

    def level_of(self, variances: Array) -> Indices:
        """The level (from 0) that a pull joins, −1 where the arm is known well enough at all.

        variances : (S, n) σ² of n arms on each level.
        """
        # argmax finds the first True: the first level at which the arm is wide.
        wide = self.beta * np.sqrt(variances) > self.limits[:, None]
        return np.where(wide.any(axis=0), wide.argmax(axis=0), -1)

    def observed(self, batch: Batch) -> Step:
        """Each arm joins the first level at which it is wide: the record's sizes, from 1 on."""
        moments = [level.moments(batch.rows, batch.diag) for level in self.levels]
        joined = self.level_of(np.array([variance for _, variance in moments]))
        levels = list(self.levels)
        for s in np.unique(joined[joined >= 0]).tolist():
            own = batch.part(joined == s)  # Ψ_s grows by these only
            levels[s] = levels[s].conditioned(replace(own, n_observations=len(own)))
        after = replace(self.conditioned(batch), levels=tuple(levels))
        return Step(after, Record(np.zeros(0, dtype=np.intp), joined + 1))

    def scores(self, arms: Arms) -> "LevelScores":
        """Of all observations, and of each level."""
        levels = tuple(level.scores(arms) for level in self.levels)
        return LevelScores(**vars(super().scores(arms)), belief=self, levels=levels)


@dataclass(frozen=True, kw_only=True)
class LevelScores(ExactScores):
    """Scores of arms given all observations, and on each level."""

    belief: LevelledBelief
    levels: tuple[ExactScores, ...]

    def after(self, step: Step) -> Self:
        """At the belief after one more step, on each level."""
        after = super().after(step)
        if not isinstance(step.after, LevelledBelief):
            raise TypeError(f"these scores follow levels, got {shortened(step.after)}")
        followed = zip(self.levels, step.after.levels, strict=True)
        levels = tuple(level.at(belief.posterior) for level, belief in followed)
        return replace(after, belief=step.after, levels=levels)

    def supposing(self, positions: Indices) -> Self:
        """If these arms were pulled once more each, each joining its own level."""
        levels = list(self.levels)
        # One after another: what the first joins may be narrow enough for the second.
        for i in positions:
            at = np.array([i])
            variances = np.array([level.moments(at)[1] for level in levels])
            s = int(self.belief.level_of(variances)[0])
            if s >= 0:
                levels[s] = levels[s].supposing(at)
        return replace(super().supposing(positions), levels=tuple(levels))


@dataclass(frozen=True)
class Elimination:
    """Goes down the levels, as the page above says."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        scores = view.scores
        if not isinstance(scores, LevelScores):
            raise TypeError(
                f"elimination needs the levels of SupKernelUCB, got {shortened(scores)}"
            )
        left = np.arange(view.n_arms) if view.barred is None else np.flatnonzero(~view.barred)
        limits = scores.belief.limits
        for limit, level in zip(limits, scores.levels, strict=True):
            mean, variance = level.moments(left)
            deviation = np.sqrt(variance)
            width = view.beta * deviation
            ucb, tie = Upper(view.beta)(mean, deviation)
            # The three cases of the page above, in its order.
            if width.max() <= limits[-1]:
                break
            if width.max() > limit:
                return int(left[best_of(width, TIE * width)])
            # All of |μ − f| ≤ 2⁻ˢ: who is 2·2⁻ˢ below the best upper bound cannot be the best.
            left = left[ucb >= ucb.max() - 2 * limit]
        # At the last level either the arm was wide, or all were known well enough.
        return int(left[best_of(ucb, tie)])


class SupKernelUCB(Policy):
    """Phased elimination on the exact posteriors of S = ⌈½ log₂ T⌉ levels.

    An observation costs O(A·u), a choice O(A·S).

    With the radius `FixedDesign` regret is Õ(√(T d̃)), d̃ the effective dimension (the paper's
    theorem), better than GP-UCB's by √d̃. With `Constant` there is no guarantee. Widths are
    compared with κ2⁻ˢ, κ² = max k(x, x), where the paper has κ = 1. An arm that is observed joins
    the first level at which its width exceeds κ2⁻ˢ: the one at which it was chosen. So pulls of the
    first kind, which the paper leaves out, may join a deeper level; they were chosen without its
    rewards. `predict`, `scores` and `best` rest on all observations.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    horizon : int
        T, which the number of levels follows from.
    confidence : Radius
        The radius of widths and scores. One that doubles its norm is refused: it depends on
        rewards of all levels.
    **options
        Those of `GPUCB`.
    """

    def __init__(
        self,
        arms: TableLike,
        kernel: Any,
        *,
        horizon: int = 10_000,
        confidence: Radius = Constant(2.0),
        **options: Any,
    ) -> None:
        if first_norm(confidence) is not None:
            raise ParameterError(
                "SupKernelUCB needs a radius that does not look at rewards: "
                f"pass double=False and a bound on the norm, got {shortened(confidence)}"
            )
        rule = LevelRule(whole(horizon, "horizon"), confidence)
        super().__init__(
            arms, kernel, rule=rule, chooser=Elimination(), confidence=confidence, **options
        )
