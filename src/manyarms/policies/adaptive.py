"""BKB without the cost of Algorithm 1, and with its guarantees.

- The dictionary S is redrawn only when c_t = 1 + Σσ̃²_τ(x_s), over the pulls since the last draw τ, exceeds 2. Until then no
  variance has shrunk by more than c_t, and the radius pays for that.
- The posterior rests on a working set W ⊇ S, |W| ≤ 2|S|, to which new points are appended. Theorem 1 uses S only through the
  projection on its span, so any superset keeps it.
- The arg max looks only at arms whose score may be the largest (`sketch/lazy.py`).
- While arms and pulls are few, A·u small, W is all of the u pulled arms, as long as |W| ≤ 2|S|: then the posterior is the exact
  one, and to update it at all arms (`sketch/covariance.py`) costs less than to look at few of them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.numbers import whole
from manyarms.policies.base import Lookahead
from manyarms.policies.bkb import BKB
from manyarms.policies.checks import as_arms, as_excluded
from manyarms.sketch.confidence import Evidence
from manyarms.sketch.covariance import SPARE_ROWS, Covariance
from manyarms.sketch.dictionary import STALE, Chance, inclusion_probability
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.lazy import Frontier
from manyarms.sketch.linalg import EPS, solve_lower
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import blas
from manyarms.sketch.tracked import Tracked
from manyarms.typing import Array, ArrayLike, Indices, Mask

EXACT_ENTRIES = 1 << 18
"""Entries of all arms' exact covariance above which W is no longer all that was pulled: what stays in cache."""


@dataclass(frozen=True)
class AdaptiveState:
    """Everything that `observe` and `redraw` change."""

    chance: Chance
    oversampling: float  # q̄
    history: History
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


@dataclass(frozen=True)
class Kept:
    """What of a state does not follow from what was observed: with it and the observations the state is made again."""

    dictionary: Indices
    inducing: Indices
    chance: dict[str, Any]  # the state of its generator
    evidence: Evidence
    exact: bool


