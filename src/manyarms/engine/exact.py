"""The exact posterior: GP-UCB's, and the oracle of every sketch.

It is eqs. (1) and (2) of the paper, with the 1/λ that (2) lacks:

    μ(x) = k_t(x)ᵀ (K_t + λΩ⁻¹)⁻¹ y,   σ²(x) = (k(x, x) − k_t(x)ᵀ (K_t + λΩ⁻¹)⁻¹ k_t(x))/λ

With GGᵀ = K_t + λΩ⁻¹ and e(x) = G⁻¹k_t(x) this is μ = eᵀb, b = G⁻¹y, and λσ² = k(x, x) − ‖e(x)‖².
An observation of a row i with weight ω adds a row to G and an entry to b, in O(t²):

    (e(i), scale),   scale² = λ/ω + λσ²(i),     (y − μ(i))/scale,

and an entry to e of any row x, which takes O(t) for each arm of a table:

    e_t(x) = (k(x, i) − Σ_s e_s(x) e_s(i))/scale.

Repeated pulls would make rows grow with t. Once there are more than about twice as many rows as
distinct arms, G is made anew of the distinct arms, their mean rewards and their weights n.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.embedding import PSD_TOLERANCE, columns, not_positive, ridged_factor
from manyarms.engine.growing import Stack, Triangle
from manyarms.engine.history import History, by_arm
from manyarms.engine.linalg import EPS, TINY, check_finite, check_rounding, chunks
from manyarms.kernels import Kernel
from manyarms.lapack import in_one_thread
from manyarms.search.scores import AllScored
from manyarms.typing import Array, Indices

SPARE_ROWS = 32
"""Rows beyond 2u after which G is made anew. Without spare ones, that of a few arms would be made
anew at nearly every pull."""


@dataclass(frozen=True)
class ExactPosterior:
    """A value: the posterior given rewards of rows, repeats allowed."""

    kernel: Kernel
    regularization: float  # λ
    rows: Stack  # (t, d)
    G: Triangle  # (t, t)
    rewards: Stack  # (t, 2) b, and λ/ω
    times_made: int = 0  # anew, from distinct rows

    @classmethod
    def fit(
        cls, kernel: Kernel, rows: Array, counts: Array, sums: Array, regularization: float
    ) -> "ExactPosterior":
        """The posterior given the distinct rows observed, (u, d), with n and s of each, (u,)."""
        # n equal rows with ridge λ are one row, their mean reward, with ridge λ/n.
        ridge = regularization / counts
        G = Triangle.of(ridged_factor(kernel, rows, ridge) if len(rows) else np.zeros((0, 0)))
        b = G.solve(sums / counts)
        return cls(kernel, regularization, Stack(rows), G, Stack(np.column_stack([b, ridge])))

    @property
    def b(self) -> Array:
        """G⁻¹y, (t,)."""
        return np.asarray(self.rewards.items[:, 0])

    def coordinates(self, X: Array) -> Array:
        """e(x) = G⁻¹k_t(x) of rows X (n, d), as columns (t, n)."""
        if not self.G.n:
            return np.zeros((0, len(X)))
        return self.G.solve(columns(self.kernel, self.rows.items, X))

    def moments(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ(x) and σ²(x) (leverage units) for every row of X; `diag` holds k(x, x)."""
        mean = np.empty(len(X))
        variance = np.empty(len(X))
        for some in chunks(len(X), self.G.n):
            E = self.coordinates(X[some].astype(np.float64, copy=False))
            mean[some] = self.b @ E  # Eq. 1
            left = diag[some] - np.einsum("ij,ij->j", E, E)
            variance[some] = np.maximum(left, 0.0) / self.regularization  # Eq. 2, over λ
        return mean, variance

    def observed(
        self, row: Array, e: Array, diag: float, weight: float, reward: float | None
    ) -> tuple["ExactPosterior", float]:
        """After one reward of a row (d,) of these coordinates (t,), or of its own mean where none
        is given; and σ² before."""
        left = float(diag - e @ e)
        if left < -PSD_TOLERANCE * diag:
            raise not_positive(self.kernel, row, left, self.rows.items[np.abs(e).argmax()])
        # λ/ω + λσ² is the variance of the reward itself: that of its noise and that of f.
        ridge = self.regularization / weight
        scale = float(np.sqrt(ridge + max(left, 0.0)))
        surprise = 0.0 if reward is None else (reward - float(e @ self.b)) / scale
        after = ExactPosterior(
            self.kernel,
            self.regularization,
            self.rows.appended(row[None]),
            self.G.with_row(e, scale),
            self.rewards.appended(np.array([[surprise, ridge]])),
            self.times_made,
        )
        return after, max(left, 0.0) / self.regularization

    @in_one_thread
    def mean_norm(self) -> tuple[float, float]:
        """‖μ‖, and σ of ⟨f, μ/‖μ‖⟩.

        μ = Σ a_i k(x_i, ·) with a = G⁻ᵀb, so that with D = λΩ⁻¹ and K = GGᵀ − D, ‖μ‖² = aᵀKa =
        ‖b‖² − aᵀDa, and λσ²‖μ‖² = aᵀKa − ‖G⁻¹Ka‖², G⁻¹Ka = b − G⁻¹Da: known up to rounding.
        """
        a = self.G.solve_transposed(self.b)
        Da = self.rewards.items[:, 1] * a
        squared = max(0.0, float(self.b @ self.b - a @ Da))
        explained = float(np.square(self.b - self.G.solve(Da)).sum())
        # A difference of two sums of t terms: it is not known to better than t·ε of either.
        left = max(squared - explained, len(a) * EPS * squared)
        spread = np.sqrt(left / self.regularization / max(squared, TINY))
        return float(np.sqrt(squared)), float(spread)


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
        """The belief before anything is observed; it knows no table."""
        seen = History.none(arms.rows.shape[1])
        posterior = ExactPosterior.fit(kernel, seen.rows, seen.counts, seen.sums, regularization)
        return ExactBelief(kernel, regularization, noise, seen, posterior)


