"""The exact posterior of all arms at once, updated in O(A·u) an observation.

An observation of arm i with weight ω turns the posterior covariance c(x, x′) of f into

    c(x, x′) − e(x) e(x′),
    e(x) = c(x, i)/√(λ/ω + c(i, i)),   c(x, i) = k(x, i) − Σ_s e_s(x) e_s(i),

so one more row e is all that has to be remembered. Repeated pulls would make rows grow with t; once
there are more than about twice as many rows as distinct arms, the rows are rebuilt from the
distinct arms and their counts. Both steps are O(A·u), the second one amortised.
"""

from dataclasses import dataclass

import numpy as np

from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import shown
from manyarms.sketch.embedding import PSD_TOLERANCE
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.growing import Stack
from manyarms.sketch.history import History
from manyarms.sketch.linalg import EPS, TINY, solve_lower
from manyarms.sketch.observations import Observations
from manyarms.typing import Array, Indices

SPARE_ROWS = 32
"""Rows are rebuilt when there are more than 2u + SPARE_ROWS of them."""


@dataclass
class _Rows:
    """Rows e_s, the first `claimed` of which belong to some value, and what was observed there."""

    E: Array  # (·, A)
    arms: Indices  # (·,) i
    scales: Array  # (·,) √(λ/ω + c(i, i))
    surprises: Array  # (·,) (y − μ(i)) over the scale: μ = Σ_s e_s times it
    claimed: int = 0

    @classmethod
    def room(cls, n: int, n_arms: int) -> "_Rows":
        return cls(np.empty((n, n_arms)), np.empty(n, dtype=np.intp), np.empty(n), np.empty(n))

    def first(self, n: int, n_more_arms: int = 0) -> "_Rows":
        """A copy of the first n, with room for more, and for more arms."""
        n_arms = self.E.shape[1]
        other = _Rows.room(2 * n + SPARE_ROWS, n_arms + n_more_arms)
        other.E[:n, :n_arms] = self.E[:n]
        other.arms[:n] = self.arms[:n]
        other.scales[:n] = self.scales[:n]
        other.surprises[:n] = self.surprises[:n]
        return other


