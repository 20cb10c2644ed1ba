"""Many arms observed at once: S is drawn from all of them (`sketch/table.py`), as variances from before would keep them all."""

from dataclasses import replace

import numpy as np

from manyarms.errors import StateError
from manyarms.numbers import whole
from manyarms.policies.checks import as_arms, as_rewards, as_weights
from manyarms.policies.working import AdaptiveState, WorkingSet
from manyarms.sketch.confidence import alpha_in, updated_norm
from manyarms.sketch.dictionary import Chance
from manyarms.sketch.embedding import APPENDABLE, Embedding
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import solve_lower
from manyarms.sketch.past import Past
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.table import Drawn, draw_from_table, table_sums
from manyarms.sketch.tracked import Tracked
from manyarms.typing import ArrayLike


class WarmStart(WorkingSet):
    """Tables of past rewards: absorbed into the prior, or observed in bulk."""

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
            dictionary=np.sort(past.inducing) if m else dictionary,
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

    def _observed_in_bulk(self, history: History) -> AdaptiveState:
        """From all that was observed, as if for the first time."""
        old, none = self._state, np.zeros(0, dtype=np.intp)
        drawn, chance = self._draw_from_table(history)
        frontier = old.frontier.refitted(self._nothing_tracked(), History())
        fresh = replace(old, inducing=none, exact=None, frontier=frontier)
        return self._on(history.pulled[drawn.at], chance, fresh, history, drawn.information)
