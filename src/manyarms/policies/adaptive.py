"""BKB without the cost of Algorithm 1, and with its guarantees.

- The dictionary S is redrawn only when c_t = 1 + Σσ̃²_τ(x_s), over the pulls since the last draw τ, exceeds 2. Until then no
  variance has shrunk by more than c_t, and the radius pays for that.
- The posterior rests on a working set W ⊇ S to which new points are appended (`policies/working.py`).
- The arg max looks only at arms whose score may be the largest (`sketch/lazy.py`).
- Many arms observed at once have S drawn from all of them (`policies/warm.py`).
- While arms and pulls are few, A·u small, W is all of the u pulled arms, as long as |W| ≤ 2|S|: then the posterior is the exact
  one, and to update it at all arms (`sketch/covariance.py`) costs less than to look at few of them.
"""

from dataclasses import replace

import numpy as np

from manyarms.numbers import whole
from manyarms.policies.base import Among, Lookahead
from manyarms.policies.checks import as_arms, as_excluded
from manyarms.policies.resuming import Resumable
from manyarms.policies.working import AdaptiveState
from manyarms.sketch.covariance import SPARE_ROWS, Covariance
from manyarms.sketch.dictionary import STALE, Chance
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.lazy import Frontier
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.tracked import Tracked
from manyarms.typing import Array, ArrayLike, Indices, Mask

EXACT_ENTRIES = 1 << 18
"""Entries of all arms' exact covariance above which W is no longer all that was pulled: what stays in cache."""
BULK = 1024
"""Arms observed at once for the first time that are drawn from as a table."""


