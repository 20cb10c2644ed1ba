"""The dictionary S, the working set W and the posterior on it: what the adaptive engine's state is, and how S and W change.

- W ⊇ S, |W| ≤ 2|S|: new points of S are appended, and W is replaced by S once it would be larger. Theorem 1 uses S only through
  the projection on its span, so any superset keeps it.
- Arms of a table that was absorbed (`policies/warm.py`) stay in every S.
"""

from dataclasses import dataclass, replace

import numpy as np

from manyarms.policies.bkb import BKB
from manyarms.sketch.confidence import Evidence
from manyarms.sketch.covariance import Covariance
from manyarms.sketch.dictionary import Chance, inclusion_probability
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History
from manyarms.sketch.lazy import Frontier
from manyarms.sketch.linalg import EPS, represented_below, solve_lower
from manyarms.sketch.past import Past
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import blas
from manyarms.sketch.tracked import Tracked
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class AdaptiveState:
    """Everything that `observe` and `redraw` change."""

    chance: Chance
    oversampling: float  # q̄
    history: History
    before: Evidence  # of a table that was absorbed: the history does not hold it
    dictionary: Indices  # S
    inducing: Indices  # W, in the order of its coordinates
    drawn: Posterior  # at the last draw τ
    drawn_variance: Array  # (u,) σ̃²_τ at the pulled arms
    evidence: Evidence
    frontier: Frontier  # scores that are current, and bounds on the rest; unused while the posterior is exact
    exact: Covariance | None  # the posterior of all arms while W is all that was pulled

    @property
    def posterior(self) -> Posterior:
        """The sketched posterior now, with nothing waiting."""
        return self.frontier.tracked.factored(self.history)


