"""Batch-BKB with its local rule (Calandriello, Carratino, Lazaric, Valko, Rosasco; ICML 2020): longer batches, O(A m) an arm.

A batch of `choose(None)` goes on while no variance may have shrunk by more than C. The global rule knows that from
1 + Σσ̃²(x_s) ≤ C. The local one asks it of every arm x by itself, with the posterior covariance of when the batch began:

    1 + Σ_s k̃²(x, x_s)/σ̃²(x) ≤ C,    k̃(x, y) = (k(x, y) − z(x)ᵀz(y))/λ + z(x)ᵀV⁻¹z(y)

which the global rule implies (k̃²(x, y) ≤ σ̃²(x)σ̃²(y)): so it is only looked at where that one would end the batch.
"""

import numpy as np

from manyarms.policies.base import GlobalRule
from manyarms.policies.embedded import Embedded
from manyarms.sketch.dictionary import STALE
from manyarms.sketch.linalg import solve_cholesky
from manyarms.typing import Array, Indices


class LocalBatch(Embedded):
    """BKB whose batches of no given size end by the local rule; all else as `BKB`, its regret up to constants included.

    Options are those of `BKB`; for `memory` see `Embedded`.
    """

    def _rule(self) -> GlobalRule:
        return LocalRule(self)


class LocalRule(GlobalRule):
    """The sums over a batch, at every arm."""

    def __init__(self, policy: LocalBatch) -> None:
        super().__init__()
        self._policy = policy
        self._waiting: list[Indices] = []  # arms whose part in the sums is not computed
        self._sums = np.zeros(policy.n_arms)

    def lets(self, arms: Indices, variance: Array) -> bool:
        self._waiting.append(arms)
        if super().lets(arms, variance):
            return True
        self._add(np.concatenate(self._waiting))
        self._waiting = []
        return bool((self._sums <= (STALE - 1) * self._policy.scores().variance).all())

    def _add(self, arms: Indices) -> None:
        """Σ k̃²(x, x_s) over these arms, for every arm x."""
        policy, posterior = self._policy, self._policy._current()
        X = policy.arms[arms]
        Z, _ = posterior.embedding(X, policy._diag[arms])
        W = solve_cholesky(posterior.C, np.array(Z.T, order="F")) - Z.T / policy.regularization  # V⁻¹z − z/λ
        for rows, Y, _ in policy._embedded(posterior.embedding):
            covariance = policy.kernel(policy.arms[rows], X) / policy.regularization + Y @ W
            self._sums[rows] += np.einsum("ij,ij->i", covariance, covariance)
