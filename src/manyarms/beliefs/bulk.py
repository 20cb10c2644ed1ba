"""Many results at once, in blocks of products.

A block of rows Y = √ΩZ is folded into V first: V′ = V + YᵀY. V only grows, and new coordinates only add to q. So what a
row explains when it is seen, wherever it stands in the block, is at least

    ωzᵀV′⁻¹z ≤ ωq/(1 + ωq) ≤ ln(1 + ωq),

and a row with ωr/λ ≤ ρωzᵀV′⁻¹z need not enter W. The others are candidates. They are decided in their order, by the rule,
as if the rest of the block came before them. The feature of a row has the coordinates of W at its place in the batch.

A block is taken in halves, in the end row by row, where what it leaves out is more than ρ times what ln det(V/λ) gains, or
where rows that entered make L ill-conditioned. So e ≤ ρ·ln det(V/λ) at any number of results, and W depends a little on how
they are cut into calls.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from scipy.linalg import lapack

from manyarms.beliefs.base import Batch, Change, Record, Step
from manyarms.beliefs.leftout import LeftOut, largest_left_out, of_upper
from manyarms.errors import NumericalError
from manyarms.progress import Meter
from manyarms.sketch.embedding import PSD_TOLERANCE, not_positive
from manyarms.sketch.growing import WAITING, Fold
from manyarms.sketch.linalg import cholesky, solve_lower, squares
from manyarms.typing import Array, Indices, Mask

if TYPE_CHECKING:
    from manyarms.beliefs.frozen import Frozen, Inducing

FEW = 16
"""Rows up to which one by one is as fast as a block (m from 80 to 1,500)."""
SMALL = 128
"""Rows of the first block: few enough that all may be candidates."""
LARGE = 512
"""Rows of a block where few are candidates. Products and solves gain little from more (m from 500 to 1,200)."""
TOGETHER = 128
"""Rows left out together whose largest eigenvalue counts in η; fewer than half as many wait for others."""
SMALLEST = 1e-10
"""A row enters W only where r exceeds this part of k(x, x): L is factored in the order of arrival, without pivoting."""
FIRM = 1e-12
"""Added to the diagonal of I − S, which rounding may leave without a factor: what is explained counts for 1/FIRM at most."""


UNCLEAR = 1e4
"""Rounding is looked at before rows enter where r is less than so many times the largest u seen, and after it in any case."""


class _Absorbed(NamedTuple):
    """After a block of rows."""

    belief: "Frozen"
    entered: Indices  # (j,) places in the block
    n_candidates: int
    change: Change | None


def observed_many(belief: "Frozen", batch: Batch, record: Record | None) -> Step:
    """After several observations; with a record, as was decided then."""
    n_observations = belief.n_observations + batch.n_observations
    m = belief.m
    told = np.zeros(len(batch), dtype=bool)
    if record is not None:
        told[record.entered] = True
    enters = np.zeros(len(batch), dtype=bool)
    changes: list[Change | None] = []
    start = 0
    size = min(SMALL, len(batch))
    with Meter("results", len(batch)) as progress:
        while start < len(batch):
            # The last block takes in what would be less than half a block.
            stop = start + size if 2 * (len(batch) - start) >= 3 * size else len(batch)
            some = slice(start, stop)
            forced = None if record is None else np.flatnonzero(told[some])
            absorb = _one_by_one if size <= FEW else _absorbed
            found = absorb(belief, batch.part(some), forced)
            if found is None:
                size //= 2
                continue
            belief = found.belief
            enters[start + found.entered] = True
            changes.append(found.change)
            start = stop
            progress.at(start)
            if found.n_candidates < SMALL // 2:
                size = min(LARGE, 2 * size)
            elif found.n_candidates > SMALL:
                size = max(SMALL, size // 2)
    if not np.isfinite(belief.w).all():
        raise not_finite()
    decided = Record(np.flatnonzero(enters), m + np.cumsum(enters))
    return Step(replace(belief, n_observations=n_observations), decided, _joined(changes, belief.m))


def _joined(changes: list[Change | None], m: int) -> Change | None:
    """The change of several steps, one after the other, that end with |W| = m."""
    known = [change for change in changes if change is not None]
    if len(known) < len(changes):
        return None
    # A change says nothing of coordinates that came after it.
    columns = [np.pad(G, ((0, m - len(G)), (0, 0))) for G, _ in known]
    return Change(np.hstack(columns), np.concatenate([surprise for _, surprise in known]))


def _one_by_one(belief: "Frozen", block: Batch, forced: Indices | None) -> _Absorbed:
    """After some rows, each decided by itself."""
    m = belief.m
    sizes = []
    changes = []
    for i in range(len(block)):
        told = None if forced is None else Record(np.flatnonzero(forced == i), forced)
        with np.errstate(over="ignore", invalid="ignore"):
            step = belief.observed(block.part(slice(i, i + 1)), told)
        belief = cast("Frozen", step.after)
        sizes.append(belief.m)
        changes.append(step.change)
    entered = np.flatnonzero(np.diff(sizes, prepend=m))
    return _Absorbed(belief, entered, len(block), _joined(changes, belief.m))


def _absorbed(belief: "Frozen", block: Batch, forced: Indices | None) -> _Absorbed | None:
    """After a block of rows; `forced` are those that enter, where that was decided before.

    None where they are to be taken in smaller blocks: what entered made L ill-conditioned, or does not pay.
    """
    lam = belief.regularization
    share = block.weights / lam
    roots = np.sqrt(block.weights)[:, None]
    kappa2 = max(belief.kappa2, float(block.diag.max()))
    Z, r, in_W = belief.inducing.features(block.rows, block.diag)
    Y = roots * Z
    fold = belief.factor.fold(Y)
    candidates = entered = np.zeros(0, dtype=np.intp) if forced is None else forced
    if forced is None and belief.rule.has_room(belief.m):
        possible = r > SMALLEST * block.diag
        candidates, S = _candidates(belief.rule.tolerance, fold, Y, share * r, possible)
        entered = _decided(belief, block, candidates, Z, r, S, kappa2)
    grown = _grown(belief.inducing, block, entered, Z, r)
    if grown is None:
        return None
    inducing, zeta = grown

    # The feature of a row has no coordinates in what enters after it.
    places = np.arange(len(block))
    frozen = np.where(places >= entered[:, None], zeta, 0.0)
    outside = r - squares(frozen)
    more = roots * frozen.T
    factor = fold.with_coordinates(more)

    # u of all rows on W as it is now. Of one that entered it counts when it did: with e its unit vector, 1 + ‖L⁻ᵀz‖₁ of then
    # is √r‖L⁻ᵀe‖₁ of now.
    z = np.hstack([Z, zeta.T])
    new = np.arange(len(entered))
    pivots = zeta[new, entered]
    z[entered] = 0.0
    z[entered, belief.m + new] = pivots
    rounding = inducing.rounding(z.T, kappa2)
    rounding[in_W] = 0.0
    smallest = np.maximum(SMALLEST * block.diag, 100 * rounding)

    # Rows that are in W leave out nothing. The others pay for it, but for what is too small to enter.
    out = ~in_W
    out[entered] = False
    owed = share @ np.where(out & (outside > smallest), outside, 0.0)
    paid = belief.rule.tolerance * (factor.log_det - belief.factor.log_det)
    too_small = np.square(pivots) <= smallest[entered]
    if forced is None and (too_small.any() or (owed > paid and belief.rule.has_room(inducing.m))):
        return None
    wrong = np.flatnonzero(outside < -PSD_TOLERANCE * block.diag - smallest)
    if len(wrong):
        i = wrong[0]
        near = entered[np.abs(frozen[:, i]).argmax()]
        raise not_positive(belief.kernel, block.rows[i], float(outside[i]), block.rows[near])
    left_out = _left_out(
        belief.left_out,
        inducing,
        block,
        np.flatnonzero(out),
        (Z, zeta, frozen),
        belief.m + np.searchsorted(entered, places, side="right"),
        share * np.maximum(outside, 0.0),
        share * 4 * rounding,
        lam,
    )

    # w′ = w + V′⁻¹Σ ω ψ(y − ψᵀw), w being 0 in what is new.
    with np.errstate(over="ignore", invalid="ignore"):
        surprise = np.zeros(len(block))
        if not block.supposed:
            surprise = roots[:, 0] * block.rewards - Y @ belief.w
        change = _change(belief, Y, more, surprise) if len(block) <= WAITING else None
        b = factor.C.solve(np.concatenate([surprise @ Y, surprise @ more]))
        w = np.append(belief.w, np.zeros(len(entered))) + factor.C.solve_transposed(b)
    after = replace(
        belief,
        inducing=inducing,
        factor=factor,
        w=w,
        left_out=left_out,
        trace=belief.trace + float(share @ block.diag),
        kappa2=kappa2,
        rounding_seen=max(belief.rounding_seen, float(rounding.max())),
    )
    return _Absorbed(after, entered, len(candidates), change)


def _candidates(
    tolerance: float, fold: Fold, Y: Array, left_out: Array, possible: Mask
) -> tuple[Indices, Array]:
    """Of the rows Y (k, m) that may enter by rounding, those that may by the rule, and S = YV′⁻¹Yᵀ of these."""
    at = np.flatnonzero(possible)
    m = Y.shape[1]
    for p in (m // 4, m // 2, m):
        # The first coordinates explain less than all, and enough for most rows.
        b = fold.solve(Y[at, :p].T)
        wanted = left_out[at] > tolerance * squares(b)
        at = at[wanted]
        b = b[:, wanted]
    return at, b.T @ b


def _decided(
    belief: "Frozen",
    block: Batch,
    at: Indices,
    Z: Array,
    r: Array,
    S: Array,
    kappa2: float,
) -> Indices:
    """Those of the candidates `at` (c,) that enter W, one after the other, given Z (k, m), r (k,), S = YV′⁻¹Yᵀ (c, c).

    S and G = K − ZZᵀ follow what happens: when row i enters, ζ = G_i/√G_ii, G −= ζζᵀ and S += √Ωζ(√Ωζ)ᵀ/λ; when it is
    observed, S −= S_iS_iᵀ/(1 + S_ii). Of these sums only row i is computed.
    """
    c = len(at)
    if not c:
        return at
    rule = belief.rule
    share = block.weights[at] / belief.regularization
    roots = np.sqrt(share)
    rows = block.rows[at]
    z = Z[at]
    r = r[at]
    smallest = SMALLEST * block.diag[at]
    if r.min() < UNCLEAR * belief.rounding_seen:
        smallest = np.maximum(smallest, 100 * belief.inducing.rounding(z.T, kappa2))
    G = belief.kernel(rows, rows) - z @ z.T
    # V′ without the candidates: I + S″ = (I − S)⁻¹.
    inverse = solve_lower(cholesky((1 + FIRM) * np.eye(c) - S), np.eye(c, order="F"))
    S = inverse.T @ inverse - np.eye(c)
    terms = np.zeros((2 * c, c))
    signed = np.zeros((c, 2 * c))
    zetas = np.zeros((c, c))
    entered: list[int] = []
    n = 0
    for i in range(c):
        row = S[i, i:] + signed[i, :n] @ terms[:n, i:]
        j = len(entered)
        pays = rule.pays(share[i] * r[i], max(row[0], 0.0))
        if r[i] > smallest[i] and not pays and rule.has_room(belief.m + j):
            zeta = (G[i, i:] - zetas[:j, i] @ zetas[:j, i:]) / np.sqrt(r[i])
            zeta[0] = np.sqrt(r[i])
            zetas[j, i:] = zeta
            terms[n, i:] = roots[i:] * zeta
            signed[i:, n] = terms[n, i:]
            row += terms[n, i] * terms[n, i:]
            r[i:] -= np.square(zeta)
            entered.append(i)
            n += 1
        terms[n, i:] = row / np.sqrt(1.0 + max(row[0], 0.0))
        signed[i:, n] = -terms[n, i:]
        n += 1
    return at[entered]


def _grown(
    inducing: "Inducing", block: Batch, entered: Indices, Z: Array, r: Array
) -> tuple["Inducing", Array] | None:
    """W with some rows of a block, and the coordinates ζ (j, k) of all its rows in what is new.

    None where rounding leaves no factor.
    """
    if not len(entered):
        return inducing, np.zeros((0, len(block)))
    G = inducing.kernel(block.rows[entered], block.rows) - Z[entered] @ Z.T
    G[np.arange(len(entered)), entered] = r[entered]
    corner, singular = lapack.dpotrf(G[:, entered], lower=1, clean=1)
    if singular:
        return None
    z = [part for j, i in enumerate(entered) for part in (Z[i], corner[j, : j + 1])]
    grown = inducing.appended(block.rows[entered], block.keys[entered], np.concatenate(z))
    return grown, solve_lower(corner, np.asfortranarray(G))


def _left_out(
    made: LeftOut,
    inducing: "Inducing",
    block: Batch,
    out: Indices,
    coordinates: tuple[Array, Array, Array],
    sizes: Indices,
    outside: Array,
    rounding: Array,
    lam: float,
) -> LeftOut:
    """What is left out after the rows `out` of a block.

    Of all rows of the block: Z, ζ and ζ as the features have it; |W|, ωr/λ and its rounding, (k,) each.
    """
    if 2 * len(out) < TOGETHER:
        return made.with_rows(
            block.rows[out],
            sizes[out],
            block.weights[out],
            outside[out],
            rounding[out],
            partial(largest_left_out, inducing, lam),
        )
    Z, zeta, frozen = coordinates
    for some in np.array_split(out, -(-len(out) // TOGETHER)):
        rows = block.rows[some]
        z = Z[some]
        roots = np.sqrt(block.weights[some] / lam)
        # Above the diagonal, the later of two rows is that of the column.
        G = inducing.kernel(rows, rows) - z @ z.T - zeta[:, some].T @ frozen[:, some]
        by_rounding = float(rounding[some].sum())
        largest = of_upper(G * np.outer(roots, roots)) + by_rounding
        made = made.with_block(float(outside[some].sum()) + by_rounding, largest)
    return made


def _change(belief: "Frozen", Y: Array, more: Array, surprise: Array) -> Change:
    """G = V⁻¹Ψᵀ N⁻ᵀ and N⁻¹(surprise), NNᵀ = I + ΨV⁻¹Ψᵀ, for rows Ψ = [Y, more] and V before them."""
    half = belief.factor.half(Y.T)
    N = cholesky(np.eye(len(Y)) + half.gram + more @ more.T / belief.regularization)
    known = np.vstack([belief.factor.C.solve_transposed(half.c), more.T / belief.regularization])
    return Change(solve_lower(N, known.T.copy(order="F")).T, solve_lower(N, surprise.copy()))


def not_finite() -> NumericalError:
    """What to say of rewards that are too large."""
    return NumericalError("the posterior mean is not finite in float64; rescale the rewards")