class Adaptive(BKB, resparsify="adaptive"):
    """Redraws when stale, appends instead of rebuilding, scores lazily."""

    _state: AdaptiveState

    def choose(self, n: int | None = 1, *, pending: ArrayLike = (), exclude: ArrayLike = ()) -> Indices:
        if n is None or self._state.exact or not self._state.history.n_observations:
            return super().choose(n, pending=pending, exclude=exclude)
        n, outstanding, barred = whole(n, "n"), as_arms(pending, self.n_arms), as_excluded(exclude, self.n_arms)
        beta, accuracy, frontier = self.beta, self._accuracy(), self._state.frontier
        with self.stats.timed("choices"):
            chosen = [] if len(outstanding) else [frontier.arg_max(beta, accuracy, barred)]
            while len(chosen) < n:
                supposed = np.concatenate([outstanding, np.array(chosen, dtype=np.intp)])
                chosen.append(frontier.arg_max_supposing(*self._supposing(supposed), beta, accuracy, barred))
        return np.array(chosen, dtype=np.intp)

    def kept(self) -> Kept:
        """What must be kept to go on from here later; see `resume`."""
        state = self._state
        return Kept(state.dictionary, state.inducing, state.chance.state, state.evidence, state.exact is not None)

    def resume(self, history: History, drawn: History, kept: Kept) -> None:
        """Go on, up to rounding, from where `kept` was taken: with what was observed by then, and by the last draw."""
        fresh, pulled = self._state, history.pulled
        chance, means = Chance.of(np.random.default_rng(0), kept.chance), history.sums / history.counts
        state = replace(
            fresh, chance=chance, history=history, dictionary=kept.dictionary, inducing=kept.inducing, evidence=kept.evidence
        )
        if kept.exact and fresh.exact:
            exact, _ = fresh.exact.observed(history, pulled, means, history.counts)
            self._state = replace(state, exact=exact)
            return
        embedding, inducing = Embedding.in_order(self.kernel, self.arms[kept.inducing]), kept.inducing
        if embedding is None:
            embedding, order = Embedding.fit(self.kernel, self.arms[inducing], self._tolerance(drawn, inducing))
            inducing = inducing[order]
        tracked = self._tracked_on(embedding, inducing, fresh.frontier.tracked, history)
        Z, seen = tracked.embedded(np.arange(len(pulled))), np.searchsorted(pulled, drawn.pulled)
        then = Posterior.solve(embedding, Z[seen], drawn.counts, drawn.sums, self.regularization)
        B = solve_lower(then.C, np.array(Z.T, order="F"))
        variance = np.maximum(tracked.residual(np.arange(len(pulled))) + np.einsum("ij,ij->j", B, B), 0.0)
        self._state = replace(
            state,
            inducing=inducing,
            drawn=then,
            drawn_variance=variance,
            frontier=fresh.frontier.refitted(tracked, history),
            exact=None,
        )

    def _batch(self, outstanding: Indices, barred: Mask | None) -> Indices:
        """As in `Policy`, lazily: a pull that gives just the mean of its arm changes variances only."""
        state, chosen = self._state, list[int]()
        if state.exact or not state.history.n_observations:
            return super()._batch(outstanding, barred)
        beta, accuracy, now = np.sqrt(STALE) * self.beta, self._accuracy(), state.frontier
        history, frontier, rule, supposed = state.history, now, self._rule(), outstanding
        while True:
            now.track(supposed)
            variance = now.tracked.variance[now.tracked.positions(supposed)]
            if not rule.lets(supposed, variance) or (chosen and not variance.any()):
                return np.array(chosen, dtype=np.intp)
            if len(supposed):
                distinct, _, weights = by_arm(supposed, np.zeros(len(supposed)), np.ones(len(supposed)))
                means = now.tracked.mean[now.tracked.positions(distinct)]
                history = history.add(distinct, means, weights)
                frontier.track(distinct)
                frontier = frontier.observed(history, distinct, means, weights)
            supposed = np.array([frontier.arg_max(beta, accuracy, barred)])
            chosen.append(int(supposed[0]))

    def _supposing(self, arms: Indices) -> tuple[Posterior, float]:
        """The posterior if these arms were pulled once more, each appended to W, and how much an append may raise variances."""
        state = self._state
        distinct, nothing, weights = by_arm(arms, np.zeros(len(arms)), np.ones(len(arms)))
        history = state.history.add(distinct, nothing, weights)
        posterior, _ = self._posterior(history, np.union1d(state.inducing, distinct))
        new = np.setdiff1d(distinct, state.inducing)
        return posterior, state.frontier.rise(new, self._observations(state.history)) if len(new) else 1.0

    def _first_state(self, rng: np.random.Generator) -> AdaptiveState:
        none = np.zeros(0, dtype=np.intp)
        prior = Posterior.prior(self.kernel, self.arms.shape[1], self.regularization)
        nowhere = np.full(self.n_arms, -1, dtype=np.int32)
        tracked = Tracked.start(prior, none, np.zeros((0, 0)), np.zeros(0), nowhere)
        frontier = Frontier(self.arms, self._diag, self.memory, self.stats, tracked)
        fits = self.n_arms * SPARE_ROWS <= EXACT_ENTRIES
        exact = Covariance(self.arms, self._diag, self.kernel, self.regularization) if fits else None
        chance, evidence = Chance.of(rng), self._no_evidence()
        return AdaptiveState(
            chance, self._first_oversampling, History(), none, none, prior, np.zeros(0), evidence, frontier, exact
        )

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> AdaptiveState:
        old = self._state
        if old.exact:
            return self._observed_exactly(old.exact, history, arms, rewards, weights)
        old.frontier.track(arms)
        variance = self._drawn_variance(history, old.frontier.tracked)
        anchors = variance[np.searchsorted(history.pulled, arms)]
        information = self._information(anchors, weights)
        staleness = old.evidence.staleness + float(weights @ anchors)
        frontier = old.frontier.observed(history, arms, rewards, weights)
        if staleness > STALE if self._recorded is None else self._recorded[0] is not None:
            drawn = self._draw(old, history, variance)
            return self._on(*drawn, replace(old, frontier=frontier), history, information)
        evidence = self._current_evidence(history, frontier.tracked, information, staleness)
        return replace(old, history=history, drawn_variance=variance, evidence=evidence, frontier=frontier)

    def _observed_exactly(
        self, exact: Covariance, history: History, arms: Indices, rewards: Array, weights: Array
    ) -> AdaptiveState:
        """The same with W all that was pulled: nothing is stale, and S is drawn anew when |W| exceeds 2|S|."""
        old, u = self._state, len(history.pulled)
        covariance, before = exact.observed(history, arms, rewards, weights)
        variance, norm = covariance.variance[history.pulled], covariance.mean_norm(history)
        evidence = self._evidence(history, variance, norm, self._information(before, weights))
        state = replace(old, history=history, inducing=history.pulled, evidence=evidence, exact=covariance)
        fits = self.n_arms * (u + SPARE_ROWS) <= EXACT_ENTRIES
        return state if fits and u <= 2 * len(old.dictionary) else self._drawn_exactly(state, variance)

    def _drawn_exactly(self, state: AdaptiveState, variance: Array) -> AdaptiveState:
        """A fresh S, W still all that was pulled unless that is too much by now."""
        history, u = state.history, len(state.history.pulled)
        dictionary, chance = self._draw(state, history, variance)
        if u <= 2 * len(dictionary) and self.n_arms * (u + SPARE_ROWS) <= EXACT_ENTRIES:
            return replace(state, chance=chance, dictionary=dictionary)
        return self._on(dictionary, chance, state, history, state.evidence.information)

    def _redrawn(self, oversampling: float) -> AdaptiveState:
        asked = replace(self._state, oversampling=oversampling)
        history, information = asked.history, asked.evidence.information
        if not history.n_observations:
            return asked
        if asked.exact:
            return self._drawn_exactly(asked, asked.exact.variance[history.pulled])
        variance = self._variance(history, asked.frontier.tracked)
        return self._on(*self._draw(asked, history, variance), asked, history, information)

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

    def _draw(self, old: AdaptiveState, history: History, variance: Array) -> tuple[Indices, Chance]:
        """A fresh S with p̃ = q̄σ̃²_τ (lines 6–9 of Algorithm 1)."""
        self.stats.count("draws")
        probability = inclusion_probability(variance, history.counts, old.oversampling)
        return self._drawn(history.pulled, probability, old.chance)

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
            dictionary,
            inducing,
            tracked.posterior,
            self._variance(history, tracked),
            self._current_evidence(history, tracked, information, 1.0),
            old.frontier.refitted(tracked, history),
            None,
        )

    def _tracked_on(self, embedding: Embedding, inducing: Indices, tracked: Tracked, history: History) -> Tracked:
        """The pulled arms, and where inducing arms were only appended all tracked ones, with the posterior on an embedding."""
        m = len(tracked.posterior.w)
        if m and embedding.extends(tracked.posterior.embedding):
            if len(embedding.L) == m:
                return tracked.folded(history)
            K = self.kernel(self.arms[tracked.arms], embedding.inducing_rows[m:])
            return tracked.appended(history, embedding, K, inducing)
        observed = self._observations(history)
        Z, r = embedding(observed.rows, observed.diag)
        Z[np.searchsorted(history.pulled, inducing)] = embedding.L
        posterior = Posterior.solve(embedding, Z, history.counts, history.sums, self.regularization)
        return Tracked.start(posterior, history.pulled, Z, r / self.regularization, tracked.where)

    def _working_set(self, old: AdaptiveState, history: History, dictionary: Indices) -> tuple[Embedding, Indices]:
        """W and its embedding: the old one with the new points of S appended, or S alone once |W| would exceed 2|S|."""
        embedding = old.frontier.tracked.posterior.embedding
        new = np.setdiff1d(dictionary, old.inducing, assume_unique=True)
        if not len(new) and not old.exact and len(old.inducing) <= 2 * len(dictionary):
            return embedding, old.inducing
        working = np.union1d(old.inducing, new)
        if len(working) > 2 * len(dictionary):
            working = dictionary
        else:
            appended = embedding.append(self.arms[new], self._tolerance(history, working))
            if appended:
                return appended[0], np.concatenate([old.inducing, new[appended[1]]])
        embedding, kept = Embedding.fit(self.kernel, self.arms[working], self._tolerance(history, working))
        return embedding, working[kept]

    def _moments(self) -> tuple[Array, Array]:
        exact = self._state.exact
        return (exact.mean.copy(), exact.variance) if exact else super()._moments()

    def _fitted(self) -> Posterior:
        state = self._state
        if state.exact and state.history.n_observations:
            return self._posterior(state.history, state.history.pulled)[0]
        return super()._fitted()

    def _lookahead(self, *, append: bool) -> Lookahead:
        exact = self._state.exact
        return exact.copy() if exact else super()._lookahead(append=append)

    def _current_evidence(self, history: History, tracked: Tracked, information: float, staleness: float) -> Evidence:
        variance = self._variance(history, tracked)
        norm = tracked.norm if self._state.evidence.norm is not None else 0.0
        return self._evidence(history, variance, norm, information, staleness)

    def _variance(self, history: History, tracked: Tracked) -> Array:
        """σ̃² at the pulled arms now."""
        return tracked.variance[tracked.positions(history.pulled)]

    def _accuracy(self) -> float:
        """Relative accuracy of scores: what rounding may leave."""
        evidence = float(self._state.history.counts.max()) * float(self._diag[self._state.inducing].max(initial=0.0))
        return max(3e-9, 10 * EPS * evidence / self.regularization)
