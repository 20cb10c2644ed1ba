"""GP-UCB (Srinivas, Krause, Kakade, Seeger; ICML 2010) with the exact posterior, updated in O(A·u) a step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.policies.base import Policy
from manyarms.sketch.confidence import Constant, Evidence, Radius
from manyarms.sketch.covariance import Covariance
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.history import History
from manyarms.typing import Array, ArrayLike, Indices, Seed


@dataclass(frozen=True)
class GPUCBState:
    """Everything that `observe` changes."""

    history: History
    covariance: Covariance
    evidence: Evidence


class GPUCB(Policy):
    """Exact GP-UCB: the strong baseline, and what BKB is compared with in tests. Memory and a step are O(A·u).

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that holds one. A float64 or float32
        array is not copied, so leave it unchanged while in use. With a kernel of objects: a sequence of objects.
        None where there is no table: arms then come with every
        ``choose(arms=…)``, as rows of `n_features` numbers, and A is the number of different rows observed.
    kernel : a `manyarms.kernels` kernel, a scikit-learn kernel object or a function of two blocks of rows.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a reason.
    confidence : the radius β of the scores.
    seed : an integer or a numpy Generator, for the first arm.
    n_features : d, only where `arms` is None.
    """

    _state: GPUCBState
    _exact = True
    _takes_rows = True

    def __init__(
        self,
        arms: ArrayLike | str | Path | None,
        kernel: Any,
        *,
        regularization: float = 0.01,
        confidence: Radius = Constant(2.0),
        seed: Seed = 0,
        n_features: int | None = None,
    ) -> None:
        super().__init__(arms, kernel, regularization=regularization, confidence=confidence, seed=seed, n_features=n_features)

    def _first_state(self, rng: np.random.Generator) -> GPUCBState:
        covariance = Covariance(self.arms, self._diag, self.kernel, self.regularization)
        return GPUCBState(History(), covariance, self._no_evidence())

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> GPUCBState:
        known = self._state.covariance.joined(*history.seen.since(len(self._state.history.seen)))
        covariance, before = known.observed(history, arms, rewards, weights)
        information = self._state.evidence.information + float(np.log1p(weights * before).sum())
        norm, variance = covariance.mean_norm(history), covariance.variance[history.pulled]
        spread = covariance.mean_spread(history) if self._state.evidence.norm is not None else None
        evidence = self._evidence(history, variance, norm, information, mean_spread=spread)
        return GPUCBState(history, covariance, evidence)

    def _moments(self) -> tuple[Array, Array]:
        covariance = self._state.covariance
        return covariance.mean[: self.n_arms].copy(), covariance.variance[: self.n_arms]

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        history = self._state.history
        if not history.n_observations:
            return np.zeros(len(X)), diag / self.regularization
        return ExactPosterior.fit(self.kernel, self._observations(history), self.regularization).moments(X, diag)

    def _lookahead(self, *, append: bool) -> Covariance:
        return self._state.covariance.copy()

    def _among(self, X: Array, diag: Array, *, append: bool) -> Covariance:
        return self._state.covariance.at(X, diag)