class WorkingSet(BKB):
    """S drawn, W grown to hold it, the posterior on W."""

    _state: AdaptiveState

    def _draw(self, old: AdaptiveState, history: History, variance: Array) -> tuple[Indices, Chance]:
        """A fresh S with p̃ = q̄σ̃²_τ (lines 6–9 of Algorithm 1), beside what was drawn from a table that was absorbed."""
        self.stats.count("draws")
        probability = inclusion_probability(variance, history.counts, old.oversampling)
        dictionary, chance = self._drawn(history.pulled, probability, old.chance)
        return (np.union1d(self._past.inducing, dictionary) if self._past else dictionary), chance

    def _on(
        self, dictionary: Indices, chance: Chance, old: AdaptiveState, history: History, information: float
    ) -> AdaptiveState:
        """W grown to hold S, or replaced by it, and the posterior on W."""
        with blas().limit(limits=1):
            embedding, inducing = self._working_set(old, history, dictionary)
            tracked = self._tracked_on(embedding, inducing, old.frontier.tracked, history)
        return AdaptiveState(
            chance,
            old.oversampling,
            history,
            old.before,
            dictionary,
            inducing,
            tracked.posterior,
            self._variance(history, tracked),
            self._current_evidence(history, tracked, information, 1.0),
            old.frontier.refitted(tracked, history),
            None,
        )

    def _working_set(self, old: AdaptiveState, history: History, dictionary: Indices) -> tuple[Embedding, Indices]:
        """W and its embedding: the old one with the new points of S appended, or S alone once |W| would exceed 2|S|."""
        embedding, inducing, past = old.frontier.tracked.posterior.embedding, old.inducing, self._past
        new = np.setdiff1d(dictionary, inducing, assume_unique=True)
        if not len(new) and not old.exact and len(inducing) <= 2 * len(dictionary):
            return embedding, inducing
        working, append = np.union1d(inducing, new), True
        if len(working) > 2 * len(dictionary):
            working, append = dictionary, past is not None
            if past:
                embedding, inducing = past.embedding, past.inducing
                new = np.setdiff1d(dictionary, inducing, assume_unique=True)
        if append:
            appended = embedding.append(self._rows(history, new), self._tolerance(history, working))
            if appended:
                return appended[0], np.concatenate([inducing, new[appended[1]]])
        embedding, kept = Embedding.fit(self.kernel, self._rows(history, working), self._tolerance(history, working))
        return embedding, working[kept]

    def _tracked_on(self, embedding: Embedding, inducing: Indices, tracked: Tracked, history: History) -> Tracked:
        """The pulled arms, and where inducing arms were only appended all tracked ones, with the posterior on an embedding."""
        m = len(tracked.posterior.w)
        if m and embedding.extends(tracked.posterior.embedding):
            if len(embedding.L) == m:
                return tracked.folded(history)
            K = self.kernel(self._rows(history, tracked.arms), embedding.inducing_rows[m:])
            return tracked.appended(history, embedding, K, inducing)
        observed = self._observations(history)
        Z, r = embedding(observed.rows, observed.diag)
        at = history.positions(inducing)
        Z[at[at >= 0]] = embedding.L[at >= 0]
        posterior = Posterior.solve(embedding, Z, history.counts, history.sums, self.regularization, self._past)
        return Tracked.start(posterior, history.pulled, Z, r / self.regularization, tracked.where)

    def _nothing_tracked(self) -> Tracked:
        none, prior = np.zeros(0, dtype=np.intp), Posterior.prior(self.kernel, self.n_features, self.regularization)
        return Tracked.start(prior, none, np.zeros((0, 0)), np.zeros(0), self._state.frontier.tracked.where)

    def _drawn_variance(self, history: History, tracked: Tracked) -> Array:
        """σ̃²_τ of all pulled arms, τ the last draw: known for those pulled before, computed for the new ones."""
        old = self._state
        if history.pulled is old.history.pulled:
            return old.drawn_variance
        variance = np.empty(len(history.pulled))
        known = np.isin(history.pulled, old.history.pulled, assume_unique=True)
        variance[known] = old.drawn_variance
        at = tracked.positions(history.pulled[~known])
        B = solve_lower(old.drawn.C, np.array(tracked.embedded(at).T, order="F"))
        variance[~known] = np.maximum(tracked.residual(at) + np.einsum("ij,ij->j", B, B), 0.0)
        return variance

    def _variance(self, history: History, tracked: Tracked) -> Array:
        """σ̃² at the pulled arms now."""
        return tracked.variance[tracked.positions(history.pulled)]

    def _current_evidence(self, history: History, tracked: Tracked, information: float, staleness: float) -> Evidence:
        variance = self._variance(history, tracked)
        norm, spread = tracked.norm_and_spread if self._state.evidence.norm is not None else (0.0, None)
        return self._evidence(history, variance, norm, information, staleness, spread)

    def _scored(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._state.frontier.tracked.moments(X, diag)

    @property
    def _past(self) -> Past | None:
        return self._state.frontier.tracked.posterior.past

    def _whole_history(self) -> History:
        history, past = self._state.history, self._past
        if not past:
            return history
        added = past.history.add(history.pulled, history.sums / history.counts, history.counts)
        return replace(added, n_observations=history.n_observations, seen=history.seen)

    def _evidence_before(self) -> Evidence:
        return self._state.before

    def _tolerance(self, history: History, dictionary: Indices) -> float | None:
        if not self._past:
            return super()._tolerance(history, dictionary)
        kappa2 = float(self._diags(history, dictionary).max())
        return represented_below(len(dictionary), kappa2, self.regularization, self._most(history))

    def _most(self, history: History) -> float:
        """The largest weight of an arm."""
        return max(float(seen.counts.max(initial=0.0)) for seen in (history, self._past.history if self._past else history))

    def _accuracy(self) -> float:
        """Relative accuracy of scores: what rounding may leave."""
        history = self._state.history
        evidence = self._most(history) * float(self._diags(history, self._state.inducing).max(initial=0.0))
        return max(3e-9, 10 * EPS * evidence / self.regularization)
