"""Variants of BKB: dictionaries that are updated instead of drawn anew, and longer batches.

`Incremental` and `Insertion` are rules. Both cost what Algorithm 1 costs, O(A m²) a step: they are
here to compare dictionaries, not times. `LocalBatch` is Batch-BKB with its local rule.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.bandit.batches import GlobalRule, GoesOn
from manyarms.bandit.bkb import BKB
from manyarms.checks import real
from manyarms.engine.dictionary import inclusion_probability
from manyarms.engine.own import Owned
from manyarms.engine.sampled import Candidates, DrawRule
from manyarms.errors import ParameterError
from manyarms.search.scores import ArmScores
from manyarms.search.table import TableScores
from manyarms.typing import Array, Indices


class Incremental(DrawRule):
    """The paper's remark: a row of S_t stays with probability p_{t+1}/p_t.

    p = min(1, n·q̄·σ̃²) for a row of weight n. Where p grows, as it does with n, a row of S stays,
    and one outside enters with probability (p_{t+1} − p_t)/(1 − p_t). Were the p fixed beforehand,
    a row would be in S_t with probability p_t. But they depend on the draws before, which is why
    the paper leaves the question open: Theorem 1 does not cover it. The radius `Resampled` holds.

    Parameters
    ----------
    oversampling : float
        q̄.
    epsilon : float
        ε of Theorem 1, as for `Sampled`.
    """

    def draws(self, candidates: Candidates, inclusion: Array) -> Array:
        """From p_t to p_{t+1}."""
        # p_t·stays + (1 − p_t)·enters = p_{t+1}, whichever of the two is larger.
        before = candidates.before
        with np.errstate(divide="ignore", invalid="ignore"):
            enters = np.where(inclusion > before, (inclusion - before) / (1 - before), 0.0)
            stays = np.where(inclusion < before, inclusion / before, 1.0)
        return np.where(candidates.inside, stays, enters)


class Insertion(DrawRule):
    """A pull enters S with probability min(1, n·q̄·τ̃), τ̃ = σ̃²/(1 + σ̃²), and stays.

    KORS (Calandriello, Lazaric, Valko; ICML 2017), used for bandits by EK-UCB (Zenati, Bietti,
    Diemert, Mairal, Martin, Gaillard; AISTATS 2022), who prove regret of the exact method's order
    for it. As the projection on S only grows, and each draw depends on the past alone, the
    martingale argument holds that is missing for `Incremental`. Here τ̃ is BKB's estimate, not that
    of KORS, so the constants of those proofs do not carry over; the radius `Resampled` holds.
    `BKB.redraw` sets q̄ for the pulls to come.

    Parameters
    ----------
    oversampling : float
        q̄.
    epsilon : float
        ε of Theorem 1, as for `Sampled`.
    """

    def inclusion(self, candidates: Candidates) -> Array:
        """Of the weight that just came in."""
        # σ̃² before the pull; τ̃ = σ̃²/(1 + σ̃²) is the leverage after it.
        leverage = candidates.variance / (1 + candidates.variance)
        return inclusion_probability(leverage, candidates.fresh, self.oversampling)

    def draws(self, candidates: Candidates, inclusion: Array) -> Array:
        """Rows of S stay."""
        return np.where(candidates.inside, 1.0, inclusion)


@dataclass(frozen=True)
class LocalRule:
    """A batch goes on while no variance has shrunk by more than C, if its rows are seen whole; for
    ``rule=Inserted()``.

    The global rule knows that from 1 + Σσ̃²(x_s) ≤ C. The local one (Calandriello et al., ICML
    2020) asks it of every arm x by itself, with the posterior covariance of when the batch began:

        1 + Σ_s k̃²(x, x_s)/σ̃²(x) ≤ C,    k̃(x, y) = (k(x, y) − z(x)ᵀz(y))/λ + z(x)ᵀV⁻¹z(y)

    which the global rule implies (k̃²(x, y) ≤ σ̃²(x)σ̃²(y)). So it is only looked at where that one
    would end the batch: O(A m) for an arm of the batch. A row that does not enter W is seen through
    W alone, by zᵀV⁻¹z: what variances lose by such a row may be more than the rule counts.
    """

    threshold: float = 2.0

    def __post_init__(self) -> None:
        real(self.threshold, "threshold", "a number C above 1", above=1)

    def started(self, scores: ArmScores) -> GoesOn:
        if not isinstance(scores, TableScores):
            raise ParameterError(
                "LocalRule needs the embeddings of all arms: use it with rule=Inserted()"
            )
        may_go_on = GlobalRule(self.threshold).started(scores)
        waiting: list[Indices] = []  # arms whose part in the sums is not computed
        sums: Array = np.zeros(len(scores.arms.rows))

        def goes_on(positions: Indices) -> bool:
            nonlocal sums
            waiting.append(positions)
            if may_go_on(positions):
                return True  # it implies the local rule, and costs nothing
            sums = sums + squared_covariances(scores, np.concatenate(waiting))
            waiting.clear()
            _, variance = scores.current()
            return bool((sums <= (self.threshold - 1) * variance).all())

        return goes_on


def squared_covariances(scores: TableScores, positions: Indices) -> Array:
    """Σ k̃²(x, x_s) over these arms, for every arm x, (A,)."""
    belief = scores.belief
    base = belief.base
    arms = scores.arms
    lam = belief.regularization
    rows = arms.rows[positions].astype(np.float64, copy=False)
    Z, _ = base.features(rows, base.kernel.diag(rows))
    factor = base.factor
    solved = factor.C.solve_transposed(factor.half(Z.T).c)  # V⁻¹z
    # k̃ = k/λ + zᵀ(V⁻¹ − I/λ)z_s: one product with G for every arm.
    G = solved - Z.T / lam
    sums = np.empty(len(arms.rows))
    for some, Y, _ in scores.embedded():
        X = arms.rows[some].astype(np.float64, copy=False)
        covariance = base.kernel(X, rows) / lam + Y.T @ G  # k̃(x, x_s)
        if isinstance(belief, Owned):
            covariance = belief.covariance(covariance, X, rows)
        sums[some] = np.einsum("ij,ij->i", covariance, covariance)
    return sums


class LocalBatch(BKB):
    """BKB whose batches of no given size end by the local rule.

    No bound on its regret is proved here: the radius is not widened by √C, and rows that do not
    enter W are not covered (`LocalRule`). Intervals hold as for `BKB`.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    threshold : float
        C, above 1: by how much a variance may shrink in a batch.
    **options
        Those of `BKB`.
    """

    def __init__(self, arms: Any, kernel: Any, *, threshold: float = 2.0, **options: Any) -> None:
        super().__init__(arms, kernel, batches=LocalRule(threshold), **options)
