"""A pass over all arms that costs O(m) each, not O(m²): means, and upper bounds of variances.

With M = I − λV⁻¹ ⪰ 0 the variance is λσ̃²(x) = k(x, x) − zᵀMz. For any p columns Q

    zᵀMz ≥ ‖t‖²,   t = (QᵀMQ)^(−½) QᵀMz = Bᵀk_W(x),   B = L⁻ᵀMQ(QᵀMQ)^(−½),

the square of a projection in the inner product of M, and equal where Q spans R^m. Columns that span
the eigenvectors of V with the largest eigenvalues leave least: rows that are observed lie mostly in
these directions, and most arms too. Means are k_W(x)ᵀα, α = L⁻ᵀw. So an arm takes a kernel column
and p + 1 products of it, p fixed.

In sums of m terms t is off by ‖b‖₁(m + 3)εκ² for a column b of B, and the mean by 4mεκ²‖α‖₁; that
includes the solution of a triangular system, whose factor is off by mεL at most (Higham 2002,
Theorem 8.5).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from manyarms.engine.base import Arms
from manyarms.engine.frozen import Frozen
from manyarms.engine.linalg import EPS
from manyarms.search.sweep import Columns
from manyarms.search.work import in_parallel
from manyarms.typing import Array

DIRECTIONS = 32
"""Columns of Q. Of 5·10⁵ rows of 20 columns the bound leaves 0.3 % that may be best; with 64 it
leaves half as many, and the pass takes a fifth longer (m from 500 to 2,000)."""
ROUNDS = 3
"""Products with V that turn random columns towards its largest eigenvectors. Any columns give a
bound, so that float32 will do."""
FIRM = 0.1
"""Eigenvalues of QᵀMQ, which are at most 1, below which a direction says too little to be used."""
FINE = 0.2
"""Errors of means that a pass may have, in prior standard deviations: more would leave too many
arms that may be best."""
ENTRIES = 1 << 17
"""Kernel values computed at a time: they stay in cache."""
FEW = 1 << 22
"""Kernel values up to which one thread computes them: two would wait for each other."""


class Bounds(NamedTuple):
    """Of all arms, (n,) each."""

    mean: Array
    variance: Array  # not below σ̃²
    error: float  # of the means, at most


def directions(belief: Frozen, p: int = DIRECTIONS) -> Array:
    """B, (m, p) or less."""
    C = belief.factor.folded.C
    if belief.m <= p:
        Q = np.eye(belief.m)
    else:
        upper = C.upper.astype(np.float32)
        turned = np.random.default_rng(0).standard_normal((belief.m, p)).astype(np.float32)
        for _ in range(ROUNDS):
            turned, _ = np.linalg.qr(upper.T @ (upper @ turned))  # V = CCᵀ
        Q = turned.astype(np.float64)
    MQ = Q - belief.regularization * C.solve_transposed(C.solve(Q))
    values, E = np.linalg.eigh(Q.T @ MQ)
    firm = values > FIRM
    return belief.L.solve_transposed(MQ @ (E[:, firm] / np.sqrt(values[firm])))


def error_of_means(alpha: Array, kappa2: float) -> float:
    """What a mean may be off by: ‖α‖₁ is huge where L is nearly singular."""
    return 4 * len(alpha) * EPS * kappa2 * float(np.abs(alpha).sum())


def are_fine(belief: Frozen) -> bool:
    """Whether means are right within a small part of a prior standard deviation."""
    alpha = belief.L.solve_transposed(belief.w)
    return error_of_means(alpha, belief.kappa2) <= FINE * float(np.sqrt(belief.kappa2))


def bounds(arms: Arms, belief: Frozen) -> Bounds:
    """Means and bounds of all arms, whose `diag` is that of the belief's kernel."""
    m = belief.m
    n = len(arms.diag)
    rows, diag = arms
    B = directions(belief)
    alpha = belief.L.solve_transposed(belief.w)
    M = np.ascontiguousarray(np.vstack([B.T, alpha]))
    W = np.ascontiguousarray(belief.W)
    kappa2 = max(belief.kappa2, float(diag.max(initial=0.0)))
    spread = np.abs(B).sum(axis=0)[:, None] * ((m + 3) * EPS * kappa2)
    columns = Columns(belief.kernel)
    mean = np.empty(n)
    variance = np.empty(n)
    width = max(64, ENTRIES // max(1, m))
    chunks = [slice(start, min(start + width, n)) for start in range(0, n, width)]

    def work(some: Sequence[slice]) -> None:
        scratch = np.empty(m * min(width, n))
        for chunk in some:
            size = chunk.stop - chunk.start
            K = scratch[: m * size].reshape(m, size)
            columns.into(K, rows[chunk], W)
            T = M @ K
            mean[chunk] = T[-1]
            known = np.maximum(np.abs(T[:-1]) - spread, 0.0)
            np.square(known, out=known)
            variance[chunk] = diag[chunk] - np.add.reduce(known, axis=0)

    if n * m > FEW:
        in_parallel(work, chunks)
    else:
        work(chunks)
    np.maximum(variance, 0.0, out=variance)
    variance /= belief.regularization
    return Bounds(mean, variance, error_of_means(alpha, kappa2))
