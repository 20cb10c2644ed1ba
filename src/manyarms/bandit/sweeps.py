"""The default maximiser of u over a product of levels: one factor at a time, from many rows, then
two at a time.

What it returns is a local maximum: no row that differs from it in one factor has a larger u.
docs/theory.md says what that leaves of the regret bound. A product of few combinations is scored
whole.
"""

from dataclasses import dataclass

import numpy as np

from manyarms.bandit.score import NUMBERS_AT_ONCE, Score
from manyarms.checks import whole
from manyarms.errors import ParameterError, shortened
from manyarms.space.box import MOST_LEVELS, Box
from manyarms.typing import Array, Indices

WHOLE = 4096
"""Combinations, at most, that are all scored: about the rows that a search from many starts scores
over twelve factors of ten levels."""
CHANGED = 2.0
"""Factors that are drawn anew, on average, in a start near a good row."""
CALLS_IN_A_ROUND = 16
"""Calls of u in a round, at most: if there are more factors, several are taken in one call."""
MOST_ROUNDS = 100
"""Rounds, at most. u rises in each round, so this limit is needed only because of rounding."""
WORK = 4e8
"""Multiplications in a round of all starts together, n·m² for n rows and m inducing ones: with
twelve factors of ten levels there are fewer starts from m = 450 on. Pairs of factors are tried
within the same limit. Where factors are taken several at a time more rounds are needed, and starts
are fewer by as much."""
WIDENED = 16
"""How many of the best rows have their neighbourhood searched, at most."""


