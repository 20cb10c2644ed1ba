"""A state made again from what was observed and the little that does not follow from it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.policies.warm import WarmStart
from manyarms.policies.working import AdaptiveState
from manyarms.sketch.confidence import Evidence
from manyarms.sketch.dictionary import Chance
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import solve_lower
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.table import Drawn
from manyarms.typing import Array, Indices


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


class Resumable(WarmStart):
    """Goes on from where another policy was."""

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
        state = replace(
            fresh,
            chance=Chance.of(np.random.default_rng(0), kept.chance),
            oversampling=kept.oversampling,
            history=history,
            dictionary=kept.dictionary,
            inducing=kept.inducing,
            evidence=kept.evidence,
        )
        if not len(history.pulled):  # the table was all
            self._state = state
        elif kept.exact and fresh.exact:
            exact, _ = fresh.exact.observed(history, history.pulled, history.sums / history.counts, history.counts)
            self._state = replace(state, exact=exact)
        else:
            self._state = self._sketched_again(state, drawn)

    def _sketched_again(self, state: AdaptiveState, drawn: History) -> AdaptiveState:
        """The state with the posterior on its working set, now and at the last draw, when `drawn` was all that was known."""
        history, inducing = state.history, state.inducing
        embedding = Embedding.in_order(self.kernel, self.arms[inducing])
        if embedding is None:
            embedding, order = Embedding.fit(self.kernel, self.arms[inducing], self._tolerance(drawn, inducing))
            inducing = inducing[order]
        tracked = self._tracked_on(embedding, inducing, self._nothing_tracked(), history)
        everywhere = np.arange(len(history.pulled))
        Z, seen = tracked.embedded(everywhere), np.searchsorted(history.pulled, drawn.pulled)
        then = Posterior.solve(embedding, Z[seen], drawn.counts, drawn.sums, self.regularization, self._past)
        B = solve_lower(then.C, np.array(Z.T, order="F"))
        variance = np.maximum(tracked.residual(everywhere) + np.einsum("ij,ij->j", B, B), 0.0)
        frontier = state.frontier.refitted(tracked, history)
        return replace(state, inducing=inducing, drawn=then, drawn_variance=variance, frontier=frontier, exact=None)
