"""A pass over all arms that costs O(m) each, not O(m²): means, and upper bounds of variances.

With M = I − λV⁻¹ ⪰ 0 the variance is λσ̃²(x) = k(x, x) − zᵀMz. For any p columns Q

    zᵀMz ≥ ‖t‖²,   t = (QᵀMQ)^(−½) QᵀMz = Bᵀk_W(x),   B = L⁻ᵀMQ(QᵀMQ)^(−½),

the square of a projection in the inner product of M, and equal where Q spans R^m. Columns that span
the eigenvectors of V with the largest eigenvalues leave least: rows that are observed lie mostly in
these directions, and most arms too. Means are k_W(x)ᵀα, α = L⁻ᵀw. So an arm takes a kernel column
and p + 1 products of it, p fixed.

Kernels are those of `Kernel.rough`, which are off by δ at most. In sums of float32, u = 2⁻²⁴ and
|k| ≤ κ², t is off by ‖b‖₁(δ + (m + 2)uκ²) for a column b of B, and the mean, summed in float64, by
‖α‖₁(δ + 4mεκ²); that includes the solution of a triangular system, whose factor is off by mεL at
most (Higham 2002, Theorem 8.5).
"""

from typing import NamedTuple

import numpy as np

from manyarms.beliefs.base import Arms
from manyarms.beliefs.frozen import Frozen
from manyarms.kernels.base import HALF_ULP
from manyarms.search.work import in_parallel
from manyarms.sketch.linalg import EPS
from manyarms.typing import Array

DIRECTIONS = 32
"""Columns of Q. Of 5·10⁵ rows of 20 columns the bound leaves 0.3 % that may be best; with 64 it
leaves half as many, and the pass takes a fifth longer (m from 500 to 2,000)."""
ROUNDS = 4
"""Products with V that turn random columns towards its largest eigenvectors."""
FIRM = 0.1
"""Eigenvalues of QᵀMQ, which are at most 1, below which a direction says too little to be used."""
FINE = 0.2
"""Errors of means that a rough pass may have, in prior standard deviations: more would leave too
many arms that may be best."""
TRIED = 16
"""Rows of W whose kernel with all of them says how far off a rough one is."""
ROWS = 512
"""Arms to a chunk, and COLUMNS of W: kernels of them stay in a shared cache."""
COLUMNS = 512


class RoughScores(NamedTuple):
    """Of all arms, (n,) each."""

    mean: Array
    variance: Array  # an upper bound of σ̃²
    error: float  # of the means, at most


def directions(belief: Frozen) -> Array:
    """B (m, p)."""
    C = belief.factor.folded.C
    m = belief.m
    Q = np.random.default_rng(0).standard_normal((m, min(DIRECTIONS, m)))
    for _ in range(ROUNDS):
        Q, _ = np.linalg.qr(C.upper.T @ (C.upper @ Q))  # V = CCᵀ
    MQ = Q - belief.regularization * C.solve_transposed(C.solve(Q))
    values, E = np.linalg.eigh(Q.T @ MQ)
    firm = values > FIRM
    return belief.L.solve_transposed(MQ @ (E[:, firm] / np.sqrt(values[firm])))


def is_fine_enough(belief: Frozen) -> bool:
    """Whether the means of a rough pass are right within a small part of a prior standard
    deviation, as far as the rows of W tell: ‖α‖₁ is huge where L is nearly singular."""
    alpha = belief.L.solve_transposed(belief.w)
    _, error = belief.kernel.rough(belief.W[:TRIED])(belief.W)
    wrong = (error + 4 * belief.m * EPS * belief.kappa2) * float(np.abs(alpha).sum())
    return bool(wrong <= FINE * np.sqrt(belief.kappa2))


def rough_scores(arms: Arms, belief: Frozen) -> RoughScores:
    """Means and bounds of all arms."""
    m = belief.m
    n = len(arms.rows)
    W = belief.W
    B = directions(belief)
    alpha = belief.L.solve_transposed(belief.w)
    thin = B.astype(np.float32)
    mean = np.empty(n)
    variance = np.empty(n)
    kappa2 = max(belief.kappa2, float(arms.diag.max(initial=0.0)))
    chunks = [slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS)]
    errors = np.zeros(len(chunks))
    by_sums = (m + 2) * HALF_ULP * kappa2
    spread = np.abs(B).sum(axis=0)

    blocks = [slice(start, min(start + COLUMNS, m)) for start in range(0, m, COLUMNS)]
    kernels = [belief.kernel.rough(W[block]) for block in blocks]

    def work(i: int) -> None:
        chunk = chunks[i]
        rows = arms.rows[chunk].astype(np.float64, copy=False)
        means = np.zeros(len(rows))
        T = np.zeros((len(rows), B.shape[1]), dtype=np.float32)
        error = 0.0
        for block, kernel in zip(blocks, kernels, strict=True):
            K, off = kernel(rows)
            error = max(error, off)
            means += K @ alpha[block]
            T += K.astype(np.float32, copy=False) @ thin[block]
        known = np.maximum(np.abs(T) - spread * (error + by_sums), 0.0)
        mean[chunk] = means
        variance[chunk] = arms.diag[chunk] - np.square(known).sum(axis=1)
        errors[i] = error

    in_parallel(work, range(len(chunks)))
    np.maximum(variance, 0.0, out=variance)
    variance /= belief.regularization
    error = float(errors.max(initial=0.0)) + 4 * m * EPS * kappa2
    return RoughScores(mean, variance, error * float(np.abs(alpha).sum()))