class Adaptive(Resumable, resparsify="adaptive"):
    """Redraws when stale, appends instead of rebuilding, scores lazily."""

    def choose(
        self, n: int | None = 1, *, arms: ArrayLike | None = None, pending: ArrayLike = (), exclude: ArrayLike = ()
    ) -> Indices:
        lazily = self.n_arms and self._state.history.n_observations and not self._state.exact
        if n is None or arms is not None or not lazily:
            return super().choose(n, arms=arms, pending=pending, exclude=exclude)
        n, outstanding = whole(n, "n"), as_arms(pending, self.n_arms)
        barred = self._not_seen(as_excluded(exclude, self.n_arms))
        beta, accuracy, frontier = self.beta, self._accuracy(), self._state.frontier
        with self.stats.timed("choices"):
            chosen = [] if len(outstanding) else [frontier.arg_max(beta, accuracy, barred)]
            while len(chosen) < n:
                supposed = np.concatenate([outstanding, np.array(chosen, dtype=np.intp)])
                chosen.append(frontier.arg_max_supposing(*self._supposing(supposed), beta, accuracy, barred))
        return np.array(chosen, dtype=np.intp)

    def _batch(self, outstanding: Indices, barred: Mask | None) -> Indices:
        """As in `Policy`, lazily: a pull that gives just the mean of its arm changes variances only."""
        state, chosen = self._state, list[int]()
        if state.exact or not state.history.n_observations:
            return super()._batch(outstanding, barred)
        beta, accuracy, now = np.sqrt(STALE) * self.beta, self._accuracy(), state.frontier
        history, frontier, rule, supposed = state.history, now, self._rule(), outstanding
        barred = self._not_seen(barred)
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

    def _not_seen(self, barred: Mask | None) -> Mask | None:
        """Arms observed by value are tracked, but are not to be chosen from the table."""
        seen = np.ones(len(self._state.history.seen), dtype=bool)
        return np.concatenate([np.zeros(self.n_arms, dtype=bool) if barred is None else barred, seen]) if len(seen) else barred

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
        prior = Posterior.prior(self.kernel, self.n_features, self.regularization)
        nowhere = np.full(max(1, self.n_arms), -1, dtype=np.int32)
        tracked = Tracked.start(prior, none, np.zeros((0, 0)), np.zeros(0), nowhere)
        frontier = Frontier(self.arms, self._diag, self.memory, self.stats, tracked)
        fits = self.n_arms and self._fits(History())
        exact = Covariance(self.arms, self._diag, self.kernel, self.regularization) if fits else None
        chance, evidence = Chance.of(rng), self._no_evidence()
        return AdaptiveState(
            chance, self._first_oversampling, History(), evidence, none, none, prior, np.zeros(0), evidence, frontier, exact
        )

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> AdaptiveState:
        old = self._state
        if len(history.pulled) - len(old.history.pulled) > BULK and not self._past:
            return self._observed_in_bulk(history)
        if old.exact:
            exact = old.exact.joined(*history.seen.since(len(old.history.seen)))
            return self._observed_exactly(exact, history, arms, rewards, weights)
        known = self._knowing(old.frontier, history)
        known.track(arms)
        variance = self._drawn_variance(history, known.tracked)
        anchors = variance[np.searchsorted(history.pulled, arms)]
        information = self._information(anchors, weights)
        staleness = old.evidence.staleness + float(weights @ anchors)
        frontier = known.observed(history, arms, rewards, weights)
        if staleness > STALE if self._recorded is None else self._recorded[0] is not None:
            drawn = self._draw(old, history, variance)
            return self._on(*drawn, replace(old, frontier=frontier), history, information)
        evidence = self._current_evidence(history, frontier.tracked, information, staleness)
        return replace(old, history=history, drawn_variance=variance, evidence=evidence, frontier=frontier)

    def _knowing(self, frontier: Frontier, history: History) -> Frontier:
        """The frontier with new rows tracked, as all that is observed: another one: copies may number other rows so."""
        n = len(self._state.history.seen)
        return frontier.tracking(np.arange(self.n_arms + n, self.n_arms + len(history.seen)), *history.seen.since(n))

    def _fits(self, history: History) -> bool:
        """The exact covariance of all arms is small."""
        return (self.n_arms + len(history.seen)) * (len(history.pulled) + SPARE_ROWS) <= EXACT_ENTRIES

    def _observed_exactly(
        self, exact: Covariance, history: History, arms: Indices, rewards: Array, weights: Array
    ) -> AdaptiveState:
        """The same with W all that was pulled: nothing is stale, and S is drawn anew when |W| exceeds 2|S|."""
        old, u = self._state, len(history.pulled)
        covariance, before = exact.observed(history, arms, rewards, weights)
        variance, norm = covariance.variance[history.pulled], covariance.mean_norm(history)
        spread = covariance.mean_spread(history) if old.evidence.norm is not None else None
        evidence = self._evidence(history, variance, norm, self._information(before, weights), mean_spread=spread)
        state = replace(old, history=history, inducing=history.pulled, evidence=evidence, exact=covariance)
        return state if self._fits(history) and u <= 2 * len(old.dictionary) else self._drawn_exactly(state, variance)

    def _drawn_exactly(self, state: AdaptiveState, variance: Array) -> AdaptiveState:
        """A fresh S, W still all that was pulled unless that is too much by now."""
        history, u = state.history, len(state.history.pulled)
        dictionary, chance = self._draw(state, history, variance)
        if u <= 2 * len(dictionary) and self._fits(history):
            return replace(state, chance=chance, dictionary=dictionary)
        return self._on(dictionary, chance, state, history, state.evidence.information)

    def _redrawn(self, oversampling: float) -> AdaptiveState:
        asked = replace(self._state, oversampling=oversampling)
        history, information = asked.history, asked.evidence.information
        if not len(history.pulled):
            return asked
        if asked.exact:
            return self._drawn_exactly(asked, asked.exact.variance[history.pulled])
        variance = self._variance(history, asked.frontier.tracked)
        return self._on(*self._draw(asked, history, variance), asked, history, information)

    def _moments(self) -> tuple[Array, Array]:
        exact = self._state.exact
        return (exact.mean[: self.n_arms].copy(), exact.variance[: self.n_arms]) if exact else super()._moments()

    def _fitted(self) -> Posterior:
        state = self._state
        if state.exact and state.history.n_observations:
            return self._posterior(state.history, state.history.pulled)[0]
        return super()._fitted()

    def _lookahead(self, *, append: bool) -> Lookahead:
        exact = self._state.exact
        return exact.copy() if exact else super()._lookahead(append=append)

    def _among(self, X: Array, diag: Array, *, append: bool) -> Among:
        exact = self._state.exact
        return exact.at(X, diag) if exact else super()._among(X, diag, append=append)
