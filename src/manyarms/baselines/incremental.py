"""Rules for `BKB`: Algorithm 1 with a dictionary that is updated instead of drawn anew.

Both cost what Algorithm 1 costs, O(A m²) a step: they are here to compare dictionaries, not times.
"""

import numpy as np

from manyarms.beliefs.sampled import Candidates, DrawRule
from manyarms.sketch.dictionary import inclusion_probability
from manyarms.typing import Array


class Incremental(DrawRule):
    """The paper's remark: a row of S_t stays with probability p_{t+1}/p_t.

    p = min(1, n·q̄·σ̃²) for a row of weight n. Where p grows, as it does with n, a row of S stays,
    and one outside enters with probability (p_{t+1} − p_t)/(1 − p_t). Were the p fixed beforehand,
    a row would be in S_t with probability p_t. But they depend on the draws before, which is why
    the paper leaves the question open: there is no guarantee. Parameters as for `Sampled`.
    """

    def draws(self, candidates: Candidates, inclusion: Array) -> Array:
        """From p_t to p_{t+1}."""
        before = candidates.before
        with np.errstate(divide="ignore", invalid="ignore"):
            enters = np.where(inclusion > before, (inclusion - before) / (1 - before), 0.0)
            stays = np.where(inclusion < before, inclusion / before, 1.0)
        return np.where(candidates.inside, stays, enters)


class Insertion(DrawRule):
    """A pull enters S with probability min(1, n·q̄·τ̃), τ̃ = σ̃²/(1 + σ̃²), and stays.

    KORS (Calandriello, Lazaric, Valko; ICML 2017), used for bandits by EK-UCB (Zenati, Bietti,
    Diemert, Mairal, Martin, Gaillard; AISTATS 2022), who prove regret of the exact method's order
    for it. As the projection on S only grows, and each draw depends on the past alone, the
    martingale argument holds that is missing for `Incremental`. Here τ̃ is BKB's estimate, not that
    of KORS, so the constants of those proofs do not carry over. `BKB.redraw` sets q̄ for the pulls
    to come. Parameters as for `Sampled`.
    """

    def inclusion(self, candidates: Candidates) -> Array:
        """Of the weight that just came in."""
        leverage = candidates.variance / (1 + candidates.variance)
        return inclusion_probability(leverage, candidates.fresh, self.oversampling)

    def draws(self, candidates: Candidates, inclusion: Array) -> Array:
        """Rows of S stay."""
        return np.where(candidates.inside, 1.0, inclusion)
