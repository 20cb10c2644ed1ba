"""z of some arms in memory, and the two passes over them that write means and variances."""

from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np

from manyarms.engine.base import Arms
from manyarms.engine.frozen import Frozen
from manyarms.engine.linalg import solver
from manyarms.kernels import Kernel
from manyarms.search.sweep import Columns, step
from manyarms.search.work import in_parallel
from manyarms.typing import Array

ONE_CHUNK = 1 << 15
"""Arms up to which all are one chunk: threads cost more than a cache that is missed."""
WIDE = 4096
"""Arms to a chunk where there are more: their coordinates stay in cache."""
RESERVED = 1 << 26
"""Bytes that a small table reserves for coordinates to come: what is not written takes none."""
SPARE = 64
"""Coordinates that there is room for at first."""
MANY_CHUNKS = 32
"""Chunks above which those of a table that grew are joined."""
FEW_ROWS = 8
"""Rows of G up to which the sweep is faster than a product of matrices."""
NOTHING = np.zeros((0, 0))


class InMemory:
    """z of some arms, in chunks of arms, as columns."""

    def __init__(self, kernel: Kernel) -> None:
        self._arms = Arms(NOTHING, np.zeros(0))
        self._columns = Columns(kernel)
        self._chunks: list[slice] = []
        self._Z: list[Array] = []

    def copy(self, m: int) -> "InMemory":
        """The same with m coordinates, which goes on by itself."""
        made = copy(self)
        made._chunks = self._chunks.copy()
        made._Z = [Z[:m].copy() for Z in self._Z]
        return made

    def extend(self, arms: Arms) -> None:
        """To these arms, which begin with those of before."""
        before = len(self._arms.diag)
        n = len(arms.diag)
        width = WIDE if n - before > ONE_CHUNK else max(1, n - before)
        chunks = [slice(start, min(start + width, n)) for start in range(before, n, width)]
        reserved = max(SPARE, min(1024, RESERVED // (8 * max(1, n - before))))
        self._chunks += chunks
        self._Z += [np.empty((reserved, chunk.stop - chunk.start)) for chunk in chunks]
        self._arms = arms

    def embed(self, base: Frozen, mean: Array, variance: Array, since: int = 0) -> None:
        """Compute z, μ̃ and σ̃² anew, of all arms, or of those from one on that `extend` brought."""
        m = base.m
        rows, diag = self._arms
        W = np.ascontiguousarray(base.W)
        solve_L = solver(base.L.upper.T)
        solve_C = solver(base.factor.folded.C.upper.T)

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
                np.matmul(base.w, Z, out=mean[chunk])
                np.square(Z, out=K)
                r = diag[chunk] - np.add.reduce(K, axis=0)
                np.maximum(r, 0.0, out=r)
                solve_C(Z, K)
                np.square(K, out=K)
                np.add.reduce(K, axis=0, out=variance[chunk])
                r /= base.regularization
                variance[chunk] += r

        new = [i for i, chunk in enumerate(self._chunks) if chunk.start >= since]
        in_parallel(work, new)
        if len(self._chunks) > MANY_CHUNKS and len(diag) <= ONE_CHUNK:
            self._join(m)

    def sweep(
        self,
        base: Frozen,
        p: int,
        G: Array,
        surprise: Array,
        mean: Array,
        variance: Array,
        *,
        means_anew: bool,
    ) -> None:
        """Compute the coordinates of z from p on. With H = Gz (k, n) the means rise by surpriseᵀH,
        or are computed anew, and variances fall by the sums of H², to no less than 0."""
        m = base.m
        k = len(surprise)
        ahead = corner = new = NOTHING  # not read where W is as it was
        if m > p:
            new = np.ascontiguousarray(base.W[p:])
            ahead, corner = base.L.last_rows(p)
            corner = np.ascontiguousarray(corner)
        swept = k if k <= FEW_ROWS else 0

        def work(some: Sequence[int]) -> None:
            for i in some:
                chunk = self._chunks[i]
                Z = self._with_room(i, p, m)
                if m > p:
                    self._columns.into(Z[p:m], self._arms.rows[chunk], new)
                means = mean[chunk]
                spread = variance[chunk]
                step(Z, p, m, ahead, corner, G[:swept], surprise[:swept], means, spread)
                if not swept and k:
                    H = G @ Z[:m]
                    means += surprise @ H
                    spread -= np.add.reduce(np.square(H, out=H), axis=0)
                    np.maximum(spread, 0.0, out=spread)
                if means_anew:
                    np.matmul(base.w, Z[:m], out=means)

        in_parallel(work, range(len(self._chunks)))

    def parts(self, m: int) -> Iterator[tuple[slice, Array]]:
        """Positions and z (m, k) of all arms, some at a time."""
        for chunk, Z in zip(self._chunks, self._Z, strict=True):
            yield chunk, Z[:m]

    def _with_room(self, i: int, p: int, m: int) -> Array:
        """The coordinates of a chunk, of which p are kept, with room for m."""
        Z = self._Z[i]
        if len(Z) < m:
            grown = np.empty((m + m // 2 + SPARE, Z.shape[1]))
            grown[:p] = Z[:p]
            self._Z[i] = Z = grown
        return Z

    def _join(self, m: int) -> None:
        """All chunks of a small table become one."""
        n = len(self._arms.diag)
        joined = np.empty((max(SPARE, 2 * m), n))
        for chunk, Z in self.parts(m):
            joined[:m, chunk] = Z
        self._chunks = [slice(0, n)]
        self._Z = [joined]
