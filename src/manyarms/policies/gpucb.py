"""GP-UCB (Srinivas, Krause, Kakade, Seeger; ICML 2010) with the exact posterior, updated in O(A·u) a step.

An observation of arm i with weight ω (1 by default) turns the posterior covariance c(x, x′) of f into

    c(x, x′) − e(x) e(x′),   e(x) = c(x, i)/√(λ/ω + c(i, i)),   c(x, i) = k(x, i) − Σ_s e_s(x) e_s(i),

so one more row e is all that has to be remembered. Repeated pulls would make rows grow with t; once there are more than about
twice as many rows as distinct arms, the rows are rebuilt from the distinct arms and their counts. Both steps are O(A·u),
the second one amortised.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.policies.base import Policy
from manyarms.sketch.confidence import Constant, Evidence, Radius
from manyarms.sketch.embedding import PSD_TOLERANCE
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.history import History
from manyarms.sketch.observations import Observations
from manyarms.typing import Array, ArrayLike, Indices, Seed

SPARE_ROWS = 32
"""Rows are rebuilt when there are more than 2u + SPARE_ROWS of them."""


@dataclass
class _Rows:
    """Rows e_s, of which the first `claimed` belong to some state."""

    E: Array
    claimed: int = 0


class _Covariance:
    """Posterior covariance of f over all arms, as k − Σ_s e_s e_sᵀ, with its diagonal and the mean kept up to date.

    A copy shares the rows until it writes: behind rows that a state has claimed, it writes into rows of its own.
    """

    def __init__(self, arms: Array, diag: Array, kernel: Kernel, regularization: float) -> None:
        self._arms, self._diag, self._kernel, self._regularization = arms, diag, kernel, regularization
        self._rows = _Rows(np.empty((SPARE_ROWS, len(arms))))
        self.n_rows = 0
        self.mean = np.zeros(len(arms))
        self.diagonal = diag.copy()  # (A,) λσ²

    @property
    def variance(self) -> Array:
        """σ² in leverage units, (A,)."""
        return self.diagonal / self._regularization

    def copy(self) -> "_Covariance":
        other = _Covariance.__new__(_Covariance)
        other.__dict__.update(self.__dict__)
        other.mean, other.diagonal = self.mean.copy(), self.diagonal.copy()
        return other

    def pull(self, arms: Indices) -> None:
        """Suppose these arms were pulled once more each (`Lookahead`)."""
        for arm in arms:
            self.observe(int(arm), self.mean[arm], 1.0)

    def observe(self, arm: int, reward: float, weight: float) -> float:
        """Condition on one reward. Returns σ²(arm) as it was before, in leverage units."""
        noise = self._regularization / weight
        E = self._rows.E[: self.n_rows]
        c = self._kernel(self._arms, self._arms[arm : arm + 1])[:, 0]
        c -= E.T @ E[:, arm]
        before = float(self.diagonal[arm])
        scale = np.sqrt(noise + before)
        e = c / scale
        with np.errstate(over="ignore", invalid="ignore"):
            self.mean += e * ((reward - self.mean[arm]) / scale)
        self._append(e)
        self._subtract(np.square(e), self._arms[arm])
        return before / self._regularization

    def rebuild(self, observed: Observations) -> None:
        """The same covariance with one row for each distinct arm."""
        posterior = ExactPosterior.fit(self._kernel, observed, self._regularization)
        E = posterior.coordinates(self._arms)
        self._rows = _Rows(E)
        self.n_rows = len(E)
        self.mean = E.T @ posterior.b
        self.diagonal = self._diag.copy()
        self._subtract(np.einsum("ij,ij->j", E, E), observed.rows[-1])

    def claim(self) -> None:
        """Keep the rows written so far: from now on they belong to a state."""
        self._rows.claimed = self.n_rows

    def _append(self, e: Array) -> None:
        if self.n_rows == len(self._rows.E) or self.n_rows < self._rows.claimed:
            grown = np.empty((2 * self.n_rows + SPARE_ROWS, len(e)))
            grown[: self.n_rows] = self._rows.E[: self.n_rows]
            self._rows = _Rows(grown)
        self._rows.E[self.n_rows] = e
        self.n_rows += 1

    def _subtract(self, squares: Array, observed: Array) -> None:
        """λσ² −= e²; `observed` is the row to name should that be impossible."""
        self.diagonal -= squares
        worst = int(self.diagonal.argmin())
        if self.diagonal[worst] < -PSD_TOLERANCE * self._diag.max():
            raise KernelError(
                f"the kernel is not positive semi-definite: x = {self._arms[worst]} has the negative variance "
                f"{self.diagonal[worst]:.3g} once y = {observed} is observed; use a kernel that is a covariance"
            )
        np.maximum(self.diagonal, 0.0, out=self.diagonal)


@dataclass(frozen=True)
class GPUCBState:
    """Everything that `observe` changes."""

    history: History
    covariance: _Covariance
    evidence: Evidence


class GPUCB(Policy):
    """Exact GP-UCB: the strong baseline, and what BKB is compared with in tests. Memory and a step are O(A·u).

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that holds one. A float64 or float32
        array is not copied, so leave it unchanged while in use.
    kernel : a `manyarms.kernels` kernel, a scikit-learn kernel object or a function of two blocks of rows.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a reason.
    confidence : the radius β of the scores.
    seed : an integer or a numpy Generator, for the first arm.
    """

    _state: GPUCBState
    _exact = True

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        regularization: float = 0.01,
        confidence: Radius = Constant(2.0),
        seed: Seed = 0,
    ) -> None:
        super().__init__(arms, kernel, regularization=regularization, confidence=confidence, seed=seed)

    def _first_state(self, rng: np.random.Generator) -> GPUCBState:
        covariance = _Covariance(self.arms, self._diag, self.kernel, self.regularization)
        return GPUCBState(History(), covariance, self._no_evidence())

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> GPUCBState:
        old = self._state
        covariance = old.covariance.copy()
        information = old.evidence.information
        for arm, reward, weight in zip(arms, rewards, weights, strict=True):
            information += float(np.log1p(weight * covariance.observe(int(arm), reward, weight)))
        if covariance.n_rows > 2 * len(history.pulled) + SPARE_ROWS:
            covariance.rebuild(self._observations(history))
        if not np.isfinite(covariance.mean).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        norm = self._mean_norm(history, covariance.mean[history.pulled])
        evidence = self._evidence(history, covariance.variance[history.pulled], norm, information)
        covariance.claim()
        return GPUCBState(history, covariance, evidence)

    def _mean_norm(self, history: History, mean: Array) -> float:
        """‖μ‖ = √(aᵀK_UU a), where K_UU a = μ_U and λN⁻¹a = s/n − μ_U."""
        with np.errstate(over="ignore", invalid="ignore"):
            squared = float(mean @ (history.sums - history.counts * mean)) / self.regularization
        return float(np.sqrt(max(0.0, squared)))

    def _moments(self) -> tuple[Array, Array]:
        covariance = self._state.covariance
        return covariance.mean.copy(), covariance.variance

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        history = self._state.history
        if not history.n_observations:
            return np.zeros(len(X)), diag / self.regularization
        return ExactPosterior.fit(self.kernel, self._observations(history), self.regularization).moments(X, diag)

    def _lookahead(self, *, append: bool) -> _Covariance:
        return self._state.covariance.copy()
