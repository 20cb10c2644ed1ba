"""The scores of some arms, brought from one belief to a later one.

z(x), μ̃(x) and σ̃²(x) of n arms are kept. Later, W perhaps grown and observations made,

    h = Gᵀz(x),    σ̃² −= ‖h‖²,  μ̃ += hᵀ(surprise)

with G and the surprises of the steps in between: an append changes no score, and all steps together
are one product. So an arm costs O(m) a step, or O(m²) where everything is computed anew.

Rows that are new in W come as kernel columns k₊(x) first. Their coordinates are
ζ = L₊₊⁻¹(k₊ − L₊z), so that

    gᵀ[z; ζ] = (g − L₊ᵀa)ᵀz + aᵀk₊,   a = L₊₊⁻ᵀg₊:

one product either way. They are turned into coordinates many at a time, by a product of matrices.

What is kept only filters: subtracting loses digits. `slack` bounds how much, and who may be best is
scored by `Belief.moments`.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from math import sqrt

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.lapack import blas
from manyarms.search.devices import ArmsOnDevice
from manyarms.search.rough import finer_scores, rough_scores
from manyarms.search.scores import Acquisition, Rising
from manyarms.search.work import in_parallel
from manyarms.sketch.linalg import EPS, solver, squares
from manyarms.typing import Array, Indices, Mask

LARGE = 1 << 15
"""Arms up to which all are one chunk: calls and threads cost more than a cache that is missed."""
WIDE = 4096
"""Arms to a chunk where there are more: their coordinates stay in cache."""
RESERVED = 1 << 26
"""Bytes that a small table reserves for coordinates to come."""
SPARE = 64
"""Coordinates that a store has room for at first."""
COLUMNS = 32
"""Kernel columns that are turned into coordinates at a time."""
FEW_PRODUCTS = 1 << 21
"""Multiplications that do so at once, should no other column come: about what a step takes."""
MEANS_ANEW = 256
"""Steps after which means are computed anew: the rounding of as many sums is far below a tie."""


class Store:
    """The arms of a table and, while they fit, their z in chunks (capacity, width).

    Coordinates that a table has claimed are never written to by another. The first `settled` of
    them are coordinates, those behind them kernel columns still.
    """

    def __init__(self, arms: Arms, room: float, device: ArmsOnDevice | None = None) -> None:
        n = len(arms.rows)
        self.device = device  # the same arms there; then no z of them is kept
        width = WIDE if n > LARGE else max(1, n)
        self.arms = arms
        self.room = room  # bytes that z of all arms may take
        self.chunks = [slice(start, min(start + width, n)) for start in range(0, n, width)]
        # What is not written to takes no memory: a small table has room for many at once.
        rows = max(SPARE, min(1024, RESERVED // max(1, 8 * n)))
        kept = self.chunks
        if device is not None:
            self.chunks = device.chunks
            kept = []
        self.Z = [np.empty((rows, chunk.stop - chunk.start)) for chunk in kept]
        self.claimed = 0
        self.settle_at(0)

    def settle_at(self, m: int) -> None:
        """The first m are coordinates now, and no row of L behind them is at hand."""
        self.settled = m
        self._n_last = 0
        self._ahead = np.zeros((COLUMNS, m))
        self._corner = np.zeros((COLUMNS, COLUMNS))

    def keeps(self, m: int) -> bool:
        """Whether m coordinates of every arm fit."""
        if self.device is not None:
            return self.device.keeps(m)
        return bool(self.Z) and 8 * len(self.arms.rows) * m <= self.room

    def with_room(self, p: int, m: int) -> "Store":
        """A store whose first p coordinates are these, and which may be written to up to m."""
        made = self
        if self.claimed > p:
            made = copy(self)
            made.Z = [_grown(Z, p, max(m, len(Z))) for Z in self.Z]
            made.settle_at(min(self.settled, p))
        elif self.Z and len(self.Z[0]) < m:
            self.Z[:] = [_grown(Z, p, m + m // 2 + SPARE) for Z in self.Z]
        made.claimed = m
        return made

    def without_Z(self) -> "Store":
        """The same arms, whose coordinates do not fit. W only grows, so they never will again."""
        made = copy(self)
        made.Z = []
        made.claimed = 0
        made.settle_at(0)
        return made

    def on_device(self, device: ArmsOnDevice, m: int) -> "Store":
        """The same arms with m coordinates there."""
        made = copy(self)
        made.device = device
        made.settle_at(m)
        return made

    def columns(self, i: int, m: int, some: Indices | slice = slice(None)) -> Array:
        """The first m coordinates of some arms of a chunk, or of all, (m, k); all are settled."""
        if self.device is not None:
            return self.device.columns(i, some)
        Z = self.Z[i][:m]
        return Z if isinstance(some, slice) else Z.take(some, axis=1)

    def part(self, positions: Indices, m: int) -> "Store":
        """Of fewer arms, at positions that ascend, with m coordinates that are settled."""
        arms = self.arms
        made = Store(Arms(arms.rows[positions], arms.diag[positions]), self.room)
        if not self.keeps(m):
            return made.without_Z()
        made.with_room(0, m).settle_at(m)
        for i, chunk in enumerate(self.chunks):
            first, last = np.searchsorted(positions, (chunk.start, chunk.stop))
            for mine, target in zip(made.chunks, made.Z, strict=True):
                start = max(first, mine.start)
                stop = min(last, mine.stop)
                if start < stop:
                    columns = positions[start:stop] - chunk.start
                    places = slice(start - mine.start, stop - mine.start)
                    target[:m, places] = self.columns(i, m, columns)
        return made

    def last_rows(self, belief: Frozen) -> tuple[Array, Array]:
        """The rows of L that are not settled: L₊ (j, p) and L₊₊ (j, j)."""
        p = self.settled
        j = len(belief.w) - p
        if j > len(self._corner):
            return belief.L.last_rows(p)
        for i in range(self._n_last, j):
            row = belief.L.row(p + i)
            self._ahead[i] = row[:p]
            self._corner[i, : i + 1] = row[p:]
        self._n_last = max(self._n_last, j)
        return self._ahead[:j], self._corner[:j, :j]

    def on_columns(self, belief: Frozen, G: Array) -> Array:
        """Rows G (k, m) for coordinates, as rows for what is stored."""
        p = self.settled
        if p == len(belief.w):
            return G
        ahead, corner = self.last_rows(belief)
        M = np.empty(G.shape)
        M[:, p:] = blas.dtrsm(1.0, corner, G[:, p:].T, lower=1, trans_a=1).T  # aᵀ = g₊ᵀL₊₊⁻¹
        np.subtract(G[:, :p], M[:, p:] @ ahead, out=M[:, :p])
        return M

    def kernel_columns(self, chunk: slice, belief: Frozen, p: int) -> Array:
        """k(w, x) (m − p, k) of the rows of W from p on."""
        rows = self.arms.rows[chunk].astype(np.float64, copy=False)
        return belief.kernel(rows, belief.W[p:]).T

    def settle(self, belief: Frozen) -> None:
        """Turn all kernel columns into coordinates: Z₊ = L₊₊⁻¹(K₊ − L₊Z)."""
        p = self.settled
        m = len(belief.w)
        if p >= m or not self.keeps(m):
            return
        ahead, corner = self.last_rows(belief)
        solve = solver(corner)

        def work(i: int) -> None:
            Z = self.Z[i]
            Z[p:m] = solve(Z[p:m] - ahead @ Z[:p])

        self.each(work)
        self.settle_at(m)

    def each(self, work: Callable[[int], None]) -> None:
        """Do some work on the chunks, by their numbers."""
        if len(self.chunks) > 1:
            in_parallel(work, range(len(self.chunks)))
        elif self.chunks:
            work(0)


def _grown(Z: Array, p: int, room: int) -> Array:
    grown = np.empty((room, Z.shape[1]))
    grown[:p] = Z[:p]
    return grown


@dataclass(frozen=True)
class Table:
    """A value: scores of arms at a belief. One that is brought forward shares what is common."""

    store: Store
    belief: Frozen
    mean: Array  # (n,)
    variance: Array  # (n,)
    computed: Array  # (n,) the variances when they were computed last
    largest: float  # of those
    n_steps: int  # products since then
    is_rough: bool = False  # variances are upper bounds only
    mean_error: float = 0.0  # of rough means, beyond the rounding of others

    @classmethod
    def at(cls, store: Store, belief: Frozen, p: int = 0) -> "Table":
        """Everything computed but the first p coordinates, where they are kept: O(n m²)."""
        if store.device is not None:
            device, mean, variance = store.device.at(belief, p)
            store = store.on_device(device, belief.m)
            largest = float(variance.max(initial=0.0))
            return cls(store, belief, mean, variance, variance, largest, 0)
        arms = store.arms
        m = len(belief.w)
        keeps = store.keeps(m)
        store = store.with_room(p, m) if keeps else store.without_Z()
        mean = np.empty(len(arms.diag))
        variance = np.empty(len(arms.diag))
        solve, quad = belief.solvers(len(mean))
        p = min(p, store.settled) if keeps else 0
        ahead = None
        if p:
            ahead, corner = belief.L.last_rows(p)
            solve = solver(corner)

        def work(i: int) -> None:
            chunk = store.chunks[i]
            Z = store.Z[i][:m] if keeps else np.empty((m, chunk.stop - chunk.start))
            if m > p:
                K = store.kernel_columns(chunk, belief, p)
                Z[p:] = solve(K if ahead is None else K - ahead @ Z[:p])
            mean[chunk] = belief.w @ Z
            r = np.maximum(arms.diag[chunk] - squares(Z), 0.0)
            variance[chunk] = r / belief.regularization + quad(Z)

        store.each(work)
        if keeps:
            store.settle_at(m)
        largest = float(variance.max(initial=0.0))
        return cls(store, belief, mean, variance, variance, largest, 0)

    @classmethod
    def roughly(cls, store: Store, belief: Frozen) -> "Table":
        """Means, and upper bounds of variances, without embeddings: O(nm), see `rough.py`."""
        mean, variance, error = rough_scores(store.arms, belief)
        largest = float(variance.max(initial=0.0))
        store = store.without_Z()
        return cls(store, belief, mean, variance, variance, largest, 0, True, error)

    def upper(self, acquisition: Rising, moved: float) -> Array:
        """Bounds on the values of the arms, (n,), once the posterior has moved by D."""
        return acquisition.upper(*self.highest(), moved)

    def highest(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """What means and deviations cannot exceed, given the rounding; of some arms, or of all."""
        mean = self.mean if positions is None else self.mean[positions]
        variance = self.variance if positions is None else self.variance[positions]
        deviation = np.sqrt(variance + self.largest_slack)
        return mean + self.mean_error if self.mean_error else mean, deviation

    def joined(self, other: "Table", arms: Arms) -> "Table":
        """A rough table and another one of the same belief, of the arms of both."""
        mean = np.concatenate([self.mean, other.mean])
        variance = np.concatenate([self.variance, other.variance])
        largest = max(self.largest, other.largest)
        error = max(self.mean_error, other.mean_error)
        store = Store(arms, self.store.room).without_Z()
        return Table(store, self.belief, mean, variance, variance, largest, 0, True, error)

    def finer(self, positions: Indices) -> tuple[Array, Array]:
        """What means and deviations of a few arms of a rough table cannot exceed, closer."""
        arms = self.store.arms
        some = Arms(arms.rows[positions], arms.diag[positions])
        mean, variance, error = finer_scores(some, self.belief)
        return mean + error, np.sqrt(variance + self.largest_slack)

    def part(self, positions: Indices) -> "Table":
        """Of fewer arms; not of a rough one."""
        if self.is_bare:
            arms = self.store.arms
            some = Arms(arms.rows[positions], arms.diag[positions])
            return Table.at(Store(some, self.store.room), self.belief)
        self.store.settle(self.belief)
        return Table(
            self.store.part(positions, len(self.belief.w)),
            self.belief,
            self.mean[positions],
            self.variance[positions],
            self.computed[positions],
            self.largest,
            self.n_steps,
        )

    @property
    def is_bare(self) -> bool:
        """It is of a device on which no embeddings fit."""
        return self.store.device is not None and not self.store.keeps(self.belief.m)

    def can_follow(self, steps: Sequence[Step]) -> bool:
        """Whether a product brings it to the belief after these steps: nothing is computed anew."""
        changes = [step.change for step in steps if step.change is not None]
        if not steps or len(changes) < len(steps):
            return False
        m = len(steps[-1].after.w)  # type: ignore[attr-defined]
        lowered = sum(len(change.surprise) for change in changes)
        return 2 * lowered <= m + 4 and len(self.belief.w) > 0 and self.store.keeps(m)

    def brought(self, steps: Sequence[Step]) -> "Table":
        """At the belief after these steps."""
        if not steps:
            return self
        belief: Frozen = steps[-1].after  # type: ignore[assignment]
        p = len(self.belief.w)
        if not self.can_follow(steps):
            return Table.at(self.store, belief, p)
        changes = [step.change for step in steps if step.change is not None]
        lowered = sum(len(change.surprise) for change in changes)
        G, surprise = changes[0].lowering.T, changes[0].surprise
        if len(changes) > 1:
            G = np.zeros((lowered, len(belief.w)))
            start = 0
            for change in changes:
                size, k = change.lowering.shape
                G[start : start + k, :size] = change.lowering.T
                start += k
            surprise = np.concatenate([change.surprise for change in changes])
        return self._lowered(belief, G, surprise)

    def _lowered(self, belief: Frozen, G: Array, surprise: Array) -> "Table":
        """The product with all changes at once."""
        p = len(self.belief.w)
        m = len(belief.w)
        n_steps = self.n_steps + len(surprise)
        if self.store.device is not None:
            device, mean, fall = self.store.device.lowered(belief, p, G)
            variance = np.maximum(self.variance - fall, 0.0)
            store = self.store.on_device(device, m)
            return Table(store, belief, mean, variance, self.computed, self.largest, n_steps)
        store = self.store.with_room(p, m)
        means_anew = n_steps // MEANS_ANEW > self.n_steps // MEANS_ANEW
        if means_anew:
            G = np.vstack([G, belief.w])
        M = store.on_columns(belief, G)
        mean = np.empty(len(self.mean))
        variance = np.empty(len(self.mean))

        def work(i: int) -> None:
            chunk = store.chunks[i]
            Z = store.Z[i][:m]
            if m > p:
                Z[p:] = store.kernel_columns(chunk, belief, p)
            H = _product(M, Z)
            if means_anew:
                mean[chunk] = H[-1]
                H = H[:-1]
            else:
                np.add(self.mean[chunk], surprise @ H, out=mean[chunk])
            lower = variance[chunk]
            np.subtract(self.variance[chunk], squares(H), out=lower)
            np.maximum(lower, 0.0, out=lower)

        store.each(work)
        left = m - store.settled
        if left >= COLUMNS or (left and m == p and left * m * len(mean) <= FEW_PRODUCTS):
            store.settle(belief)
        return Table(store, belief, mean, variance, self.computed, self.largest, n_steps)

    # Rounding

    def slack(self, positions: Indices) -> Array:
        """How far the variances of arms may be from the true ones by rounding; of some, or of
        one."""
        subtracted, outside = self._rounding()
        slack: Array = subtracted * self.computed[positions] + outside
        return slack

    @property
    def largest_slack(self) -> float:
        """The same, of any arm."""
        subtracted, outside = self._rounding()
        return subtracted * self.largest + outside

    def _rounding(self) -> tuple[float, float]:
        """Of what was computed last, as a part of it; of the residuals r/λ."""
        belief = self.belief
        subtracted = 8 * EPS * (1 + self.n_steps + len(belief.w))
        return subtracted, 32 * belief.rounding_seen / belief.regularization

    # Who is best

    def may_be_best(self, acquisition: Acquisition, barred: Mask | None) -> Indices:
        """Positions of arms whose value may be the largest, or tie with it, given the rounding."""
        some: Indices | slice = slice(None)
        if isinstance(acquisition, Rising):
            # Most arms are far below the best, whatever rounding has done.
            slack = self.largest_slack
            values = acquisition.upper(self.mean, np.sqrt(self.variance + slack))
            if barred is not None:
                values[barred] = -np.inf
            best = int(values.argmax())
            if values[best] == -np.inf:  # all arms of a short list are barred
                return np.zeros(0, dtype=np.intp)
            near = np.flatnonzero(values >= self.least(best, acquisition))
            if len(near) == 1:
                return near
            some = near
        elif barred is not None:
            some = np.flatnonzero(~barred)
        positions = np.arange(len(self.mean))[some]
        slacks = self.slack(positions)
        mean = self.mean[positions]
        variance = self.variance[positions]
        highest, tolerance = acquisition(mean, np.sqrt(variance + slacks))
        lowest, _ = acquisition(mean, np.sqrt(np.maximum(variance - slacks, 0.0)))
        # A value may fall with the deviation (probability of improvement): either end may be
        # larger.
        low = np.minimum(highest, lowest)
        best = int(np.argmax(low))
        return np.asarray(positions[np.maximum(highest, lowest) >= low[best] - 4 * tolerance[best]])

    def least(self, position: int, acquisition: Rising) -> float:
        """What the value of one arm is not below, given the rounding, less some ties."""
        variance = float(self.variance[position]) - self.largest_slack
        return acquisition.least(float(self.mean[position]), sqrt(max(variance, 0.0)))

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        store = self.store
        m = len(self.belief.w)
        store.settle(self.belief)
        keeps = store.keeps(m)
        solve, _ = self.belief.solvers(len(self.mean))
        for i, chunk in enumerate(store.chunks):
            kept = store.columns(i, m) if keeps else None
            Z = solve(store.kernel_columns(chunk, self.belief, 0)) if kept is None else kept
            yield chunk, Z, np.maximum(store.arms.diag[chunk] - squares(Z), 0.0)


def _product(M: Array, Z: Array) -> Array:
    """MZ; of few rows, row by row: a product with two vectors takes longer than two with one."""
    if len(M) > 3:
        return M @ Z
    out = np.empty((len(M), Z.shape[1]))
    for i, row in enumerate(M):
        np.matmul(row, Z, out=out[i])
    return out
