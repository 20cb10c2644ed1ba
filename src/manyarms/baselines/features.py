"""What policies that are linear in explicit features φ(x) share: ridge regression, and two rules to choose by.

``choice="ucb"`` takes the largest μ + β̃σ, ``choice="thompson"`` the largest φ(x)ᵀθ, θ ~ N(w, β̃²V⁻¹). As sd(f) = √λσ, the radius
`Constant(1.0)` draws θ from the posterior itself. The draw is a function of the seed, of how much was observed and of how many
arms are supposed pulled: asked twice `choose` answers the same, and a batch is a sequence of pending choices.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from manyarms.errors import NumericalError, ParameterError
from manyarms.policies.base import Lookahead, Policy
from manyarms.sketch.choice import Scores, arg_max
from manyarms.sketch.confidence import Constant, Evidence, Radius
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.ridge import Ridge
from manyarms.typing import Array, ArrayLike, Indices, Mask, Seed

CHOICES = {"ucb": Constant(2.0), "thompson": Constant(1.0)}
"""The rules, and the radius each has unless one is given."""

FeatureMap = Callable[[Array], Array]
"""φ: rows (n, d) to features (n, m), float64."""


class Model(Protocol):
    """A regression on the features of all arms, as a value: `Ridge`, or a sketch of it."""

    @property
    def mean(self) -> Array: ...
    @property
    def variance(self) -> Array: ...
    @property
    def norm(self) -> float: ...
    @property
    def information(self) -> float: ...
    def observed(self, arms: Indices, rewards: Array, weights: Array) -> "Model": ...
    def deviation(self, normal: Array) -> Array: ...
    def moments(self, features: Array) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class FeaturesState:
    """Everything that `observe` changes."""

    history: History
    model: Model
    evidence: Evidence


class Features(Policy):
    """A linear bandit on φ(x). `scores` and `predict` are the posterior of the features, not of the kernel they stand for.

    `Theory` and `LogDet` are the confidence ellipsoid of Abbasi-Yadkori et al. (2011) here: they promise something for
    f(x) = φ(x)ᵀθ with ‖θ‖ ≤ ``norm``, and nothing for an f that the features miss.
    """

    _state: FeaturesState
    _exact = True

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        kernel: Any,
        *,
        regularization: float,
        confidence: Radius | None,
        choice: str,
        seed: Seed,
    ) -> None:
        if choice not in CHOICES:
            raise ParameterError(f"choice must be one of {sorted(CHOICES)}, got {choice!r}")
        self.choice = choice
        radius = CHOICES[choice] if confidence is None else confidence
        super().__init__(arms, kernel, regularization=regularization, confidence=radius, seed=seed)

    @abstractmethod
    def _feature_map(self, rng: np.random.Generator) -> FeatureMap:
        """φ, drawn where it is random."""

    def _prior(self, features: Array) -> Model:
        return Ridge.prior(features, self.regularization)

    def _first_state(self, rng: np.random.Generator) -> FeaturesState:
        self._map = self._feature_map(rng)
        features = self._map(self.arms)
        self._diag = np.einsum("ij,ij->i", features, features)  # φᵀφ is the kernel from here on
        self._width = features.shape[1]
        self._draws = int(rng.integers(1 << 63))
        return FeaturesState(History(), self._prior(features), self._no_evidence())

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> FeaturesState:
        model = self._state.model.observed(arms, rewards, weights)
        if not np.isfinite(model.mean).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        evidence = self._evidence(history, model.variance[history.pulled], model.norm, model.information)
        return FeaturesState(history, model, evidence)

    def _moments(self) -> tuple[Array, Array]:
        return self._state.model.mean, self._state.model.variance

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._state.model.moments(self._map(X))

    def _lookahead(self, *, append: bool) -> Lookahead:
        return _Supposed(self._state.model)

    def _pick(self, mean: Array, lookahead: Lookahead, beta: float, number: int, barred: Mask | None) -> int:
        if self.choice == "ucb":
            return super()._pick(mean, lookahead, beta, number, barred)
        rng = np.random.default_rng([self._draws, self._state.history.n_observations, number])
        normal = rng.standard_normal((self._width,))
        drawn = mean + beta * cast(_Supposed, lookahead).model.deviation(normal)
        if barred is not None:
            drawn[barred] = -np.inf
        return arg_max(Scores(mean, lookahead.variance, drawn))


class _Supposed:
    """The regression if more arms were pulled; its means are not looked at."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def variance(self) -> Array:
        return self.model.variance

    def pull(self, arms: Indices) -> None:
        self.model = self.model.observed(*by_arm(arms, np.zeros(len(arms)), np.ones(len(arms))))
