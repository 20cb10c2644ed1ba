"""The posterior given rows that are stored as they are pulled: no table of arms exists.

Every observation draws S by Algorithm 1 (lines 6–9). While u ≤ 2|S| the posterior rests on all u rows pulled, W ⊇ S, and is
the exact one: cheaper than a sketch of that size, and Theorem 1 holds for any superset of S. Beyond, it rests on S.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from manyarms.errors import NumericalError
from manyarms.kernels import Kernel
from manyarms.sketch.confidence import Evidence, Radius, alpha_in, updated_norm
from manyarms.sketch.dictionary import Chance, draw_dictionary, inclusion_probability
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import EPS, TINY, check_rounding, represented_below
from manyarms.sketch.observations import Observations
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.table import draw_from_table
from manyarms.typing import Array, Indices

MANY = 1024
"""New rows at once from which on S is drawn as from a table."""


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
        rows, numbers, totals, history = self._with(X, rewards, weights)
        check_rounding(self.regularization, self.kernel.diag(rows), history.counts)
        fresh = rows[len(self.rows) :]
        before = np.concatenate([self.variance, self.moments(fresh)[1] if len(fresh) else []])
        alpha = 1.0 if self.oversampling is None else alpha_in(self.confidence)
        information = float(np.log1p(alpha * totals * before[numbers]).sum())
        dictionary, chance = self._drawn(rows, history, before, len(fresh))
        posterior = self._fitted(rows, history, dictionary)
        if isinstance(posterior, ExactPosterior):
            variance = posterior.variance_at_rows(history.counts)
        else:
            variance = posterior.moments(rows, self.kernel.diag(rows))[1]
        return replace(
            self,
            chance=chance,
            rows=rows,
            history=history,
            dictionary=dictionary,
            variance=variance,
            posterior=posterior,
            evidence=self._evidence(history, posterior, rows, variance, information),
        )

    def supposing(self, X: Array) -> "Pulled":
        """As if each of X had been pulled and had given its mean: it joins S, no other is drawn, and variances shrink.

        `variance` stays as it was before.
        """
        if not len(X):
            return self
        rows, numbers, _, history = self._with(X, self.moments(X)[0], np.ones(len(X)))
        fresh, dictionary = rows[len(self.rows) :], np.union1d(self.dictionary, numbers)
        variance = np.concatenate([self.variance, self.moments(fresh)[1] if len(fresh) else []])
        posterior = self._fitted(rows, history, dictionary)
        return replace(self, rows=rows, history=history, dictionary=dictionary, variance=variance, posterior=posterior)

    def _with(self, X: Array, rewards: Array, weights: Array) -> tuple[Array, Indices, Array, History]:
        """All rows; of those of X, each once, their numbers among them and their weight; and the history."""
        rows, at = _placed(self.rows, X)
        numbers, means, totals = by_arm(at, rewards, weights)
        return rows, numbers, totals, self.history.add(numbers, means, totals, len(X))

    def _drawn(self, rows: Array, history: History, variance: Array, n_fresh: int) -> tuple[Indices, Chance]:
        """S, drawn by the variances before; of many new rows at once, which those would all keep, as from a table."""
        everything = np.arange(len(rows))
        if self.oversampling is None:
            return everything, self.chance
        if n_fresh > MANY:
            table = Observations(rows, self.kernel.diag(rows), history.counts, history.sums)
            rng, chance = self.chance.at(history.n_observations), self.chance.random(1)[1]
            alpha = alpha_in(self.confidence)
            return draw_from_table(self.kernel, table, self.regularization, self.oversampling, alpha, rng).at, chance
        probability = inclusion_probability(variance, history.counts, self.oversampling)
        return draw_dictionary(everything, probability, self.chance)

    def _fitted(self, rows: Array, history: History, dictionary: Indices) -> Posterior | ExactPosterior:
        """The posterior on W."""
        lam, diag, u = self.regularization, self.kernel.diag(rows), len(self.rows)
        observed = Observations(rows, diag, history.counts, history.sums)
        if len(rows) <= 2 * len(dictionary):
            same = np.array_equal(history.counts[:u], self.history.counts)
            if isinstance(self.posterior, ExactPosterior) and same and len(rows) > u:
                with suppress(NumericalError):  # then all rows are factored anew
                    return self.posterior.appended(Observations(*(part[u:] for part in observed)))
            return ExactPosterior.fit(self.kernel, observed, lam)
        tolerance = represented_below(len(dictionary), float(diag[dictionary].max()), lam, float(history.counts.max()))
        embedding, kept = Embedding.fit(self.kernel, rows[dictionary], tolerance)
        return Posterior.fit(embedding, dictionary[kept], observed, lam)

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
        # μ̃ = Σ α_b k(b, ·) and k_B(μ̃) = Kα: ‖μ̃‖² = αᵀKα, and σ̃²(μ̃) is known up to rounding.
        B, alpha = posterior.basis, posterior.weights
        at_basis = self.kernel(B, B) @ alpha
        squared = max(0.0, float(alpha @ at_basis))
        along = float(posterior.variance(posterior.halves(at_basis[None]), np.array([squared]))[0])
        along = max(along, len(alpha) * EPS * squared / self.regularization)
        spread = float(np.sqrt(along / max(squared, TINY)))
        evidence = replace(evidence, mean_norm=float(np.sqrt(squared)), mean_spread=spread)
        return replace(evidence, norm=updated_norm(self.confidence, evidence))


def _placed(rows: Array, X: Array) -> tuple[Array, Indices]:
    """The rows with those of X that are new appended, and where each of X is among them."""
    numbers = {row.tobytes(): number for number, row in enumerate(rows)}
    X = X + 0.0  # no −0, which equals 0 and has other bytes
    at = [numbers.setdefault(x.tobytes(), len(numbers)) for x in X]
    distinct, first = np.unique(at, return_index=True)
    return np.vstack([rows, X[first[distinct >= len(rows)]]]), np.array(at, dtype=np.intp)
