"""z, μ̃ and σ̃² of some arms, brought forward from one belief to the next.

An observation gives (`Change`), for all arms alike,

    h = Gᵀz(x),    σ̃² −= ‖h‖²,    μ̃ += hᵀ(surprise),

and a row that enters W a new coordinate of z before. So an arm costs O(m) a step, in one sweep over
its z (`sweep.py`), and O(m²) where everything is computed anew.

What is kept only filters: subtracting loses digits, and `slack` bounds how many. The arms that may
be best are scored by `moments`, the one function that scores.

Where the kernel has own parts, these are numbers of the part of f that arms share. Arms that were
tried are few, and are put right when they are looked at.
"""

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

import numpy as np

from manyarms.beliefs.base import Arms, Change
from manyarms.beliefs.frozen import Engine, Frozen
from manyarms.kernels import Kernel
from manyarms.search.places import Places
from manyarms.search.scores import Acquisition, Rising, Upper
from manyarms.search.sweep import Columns, peak, reach, step
from manyarms.search.work import in_parallel
from manyarms.sketch.linalg import EPS, solver
from manyarms.typing import Array, Indices, Mask

ONE_CHUNK = 1 << 15
"""Arms up to which all are one chunk: threads cost more than a cache that is missed."""
WIDE = 4096
"""Arms to a chunk where there are more: their coordinates stay in cache."""
GROUPS = 16
"""Parts in which chunks are given to threads: few enough to cost nothing, enough to be even."""
RESERVED = 1 << 26
"""Bytes that a small table reserves for coordinates to come: what is not written takes none."""
SPARE = 64
"""Coordinates that there is room for at first."""
MANY_CHUNKS = 32
"""Chunks above which those of a table that grew are joined."""
MEANS_ANEW = 256
"""Steps after which means are computed anew: the rounding of as many sums is far below a tie."""
FEW_ROWS = 8
"""Rows of G up to which the sweep is faster than a product of matrices."""
SMALL = 8192
"""Arms up to which all values of an acquisition take less time than a table of what is needed."""
EMPTY = np.zeros((0, 0))
BINS = 512
"""Steps of the variance in that table."""


