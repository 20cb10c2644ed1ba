"""BKB over an infinite set: arms are rows, the next one where a maximiser finds the largest
score."""

from collections.abc import Callable
from copy import copy
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from manyarms.bandit.checks import as_generator
from manyarms.bandit.convex import Ball, Polytope
from manyarms.bandit.maximisers import MultiStart, Score, Sweeps
from manyarms.bandit.policy import Learner, Prediction, State
from manyarms.checks import MOST_AT_ONCE, Checked, whole
from manyarms.engine.base import Arms, Batch, Step
from manyarms.engine.confidence import Constant, Radius
from manyarms.engine.dictionary import Chance
from manyarms.engine.embedding import check_kernel
from manyarms.engine.frozen import Engine, Inserted
from manyarms.engine.growing import Stack
from manyarms.engine.history import Log
from manyarms.errors import ArmsError, ParameterError, StateError, shortened
from manyarms.lapack import in_one_thread
from manyarms.space.box import Box
from manyarms.typing import Array, ArrayLike, Seed

STARTS_KEPT = 1024
"""Rows told last that a maximiser may start from, beside the inducing ones: a choice costs the same
however long the run."""
ROWS_CHECKED = 8
"""Rows drawn to check that the kernel is a covariance; the first of them is pulled first."""


Domain = Box | Ball | Polytope
"""A set of rows from which a policy chooses."""
Maximiser = Callable[[Score, Any, np.random.Generator], ArrayLike]
"""Of u, which has `gradient`, the domain and a generator: a row (d,) where u is large."""


class Told(NamedTuple):
    """What was told of rows, which a belief does not keep."""

    entries: Stack  # (n, d + 2) of every observation the row, the weight ω and the reward
    tree: Any = None  # of `AdaBKB`

    def distinct(self) -> tuple[Array, Array]:
        """The rows told, each once, (u, d), and the weight of the observations of each, (u,)."""
        told = self.entries.items
        rows = told[:, :-2]  # before weight and reward
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)  # as they came
        weights = np.bincount(which.ravel(), told[:, -2], minlength=len(first))
        return rows[first[order]], np.asarray(weights[order], dtype=np.float64)


