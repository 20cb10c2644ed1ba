"""The score u(x) = μ̃(x) + β̃σ̃(x) of any row, with its gradient; and the default maximisers of u
over a box.

`MultiStart` climbs by L-BFGS-B on exact gradients from the best of many rows; choices and steps by
trying. `Sweeps` is for products of levels: one factor at a time, from many rows, then two at a
time. A product of few combinations is scored whole.

Both are local searches: nothing guarantees the global maximum of u, which theorems about UCB ask
for. docs/theory.md says what is left of the regret bound where no row that differs in one factor
has a larger u. `AdaBKB` does without a maximiser.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from manyarms.checks import whole
from manyarms.engine.embedding import columns
from manyarms.engine.frozen import Engine
from manyarms.engine.growing import Triangle
from manyarms.engine.linalg import TINY, squares
from manyarms.errors import ParameterError, shortened
from manyarms.kernels import Kernel
from manyarms.lapack import in_one_thread
from manyarms.runtime.signals import load
from manyarms.space.box import MOST_LEVELS, Box
from manyarms.typing import Array, Indices

ROUNDED_VARIANCE = 1e-14
"""σ̃², in units of k(x, x)/λ, below which it is rounding, some 50 ε: ∇u divides by σ̃."""
SCORED_EACH = 2
"""Rows of each kind that are scored for one incumbent: largest mean is not yet largest u."""

NUMBERS_AT_ONCE = 1 << 22
"""Entries of a kernel matrix of rows and W that are in memory at once: 32 MB."""


@dataclass(frozen=True)
class Score:
    """u = μ̃ + β̃σ̃ of any rows, by value: what a maximiser is given.

    With the inducing rows W, k = k_W(x), z = L⁻¹k and J = ∂k/∂x:

    μ̃ = kᵀα,  σ̃² = r/λ + zᵀV⁻¹z,  ∇u = Jᵀ(α − β̃/(λσ̃)·L⁻ᵀ(z − λV⁻¹z)) + β̃/(2λσ̃)·∇k(x, x).

    Own parts add v/λ to σ̃² at rows never tried, which is all but finitely many.

    Parameters
    ----------
    belief : Frozen or Owned
        What is known of f; pulls may be supposed in it.
    beta : float
        β̃.
    recent : ndarray, (k, d)
        Rows told last, to start from.
    rewards : ndarray, (k,)
        Their rewards.
    barred : frozenset of bytes
        Rows, as bytes, that must not be chosen: u is −∞ there.
    """

    belief: Engine
    beta: float
    recent: Array
    rewards: Array
    barred: frozenset[bytes] = frozenset()

    @property
    def kernel(self) -> Kernel:
        """k."""
        return self.belief.kernel

    @property
    def differentiable(self) -> bool:
        """`gradient` works."""
        return self.kernel.differentiable

    @cached_property
    def alpha(self) -> Array:
        """α = L⁻ᵀw, (m,): μ̃ = Σ α_i k(w_i, ·)."""
        base = self.belief.base
        return base.L.solve_transposed(base.w)

    @in_one_thread
    def __call__(self, X: Array) -> Array:
        """u at the rows of X (n, d), by blocks, (n,)."""
        size = max(1, NUMBERS_AT_ONCE // max(1, len(self.belief.W)))
        blocks = [self._parts(X[start : start + size])[0] for start in range(0, len(X), size)]
        values = np.concatenate([np.zeros(0), *blocks])
        if self.barred:
            values[[row.tobytes() in self.barred for row in X]] = -np.inf
        return values

    def gradient(self, X: Array) -> Array:
        """∇u at the rows of X (n, d), (n, d)."""
        return self.both(X)[1]

    @in_one_thread
    def both(self, X: Array) -> tuple[Array, Array]:
        """u (n,) and ∇u (n, d)."""
        values, sigma, Z, half = self._parts(X)
        base = self.belief.base
        lam = base.regularization
        # λσ̃² = k(x, x) − ‖z‖² + λzᵀV⁻¹z, so ∇σ̃ = (½∇k(x, x) − JᵀL⁻ᵀ(z − λV⁻¹z))/(λσ̃).
        slope = (self.beta / (lam * sigma))[:, None]
        explained = base.L.solve_transposed(Z - lam * self._C.solve_transposed(half)).T
        moved = base.kernel.gradient(X, base.W, self.alpha - slope * explained)
        return values, moved + 0.5 * slope * base.kernel.diag_gradient(X)

    @cached_property
    def _C(self) -> Triangle:
        """The factor of V with nothing waiting beside it: many rows are scored."""
        return self.belief.base.factor.folded.C

    def _parts(self, X: Array) -> tuple[Array, Array, Array, Array]:
        """u (n,), σ̃ (n,), z (m, n) and C⁻¹z (m, n), V = CCᵀ."""
        belief = self.belief
        base = belief.base
        lam = base.regularization
        diag = base.kernel.diag(X)
        Z = base.L.solve(columns(base.kernel, base.W, X))
        half = self._C.solve(Z)
        left_out = np.maximum(diag - squares(Z), 0.0)  # r(x)
        least = ROUNDED_VARIANCE * np.maximum(diag, TINY / ROUNDED_VARIANCE)
        variance = np.maximum(left_out + lam * squares(half), least) / lam
        mean = base.w @ Z
        if belief.tried is not None:
            mean, variance = belief.corrected(mean, variance, belief.tried.places(X))
        sigma = np.sqrt(variance)
        return mean + self.beta * sigma, sigma, Z, half

    @in_one_thread
    def incumbents(self, n: int) -> Array:
        """n rows of large u, (≤ n, d): inducing ones, or told last and of large reward."""
        base = self.belief.base
        mean = base.L.upper.T @ base.w  # K_WW α
        inducing = base.W[np.argsort(-mean, kind="stable")[: SCORED_EACH * n]]
        told = self.recent[np.argsort(-self.rewards, kind="stable")[: SCORED_EACH * n]]
        X = np.unique(np.vstack([inducing, told]), axis=0)  # a row may be both
        return self.top(X, n)

    def top(self, X: Array, n: int) -> Array:
        """The n rows of X of largest u, largest first, (≤ n, d)."""
        return np.asarray(X[np.argsort(-self(X), kind="stable")[:n]])

    def improved(self, X: Array, values: Array, changed: Array) -> tuple[Array, Array]:
        """Each row of X (n, d) or, where its u is larger, the best of the rows (n, k, d) that it
        may change to; and their u, (n,)."""
        scores = self(changed.reshape(-1, X.shape[1])).reshape(len(X), -1)
        each = np.arange(len(X))
        best = np.argmax(scores, axis=1)
        reached = scores[each, best]
        gains = reached > values
        return np.where(gains[:, None], changed[each, best], X), np.where(gains, reached, values)


INCUMBENTS = 8
"""Good rows pulled that steps start from."""
SMALLEST_STEP = 1e-3
"""Standard deviation, of a column's range, of the smallest steps away from rows pulled: near the
maximum of u there."""
LARGEST_STEP = 0.3
"""And of the largest, which reach most of the box. Steps are drawn log-uniformly between the two,
and the steps of a climb without gradients start with it."""
COLUMNS_MOVED = 20
"""Columns moved in such a step, on average; all where there are fewer. As in DYCORS (Regis and
Shoemaker 2013) and TuRBO (Eriksson et al. 2019), for boxes of many columns."""
CHOICES_MOVED = 0.2
"""Probability that a choice is drawn anew in such a step."""
CLIMB_GAIN = 1e-6
"""Relative gain of a step at which a climb ends: L-BFGS-B's `ftol`."""
MOVES = 20
"""Rounds of moves over choices and steps, at most: a limit on seconds."""
HALVINGS = 12
"""Sizes of step of a climb without gradients: the last is 0.3·2⁻¹¹ = 1.5e-4 of a range."""
STEPS_TRIED = 16
"""Random steps of each size."""


