"""SupKernelUCB (Valko, Korda, Munos, Flaounas, Cristianini; UAI 2013): elimination over levels of independent rewards.

    s ← 1, Â₁ ← all arms
    repeat  μ, σ ← the exact posterior given the sample Ψ_s of level s, on Â_s; width = βσ
        if all widths ≤ 1/√T      choose argmax μ + βσ                   (1/√T rounded down to a power of 2, the last level's)
        elif all widths ≤ 2⁻ˢ     Â_{s+1} ← {x ∈ Â_s : μ + βσ ≥ max(μ + βσ) − 2·2⁻ˢ}, s ← s + 1
        else                      choose the widest arm of Â_s; it joins Ψ_s

Which arms join Ψ_s depends on widths, and on the rewards of levels below s only: given those, the rewards in Ψ_s are
independent, so that a radius of order √ln(AT) is enough where GP-UCB needs √γ_T.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from manyarms.numbers import real, whole
from manyarms.policies.base import Lookahead
from manyarms.policies.gpucb import GPUCB, GPUCBState
from manyarms.policies.rules import Rule
from manyarms.sketch.choice import TIE, arg_max, largest, score
from manyarms.sketch.confidence import Evidence
from manyarms.sketch.covariance import Covariance
from manyarms.sketch.dictionary import check_probability
from manyarms.sketch.history import History
from manyarms.typing import Array, ArrayLike, Indices, Mask


@dataclass(frozen=True)
class FixedDesign:
    """ξ√(2 ln(2AST/δ)) + √λF: contains f for all A arms, S levels and T steps with probability 1 − δ, if the rewards of a level
    are independent given its arms, ‖f‖ ≤ F = `norm` and the noise is ξ-sub-Gaussian, ξ = `noise`."""

    norm: float
    noise: float
    horizon: int = 10_000
    delta: float = 0.1

    def __post_init__(self) -> None:
        real(self.norm, "norm", "a positive bound on the RKHS norm of f", above=0)
        real(self.noise, "noise", "a non-negative standard deviation", at_least=0)
        whole(self.horizon, "horizon")
        check_probability("delta", self.delta)

    def __call__(self, evidence: Evidence) -> float:
        union = np.log(2.0 * evidence.n_arms * n_levels(self.horizon) * self.horizon / self.delta)
        return float(self.noise * np.sqrt(2 * union) + np.sqrt(evidence.regularization) * self.norm)


def n_levels(horizon: int) -> int:
    """S, the first s with 2⁻ˢ ≤ 1/√T."""
    return max(1, int(np.ceil(0.5 * np.log2(horizon))))


@dataclass(frozen=True)
class Level:
    """Ψ_s, and the posterior it gives."""

    history: History
    covariance: Covariance


@dataclass(frozen=True)
class SupKernelState(GPUCBState):
    """Everything that `observe` changes: what all observations say, and the levels."""

    levels: tuple[Level, ...]


class SupKernelUCB(Rule, GPUCB):
    """Phased elimination on the exact posteriors of S = ⌈½ log₂ T⌉ levels: O(A·u) an observation, O(A·S) a choice.

    With the radius `FixedDesign` regret is Õ(√(T d̃)), d̃ the effective dimension (the paper's theorem), better than GP-UCB's
    by √d̃. With `Constant` there is no guarantee. Widths are compared with κ2⁻ˢ, κ² = max k(x, x), where the paper has κ = 1.
    An arm that is observed joins the first level at which its width exceeds κ2⁻ˢ: the one at which it was chosen. So pulls of
    the first kind, which the paper leaves out, may join a deeper level; they were chosen without its rewards.
    `predict`, `scores` and `best` rest on all observations.

    horizon : T.
    options : those of `GPUCB`.
    """

    _state: SupKernelState

    def __init__(self, arms: ArrayLike | str | Path, kernel: Any, *, horizon: int = 10_000, **options: Any) -> None:
        self.horizon = whole(horizon, "horizon")
        super().__init__(arms, kernel, **options)

    def _first_state(self, rng: np.random.Generator) -> SupKernelState:
        state = super()._first_state(rng)
        covariances = (
            Covariance(self.arms, self._diag, self.kernel, self.regularization) for _ in range(n_levels(self.horizon))
        )
        levels = tuple(Level(History(), covariance) for covariance in covariances)
        return SupKernelState(state.history, state.covariance, state.evidence, levels)

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> SupKernelState:
        state, levels, beta = super()._observed(history, arms, rewards, weights), list(self._state.levels), self.beta
        joined = np.array([self._level_of(int(arm), [level.covariance for level in levels], beta) for arm in arms])
        for s in np.unique(joined[joined >= 0]).tolist():
            own = joined == s
            sample = levels[s].history.add(arms[own], rewards[own], weights[own])
            levels[s] = Level(sample, levels[s].covariance.observed(sample, arms[own], rewards[own], weights[own])[0])
        return SupKernelState(state.history, state.covariance, state.evidence, tuple(levels))

    def _level_of(self, arm: int, covariances: list[Covariance], beta: float) -> int:
        """The level (from 0) that a pull of this arm joins, −1 where it is known well enough at all."""
        widths = [beta * np.sqrt(covariance.diagonal[arm] / self.regularization) for covariance in covariances]
        return next((s for s, width in enumerate(widths) if width > self._limit(s)), -1)

    def _limit(self, s: int) -> float:
        """κ2⁻ˢ for level s counted from 1, given from 0."""
        return float(np.sqrt(self._diag.max()) * 2.0 ** -(s + 1))

    def _lookahead(self, *, append: bool) -> "_Supposed":  # type: ignore[override]  # a Covariance would know no levels
        return _Supposed(self)

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        left = np.arange(self.n_arms) if barred is None else np.flatnonzero(~barred)
        enough = self._limit(n_levels(self.horizon) - 1)
        for s, covariance in enumerate(cast(_Supposed, lookahead).levels):
            known = score(covariance.mean[left], covariance.variance[left], beta)
            width = beta * np.sqrt(known.variance)
            if width.max() <= enough:
                break
            if width.max() > self._limit(s):
                return int(left[largest(width, TIE * width)])
            left = left[known.ucb >= known.ucb.max() - 2 * self._limit(s)]
        return int(left[arg_max(known)])


class _Supposed:
    """The levels if more arms were pulled, each joining its own."""

    def __init__(self, policy: SupKernelUCB) -> None:
        self._policy, self.levels = policy, [level.covariance.copy() for level in policy._state.levels]

    @property
    def variance(self) -> Array:
        """σ² of every arm on the first level."""
        return self.levels[0].variance

    def pull(self, arms: Indices) -> None:
        for arm in arms:
            s = self._policy._level_of(int(arm), self.levels, self._policy.beta)
            if s >= 0:
                self.levels[s].pull(np.array([arm]))
