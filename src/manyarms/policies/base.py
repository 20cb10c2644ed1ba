"""How every policy chooses: the largest score, batches in which each arm is supposed pulled before the next, what ends them."""

from abc import abstractmethod
from dataclasses import replace
from typing import Protocol

import numpy as np

from manyarms.numbers import whole
from manyarms.policies.checks import as_arms, as_excluded
from manyarms.policies.learner import Learner
from manyarms.sketch.choice import arg_max, score
from manyarms.sketch.dictionary import STALE
from manyarms.typing import Array, ArrayLike, Indices, Mask


class Lookahead(Protocol):
    """Variances σ̃² of all arms if some more were pulled. The means are frozen: no reward is known yet."""

    @property
    def variance(self) -> Array:
        """σ̃², (A,)."""

    def pull(self, arms: Indices) -> None:
        """Suppose these arms were pulled once more each."""


class Among(Lookahead, Protocol):
    """A lookahead among other rows than the policy's own."""

    @property
    def mean(self) -> Array:
        """μ̃, (k,)."""


class GlobalRule:
    """Batch-BKB's: a batch goes on while 1 + Σσ̃²(x_s) ≤ C, over its arms, with the variances of when it began."""

    def __init__(self) -> None:
        self._shrunk = 1.0

    def lets(self, arms: Indices, variance: Array) -> bool:
        """Whether another arm may follow these, of such variances, and those before them."""
        self._shrunk += float(variance.sum())
        return self._shrunk <= STALE


class Policy(Learner):
    """A learner that chooses. A subclass supplies its state, what follows from it and what would if more were pulled."""

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

    @abstractmethod
    def _lookahead(self, *, append: bool) -> Lookahead:
        """Variances to suppose pulls in; with `append` the arms supposed enter the dictionary, where there is one."""

    def _among(self, X: Array, diag: Array, *, append: bool) -> Among:
        """Means of any rows, and their variances to suppose pulls in, as `_lookahead`; where `_takes_rows`."""
        raise NotImplementedError


def _next_allowed(first: int, n: int, barred: Mask | None) -> int:
    """This of n arms, or the next one that may be chosen."""
    return first if barred is None else int(np.argmin(np.roll(barred, -first)) + first) % n
