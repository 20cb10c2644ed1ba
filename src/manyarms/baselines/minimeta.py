"""mini-META (Calandriello, Carratino, Lazaric, Valko, Rosasco; ICML 2022).

It evaluates few different arms, each many times:

    choose x by any policy; evaluate it B = max(1, ⌊(C² − 1)/σ̃²(x)⌋) times; observe; repeat

An epoch is the B evaluations of one arm. Where B > 1 no variance shrinks by more than C² in it, no
deviation by more than C; the number of epochs, hence of distinct arms, is O(C²/(C² − 1)·γ_T): one
arg max an epoch, and an exact posterior is cheap.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.bandit.checks import as_arms, as_excluded
from manyarms.bandit.policy import Policy
from manyarms.checks import LONGEST_BATCH, MOST_AT_ONCE, real, whole
from manyarms.engine.base import Record
from manyarms.errors import ParameterError, shortened
from manyarms.lapack import in_one_thread
from manyarms.typing import ArrayLike, Indices


@dataclass(frozen=True)
class MiniMetaState:
    """Everything that `observe` changes."""

    policy: Policy  # one that is never changed: another takes its place
    owed: dict[int, float]  # evaluations that open epochs lack, by arm, the oldest epoch first


class MiniMeta:
    """A policy whose every choice is evaluated B times.

    ``MiniMeta(GPUCB(arms, kernel))``, or with `GPEI`, `Thompson`, `BKB`.

    `choose` answers the same arm until its quota was observed; `choose(None)` is the rest of the
    epoch, or a whole one, and nothing while that is pending. An arm observed outside an epoch opens
    one of its own. An observation with noise ξ_i counts as ξ²/ξ_i² evaluations. Arms given by value
    have no epochs: the policy chooses among them. All else, such as `predict`, `scores` and `best`,
    is the policy's.

    Guarantee: with `GPUCB`, and with `GPEI` and inflated deviations, regret is within a constant
    factor of theirs (the paper's theorems). Nothing is proved for Thompson sampling, or on a
    sketch.

    Parameters
    ----------
    policy : Policy
        The one that chooses; it is copied.
    threshold : float
        C > 1, by how much deviations may shrink in an epoch.
    """

    def __init__(self, policy: Policy, *, threshold: float = np.sqrt(2)) -> None:
        if not hasattr(policy, "learn"):
            raise ParameterError(
                f"policy must be a policy such as GPUCB(arms, kernel), got {shortened(policy)}"
            )
        self.threshold = real(threshold, "threshold", "a number C > 1", above=1)
        self._state = MiniMetaState(copy(policy), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"MiniMeta has no attribute {name!r}")
        return getattr(self._state.policy, name)

    def __repr__(self) -> str:
        return f"MiniMeta({self._state.policy!r})"

    @in_one_thread
    def choose(
        self,
        n: int | None = 1,
        *,
        arms: ArrayLike | None = None,
        pending: ArrayLike = (),
        exclude: ArrayLike = (),
    ) -> Indices:
        """As `BKB.choose`, the arms of open epochs first."""
        policy = self._state.policy
        if arms is not None:
            return policy.choose(n, arms=arms, pending=pending, exclude=exclude)
        size = None if n is None else whole(n, "n", at_most=MOST_AT_ONCE)
        supposed = as_arms(pending, policy.n_arms).tolist()
        barred = as_excluded(exclude, policy.n_arms)
        owed = dict(self._state.owed)
        for arm in supposed:
            self._count(owed, arm, 1.0)  # pending evaluations count on their epochs
        chosen: list[int] = []
        most = LONGEST_BATCH if size is None else size
        while len(chosen) < most:
            lacking = (
                arm
                for arm, left in owed.items()
                if left > 0 and not (barred is not None and barred[arm])
            )
            arm = next(lacking, -1)
            if arm < 0:
                # No epoch is open. A batch of no given size is one epoch: the next needs rewards.
                if size is None and (chosen or supposed):
                    break
                arm = int(policy.choose(pending=supposed + chosen, exclude=exclude)[0])
            chosen.append(arm)
            self._count(owed, arm, 1.0)
        return np.array(chosen, dtype=np.intp)

    @in_one_thread
    def observe(
        self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None
    ) -> Record:
        """As `BKB.observe`."""
        before = self._state.policy
        policy = copy(before)
        decided = policy.observe(arms, rewards, noise=noise)
        owed = dict(self._state.owed)
        # What the log has gained: arms of the table, each with the weight of its rewards.
        new = slice(len(before.log), None)
        gained = zip(policy.log.arms[new].tolist(), policy.log.weights[new].tolist(), strict=True)
        for arm, weight in gained:
            self._count(owed, arm, weight)
        self._state = MiniMetaState(policy, {arm: left for arm, left in owed.items() if left > 0})
        return decided

    def _count(self, owed: dict[int, float], arm: int, evaluations: float) -> None:
        """Book evaluations of an arm on its epoch; the first ones open it."""
        left = owed.get(arm, 0.0)  # 0 or less: the last epoch of this arm is over
        owed[arm] = (left if left > 0 else self._quota(arm)) - evaluations

    def _quota(self, arm: int) -> float:
        """B = max(1, ⌊(C² − 1)/σ̃²⌋) with the variance of now."""
        policy = self._state.policy
        row = policy.arms[arm : arm + 1].astype(np.float64, copy=False)
        _, variance = policy.belief.moments(row, policy.kernel.diag(row))
        # B pulls of one arm divide its variance by 1 + Bσ̃², which must not exceed C². An epoch
        # ends: it has at most 1e6·(C² − 1) evaluations.
        quota = (self.threshold**2 - 1) / max(variance[0], 1e-6)
        return max(1.0, float(np.floor(quota)))