@dataclass(frozen=True)
class Sweeps:
    """Coordinate ascent over a product of levels.

    A round goes through the factors, in an order that is drawn. All levels of a factor are scored
    for all rows at once, and each row takes its best. Rounds end when no single change gains. From
    the best row all changes of two factors are scored as well, and rounds go on where one gains.

    Parameters
    ----------
    raw : int
        Rows that are scored to find starts: as many drawn uniformly as near good rows pulled.
    starts : int
        Rows to start from: a half are good rows pulled, a quarter drawn, a quarter near good ones.
    """

    raw: int = 256
    starts: int = 16

    def __post_init__(self) -> None:
        for name in ("raw", "starts"):
            whole(getattr(self, name), name, at_most=10**6)

    def __call__(self, score: Score, box: Box, rng: np.random.Generator) -> Array:
        """A row of large u that is not barred."""
        if getattr(box, "levels", None) is None:
            raise ParameterError(
                f"Sweeps takes a product of levels, at most {MOST_LEVELS:,} of them together, got "
                f"{shortened(box)}; use MultiStart"
            )
        rows = box.grid(WHOLE)
        if rows is None:
            found = self.found(score, box, rng)
            if found is not None:
                return found
            # All that was looked at is barred: of so many rows one is not.
            rows = box.first(len(score.barred) + 1)
        return np.asarray(rows[int(np.argmax(score(rows)))])

    def found(self, score: Score, box: Box, rng: np.random.Generator) -> Array | None:
        """A local maximum of u, None where only barred rows were seen."""
        codes = _codes(box)
        X, values = _swept(score, codes, self._starts(score, box, len(codes.factors), rng), rng)
        best = int(np.argmax(values))
        x = X[[best]]
        value = values[best]
        m = max(1, len(score.belief.W))
        limit = min(WORK / m**2, NUMBERS_AT_ONCE / box.dimension)
        for _ in range(MOST_ROUNDS):
            pairs = _pairs(codes, x[0], limit)
            scores = score(pairs)
            if not len(pairs) or not scores.max() > value:
                break
            x, (value,) = _swept(score, codes, pairs[[int(np.argmax(scores))]], rng)
        return np.asarray(x[0]) if np.isfinite(value) else None

    def _starts(self, score: Score, box: Box, n_levels: int, rng: np.random.Generator) -> Array:
        m = max(1, len(score.belief.W))
        at_a_time = max(1.0, box.dimension / CALLS_IN_A_ROUND)
        limit = WORK / (n_levels * m**2 * at_a_time)
        n = min(self.starts, max(1, int(limit)))
        n_drawn = max(1, self.raw // 2)
        far = box.sample(n_drawn, rng)
        good = score.incumbents(max(1, n // 2))
        if not len(good):
            return score.top(far, n)
        near = good[rng.integers(len(good), size=n_drawn)]
        anew = rng.random(near.shape) < CHANGED / box.dimension
        near = np.where(anew, box.sample(len(near), rng), near)
        others = [score.top(far, n // 4), score.top(near, n - max(1, n // 2) - n // 4)]
        return np.unique(np.vstack([good, *others]), axis=0)


def leading(score: Score, box: Box, X: Array, k: int) -> Array:
    """The k rows of largest u that a search from the rows X (n, d) finds, largest first: of a
    product of levels, all that differ from one of the best in one factor are looked at."""
    whole = box.grid(WHOLE)
    if whole is not None:
        return score.top(whole, k)
    codes = _codes(box)
    every = np.arange(len(codes.factors))
    rows = min(WORK / max(1, len(score.belief.W)) ** 2, NUMBERS_AT_ONCE / box.dimension)
    n_widened = max(1, min(WIDENED, int(rows / len(every))))
    best = score.top(np.unique(X, axis=0), k)
    climbed, _ = _swept(score, codes, best[:n_widened].copy(), np.random.default_rng(0))
    best = score.top(np.unique(np.vstack([best, climbed]), axis=0), k)
    for _ in range(MOST_ROUNDS):
        before = best[:n_widened]
        beside = codes.changed(before, every).reshape(-1, box.dimension)
        best = score.top(np.unique(np.vstack([best, beside]), axis=0), k)
        if np.array_equal(best[:n_widened], before):
            break  # what is beside them was looked at
    return best


@dataclass(frozen=True)
class _Codes:
    """All levels of all factors: n changes that may be made to a row."""

    factors: Indices  # (n,) which column is changed
    levels: Array  # (n,) to which code

    def changed(self, X: Array, some: Indices) -> Array:
        """The rows (k, d), each with each of some changes made, (k, len(some), d)."""
        rows = np.repeat(X[:, None], len(some), axis=1)
        rows[:, np.arange(len(some)), self.factors[some]] = self.levels[some]
        return rows


def _codes(box: Box) -> _Codes:
    levels = box.levels or []
    factors = np.repeat(np.arange(len(levels)), [len(codes) for codes in levels])
    return _Codes(factors, np.concatenate(levels))


def _swept(score: Score, codes: _Codes, X: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows from which no single change gains, each reached from one of X (n, d), and their u."""
    values = score(X)
    moving = np.arange(len(X))
    d = X.shape[1]
    for _ in range(MOST_ROUNDS):
        before = values.copy()
        for factors in np.array_split(rng.permutation(d), min(d, CALLS_IN_A_ROUND)):
            some = np.flatnonzero(np.isin(codes.factors, factors))
            changed = codes.changed(X[moving], some)
            X[moving], values[moving] = score.improved(X[moving], values[moving], changed)
        moving = np.flatnonzero(values > before)
        if not len(moving):
            break
        # Two rows that have met go on as one.
        moving = moving[np.unique(X[moving], axis=0, return_index=True)[1]]
    return X, values


def _pairs(codes: _Codes, x: Array, limit: float) -> Array:
    """The row (d,) with every two factors changed, (n, d); none where there would be too many."""
    # Factors rise: of two changes of different factors, the first is the one of the lower factor.
    differ = codes.factors[:, None] < codes.factors
    if differ.sum() > limit:
        return np.zeros((0, len(x)))
    first, second = np.nonzero(differ)
    rows = np.repeat(x[None], len(first), axis=0)
    each = np.arange(len(first))
    rows[each, codes.factors[first]] = codes.levels[first]
    rows[each, codes.factors[second]] = codes.levels[second]
    return rows
