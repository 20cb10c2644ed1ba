"""Many results at once, in blocks of products.

A block of rows Y = √ΩZ is folded into V first: V′ = V + YᵀY. V only grows, and new coordinates only
add to q. So what a row explains when it is seen, wherever it stands in the block, is at least

    ωzᵀV′⁻¹z ≤ ωq/(1 + ωq) ≤ ln(1 + ωq),

and a row with ωr/λ ≤ ρωzᵀV′⁻¹z need not enter W. The others are candidates. They are decided in
their order, by the rule, as if the rest of the block came before them. The feature of a row has the
coordinates of W at its place in the batch.

A block is taken in halves, in the end row by row, where what it leaves out is more than ρ times
what ln det(V/λ) gains, or where rows that entered make L ill-conditioned. So e ≤ ρ·ln det(V/λ) at
any number of results, and W depends a little on how they are cut into calls.
"""

from dataclasses import replace
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, cast

import numpy as np

from manyarms.engine.base import Batch, Change, Record, Step
from manyarms.engine.embedding import Inducing
from manyarms.engine.growing import Fold
from manyarms.engine.leftout import LeftOut, largest_left_out, of_upper
from manyarms.engine.linalg import TINY, check_finite, cholesky, solve_lower, squares
from manyarms.runtime.progress import Meter
from manyarms.typing import Array, Indices, Mask

if TYPE_CHECKING:
    from manyarms.engine.frozen import Frozen

SHORT = 16
"""Rows that are taken one by one: a block is not faster."""
FOLLOWED = 64
"""The same where a table of scores can follow the steps, which saves more than a block does."""
SMALL = 128
"""Rows of the first block: few enough that all may be candidates."""
LARGE = 512
"""Rows of a block where few are candidates. Products and solves gain little from more (m from 500
to 1,200)."""
TOGETHER = 128
"""Rows left out of a block whose largest eigenvalue is a term of the bound on η: 0.3 ms."""
SMALLEST = 1e-10
"""A row enters W only where r exceeds this part of k(x, x): L is factored in the order of arrival,
without pivoting."""
FIRM = 1e-12
"""Added to the diagonal of I − S, which rounding may leave without a factor: what is explained
counts for 1/FIRM at most."""


def observed_many(belief: "Frozen", batch: Batch, record: Record | None) -> Step:
    """After several observations; with a record, as was decided then."""
    told = None if record is None else np.isin(np.arange(len(batch)), record.entered)
    n = len(batch)
    follows = n <= FOLLOWED and 2 * n <= belief.m  # see `Table.brought`
    absorb = _one_by_one if n <= SHORT or follows else _in_blocks
    step = absorb(belief, batch, told)
    n_observations = belief.n_observations + batch.n_observations
    after = replace(cast("Frozen", step.after), n_observations=n_observations)
    return step._replace(after=after, batch=batch)


def _one_by_one(belief: "Frozen", batch: Batch, told: Mask | None) -> Step:
    """After some rows, each decided by itself; `told` says which enter, where that was decided
    before."""
    m = belief.m
    n = len(batch)
    sizes = np.zeros(n, dtype=np.intp)
    G = np.zeros((n, m + n))
    surprise = np.zeros(n)
    for i in range(n):
        with np.errstate(over="ignore", invalid="ignore"):
            enters = None if told is None else bool(told[i])
            step = belief.observed_one(batch.part(slice(i, i + 1)), enters)
        belief = cast("Frozen", step.after)
        change = cast(Change, step.change)
        sizes[i] = belief.m
        # A change says nothing of coordinates that come after it.
        G[i, : belief.m] = change.G[0]
        surprise[i] = change.surprise[0]
    return Step(belief, _record(m, sizes), Change(np.ascontiguousarray(G[:, : belief.m]), surprise))


