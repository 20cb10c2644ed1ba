"""What every policy does: check what comes in, choose by scores, change its state in one step or not at all."""

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from manyarms.arms import as_rows
from manyarms.arms.array import Checked
from manyarms.arms.objects import encoded
from manyarms.errors import KernelError, NumericalError, ParameterError, StateError
from manyarms.kernels import as_kernel
from manyarms.kernels.objects import shown
from manyarms.numbers import real, whole
from manyarms.policies.checks import as_arms, as_excluded, as_generator, as_rewards, as_weights
from manyarms.policies.numbered import Numbered
from manyarms.sketch.choice import Scores, arg_max, score
from manyarms.sketch.confidence import Evidence, Radius, first_norm, updated_norm
from manyarms.sketch.dictionary import STALE, Chance
from manyarms.sketch.embedding import PSD_TOLERANCE, check_covariance
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import EPS
from manyarms.sketch.observations import Observations
from manyarms.stats import Stats
from manyarms.typing import Array, ArrayLike, Indices, Mask, Seed

ROWS = 1 << 16
"""Rows whose k(x, x) is computed at a time."""


class Prediction(NamedTuple):
    """Posterior mean and standard deviation of f, each (n,), in the units of the rewards."""

    mean: Array
    std: Array


class State(Protocol):
    """The value a policy replaces as a whole when it observes."""

    @property
    def history(self) -> History: ...
    @property
    def evidence(self) -> Evidence: ...


class Lookahead(Protocol):
    """Variances σ̃² of all arms if some more were pulled. The means are frozen: no reward is known yet."""

    @property
    def variance(self) -> Array:
        """σ̃², (A,)."""

    def pull(self, arms: Indices) -> None:
        """Suppose these arms were pulled once more each."""


class GlobalRule:
    """Batch-BKB's: a batch goes on while 1 + Σσ̃²(x_s) ≤ C, over its arms, with the variances of when it began."""

    def __init__(self) -> None:
        self._shrunk = 1.0

    def lets(self, arms: Indices, variance: Array) -> bool:
        """Whether another arm may follow these, of such variances, and those before them."""
        self._shrunk += float(variance.sum())
        return self._shrunk <= STALE


class Among(Lookahead, Protocol):
    """A lookahead among other rows than the policy's own."""

    @property
    def mean(self) -> Array:
        """μ̃, (k,)."""


