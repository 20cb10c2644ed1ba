"""The posterior given rows that are stored as they are pulled: no table of arms exists.

Every observation draws S by Algorithm 1 (lines 6–9). While u ≤ 2|S| the posterior rests on all u rows pulled, W ⊇ S, and is
the exact one: cheaper than a sketch of that size, and Theorem 1 holds for any superset of S. Beyond, it rests on S.
"""

from dataclasses import dataclass, replace

import numpy as np

from manyarms.kernels import Kernel
from manyarms.sketch.confidence import Evidence, Radius, alpha_in, updated_norm
from manyarms.sketch.dictionary import Chance, draw_dictionary, inclusion_probability
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import EPS, TINY, represented_below
from manyarms.sketch.observations import Observations
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class Pulled:
    """Distinct rows with what was observed there, and the posterior; a value."""

    kernel: Kernel
    confidence: Radius
    oversampling: float | None  # q̄; None: the posterior is always the exact one
    chance: Chance
    rows: Array  # (u, d)
    history: History  # of row numbers
    dictionary: Indices  # S
    variance: Array  # (u,) σ̃² at the rows
    posterior: Posterior | ExactPosterior
    evidence: Evidence

    @property
    def regularization(self) -> float:
        """λ."""
        return self.posterior.regularization

    def moments(self, X: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² at rows, (n,) each."""
        return self.posterior.moments(X, self.kernel.diag(X))

    def observed(self, X: Array, rewards: Array, weights: Array) -> "Pulled":
        """After these rewards (n,) at X (n, d)."""
        rows, at = _placed(self.rows, X)
        numbers, means, totals = by_arm(at, rewards, weights)
        history = self.history.add(numbers, means, totals, len(X))
        fresh = rows[len(self.rows) :]
        variance = np.concatenate([self.variance, self.moments(fresh)[1] if len(fresh) else []])
        information = float(np.log1p(alpha_in(self.confidence) * totals * variance[numbers]).sum())
        everything = np.arange(len(rows))
        dictionary, chance = everything, self.chance
        if self.oversampling is not None:
            probability = inclusion_probability(variance, history.counts, self.oversampling)
            dictionary, chance = draw_dictionary(everything, probability, self.chance)
        posterior, now = self._fitted(rows, history, dictionary)
        return replace(
            self,
            chance=chance,
            rows=rows,
            history=history,
            dictionary=dictionary,
            variance=now,
            posterior=posterior,
            evidence=self._evidence(history, posterior, rows, now, information),
        )

    def supposing(self, X: Array) -> "Pulled":
        """As if each of X had been pulled and had given its mean: variances shrink, means stay."""
        return self.observed(X, self.moments(X)[0], np.ones(len(X))) if len(X) else self

    def _fitted(self, rows: Array, history: History, dictionary: Indices) -> tuple[Posterior | ExactPosterior, Array]:
        """The posterior on W, and σ̃² at the rows."""
        lam, diag = self.regularization, self.kernel.diag(rows)
        observed = Observations(rows, diag, history.counts, history.sums)
        if len(rows) <= 2 * len(dictionary):
            exact = ExactPosterior.fit(self.kernel, observed, lam)
            return exact, exact.variance_at_rows(history.counts)
        tolerance = represented_below(len(dictionary), float(diag[dictionary].max()), lam, float(history.counts.max()))
        embedding, kept = Embedding.fit(self.kernel, rows[dictionary], tolerance)
        posterior = Posterior.fit(embedding, dictionary[kept], observed, lam)
        return posterior, posterior.moments(rows, diag)[1]

    def _evidence(
        self, history: History, posterior: Posterior | ExactPosterior, rows: Array, variance: Array, information: float
    ) -> Evidence:
        evidence = replace(
            self.evidence,
            n_observations=history.n_observations,
            trace=float(history.counts @ self.kernel.diag(rows)) / self.regularization,
            effective_dimension=float(history.counts @ variance),
            information=self.evidence.information + information,
        )
        if evidence.norm is None:
            return evidence
        # μ̃ = Σ α_b k(b, ·) and k_B(μ̃) = Kα: ‖μ̃‖² = αᵀKα, and λσ̃²(μ̃) = ‖μ̃‖² − αᵀKQKα, which is known up to rounding.
        B, alpha = posterior.basis, posterior.weights
        at_basis = self.kernel(B, B) @ alpha
        squared = max(0.0, float(alpha @ at_basis))
        left = max(squared - float(posterior.explained(at_basis[None])[0] @ at_basis), len(alpha) * EPS * squared)
        spread = float(np.sqrt(left / self.regularization / max(squared, TINY)))
        evidence = replace(evidence, mean_norm=float(np.sqrt(squared)), mean_spread=spread)
        return replace(evidence, norm=updated_norm(self.confidence, evidence))


def _placed(rows: Array, X: Array) -> tuple[Array, Indices]:
    """The rows with those of X that are new appended, and where each of X is among them."""
    at = []
    for x in X:
        same = np.flatnonzero((rows == x).all(axis=1))
        if not len(same):
            rows = np.vstack([rows, x])
        at.append(int(same[0]) if len(same) else len(rows) - 1)
    return rows, np.array(at, dtype=np.intp)
