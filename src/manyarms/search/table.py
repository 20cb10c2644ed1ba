"""The scores of some arms, brought from one belief to a later one.

z(x), μ̃(x) and σ̃²(x) of n arms are kept. Later, W perhaps grown and observations made,

    h = Gᵀz(x),    σ̃² −= ‖h‖²,  μ̃ += hᵀ(surprise)

with G and the surprises of the steps in between: an append changes no score, and all steps together are one product. So an
arm costs O(m) a step, or O(m²) where everything is computed anew.

Rows that are new in W come as kernel columns k₊(x) first. Their coordinates are ζ = L₊₊⁻¹(k₊ − L₊z), so that

    gᵀ[z; ζ] = (g − L₊ᵀa)ᵀz + aᵀk₊,   a = L₊₊⁻ᵀg₊:

one product either way. They are turned into coordinates many at a time, by a product of matrices.

What is kept only filters: subtracting loses digits. `slack` bounds how much, and who may be best is scored by `Belief.moments`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from manyarms.beliefs.base import Arms, Change, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.beliefs.inducing import FEW
from manyarms.search.parallel import in_parallel
from manyarms.sketch.linalg import EPS, solve_transposed, solver, squares
from manyarms.typing import Array, Indices

WIDE = 4096
"""Arms to a chunk."""
LARGE = 1 << 15
"""Arms up to which a kernel column is computed in one call, before any chunk."""
FEW_PRODUCTS = 1 << 21
"""Multiplications that turn kernel columns into coordinates at once, should no other come: about what a step takes."""
RESERVED = 1 << 26
"""Bytes that a small table reserves for coordinates to come."""
SPARE = 64
"""Coordinates that a store has room for at first."""
COLUMNS = 32
"""Kernel columns that are turned into coordinates at a time."""
MEANS_ANEW = 256
"""Steps after which means are computed anew: rounding of as many sums is far below what scores tie by."""


class Followed(NamedTuple):
    """A step that a table has to follow: the belief after it, and what it does to scores, if that is known."""

    belief: Frozen
    change: Change | None


class _Store:
    """Z of all arms in chunks (capacity, width). Rows that a value has claimed are never claimed again by another.

    The first `settled` rows are coordinates, those behind them kernel columns still.
    """

    def __init__(self, n: int) -> None:
        self.chunks = [slice(start, min(start + WIDE, n)) for start in range(0, n, WIDE)]
        # Rows that are not written to take no memory: a small table has room for many at once.
        rows = max(SPARE, min(1024, RESERVED // max(1, 8 * n)))
        self.Z = [np.empty((rows, chunk.stop - chunk.start)) for chunk in self.chunks]
        self.claimed = 0
        self.settled = 0

    def with_room(self, p: int, m: int) -> "_Store":
        """A store whose first p rows are these, and which may be written to up to m."""
        if self.claimed > p:
            other = object.__new__(_Store)
            other.chunks = self.chunks
            other.Z = [_grown(Z, p, max(m, len(Z))) for Z in self.Z]
            other.settled = min(self.settled, p)
        else:
            other = self
            if self.Z and len(self.Z[0]) < m:
                self.Z[:] = [_grown(Z, p, m + m // 2 + SPARE) for Z in self.Z]
        other.claimed = m
        return other


def _grown(Z: Array, p: int, room: int) -> Array:
    grown = np.empty((room, Z.shape[1]))
    grown[:p] = Z[:p]
    return grown


def _copy_columns(source: _Store, positions: Indices, into: _Store, m: int) -> None:
    """The first m rows of Z at these positions, which ascend."""
    starts = np.searchsorted(positions, [chunk.start for chunk in source.chunks])
    ends = np.append(starts[1:], len(positions))
    for chunk, Z, first, last in zip(source.chunks, source.Z, starts, ends, strict=True):
        for mine, target in zip(into.chunks, into.Z, strict=True):
            start = max(first, mine.start)
            stop = min(last, mine.stop)
            if start < stop:
                columns = positions[start:stop] - chunk.start
                target[:m, start - mine.start : stop - mine.start] = Z[:m].take(columns, axis=1)


@dataclass(frozen=True)
class LastRows:
    """The rows of L from p on: L₊ (m − p, p) and L₊₊ (m − p, m − p)."""

    p: int
    m: int
    ahead: Array
    corner: Array

    @classmethod
    def of(cls, belief: Frozen, p: int) -> "LastRows":
        ahead, corner = belief.L.last_rows(p)
        return cls(p, belief.m, ahead, corner)

    def on_columns(self, G: Array) -> Array:
        """The rows of G (k, m), for coordinates, as rows for what is stored: coordinates up to p, kernel columns behind."""
        if self.p == self.m:
            return G
        a = solve_transposed(self.corner, np.array(G[:, self.p :].T, order="F")).T
        return np.hstack([G[:, : self.p] - a @ self.ahead, a])


@dataclass(frozen=True)
class Table:
    """A value: scores of arms at a belief. Bringing it forward gives another one, which shares what is common."""

    arms: Arms
    belief: Frozen
    mean: Array  # (n,)
    variance: Array  # (n,)
    computed: Array  # (n,) the variances when they were computed last
    largest: float  # of those
    n_steps: int  # products since then
    threaded: bool
    room: float  # bytes that embeddings may take
    _store: _Store | None  # None where they are not kept
    _last: LastRows | None = None

    @classmethod
    def at(cls, arms: Arms, belief: Frozen, *, room: float, threaded: bool) -> "Table":
        """Computed from nothing."""
        n = len(arms.rows)
        none = np.zeros(n)
        return cls(arms, belief, none, none, none, 0.0, 0, threaded, room, _Store(n))._computed(
            belief, 0
        )

    def part(self, positions: Indices) -> "Table":
        """Of fewer arms."""
        arms = Arms(self.arms.rows[positions], self.arms.diag[positions])
        store = None
        if self._store is not None:
            self._settle()
            m = self.belief.m
            store = _Store(len(positions)).with_room(0, m)
            store.settled = m
            _copy_columns(self._store, positions, store, m)
        return replace(
            self,
            arms=arms,
            mean=self.mean[positions],
            variance=self.variance[positions],
            computed=self.computed[positions],
            _store=store,
            _last=None,
        )

    def slack(self, positions: Indices) -> Array:
        """How far the variances of some arms may be from the true ones by rounding, (k,)."""
        subtracted, outside = self._rounding()
        return np.asarray(subtracted * self.computed[positions] + outside)

    @property
    def largest_slack(self) -> float:
        """The same, of any arm."""
        subtracted, outside = self._rounding()
        return subtracted * self.largest + outside

    def _rounding(self) -> tuple[float, float]:
        """Of what was computed last, as a part of it; of the residuals r/λ."""
        belief = self.belief
        return 8 * EPS * (
            1 + self.n_steps + belief.m
        ), 32 * belief.rounding_seen / belief.regularization

    def brought(self, steps: Sequence[Followed]) -> "Table":
        """At the belief after these steps."""
        if not steps:
            return self
        belief = steps[-1].belief
        p = self.belief.m
        changes = [step.change for step in steps if step.change is not None]
        lowered = sum(len(change.surprise) for change in changes)
        store = self._store
        if (
            store is None
            or not self._keeps(belief)
            or len(changes) < len(steps)
            or not p
            or 2 * lowered > belief.m + 4
        ):
            return self._computed(belief, p)
        return self._lowered(belief, changes, lowered, store.with_room(p, belief.m))

    def _keeps(self, belief: Frozen) -> bool:
        """Embeddings are kept, and may be at this belief."""
        return self._store is not None and 8 * len(self.mean) * belief.m <= self.room

    def afresh(self) -> "Table":
        """The same with variances computed anew."""
        return self._computed(self.belief, self.belief.m)

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        self._settle()
        solve, _ = self.belief.solvers(len(self.mean))
        for i, chunk in enumerate(self._chunks()):
            Z = (
                solve(self._kernel_columns(chunk, self.belief, 0))
                if self._store is None
                else self._store.Z[i][: self.belief.m]
            )
            yield chunk, Z, np.maximum(self.arms.diag[chunk] - squares(Z), 0.0)

    def _chunks(self) -> list[slice]:
        if self._store is not None:
            return self._store.chunks
        n = len(self.mean)
        return [slice(start, min(start + WIDE, n)) for start in range(0, n, WIDE)]

    def _kernel_columns(self, chunk: slice, belief: Frozen, p: int) -> Array:
        """k(w, x) (m − p, k) of the rows of W from p on."""
        rows = self.arms.rows[chunk].astype(np.float64, copy=False)
        return belief.kernel(rows, belief.W[p:]).T

    def _settle(self) -> None:
        """Turn all kernel columns into coordinates: Z₊ = L₊₊⁻¹(K₊ − L₊Z)."""
        store = self._store
        if store is None or store.settled >= self.belief.m:
            return
        p = store.settled
        m = self.belief.m
        last = LastRows.of(self.belief, p)
        solve = solver(last.corner)

        def work(task: tuple[int, slice]) -> None:
            i, _ = task
            Z = store.Z[i]
            Z[p:m] = solve(Z[p:m] - last.ahead @ Z[:p])

        self._run(work, list(enumerate(store.chunks)))
        store.settled = m

    def _computed(self, belief: Frozen, p: int) -> "Table":
        """Everything anew but the first p rows of Z, where they are kept: O(n m²)."""
        m = belief.m
        store = self._store
        if store is not None:
            store = store.with_room(p, m) if self._keeps(belief) else None
        made = replace(self, belief=belief, _store=store)
        mean = np.empty(len(self.mean))
        variance = np.empty(len(self.mean))
        solve_L, quad = belief.solvers(len(self.mean))
        p = min(p, store.settled) if store is not None else 0
        last = LastRows.of(belief, p) if p else None
        if last is not None:
            solve_L = solver(last.corner)

        def work(task: tuple[int, slice]) -> None:
            i, chunk = task
            if store is None:
                Z = solve_L(self._kernel_columns(chunk, belief, 0))
            else:
                Z = store.Z[i][:m]
                if m > p:
                    K = self._kernel_columns(chunk, belief, p)
                    Z[p:] = solve_L(K if last is None else K - last.ahead @ Z[:p])
            mean[chunk] = belief.w @ Z
            r = np.maximum(self.arms.diag[chunk] - squares(Z), 0.0)
            variance[chunk] = r / belief.regularization + quad(Z)

        self._run(work, list(enumerate(made._chunks())))
        if store is not None:
            store.settled = m
        largest = float(variance.max(initial=0.0))
        return replace(
            made, mean=mean, variance=variance, computed=variance, largest=largest, n_steps=0
        )

    def _lowered(
        self, belief: Frozen, changes: list[Change], lowered: int, store: _Store
    ) -> "Table":
        """The product with all changes at once."""
        p = self.belief.m
        m = belief.m
        n_steps = self.n_steps + lowered
        G, surprise = changes[0].lowering.T, changes[0].surprise
        if len(changes) > 1:
            G = np.zeros((lowered, m))
            start = 0
            for change in changes:
                size, k = change.lowering.shape
                G[start : start + k, :size] = change.lowering.T
                start += k
            surprise = np.concatenate([change.surprise for change in changes])
        means_anew = n_steps // MEANS_ANEW > self.n_steps // MEANS_ANEW
        if means_anew:
            G = np.vstack([G, belief.w])
        last = self._last
        if last is None or (last.p, last.m) != (store.settled, m):
            last = LastRows.of(belief, store.settled)
        M = last.on_columns(G)
        columns = None
        if 0 < m - p <= FEW and len(self.mean) <= LARGE:
            columns = self._kernel_columns(slice(None), belief, p)
        mean = np.empty(len(self.mean))
        variance = np.empty(len(self.mean))

        def work(task: tuple[int, slice]) -> None:
            i, chunk = task
            Z = store.Z[i][:m]
            if m > p:
                Z[p:] = (
                    self._kernel_columns(chunk, belief, p) if columns is None else columns[:, chunk]
                )
            H = _product(M, Z)
            if means_anew:
                mean[chunk] = H[-1]
                H = H[:-1]
            else:
                mean[chunk] = self.mean[chunk] + surprise @ H
            variance[chunk] = np.maximum(self.variance[chunk] - squares(H), 0.0)

        self._run(work, list(enumerate(store.chunks)))
        made = Table(
            self.arms,
            belief,
            mean,
            variance,
            self.computed,
            self.largest,
            n_steps,
            self.threaded,
            self.room,
            store,
            last,
        )
        columns_left = m - store.settled
        at_once = m == p and columns_left * m * len(mean) <= FEW_PRODUCTS
        if columns_left >= COLUMNS or (columns_left and at_once):
            made._settle()
        return made

    def _run(
        self, work: Callable[[tuple[int, slice]], None], tasks: list[tuple[int, slice]]
    ) -> None:
        if self.threaded:
            in_parallel(work, tasks)
        else:
            for task in tasks:
                work(task)


def following(waiting: tuple[Followed, ...], step: Step) -> tuple[Followed, ...]:
    """The steps that a table has to follow, with one more. Those that it would not follow one by one are not kept."""
    belief = step.after
    if not isinstance(belief, Frozen):
        raise TypeError(f"a table follows frozen features, got {belief!r}")
    if len(waiting) > belief.m + SPARE:
        return (Followed(belief, None),)
    return (*waiting, Followed(belief, step.change))


def supposed_step(belief: Frozen, arms: Arms, positions: Indices) -> Step:
    """The step if these arms were pulled once more each."""
    rows = arms.rows[positions].astype(np.float64, copy=False)
    return belief.supposing(rows, arms.diag[positions])


def _product(M: Array, Z: Array) -> Array:
    """MZ; of few rows, row by row: a product with two vectors takes longer than two with one."""
    if len(M) > 3:
        return M @ Z
    out = np.empty((len(M), Z.shape[1]))
    for i, row in enumerate(M):
        np.matmul(row, Z, out=out[i])
    return out
