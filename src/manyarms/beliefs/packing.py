"""A belief of frozen features as arrays, and back: O(m²) numbers, and nothing of what was observed.

L, the factor C of V, w, the numbers of the arms in W, what is left out, and some counters are the whole state
(docs/theory.md). The rows of W are those of the table.
"""

from dataclasses import replace

import numpy as np

from manyarms.beliefs.frozen import Frozen
from manyarms.beliefs.leftout import LeftOut
from manyarms.sketch.factor import Factor
from manyarms.sketch.growing import Stack, Triangle
from manyarms.typing import AnyArray, Array

Arrays = dict[str, AnyArray]
NAMES = {"L": "<f8", "C": "<f8", "w": "<f8", "keys": "<i8", "counters": "<f8", "rows": "<f8", "sizes": "<i8", "weights": "<f8"}
"""The arrays and their types."""


def packed(belief: Frozen) -> Arrays:
    """The arrays of a belief."""
    left_out = belief.left_out
    factor = belief.factor.folded
    none = np.zeros(0)
    return {
        "L": belief.L.packed.items,
        "C": factor.C.packed.items,
        "w": belief.w,
        "keys": belief.keys,
        "counters": np.array(
            [
                factor.log_det,
                belief.n_observations,
                belief.trace,
                belief.kappa2,
                belief.rounding_seen,
                left_out.total,
                left_out.settled,
                left_out.block,
                left_out.since,
            ]
        ),
        "rows": none if left_out.rows is None else left_out.rows.ravel(),
        "sizes": none if left_out.sizes is None else left_out.sizes,
        "weights": none if left_out.weights is None else left_out.weights,
    }


def unpacked(prior: Frozen, arrays: Arrays, W: Array) -> Frozen:
    """The belief that was packed, given the one before anything was observed, and the rows (m, d) of W.

    ValueError where the arrays do not fit together.
    """
    m, d = W.shape
    sizes = {"L": m * (m + 1) // 2, "C": m * (m + 1) // 2, "w": m, "keys": m, "counters": 9}
    wrong = [name for name, size in sizes.items() if arrays[name].shape != (size,)]
    if wrong:
        raise ValueError(f"{wrong[0]} has {arrays[wrong[0]].size} numbers, {sizes[wrong[0]]} belong to {m} inducing arms")
    log_det, n_observations, trace, kappa2, rounding_seen, total, settled, block, since = arrays["counters"].tolist()
    left_out = LeftOut(total, settled, block, since)
    if arrays["rows"].size:
        rows = arrays["rows"].reshape(-1, d)
        left_out = replace(left_out, rows=rows, sizes=arrays["sizes"].astype(np.intp), weights=arrays["weights"])
    return replace(
        prior,
        _W=Stack(W),
        _keys=Stack(arrays["keys"].astype(np.intp)),
        L=Triangle(m, Stack(arrays["L"])),
        factor=Factor.of(prior.regularization, Triangle(m, Stack(arrays["C"])), log_det),
        w=arrays["w"],
        left_out=left_out,
        n_observations=int(n_observations),
        trace=trace,
        kappa2=kappa2,
        rounding_seen=rounding_seen,
        places={row.tobytes(): i for i, row in enumerate(W)},
    )
