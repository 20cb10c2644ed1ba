"""What is known of the candidates: the best ones, predictions, a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from manyarms.campaign.certificate import Certificate, accuracy, promise
from manyarms.campaign.ledger import State
from manyarms.campaign.trials import CandidateId
from manyarms.errors import StateError
from manyarms.numbers import real, whole
from manyarms.policies.policy import Policy
from manyarms.pool.ids import plain
from manyarms.pool.pool import Pool
from manyarms.typing import Array, Indices, Mask


@dataclass(frozen=True)
class Candidate:
    """A candidate and what is known of it: posterior mean and interval of its true value, in the
    user's units."""

    id: CandidateId
    mean: float
    low: float
    high: float
    n_results: int


class Predictions(NamedTuple):
    """Of some candidates: posterior mean, standard deviation and interval of the true value, each
    (n,), in the user's units."""

    ids: list[CandidateId]
    mean: Array
    std: Array
    low: Array
    high: Array


class Knowledge:
    """Answers that change nothing, from the state of an optimizer."""

    _state: State
    _sign: float  # of the values: 1 to maximise, −1 to minimise

    def best(self, level: float = 0.95) -> Candidate:
        """The tried candidate of largest lower confidence bound (lowest upper bound when
        minimising)."""
        return self._candidates([self._best()], level)[0]

    def top(self, k: int = 10, level: float = 0.95) -> list[Candidate]:
        """The k candidates, tried or not, of best posterior mean."""
        state, k = self._state, whole(k, "k")
        self._something_told()
        mean = self._means()[state.pool.arm_of]
        mean[state.out] = -np.inf
        order = np.argsort(-mean, kind="stable")[: min(k, int(np.isfinite(mean).sum()))]
        return self._candidates(order.tolist(), level) if len(order) else []

    def predict(self, ids: Any, level: float = 0.95) -> Predictions:
        """Posterior mean, standard deviation and interval of the true values of candidates."""
        state = self._state
        positions = state.pool.positions(ids)
        return self._predictions(
            state.names(positions), state.model.arms, state.pool.arm_of[positions], level
        )

    def predict_rows(self, table: Any, *, ids: Any = None, level: float = 0.95) -> Predictions:
        """The same of candidates that are not in the pool: a table that `add` would take. Nothing
        is added."""
        before, pool = len(self._state.pool), self._state.pool.add(table, ids=ids)
        return self._predictions(
            [plain(name) for name in pool.ids[before:]], pool.X, pool.arm_of[before:], level
        )

    def _predictions(
        self, names: list[CandidateId], X: Array, arms: Indices, level: float
    ) -> Predictions:
        """Of rows of an array that has the columns of the pool's."""
        if self._state.model.settings.learns:
            self._something_told()
        if not names:
            return Predictions([], *(np.zeros(0) for _ in range(4)))
        model = replace(self._state.model, arms=X)
        _, less, more = model.interval(arms, 1.0)
        mean, *ends = (self._sign * end for end in model.interval(arms, _quantile(level)))
        return Predictions(
            names, mean, (more - less) / 2, *(ends if self._sign > 0 else ends[::-1])
        )

    def certificate(self, tolerance: float | None = None) -> Certificate:
        """How much better than the recommended candidate another one may be, and how sure that
        is."""
        if tolerance is not None:
            real(
                tolerance,
                "tolerance",
                "a non-negative regret, in the units of the values",
                at_least=0,
            )
        state, model, best = self._state, self._state.model, self._best()
        policy = model.policy
        gone = self._gone(state)
        gone[state.pool.arm_of[best]] = True
        rival = int(state.pool.arm_of[best] if gone.all() else self._rival(gone))
        mean, low, high = model.interval(np.array([state.pool.arm_of[best], rival]), model.radius)
        bound = 0.0 if gone.all() else max(0.0, float(high[1] - low[0]))
        probability, reason = promise(model)
        ends = sorted((self._sign * low[0], self._sign * high[0]))
        rivals = state.pool.members(rival)
        names = state.names([best, rivals[~state.out[rivals]][0]])
        return Certificate(
            names[0],
            float(self._sign * mean[0]),
            float(ends[0]),
            float(ends[1]),
            names[1],
            float(bound),
            probability,
            reason,
            accuracy(policy),
            float(policy.effective_dimension),
            model.n_results,
            tolerance,
        )

    @property
    def importance(self) -> dict[str, float]:
        """One over the lengthscale of every column the kernel learns one for, largest first: what
        the values depend on most.

        Numbers among numbers and categories among categories: the two are lengths in different
        kernels.
        """
        fitted, features = self._state.model.fitted, self._state.pool.features
        if fitted is None or not len(fitted.theta):
            raise StateError(
                "no lengthscales were learned: tell more results, and leave `kernel` to be learned"
            )
        columns = [feature.name for feature in features if feature.kind != "bits"]
        pairs = zip(columns, np.exp(-fitted.theta).tolist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    @property
    def policy(self) -> Any:
        """The policy at work, on standardised rewards; a refit replaces it."""
        return self._state.model.policy

    @property
    def noise(self) -> float:
        """Standard deviation of the values of one good candidate, given or learned."""
        model = self._state.model
        return model.noise / model.warp.slope

    @property
    def pool(self) -> Pool:
        """The candidates."""
        pool: Pool = self._state.pool
        return pool

    def _means(self) -> Array:
        """Posterior mean of every arm's reward, (A,)."""
        return np.asarray(self._state.model.policy.predict().mean)

    def _rival(self, gone: Mask) -> int:
        """The arm of largest upper bound that is not gone, however the policy chooses."""
        model = self._state.model
        if isinstance(model.policy, Policy):
            return model.policy.highest(exclude=gone)
        mean, std = model.policy.predict()
        return int(np.argmax(np.where(gone, -np.inf, mean + model.radius * std)))

    def _gone(self, state: State) -> Mask:
        """Arms all of whose candidates are retired or failed, (A,)."""
        gone = np.ones(state.model.policy.n_arms, dtype=bool)
        gone[state.pool.arm_of[~state.out]] = False
        return gone

    def _something_told(self) -> None:
        if not self._state.model.n_results:
            raise StateError("no value was told yet: call tell() first")

    def _best(self) -> int:
        """Position of the recommended candidate."""
        self._something_told()
        state, model = self._state, self._state.model
        positions = np.flatnonzero(state.results)
        positions = positions[~state.out[positions]]
        if not len(positions):
            raise StateError(
                "all candidates with a value are retired or failed: tell results of others"
            )
        mean, std = model.predict(state.pool.arm_of[positions])
        return int(positions[np.argmax(mean - model.radius * std)])

    def _candidates(self, positions: Sequence[int], level: float) -> list[Candidate]:
        state = self._state
        names = state.names(positions)
        predicted = self.predict(names, level)
        rows = zip(
            predicted.mean.tolist(), predicted.low.tolist(), predicted.high.tolist(), strict=True
        )
        counts = state.results[np.asarray(positions, dtype=np.intp)].tolist()
        return [
            Candidate(name, *row, count)
            for name, row, count in zip(names, rows, counts, strict=True)
        ]


def _quantile(level: float) -> float:
    real(level, "level", "a probability between 0 and 1", above=0, below=1)
    return float(ndtri(0.5 + level / 2))
