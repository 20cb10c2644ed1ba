"""Many results at once, in blocks of products: what is decided is the same as one by one."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from manyarms.beliefs.base import Batch, Change, Record, Step
from manyarms.beliefs.inducing import NEGATIVE, Inducing, not_positive
from manyarms.beliefs.leftout import largest_eigenvalue
from manyarms.errors import NumericalError
from manyarms.progress import Meter
from manyarms.sketch.factor import WAITING
from manyarms.sketch.linalg import TINY, cholesky, solve_lower, solve_transposed
from manyarms.typing import Array, Indices, Mask

if TYPE_CHECKING:
    from manyarms.beliefs.frozen import Frozen

BLOCK = 128
"""Rows absorbed at a time: one update of the factor of V, and decisions on a matrix that stays in cache."""
SMALLEST = 1e-10
"""A row enters W only where r exceeds this part of k(x, x): L is factored in the order of arrival, without pivoting."""


def observed_many(belief: "Frozen", batch: Batch, record: Record | None) -> Step:
    """After several observations, in blocks: what is decided is the same as one by one."""
    forced = None
    if record is not None:
        forced = np.zeros(len(batch), dtype=bool)
        forced[record.entered] = True
    entered = np.zeros(len(batch), dtype=bool)
    sizes = np.zeros(len(batch), dtype=np.intp)
    with Meter("results", len(batch)) as progress:
        for start in range(0, len(batch), BLOCK):
            some = slice(start, start + BLOCK)
            told = None if forced is None else forced[some]
            n = batch.n_observations if start == 0 else 0
            part = batch.part(some)
            belief, entered[some], sizes[some], change = _absorbed(belief, part, n, told)
            progress.at(start + len(part))
    if not np.isfinite(belief.w).all():
        raise not_finite()
    decided = Record(np.flatnonzero(entered), sizes)
    return Step(belief, decided, change if len(batch) <= BLOCK else None)


def _absorbed(
    belief: "Frozen", block: Batch, n_observations: int, forced: Mask | None
) -> tuple["Frozen", Mask, Indices, Change | None]:
    """After a block of rows: the belief, which rows entered, |W| of each, and what it does to scores."""
    lam = belief.regularization
    roots = np.sqrt(block.weights)
    kappa2 = max(belief.kappa2, float(block.diag.max()))
    Z, r, in_W = belief.inducing.features(block.rows, block.diag)
    rounding = belief.inducing.rounding(Z.T, kappa2)
    rounding[in_W] = 0.0
    half = belief.factor.half(Z.T).scaled(roots)
    smallest = np.maximum(SMALLEST * block.diag, 100 * rounding)
    entered, zeta, outside = _decided(belief, block, Z, r, half.gram, smallest, forced)
    sizes = belief.m + np.cumsum(entered)

    inducing = belief.inducing
    factor = belief.factor
    for number, i in enumerate(np.flatnonzero(entered)):
        z = np.concatenate([Z[i], zeta[: number + 1, i]])
        inducing = inducing.appended(block.rows[i], int(block.keys[i]), z)
        factor = factor.grown()
    w = np.concatenate([belief.w, np.zeros(len(zeta))])

    # What the others leave out counts in e, with the rounding of r. Rows that are in W leave out nothing.
    out = ~(entered | in_W)
    share = block.weights[out] / lam
    left_out = belief.left_out.with_rows(
        block.rows[out],
        sizes[out],
        block.weights[out],
        share * outside[out],
        share * 4 * rounding[out],
        partial(largest_left_out, inducing, lam),
    )

    # V gains Σ ω ψψᵀ, ψ with zeros in the coordinates that came after it.
    Y = roots[:, None] * np.hstack([Z, zeta.T])
    half = half.extended(roots * zeta, lam)
    N = cholesky(np.eye(len(Y)) + half.gram)

    # w′ = w + V′⁻¹Σ ω ψ(y − ψᵀw) = w + G·N⁻¹√Ω(y − Ψw), G = V⁻¹Ψᵀ√Ω N⁻ᵀ.
    with np.errstate(over="ignore", invalid="ignore"):
        surprise = np.zeros(len(Y))
        if not block.supposed:
            surprise = solve_lower(N, roots * block.rewards - Y @ w)
        change = None
        if len(Y) <= WAITING:
            lowering = factor.C.solve_transposed(solve_lower(N, half.c.T.copy(order="F")).T)
            w = w + lowering @ surprise
            change = Change(lowering, surprise)
        else:
            w = w + factor.C.solve_transposed(half.c @ solve_transposed(N, surprise.copy()))
    factor = factor.observed(Y, half, N)
    after = replace(
        belief,
        inducing=inducing,
        factor=factor,
        w=w,
        left_out=left_out,
        n_observations=belief.n_observations + n_observations,
        trace=belief.trace + float(block.weights @ block.diag) / lam,
        kappa2=kappa2,
        rounding_seen=max(belief.rounding_seen, float(rounding.max())),
    )
    return after, entered, sizes, change


def _decided(
    belief: "Frozen",
    block: Batch,
    Z: Array,
    r: Array,
    S: Array,
    smallest: Array,
    forced: Mask | None,
) -> tuple[Mask, Array, Array]:
    """Which rows of a block enter W, one after the other; their coordinates ζ (j, k) in it; r (k,) as they were seen.

    S = √Ω ZV⁻¹Zᵀ√Ω and G = K − ZZᵀ, both (k, k), follow what happens: when row i enters, ζ = G_i/√G_ii,
    G −= ζζᵀ and S += √Ωζ(√Ωζ)ᵀ/λ; when it is observed, S −= S_iS_iᵀ/(1 + S_ii).
    """
    k = len(block)
    lam = belief.regularization
    entered = np.zeros(k, dtype=bool)
    if forced is not None:
        wanted = forced
    elif not belief.rule.has_room(belief.m):
        wanted = entered
    else:
        # What a row explains once the whole block is observed, ωq/(1 + ωq) or less: none enters that would not by this.
        inverse = solve_lower(cholesky(np.eye(k) + S), np.eye(k, order="F"))
        explained = 1.0 - np.square(inverse).sum(axis=0)
        wanted = (r > smallest) & (block.weights * r / lam > belief.rule.tolerance * explained)
    if not wanted.any():
        return entered, np.zeros((0, k)), r

    G = belief.kernel(block.rows, block.rows) - Z @ Z.T
    G[np.diag_indices(k)] = r
    S = S.copy()
    roots = np.sqrt(block.weights)
    zetas: list[Array] = []
    outside = r.copy()
    for i in range(k):
        residual = max(float(G[i, i]), 0.0)
        if G[i, i] < -NEGATIVE * block.diag[i] - smallest[i]:
            near = int(np.abs(np.array(zetas)[:, i]).argmax())
            x, y = block.rows[i], block.rows[np.flatnonzero(entered)[near]]
            raise not_positive(belief.kernel, x, float(G[i, i]), y)
        outside[i] = residual
        if forced is not None:
            enters = bool(forced[i])
        else:
            pays = belief.rule.pays(block.weights[i] * residual / lam, max(float(S[i, i]), 0.0))
            can = residual > smallest[i] and belief.rule.has_room(belief.m + len(zetas))
            enters = bool(wanted[i] and can and not pays)
        if enters:
            zeta = np.zeros(k)
            zeta[i] = np.sqrt(max(residual, TINY))
            zeta[i + 1 :] = G[i + 1 :, i] / zeta[i]
            G[i:, i:] -= np.outer(zeta[i:], zeta[i:])
            weighted = roots[i:] * zeta[i:]
            S[i:, i:] += np.outer(weighted, weighted) / lam
            entered[i] = True
            outside[i] = 0.0
            zetas.append(zeta)
        column = S[i:, i].copy()
        S[i:, i:] -= np.outer(column, column) / (1.0 + column[0])
    return entered, np.array(zetas).reshape(-1, k), outside


def largest_left_out(
    inducing: Inducing, regularization: float, rows: Array, sizes: Indices, weights: Array
) -> float:
    """λ_max(RRᵀ)/λ of rows left out."""
    kernel = inducing.kernel
    Z = inducing.L.solve(kernel(rows, inducing.rows).T).T
    largest = largest_eigenvalue(kernel(rows, rows), Z, sizes, np.sqrt(weights))
    return largest / regularization


def not_finite() -> NumericalError:
    return NumericalError("the posterior mean is not finite in float64; rescale the rewards")
