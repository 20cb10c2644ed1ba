"""A pass over all arms that costs O(m) each, not O(m²): means, and upper bounds of variances.

With M = I − λV⁻¹ ⪰ 0 the variance is λσ̃²(x) = k(x, x) − zᵀMz. For any p columns Q

    zᵀMz ≥ ‖t‖²,   t = (QᵀMQ)^(−½) QᵀMz = Bᵀk_W(x),   B = L⁻ᵀMQ(QᵀMQ)^(−½),

the square of a projection in the inner product of M, and equal where Q spans R^m. Columns that span
the eigenvectors of V with the largest eigenvalues leave least: rows that are observed lie mostly in
these directions, and most arms too. Means are k_W(x)ᵀα, α = L⁻ᵀw. So an arm takes a kernel column
and p + 1 products of it, p fixed.

Kernels are those of `Kernel.rough`, which are off by δ at most. In sums of c terms, and of s such
sums, with u = 2⁻²⁴ in float32 and |k| ≤ κ², t is off by ‖b‖₁(δ + (c + s + 3)uκ²) for a column b of
B, rounded to float32 itself, and the mean, summed in float64, by
‖α‖₁(δ + 4mεκ²); that includes the solution of a triangular system, whose factor is off by mεL at
most (Higham 2002, Theorem 8.5).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manyarms.beliefs.base import Arms
from manyarms.beliefs.frozen import Frozen
from manyarms.kernels.base import HALF_ULP, Rough, RoughKernel
from manyarms.lapack import OneThread
from manyarms.search.work import in_parallel
from manyarms.sketch.linalg import EPS
from manyarms.typing import AnyArray, Array

DIRECTIONS = 32
"""Columns of Q. Of 5·10⁵ rows of 20 columns the bound leaves 0.3 % that may be best; with 64 it
leaves half as many, and the pass takes a fifth longer (m from 500 to 2,000)."""
FEWER = 16
"""Columns where W is small: an exact score costs little there."""
FINER = 256
"""Columns of Q where the few arms that are left are bounded again, in float64."""
ROUNDS = 3
"""Products with V that turn random columns towards its largest eigenvectors. Any columns give a
bound, so that float32 will do."""
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
IN_CACHE = 1 << 18
"""Kernels to a chunk where W has fewer rows."""
FEW = 1 << 25
"""Kernels, some 0.1 s of them, up to which one thread computes them: two would wait for each
other, and a service has other requests for the second core."""


class RoughScores(NamedTuple):
    """Of all arms, (n,) each."""

    mean: Array
    variance: Array  # an upper bound of σ̃²
    error: float  # of the means, at most


def directions(belief: Frozen, p: int = DIRECTIONS) -> Array:
    """B, (m, p) or less."""
    C = belief.factor.folded.C
    upper = C.upper.astype(np.float32)
    start = np.random.default_rng(0).standard_normal((belief.m, min(p, belief.m)))
    turned = start.astype(np.float32)
    for _ in range(ROUNDS):
        turned, _ = np.linalg.qr(upper.T @ (upper @ turned))  # V = CCᵀ
    Q = turned.astype(np.float64)
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


def finer_scores(arms: Arms, belief: Frozen) -> RoughScores:
    """The same of a few arms, with FINER directions, in float64."""
    W = belief.W

    def kernel(block: slice) -> RoughKernel:
        return lambda X: Rough(belief.kernel(X, W[block]), 0.0)

    return _scores(arms, belief, directions(belief, FINER), kernel, 0.5 * EPS)


def rough_scores(arms: Arms, belief: Frozen) -> RoughScores:
    """Means and bounds of all arms."""
    p = min(DIRECTIONS, max(FEWER, belief.m // FEWER))
    B = directions(belief, p).astype(np.float32)
    return _scores(arms, belief, B, lambda block: belief.kernel.rough(belief.W[block]), HALF_ULP)


def _scores(
    arms: Arms,
    belief: Frozen,
    B: AnyArray,
    kernel_of: Callable[[slice], RoughKernel],
    unit: float,
) -> RoughScores:
    """With some directions B (m, p), kernels of blocks of W, and products whose numbers are rounded
    by so much of them."""
    m = belief.m
    n = len(arms.rows)
    alpha = belief.L.solve_transposed(belief.w)
    mean = np.empty(n)
    variance = np.empty(n)
    kappa2 = max(belief.kappa2, float(arms.diag.max(initial=0.0)))
    width = max(ROWS, IN_CACHE // m)
    chunks = [slice(start, min(start + width, n)) for start in range(0, n, width)]
    errors = np.zeros(len(chunks))
    spread = np.abs(B).sum(axis=0)
    blocks = [slice(start, min(start + COLUMNS, m)) for start in range(0, m, COLUMNS)]
    kernels = [kernel_of(block) for block in blocks]
    by_sums = (min(m, COLUMNS) + len(blocks) + 3) * unit * kappa2

    def work(i: int) -> None:
        chunk = chunks[i]
        rows = arms.rows[chunk].astype(np.float64, copy=False)
        means = np.zeros(len(rows))
        T = np.zeros((len(rows), B.shape[1]), dtype=B.dtype)
        error = 0.0
        for block, kernel in zip(blocks, kernels, strict=True):
            K, off = kernel(rows)
            error = max(error, off)
            means += K @ alpha[block]
            T += K.astype(B.dtype, copy=False) @ B[block]
        known = np.maximum(np.abs(T) - spread * (error + by_sums), 0.0)
        mean[chunk] = means
        variance[chunk] = arms.diag[chunk] - np.square(known).sum(axis=1)
        errors[i] = error

    if n * m > FEW:
        in_parallel(work, range(len(chunks)))
    else:
        with OneThread():
            for i in range(len(chunks)):
                work(i)
    np.maximum(variance, 0.0, out=variance)
    variance /= belief.regularization
    error = float(errors.max(initial=0.0)) + 4 * m * EPS * kappa2
    return RoughScores(mean, variance, error * float(np.abs(alpha).sum()))
