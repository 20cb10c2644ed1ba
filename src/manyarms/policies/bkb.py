"""BKB: budgeted kernel bandits (Calandriello, Carratino, Lazaric, Valko, Rosasco; COLT 2019), Algorithm 1 as printed.

    1  Select uniformly at random x₁ and observe y₁
    2  Initialize S₁ = {x₁}
    3  for t = 1, …, T − 1
    4      Compute μ̃_t(x_i) and σ̃²_t(x_i) for all x_i ∈ A
    5      Select x̃_{t+1} = argmax ũ_t(x_i)                          (Eq. 3)
    6      for i = 1, …, t + 1
    7          Set p̃_{t+1,i} = q̄ · σ̃²_t(x̃_i)
    8          Draw q_{t+1,i} ~ Bernoulli(p̃_{t+1,i})
    9          If q_{t+1,i} = 1 include x̃_i in S_{t+1}

`choose` is lines 1 and 4–5, `observe` is lines 6–9. What the print leaves open: p̃ above 1 counts as 1, pulls of one arm share
one draw of the same law, and an empty draw keeps the most probable arm.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.errors import ParameterError
from manyarms.numbers import real
from manyarms.policies.base import Policy
from manyarms.policies.history import History, by_arm
from manyarms.sketch.confidence import Constant, Evidence, Radius, alpha_in
from manyarms.sketch.dictionary import draw_dictionary, inclusion_probability
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.linalg import represented_below
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array, ArrayLike, Indices, Seed


@dataclass(frozen=True)
class BKBState:
    """Everything that `observe` and `redraw` change. A value: the generator is copied before it draws."""

    rng: np.random.Generator
    oversampling: float  # q̄
    history: History
    dictionary: Indices  # S, sampled
    inducing: Indices  # S without the arms that the others represent
    posterior: Posterior
    pulled_variance: Array  # (u,) σ̃²_t at the pulled arms
    evidence: Evidence


class BKB(Policy):
    """GP-UCB on a Nyström sketch whose inducing arms are redrawn by ridge leverage scores.

    Theorem 1: with ``oversampling=oversampling_for(epsilon, delta, T)``, σ²/α ≤ σ̃² ≤ ασ² for all arms and all t ≤ T with
    probability 1 − δ. Theorem 2: with `Theory` or `LogDet` as well, regret Õ(√T·d_eff).

    arms : (A, d) array of finite numbers; a float64 array is not copied, so leave it unchanged while in use.
    kernel : a `manyarms.kernels` kernel, a scikit-learn kernel object or a function of two blocks of rows.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a reason.
    oversampling : q̄ of line 7. About 5 is accurate in practice.
    confidence : the radius β̃ of the scores.
    resparsify : "always" redraws the dictionary at every observation, as printed; O(A m²) a step.
    seed : an integer or a numpy Generator, which is copied.
    """

    _state: BKBState

    def __init__(
        self,
        arms: ArrayLike,
        kernel: Any,
        *,
        regularization: float = 0.01,
        oversampling: float = 5.0,
        confidence: Radius = Constant(2.0),
        resparsify: str = "always",
        seed: Seed = 0,
    ) -> None:
        self._first_oversampling = _oversampling(oversampling)
        super().__init__(arms, kernel, regularization=regularization, confidence=confidence, seed=seed)
        if resparsify != "always":
            raise ParameterError(f'resparsify must be "always", got {resparsify!r}')
        self.resparsify = resparsify

    @property
    def oversampling(self) -> float:
        """q̄ of line 7."""
        return self._state.oversampling

    @property
    def dictionary(self) -> Indices:
        """S_t, the arms drawn at the last observation, in index order."""
        return self._state.dictionary.copy()

    @property
    def inducing(self) -> Indices:
        """The arms the posterior rests on: S_t without those that the others represent to rounding."""
        return np.sort(self._state.inducing)

    def redraw(self, oversampling: float | None = None) -> None:
        """Draw the dictionary anew for the arms seen so far, with another q̄ where one is given.

        The paper's "Tuning q̄": to go on past the planned horizon, pass ``oversampling_for(epsilon, delta / 2, horizon)``.
        """
        old = self._state
        asked = replace(old, oversampling=old.oversampling if oversampling is None else _oversampling(oversampling))
        if old.history.n_observations:
            asked = self._resparsified(asked, old.history, old.pulled_variance, old.evidence.information)
        self._state = asked

    def _moments(self) -> tuple[Array, Array]:
        """Line 4."""
        return self._moments_at(self.arms, self._diag)

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._state.posterior.moments(X, diag)

    def _first_state(self, rng: np.random.Generator) -> BKBState:
        none = np.zeros(0, dtype=np.intp)
        prior = Posterior.prior(self.kernel, self.arms.shape[1], self.regularization)
        return BKBState(rng, self._first_oversampling, History(), none, none, prior, np.zeros(0), self._no_evidence())

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> BKBState:
        """Lines 6–9, then the posterior on S_{t+1}."""
        old = self._state
        # σ̃²_t of all pulls including the new ones: cached for the earlier arms, computed for the rest.
        variance = np.empty(len(history.pulled))
        known = np.isin(history.pulled, old.history.pulled, assume_unique=True)
        new = history.pulled[~known]
        variance[known] = old.pulled_variance
        variance[~known] = self._moments_at(self.arms[new], self._diag[new])[1]
        anchors = variance[np.searchsorted(history.pulled, arms)]
        information = old.evidence.information + float(np.log1p(alpha_in(self.confidence) * weights * anchors).sum())
        return self._resparsified(old, history, variance, information)

    def _resparsified(self, old: BKBState, history: History, variance: Array, information: float) -> BKBState:
        """A fresh dictionary with p̃ = q̄σ̃² (lines 6–9) and the posterior on it."""
        rng = deepcopy(old.rng)
        probability = inclusion_probability(variance, history.counts, old.oversampling)
        dictionary = draw_dictionary(history.pulled, probability, rng)
        posterior, inducing = self._posterior(history, dictionary)
        pulled_variance = posterior.moments(self.arms[history.pulled], self._diag[history.pulled])[1]
        evidence = self._evidence(history, pulled_variance, posterior.norm, information)
        return BKBState(rng, old.oversampling, history, dictionary, inducing, posterior, pulled_variance, evidence)

    def _posterior(self, history: History, dictionary: Indices) -> tuple[Posterior, Indices]:
        """The posterior on a dictionary of pulled arms, and the inducing arms it kept.

        A dictionary of all pulled arms makes the posterior the exact one, so it is kept whole.
        """
        tolerance = None
        if len(dictionary) < len(history.pulled):
            kappa2, most = float(self._diag[dictionary].max()), float(history.counts.max())
            tolerance = represented_below(len(dictionary), kappa2, self.regularization, most)
        embedding, kept = Embedding.fit(self.kernel, self.arms[dictionary], tolerance)
        inducing = dictionary[kept]
        where = np.searchsorted(history.pulled, inducing)
        return Posterior.fit(embedding, where, self._observations(history), self.regularization), inducing

    def _lookahead(self) -> "_Supposed":
        return _Supposed(self)


class _Supposed:
    """Variances if more arms were pulled, each appended to the dictionary too: on a fixed dictionary a pull leaves r/λ as it
    is, and a batch would hold the same unexplored arm again and again."""

    def __init__(self, policy: BKB) -> None:
        self._policy = policy
        self._history = policy._state.history
        self._dictionary = policy._state.inducing
        self.variance = policy.scores().variance

    def pull(self, arms: Indices) -> None:
        policy = self._policy
        arms, nothing, weights = by_arm(arms, np.zeros(len(arms)), np.ones(len(arms)))
        self._history = self._history.add(arms, nothing, weights)
        self._dictionary = np.union1d(self._dictionary, arms)
        posterior, _ = policy._posterior(self._history, self._dictionary)
        self.variance = posterior.moments(policy.arms, policy._diag)[1]


def _oversampling(value: Any) -> float:
    return real(value, "oversampling", "a positive number, q̄ of Algorithm 1", above=0)
