"""What a sketch leaves out of the rows it has seen: e, and a better bound on η.

A row that does not enter W is seen through its projection ψ = Pφ(x); ρ = (I − P)φ(x) is left out. With R the rows √ω ρ,

    e = Tr RRᵀ/λ,    η = λ_max(RRᵀ)/λ ≤ Σ_b λ_max(R_bR_bᵀ)/λ ≤ e

over blocks b of rows. For s before t, W_s ⊆ W_t, so that ⟨ρ_s, ρ_t⟩ = k(s, t) − z_s[:m_t]ᵀz_t[:m_t].
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from manyarms.kernels import Kernel
from manyarms.typing import Array, Indices

BLOCK = 256
"""Rows to a block: its Gram matrix takes 512 KiB, and its largest eigenvalue some milliseconds in 256 observations."""
FIRST = 16
"""Rows at which the eigenvalue of a block that is being filled is computed first; then at each doubling."""


@dataclass(frozen=True)
class LeftOut:
    """A value. Only the rows of the last block are kept."""

    total: float = 0.0  # e, in which rounding counts
    settled: float = 0.0  # the bound on η from blocks that are full
    block: float = 0.0  # the same from the block that is being filled, up to its last doubling
    since: float = 0.0  # e of the rows since then
    rows: Array | None = None  # (b, d)
    sizes: Indices | None = None  # (b,) |W| of each
    weights: Array | None = None  # (b,)

    @property
    def eta(self) -> float:
        """A bound on η."""
        return min(self.total, self.settled + self.block + self.since)

    def with_rows(
        self, rows: Array, sizes: Indices, weights: Array, left_out: Array, rounding: Array, gram: "Gram"
    ) -> "LeftOut":
        """After these rows (k, d), which leave out so much (k,) of e, `rounding` (k,) of it by rounding."""
        made = replace(self, total=self.total + float(left_out.sum() + rounding.sum()))
        while len(rows):
            n = 0 if made.rows is None else len(made.rows)
            stop = next(size for size in (FIRST << i for i in range(32)) if size > n)
            some = slice(0, stop - n)
            made = replace(
                made,
                rows=_joined(made.rows, rows[some]),
                sizes=_joined(made.sizes, sizes[some]),
                weights=_joined(made.weights, weights[some]),
                since=made.since + float(left_out[some].sum() + rounding[some].sum()),
            )
            if made.rows is not None and len(made.rows) == stop:
                made = made._settled(gram, float(rounding[some].sum()))
            rows, sizes, weights = (part[stop - n :] for part in (rows, sizes, weights))
            left_out, rounding = left_out[stop - n :], rounding[stop - n :]
        return made

    def _settled(self, gram: "Gram", rounding: float) -> "LeftOut":
        """The eigenvalue of the block so far takes the place of its trace, where it is less."""
        largest = gram(self.rows, self.sizes, self.weights) + rounding
        block = min(largest, self.block + self.since)
        if len(self.rows) < BLOCK:
            return replace(self, block=block, since=0.0)
        return LeftOut(self.total, self.settled + block)


Gram = Callable[..., float]
"""Of rows, sizes and weights: λ_max(RRᵀ)/λ."""


def largest_eigenvalue(K: Array, Z: Array, sizes: Indices, roots: Array) -> float:
    """λ_max of the Gram matrix of √ω ρ, given K = k(s, t) (b, b), embeddings Z (b, m), sizes and √ω, each (b,)."""
    G = K.copy()
    for size in np.unique(sizes):
        # Rows come in the order in which they were seen, so that sizes never fall: s ≤ t for all s up to the last t.
        at = np.flatnonzero(sizes == size)
        until = at[-1] + 1
        G[:until, at] -= Z[:until, :size] @ Z[at, :size].T
    G = np.triu(G) + np.triu(G, 1).T
    G *= np.outer(roots, roots)
    last = len(G) - 1
    return max(0.0, float(eigh(G, eigvals_only=True, subset_by_index=[last, last])[0]))


def _joined(before: Array | None, more: Array) -> Array:
    return more if before is None else np.concatenate([before, more])