@dataclass(frozen=True)
class MultiStart:
    """L-BFGS-B from the best of many rows: some drawn uniformly, a third near good rows pulled.

    Choices stay as they are in a climb, and whole numbers are rounded after it; then the best of
    all rows that differ in one choice or one step is taken, and climbed from, while that gains.
    Without a gradient a climb is random steps that shrink.

    Parameters
    ----------
    raw : int
        Rows that are scored to find starts.
    starts : int
        Climbs from the rows drawn uniformly, and as many from those near good rows.
    steps : int
        Iterations of L-BFGS-B at most.
    """

    raw: int = 384
    starts: int = 3
    steps: int = 60

    def __post_init__(self) -> None:
        for name in ("raw", "starts", "steps"):
            whole(getattr(self, name), name, at_most=10**6)

    def __call__(self, score: Score, box: Box, rng: np.random.Generator) -> Array:
        """A row of large u."""
        far = box.sample(self.raw - self.raw // 3, rng)
        near = _near(score.incumbents(INCUMBENTS), self.raw // 3, box, rng)
        starts = np.vstack([score.top(X, self.starts) for X in (far, near)])
        X, values = self._climbed(score, box, starts, rng)
        x = X[int(np.argmax(values))]
        value = float(values.max())
        for _ in range(MOVES):
            beside = box.neighbours(x)
            if not len(beside):
                break  # no choices and no whole numbers
            best = beside[[int(np.argmax(score(beside)))]]
            (climbed,), (gained,) = self._climbed(score, box, best, rng)
            if not gained > value:
                break
            x = climbed
            value = gained
        return np.asarray(x)

    def _climbed(
        self, score: Score, box: Box, X: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Better rows than these, or these, inside the box, and their scores."""
        before = score(X)
        climb = self._ascended if score.differentiable else self._wandered
        climbed = box.snap(climb(score, box, X, before, rng))
        after = score(climbed)  # rounding to steps may have lost what a climb gained
        return np.where((after >= before)[:, None], climbed, X), np.maximum(after, before)

    def _ascended(
        self, score: Score, box: Box, X: Array, values: Array, _: np.random.Generator
    ) -> Array:
        """L-BFGS-B on the sum of all rows' scores: one evaluation serves them all."""
        n = len(X)
        a = box.n_numeric
        if not a:
            return X
        # L-BFGS-B's stopping rule is for losses of size 1; rows that all score alike have none.
        scores = values[np.isfinite(values)]  # a row that is barred has −∞
        scale = max(1e-12, float(np.ptp(scores)) if len(scores) > 1 else 1.0)

        # One vector of all rows' numbers for L-BFGS-B; choices stay as they are.
        def placed(flat: Array) -> Array:
            return np.hstack([flat.reshape(n, a), X[:, a:]])

        def loss(flat: Array) -> tuple[float, Array]:
            values, gradients = score.both(placed(flat))
            return -float(values.sum()) / scale, -gradients[:, :a].ravel() / scale

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": CLIMB_GAIN}
        load("scipy.optimize")
        found = scipy.optimize.minimize(
            loss,
            X[:, :a].ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * (n * a),
            options=options,
        )
        return placed(np.clip(found.x, 0.0, 1.0))

    def _wandered(
        self, score: Score, box: Box, X: Array, values: Array, rng: np.random.Generator
    ) -> Array:
        """The best of steps of half the size each time."""
        a = box.n_numeric
        for halvings in range(HALVINGS):
            size = LARGEST_STEP * 0.5**halvings
            steps = np.repeat(X[:, None], STEPS_TRIED, axis=1)
            steps[:, :, :a] += size * rng.standard_normal((len(X), STEPS_TRIED, a))
            steps = box.snap(steps.reshape(-1, box.dimension)).reshape(steps.shape)
            X, values = score.improved(X, values, steps)
        return X


def _near(rows: Array, n: int, box: Box, rng: np.random.Generator) -> Array:
    """Rows a step away from some, (n, d)."""
    if not len(rows):
        return rows
    X = rows[rng.integers(len(rows), size=n)]
    a = box.n_numeric
    d = box.dimension
    scales = SMALLEST_STEP * (LARGEST_STEP / SMALLEST_STEP) ** rng.random((n, 1))
    moved = rng.random((n, d)) < COLUMNS_MOVED / d
    X[:, :a] += np.where(moved[:, :a], scales * rng.standard_normal((n, a)), 0.0)
    anew = rng.random((n, d - a)) < CHOICES_MOVED
    X[:, a:] = np.where(anew, box.sample(n, rng)[:, a:], X[:, a:])
    return box.snap(X)


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
