"""What every policy knows: what comes in is checked, the state changes in one step or not at all, and says what f may be."""

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyarms.arms import as_rows
from manyarms.arms.array import Checked
from manyarms.arms.objects import encoded
from manyarms.errors import KernelError, StateError
from manyarms.kernels import as_kernel
from manyarms.kernels.objects import shown
from manyarms.numbers import real
from manyarms.policies.checks import as_arms, as_generator, as_radius, as_rewards, as_weights
from manyarms.policies.confident import Confident, State
from manyarms.policies.numbered import Numbered
from manyarms.sketch.choice import Scores, score
from manyarms.sketch.confidence import Evidence, Radius, first_norm, updated_norm
from manyarms.sketch.dictionary import Chance
from manyarms.sketch.embedding import check_kernel
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import check_rounding
from manyarms.sketch.observations import Observations
from manyarms.stats import Stats
from manyarms.typing import Array, ArrayLike, Indices, Seed

ROWS = 1 << 16
"""Rows whose k(x, x) is computed at a time."""


class Prediction(NamedTuple):
    """Posterior mean and standard deviation of f, each (n,), in the units of the rewards."""

    mean: Array
    std: Array


class Learner(Numbered, Confident):
    """Arms are the rows of a table; an arm is its index. Rows observed by value are further arms, numbered behind the table's.

    A subclass supplies its state and what follows from it; everything a caller gives is checked here.
    """

    _exact = False

    def __init__(
        self,
        arms: ArrayLike | str | Path | Checked | None,
        kernel: Any,
        *,
        regularization: float,
        confidence: Radius,
        seed: Seed,
        n_features: int | None = None,
    ) -> None:
        self.kernel = as_kernel(kernel)
        self.arms = self._table(encoded(arms, self.kernel), n_features)
        self.regularization = real(regularization, "regularization", "a positive variance, for instance noise**2", above=0)
        self.confidence = as_radius(confidence)
        self._diag = self._diagonal(self.arms)
        self._check_kernel(self.arms, self._diag)
        self.stats = Stats()
        rng = as_generator(seed)
        self._first_chance = Chance.of(rng)
        self._first_arm = self._first_chance.integer(self.n_arms or 2)
        self._cache: tuple[State, Array, Array] | None = None
        self._state = self._first_state(rng)

    def observe(self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Learn the rewards (n,) of arms (n,), in any order, repeats included.

        Arms are given by number or by value, as rows (n, d). Equal rows are one arm: a row of the table is that arm (the first
        of equal ones), any other is stored once and numbered from A on; `rows` tells what a number stands for.

        `noise` is the standard deviation of these rewards where it differs from √λ: one number, or one each; an observation
        then weighs λ/noise². On an error nothing has changed.
        """
        history, indices = self._numbered(arms, self._state.history)
        values = as_rewards(rewards, len(indices))
        weights = as_weights(noise, len(indices), self.regularization)
        if len(indices):
            distinct, means, totals = by_arm(indices, values, weights)
            history = history.add(distinct, means, totals, len(indices))
            self._check_rounding(history)
            with self.stats.timed("observations"):
                self._state = self._observed(history, distinct, means, totals)

    def scores(self) -> Scores:
        """Mean, variance (leverage units) and upper confidence bound of every arm, each (A,), read-only."""
        self._check_table()
        state, cached = self._state, self._cache
        if cached is None or cached[0] is not state:
            with self.stats.timed("full scorings"):
                mean, variance = self._moments()
            cached = self._cache = state, mean, variance
        scores = score(*cached[1:], self.beta)
        for array in scores:
            array.setflags(write=False)
        return scores

    def predict(self, X: ArrayLike | None = None) -> Prediction:
        """Posterior mean and standard deviation √(λσ̃²) of f at the arms, or at the rows of X (objects where arms are)."""
        if X is None:
            mean, variance = self.scores().mean.copy(), self.scores().variance
        else:
            rows = as_rows(encoded(X, self.kernel, self.n_features), self.n_features)
            mean, variance = self._moments_at(rows, self._diagonal(rows))
        return Prediction(mean, np.sqrt(self.regularization * variance))

    def rows(self, arms: ArrayLike) -> Array:
        """The rows (n, d) of arms by number: those of the table, from A on those observed by value."""
        history = self._state.history
        return self._rows(history, as_arms(arms, self.n_arms + len(history.seen)))

    @property
    def counts(self) -> Array:
        """Weight of the observations of every arm, (A,), of those observed by value too: how often it was pulled, unless
        `noise` was given."""
        seen, counts = self._whole_history(), np.zeros(self.n_arms + len(self._state.history.seen))
        counts[seen.pulled] = seen.counts
        return counts

    @property
    def best(self) -> int:
        """The pulled arm of largest lower confidence bound μ̃ − β̃σ̃."""
        history, pulled = self._state.history, self._whole_history().pulled
        if not len(pulled):
            raise StateError("no arm was observed yet: call observe() first")
        if len(history.seen):
            mean, variance = self._moments_at(self._rows(history, pulled), self._diags(history, pulled))
        else:
            mean, variance = (moment[pulled] for moment in self.scores()[:2])
        return int(pulled[np.argmax(mean - self.beta * np.sqrt(variance))])

    def __repr__(self) -> str:
        seen = self._whole_history()
        done = f"{seen.n_observations} observations of {len(seen.pulled)} arms"
        return f"{type(self).__name__}({self.n_arms} arms, {self.kernel!r}, {done})"

    def _whole_history(self) -> History:
        """All that was observed."""
        return self._state.history

    @abstractmethod
    def _first_state(self, rng: np.random.Generator) -> State:
        """The state before any observation; the generator is the policy's own."""

    @abstractmethod
    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> State:
        """The state after these observations, each arm once; `history` includes them."""

    @abstractmethod
    def _moments(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of every arm."""

    @abstractmethod
    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² at other rows, `diag` their k(x, x)."""

    def _observations(self, history: History) -> Observations:
        pulled = history.pulled
        return Observations(self._rows(history, pulled), self._diags(history, pulled), history.counts, history.sums)

    def _no_evidence(self) -> Evidence:
        return Evidence(self.n_arms or 1, self.regularization, self._exact, first_norm(self.confidence))

    def _evidence_before(self) -> Evidence:
        """Evidence of what the history does not hold."""
        return self._no_evidence()

    def _evidence(
        self,
        history: History,
        variance: Array,
        mean_norm: float,
        information: float,
        staleness: float = 1.0,
        mean_spread: float | None = None,
    ) -> Evidence:
        """What the radius may depend on; `variance` holds σ̃² of the pulled arms (u,)."""
        before = self._evidence_before()
        evidence = replace(
            self._state.evidence,
            n_observations=history.n_observations,
            trace=before.trace + float(history.counts @ self._diags(history, history.pulled)) / self.regularization,
            effective_dimension=before.effective_dimension + float(history.counts @ variance),
            information=information,
            mean_norm=mean_norm,
            mean_spread=mean_spread,
            staleness=staleness,
        )
        return replace(evidence, norm=updated_norm(self.confidence, evidence))

    def _check_rounding(self, history: History) -> None:
        """Raise NumericalError where an arm's evidence n·κ²/λ leaves float64 no digits."""
        check_rounding(self.regularization, self._diags(history, history.pulled), history.counts)

    def _check_kernel(self, X: Array, diag: Array) -> None:
        """Raise KernelError before the first trial where the kernel cannot work on these rows."""
        if not len(X):
            return
        some = np.linspace(0, len(X) - 1, min(len(X), 8)).astype(np.intp)
        check_kernel(self.kernel, X[some], diag[some])

    def _diagonal(self, X: Array) -> Array:
        blocks = [X[start : start + ROWS] for start in range(0, len(X), ROWS)]
        diag = np.concatenate([np.zeros(0), *(self.kernel.diag(block.astype(np.float64, copy=False)) for block in blocks)])
        bad = ~(np.isfinite(diag) & (diag >= 0))
        if bad.any():
            raise KernelError(
                f"k(x, x) must be finite and not negative, got {diag[bad][0]} at x = {shown(self.kernel, X[bad][0])}"
            )
        return diag
