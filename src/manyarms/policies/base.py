"""What every policy does: check what comes in, choose by scores, change its state in one step or not at all."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from manyarms.arms import as_rows
from manyarms.errors import KernelError, ParameterError, StateError
from manyarms.kernels import as_kernel
from manyarms.policies.checks import as_arms, as_count, as_generator, as_positive, as_rewards, as_weights
from manyarms.policies.history import History
from manyarms.sketch.choice import Scores, arg_max, score
from manyarms.sketch.confidence import Evidence, Radius, first_norm, updated_norm
from manyarms.sketch.observations import Observations
from manyarms.typing import Array, ArrayLike, Indices, Seed


class Prediction(NamedTuple):
    """Posterior mean and standard deviation of f, each (n,), in the units of the rewards."""

    mean: Array
    std: Array


class State(Protocol):
    """The value a policy replaces as a whole when it observes."""

    @property
    def history(self) -> History: ...
    @property
    def evidence(self) -> Evidence: ...


class Lookahead(Protocol):
    """Variances σ̃² of all arms if some more were pulled. The means are frozen: no reward is known yet."""

    @property
    def variance(self) -> Array:
        """σ̃², (A,)."""

    def pull(self, arms: Indices) -> None:
        """Suppose these arms were pulled once more each."""


class Policy(ABC):
    """Arms are the rows of a table; an arm is its index.

    arms : (A, d) array of finite numbers, never changed.
    kernel : a `manyarms.kernels` kernel, a scikit-learn kernel object or a function of two blocks of rows.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a reason.
    confidence : the radius β̃ of the scores.
    seed : an integer or a numpy Generator.
    """

    _state: State
    _exact = False

    def __init__(self, arms: ArrayLike, kernel: Any, *, regularization: float, confidence: Radius, seed: Seed) -> None:
        self.arms = as_rows(arms)
        self.kernel = as_kernel(kernel)
        self.regularization = as_positive(regularization, "regularization", "a variance, for instance noise**2")
        if not callable(confidence):
            raise ParameterError(f"confidence must be a radius such as Constant(2.0) or a function, got {confidence!r}")
        self.confidence = confidence
        self._diag = self._diagonal(self.arms)
        self._rng = as_generator(seed)
        self._first_arm = int(self._rng.integers(self.n_arms))
        self._cache: tuple[State, Scores] | None = None

    def choose(self, n: int = 1, *, pending: ArrayLike = ()) -> Indices:
        """The n arms to pull next, (n,).

        Pure: asked again before an `observe` it answers the same. `pending` are arms whose rewards are still outstanding. A
        batch supposes each arm pulled before choosing the next: its variance shrinks, the means stay.
        """
        n, outstanding = as_count(n), as_arms(pending, self.n_arms)
        chosen: list[int] = []
        if not self._state.history.n_observations and not len(outstanding):
            chosen.append(self._first_arm)
        mean, beta = self.scores().mean, self.beta
        lookahead = self._lookahead()
        supposed = [*outstanding, *chosen]
        while len(chosen) < n:
            if supposed:
                lookahead.pull(np.array(supposed, dtype=np.intp))
            supposed = [arg_max(score(mean, lookahead.variance, beta))]
            chosen += supposed
        return np.array(chosen, dtype=np.intp)

    def observe(self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Learn the rewards (n,) of arms (n,), in any order, repeats included.

        `noise` is the standard deviation of these rewards where it differs from √λ: one number, or one each; an observation
        then weighs λ/noise². On an error nothing has changed.
        """
        indices = as_arms(arms, self.n_arms)
        values = as_rewards(rewards, len(indices))
        weights = as_weights(noise, len(indices), self.regularization)
        if len(indices):
            self._replace_state(lambda: self._observed(indices, values, weights))

    def scores(self) -> Scores:
        """Mean, variance (leverage units) and upper confidence bound of every arm, each (A,), read-only."""
        if self._cache is None or self._cache[0] is not self._state:
            scores = score(*self._moments(), self.beta)
            for array in scores:
                array.setflags(write=False)
            self._cache = self._state, scores
        return self._cache[1]

    def predict(self, X: ArrayLike | None = None) -> Prediction:
        """Posterior mean and standard deviation √(λσ̃²) of f at the arms, or at the rows of X."""
        if X is None:
            mean, variance, _ = self.scores()
        else:
            rows = as_rows(X, self.arms.shape[1])
            mean, variance = self._moments_at(rows, self._diagonal(rows))
        return Prediction(mean, np.sqrt(self.regularization * variance))

    @property
    def n_arms(self) -> int:
        """A, the number of arms."""
        return len(self.arms)

    @property
    def counts(self) -> Array:
        """Weight of the observations of every arm, (A,): how often it was pulled, unless `noise` was given."""
        counts = np.zeros(self.n_arms)
        counts[self._state.history.pulled] = self._state.history.counts
        return counts

    @property
    def beta(self) -> float:
        """β̃, the radius of the scores now."""
        beta = float(self.confidence(self._state.evidence))
        if not (np.isfinite(beta) and beta >= 0):
            raise ParameterError(f"confidence must give a finite non-negative radius, got {beta} from {self.confidence!r}")
        return beta

    @property
    def effective_dimension(self) -> float:
        """d̃ = Σ_s σ̃²(x_s) over the pulls, the policy's estimate of Tr K(K + λI)⁻¹."""
        return self._state.evidence.effective_dimension

    @property
    def best(self) -> int:
        """The pulled arm of largest lower confidence bound μ̃ − β̃σ̃."""
        pulled = self._state.history.pulled
        if not len(pulled):
            raise StateError("no arm was observed yet: call observe() first")
        mean, _, ucb = self.scores()
        return int(pulled[np.argmax(2 * mean[pulled] - ucb[pulled])])

    @abstractmethod
    def _observed(self, arms: Indices, rewards: Array, weights: Array) -> State:
        """The state after these observations."""

    @abstractmethod
    def _moments(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of every arm."""

    @abstractmethod
    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² at other rows, `diag` their k(x, x)."""

    @abstractmethod
    def _lookahead(self) -> Lookahead: ...

    def _observations(self, history: History) -> Observations:
        return Observations(self.arms[history.pulled], self._diag[history.pulled], history.counts, history.sums)

    def _no_evidence(self) -> Evidence:
        return Evidence(self.n_arms, self.regularization, self._exact, first_norm(self.confidence))

    def _evidence(self, history: History, variance: Array, mean_norm: float, information: float) -> Evidence:
        """What the radius may depend on; `variance` holds σ̃² of the pulled arms (u,)."""
        evidence = replace(
            self._state.evidence,
            n_observations=history.n_observations,
            trace=float(history.counts @ self._diag[history.pulled]) / self.regularization,
            effective_dimension=float(history.counts @ variance),
            information=information,
            mean_norm=mean_norm,
        )
        return replace(evidence, norm=updated_norm(self.confidence, evidence))

    def _replace_state(self, compute: Callable[[], State]) -> None:
        """Replace the state by what `compute` returns; on any error the random numbers it drew are put back."""
        rng_state = self._rng.bit_generator.state
        try:
            state = compute()
        except BaseException:
            self._rng.bit_generator.state = rng_state
            raise
        self._state = state

    def _diagonal(self, X: Array) -> Array:
        diag = self.kernel.diag(X)
        bad = ~(np.isfinite(diag) & (diag >= 0))
        if bad.any():
            raise KernelError(f"k(x, x) must be finite and not negative, got {diag[bad][0]} at x = {X[bad][0]}")
        return diag
