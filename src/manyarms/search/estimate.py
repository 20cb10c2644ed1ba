"""What a run will take, before it starts."""

from time import perf_counter
from typing import NamedTuple

import numpy as np

from manyarms.engine.base import Arms, Batch
from manyarms.engine.frozen import Frozen, Inserted
from manyarms.kernels import RBF
from manyarms.lapack import in_one_thread
from manyarms.search import PER_ARM
from manyarms.search.dense import Dense

TRIAL = 40_000
"""Arms whose pass is timed, at most: more than are done as one chunk, so that all cores work."""


class Estimate(NamedTuple):
    """Bytes beside the table of arms, and seconds of a pass, on this machine."""

    least_bytes: float  # the smallest `memory` that works: bounds of all arms, and a list
    bytes: float  # with the embeddings of all arms kept
    seconds: float  # of a pass over all arms that computes their embeddings


@in_one_thread
def estimate(n_arms: int, n_features: int, m: int) -> Estimate:
    """What `n_arms` arms of `n_features` columns take with `m` inducing ones: bytes counted,
    seconds measured on a part."""
    rng = np.random.default_rng(0)
    rows = rng.random((max(m, min(n_arms, TRIAL)), n_features))
    diag = np.ones(len(rows))
    arms = Arms(rows, diag)
    # Tolerance 0, and a lengthscale short of the typical distance: nearly all m rows enter W.
    belief = Inserted(0.0).prior(RBF(np.sqrt(n_features) / 4), arms, 0.01, 0.1, rng)
    batch = Batch(rows[:m], diag[:m], np.zeros(m), np.ones(m), np.arange(m), m)
    after: Frozen = belief.observed(batch).after  # type: ignore[assignment]
    spent = []
    for _ in range(2):  # the first warms up
        start = perf_counter()
        Dense(arms, after.kernel).compute(after)
        spent.append(perf_counter() - start)
    least = PER_ARM * n_arms + 8 * m**2
    return Estimate(least, least + 8 * m * n_arms, min(spent) * n_arms / len(rows))
