"""mini-META (Calandriello, Carratino, Lazaric, Valko, Rosasco; ICML 2022): few unique arms, each evaluated many times.

    choose x by any policy; evaluate it B = max(1, ⌊(C² − 1)/σ̃²(x)⌋) times; observe; repeat

An epoch is the B evaluations of one arm. Where B > 1 no variance shrinks by more than C² in it, no deviation by more than C;
the number of epochs, hence of distinct arms, is O(C²/(C² − 1)·γ_T): one arg max an epoch, and an exact posterior is cheap.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from manyarms.errors import ParameterError
from manyarms.numbers import real, whole
from manyarms.policies.base import Lookahead, Policy
from manyarms.policies.checks import as_arms, as_excluded
from manyarms.sketch.confidence import Evidence
from manyarms.sketch.history import History
from manyarms.typing import Array, ArrayLike, Indices


@dataclass(frozen=True)
class MiniMetaState:
    """Everything that `observe` changes."""

    policy: Policy  # one that is never changed: another takes its place
    owed: dict[int, float]  # evaluations that open epochs still lack, by arm, the oldest epoch first

    @property
    def history(self) -> History:
        """What was observed."""
        return self.policy._state.history

    @property
    def evidence(self) -> Evidence:
        """What the policy's radius is a function of."""
        return self.policy.evidence


class MiniMeta(Policy):
    """A policy whose every choice is evaluated B times: ``MiniMeta(GPUCB(arms, kernel))``, or with `GPEI`, `Thompson`, `BKB`.

    `choose` answers the same arm until its quota was observed; `choose(None)` is the rest of the epoch, or a whole one, and
    nothing while that is pending. An arm observed outside an epoch opens one of its own. An observation with noise ξ counts as
    λ/ξ² evaluations.

    Guarantee: with `GPUCB`, and with `GPEI` and inflated deviations, regret is within a constant factor of theirs (the paper's
    theorems). Nothing is proved for Thompson sampling, or on a sketch.

    policy : the one that chooses; it is copied.
    threshold : C > 1, by how much deviations may shrink in an epoch.
    """

    _state: MiniMetaState

    def __init__(self, policy: Policy, *, threshold: float = np.sqrt(2)) -> None:
        if not isinstance(policy, Policy):
            raise ParameterError(f"policy must be a policy such as GPUCB(arms, kernel), got {policy!r}")
        self.threshold = real(threshold, "threshold", "a number C > 1", above=1)
        self._inner = copy(policy)
        super().__init__(policy.arms, policy.kernel, regularization=policy.regularization, confidence=policy.confidence, seed=0)
        self._first_arm, self._exact = policy._first_arm, policy._exact

    def choose(
        self, n: int | None = 1, *, arms: ArrayLike | None = None, pending: ArrayLike = (), exclude: ArrayLike = ()
    ) -> Indices:
        if arms is not None:
            return super().choose(n, arms=arms)  # says that it cannot
        supposed, barred = as_arms(pending, self.n_arms).tolist(), as_excluded(exclude, self.n_arms)
        n, owed, chosen = None if n is None else whole(n, "n"), dict(self._state.owed), list[int]()
        for arm in supposed:
            self._count(owed, arm, 1.0)
        with self.stats.timed("choices"):
            while n is None or len(chosen) < n:
                arm = next(
                    (arm for arm, lacking in owed.items() if lacking > 0 and not (barred is not None and barred[arm])), -1
                )
                if arm < 0:
                    if n is None and (chosen or supposed):
                        break
                    arm = int(self._state.policy.choose(pending=supposed + chosen, exclude=exclude)[0])
                chosen.append(arm)
                self._count(owed, arm, 1.0)
        return np.array(chosen, dtype=np.intp)

    def _count(self, owed: dict[int, float], arm: int, evaluations: float) -> None:
        """Book evaluations of an arm on its epoch; the first ones open it."""
        owed[arm] = (owed[arm] if owed.get(arm, 0.0) > 0 else self._quota(arm)) - evaluations

    def _quota(self, arm: int) -> float:
        """B = max(1, ⌊(C² − 1)/σ̃²⌋) with the variance of now, which counts as no less than 1e-6 so that epochs end."""
        variance = self._state.policy._moments_at(self.arms[arm : arm + 1], self._diag[arm : arm + 1])[1][0]
        return max(1.0, float(np.floor((self.threshold**2 - 1) / max(variance, 1e-6))))

    def _first_state(self, rng: np.random.Generator) -> MiniMetaState:
        return MiniMetaState(self._inner, {})

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> MiniMetaState:
        owed = dict(self._state.owed)
        for arm, weight in zip(arms.tolist(), weights.tolist(), strict=True):
            self._count(owed, arm, weight)
        policy = copy(self._state.policy)
        policy._state = policy._observed(history, arms, rewards, weights)
        return MiniMetaState(policy, {arm: left for arm, left in owed.items() if left > 0})

    def _moments(self) -> tuple[Array, Array]:
        return self._state.policy._moments()

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._state.policy._moments_at(X, diag)

    def _lookahead(self, *, append: bool) -> Lookahead:
        return self._state.policy._lookahead(append=append)