class Dense:
    """The scores of some arms at a belief, kept and changed in place.

    `belief` is the one that they are of; None where a sweep was interrupted.
    """

    def __init__(self, arms: Arms, kernel: Kernel) -> None:
        self.arms = Arms(arms.rows[:0], arms.diag[:0])  # diag is that of `kernel`
        self.belief: Frozen | None = None
        self.places = Places(arms.rows[:0])
        self.mean = np.empty(0)
        self.variance = np.empty(0)
        self._chunks: list[slice] = []
        self._Z: list[Array] = []
        self._columns = Columns(kernel)
        self._largest = 0.0  # variance when they were computed
        self._n_steps = 0  # lowered since then
        self._add(arms)

    def __len__(self) -> int:
        return len(self.mean)

    # From belief to belief

    def compute(self, belief: Engine) -> None:
        """Everything anew: O(nm²)."""
        self.belief = None
        self._embed(belief.base, self._chunks, self._Z)
        self._largest = float(self.variance.max(initial=0.0))
        self._n_steps = 0
        self.places.find(belief, anew=True)
        self.belief = belief.base

    def follow(self, belief: Engine, changes: Sequence[Change]) -> None:
        """To the belief after these changes."""
        before = self.belief
        base = belief.base
        k = sum(len(change.surprise) for change in changes)
        if before is None or not before.m or 2 * k > base.m + 4:
            self.compute(belief)
            return
        if len(changes) == 1 and len(changes[0].lowering) == base.m:
            lowering, surprise = changes[0]
            G = np.ascontiguousarray(lowering.T)
        else:
            G = np.zeros((k, base.m))
            start = 0
            for lowering, _ in changes:
                m, size = lowering.shape
                G[start : start + size, :m] = lowering.T
                start += size
            surprise = np.concatenate([change.surprise for change in changes])
        self.belief = None
        self._lower(base, before.m, G, surprise)
        self.places.find(belief)
        self.belief = base

    def extend(self, belief: Engine, arms: Arms) -> None:
        """With more arms, at the same belief."""
        self.belief = None
        n_chunks = len(self._chunks)
        self._add(arms)
        self._embed(belief.base, self._chunks[n_chunks:], self._Z[n_chunks:])
        self._largest = max(self._largest, float(self.variance[-len(arms.diag) :].max()))
        if len(self._chunks) > MANY_CHUNKS and len(self) <= ONE_CHUNK:
            self._join(belief.base.m)
        self.places.find(belief, anew=True)
        self.belief = belief.base

    def _add(self, arms: Arms) -> None:
        n = len(self.mean)
        more = len(arms.diag)
        width = WIDE if more > ONE_CHUNK else max(1, more)
        starts = range(n, n + more, width)
        self._chunks += [slice(start, min(start + width, n + more)) for start in starts]
        reserved = max(SPARE, min(1024, RESERVED // (8 * max(1, more))))
        self._Z += [np.empty((reserved, min(width, n + more - start))) for start in starts]
        if n:
            rows = np.concatenate([self.arms.rows, arms.rows])
            arms = Arms(rows, np.concatenate([self.arms.diag, arms.diag]))
        self.arms = arms
        self.places = Places(arms.rows)
        self.mean = np.concatenate([self.mean, np.empty(more)])
        self.variance = np.concatenate([self.variance, np.empty(more)])

    def _join(self, m: int) -> None:
        """All chunks of a small table become one."""
        Z = np.empty((max(SPARE, 2 * m), len(self)))
        for chunk, part in zip(self._chunks, self._Z, strict=True):
            Z[:m, chunk] = part[:m]
        self._chunks = [slice(0, len(self))]
        self._Z = [Z]

    def _embed(self, base: Frozen, chunks: list[slice], stores: list[Array]) -> None:
        """z, μ̃ and σ̃² of the arms of some chunks."""
        m = base.m
        rows, diag = self.arms
        W = np.ascontiguousarray(base.W)
        solve_L = solver(base.L.upper.T)
        solve_C = solver(base.factor.folded.C.upper.T)
        numbers = [self._chunks.index(chunk) for chunk in chunks]

        def work(some: Sequence[int]) -> None:
            widest = max(self._chunks[i].stop - self._chunks[i].start for i in some)
            scratch = np.empty(m * widest)  # used again for each chunk: pages are touched once
            for i in some:
                chunk = self._chunks[i]
                n = chunk.stop - chunk.start
                K = scratch[: m * n].reshape(m, n)
                Z = self._with_room(i, 0, m)[:m]
                self._columns.into(K, rows[chunk], W)
                solve_L(K, Z)
                np.matmul(base.w, Z, out=self.mean[chunk])
                np.square(Z, out=K)
                r = diag[chunk] - np.add.reduce(K, axis=0)
                np.maximum(r, 0.0, out=r)
                solve_C(Z, K)
                np.square(K, out=K)
                np.add.reduce(K, axis=0, out=self.variance[chunk])
                r /= base.regularization
                self.variance[chunk] += r

        self._each(work, numbers)

    def _lower(self, base: Frozen, p: int, G: Array, surprise: Array) -> None:
        """One sweep: the coordinates from p on, and what the steps lower."""
        m = base.m
        ahead = corner = new = EMPTY  # not read where W is as it was
        if m > p:
            new = np.ascontiguousarray(base.W[p:])
            ahead, corner = base.L.last_rows(p)
            corner = np.ascontiguousarray(corner)
        k = len(surprise)
        means_anew = (self._n_steps + k) // MEANS_ANEW > self._n_steps // MEANS_ANEW

        def work(some: Sequence[int]) -> None:
            for i in some:
                chunk = self._chunks[i]
                Z = self._with_room(i, p, m)
                if m > p:
                    self._columns.into(Z[p:m], self.arms.rows[chunk], new)
                mean = self.mean[chunk]
                variance = self.variance[chunk]
                swept = k if k <= FEW_ROWS else 0
                step(Z, p, m, ahead, corner, G[:swept], surprise[:swept], mean, variance)
                if not swept and k:
                    H = G @ Z[:m]
                    mean += surprise @ H
                    variance -= np.add.reduce(np.square(H, out=H), axis=0)
                    np.maximum(variance, 0.0, out=variance)
                if means_anew:
                    np.matmul(base.w, Z[:m], out=mean)

        self._each(work, range(len(self._chunks)))
        self._n_steps += k

    def _with_room(self, i: int, p: int, m: int) -> Array:
        """The coordinates of a chunk, of which p are kept, with room for m."""
        Z = self._Z[i]
        if len(Z) < m:
            grown = np.empty((m + m // 2 + SPARE, Z.shape[1]))
            grown[:p] = Z[:p]
            self._Z[i] = Z = grown
        return Z

    def _each(self, work: Callable[[Sequence[int]], None], numbers: Sequence[int]) -> None:
        """Do some work on chunks, by their numbers, with all threads where there are many."""
        if len(numbers) == 1:
            work(numbers)
        elif numbers:
            groups = [numbers[start::GROUPS] for start in range(min(GROUPS, len(numbers)))]
            in_parallel(work, groups)

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        m = 0 if self.belief is None else self.belief.m
        for chunk, store in zip(self._chunks, self._Z, strict=True):
            Z = store[:m]
            r = self.arms.diag[chunk] - np.add.reduce(np.square(Z), axis=0)
            yield chunk, Z, np.maximum(r, 0.0)

    # Reading

    @property
    def slack(self) -> float:
        """How far variances may be from the true ones by rounding."""
        base = self.belief
        if base is None:
            return np.inf
        subtracted = 8 * EPS * (1 + self._n_steps + base.m) * self._largest
        return subtracted + 32 * base.rounding_seen / base.regularization

    def current(self, belief: Engine) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms with own parts, right but for rounding: new arrays."""
        if not belief.own_variance:
            return self.mean.copy(), self.variance.copy()
        mean = self.mean.copy()
        variance = self.variance + belief.own_variance / belief.regularization
        tried, places = self.places.positions, self.places.places
        if len(tried):
            right = belief.corrected(self.mean[tried], self.variance[tried], places)
            mean[tried], variance[tried] = right
        return mean, variance

    def refresh(self, belief: Engine, near: Indices, most: int) -> bool:
        """Compute everything anew where many arms may be best: rounding may be why."""
        if len(near) <= most or not self._n_steps:
            return False
        self.compute(belief)
        return True

    def near(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> tuple[Indices, float]:
        """Positions, ascending, of the arms whose value may be the largest, given the rounding, and
        a value that the best of them reaches. None where all are shut."""
        if not isinstance(acquisition, Rising):
            return self._near_by_both_ends(belief, acquisition, shut), -np.inf
        if len(self) > SMALL or isinstance(acquisition, Upper):
            return self._near_among_many(belief, acquisition, shut)
        mean, variance = self.mean, self.variance
        if belief.own_variance:
            mean, variance = self.current(belief)
        slack = self.slack
        values = acquisition.upper(mean, np.sqrt(variance + slack))
        if shut is not None:
            values[shut] = -np.inf
        best = int(values.argmax()) if len(values) else -1
        if best < 0 or values[best] == -np.inf:
            return np.zeros(0, dtype=np.intp), -np.inf
        lowest = sqrt(max(float(variance[best]) - slack, 0.0))
        least = acquisition.least(float(mean[best]), lowest)
        return np.flatnonzero(values >= least), least

    def _near_among_many(
        self, belief: Engine, acquisition: Rising, shut: Mask | None
    ) -> tuple[Indices, float]:
        """The same without a value for every arm. Tried arms are looked at by themselves."""
        slack = self.slack
        own = belief.own_variance / belief.regularization
        least = -np.inf
        tried = self.places.positions
        closed = shut
        upper = np.zeros(0)
        if len(tried):
            closed = self.places.mask if shut is None else self.places.mask | shut
            moments = belief.corrected(self.mean[tried], self.variance[tried], self.places.places)
            mean, variance = moments
            upper = acquisition.upper(mean, np.sqrt(variance + slack))
            if shut is not None:
                upper[shut[tried]] = -np.inf
            best = int(upper.argmax())
            if upper[best] > -np.inf:
                lowest = sqrt(max(float(variance[best]) - slack, 0.0))
                least = acquisition.least(float(mean[best]), lowest)
        at, top, second = peak(self.mean, self.variance, closed, acquisition.beta, own + slack)
        if at >= 0:
            lowest = sqrt(max(float(self.variance[at]) + own - slack, 0.0))
            least = max(least, acquisition.least(float(self.mean[at]), lowest))
        if isinstance(acquisition, Upper) and second < least:
            # These were the values themselves: no other arm reaches that one.
            some = np.array([at][: top >= least], dtype=np.intp)
            return self._with_tried(some, upper, least), least
        some, values = reaching(
            self.mean, self.variance, closed, acquisition, least, own + slack, self._largest
        )
        if len(some):
            # The best of an acquisition that is no upper bound may be another arm.
            best = int(values.argmax())
            lowest = sqrt(max(float(self.variance[some[best]]) + own - slack, 0.0))
            least = max(least, acquisition.least(float(self.mean[some[best]]), lowest))
            some = some[values >= least]
        return self._with_tried(some, upper, least), least

    def _with_tried(self, some: Indices, upper: Array, least: float) -> Indices:
        """Some arms, and the tried ones whose bounds reach so much, in index order."""
        if not len(upper):
            return some
        return np.sort(np.concatenate([some, self.places.positions[upper >= least]]))

    def _near_by_both_ends(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> Indices:
        """A value may fall with the deviation (probability of improvement): either end of what
        rounding allows may be larger."""
        mean, variance = self.current(belief)
        some = np.arange(len(mean)) if shut is None else np.flatnonzero(~shut)
        mean = mean[some]
        variance = variance[some]
        slack = self.slack
        highest, tolerance = acquisition(mean, np.sqrt(variance + slack))
        lowest, _ = acquisition(mean, np.sqrt(np.maximum(variance - slack, 0.0)))
        low = np.minimum(highest, lowest)
        best = int(np.argmax(low))
        return np.asarray(some[np.maximum(highest, lowest) >= low[best] - 4 * tolerance[best]])


def reaching(
    mean: Array,
    variance: Array,
    shut: Mask | None,
    acquisition: Rising,
    least: float,
    more: float,
    largest: float,
    moved: float = 0.0,
) -> tuple[Indices, Array]:
    """Arms whose values may reach so much, and bounds on these, once no mean has risen by more than
    D·σ̃, D = `moved`, and variances are to be larger by `more`; none is above `largest`.

    What an arm needs of the mean depends on its variance alone: it is looked up in a table.
    """
    scale = BINS / largest if largest > 0 else 0.0
    edges = np.arange(1, BINS + 1) * (largest / BINS)
    deviation = np.sqrt(edges)
    need = acquisition.needed(least, np.sqrt(edges + more)) - moved * deviation
    need -= 1e-12 * np.abs(need)  # what rounding does to this very sum
    some = reach(mean, variance, shut, need, scale)
    bound = mean[some]
    if moved:
        bound = bound + moved * np.sqrt(variance[some])
    values = acquisition.upper(bound, np.sqrt(variance[some] + more))
    reached = values >= least
    return some[reached], values[reached]
