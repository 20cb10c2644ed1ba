"""A belief of frozen features as arrays, and back: O(m²) numbers, and nothing of what was observed.

L, the factor C of V, w, the numbers of the arms in W, what is left out, and some counters are the
whole state (docs/theory.md). The rows of W are those of the table. Where rows have own parts, those
that were tried are kept too, with two numbers each.
"""

from dataclasses import replace
from math import isqrt

import numpy as np

from manyarms.engine.embedding import Inducing
from manyarms.engine.frozen import Engine, Frozen
from manyarms.engine.growing import SPARE_PLACES, Factor, Stack, Triangle
from manyarms.engine.leftout import LeftOut
from manyarms.engine.own import Owned, Tried
from manyarms.typing import AnyArray, Array

Arrays = dict[str, AnyArray]
NAMES = {
    "L": "<f8",
    "C": "<f8",
    "R": "<f8",
    "waiting": "<f8",
    "w": "<f8",
    "keys": "<i8",
    "left_out": "<f8",
    "counters": "<f8",
    "tried": "<f8",
    "tried_weight": "<f8",
    "tried_mean": "<f8",
    "own_trace": "<f8",
}
"""The arrays and their types. The last four are empty where rows have no own parts."""


def packed(belief: Engine) -> Arrays:
    """The arrays of a belief as they are, each of one dimension."""
    nothing = np.zeros(0)
    own: Arrays = {"tried": nothing, "tried_weight": nothing, "tried_mean": nothing}
    own["own_trace"] = nothing
    if isinstance(belief, Owned):
        tried = belief.tried
        own = {
            "tried": tried.rows.ravel(),
            "tried_weight": tried.weight,
            "tried_mean": tried.mean,
            "own_trace": np.array([belief.trace]),
        }
    return {**_packed(belief.base), **own}


def _packed(belief: Frozen) -> Arrays:
    """The arrays of a belief of frozen features."""
    left_out = belief.left_out
    factor = belief.factor
    counters = [
        factor.log_det,
        belief.n_observations,
        belief.trace,
        belief.kappa2,
        belief.rounding_seen,
        left_out.total,
        left_out.settled,
        left_out.block,
        left_out.since,
        left_out.rounding,
    ]
    return {
        "L": belief.L.packed.items,
        "C": factor.C.packed.items,
        "R": factor.R.packed.items,
        "waiting": factor.waiting.items.ravel(),
        "w": belief.w,
        "keys": belief.keys,
        "left_out": left_out.kept.items.ravel(),
        "counters": np.array(counters),
    }


def unpacked(prior: Engine, arrays: Arrays, W: Array) -> Engine:
    """The belief that was packed, given the one before anything was observed, and the rows (m, d)
    of W.

    ValueError where the arrays do not fit together.
    """
    base = _unpacked(prior.base, arrays, W)
    weight = arrays["tried_weight"]
    u = len(weight)
    is_owned = isinstance(prior, Owned)
    sizes = {"tried": u * W.shape[1], "tried_mean": u, "own_trace": int(is_owned)}
    wrong = [name for name, size in sizes.items() if arrays[name].shape != (size,)]
    if wrong or (u and not is_owned):
        raise ValueError(
            f"{u} rows that were tried have {arrays['tried'].size} numbers, their own parts fit no "
            f"belief of {prior.kernel!r} over {W.shape[1]} columns"
        )
    if not isinstance(prior, Owned):
        return base
    rows = arrays["tried"].reshape(-1, W.shape[1])
    tried = Tried.of(rows, weight, arrays["tried_mean"])
    return replace(prior.with_tried(base, tried), trace=float(arrays["own_trace"][0]))


def _unpacked(prior: Frozen, arrays: Arrays, W: Array) -> Frozen:
    """The same of frozen features."""
    m, d = W.shape
    sizes = {"L": m * (m + 1) // 2, "C": m * (m + 1) // 2, "w": m, "keys": m, "counters": 10}
    wrong = [name for name, size in sizes.items() if arrays[name].shape != (size,)]
    if wrong:
        raise ValueError(
            f"{wrong[0]} has {arrays[wrong[0]].size} numbers, {sizes[wrong[0]]} belong to {m} "
            "inducing arms"
        )
    counters = arrays["counters"].tolist()
    log_det, n_observations, trace, kappa2, rounding_seen = counters[:5]
    inducing = Inducing(
        prior.kernel,
        Stack(W),
        Stack(arrays["keys"].astype(np.intp)),
        Triangle(m, Stack(arrays["L"])),
        {row.tobytes(): i for i, row in enumerate(W)},
    )
    return replace(
        prior,
        inducing=inducing,
        factor=_factor(prior.regularization, arrays, m, log_det),
        w=arrays["w"],
        left_out=LeftOut(Stack(arrays["left_out"].reshape(-1, d + 2)), *counters[5:]),
        n_observations=int(n_observations),
        trace=trace,
        kappa2=kappa2,
        rounding_seen=rounding_seen,
    )


def _factor(regularization: float, arrays: Arrays, m: int, log_det: float) -> Factor:
    """The factor of V, with the rows that wait beside it."""
    C = Triangle(m, Stack(arrays["C"]))
    J = (isqrt(8 * arrays["R"].size + 1) - 1) // 2  # R is a triangle of J rows
    width = len(arrays["waiting"]) // (2 * J) if J else m + SPARE_PLACES
    waiting = Stack(arrays["waiting"].reshape(J, 2, width))
    return Factor(regularization, C, Triangle(J, Stack(arrays["R"])), waiting, log_det)
