"""BKB, budgeted kernel bandits: what its variants share. Each variant is a file: when, and how, the dictionary is redrawn."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from manyarms.errors import ParameterError
from manyarms.numbers import real, whole
from manyarms.policies.base import Among, Lookahead, Policy
from manyarms.policies.confident import State
from manyarms.sketch.confidence import Constant, Radius, alpha_in
from manyarms.sketch.dictionary import Chance, draw_dictionary
from manyarms.sketch.embedding import Embedding
from manyarms.sketch.estimate import Estimate, estimate
from manyarms.sketch.history import History, by_arm
from manyarms.sketch.linalg import represented_below
from manyarms.sketch.past import Past
from manyarms.sketch.posterior import Posterior
from manyarms.typing import Array, ArrayLike, Indices, Seed


class BKBState(State, Protocol):
    """What every variant's state holds."""

    @property
    def oversampling(self) -> float: ...
    @property
    def dictionary(self) -> Indices: ...
    @property
    def inducing(self) -> Indices: ...
    @property
    def posterior(self) -> Posterior: ...


class BKB(Policy):
    """GP-UCB on a Nyström sketch whose inducing arms are redrawn by ridge leverage scores.

    Theorem 1: with ``oversampling=oversampling_for(epsilon, delta, T)``, σ²/α ≤ σ̃² ≤ ασ² for all arms and all t ≤ T with
    probability 1 − δ. Theorem 2: with `Theory` or `LogDet` as well, regret Õ(√T·d_eff).

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that holds one. A float64 or float32
        array is not copied, so leave it unchanged while in use. With a kernel of objects: a sequence of objects.
        None where there is no table: arms then come with every
        ``choose(arms=…)``, as rows of `n_features` numbers. Both theorems hold for such sets too (the paper's appendix A).
    kernel : a `manyarms.kernels` kernel, a scikit-learn kernel object or a function of two blocks of rows.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a reason.
    oversampling : q̄ of Algorithm 1. About 5 is accurate in practice.
    confidence : the radius β̃ of the scores.
    resparsify : "adaptive" redraws the dictionary when it has become stale and looks only at arms that may be best;
        "always" is Algorithm 1 as printed, O(A m²) a step; "incremental" and "insertion" are it with a dictionary that is
        updated instead of redrawn (see `policies.Incremental`, `policies.Insertion`).
    memory : bytes that "adaptive" may use beside the arms, half of the machine's by default (`estimate` tells what it takes).
        While the embeddings of all arms fit, 8·A·m bytes, they are kept; beyond that they are computed again in every pass
        over all arms. Too little for a few numbers an arm is a MemoryBudgetError. Choices do not depend on it.
    seed : an integer or a numpy Generator, which is copied.
    n_features : d, only where `arms` is None.
    """

    _variants: ClassVar[dict[str, type["BKB"]]] = {}
    _state: BKBState
    _takes_rows = True
    _recorded: tuple[Indices | None] | None = None  # what an observation that is repeated has drawn

    def __init_subclass__(cls, resparsify: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if resparsify is not None:
            BKB._variants[resparsify] = cls

    def __new__(cls, *_: Any, resparsify: str = "adaptive", **__: Any) -> "BKB":
        if cls is not BKB:  # a variant itself, as when a policy is copied
            return object.__new__(cls)
        if resparsify not in BKB._variants:
            raise ParameterError(f"resparsify must be one of {sorted(BKB._variants)}, got {resparsify!r}")
        return object.__new__(BKB._variants[resparsify])

    def __init__(
        self,
        arms: ArrayLike | str | Path | None,
        kernel: Any,
        *,
        regularization: float = 0.01,
        oversampling: float = 5.0,
        confidence: Radius = Constant(2.0),
        resparsify: str = "adaptive",
        memory: float | None = None,
        seed: Seed = 0,
        n_features: int | None = None,
    ) -> None:
        self.resparsify = resparsify
        self.memory = _half_the_machine() if memory is None else real(memory, "memory", "a positive number of bytes", above=0)
        self._first_oversampling = _oversampling(oversampling)
        super().__init__(arms, kernel, regularization=regularization, confidence=confidence, seed=seed, n_features=n_features)

    @staticmethod
    def estimate(n_arms: int, n_features: int, m: int) -> Estimate:
        """Bytes and seconds that so many arms take with m inducing ones, before anything starts.

        ``least_bytes`` is the smallest `memory` that works, ``bytes`` what is used where memory allows, both beside the table
        itself; ``seconds`` is a pass over all arms, of which a run needs a few, timed on this machine with an RBF kernel.
        """
        return estimate(whole(n_arms, "n_arms"), whole(n_features, "n_features"), whole(m, "m"))

    @property
    def oversampling(self) -> float:
        """q̄ of Algorithm 1."""
        return self._state.oversampling

    @property
    def dictionary(self) -> Indices:
        """S_t, the arms drawn last, in index order."""
        return self._state.dictionary.copy()

    @property
    def inducing(self) -> Indices:
        """The arms the posterior rests on, in index order: S_t or a superset, without those that the others represent."""
        return np.sort(self._state.inducing)

    def redraw(self, oversampling: float | None = None) -> None:
        """Draw the dictionary anew for the arms seen so far, with another q̄ where one is given.

        The paper's "Tuning q̄": to go on past the planned horizon, pass ``oversampling_for(epsilon, delta / 2, horizon)``.
        """
        self._state = self._redrawn(self.oversampling if oversampling is None else _oversampling(oversampling))

    def warm_start(
        self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None, largest: int | None = None
    ) -> None:
        """Learn a large table of past rewards as part of the prior: with ``resparsify="adaptive"`` only."""
        raise ParameterError(
            f'warm_start() needs resparsify="adaptive", this is {type(self).__name__}; here observe() learns the table'
        )

    @contextmanager
    def repeating(self, drawn: Indices | None) -> Iterator[None]:
        """What is observed here was before, and this dictionary drawn then (None: none was): nothing is decided anew."""
        self._recorded = (drawn,)
        try:
            yield
        finally:
            del self._recorded

    def drawn_since(self, earlier: "BKB") -> Indices | None:
        """The dictionary, if one was drawn since."""
        return None if self._state.dictionary is earlier._state.dictionary else self._state.dictionary

    def _drawn(self, arms: Indices, probability: Array, chance: Chance) -> tuple[Indices, Chance]:
        """A dictionary, drawn or as recorded; chance moves on either way."""
        drawn, chance = draw_dictionary(arms, probability, chance)
        recorded = self._recorded and self._recorded[0]
        return drawn if recorded is None else recorded, chance

    # A variant has these three; BKB itself is never instantiated.

    def _first_state(self, rng: np.random.Generator) -> BKBState:
        raise NotImplementedError

    def _observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> BKBState:
        raise NotImplementedError

    def _redrawn(self, oversampling: float) -> BKBState:
        """The state with another q̄ and a dictionary drawn anew for what was observed, if anything was."""
        raise NotImplementedError

    def _moments(self) -> tuple[Array, Array]:
        return self._moments_at(self.arms, self._diag)

    def _moments_at(self, X: Array, diag: Array) -> tuple[Array, Array]:
        return self._fitted().moments(X, diag)

    def _fitted(self) -> Posterior:
        """The posterior now."""
        return self._state.posterior

    def _information(self, variance: Array, weights: Array) -> float:
        """Σ_s ln(1 + ασ̃²(x_s)) with these observations, each with the variance before it."""
        return self._state.evidence.information + float(np.log1p(alpha_in(self.confidence) * weights * variance).sum())

    @property
    def _past(self) -> Past | None:
        """A table that was absorbed."""
        return None

    def _tolerance(self, history: History, dictionary: Indices) -> float | None:
        """Residual below which an arm of the dictionary is represented by the others.

        None where the dictionary holds all pulled arms: then the posterior is the exact one, and is kept whole.
        """
        if len(dictionary) == len(history.pulled):
            return None
        kappa2, most = float(self._diags(history, dictionary).max()), float(history.counts.max())
        return represented_below(len(dictionary), kappa2, self.regularization, most)

    def _posterior(self, history: History, dictionary: Indices) -> tuple[Posterior, Indices]:
        """The posterior on a dictionary of pulled arms, and the inducing arms it kept."""
        rows, tolerance = self._rows(history, dictionary), self._tolerance(history, dictionary)
        embedding, kept = Embedding.fit(self.kernel, rows, tolerance)
        inducing = dictionary[kept]
        where = history.positions(inducing)
        return Posterior.fit(embedding, where, self._observations(history), self.regularization, self._past), inducing

    def _lookahead(self, *, append: bool) -> Lookahead:
        scores = self.scores()
        return _Supposed(self, self.arms, self._diag, scores.mean, scores.variance, append=append)

    def _among(self, X: Array, diag: Array, *, append: bool) -> Among:
        return _SupposedByValue(self, X, diag, *self._scored(X, diag), append=append)

    def _scored(self, X: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² at rows to choose among, in time that does not depend on how many arms were observed."""
        return self._moments_at(X, diag)


class _Supposed:
    """Variances if more arms were pulled, each appended to the dictionary too, or not: on a fixed dictionary a pull leaves r/λ
    as it is, and a batch of fixed size would hold the same unexplored arm again and again."""

    def __init__(self, policy: BKB, X: Array, diag: Array, mean: Array, variance: Array, *, append: bool) -> None:
        self._policy, self._X, self._diag, self._append = policy, X, diag, append
        self._history = policy._state.history
        self._dictionary = policy._state.inducing
        self.mean, self.variance = mean, variance

    def pull(self, arms: Indices) -> None:
        policy = self._policy
        arms, nothing, weights = by_arm(arms, np.zeros(len(arms)), np.ones(len(arms)))
        self._history = self._history.add(arms, nothing, weights)
        if self._append:
            self._dictionary = np.union1d(self._dictionary, arms)
        posterior, _ = policy._posterior(self._history, self._dictionary)
        self.variance = posterior.moments(self._X, self._diag)[1]


class _SupposedByValue(_Supposed):
    """The same among rows that are no table's: arms by what is in them."""

    def pull(self, arms: Indices) -> None:
        self._history, numbers = self._policy._numbered(self._X[arms], self._history)
        super().pull(numbers)


def _half_the_machine() -> float:
    return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _oversampling(value: Any) -> float:
    return real(value, "oversampling", "a positive number, q̄ of Algorithm 1", above=0)