class Policy(Numbered):
    """Arms are the rows of a table; an arm is its index. Rows observed by value are further arms, numbered behind the table's.

    A subclass supplies its state and what follows from it; everything a caller gives is checked here.
    """

    _state: State
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
        if isinstance(confidence, type) or not callable(confidence):
            raise ParameterError(f"confidence must be a radius such as Constant(2.0) or a function, got {confidence!r}")
        self.confidence = confidence
        self._diag = self._diagonal(self.arms)
        self._check_kernel(self.arms, self._diag)
        self.stats = Stats()
        rng = as_generator(seed)
        self._first_chance = Chance.of(rng)
        self._first_arm = self._first_chance.integer(self.n_arms or 2)
        self._cache: tuple[State, Array, Array] | None = None
        self._state = self._first_state(rng)

    def choose(
        self, n: int | None = 1, *, arms: ArrayLike | None = None, pending: ArrayLike = (), exclude: ArrayLike = ()
    ) -> Indices:
        """The n arms to pull next, (n,).

        Pure: asked again before an `observe` it answers the same. `pending` are arms whose rewards are still outstanding,
        `exclude` arms that must not be chosen (indices, or a mask of all arms). A
        batch supposes each arm pulled before choosing the next: its variance shrinks, the means stay.

        With ``n=None`` a rule ends the batch (Batch-BKB, Calandriello et al., ICML 2020): arms are added while those before
        them, pending ones included, have 1 + Σσ̃²(x_s) ≤ C = 2, with the variances of now, and scores use √C·β̃, for which the
        batch costs no more regret than one arm at a time, up to constants. Batches grow as variances shrink, in the end to
        about as many arms as were observed before, and are empty while what is pending must be awaited.

        With `arms`, rows (k, d), the choice is among these instead of the policy's own, and is given as rows of them, as is
        `exclude`; `pending` is then as in `observe`, by value too. All k are scored, O(k m²) for m inducing arms however many
        arms were ever seen, and O(u m²) more, u the arms observed, for each arm supposed pulled. What a radius promises holds
        for sets that change (the paper's appendix A; Krause and Ong, NIPS 2011): `Theory` and `LogDet` contain f everywhere,
        so any sequence of sets will do; `Bayes` is taken for k arms. Regret is then Σ_t max f(x) − f(x_t) over the set of t.
        """
        if arms is not None:
            return self._choose_among(n, arms, pending, exclude)
        self._check_table()
        outstanding, barred = as_arms(pending, self.n_arms), as_excluded(exclude, self.n_arms)
        if n is None:
            with self.stats.timed("choices"):
                return self._batch(outstanding, barred)
        n, chosen = whole(n, "n"), list[int]()
        if not self._state.history.n_observations and not len(outstanding):
            chosen.append(self._first(barred))
        with self.stats.timed("choices"):
            beta = self.beta
            if len(chosen) < n:
                self._fill(chosen, n, outstanding, self._means(), self._lookahead(append=True), beta, barred)
        return np.array(chosen, dtype=np.intp)

    def _fill(
        self,
        chosen: list[int],
        n: int,
        outstanding: Indices,
        mean: Array,
        lookahead: Lookahead,
        beta: float,
        barred: Mask | None,
    ) -> None:
        """Choose until there are n, each with those before it supposed pulled."""
        supposed = [*outstanding, *chosen]
        while len(chosen) < n:
            if supposed:
                lookahead.pull(np.array(supposed, dtype=np.intp))
            supposed = [self._pick(mean, lookahead, beta, len(outstanding) + len(chosen), barred)]
            chosen += supposed

    def _choose_among(self, n: int | None, arms: ArrayLike, pending: ArrayLike, exclude: ArrayLike) -> Indices:
        """choose(arms=…)."""
        X, (history, waiting) = self._given(arms), self._numbered(pending, self._state.history)
        n, k = None if n is None else whole(n, "n"), len(X)
        barred, outstanding = as_excluded(exclude, k), np.arange(k, k + len(waiting))
        beta, chosen = self._radius(replace(self._state.evidence, n_arms=k)), list[int]()
        if not self._state.history.n_observations and not len(outstanding):
            chosen.append(_next_allowed(self._first_chance.integer(k), k, barred))
        if len(chosen) == n or (n is None and not self._state.history.n_observations):
            return np.array(chosen, dtype=np.intp)
        if len(outstanding):  # rows behind the current ones, which are not chosen
            X = np.vstack([X, self._rows(history, waiting)])
            barred = np.concatenate([np.zeros(k, dtype=bool) if barred is None else barred, np.ones(len(waiting), dtype=bool)])
        with self.stats.timed("choices"):
            lookahead = self._among(X, self._diagonal(X), append=n is not None)
            mean, variance = lookahead.mean, lookahead.variance
            if n is None:
                chosen = self._until_stale(outstanding, mean, variance, lookahead, np.sqrt(STALE) * beta, barred)
            else:
                self._fill(chosen, n, outstanding, mean, lookahead, beta, barred)
        return np.array(chosen, dtype=np.intp)

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        """The next arm, `number` arms supposed pulled by now: that of largest upper bound, unless a policy differs."""
        return arg_max(score(mean, lookahead.variance[: len(mean)], beta, barred))

    def _means(self) -> Array:
        """μ̃ of every arm, for `_pick`."""
        return self.scores().mean

    def _first(self, barred: Mask | None) -> int:
        """The random first arm, or the next one that may be chosen."""
        return _next_allowed(self._first_arm, self.n_arms, barred)

    def _batch(self, outstanding: Indices, barred: Mask | None) -> Indices:
        """choose(None)."""
        if not self._state.history.n_observations:
            return np.array([] if len(outstanding) else [self._first(barred)], dtype=np.intp)
        mean, variance, _ = self.scores()
        beta = np.sqrt(STALE) * self.beta
        chosen = self._until_stale(outstanding, mean, variance, self._lookahead(append=False), beta, barred)
        return np.array(chosen, dtype=np.intp)

    def _until_stale(
        self,
        outstanding: Indices,
        mean: Array,
        variance: Array,
        lookahead: Lookahead,
        beta: float,
        barred: Mask | None,
    ) -> list[int]:
        """Arms until the rule ends the batch."""
        chosen, supposed, rule = list[int](), outstanding, self._rule()
        while rule.lets(supposed, variance[supposed]):
            if len(supposed):
                lookahead.pull(supposed)
            supposed = np.array([self._pick(mean, lookahead, beta, len(outstanding) + len(chosen), barred)])
            chosen.append(int(supposed[0]))
            if not variance[supposed[0]]:  # f is known there: nothing would end the batch
                break
        return chosen

    def _rule(self) -> "GlobalRule":
        """What ends choose(None)."""
        return GlobalRule()

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
    def beta(self) -> float:
        """β̃, the radius of the scores now."""
        return self._radius(self._state.evidence)

    def _radius(self, evidence: Evidence) -> float:
        return real(self.confidence(evidence), "what confidence returns", "a finite non-negative radius", at_least=0)

    @property
    def evidence(self) -> Evidence:
        """What the radius is a function of, now; `evidence.norm` is the current guess of ‖f‖ where it is doubled."""
        return self._state.evidence

    @property
    def effective_dimension(self) -> float:
        """d̃ = Σ_s σ̃²(x_s) over the pulls, the policy's estimate of Tr K(K + λI)⁻¹."""
        return self._state.evidence.effective_dimension

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

    @abstractmethod
    def _lookahead(self, *, append: bool) -> Lookahead:
        """Variances to suppose pulls in; with `append` the arms supposed enter the dictionary, where there is one."""

    def _among(self, X: Array, diag: Array, *, append: bool) -> Among:
        """Means of any rows, and their variances to suppose pulls in, as `_lookahead`; where `_takes_rows`."""
        raise NotImplementedError

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
        kappa2, most = float(self._diags(history, history.pulled).max()), float(history.counts.max())
        if self.regularization <= EPS * kappa2 * most:
            raise NumericalError(
                f"λ = {self.regularization:.3g} is below the rounding of k(x, x) = {kappa2:.3g} times the weight {most:.3g} "
                "of an arm: raise `regularization`, or give a larger `noise`"
            )

    def _check_kernel(self, X: Array, diag: Array) -> None:
        """Raise KernelError before the first trial where the kernel cannot work on these rows."""
        if not len(X):
            return
        some = np.linspace(0, len(X) - 1, min(len(X), 8)).astype(np.intp)
        K, diag = self.kernel(X[some], X[some]), diag[some]
        check_covariance(K, X[some], self.kernel)
        if np.abs(np.diag(K) - diag).max() > PSD_TOLERANCE * max(diag.max(), np.diag(K).max()):
            raise KernelError(
                f"{self.kernel!r} has k(x, x) = {np.diag(K)[0]} by rows but {diag[0]} by diag(); noise belongs into "
                "`regularization`: leave a white-noise kernel out"
            )

    def _diagonal(self, X: Array) -> Array:
        blocks = [X[start : start + ROWS] for start in range(0, len(X), ROWS)]
        diag = np.concatenate([np.zeros(0), *(self.kernel.diag(block.astype(np.float64, copy=False)) for block in blocks)])
        bad = ~(np.isfinite(diag) & (diag >= 0))
        if bad.any():
            raise KernelError(
                f"k(x, x) must be finite and not negative, got {diag[bad][0]} at x = {shown(self.kernel, X[bad][0])}"
            )
        return diag


def _next_allowed(first: int, n: int, barred: Mask | None) -> int:
    """This of n arms, or the next one that may be chosen."""
    return first if barred is None else int(np.argmin(np.roll(barred, -first)) + first) % n
