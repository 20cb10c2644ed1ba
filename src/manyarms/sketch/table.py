"""A large table at once: its dictionary in near-linear time, and sums over its rows.

A weighted draw (S, 1/p) of some rows stands for them: the posterior given S, with weights n/p, has every variance within a
constant. In a random order of the rows, what was drawn from the first so many scores as many more, draws from them, and is
thinned by its own scores: arm i stays with probability p′/p, p′ = q̄σ̂² by the variance of now. Each row is scored once: O(u m²).

To merge and to thin is SQUEAK (Calandriello, Lazaric and Valko, AISTATS 2017), whose Theorem 1 asks for a q̄ of the order of
ours; samples that double are those of Musco and Musco (NeurIPS 2017) and of BLESS (Rudi et al., NeurIPS 2018). Variances given
half of the rows add up to at most 2d_eff on average, so that thinning starts from about 2q̄d_eff arms.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manyarms.kernels import Kernel
from manyarms.sketch.dictionary import inclusion_probability
from manyarms.sketch.embedding import Embedding, ridged_factor
from manyarms.sketch.linalg import EPS, chunks, solver, squares
from manyarms.sketch.observations import Observations
from manyarms.sketch.store import blas, in_parallel
from manyarms.typing import Array, Indices

FIRST = 512
"""Rows of the first part, which are all drawn."""
PARTS = 4
"""Sums are made in so many parts and added in order: the same on any number of cores."""


@dataclass(frozen=True)
class Draw:
    """Rows of a table, each with the probability p that it was drawn with."""

    at: Indices  # (m,) positions in the table
    probability: Array  # (m,)
    factor: Array  # (m, m) GGᵀ = K_SS + λ diag(p/n)

    @classmethod
    def of(cls, kernel: Kernel, table: Observations, at: Indices, probability: Array, regularization: float) -> "Draw":
        factor = ridged_factor(kernel, table.rows[at], regularization * probability / table.counts[at])
        return cls(at, probability, factor)

    def variance(self, kernel: Kernel, table: Observations, at: Indices, regularization: float) -> Array:
        """σ̂²(x) = (k(x, x) − ‖G⁻¹k_S(x)‖²)/λ of some rows; not below what rounding leaves."""
        variance, inducing = np.empty(len(at)), table.rows[self.at]
        solve = solver(self.factor)

        def work(some: slice) -> None:
            diag = table.diag[at[some]]
            E = solve(kernel(table.rows[at[some]], inducing).T)
            variance[some] = np.maximum(diag - squares(E), len(self.at) * EPS * diag)

        in_parallel(work, chunks(len(at), len(self.at)))
        return variance / regularization


class Drawn(NamedTuple):
    """A dictionary drawn from a table."""

    at: Indices  # positions, sorted
    oversampling: float  # q̄ that it was drawn with: lower than asked for where it would have been too large
    information: float  # Σ ln(1 + αnσ̂²), each variance given the parts before: a bound on log det(K/λ + I), by the chain rule


def draw_from_table(
    kernel: Kernel,
    table: Observations,
    regularization: float,
    oversampling: float,
    alpha: float,
    rng: np.random.Generator,
    largest: float = np.inf,
) -> Drawn:
    """A dictionary drawn with p = q̄σ̂² (each weight n standing for n pulls), q̄ lowered where more than `largest` arms would be
    expected; α is the accuracy of σ̂²."""
    order, end = rng.permutation(len(table.rows)), FIRST
    information = float(np.log1p(table.counts[order[:end]] * table.diag[order[:end]] / regularization * alpha).sum())
    with blas().limit(limits=1):
        drawn = Draw.of(kernel, table, order[:end], np.ones(len(order[:end])), regularization)
        while end < len(order):
            drawn, oversampling = _thinned(drawn, kernel, table, regularization, oversampling, rng, largest)
            part = order[end : 2 * end]
            variance = drawn.variance(kernel, table, part, regularization)
            information += float(np.log1p(alpha * table.counts[part] * variance).sum())
            probability = inclusion_probability(variance, table.counts[part], oversampling)
            kept = rng.random(len(part)) < probability
            at, p = np.concatenate([drawn.at, part[kept]]), np.concatenate([drawn.probability, probability[kept]])
            drawn = Draw.of(kernel, table, at, p, regularization)
            end *= 2
        drawn, oversampling = _thinned(drawn, kernel, table, regularization, oversampling, rng, largest)
        return Drawn(np.sort(drawn.at), oversampling, information)


def table_sums(embedding: Embedding, table: Observations) -> tuple[Array, Array, float]:
    """Σ n z zᵀ (m, m), Σ s z (m,) and Σ n r over the rows of a table, in one pass, O(u m²)."""
    m, n = len(embedding.L), len(table.rows)
    V, b, residual = np.zeros((PARTS, m, m)), np.zeros((PARTS, m)), np.zeros(PARTS)
    solve = solver(embedding.L)

    def work(part: int) -> None:
        first, end = part * n // PARTS, (part + 1) * n // PARTS
        for some in chunks(end - first, m):
            rows = slice(first + some.start, first + some.stop)
            Z = solve(embedding.kernel(table.rows[rows], embedding.inducing_rows).T)
            r = table.diag[rows] - squares(Z)
            embedding.check(table.rows[rows], table.diag[rows], r)
            b[part] += Z @ table.sums[rows]
            residual[part] += float(table.counts[rows] @ np.maximum(r, 0.0))
            Z = Z * np.sqrt(table.counts[rows])
            V[part] += Z @ Z.T

    in_parallel(work, range(PARTS))
    return V.sum(axis=0), b.sum(axis=0), float(residual.sum())


def _thinned(
    drawn: Draw,
    kernel: Kernel,
    table: Observations,
    regularization: float,
    oversampling: float,
    rng: np.random.Generator,
    largest: float,
) -> tuple[Draw, float]:
    """Fewer rows, by their own variances, never all gone, and the q̄ at which about `largest` or fewer are left."""
    counts, variance = table.counts[drawn.at], drawn.variance(kernel, table, drawn.at, regularization)
    if not variance.any():  # k(x, x) = 0 at all of them: one stands for the others
        return Draw.of(kernel, table, drawn.at[:1], drawn.probability[:1], regularization), oversampling
    oversampling = min(oversampling, largest / float((counts * variance / drawn.probability).sum()))
    wanted = np.minimum(drawn.probability, inclusion_probability(variance, counts, oversampling))
    kept = rng.random(len(wanted)) * drawn.probability < wanted
    kept[int(np.argmax(wanted / drawn.probability))] = True
    return Draw.of(kernel, table, drawn.at[kept], wanted[kept], regularization), oversampling
