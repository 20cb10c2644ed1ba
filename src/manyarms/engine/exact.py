"""The exact posterior, of any rows and of all arms at once: GP-UCB's, and the oracle of sketches.

`ExactPosterior` is eqs. (1) and (2) of the paper on counts instead of repeated rows, with the 1/λ
that (2) lacks:

    μ(x) = k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ (s/n),   σ²(x) = (k(x, x) − k_U(x)ᵀ (K_UU + λN⁻¹)⁻¹ k_U(x))/λ

`Covariance` is the same at all arms, updated in O(A·u) an observation. One of arm i with weight ω
turns the posterior covariance c(x, x′) of f into

    c(x, x′) − e(x) e(x′),
    e(x) = c(x, i)/√(λ/ω + c(i, i)),   c(x, i) = k(x, i) − Σ_s e_s(x) e_s(i),

so one more row e is all that has to be remembered. Repeated pulls would make rows grow with t; once
there are more than about twice as many rows as distinct arms, the rows are rebuilt from the
distinct arms and their counts. Both steps are O(A·u), the second one amortised.

The belief keeps the covariance at the rows of its table. Rows given by value are further arms:
O(A·u) each when they are new.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.embedding import PSD_TOLERANCE, not_positive, ridged_factor
from manyarms.engine.growing import Stack
from manyarms.engine.history import History, by_arm
from manyarms.engine.linalg import EPS, TINY, check_finite, check_rounding, chunks, solve_lower
from manyarms.equal import Catalogue
from manyarms.kernels import Kernel
from manyarms.lapack import in_one_thread
from manyarms.search.scores import AllScored
from manyarms.typing import Array, Indices

SPARE_ROWS = 32
"""Rows e_s beyond 2u after which they are rebuilt. Without spare ones, the rows of a few arms would
be rebuilt at nearly every pull."""


@dataclass(frozen=True)
class ExactPosterior:
    """The factor GGᵀ = K_UU + λN⁻¹ and G⁻¹(s/n)."""

    kernel: Kernel
    rows: Array  # (u, d)
    regularization: float
    G: Array  # (u, u)
    b: Array  # (u,)

    @classmethod
    def fit(
        cls, kernel: Kernel, rows: Array, counts: Array, sums: Array, regularization: float
    ) -> "ExactPosterior":
        """The posterior given the distinct rows observed, (u, d), with n and s of each, (u,)."""
        # n equal rows with ridge λ are one row, their mean reward, with ridge λ/n.
        G = ridged_factor(kernel, rows, regularization / counts)
        return cls(kernel, rows, regularization, G, solve_lower(G, sums / counts))

    def coordinates(self, X: Array) -> Array:
        """E = G⁻¹ k_U(X), shape (u, n): λσ²(x) = k(x, x) − ‖e(x)‖² and μ(x) = e(x)ᵀ G⁻¹(s/n)."""
        return solve_lower(self.G, self.kernel(X, self.rows).T)

    def moments(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ(x) and σ²(x) (leverage units) for every row of X; `diag` holds k(x, x)."""
        mean = np.empty(len(X))
        variance = np.empty(len(X))
        for rows in chunks(len(X), len(self.b)):
            E = self.coordinates(X[rows])
            mean[rows] = E.T @ self.b  # Eq. 1
            left = diag[rows] - np.einsum("ij,ij->j", E, E)
            variance[rows] = np.maximum(left, 0.0) / self.regularization  # Eq. 2, over λ
        return mean, variance


