"""Many arms at once: passes over a table in chunks, on all cores, that leave three numbers an arm.

While there is room the embeddings Z (m, n) are kept, so that inducing arms that are appended cost their own kernel columns and
one product with Z instead of all columns and an n×m×m product.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History
from manyarms.sketch.linalg import EPS, cholesky, lower_product, solve_lower, solve_transposed, solver, squares
from manyarms.sketch.posterior import Posterior
from manyarms.stats import Stats
from manyarms.typing import Array, Indices

T = TypeVar("T")

CHUNK = 50_000
"""Arms to a chunk of Z, at most."""
ENTRIES = 1 << 19
"""Entries of a matrix computed at a time: what stays in cache."""


@dataclass(frozen=True)
class Pass:
    """μ̃, q and r/λ of some arms, each (n,), at the time of a pass. q and r may be larger than true, never smaller."""

    posterior: Posterior
    history: History
    mean: Array
    quad: Array
    residual: Array

    def take(self, positions: Indices) -> "Pass":
        """Of fewer arms."""
        some = self.mean[positions], self.quad[positions], self.residual[positions]
        return Pass(self.posterior, self.history, *some)


class Gain(NamedTuple):
    """V gained YᵀY, Y (·, m), on the coordinates of a pass since then."""

    before: Pass
    Y: Array


class Store:
    """The rows of some arms and, after a pass that had room for them, their embeddings, (capacity, chunk) each."""

    def __init__(self, rows: Array, diag: Array, stats: Stats) -> None:
        self.rows, self._diag, self.stats = rows, diag, stats
        n = len(rows)
        n_chunks = -(-n // CHUNK)
        n_chunks += n_chunks > 1 and n_chunks % 2  # two cores
        ends = np.linspace(0, n, n_chunks + 1).astype(int).tolist()
        self._chunks = [slice(start, end) for start, end in pairwise(ends)]
        self._Z: list[Array] = []
        self._bytes = 0
        self._holds: Embedding | None = None  # whose coordinates Z has; None while it is written

    def embed(self, posterior: Posterior, arms: Indices) -> tuple[Array, Array]:
        """z (k, m) and r/λ (k,) of some arms."""
        self.stats.count("arms rescored", len(arms))
        Z, r = posterior.embedding(self.rows[arms], self._diag[arms])
        return Z, r / posterior.regularization

    def variance(self, posterior: Posterior, arms: Indices) -> Array:
        """σ̃² of some arms under any posterior."""
        self.stats.count("arms rescored", len(arms))
        return posterior.moments(self.rows[arms], self._diag[arms])[1]

    @property
    def bytes(self) -> int:
        """What Z takes."""
        return self._bytes

    def part(self, positions: Indices, room: float) -> "Store":
        """The same for fewer arms; embeddings that are held here come along if there is room."""
        part = Store(self.rows[positions], self._diag[positions], self.stats)
        if self._holds and part._reserve(len(self._holds.L), room):
            m = len(self._holds.L)
            at = np.searchsorted(positions, [chunk.start for chunk in self._chunks] + [len(self.rows)])

            def work(task: tuple[int, slice]) -> None:
                i, coordinates = task
                chunk = part._chunks[i]
                for mine, low, high, Z in zip(self._chunks, at[:-1], at[1:], self._Z, strict=True):
                    some = slice(max(low, chunk.start), min(high, chunk.stop))
                    if some.start < some.stop:
                        into = slice(some.start - chunk.start, some.stop - chunk.start)
                        part._Z[i][coordinates, into] = Z[coordinates].take(positions[some] - mine.start, axis=1, mode="clip")

            in_parallel(work, [(i, some) for i in range(len(part._chunks)) for some in _pieces(slice(0, m), -(-m // 4))])
            part._holds = self._holds
        return part

    def bring(self, posterior: Posterior, history: History, gain: Gain | None, room: float) -> Pass:
        """A pass: what all these arms are under this posterior, updated from an earlier pass where the gain is of low rank.

        With R = (I + YV⁻¹Yᵀ)^{−½} Y V⁻¹ the gain lowers q by ‖Rz‖²; coordinates appended since then add ‖(C′⁻¹z′)_new‖².
        """
        embedding, lam, m = posterior.embedding, posterior.regularization, len(posterior.w)
        held, self._holds = self._holds, None
        kept = self._reserve(m, room)
        p = len(held.L) if kept and held and embedding.extends(held) else 0  # coordinates that are here already
        j, L, fresh = m - p, embedding.L, embedding.inducing_rows[p:]
        if p and gain and gain.before.posterior.embedding is held and 2 * (j + len(gain.Y)) < m:
            raising = solve_transposed(posterior.C, np.eye(m, j, k=-p, order="F")).T  # the last j rows of C⁻¹
            lowering = np.hstack([_lowering(gain), np.zeros((len(gain.Y), j))])
            before, slack = gain.before, 1 + EPS * m * float(np.diag(posterior.C).max() / np.sqrt(lam))
        else:
            raising, lowering = solve_lower(posterior.C, np.eye(m, order="F")), np.zeros((0, m))
            before, slack = None, 1.0
        M = np.vstack([raising, lowering, posterior.w[None]])
        ahead, behind, n_raising = np.vstack([L[p:, :p], M[:, :p]]), M[:, p:], len(raising)
        solve = solver(L[p:, p:])
        mean, quad, residual = np.empty((3, len(self.rows)))

        def work(task: tuple[int, slice]) -> None:
            i, some = task
            inside = slice(some.start - self._chunks[i].start, some.stop - self._chunks[i].start)
            r = before.residual[some] if before else self._diag[some] / lam
            if p:
                Z = self._Z[i][:p, inside]
                B = ahead @ Z
                if not before:
                    r = r - squares(Z) / lam
            else:
                B = np.zeros((len(ahead), 1))
            if j:
                K = embedding.kernel(self.rows[some], fresh)
                zeta = solve(K.T - B[:j] if p else K.T)
                if kept:
                    self._Z[i][p:m, inside] = zeta
                B = B[j:] + behind @ zeta if p else lower_product(M, zeta)
                r = r - squares(zeta) / lam
            embedding.check(self.rows[some], self._diag[some], r * lam)
            mean[some], residual[some] = B[-1], r
            quad[some] = squares(B[:n_raising])
            if before:
                quad[some] += np.maximum(slack * before.quad[some] - squares(B[n_raising:-1]), 0.0)

        width = max(512, min(ENTRIES // len(ahead), -(-len(self.rows) // 2)))  # two cores
        tasks = [(i, part) for i, chunk in enumerate(self._chunks) for part in _pieces(chunk, width)]
        with self.stats.timed("updates" if before else "refreshes"):
            in_parallel(work, tasks)
        self.stats.count("arms in passes", len(self.rows))
        self._holds = embedding if kept else None
        np.maximum(residual, 0.0, out=residual)
        return Pass(posterior, history, mean, quad, residual)

    def _reserve(self, m: int, room: float) -> bool:
        """Space for m coordinates; False, and nothing kept, where that exceeds the room."""
        self._bytes = 8 * m * len(self.rows)
        if self._bytes > room:
            self._Z, self._bytes = [], 0
        elif not self._Z or len(self._Z[-1]) < m:
            # Rows not written yet take no memory: they are reserved amply, so that Z is seldom copied, a chunk at a time.
            self._Z = self._Z or [np.empty((0, chunk.stop - chunk.start)) for chunk in self._chunks]
            for i, Z in enumerate(self._Z):
                self._Z[i] = np.empty((max(64, 4 * m), Z.shape[1]))
                self._Z[i][: len(Z)] = Z
        return bool(self._Z)


def _lowering(gain: Gain) -> Array:
    """R of `Store.bring`."""
    C = gain.before.posterior.C
    B = solve_lower(C, np.array(gain.Y.T, order="F"))
    return solve_lower(cholesky(np.eye(len(gain.Y)) + B.T @ B), np.array(solve_transposed(C, B).T, order="F"))


def _pieces(chunk: slice, width: int) -> list[slice]:
    return [slice(start, min(start + width, chunk.stop)) for start in range(chunk.start, chunk.stop, width)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="manyarms")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


@cache
def blas() -> ThreadpoolController:
    """NumPy and SciPy bring a BLAS each; their threads must not fight over the cores."""
    return ThreadpoolController()


def in_parallel(work: Callable[[T], None], tasks: Sequence[T]) -> None:
    """Work on all tasks, on all cores, with one BLAS thread each."""
    with blas().limit(limits=1):
        for _ in map(work, tasks) if len(tasks) == 1 else _pool().map(work, tasks):
            pass
