"""The scores of some arms, brought from one belief to a later one.

z(x), μ̃(x) and σ̃²(x) of n arms are kept. Later, W perhaps grown by j rows and observations made,

    ζ = L₊₊⁻¹(k₊ − L₊z),    h = Gᵀ[z; ζ],    σ̃² −= ‖h‖²,  μ̃ += hᵀ(surprise)

with G and the surprises of the steps in between: an append changes no score, and all steps together are one product. So an
arm costs O(m) a step, or O(m²) where everything is computed anew.

What is kept only filters: subtracting loses digits. `slack` bounds how much, and who may be best is scored by `Belief.moments`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from manyarms.beliefs.base import Arms, Batch, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.beliefs.inducing import FEW
from manyarms.search.parallel import in_parallel
from manyarms.sketch.linalg import EPS, solver, squares
from manyarms.typing import Array, Indices

NARROW = 1024
"""Arms to a chunk of a small table: what two products with vectors read stays in cache between them."""
WIDE = 4096
"""Arms to a chunk of a large one, which is brought forward in products of matrices."""
LARGE = 1 << 15
"""Arms from which a table is large."""
SPARE = 64
"""Coordinates that a store has room for at first."""
MEANS_ANEW = 256
"""Steps after which means are computed anew: rounding of as many sums is far below what scores tie by."""


class _Store:
    """Z of all arms in chunks (capacity, width); coordinates that a value has claimed are never written again."""

    def __init__(self, n: int) -> None:
        width = NARROW if n <= LARGE else WIDE
        self.chunks = [slice(start, min(start + width, n)) for start in range(0, n, width)]
        self.Z = [np.empty((SPARE, chunk.stop - chunk.start)) for chunk in self.chunks]
        self.claimed = 0

    def with_room(self, p: int, m: int) -> "_Store":
        """A store whose first p coordinates are these, and which may be written to up to m."""
        if self.claimed > p:
            other = object.__new__(_Store)
            other.chunks = self.chunks
            other.Z = [_grown(Z, p, max(m, len(Z))) for Z in self.Z]
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

    @classmethod
    def at(cls, arms: Arms, belief: Frozen, *, room: float, threaded: bool) -> "Table":
        """Computed from nothing."""
        n = len(arms.rows)
        none = np.zeros(n)
        return cls(arms, belief, none, none, none, 0.0, 0, threaded, room, _Store(n))._computed(belief, 0)

    def part(self, positions: Indices) -> "Table":
        """Of fewer arms."""
        arms = Arms(self.arms.rows[positions], self.arms.diag[positions])
        store = None
        if self._store is not None:
            store = _Store(len(positions))
            m = self.belief.m
            store = store.with_room(0, m)
            sources = self._store
            width = sources.chunks[0].stop
            for chunk, Z in zip(store.chunks, store.Z, strict=True):
                at = positions[chunk]
                number = at // width
                for i in np.unique(number):
                    mine = np.flatnonzero(number == i)
                    Z[:m, mine] = sources.Z[i][:m, at[mine] - i * width]
        scores = (each[positions] for each in (self.mean, self.variance, self.computed))
        return Table(arms, self.belief, *scores, self.largest, self.n_steps, self.threaded, self.room, store)

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
        return 8 * EPS * (1 + self.n_steps + belief.m), 32 * belief.rounding_seen / belief.regularization

    def brought(self, steps: Sequence[Step]) -> "Table":
        """At the belief after these steps."""
        if not steps:
            return self
        belief = steps[-1].after
        if not isinstance(belief, Frozen):
            raise TypeError(f"a table follows frozen features, got {belief!r}")
        p = self.belief.m
        n_rows = belief.m - p
        lowered = 0
        for step in steps:
            if step.lowering is None:
                return self._computed(belief, p)
            lowered += step.lowering.shape[1]
        if not self._keeps(belief) or not p or 2 * (lowered + n_rows) > belief.m + 4:
            return self._computed(belief, p)
        return self._lowered(belief, steps, lowered)

    def _keeps(self, belief: Frozen) -> bool:
        """Embeddings are kept, and may be at this belief."""
        return self._store is not None and 8 * len(self.mean) * belief.m <= self.room

    def afresh(self) -> "Table":
        """The same with variances computed anew."""
        return self._computed(self.belief, self.belief.m)

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        solve, _ = self.belief.solvers()
        for i, chunk in enumerate(self._chunks()):
            p = self.belief.m if self._store is not None else 0
            Z = self._coordinates(i, chunk, self.belief, p, solve)
            yield chunk, Z, np.maximum(self.arms.diag[chunk] - squares(Z), 0.0)

    def _chunks(self) -> list[slice]:
        if self._store is not None:
            return self._store.chunks
        n = len(self.mean)
        return [slice(start, min(start + WIDE, n)) for start in range(0, n, WIDE)]

    def _coordinates(self, i: int, chunk: slice, belief: Frozen, p: int, solve: Callable[[Array], Array]) -> Array:
        """Z (m, k) of a chunk, of which the first p coordinates are stored; `solve` gives the others."""
        m = belief.m
        rows = self.arms.rows[chunk].astype(np.float64, copy=False)
        K = belief.kernel(rows, belief.W[p:m]).T
        if p:
            Z = self._store.Z[i]
            if m > p:
                behind = np.ascontiguousarray(belief.L.upper[:p, p:].T)
                Z[p:m] = solve(K - _product(behind, Z[:p]))
            return Z[:m]
        if self._store is None:
            return solve(K)
        self._store.Z[i][:m] = solve(K)
        return self._store.Z[i][:m]

    def _computed(self, belief: Frozen, p: int) -> "Table":
        """Everything anew but the first p coordinates, where they are kept: O(n m²)."""
        store = self._store.with_room(p, belief.m) if self._keeps(belief) else None
        made = replace(self, belief=belief, _store=store)
        p = p if store is not None else 0
        n = len(self.mean)
        mean = np.empty(n)
        variance = np.empty(n)
        solve_L, solve_C = belief.solvers()
        if 0 < p < belief.m:
            solve_L = solver(np.asfortranarray(belief.L.upper[p:, p:].T))

        def work(task: tuple[int, slice]) -> None:
            i, chunk = task
            Z = made._coordinates(i, chunk, belief, p, solve_L)
            mean[chunk] = belief.w @ Z
            r = np.maximum(self.arms.diag[chunk] - squares(Z), 0.0)
            variance[chunk] = r / belief.regularization + squares(solve_C(Z))

        self._run(work, list(enumerate(made._chunks())))
        largest = float(variance.max(initial=0.0))
        return replace(made, mean=mean, variance=variance, computed=variance, largest=largest, n_steps=0)

    def _lowered(self, belief: Frozen, steps: Sequence[Step], lowered: int) -> "Table":
        """The product with all steps at once."""
        p = self.belief.m
        m = belief.m
        if len(steps) == 1:
            G = steps[0].lowering.T
            surprise = steps[0].surprise
        else:
            G = np.zeros((lowered, m))
            start = 0
            for step in steps:
                k = step.lowering.shape[1]
                G[start : start + k, : len(step.lowering)] = step.lowering.T
                start += k
            surprise = np.concatenate([step.surprise for step in steps])
        n_steps = self.n_steps + lowered
        means_anew = n_steps // MEANS_ANEW > self.n_steps // MEANS_ANEW
        store = self._store.with_room(p, m)
        columns = None
        stacked = G
        solve = _same
        if m > p:
            fresh = belief.W[p:m]
            if m - p <= FEW and len(self.mean) <= LARGE:
                columns = belief.kernel(self.arms.rows, fresh).T
            rows = [belief.L.row(i) for i in range(p, m)]
            stacked = np.vstack([*(row[:p] for row in rows), G[:, :p]])
            solve = _corner([row[p:] for row in rows])
        mean = np.empty(len(self.mean))
        variance = np.empty(len(self.mean))

        def work(task: tuple[int, slice]) -> None:
            i, chunk = task
            Z = store.Z[i]
            H = _product(stacked, Z[:p])
            if m > p:
                K = belief.kernel(self.arms.rows[chunk], fresh).T if columns is None else columns[:, chunk]
                zeta = solve(K - H[: m - p])
                Z[p:m] = zeta
                H = H[m - p :]
                H += G[:, p:] @ zeta
            mean[chunk] = belief.w @ Z[:m] if means_anew else self.mean[chunk] + surprise @ H
            variance[chunk] = np.maximum(self.variance[chunk] - squares(H), 0.0)

        self._run(work, list(enumerate(store.chunks)))
        return Table(
            self.arms, belief, mean, variance, self.computed, self.largest, n_steps, self.threaded, self.room, store
        )

    def _run(self, work: Callable[[tuple[int, slice]], None], tasks: list[tuple[int, slice]]) -> None:
        if self.threaded:
            in_parallel(work, tasks)
        else:
            for task in tasks:
                work(task)


def following(waiting: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """The steps that a table has to follow, with one more. Those that it would not follow one by one are not kept."""
    if len(waiting) > step.after.m + SPARE:
        return (step._replace(lowering=None, surprise=None),)
    return (*waiting, step)


def supposed_step(belief: Frozen, arms: Arms, positions: Indices) -> Step:
    """The step if these arms were pulled once more each, with their means for rewards: means stay, variances fall."""
    rows = arms.rows[positions].astype(np.float64, copy=False)
    diag = arms.diag[positions]
    mean, _ = belief.moments(rows, diag)
    n = len(positions)
    return belief.observed(Batch(rows, diag, mean, np.ones(n), np.full(n, -1), n))


def _same(B: Array) -> Array:
    return B


def _corner(rows: list[Array]) -> Callable[[Array], Array]:
    """The function B ↦ T⁻¹B of a lower triangle T, given its rows."""
    if len(rows) == 1:
        return partial(np.multiply, 1.0 / float(rows[0][0]))
    T = np.zeros((len(rows), len(rows)), order="F")
    for i, row in enumerate(rows):
        T[i, : i + 1] = row
    return solver(T)


def _product(M: Array, Z: Array) -> Array:
    """MZ; of few rows, row by row: a product with two vectors takes longer than two with one."""
    if len(M) > 3:
        return M @ Z
    out = np.empty((len(M), Z.shape[1]))
    for i, row in enumerate(M):
        np.dot(row, Z, out=out[i])
    return out
