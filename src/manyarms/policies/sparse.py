"""Sparse Gaussian processes of fixed size: UCB on m inducing arms that are given, or drawn once, and never change.

With z(x) = L⁻¹k_S(x), V = Σnzzᵀ + λI and q = zᵀV⁻¹z as for BKB (names as in Quiñonero-Candela and Rasmussen, JMLR 2005):

    SoR   subset of regressors                   σ̃² = q          the prior variance of f is ‖z(x)‖², not k(x, x)
    DTC   deterministic training conditional     σ̃² = r/λ + q    r(x) = k(x, x) − ‖z(x)‖²

The mean zᵀw is the same. Neither has a regret guarantee for a dictionary that does not follow the pulls.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyarms.errors import ParameterError
from manyarms.numbers import whole
from manyarms.policies.base import Policy
from manyarms.policies.checks import as_arms
from manyarms.sketch.confidence import Constant, Evidence, Radius, alpha_in
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import represented_below
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array, ArrayLike, Indices, Mask, Seed


@dataclass(frozen=True)
class SparseState:
    """Everything that `observe` changes."""

    history: History
    posterior: Posterior
    evidence: Evidence


class DTC(Policy):
    """UCB on a fixed dictionary with the DTC variance, that of BKB. O(u m²) an observation, O(A m²) a choice.

    An arm that S does not represent keeps its r/λ however often it is pulled, so it may be pulled forever: no regret guarantee.
    `choose(None)` is one arm.

    inducing : the inducing arms by index, or how many to draw uniformly at random (all, if there are fewer).
    Other parameters as for `GPUCB`.
    """

    _state: SparseState
    _embedding: ClassVar[type[Embedding]] = Embedding

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        inducing: ArrayLike = 100,
        regularization: float = 0.01,
        confidence: Radius = Constant(2.0),
        seed: Seed = 0,
    ) -> None:
        self._asked = inducing
        super().__init__(arms, kernel, regularization=regularization, confidence=confidence, seed=seed)

    @property
    def inducing(self) -> Indices:
        """The arms the posterior rests on, in index order: S without those that the others represent."""
        return self._inducing.copy()

    def _first_state(self, rng: np.random.Generator) -> SparseState:
        dictionary = self._dictionary(rng)
        kappa2 = float(self._diag[dictionary].max())
        tolerance = represented_below(len(dictionary), kappa2, self.regularization, 1.0)
        embedding, kept = self._embedding.fit(self.kernel, self.arms[dictionary], tolerance)
        self._inducing = np.sort(dictionary[kept])
        nothing = np.zeros(0)
        prior = Posterior.solve(embedding, np.zeros((0, len(kept))), nothing, nothing, self.regularization)
        return SparseState(History(), prior, self._no_evidence())

    def _dictionary(self, rng: np.random.Generator) -> Indices:
        """S, as it was asked for."""
        if np.ndim(self._asked) == 0:
            return rng.permutation(self.n_arms)[: whole(self._asked, "inducing (unless arms by index)")]
        arms = np.unique(as_arms(self._asked, self.n_arms))
        if not len(arms):
            raise ParameterError("inducing must hold at least one arm, got none")
        return arms

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> SparseState:
        old, posterior = self._state, self._posterior(history)
        before = old.posterior.moments(self.arms[arms], self._diag[arms])[1]
        information = old.evidence.information + float(np.log1p(alpha_in(self.confidence) * weights * before).sum())
        variance = posterior.moments(self.arms[history.pulled], self._diag[history.pulled])[1]
        return SparseState(history, posterior, self._evidence(history, variance, posterior.norm, information))

    def _batch(self, outstanding: Indices, barred: Mask | None) -> Indices:
        """One arm at a time: Batch-BKB's rule would end batches of unrepresented arms at once, those of starved ones never."""
        return np.zeros(0, dtype=np.intp) if len(outstanding) else self.choose(exclude=() if barred is None else barred)

    def _posterior(self, history: History) -> Posterior:
        embedding, observed = self._state.posterior.embedding, self._observations(history)
        Z, _ = embedding(observed.rows, observed.diag)
        return Posterior.solve(embedding, Z, observed.counts, observed.sums, self.regularization)

    def _moments(self) -> tuple[Array, Array]:
        return self._moments_at(self.arms, self._diag)

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._state.posterior.moments(X, diag)

    def _lookahead(self, *, append: bool) -> "_Supposed":
        return _Supposed(self)


@dataclass(frozen=True)
class Projected(Embedding):
    """The kernel replaced by its projection k̃(x, y) = z(x)ᵀz(y): nothing is left outside the span."""

    def __call__(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """z(x) (n, m), and no residual (n,)."""
        Z, _ = super().__call__(X, diag)
        return Z, np.zeros(len(X))


class SoR(DTC):
    """UCB on a fixed dictionary with the subset of regressors' variance, the GP whose kernel is zᵀz (Silverman 1985).

    Far from S both mean and variance vanish, whatever was observed: arms there are never explored ("variance starvation", the
    paper's Figure 1). No regret guarantee. Parameters as for `DTC`.
    """

    _embedding = Projected


class _Supposed:
    """Variances if more arms were pulled. S stays as it is: so do the r/λ, in a batch as in a run."""

    def __init__(self, policy: DTC) -> None:
        self._policy, self._history = policy, policy._state.history
        self.variance = policy.scores().variance

    def pull(self, arms: Indices) -> None:
        arms, nothing, weights = by_arm(arms, np.zeros(len(arms)), np.ones(len(arms)))
        self._history = self._history.add(arms, nothing, weights)
        policy = self._policy
        self.variance = policy._posterior(self._history).moments(policy.arms, policy._diag)[1]