@dataclass(frozen=True)
class Covariance:
    """A value: posterior covariance k − Σ_s e_s e_sᵀ of f over all arms, and the mean."""

    arms: Array  # (A, d)
    diag: Array  # (A,) k(x, x)
    kernel: Kernel
    regularization: float  # λ
    mean: Array  # (A,)
    diagonal: Array  # (A,) λσ²
    rows: tuple[Stack, ...]  # e_s, (n, A): of what was observed, then of what is only supposed
    pulls: Stack  # (n, 3) i, √(λ/ω + c(i, i)) and (y − μ(i)) over it; μ = Σ_s e_s times the last

    @classmethod
    def prior(cls, arms: Array, diag: Array, kernel: Kernel, regularization: float) -> "Covariance":
        """Before anything is observed."""
        n = len(arms)
        rows = (Stack(np.empty((0, n))),)
        pulls = Stack(np.empty((0, 3)))
        return cls(arms, diag, kernel, regularization, np.zeros(n), diag, rows, pulls)

    @property
    def n_rows(self) -> int:
        """Rows of what was observed."""
        return self.rows[0].n

    @property
    def variance(self) -> Array:
        """σ² in leverage units, (A,)."""
        return self.diagonal / self.regularization

    def at(self, rows: Array, diag: Array) -> "Covariance":
        """The same posterior at other rows: e(x) = G⁻¹k(x), with an entry for each observation.

        What an observation of i_s adds is e_s(x) = (k(x, i_s) − Σ_{r<s} e_r(x) e_r(i_s))/scale_s:
        so G, lower triangular, has the scales on its diagonal and e_r(i_s), r < s, beside it.
        """
        made = Covariance.prior(rows, diag, self.kernel, self.regularization)
        if not self.n_rows:
            return made
        pulls = self.pulls.items[: self.n_rows]  # without those that are only supposed
        observed = pulls[:, 0].astype(np.intp)
        G = np.tril(self.rows[0].items[:, observed].T, -1)
        np.fill_diagonal(G, pulls[:, 1])
        E = solve_lower(G, self.kernel(rows, self.arms[observed]).T)
        return made._holding(E, pulls, self.arms[observed[-1]])

    def joined(self, rows: Array, diag: Array) -> "Covariance":
        """The same posterior with these rows as further arms."""
        if not len(rows):
            return self
        other = self.at(rows, diag)
        E = np.hstack([self.rows[0].items, other.rows[0].items])
        return replace(
            self,
            arms=np.vstack([self.arms, rows]),
            diag=np.concatenate([self.diag, diag]),
            mean=np.concatenate([self.mean, other.mean]),
            diagonal=np.concatenate([self.diagonal, other.diagonal]),
            rows=(Stack(np.ascontiguousarray(E)),),
        )

    def supposing(self, arms: Indices) -> "Covariance":
        """If these arms were pulled once more each, with their means for rewards: means stay."""
        made = self
        if len(self.rows) == 1:
            # Beside the rows of what was observed, which a real observation will write behind.
            made = replace(self, rows=(*self.rows, Stack(np.empty((0, len(self.mean))))))
        for arm in arms.tolist():
            made = made._conditioned(arm, made.mean[arm], 1.0)
        return made

    def observed(
        self, history: History, arms: Indices, rewards: Array, weights: Array
    ) -> tuple["Covariance", Array]:
        """After these rewards, each arm once, and σ² (n,) of each just before.

        The history includes them; its keys are arms.
        """
        made = self
        before = np.empty(len(arms))
        for j, arm in enumerate(arms.tolist()):
            before[j] = made.diagonal[arm] / self.regularization
            made = made._conditioned(arm, rewards[j], weights[j])
        if made.n_rows > 2 * len(history.keys) + SPARE_ROWS:
            # The same with one row for each distinct arm.
            posterior = self.posterior(history)
            pulls = np.column_stack([np.sort(history.keys), np.diag(posterior.G), posterior.b])
            made = made._holding(posterior.coordinates(self.arms), pulls, posterior.rows[-1])
        check_finite(made.mean)
        return made, before

    def posterior(self, history: History) -> ExactPosterior:
        """The posterior given all that was observed, in the order of the arms."""
        order = np.argsort(history.keys)
        return ExactPosterior.fit(
            self.kernel,
            self.arms[history.keys[order]],
            history.counts[order],
            history.sums[order],
            self.regularization,
        )

    def _conditioned(self, arm: int, reward: float, weight: float) -> "Covariance":
        """After one reward."""
        # c(x, i) = k(x, i) − Σ_s e_s(x) e_s(i), over what was observed and what is supposed.
        c = self.kernel(self.arms, self.arms[arm : arm + 1])[:, 0]
        for rows in self.rows:
            c -= rows.items.T @ rows.items[:, arm]
        # λ/ω + c(i, i) is the variance of the reward itself: that of its noise and that of f(i).
        scale = np.sqrt(self.regularization / weight + self.diagonal[arm])
        e = c / scale
        with np.errstate(over="ignore", invalid="ignore"):
            surprise = (reward - self.mean[arm]) / scale
            mean = self.mean + e * surprise
        return replace(
            self,
            mean=mean,
            diagonal=self._lowered(self.diagonal, np.square(e), self.arms[arm]),
            rows=(*self.rows[:-1], self.rows[-1].appended(e[None])),
            pulls=self.pulls.appended(np.array([[arm, scale, surprise]])),
        )

    def _holding(self, E: Array, pulls: Array, observed: Array) -> "Covariance":
        """With these rows for all; `observed` is one to name should they be impossible."""
        return replace(
            self,
            mean=E.T @ pulls[:, 2].copy(),
            diagonal=self._lowered(self.diag, np.einsum("ij,ij->j", E, E), observed),
            rows=(Stack(E),),
            pulls=Stack(pulls),
        )

    def _lowered(self, diagonal: Array, squares: Array, observed: Array) -> Array:
        """λσ² − e²; `observed` is the row to name should that be impossible."""
        left = diagonal - squares
        worst = int(left.argmin())
        if left[worst] < -PSD_TOLERANCE * self.diag.max():
            raise not_positive(self.kernel, self.arms[worst], left[worst], observed)
        return np.maximum(left, 0.0, out=left)

    @in_one_thread
    def mean_in_norm(self, history: History) -> tuple[float, float]:
        """‖μ‖, and σ of ⟨f, μ/‖μ‖⟩.

        ‖μ‖² = aᵀK_UU a, where K_UU a = μ_U and λN⁻¹a = s/n − μ_U;
        λσ²‖μ‖² = aᵀ(K_UU − EᵀE)a, known up to rounding.
        """
        pulled = history.keys
        with np.errstate(over="ignore", invalid="ignore"):
            # a = N(s/n − μ_U)/λ, by the second of the two equations; then ‖μ‖² = aᵀμ_U.
            a = (history.sums - history.counts * self.mean[pulled]) / self.regularization
            norm = float(np.sqrt(max(0.0, float(self.mean[pulled] @ a))))
            explained = float(np.square(self.rows[0].items[:, pulled] @ a).sum())
        squared = norm**2
        # A difference of two sums of u terms: it is not known to better than u·ε of either.
        left = max(squared - explained, len(a) * EPS * squared)
        return norm, float(np.sqrt(left / self.regularization / max(squared, TINY)))


