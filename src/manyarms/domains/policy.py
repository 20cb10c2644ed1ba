"""BKB over an infinite set: arms are rows, and the next one is where a maximiser finds the largest score."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from manyarms.arms.array import Checked
from manyarms.domains.multistart import MultiStart
from manyarms.domains.pulled import Pulled
from manyarms.domains.score import Score
from manyarms.errors import ArmsError, ParameterError, StateError
from manyarms.kernels import as_kernel
from manyarms.numbers import real, whole
from manyarms.policies.checks import as_generator, as_radius, as_rewards, as_weights
from manyarms.policies.confident import Confident
from manyarms.policies.learner import Prediction
from manyarms.sketch.confidence import Constant, Evidence, Radius, first_norm
from manyarms.sketch.dictionary import Chance
from manyarms.sketch.embedding import check_kernel
from manyarms.sketch.exact import ExactPosterior
from manyarms.sketch.history import History
from manyarms.sketch.posterior import Posterior
from manyarms.stats import Stats
from manyarms.typing import Array, ArrayLike, Indices, Seed


class Domain(Protocol):
    """A set of rows."""

    @property
    def dimension(self) -> int:
        """Columns of a row."""

    def checked(self, rows: ArrayLike) -> Array:
        """Rows (n, d), all of them of this set, or ArmsError."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Rows drawn at random, (n, d)."""


Maximiser = Callable[[Score, Any, np.random.Generator], ArrayLike]
"""Of u, which has `gradient`, the domain and a generator: a row (d,) of the domain where u is large."""


class DomainBKB(Confident):
    """BKB over a `Box`, or another domain, instead of a table. An arm is an encoded row; `Box.decode` gives its point.

    domain : a `Box`, a `Ball` or a `Polytope`.
    kernel : of encoded rows.
    maximiser : a function of u, the domain and a generator that returns a row; u is called with rows (n, d) and gives (n,), and
        u.gradient gives (n, d). Default: `MultiStart()` on boxes, the domain's own `maximise` elsewhere.
    oversampling : q̄ of Algorithm 1; None keeps the posterior exact (GP-UCB).
    regularization, confidence, seed : as for `BKB`. `Theory` and `LogDet` need a ``horizon`` here.

    Theorem 2 covers this where the maximiser finds the maximum of u. A local search need not.
    """

    _state: Pulled

    def __init__(
        self,
        domain: Domain,
        kernel: Any,
        *,
        regularization: float = 0.01,
        oversampling: float | None = 5.0,
        confidence: Radius = Constant(2.0),
        maximiser: Maximiser | None = None,
        seed: Seed = 0,
    ) -> None:
        if not all(hasattr(domain, name) for name in ("dimension", "checked", "sample")):
            raise ParameterError(f"domain must be a Box, a Ball or a Polytope, got {domain!r}; BKB takes a table of arms")
        self.domain, self.kernel = domain, as_kernel(kernel)
        self.regularization = real(regularization, "regularization", "a positive variance, for instance noise**2", above=0)
        if oversampling is not None:
            real(oversampling, "oversampling", "a positive number, q̄ of Algorithm 1, or None", above=0)
        self.confidence = as_radius(confidence)
        default: Maximiser = getattr(domain, "maximise", MultiStart())
        self.maximiser = default if maximiser is None else maximiser
        if not callable(self.maximiser):
            raise ParameterError(f"maximiser must be a function of u, the domain and a generator, got {maximiser!r}")
        self.stats = Stats()
        rng = as_generator(seed)
        some = domain.sample(8, rng)
        check_kernel(self.kernel, some, self.kernel.diag(some))
        self._first_row = some[0]
        evidence = Evidence(np.inf, self.regularization, oversampling is None, first_norm(confidence))
        self.confidence(evidence)  # a radius that cannot be had over a domain says so now
        nothing = np.zeros(0, dtype=np.intp)
        prior = Posterior.prior(self.kernel, domain.dimension, self.regularization)
        self._state = Pulled(
            self.kernel,
            confidence,
            oversampling,
            Chance.of(rng),
            np.zeros((0, domain.dimension)),
            History(),
            nothing,
            np.zeros(0),
            prior,
            evidence,
        )

    def choose(self, n: int = 1, *, pending: ArrayLike = ()) -> Array:
        """The n rows to pull next, (n, d). Pure; `pending` and the rows before in a batch are supposed to give their mean."""
        n, beta, state = whole(n, "n"), self.beta, self._state
        supposed = self.domain.checked(pending)
        with self.stats.timed("choices"):
            pulled, chosen = state.supposing(supposed), list[Array]()
            for number in range(len(supposed), len(supposed) + n):
                if pulled.history.n_observations:
                    rng = state.chance.at(state.history.n_observations, number)
                    chosen.append(self._maximised(Score(pulled, beta), rng))
                else:
                    chosen.append(self._first_row)
                if len(chosen) < n:
                    pulled = pulled.supposing(chosen[-1][None])
        return np.array(chosen)

    def _maximised(self, score: Score, rng: np.random.Generator) -> Array:
        answer = self.maximiser(score, self.domain, rng)
        try:
            found = np.asarray(answer)
        except ValueError as error:
            raise ArmsError(f"the maximiser must return one row of {self.domain.dimension} numbers: {error}") from error
        if found.shape != (self.domain.dimension,):
            raise ArmsError(f"the maximiser must return one row of {self.domain.dimension} numbers, got shape {found.shape}")
        try:
            return np.asarray(self.domain.checked(found[None])[0])
        except ArmsError as error:
            raise ArmsError(f"the maximiser left the domain: {error}") from error

    def observe(self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Learn the rewards (n,) of rows (n, d); a row that came before is a replicate. On an error nothing has changed."""
        rows = self.domain.checked(arms)
        values = as_rewards(rewards, len(rows))
        weights = as_weights(noise, len(rows), self.regularization)
        if len(rows):
            with self.stats.timed("observations"):
                state = self._state.observed(rows, values, weights)
                self.confidence(state.evidence)  # as does one whose horizon is over
            self._state = state

    def predict(self, X: ArrayLike | Checked) -> Prediction:
        """Posterior mean and standard deviation of f at rows (n, d)."""
        mean, variance = self._state.moments(X.rows if isinstance(X, Checked) else self.domain.checked(X))
        return Prediction(mean, np.sqrt(self.regularization * variance))

    @property
    def score(self) -> Score:
        """u = μ̃ + β̃σ̃ now, with its gradient."""
        return Score(self._state, self.beta)

    @property
    def posterior(self) -> Posterior | ExactPosterior:
        """What is known of f: on all rows observed, or on a sketch of them."""
        return self._state.posterior

    @property
    def rows(self) -> Array:
        """The distinct rows observed, (u, d)."""
        return self._state.rows.copy()

    @property
    def counts(self) -> Array:
        """Weight of the observations of each, (u,)."""
        return self._state.history.counts.copy()

    @property
    def dictionary(self) -> Indices:
        """S, as numbers of `rows`."""
        return self._state.dictionary.copy()

    @property
    def best(self) -> Array:
        """The row observed of largest lower confidence bound μ̃ − β̃σ̃, (d,)."""
        if not len(self._state.rows):
            raise StateError("nothing was observed yet: call observe() first")
        mean, variance = self._state.moments(self._state.rows)
        return np.array(self._state.rows[int(np.argmax(mean - self.beta * np.sqrt(variance)))])

    def __repr__(self) -> str:
        seen = self._state.history
        return f"{type(self).__name__}({self.domain!r}, {self.kernel!r}, {seen.n_observations} observations)"
