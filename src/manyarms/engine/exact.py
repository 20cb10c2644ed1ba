"""The exact posterior, as a belief: GP-UCB's, and the oracle of every sketch.

It keeps the posterior covariance at the rows of its table, so that the scores of all arms follow an
observation in O(A·u), u the distinct arms observed. Rows given by value are further arms: O(A·u)
each when they are new.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.covariance import Covariance, ExactPosterior
from manyarms.engine.history import History, by_arm
from manyarms.engine.linalg import check_rounding
from manyarms.equal import Catalogue
from manyarms.kernels import Kernel
from manyarms.search.scores import AllScored
from manyarms.typing import Array, Indices


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