class Covariance:
    """A value: posterior covariance of f over all arms, k − Σ_s e_s e_sᵀ, its diagonal, the mean.

    Values share rows. One that would write where another has claimed rows copies them first.
    """

    def __init__(self, arms: Array, diag: Array, kernel: Kernel, regularization: float) -> None:
        self._arms = arms
        self._diag = diag
        self._kernel = kernel
        self.regularization = regularization
        self._rows = _Rows.room(SPARE_ROWS, len(arms))
        self.n_rows = 0
        self.mean = np.zeros(len(arms))
        self.diagonal = diag.copy()  # (A,) λσ²

    @property
    def variance(self) -> Array:
        """σ² in leverage units, (A,)."""
        return self.diagonal / self.regularization

    def prior_at(self, arms: Indices) -> Array:
        """k(x, x) of arms, (n,)."""
        return self._diag[arms]

    def observations(self, history: History) -> Observations:
        """What was observed, with the rows of the arms."""
        pulled = history.pulled
        return Observations(self._arms[pulled], self._diag[pulled], history.counts, history.sums)

    def _copy(self) -> "Covariance":
        """A version of its own, which shares the rows."""
        other = Covariance.__new__(Covariance)
        other.__dict__.update(self.__dict__)
        other.mean = self.mean.copy()
        other.diagonal = self.diagonal.copy()
        return other

    def at(self, rows: Array, diag: Array) -> "Covariance":
        """The same posterior at other rows: e(x) = G⁻¹k(x), with an entry for each observation.

        What an observation of i_s adds is e_s(x) = (k(x, i_s) − Σ_{r<s} e_r(x) e_r(i_s))/scale_s:
        so G, lower triangular, has the scales on its diagonal and e_r(i_s), r < s, beside it.
        """
        made = Covariance(rows, diag, self._kernel, self.regularization)
        n = self.n_rows
        if n:
            known = self._rows
            observed = known.arms[:n]
            G = np.tril(known.E[:n, observed].T, -1)
            np.fill_diagonal(G, known.scales[:n])
            E = solve_lower(G, self._kernel(rows, self._arms[observed]).T)
            last = self._arms[observed[-1]]
            made._hold(E, observed, known.scales[:n], known.surprises[:n], last)
        return made

    def joined(self, rows: Array, diag: Array) -> "Covariance":
        """The same posterior with these rows as further arms."""
        if not len(rows):
            return self
        n = self.n_rows
        other = self.at(rows, diag)
        new = self._copy()
        new._arms = np.vstack([self._arms, rows])
        new._diag = np.concatenate([self._diag, diag])
        new.mean = np.concatenate([self.mean, other.mean])
        new.diagonal = np.concatenate([self.diagonal, other.diagonal])
        new._rows = self._rows.first(n, len(rows))
        new._rows.E[:n, len(self.mean) :] = other._rows.E[:n]
        return new

    def supposing(self, arms: Indices) -> "Supposed":
        """If these arms were pulled once more each."""
        return Supposed(self, Stack(np.empty((0, len(self.mean)))), self.diagonal).supposing(arms)

    def observed(
        self, history: History, arms: Indices, rewards: Array, weights: Array
    ) -> tuple["Covariance", Array]:
        """After these rewards, each arm once, and σ² (n,) of each just before.

        The history includes them.
        """
        new = self._copy()
        told = zip(arms.tolist(), rewards, weights, strict=True)
        before = np.array([new._observe(*each) for each in told])
        if new.n_rows > 2 * len(history.pulled) + SPARE_ROWS:
            new._rebuild(history)
        if not np.isfinite(new.mean).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        new._rows.claimed = new.n_rows
        return new, before

    def _observe(self, arm: int, reward: float, weight: float) -> float:
        """Condition on one reward. Returns σ²(arm) as it was before, in leverage units."""
        noise = self.regularization / weight
        c = self.column(arm)
        before = float(self.diagonal[arm])
        scale = np.sqrt(noise + before)
        e = c / scale
        with np.errstate(over="ignore", invalid="ignore"):
            surprise = (reward - self.mean[arm]) / scale
            self.mean += e * surprise
        self._append(e, arm, scale, surprise)
        self.lower(self.diagonal, np.square(e), self._arms[arm])
        return before / self.regularization

    def column(self, arm: int) -> Array:
        """c(x, i) of all arms x, (A,)."""
        E = self._rows.E[: self.n_rows]
        c = self._kernel(self._arms, self._arms[arm : arm + 1])[:, 0]
        c -= E.T @ E[:, arm]
        return c

    def _rebuild(self, history: History) -> None:
        """The same covariance with one row for each distinct arm."""
        observed = self.observations(history)
        posterior = ExactPosterior.fit(self._kernel, observed, self.regularization)
        E = posterior.coordinates(self._arms)
        self._hold(E, history.pulled, np.diag(posterior.G), posterior.b, observed.rows[-1])

    def _hold(
        self, E: Array, arms: Indices, scales: Array, surprises: Array, observed: Array
    ) -> None:
        """Take these rows for all; `observed` is one to name should they be impossible."""
        self._rows = _Rows(E, arms, scales, surprises)
        self.n_rows = len(E)
        self.mean = E.T @ surprises
        self.diagonal = self._diag.copy()
        self.lower(self.diagonal, np.einsum("ij,ij->j", E, E), observed)

    def mean_in_norm(self, history: History) -> tuple[float, float]:
        """‖μ‖, and σ of ⟨f, μ/‖μ‖⟩.

        ‖μ‖² = aᵀK_UU a, where K_UU a = μ_U and λN⁻¹a = s/n − μ_U;
        λσ²‖μ‖² = aᵀ(K_UU − EᵀE)a, known up to rounding.
        """
        pulled = history.pulled
        with np.errstate(over="ignore", invalid="ignore"):
            a = (history.sums - history.counts * self.mean[pulled]) / self.regularization
            norm = float(np.sqrt(max(0.0, float(self.mean[pulled] @ a))))
            explained = float(np.square(self._rows.E[: self.n_rows, pulled] @ a).sum())
        squared = norm**2
        left = max(squared - explained, len(a) * EPS * squared)
        return norm, float(np.sqrt(left / self.regularization / max(squared, TINY)))

    def _append(self, e: Array, arm: int, scale: float, surprise: float) -> None:
        n = self.n_rows
        if n == len(self._rows.E) or n < self._rows.claimed:
            self._rows = self._rows.first(n)
        rows = self._rows
        rows.E[n] = e
        rows.arms[n] = arm
        rows.scales[n] = scale
        rows.surprises[n] = surprise
        self.n_rows += 1

    def lower(self, diagonal: Array, squares: Array, observed: Array) -> None:
        """λσ² −= e², in place; `observed` is the row to name should that be impossible."""
        diagonal -= squares
        worst = int(diagonal.argmin())
        if diagonal[worst] < -PSD_TOLERANCE * self._diag.max():
            x = shown(self._kernel, self._arms[worst])
            y = shown(self._kernel, observed)
            raise KernelError(
                f"the kernel is not positive semi-definite: x = {x} has the negative variance "
                f"{diagonal[worst]:.3g} once y = {y} is observed; use a kernel that is a covariance"
            )
        np.maximum(diagonal, 0.0, out=diagonal)

    def row(self, arm: int) -> Array:
        """The row (d,) of an arm."""
        return np.asarray(self._arms[arm])


@dataclass(frozen=True)
class Supposed:
    """A covariance if some arms were pulled, with their means for rewards: the means stay.

    What is supposed is kept beside the rows of what was observed.
    """

    observed: Covariance
    _rows: Stack  # (k, A) e_s of the pulls that are supposed
    diagonal: Array  # (A,) λσ²

    @property
    def mean(self) -> Array:
        """μ, (A,)."""
        return self.observed.mean

    @property
    def variance(self) -> Array:
        """σ² in leverage units, (A,)."""
        return self.diagonal / self.observed.regularization

    def supposing(self, arms: Indices) -> "Supposed":
        """If these arms were pulled once more each."""
        rows = self._rows
        diagonal = self.diagonal.copy()
        for arm in arms.tolist():
            E = rows.items
            c = self.observed.column(arm) - E.T @ E[:, arm]
            e = c / np.sqrt(self.observed.regularization + diagonal[arm])
            rows = rows.appended(e[None])
            self.observed.lower(diagonal, np.square(e), self.observed.row(arm))
        return Supposed(self.observed, rows, diagonal)