@dataclass(frozen=True)
class Exact:
    """The rule of the exact posterior: there is nothing to decide."""

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> "ExactBelief":
        """The belief before anything is observed."""
        covariance = Covariance.prior(*arms, kernel, regularization)
        history = History.none(arms.rows.shape[1])
        return ExactBelief(
            kernel, regularization, noise, Catalogue.over(*arms), history, covariance
        )


@dataclass(frozen=True)
class ExactBelief:
    """What is known of f when nothing is left out."""

    kernel: Kernel
    regularization: float  # λ
    noise: float  # ξ
    catalogue: Catalogue
    history: History  # keys are numbers of the catalogue
    covariance: Covariance  # at all arms of the catalogue
    guarantee: ClassVar[Posterior] = "exact"
    information: float = 0.0  # ln det(K_t/λ + I) = Σ ln(1 + ωσ²), each σ² as it was before

    @cached_property
    def evidence(self) -> Evidence:
        """What a radius is a function of."""
        history = self.history
        trace = float(history.counts @ history.diag) / self.regularization
        return Evidence(
            self.regularization,
            self.noise,
            "exact",
            n_observations=history.n_observations,
            trace=trace,
            log_det=self.information,
            information=self.information,
            mean=lambda: self.covariance.mean_in_norm(history),
            dimension=lambda: float(history.counts @ self.covariance.variance[history.keys]),
        )

    def observed(self, batch: Batch, record: Record | None = None) -> Step:
        """The step to the belief after these observations."""
        return Step(self.conditioned(batch), Record.nothing(len(batch)))

    def conditioned(self, batch: Batch) -> Self:
        """The belief after these observations. Rewards of equal rows count as those of one arm."""
        catalogue, numbers = self.catalogue.numbered(batch.rows, batch.diag, batch.keys)
        arms, rewards, weights = by_arm(numbers, batch.rewards, batch.weights)
        known = self.covariance.joined(*catalogue.since(self.catalogue))
        rows = known.arms[arms].astype(np.float64, copy=False)
        history, _ = self.history.added(
            rows, known.diag[arms], rewards, weights, arms, batch.n_observations
        )
        check_rounding(self.regularization, history.diag, history.counts)
        covariance, before = known.observed(history, arms, rewards, weights)
        return replace(
            self,
            catalogue=catalogue,
            history=history,
            covariance=covariance,
            information=self.information + float(np.log1p(weights * before).sum()),
        )

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ and σ² (leverage units) of rows, (n,) each, from a factor of all that was observed."""
        if not self.history.n_observations:
            return np.zeros(len(rows)), diag / self.regularization
        return self._posterior.moments(rows, diag)

    @cached_property
    def _posterior(self) -> ExactPosterior:
        return self.covariance.posterior(self.history)

    def scores(self, arms: Arms) -> "ExactScores":
        """The scores of the table's arms, which are kept, or of others."""
        if arms.rows is self.catalogue.table.rows:
            return ExactScores(self.covariance, arms)
        return ExactScores(self.covariance.at(arms.rows, arms.diag), arms)


@dataclass(frozen=True)
class ExactScores(AllScored):
    """Scores of arms, the first that a covariance knows."""

    covariance: Covariance
    arms: Arms

    def after(self, step: Step) -> "ExactScores":
        """At the belief after one more step."""
        if not isinstance(step.after, ExactBelief):
            raise TypeError(f"these scores follow the exact posterior, got {step.after!r}")
        return step.after.scores(self.arms)

    def supposing(self, positions: Indices) -> "ExactScores":
        """If these arms were pulled once more each."""
        return ExactScores(self.covariance.supposing(positions), self.arms)

    def current(self) -> tuple[Array, Array]:
        """μ and σ² of all arms."""
        n = len(self.arms.rows)
        return self.covariance.mean[:n], self.covariance.variance[:n]
