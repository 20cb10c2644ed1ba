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
SPARE = 16
"""Coordinates that there is room for beside those of now, and a quarter of these: a step in so many
copies all of z."""
MANY_CHUNKS = 32
"""Chunks above which those of a table that grew are joined."""
FEW_ROWS = 8
"""Rows of G up to which the sweep is faster than a product of matrices."""
NOTHING = np.zeros((0, 0))


def capacity(m: int, most: float = np.inf) -> int:
    """Coordinates to have room for where m are needed: `most`, unless m is more."""
    return int(max(m, min(m + m // 4 + SPARE, most)))


class InMemory:
    """z of some arms, in chunks of arms, as columns.

    `room` is how many bytes they may take, if that is not too little for the coordinates there are.
    """

    def __init__(self, kernel: Kernel, room: float = np.inf) -> None:
        self._arms = Arms(NOTHING, np.zeros(0))
        self._room = room
        self._capacity = 0  # coordinates of each chunk
        self._columns = Columns(kernel)
        self._chunks: list[slice] = []
        self._Z: list[Array] = []

    def copy(self, m: int) -> "InMemory":
        """The same with m coordinates, which goes on by itself."""
        made = copy(self)
        made._chunks = self._chunks.copy()
        made._Z = [Z[:m].copy() for Z in self._Z]
        made._capacity = m
        return made

    @property
    def bytes(self) -> float:
        """Bytes that z takes."""
        return 8.0 * self._capacity * len(self._arms.diag)

    def extend(self, arms: Arms) -> None:
        """To these arms, which begin with those of before."""
        before = len(self._arms.diag)
        n = len(arms.diag)
        width = WIDE if n - before > ONE_CHUNK else max(1, n - before)
        chunks = [slice(start, min(start + width, n)) for start in range(before, n, width)]
        self._chunks += chunks
        self._Z += [np.empty((self._capacity, chunk.stop - chunk.start)) for chunk in chunks]
        self._arms = arms

    def embed(self, base: Frozen, mean: Array, variance: Array, since: int = 0) -> None:
        """Compute z, μ̃ and σ̃² anew, of all arms, or of those from one on that `extend` brought."""
        m = base.m
        self._reserve(0, m)
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
                Z = self._Z[i][:m]
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
        self._reserve(p, m)
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
                Z = self._Z[i]
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

    def _reserve(self, p: int, m: int) -> None:
        """Have room for m coordinates of all chunks, of which p are kept."""
        if m <= self._capacity:
            return
        size = capacity(m, self._room // (8 * max(1, len(self._arms.diag))))
        for i, Z in enumerate(self._Z):
            self._Z[i] = np.empty((size, Z.shape[1]))
            self._Z[i][:p] = Z[:p]
        self._capacity = size

    def _join(self, m: int) -> None:
        """All chunks of a small table become one."""
        n = len(self._arms.diag)
        joined = np.empty((self._capacity, n))
        for chunk, Z in self.parts(m):
            joined[:m, chunk] = Z
        self._chunks = [slice(0, n)]
        self._Z = [joined]
