"""BKB without the cost of Algorithm 1, and with its guarantees.

- The dictionary S is redrawn only when c_t = 1 + Σσ̃²_τ(x_s), over the pulls since the last draw τ, exceeds 2. Until then no
  variance has shrunk by more than c_t, and the radius pays for that.
- The posterior rests on a working set W ⊇ S, |W| ≤ 2|S|, to which new points are appended. Theorem 1 uses S only through the
  projection on its span, so any superset keeps it.
- The arg max looks only at arms whose score may be the largest (`sketch/lazy.py`).
- Many arms observed at once have their dictionary drawn by `sketch/table.py`: variances from before them would keep them all.
- While arms and pulls are few, A·u small, W is all of the u pulled arms, as long as |W| ≤ 2|S|: then the posterior is the exact
  one, and to update it at all arms (`sketch/covariance.py`) costs less than to look at few of them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.errors import StateError
from manyarms.numbers import whole
from manyarms.policies.base import Among, Lookahead
from manyarms.policies.bkb import BKB
from manyarms.policies.checks import as_arms, as_excluded, as_rewards, as_weights
from manyarms.sketch.confidence import Evidence, alpha_in, updated_norm
from manyarms.sketch.covariance import SPARE_ROWS, Covariance
from manyarms.sketch.dictionary import STALE, Chance, inclusion_probability
from manyarms.sketch.embedding import APPENDABLE, Embedding
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.lazy import Frontier
from manyarms.sketch.linalg import EPS, represented_below, solve_lower
from manyarms.sketch.past import Past
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import blas
from manyarms.sketch.table import Drawn, draw_from_table, table_sums
from manyarms.sketch.tracked import Tracked
from manyarms.typing import Array, ArrayLike, Indices, Mask

EXACT_ENTRIES = 1 << 18
"""Entries of all arms' exact covariance above which W is no longer all that was pulled: what stays in cache."""
BULK = 1024
"""Arms observed at once for the first time that are drawn from as a table."""


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


@dataclass(frozen=True)
class Kept:
    """What of a state does not follow from what was observed: with it and the observations the state is made again."""

    dictionary: Indices
    inducing: Indices
    chance: dict[str, Any]  # the state of its generator
    evidence: Evidence
    exact: bool
    table: Indices  # inducing arms of the table that it was warm-started with, if it was
    oversampling: float


