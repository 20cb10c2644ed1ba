"""What a sketch leaves out of the rows it has seen: e, and a better bound on η.

A row that does not enter W is seen through its projection ψ = Pφ(x); ρ = (I − P)φ(x) is left out.
With R the rows √ω ρ,

    e = Tr RRᵀ/λ,    η = λ_max(RRᵀ)/λ ≤ Σ_b λ_max(R_bR_bᵀ)/λ ≤ e

over blocks b of rows. For s before t, W_s ⊆ W_t, so that ⟨ρ_s, ρ_t⟩ = k(s, t) −
z_s[:m_t]ᵀz_t[:m_t].
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from manyarms.engine.embedding import Inducing
from manyarms.engine.growing import Stack
from manyarms.lapack import linalg
from manyarms.typing import Array, Indices

BLOCK = 256
"""Rows to a block: its Gram matrix takes 512 KiB, and its largest eigenvalue some milliseconds in
256 observations."""
FIRST = 8
"""Rows at which the eigenvalue of a block that is being filled is computed first; then at each
doubling."""

LargestEigenvalue = Callable[[Array, Indices, Array], float]
"""Of rows, sizes and weights: λ_max(RRᵀ)/λ."""


@dataclass(eq=False)
class LeftOut:
    """A value. Only the rows of the last block are kept."""

    kept: Stack  # (b, d + 2): rows of the block, each with |W| of when it was seen and its weight
    total: float = 0.0  # e, in which rounding counts
    settled: float = 0.0  # the bound on η from blocks that are full
    block: float = 0.0  # the same from the block that is being filled, as of its last doubling
    since: float = 0.0  # e of the rows since then
    rounding: float = 0.0  # of the block

    @classmethod
    def nothing(cls, n_features: int) -> "LeftOut":
        """No row was left out."""
        return cls(Stack(np.zeros((0, n_features + 2))))

    def bound(self) -> float:
        """A bound on η."""
        return min(self.total, self.settled + self.block + self.since)

    def with_rows(
        self,
        rows: Array,
        sizes: Indices | int,
        weights: Array | float,
        left_out: float,
        rounding: float,
        largest: LargestEigenvalue,
    ) -> "LeftOut":
        """After these rows (k, d), which leave out so much of e, and count for so much more by
        rounding."""
        kept = self.kept.grown(len(rows))
        more = kept.items[self.kept.n :]
        more[:, :-2] = rows
        more[:, -2] = sizes
        more[:, -1] = weights
        e = left_out + rounding
        made = LeftOut(
            kept,
            self.total + e,
            self.settled,
            self.block,
            self.since + e,
            self.rounding + rounding,
        )
        doubling = FIRST
        while doubling <= self.kept.n:
            doubling *= 2
        return made._settled(largest) if made.kept.n >= doubling else made

    def with_block(self, left_out: float, largest: float) -> "LeftOut":
        """After rows that are a block of their own: they leave out so much of e, and count for so
        much in the bound."""
        settled = self.settled + min(left_out, largest)
        return replace(self, total=self.total + left_out, settled=settled)

    def faded(self, gamma: float) -> "LeftOut":
        """If all rows weighed γ times as much: e and eigenvalues are linear in the weights."""
        kept = self.kept.items * np.append(np.ones(self.kept.items.shape[1] - 1), gamma)
        return LeftOut(
            Stack(kept),
            gamma * self.total,
            gamma * self.settled,
            gamma * self.block,
            gamma * self.since,
            gamma * self.rounding,
        )

    def _settled(self, largest: LargestEigenvalue) -> "LeftOut":
        """The eigenvalue of the block so far takes the place of its trace, where it is less."""
        kept = self.kept.items
        found = largest(kept[:, :-2], kept[:, -2].astype(np.intp), kept[:, -1]) + self.rounding
        block = min(found, self.block + self.since)
        if self.kept.n < BLOCK:
            return LeftOut(self.kept, self.total, self.settled, block, 0.0, self.rounding)
        empty = LeftOut.nothing(kept.shape[1] - 2).kept
        return LeftOut(empty, self.total, self.settled + block)


def largest_left_out(
    inducing: Inducing, regularization: float, rows: Array, sizes: Indices, weights: Array
) -> float:
    """λ_max(RRᵀ)/λ of rows left out."""
    kernel = inducing.kernel
    Z = inducing.L.solve(kernel(rows, inducing.rows).T).T
    largest = largest_eigenvalue(kernel(rows, rows), Z, sizes, np.sqrt(weights))
    return largest / regularization


def largest_eigenvalue(K: Array, Z: Array, sizes: Indices, roots: Array) -> float:
    """λ_max of the Gram matrix of √ω ρ, given K = k(s, t) (b, b), embeddings Z (b, m), sizes and
    √ω, each (b,)."""
    # Rows come in the order in which they were seen, so that sizes never fall: above the diagonal,
    # m_t is that of the column.
    seen = np.where(np.arange(Z.shape[1]) < sizes[:, None], Z, 0.0)
    return of_upper((K - Z @ seen.T) * np.outer(roots, roots))


def of_upper(G: Array) -> float:
    """λ_max of a Gram matrix, of which the upper triangle is read."""
    # All eigenvalues, by iterations that converge. LAPACK finds a single one by bisection, a fifth
    # faster, and gives up where others are equal to it but for rounding.
    found = linalg.eigh(G, lower=False, eigvals_only=True)
    return max(0.0, float(found[-1]))
