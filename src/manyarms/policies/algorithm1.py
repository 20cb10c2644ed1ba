"""BKB as printed: Algorithm 1 of Calandriello, Carratino, Lazaric, Valko and Rosasco (COLT 2019).

    1  Select uniformly at random x₁ and observe y₁
    2  Initialize S₁ = {x₁}
    3  for t = 1, …, T − 1
    4      Compute μ̃_t(x_i) and σ̃²_t(x_i) for all x_i ∈ A
    5      Select x̃_{t+1} = argmax ũ_t(x_i)                          (Eq. 3)
    6      for i = 1, …, t + 1
    7          Set p̃_{t+1,i} = q̄ · σ̃²_t(x̃_i)
    8          Draw q_{t+1,i} ~ Bernoulli(p̃_{t+1,i})
    9          If q_{t+1,i} = 1 include x̃_i in S_{t+1}

`choose` is lines 1 and 4–5 (`Policy.choose`, `Posterior.moments`), `observe` is lines 6–9. What the print leaves open: p̃ above
1 counts as 1, pulls of one arm share one draw of the same law, and an empty draw keeps the most probable arm.
"""

from dataclasses import dataclass, replace

import numpy as np

from manyarms.policies.bkb import BKB
from manyarms.sketch.confidence import Evidence
from manyarms.sketch.dictionary import Chance, inclusion_probability
from manyarms.sketch.history import History
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class AlgorithmOneState:
    """Everything that `observe` and `redraw` change."""

    chance: Chance
    oversampling: float  # q̄
    history: History
    dictionary: Indices  # S, sampled
    inducing: Indices  # S without the arms that the others represent
    posterior: Posterior
    inclusion: Array  # (u,) probability with which a fresh draw has each pulled arm
    pulled_variance: Array  # (u,) σ̃²_t at the pulled arms
    evidence: Evidence


class AlgorithmOne(BKB, resparsify="always"):
    """A fresh dictionary, and all arms rescored, at every observation."""

    _state: AlgorithmOneState

    def _first_state(self, rng: np.random.Generator) -> AlgorithmOneState:
        none = np.zeros(0, dtype=np.intp)
        prior = Posterior.prior(self.kernel, self.n_features, self.regularization)
        return AlgorithmOneState(
            Chance.of(rng),
            self._first_oversampling,
            History(),
            none,
            none,
            prior,
            np.zeros(0),
            np.zeros(0),
            self._no_evidence(),
        )

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> AlgorithmOneState:
        """Lines 6–9, then the posterior on S_{t+1}."""
        old = self._state
        # σ̃²_t of all pulls including the new ones: cached for the earlier arms, computed for the rest.
        variance = np.empty(len(history.pulled))
        known = np.isin(history.pulled, old.history.pulled, assume_unique=True)
        new = history.pulled[~known]
        variance[known] = old.pulled_variance
        variance[~known] = self._moments_at(self._rows(history, new), self._diags(history, new))[1]
        information = self._information(variance[np.searchsorted(history.pulled, arms)], weights)
        return self._resparsified(old, history, variance, information)

    def _redrawn(self, oversampling: float) -> AlgorithmOneState:
        asked = replace(self._state, oversampling=oversampling)
        if not asked.history.n_observations:
            return asked
        return self._resparsified(asked, asked.history, asked.pulled_variance, asked.evidence.information)

    def _resparsified(self, old: AlgorithmOneState, history: History, variance: Array, information: float) -> AlgorithmOneState:
        """A dictionary for p̃ = q̄σ̃² (lines 6–9) and the posterior on it."""
        inclusion = inclusion_probability(variance, history.counts, old.oversampling)
        dictionary, chance = self._drawn(history.pulled, self._draw(old, history, variance, inclusion), old.chance)
        posterior, inducing = self._posterior(history, dictionary)
        observed = self._observations(history)
        pulled_variance = posterior.moments(observed.rows, observed.diag)[1]
        evidence = self._evidence(history, pulled_variance, posterior.norm, information, mean_spread=posterior.spread)
        return AlgorithmOneState(
            chance, old.oversampling, history, dictionary, inducing, posterior, inclusion, pulled_variance, evidence
        )

    def _draw(self, old: AlgorithmOneState, history: History, variance: Array, inclusion: Array) -> Array:
        """The probability (u,) with which each pulled arm is drawn now: Algorithm 1 draws all afresh."""
        return inclusion
