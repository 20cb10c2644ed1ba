"""The exact posterior of all arms at once, updated in O(A·u) an observation.

An observation of arm i with weight ω (1 by default) turns the posterior covariance c(x, x′) of f into

    c(x, x′) − e(x) e(x′),   e(x) = c(x, i)/√(λ/ω + c(i, i)),   c(x, i) = k(x, i) − Σ_s e_s(x) e_s(i),

so one more row e is all that has to be remembered. Repeated pulls would make rows grow with t; once there are more than about
twice as many rows as distinct arms, the rows are rebuilt from the distinct arms and their counts. Both steps are O(A·u),
the second one amortised.
"""

from dataclasses import dataclass

import numpy as np

from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.sketch.embedding import PSD_TOLERANCE
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.history import History
from manyarms.sketch.linalg import EPS, TINY
from manyarms.sketch.observations import Observations
from manyarms.typing import Array, Indices

SPARE_ROWS = 32
"""Rows are rebuilt when there are more than 2u + SPARE_ROWS of them."""


@dataclass
class _Rows:
    """Rows e_s, of which the first `claimed` belong to some state."""

    E: Array
    claimed: int = 0


class Covariance:
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

    def copy(self) -> "Covariance":
        """A version of its own, to suppose pulls in."""
        other = Covariance.__new__(Covariance)
        other.__dict__.update(self.__dict__)
        other.mean, other.diagonal = self.mean.copy(), self.diagonal.copy()
        return other

    def pull(self, arms: Indices) -> None:
        """Suppose these arms were pulled once more each (`Lookahead`)."""
        for arm in arms:
            self.observe(int(arm), self.mean[arm], 1.0)

    def observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> tuple["Covariance", Array]:
        """The covariance after these rewards, each arm once, and σ² (n,) of each just before; `history` includes them."""
        new = self.copy()
        before = np.array([new.observe(*each) for each in zip(arms.tolist(), rewards, weights, strict=True)])
        if new.n_rows > 2 * len(history.pulled) + SPARE_ROWS:
            pulled = history.pulled
            new._rebuild(Observations(self._arms[pulled], self._diag[pulled], history.counts, history.sums))
        if not np.isfinite(new.mean).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        new._rows.claimed = new.n_rows
        return new, before

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

    def _rebuild(self, observed: Observations) -> None:
        """The same covariance with one row for each distinct arm."""
        posterior = ExactPosterior.fit(self._kernel, observed, self._regularization)
        E = posterior.coordinates(self._arms)
        self._rows = _Rows(E)
        self.n_rows = len(E)
        self.mean = E.T @ posterior.b
        self.diagonal = self._diag.copy()
        self._subtract(np.einsum("ij,ij->j", E, E), observed.rows[-1])

    def mean_norm(self, history: History) -> float:
        """‖μ‖ = √(aᵀK_UU a), where K_UU a = μ_U and λN⁻¹a = s/n − μ_U."""
        with np.errstate(over="ignore", invalid="ignore"):
            squared = float(self.mean[history.pulled] @ self._dual(history))
        return float(np.sqrt(max(0.0, squared)))

    def mean_spread(self, history: History) -> float:
        """σ of ⟨f, μ/‖μ‖⟩: λσ²‖μ‖² = aᵀ(K_UU − EᵀE)a, which is known up to rounding."""
        a, squared = self._dual(history), self.mean_norm(history) ** 2
        with np.errstate(over="ignore", invalid="ignore"):
            explained = float(np.square(self._rows.E[: self.n_rows, history.pulled] @ a).sum())
        left = max(squared - explained, len(a) * EPS * squared)
        return float(np.sqrt(left / self._regularization / max(squared, TINY)))

    def _dual(self, history: History) -> Array:
        """a, (u,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return (history.sums - history.counts * self.mean[history.pulled]) / self._regularization

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
