"""A belief of frozen features as arrays, and back: O(m²) numbers, and nothing of what was observed.

L, the factor C of V, w, the numbers of the arms in W, what is left out, and some counters are the
whole state (docs/theory.md). The rows of W are those of the table. Where rows have own parts, those
that were tried are kept too, with two numbers each.
"""

from dataclasses import replace
from math import isqrt

import numpy as np

from manyarms.engine.embedding import Inducing
from manyarms.engine.frozen import Engine
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
    base = belief.base
    factor = base.factor
    left_out = base.left_out
    counters = [
        factor.log_det,
        base.n_observations,
        base.trace,
        base.kappa2,
        base.rounding_seen,
        left_out.total,
        left_out.settled,
        left_out.block,
        left_out.since,
        left_out.rounding,
    ]
    tried = Tried.none(0) if belief.tried is None else belief.tried
    return {
        "L": base.L.items,
        "C": factor.C.items,
        "R": factor.R.items,
        "waiting": factor.waiting.items.ravel(),
        "w": base.w,
        "keys": base.keys,
        "left_out": left_out.kept.items.ravel(),
        "counters": np.array(counters),
        "tried": tried.rows.ravel(),
        "tried_weight": tried.weight,
        "tried_mean": tried.mean,
        "own_trace": np.array([belief.trace] if isinstance(belief, Owned) else []),
    }


def unpacked(prior: Engine, arrays: Arrays, W: Array) -> Engine:
    """The belief that was packed, given the one before anything was observed, and the rows (m, d)
    of W.

    ValueError where the arrays do not fit together.
    """
    m, d = W.shape
    is_owned = isinstance(prior, Owned)
    u = len(arrays["tried_weight"]) if is_owned else 0
    sizes = {"L": m * (m + 1) // 2, "C": m * (m + 1) // 2, "w": m, "keys": m, "counters": 10}
    sizes |= {"tried": u * d, "tried_weight": u, "tried_mean": u, "own_trace": int(is_owned)}
    for name, size in sizes.items():
        if arrays[name].shape != (size,):
            raise ValueError(
                f"{name} has {arrays[name].size} numbers, {size} belong to {m} inducing arms and "
                f"the own parts of {u} rows, of {prior.kernel!r} over {d} columns"
            )
    counters = arrays["counters"].tolist()
    log_det, n_observations, trace, kappa2, rounding_seen = counters[:5]
    inducing = Inducing(
        prior.base.kernel,
        Stack(W),
        Stack(arrays["keys"].astype(np.intp)),
        Triangle(m, arrays["L"]),
        {row.tobytes(): i for i, row in enumerate(W)},
    )
    J = (isqrt(8 * arrays["R"].size + 1) - 1) // 2  # R is a triangle of J rows
    width = len(arrays["waiting"]) // (2 * J) if J else m + SPARE_PLACES
    factor = Factor(
        prior.regularization,
        Triangle(m, arrays["C"]),
        Triangle(J, arrays["R"]),
        Stack(arrays["waiting"].reshape(J, 2, width)),
        log_det,
    )
    base = replace(
        prior.base,
        inducing=inducing,
        factor=factor,
        w=arrays["w"],
        left_out=LeftOut(Stack(arrays["left_out"].reshape(-1, d + 2)), *counters[5:]),
        n_observations=int(n_observations),
        trace=trace,
        kappa2=kappa2,
        rounding_seen=rounding_seen,
    )
    if not isinstance(prior, Owned):
        return base
    tried = Tried.of(arrays["tried"].reshape(u, d), arrays["tried_weight"], arrays["tried_mean"])
    return replace(prior.with_tried(base, tried), trace=float(arrays["own_trace"][0]))