@dataclass(frozen=True)
class ExactBelief:
    """What is known of f when nothing is left out."""

    kernel: Kernel
    regularization: float  # λ
    noise: float  # ξ
    history: History
    posterior: ExactPosterior
    guarantee: ClassVar[Posterior] = "exact"
    information: float = 0.0  # ln det(K_t/λ + I) = Σ ln(1 + ωσ²), each σ² as it was before

    @cached_property
    def evidence(self) -> Evidence:
        """What a radius is a function of."""
        seen = self.history
        return Evidence(
            self.regularization,
            self.noise,
            "exact",
            n_observations=seen.n_observations,
            trace=float(seen.counts @ seen.diag) / self.regularization,
            log_det=self.information,
            information=self.information,
            mean=self.posterior.mean_norm,
            dimension=lambda: float(seen.counts @ self.moments(seen.rows, seen.diag)[1]),
        )

    def observed(self, batch: Batch) -> Step:
        """The step to the belief after these observations."""
        return Step(self.conditioned(batch), Record.nothing(len(batch)))

    def conditioned(self, batch: Batch) -> Self:
        """The belief after these observations. Rewards of equal rows count as those of one arm."""
        seen, places = self.history.added(
            batch.rows, batch.diag, batch.rewards, batch.weights, batch.keys, batch.n_observations
        )
        check_rounding(self.regularization, float(seen.diag.max()) * float(seen.counts.max()))
        posterior = self.posterior
        information = self.information
        with np.errstate(over="ignore", invalid="ignore"):
            for place, reward, weight in zip(
                *by_arm(places, batch.rewards, batch.weights), strict=True
            ):
                row = seen.rows[place]
                e = posterior.coordinates(row[None])[:, 0]
                posterior, variance = posterior.observed(row, e, seen.diag[place], weight, reward)
                information += float(np.log1p(weight * variance))
        if posterior.G.n > 2 * len(seen.counts) + SPARE_ROWS:
            # The same with one row for each distinct arm.
            made = posterior.times_made + 1
            posterior = ExactPosterior.fit(
                self.kernel, seen.rows, seen.counts, seen.sums, self.regularization
            )
            posterior = replace(posterior, times_made=made)
        check_finite(posterior.b)
        return replace(self, history=seen, posterior=posterior, information=information)

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ and σ² (leverage units) of rows, (n,) each."""
        return self.posterior.moments(rows, diag)

    def scores(self, arms: Arms) -> "ExactScores":
        """The scores of arms."""
        return ExactScores.of(self.posterior, arms)


@dataclass(frozen=True)
class ExactScores(AllScored):
    """A value: the scores of arms, with e of all of them, brought forward in O(A·t)."""

    posterior: ExactPosterior
    arms: Arms
    E: Stack  # (t, A)
    mean: Array  # (A,)
    left: Array  # (A,) λσ²

    @classmethod
    def of(cls, posterior: ExactPosterior, arms: Arms) -> "ExactScores":
        """Of a posterior."""
        E = posterior.coordinates(arms.rows.astype(np.float64, copy=False))
        left = arms.diag - np.einsum("ij,ij->j", E, E)
        scores = cls(posterior, arms, Stack(np.ascontiguousarray(E)), posterior.b @ E, left)
        return replace(scores, left=scores._lowered(left, posterior))

    def at(self, posterior: ExactPosterior) -> Self:
        """At a posterior that goes on from that of now."""
        if posterior.times_made != self.posterior.times_made:
            return replace(self, **vars(ExactScores.of(posterior, self.arms)))
        rows = self.arms.rows.astype(np.float64, copy=False)
        E = self.E
        mean = self.mean
        left = self.left
        for s in range(E.n, posterior.G.n):
            g = posterior.G.row(s)
            column = posterior.kernel(rows, posterior.rows.items[s : s + 1])[:, 0]
            e = (column - E.items.T @ g[:s]) / g[s]
            E = E.appended(e[None])
            mean = mean + e * posterior.b[s]
            left = self._lowered(left - np.square(e), posterior)
        return replace(self, posterior=posterior, E=E, mean=mean, left=left)

    def _lowered(self, left: Array, posterior: ExactPosterior) -> Array:
        """λσ² without what rounding makes negative; more than that is the kernel's fault."""
        least = left.min(initial=0.0)
        if least < 0.0 and least < -PSD_TOLERANCE * self.arms.diag.max():
            worst = int(left.argmin())
            given = posterior.rows.items[-1]
            raise not_positive(posterior.kernel, self.arms.rows[worst], left[worst], given)
        return np.maximum(left, 0.0)

    def after(self, step: Step) -> Self:
        """At the belief after one more step."""
        if not isinstance(step.after, ExactBelief):
            raise TypeError(f"these scores follow the exact posterior, got {step.after!r}")
        return self.at(step.after.posterior)

    def supposing(self, positions: Indices) -> Self:
        """If these arms were pulled once more each, with their means for rewards: means stay."""
        scores = self
        for i in positions:
            row = self.arms.rows[i].astype(np.float64)
            e = scores.E.items[:, i]
            scores = scores.at(
                scores.posterior.observed(row, e, float(self.arms.diag[i]), 1.0, None)[0]
            )
        return scores

    def current(self) -> tuple[Array, Array]:
        """μ and σ² of all arms."""
        return self.mean, self.left / self.posterior.regularization