def _in_blocks(belief: "Frozen", batch: Batch, told: Mask | None) -> Step:
    """After many rows, in blocks that are larger the fewer rows enter."""
    m = belief.m
    sizes = np.zeros(len(batch), dtype=np.intp)
    start = 0
    size = SMALL
    with Meter("results", len(batch)) as progress:
        while start < len(batch):
            # The last block takes in what would be less than half a block.
            stop = start + size if 2 * (len(batch) - start) >= 3 * size else len(batch)
            some = slice(start, stop)
            absorb = _one_by_one if size <= FOLLOWED else _absorbed
            step = absorb(belief, batch.part(some), None if told is None else told[some])
            if step is None:
                size //= 2
                continue
            entered = len(step.record.entered)
            if entered < SMALL // 4:
                size = min(LARGE, 2 * size)
            elif entered > SMALL // 2:
                size = max(SMALL, size // 2)
            belief = cast("Frozen", step.after)
            sizes[some] = step.record.sizes
            start = stop
            progress.at(start)
    check_finite(belief.w)
    return Step(belief, _record(m, sizes))


def _record(m: int, sizes: Indices) -> Record:
    """What was decided, given |W| before and at each of some rows."""
    return Record(np.flatnonzero(np.diff(sizes, prepend=m)), sizes)


def _absorbed(belief: "Frozen", block: Batch, told: Mask | None) -> Step | None:
    """After a block of rows; `told` says which enter, where that was decided before.

    None where they are to be taken in smaller blocks: what entered makes L ill-conditioned, or too
    much is left out.
    """
    rule = belief.rule
    share = block.weights / belief.regularization
    roots = np.sqrt(block.weights)[:, None]
    kappa2 = max(belief.kappa2, float(block.diag.max()))
    Z, r, in_W = belief.inducing.features(block.rows, block.diag)
    Y = roots * Z
    fold = belief.factor.fold(Y)
    if told is None:
        possible = (r > SMALLEST * block.diag) & rule.has_room(belief.m)
        at, S = _candidates(rule.tolerance, fold, Y, share * r, possible)
    else:
        at = np.flatnonzero(told)
        S = np.zeros((len(at), len(at)))
    entered, zeta = _decided(belief, block, at, S, Z, r, kappa2, told is not None)

    # The feature of a row has no coordinates in what enters after it.
    places = np.arange(len(block))
    sizes = belief.m + np.searchsorted(entered, places, side="right")
    frozen = np.where(places >= entered[:, None], zeta, 0.0)
    outside = r - squares(frozen)
    more = roots * frozen.T
    factor = fold.with_coordinates(more)
    inducing = belief.inducing
    if len(entered):
        L = [part for j, i in enumerate(entered) for part in (Z[i], zeta[: j + 1, i])]
        keys = block.keys[entered]
        new_rows = block.rows[entered]
        inducing = inducing.appended(new_rows, keys, np.concatenate(L), supposed=block.supposed)

    # u of all rows on W as it is now. Of one that entered it counts when it did: with e its unit
    # vector, 1 + ‖L⁻ᵀz‖₁ of then is √r‖L⁻ᵀe‖₁ of now.
    new = np.arange(len(entered))
    pivots = zeta[new, entered]
    z = np.hstack([Z, zeta.T])
    z[entered] = 0.0
    z[entered, belief.m + new] = pivots
    rounding = np.where(in_W, 0.0, inducing.rounding(z.T, kappa2))
    smallest = np.maximum(SMALLEST * block.diag, 100 * rounding)

    # Rows that are in W leave out nothing. The others pay for it, but for what is too small to
    # enter.
    out = ~in_W
    out[entered] = False
    owed = share @ np.where(out & (outside > smallest), outside, 0.0)
    paid = rule.tolerance * (factor.log_det - belief.factor.log_det)
    wrong = (np.square(pivots) <= smallest[entered]).any()
    if told is None and (wrong or (owed > paid and rule.has_room(factor.C.n))):
        return None
    inducing.check_positive(block.rows, block.diag, z, outside)
    left_out = _left_out(
        belief,
        inducing,
        block.part(out),
        (Z[out], zeta[:, out], frozen[:, out]),
        sizes[out],
        share[out] * np.maximum(outside[out], 0.0),
        share[out] * 4 * rounding[out],
    )

    # w′ = w + V′⁻¹Σ ω ψ(y − ψᵀw), w being 0 in what is new.
    with np.errstate(over="ignore", invalid="ignore"):
        surprise = np.zeros(len(block))
        if not block.supposed:
            surprise = roots[:, 0] * block.rewards - Y @ belief.w
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
    return Step(after, Record(entered, sizes))


def _candidates(
    tolerance: float, fold: Fold, Y: Array, left_out: Array, possible: Mask
) -> tuple[Indices, Array]:
    """Of the rows Y (k, m) that may enter by rounding, those that may by the rule, and S = YV′⁻¹Yᵀ
    of these."""
    at = np.flatnonzero(possible)
    m = Y.shape[1]
    for p in (m // 4, m):
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
    S: Array,
    Z: Array,
    r: Array,
    kappa2: float,
    told: bool,
) -> tuple[Indices, Array]:
    """Those of the candidates `at` (c,) that enter W, one after the other (all of them if `told`),
    and ζ (j, k) in what is new.

    Given S = YV′⁻¹Yᵀ (c, c) of the candidates, and Z (k, m), r (k,) of all rows. S and G = K − ZZᵀ
    follow what happens: when row i enters, ζ = G_i/√G_ii, G −= ζζᵀ and S += √Ωζ(√Ωζ)ᵀ/λ; when it is
    observed, S −= S_iS_iᵀ/(1 + S_ii). Of these sums, S divided by √Ω/√λ on both sides, only row i
    is computed, at its turn.
    """
    c = len(at)
    zetas = np.zeros((c, len(block)))
    if not c:
        return at, zetas
    rule = belief.rule
    share = block.weights[at] / belief.regularization
    roots = np.sqrt(share)
    z = Z[at]
    G = belief.kernel(block.rows[at], block.rows) - z @ Z.T
    smallest = np.maximum(SMALLEST * block.diag[at], 100 * belief.inducing.rounding(z.T, kappa2))
    # V′ without the candidates: I + S″ = (I − S)⁻¹.
    inverse = solve_lower(cholesky((1 + FIRM) * np.eye(c) - S), np.eye(c, order="F"))
    S = (inverse.T @ inverse - np.eye(c)) / np.outer(roots, roots)
    seen = np.zeros((c, c))
    entered: list[int] = []
    r = r.copy()
    for i, place in enumerate(at):
        j = len(entered)
        known = zetas[:j, place] @ zetas[:j]
        q = S[i] + known[at] - seen[:i, i] @ seen[:i]
        pays = rule.pays(share[i] * r[place], share[i] * max(q[i], 0.0))
        if told or (r[place] > smallest[i] and not pays and rule.has_room(belief.m + j)):
            pivot = sqrt(max(r[place], TINY))
            zetas[j] = (G[i] - known) / pivot
            zetas[j, place] = pivot
            q += pivot * zetas[j, at]
            r -= np.square(zetas[j])
            entered.append(place)
        seen[i] = q / sqrt(1.0 / share[i] + max(q[i], 0.0))
    return np.array(entered, dtype=np.intp), zetas[: len(entered)]


def _left_out(
    belief: "Frozen",
    inducing: Inducing,
    left: Batch,
    coordinates: tuple[Array, Array, Array],
    sizes: Indices,
    e: Array,
    rounding: Array,
) -> LeftOut:
    """What is left out after these k rows.

    Given are Z (k, m), and ζ (j, k) as it is and as the features have it; of each row |W|, ωr/λ and
    what that may be wrong by.
    """
    made = belief.left_out
    if len(left) < TOGETHER // 4:
        # They wait for others.
        largest = partial(largest_left_out, inducing, belief.regularization)
        out = (float(e.sum()), float(rounding.sum()))
        return made.with_rows(left.rows, sizes, left.weights, *out, largest)
    Z, zeta, frozen = coordinates
    for start in range(0, len(left), TOGETHER):
        some = slice(start, start + TOGETHER)
        rows = left.rows[some]
        # Above the diagonal, the later of two rows is that of the column.
        G = inducing.kernel(rows, rows) - Z[some] @ Z[some].T - zeta[:, some].T @ frozen[:, some]
        roots = np.sqrt(left.weights[some] / belief.regularization)
        by_rounding = float(rounding[some].sum())
        eigenvalue = of_upper(G * np.outer(roots, roots))
        made = made.with_block(float(e[some].sum()) + by_rounding, eigenvalue + by_rounding)
    return made
