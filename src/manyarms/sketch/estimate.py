"""What a run will take, before it starts."""

from time import perf_counter
from typing import NamedTuple

import numpy as np

from manyarms.kernels import RBF
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History
from manyarms.sketch.lazy import bytes_beside
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import Store
from manyarms.stats import Stats

TRIAL = 20_000
"""Arms whose refresh is timed."""


class Estimate(NamedTuple):
    """Bytes beside the table of arms, and seconds of a refresh, on this machine."""

    least_bytes: float  # the smallest `memory` that works: every refresh computes all embeddings anew
    bytes: float  # with the embeddings of all arms kept
    seconds: float  # of a pass over all arms that computes their embeddings


def estimate(n_arms: int, n_features: int, m: int) -> Estimate:
    """What `n_arms` arms of `n_features` columns take with `m` inducing arms: bytes counted, seconds measured on a part."""
    rng = np.random.default_rng(0)
    rows = rng.random((max(m, min(n_arms, TRIAL)), n_features))
    kernel = RBF(np.sqrt(n_features) / 4)
    embedding, _ = Embedding.fit(kernel, rows[:m], None)
    posterior = Posterior.solve(embedding, embedding.L, np.ones(m), np.zeros(m), 0.01)
    store = Store(rows, np.ones(len(rows)), Stats())
    spent = []
    for _ in range(2):  # the first warms up
        start = perf_counter()
        store.bring(posterior, History(), None, 0.0)
        spent.append(perf_counter() - start)
    least = bytes_beside(n_arms, n_features)
    return Estimate(least, least + 8 * m * n_arms, min(spent) * n_arms / len(rows))
