"""Sparse Gaussian processes of fixed size: UCB on m inducing arms that are given, or drawn once, and never change.

With z(x) = L⁻¹k_S(x), V = Σnzzᵀ + λI and q = zᵀV⁻¹z as for BKB (names as in Quiñonero-Candela and Rasmussen, JMLR 2005):

    SoR   subset of regressors                   σ̃² = q          the prior variance of f is ‖z(x)‖², not k(x, x)
    DTC   deterministic training conditional     σ̃² = r/λ + q    r(x) = k(x, x) − ‖z(x)‖²

The mean zᵀw is the same. Neither has a regret guarantee for a dictionary that does not follow the pulls.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.errors import NumericalError, ParameterError
from manyarms.numbers import whole
from manyarms.policies.base import Policy
from manyarms.policies.checks import as_arms
from manyarms.sketch.confidence import Constant, Evidence, Radius, alpha_in
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import chunks, represented_below
from manyarms.sketch.ridge import Ridge
from manyarms.typing import Array, ArrayLike, Indices, Mask, Seed


@dataclass(frozen=True)
class SparseState:
    """Everything that `observe` changes."""

    history: History
    model: Ridge  # on z(x): its variance is q
    evidence: Evidence


class DTC(Policy):
    """UCB on a fixed dictionary with the DTC variance, that of BKB: z(x) of all arms is computed once, a step is O(A m).

    An arm that S does not represent keeps its r/λ however often it is pulled, so it may be pulled forever: no regret guarantee.
    `choose(None)` is one arm.

    inducing : the inducing arms by index, or how many to draw uniformly at random (all, if there are fewer).
    Other parameters as for `GPUCB`.
    """

    _state: SparseState

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
        self._embedding, kept = Embedding.fit(self.kernel, self.arms[dictionary], tolerance)
        self._inducing = np.sort(dictionary[kept])
        Z, self._outside = np.empty((self.n_arms, len(kept))), np.empty(self.n_arms)
        for rows in chunks(self.n_arms, len(kept)):
            Z[rows], self._outside[rows] = self._embedded(self.arms[rows], self._diag[rows])
        return SparseState(History(), Ridge.prior(Z, self.regularization), self._no_evidence())

    def _embedded(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """z(x), and the part of σ̃² that no observation shrinks."""
        Z, r = self._embedding(X, diag)
        return Z, np.maximum(r, 0.0) / self.regularization

    def _dictionary(self, rng: np.random.Generator) -> Indices:
        """S, as it was asked for."""
        if np.ndim(self._asked) == 0:
            return rng.permutation(self.n_arms)[: whole(self._asked, "inducing (unless arms by index)")]
        arms = np.unique(as_arms(self._asked, self.n_arms))
        if not len(arms):
            raise ParameterError("inducing must hold at least one arm, got none")
        return arms

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> SparseState:
        old = self._state
        model = old.model.observed(arms, rewards, weights)
        if not np.isfinite(model.mean).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        before = self._outside[arms] + old.model.variance[arms]
        information = old.evidence.information + float(np.log1p(alpha_in(self.confidence) * weights * before).sum())
        variance = self._outside[history.pulled] + model.variance[history.pulled]
        return SparseState(history, model, self._evidence(history, variance, model.norm, information))

    def _batch(self, outstanding: Indices, barred: Mask | None) -> Indices:
        """One arm at a time: Batch-BKB's rule would end batches of unrepresented arms at once, those of starved ones never."""
        return np.zeros(0, dtype=np.intp) if len(outstanding) else self.choose(exclude=() if barred is None else barred)

    def _moments(self) -> tuple[Array, Array]:
        return self._state.model.mean, self._outside + self._state.model.variance

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        Z, outside = self._embedded(X, diag)
        mean, inside = self._state.model.moments(Z)
        return mean, outside + inside

    def _lookahead(self, *, append: bool) -> "_Supposed":
        return _Supposed(self._state.model, self._outside)


class SoR(DTC):
    """UCB on a fixed dictionary with the subset of regressors' variance, the GP whose kernel is zᵀz (Silverman 1985).

    Far from S both mean and variance vanish, whatever was observed: arms there are never explored ("variance starvation", the
    paper's Figure 1). No regret guarantee. Parameters as for `DTC`.
    """

    def _embedded(self, X: Array, diag: Array) -> tuple[Array, Array]:
        Z, r = super()._embedded(X, diag)
        return Z, np.zeros_like(r)


class _Supposed:
    """Variances if more arms were pulled. S stays as it is: so do the r/λ, in a batch as in a run."""

    def __init__(self, model: Ridge, outside: Array) -> None:
        self._model, self._outside = model, outside

    @property
    def variance(self) -> Array:
        return self._outside + self._model.variance

    def pull(self, arms: Indices) -> None:
        self._model = self._model.observed(*by_arm(arms, np.zeros(len(arms)), np.ones(len(arms))))