class DomainBKB(Learner):
    """BKB over a `Box`, or another domain, instead of a table.

    An arm is an encoded row; `Box.decode` gives its point. What a radius promises of regret asks
    for the maximum of u. A local search need not find it.

    Parameters
    ----------
    domain : Box, Ball or Polytope
        Where arms come from.
    kernel : Kernel
        Of encoded rows.
    regularization, noise : float
        λ and ξ, as for `BKB`.
    rule : Inserted
        Which rows enter the inducing set W.
    confidence : Radius
        As for `BKB`. `Certified`, `LogDet` and `Theory` hold over infinite sets, too.
    maximiser : callable, optional
        From u, the domain and a generator to a row; u is called with rows (n, d) and gives (n,),
        and u.gradient gives (n, d). Default: `Sweeps()` on products of levels, `MultiStart()` on
        other boxes, the domain's own `maximise` elsewhere.
    seed : int or numpy.random.Generator
        As for `BKB`.
    """

    @in_one_thread
    def __init__(
        self,
        domain: Domain,
        kernel: Any,
        *,
        regularization: float = 0.01,
        noise: float | None = None,
        rule: Inserted = Inserted(),
        confidence: Radius = Constant(2.0),
        maximiser: Maximiser | None = None,
        seed: Seed = 0,
    ) -> None:
        if not isinstance(domain, Domain):
            raise ParameterError(
                f"domain must be a Box, a Ball or a Polytope, got {shortened(domain)}; "
                "BKB takes a table of arms"
            )
        if not isinstance(rule, Inserted):
            raise ParameterError(
                f"over a domain the rule is Inserted(…), got {shortened(rule)}; BKB takes others"
            )
        super().__init__(kernel, rule, regularization, noise, confidence)
        self.domain = domain
        rng = as_generator(seed)
        some = domain.sample(ROWS_CHECKED, rng)
        check_kernel(self.kernel, some, self.kernel.diag(some))
        self._first_row: Array = some[0]
        self._chance = Chance.of(rng)
        default: Maximiser = getattr(domain, "maximise", MultiStart())
        if getattr(domain, "levels", None) is not None:
            default = Sweeps()
        self.maximiser = default if maximiser is None else maximiser
        if not callable(self.maximiser):
            raise ParameterError(
                f"maximiser must be a function of u, the domain and a generator, got "
                f"{shortened(maximiser)}"
            )
        d = domain.dimension
        told = Told(Stack(np.zeros((0, d + 2))))
        self._begin(Arms(np.zeros((0, d)), np.zeros(0)), rng, told)

    @in_one_thread
    def choose(self, n: int = 1, *, pending: ArrayLike = (), exclude: ArrayLike = ()) -> Array:
        """The rows to pull next. Asked twice, it answers the same.

        Parameters
        ----------
        n : int
            How many.
        pending : array_like, (k, d)
            Rows that are being evaluated. They, and the rows before in a batch, are supposed to
            give their mean.
        exclude : array_like, (k, d)
            Rows that must not be chosen.

        Returns
        -------
        ndarray, (n, d)
            Encoded rows.
        """
        n = whole(n, "n", at_most=MOST_AT_ONCE)
        waiting = self.domain.checked(pending)
        barred = as_barred(self.as_told(exclude))
        chosen: list[Array] = []
        start = perf_counter()
        belief = supposing(self.belief, waiting)
        for number in range(len(waiting), len(waiting) + n):
            chosen.append(self._next(belief, number, barred))
            # The last row need not be supposed: nothing is chosen after it.
            if len(chosen) < n:
                belief = supposing(belief, chosen[-1][None])
        self.stats.took("choices", start)
        return np.array(chosen)

    def _next(self, belief: Engine, number: int, barred: frozenset[bytes]) -> Array:
        """The row (d,) to pull next by this belief, in which `number` pulls are supposed."""
        if not belief.n_observations and self._first_row.tobytes() not in barred:
            return self._first_row
        # A generator of its own for each step and place in the batch: `choose` stays pure.
        rng = self._chance.at(self.belief.n_observations, number)
        found = self.maximiser(self._score(belief, barred), self.domain, rng)
        try:
            return np.asarray(self.domain.checked(cast(ArrayLike, [found]))[0])
        except ArmsError as error:
            raise ArmsError(
                f"the maximiser must return a row of the domain, {self.domain.dimension} "
                f"numbers: {error}"
            ) from error

    def batch_of(self, arms: ArrayLike, rewards: ArrayLike, noise: ArrayLike | None) -> Batch:
        """Observations of encoded rows, checked."""
        return self._batch_of_rows(self.as_told(arms), rewards, noise)

    def _follow(self, after: State, step: Step, batch: Batch) -> None:
        entries = after.told.entries.appended(entries_of(batch))
        self._state = after._replace(told=Told(entries))

    @in_one_thread
    def as_told(self, arms: ArrayLike) -> Array:
        """Rows (n, d) of the domain as they are observed: without −0, which equals 0 and has other
        bytes."""
        return self.domain.checked(arms) + 0.0

    @in_one_thread
    def resumed(
        self,
        belief: Engine,
        norm: float | None,
        arms: ArrayLike,
        rewards: ArrayLike,
        *,
        noise: ArrayLike | None = None,
    ) -> "DomainBKB":
        """The same policy with a belief that was stored, given all that was observed till then;
        this one stays as it is."""
        batch = self.batch_of(arms, rewards, noise)
        twin = copy(self)
        twin._state = State(belief, Log(), len(batch), norm, Told(Stack(entries_of(batch))))
        return twin

    @in_one_thread
    def predict(self, X: ArrayLike | Checked) -> Prediction:
        """Posterior mean and standard deviation of f.

        Parameters
        ----------
        X : array_like, (n, d)
            Encoded rows.

        Returns
        -------
        Prediction
            μ̃ and √(λσ̃²), (n,) each.
        """
        rows = X.rows if isinstance(X, Checked) else self.domain.checked(X)
        mean, variance = self.belief.moments(rows, self.kernel.diag(rows))
        return Prediction(mean, np.sqrt(self.regularization * variance))

    @property
    @in_one_thread
    def score(self) -> Score:
        """u = μ̃ + β̃σ̃ now, with its gradient."""
        return self._score(self.belief)

    def _score(self, belief: Engine, barred: frozenset[bytes] = frozenset()) -> Score:
        """u of this belief, in which more may be supposed, with the radius of now."""
        recent = self._state.told.entries.items[-STARTS_KEPT:]
        return Score(belief, self.beta, recent[:, :-2], recent[:, -1], barred)

    @property
    def belief(self) -> Engine:
        """What is known of f, as a value."""
        return cast(Engine, self._state.belief)

    @property
    def inducing(self) -> Array:
        """The rows in W, (m, d), in the order in which they entered."""
        return self.belief.W.copy()

    @property
    def sketch_error(self) -> float:
        """e = Σ ωr/λ over what was observed, as of `BKB`."""
        return self.evidence.left_out

    @property
    def rows(self) -> Array:
        """The distinct rows observed, (u, d), in the order of their first observation."""
        return np.asarray(self._state.told.distinct()[0])

    @property
    def counts(self) -> Array:
        """Weight of the observations of each of `rows`, (u,)."""
        return np.asarray(self._state.told.distinct()[1])

    @property
    @in_one_thread
    def best(self) -> Array:
        """The row observed of largest lower confidence bound μ̃ − β̃σ̃, (d,)."""
        rows = self.rows
        if not len(rows):
            raise StateError("nothing was observed yet: call observe() first")
        mean, variance = self.belief.moments(rows, self.kernel.diag(rows))
        lower = mean - self.beta * np.sqrt(variance)
        return np.array(rows[int(np.argmax(lower))])

    def __repr__(self) -> str:
        seen = self.belief.n_observations
        return f"{type(self).__name__}({self.domain!r}, {self.kernel!r}, {seen} observations)"


def entries_of(batch: Batch) -> Array:
    """Observations as `Told` keeps them, (n, d + 2)."""
    return np.column_stack([batch.rows, batch.weights, batch.rewards])


def as_barred(rows: Array) -> frozenset[bytes]:
    """The rows (n, d) in the format of `Score.barred`."""
    return frozenset(row.tobytes() for row in rows)


def supposing(belief: Engine, rows: Array) -> Engine:
    """The belief as if each of the rows (n, d) had been pulled and had given its mean."""
    if not len(rows):
        return belief
    return cast(Engine, belief.supposing(rows, belief.kernel.diag(rows)).after)
