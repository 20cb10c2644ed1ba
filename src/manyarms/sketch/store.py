"""All arms at once: passes over the table in chunks, on all cores, that leave three numbers an arm.

While they fit the memory given, the embeddings Z (m, A) are kept, so that inducing arms that are appended cost a pass over Z
instead of an A×m×m product. Beyond it every pass computes each chunk's embeddings anew.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from manyarms.errors import MemoryBudgetError
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.linalg import cholesky, solve_lower, solve_transposed
from manyarms.sketch.posterior import Posterior
from manyarms.stats import Stats
from manyarms.typing import Array, Indices

CHUNK = 8192
"""Arms to a chunk."""
BLOCK = 32
"""Rows of Z to a block."""
BYTES_AN_ARM = 8 * 10 + 4
"""k(x, x), the numbers of two passes (one may start from the other), their bounds and a sweep's, in float64; a position."""


def embedding_bytes(n_arms: int, m: int) -> int:
    """Bytes of Z for m inducing arms."""
    return 8 * n_arms * BLOCK * -(-m // BLOCK)


@dataclass(frozen=True)
class Moments:
    """μ̃, q and r/λ of every arm at the time of a pass, each (A,). q may be larger than true, never smaller."""

    mean: Array
    quad: Array
    residual: Array

    @classmethod
    def empty(cls, n: int) -> "Moments":
        """Room for n arms."""
        return cls(np.empty(n), np.empty(n), np.empty(n))


class Store:
    """The arms, and their embeddings on the inducing arms of the last pass, in blocks of rows, so that they can grow."""

    def __init__(self, arms: Array, diag: Array, memory: float, stats: Stats) -> None:
        self._arms, self._diag, self.stats = arms, diag, stats
        self._memory = memory - BYTES_AN_ARM * len(arms)  # for Z
        if self._memory < 0:
            raise MemoryBudgetError(
                f"{len(arms)} arms need {BYTES_AN_ARM * len(arms):.3g} bytes beside their features, "
                f"memory={memory:.3g} allows less: raise it, or use fewer arms"
            )
        self._blocks: list[Array] = []  # Z, (BLOCK, A) each
        self._holds: Embedding | None = None  # whose rows the blocks hold; None while they are written

    def embed(self, posterior: Posterior, arms: Indices) -> tuple[Array, Array]:
        """z (k, m) and r/λ (k,) of some arms."""
        self.stats.count("arms rescored", len(arms))
        Z, r = posterior.embedding(self._arms[arms], self._diag[arms])
        return Z, r / posterior.regularization

    def rows(self, arms: Indices) -> Array:
        """The features of some arms."""
        return self._arms[arms]

    def variance(self, posterior: Posterior, arms: Indices) -> Array:
        """σ̃² of some arms under any posterior."""
        self.stats.count("arms rescored", len(arms))
        return posterior.moments(self._arms[arms], self._diag[arms])[1]

    def moments(self, posterior: Posterior, arms: Indices) -> Moments:
        """Exact moments of some arms."""
        found = Moments.empty(len(arms))

        def work(chunk: slice) -> None:
            Z, found.residual[chunk] = self.embed(posterior, arms[chunk])
            found.mean[chunk] = Z @ posterior.w
            B = solve_lower(posterior.C, Z.T)
            found.quad[chunk] = np.einsum("ij,ij->j", B, B)

        _in_chunks(work, len(arms))
        return found

    def refresh(self, posterior: Posterior) -> Moments:
        """Exact moments of every arm."""
        embedding, lam, m = posterior.embedding, posterior.regularization, len(posterior.w)
        held = self._holds is embedding
        self._holds = embedding if held else None
        kept = self._reserve(m)
        found = Moments.empty(len(self._arms))
        inverse = solve_lower(posterior.C, np.eye(m, order="F"))

        def work(chunk: slice) -> None:
            if held:
                Z = self._rows(m, chunk)
                r = self._diag[chunk] - np.einsum("ij,ij->j", Z, Z)
            else:
                rows, r = embedding(self._arms[chunk], self._diag[chunk])
                Z = rows.T
                if kept:
                    self._write(0, chunk, Z)
            B = inverse @ Z
            found.mean[chunk], found.residual[chunk] = posterior.w @ Z, r / lam
            found.quad[chunk] = np.einsum("ij,ij->j", B, B)

        with self.stats.timed("refreshes" if held else "rebuilds"):
            _in_chunks(work, len(self._arms))
        self._holds = embedding if kept else None
        return found

    def append(self, posterior: Posterior, old: Posterior, Y: Array, before: Moments) -> Moments:
        """Moments after inducing arms were appended to those of `old`, and V gained YᵀY on its coordinates, Y (·, m).

        With R = (I + YV⁻¹Yᵀ)^{−½} Y V⁻¹ the gain lowers q by ‖Rz‖². With C′ = [[C, 0], [·, ·]] the factor on the grown
        dictionary, the new coordinates then add ‖(C′⁻¹z′)_new‖².
        """
        if self._holds is not old.embedding or not self._reserve(len(posterior.w)):
            return self.refresh(posterior)
        embedding, lam = posterior.embedding, posterior.regularization
        m, total = len(old.w), len(posterior.w)
        j, L, fresh = total - m, embedding.L, embedding.inducing_rows[m:]
        last = solve_transposed(posterior.C, np.eye(total, j, k=-m, order="F")).T  # the last j rows of C′⁻¹
        B = solve_lower(old.C, np.array(Y.T, order="F"))
        R = solve_lower(cholesky(np.eye(len(Y)) + B.T @ B), np.array(solve_transposed(old.C, B).T, order="F"))
        ahead = np.vstack([L[m:, :m], last[:, :m], posterior.w[None, :m], R])
        found = Moments.empty(len(self._arms))

        def work(chunk: slice) -> None:
            T = self._times(ahead, chunk)
            K = embedding.kernel(self._arms[chunk], fresh)
            zeta = solve_lower(L[m:, m:], np.array(K.T - T[:j], order="F"))
            self._write(m, chunk, zeta)
            B = T[j : 2 * j] + last[:, m:] @ zeta
            found.mean[chunk] = T[2 * j] + posterior.w[m:] @ zeta
            lowered = before.quad[chunk] - np.einsum("ij,ij->j", T[2 * j + 1 :], T[2 * j + 1 :])
            found.quad[chunk] = np.maximum(lowered, 0.0) + np.einsum("ij,ij->j", B, B)
            found.residual[chunk] = before.residual[chunk] - np.einsum("ij,ij->j", zeta, zeta) / lam

        with self.stats.timed("appends"):
            _in_chunks(work, len(self._arms), 8 * CHUNK)
        self._holds = embedding
        return found

    def _reserve(self, m: int) -> bool:
        """Room for m rows of Z; False, and nothing kept, where that exceeds the memory."""
        if embedding_bytes(len(self._arms), m) > self._memory:
            self._blocks, self._holds = [], None
            return False
        while len(self._blocks) * BLOCK < m:
            self._blocks.append(np.empty((BLOCK, len(self._arms))))
        return True

    def _write(self, start: int, chunk: slice, rows: Array) -> None:
        """Rows of Z from `start` on."""
        for i, row in enumerate(rows, start):
            self._blocks[i // BLOCK][i % BLOCK, chunk] = row

    def _rows(self, m: int, chunk: slice) -> Array:
        """The first m rows of Z, (m, chunk)."""
        return np.concatenate([block[:, chunk] for block in self._blocks[: -(-m // BLOCK)]])[:m]

    def _times(self, M: Array, chunk: slice) -> Array:
        """M Z for M (·, m), (·, chunk)."""
        parts = (M[:, i : i + BLOCK] for i in range(0, M.shape[1], BLOCK))
        products = [part @ block[: part.shape[1], chunk] for part, block in zip(parts, self._blocks, strict=False)]
        total: Array = products[0]
        for product in products[1:]:
            total += product
        return total


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="manyarms")


@cache
def blas() -> ThreadpoolController:
    """NumPy and SciPy bring a BLAS each; their threads must not fight over the cores."""
    return ThreadpoolController()


def _in_chunks(work: Callable[[slice], None], n: int, size: int = 0) -> None:
    size = size or CHUNK
    chunks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    with blas().limit(limits=1):
        for _ in map(work, chunks) if len(chunks) == 1 else _pool().map(work, chunks):
            pass
