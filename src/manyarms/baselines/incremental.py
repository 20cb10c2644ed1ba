"""Algorithm 1 with a dictionary that is updated at every observation instead of drawn anew.

Both cost what Algorithm 1 costs, O(A m²) a step: they are here to compare dictionaries, not times.
"""

import numpy as np

from manyarms.policies.algorithm1 import AlgorithmOne, AlgorithmOneState
from manyarms.sketch.dictionary import inclusion_probability
from manyarms.sketch.history import History
from manyarms.typing import Array


class Incremental(AlgorithmOne, resparsify="incremental"):
    """An arm of S_t stays with probability p_{t+1}/p_t, one that was just pulled enters with its own p: the paper's remark.

    p = 1 − (1 − min(1, q̄σ̃²))ⁿ for an arm pulled n times. Where p grows, as it does with n, an arm of S stays, and one outside
    enters with probability (p_{t+1} − p_t)/(1 − p_t). Were the p fixed beforehand, an arm would be in S_t with probability p_t;
    but they depend on the draws before, which is why the paper leaves the question open: no guarantee.
    """

    def _draw(self, old: AlgorithmOneState, history: History, variance: Array, inclusion: Array) -> Array:
        before = np.zeros(len(inclusion))
        before[np.searchsorted(history.pulled, old.history.pulled)] = old.inclusion
        with np.errstate(divide="ignore", invalid="ignore"):
            enters = np.where(inclusion > before, (inclusion - before) / (1 - before), 0.0)
            stays = np.where(inclusion < before, inclusion / before, 1.0)
        return np.where(np.isin(history.pulled, old.dictionary, assume_unique=True), stays, enters)


class Insertion(AlgorithmOne, resparsify="insertion"):
    """A pull enters S with probability min(1, q̄τ̃), τ̃ = σ̃²/(1 + σ̃²) its leverage with itself included, and never leaves.

    KORS (Calandriello, Lazaric, Valko; ICML 2017), used for bandits by EK-UCB (Zenati, Bietti, Diemert, Mairal, Martin,
    Gaillard; AISTATS 2022), who prove regret of the exact method's order for it. As the projection on S only grows, and each
    draw depends on the past alone, the martingale argument holds that is missing for "incremental". Here τ̃ is BKB's estimate,
    not that of KORS, so the constants of those proofs do not carry over. `redraw` sets q̄ for the pulls to come.
    """

    def _draw(self, old: AlgorithmOneState, history: History, variance: Array, inclusion: Array) -> Array:
        fresh = history.counts.copy()  # the weight of the pulls that come in
        fresh[np.searchsorted(history.pulled, old.history.pulled)] -= old.history.counts
        new = np.flatnonzero(fresh > 0)
        probability = np.isin(history.pulled, old.dictionary, assume_unique=True).astype(np.float64)
        enters = inclusion_probability(variance[new] / (1 + variance[new]), fresh[new], old.oversampling)
        probability[new] = np.maximum(probability[new], enters)
        return probability