class Adaptive(BKB, resparsify="adaptive"):
    """Redraws when stale, appends instead of rebuilding, scores lazily."""

    _state: AdaptiveState

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

    def kept(self) -> Kept:
        """What must be kept to go on from here later; see `resume`."""
        state = self._state
        table = np.sort(self._past.inducing) if self._past else np.zeros(0, dtype=np.intp)
        exact, chance = state.exact is not None, state.chance.state
        return Kept(state.dictionary, state.inducing, chance, state.evidence, exact, table, state.oversampling)

    def resume(self, arms: Indices, rewards: Array, weights: Array, n_table: int, n_drawn: int, kept: Kept) -> None:
        """Go on, up to rounding, from where `kept` was taken, with all that was observed by then: where there was a table, it
        had the first `n_table`; the first `n_drawn` came before the last draw."""

        def after(history: History, start: int, stop: int) -> History:
            some = slice(start, stop)
            return history.add(*by_arm(arms[some], rewards[some], weights[some]), stop - start) if start < stop else history

        if len(kept.table):
            table = after(History(), 0, n_table)
            drawn_then = Drawn(table.positions(kept.table), kept.oversampling, 0.0)
            self._state = self._warm(table, drawn_then, self._state.chance)
        fresh, start = self._state, n_table if len(kept.table) else 0
        history, drawn = after(fresh.history, start, len(arms)), after(fresh.history, start, n_drawn)
        pulled, means = history.pulled, history.sums / history.counts
        chance = Chance.of(np.random.default_rng(0), kept.chance)
        state = replace(
            fresh,
            chance=chance,
            oversampling=kept.oversampling,
            history=history,
            dictionary=kept.dictionary,
            inducing=kept.inducing,
            evidence=kept.evidence,
        )
        if not len(pulled):  # the table was all
            self._state = state
            return
        if kept.exact and fresh.exact:
            exact, _ = fresh.exact.observed(history, pulled, means, history.counts)
            self._state = replace(state, exact=exact)
            return
        embedding, inducing = Embedding.in_order(self.kernel, self.arms[kept.inducing]), kept.inducing
        if embedding is None:
            embedding, order = Embedding.fit(self.kernel, self.arms[inducing], self._tolerance(drawn, inducing))
            inducing = inducing[order]
        tracked = self._tracked_on(embedding, inducing, self._nothing_tracked(), history)
        Z, seen = tracked.embedded(np.arange(len(pulled))), np.searchsorted(pulled, drawn.pulled)
        then = Posterior.solve(embedding, Z[seen], drawn.counts, drawn.sums, self.regularization, self._past)
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

    def warm_start(
        self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None, largest: int | None = None
    ) -> None:
        """Learn a large table of past rewards before anything else, as `observe` would, and make it part of the prior.

        A dictionary is drawn from the table by recursive leverage sampling, O(n m²) in all, and stays part of every later one.
        What the table says is kept as sums of size m² (`sketch/past.py`), so that later steps do not depend on its length:
        `observe` keeps O(m) numbers current for every arm it is told of. Theorem 1 then holds with α² for α.

        largest : arms in the dictionary, about, at most: where the table has too many directions for that, `oversampling` is
            lowered, and variances are less accurate, most of them larger.
        """
        most = np.inf if largest is None else whole(largest, "largest")
        indices = as_arms(arms, self.n_arms)
        values, weights = as_rewards(rewards, len(indices)), as_weights(noise, len(indices), self.regularization)
        if self._state.history.n_observations:
            raise StateError("warm_start() comes before all else: something was observed already; tell observe() of the table")
        if len(indices):
            history = History().add(*by_arm(indices, values, weights), len(indices))
            self._check_rounding(history)
            with self.stats.timed("warm starts"):
                self._state = self._warm(history, *self._draw_from_table(history, most))

    def _warm(self, history: History, drawn: Drawn, chance: Chance) -> AdaptiveState:
        """The state after a table, on a dictionary drawn from it."""
        old, lam, table = self._state, self.regularization, self._observations(history)
        dictionary = history.pulled[drawn.at]
        # Arms dropped add at most 1 to Σnr/λ, and others can be appended to those that are kept.
        least = min(APPENDABLE * float(table.diag.max()), lam / float(history.counts.sum()))
        tolerance = max(self._tolerance(history, dictionary) or 0.0, least)
        embedding, kept = Embedding.fit(self.kernel, self.arms[dictionary], tolerance)
        V, b, residual = table_sums(embedding, table)
        past = Past(history, dictionary[kept], embedding, V, b, residual / lam)
        m, nothing, rest = len(kept), np.zeros(0), History(n_observations=history.n_observations)
        posterior = Posterior.solve(embedding, np.zeros((0, m)), nothing, nothing, lam, past)
        inverse = solve_lower(posterior.C, np.eye(m, order="F"))
        evidence = replace(
            old.evidence,
            n_observations=history.n_observations,
            trace=float(history.counts @ table.diag) / lam,
            effective_dimension=past.residual + m - lam * float(np.square(inverse).sum()),
            information=drawn.information,
            mean_norm=posterior.norm,
            mean_spread=posterior.spread,
        )
        evidence = replace(evidence, norm=updated_norm(self.confidence, evidence))
        tracked = Tracked.start(posterior, rest.pulled, np.zeros((0, m)), nothing, old.frontier.tracked.where)
        return replace(
            old,
            chance=chance,
            oversampling=drawn.oversampling,
            history=rest,
            before=evidence,
            dictionary=np.sort(past.inducing),
            inducing=past.inducing,
            drawn=posterior,
            evidence=evidence,
            frontier=old.frontier.refitted(tracked, rest),
            exact=None,
        )

    def _draw_from_table(self, history: History, largest: float = np.inf) -> tuple[Drawn, Chance]:
        """A dictionary of all pulled arms, whatever was known of them."""
        self.stats.count("draws")
        old, observed, alpha = self._state, self._observations(history), alpha_in(self.confidence)
        rng, chance = old.chance.at(history.n_observations), old.chance.random(1)[1]
        drawn = draw_from_table(self.kernel, observed, self.regularization, old.oversampling, alpha, rng, largest)
        recorded = self._recorded and self._recorded[0]
        return drawn if recorded is None else drawn._replace(at=history.positions(recorded)), chance

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

    def _observed_in_bulk(self, history: History) -> AdaptiveState:
        """From all that was observed, as if for the first time."""
        old, none = self._state, np.zeros(0, dtype=np.intp)
        drawn, chance = self._draw_from_table(history)
        frontier = old.frontier.refitted(self._nothing_tracked(), History())
        fresh = replace(old, inducing=none, exact=None, frontier=frontier)
        return self._on(history.pulled[drawn.at], chance, fresh, history, drawn.information)

    def _nothing_tracked(self) -> Tracked:
        none, prior = np.zeros(0, dtype=np.intp), Posterior.prior(self.kernel, self.n_features, self.regularization)
        return Tracked.start(prior, none, np.zeros((0, 0)), np.zeros(0), self._state.frontier.tracked.where)

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

    def _scored(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._state.frontier.tracked.moments(X, diag)

    def _current_evidence(self, history: History, tracked: Tracked, information: float, staleness: float) -> Evidence:
        variance = self._variance(history, tracked)
        norm, spread = tracked.norm_and_spread if self._state.evidence.norm is not None else (0.0, None)
        return self._evidence(history, variance, norm, information, staleness, spread)

    def _variance(self, history: History, tracked: Tracked) -> Array:
        """σ̃² at the pulled arms now."""
        return tracked.variance[tracked.positions(history.pulled)]

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
