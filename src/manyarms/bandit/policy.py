"""A policy: the arms of a table, a belief about them, and a chooser. The only object here that
changes.

choose:   belief, table → scores → radius → chooser → arm
observe:  arm, reward → belief (W grows) → evidence; the scores follow
"""

from abc import ABC, abstractmethod
from copy import copy
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np

from manyarms.bandit.batches import BatchRule, GlobalRule
from manyarms.bandit.checks import (
    NO_ARMS,
    as_arms,
    as_excluded,
    as_generator,
    as_radius,
    as_rewards,
    as_weights,
    is_rows,
)
from manyarms.checks import LONGEST_BATCH, MOST_AT_ONCE, Checked, as_bytes, as_rows, real, whole
from manyarms.engine.base import Arms, Batch, Belief, Record, Rule, Step
from manyarms.engine.confidence import (
    Bayes,
    Constant,
    Evidence,
    Guarantee,
    Promise,
    Radius,
    TheoremTwo,
    first_norm,
    updated_norm,
)
from manyarms.engine.dictionary import Chance
from manyarms.engine.embedding import check_kernel
from manyarms.engine.frozen import Engine, Inserted
from manyarms.engine.history import Log, by_arm
from manyarms.errors import (
    ArmsError,
    ObservationError,
    ParameterError,
    StateError,
    UnknownArmError,
    shortened,
)
from manyarms.kernels import Kernel, as_kernel
from manyarms.kernels.objects import encoded, encoder_of
from manyarms.lapack import in_one_thread
from manyarms.runtime.machine import half_the_memory
from manyarms.search import check_memory, offered, scores_of
from manyarms.search.devices import check_device
from manyarms.search.scores import (
    TIE,
    ArmScores,
    Chooser,
    KeepsScores,
    RowsElsewhere,
    Scores,
    Upper,
    View,
    best_of,
    diagonal,
)
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats
from manyarms.typing import Array, ArrayLike, Indices, Mask, Seed

RADIUS = "a finite non-negative radius"
"""What an error says that a radius must be."""
SHARE_OF_ALL = 4
"""All arms are scored if one in so many is asked about: the next choice needs all of them
anyway."""
SCORED_FIRST = 64
"""Arms of largest mean that are scored first when the largest lower bound is looked for."""


NOTHING: tuple[int, ...] = ()
"""No arms. This very object needs no check: most calls have no other."""


class Prediction(NamedTuple):
    """Posterior mean and standard deviation of f, each (n,), in the units of the rewards."""

    mean: Array
    std: Array


class State(NamedTuple):
    """Everything that `observe` changes, replaced as a whole."""

    belief: Belief
    log: Log  # what was observed of the arms of the table
    n_observations: int
    norm: float | None  # the guess of ‖f‖, where the radius doubles it
    told: Any = None  # what a policy over a domain keeps besides


class Supposed(NamedTuple):
    """Scores of the table's arms, if some of them were pulled once more each."""

    standing: ArmScores  # if none were
    arms: Indices  # in the order supposed
    scores: ArmScores

    def begins(self, standing: ArmScores, arms: Indices) -> bool:
        """Whether these arms begin with the supposed ones, and the scores are the same."""
        n = len(self.arms)
        return self.standing is standing and np.array_equal(self.arms, arms[:n])


class Learner(ABC):
    """What policies share: a belief that learns rewards, and the radius of its scores."""

    _state: State

    def __init__(
        self,
        kernel: Any,
        rule: Rule,
        regularization: float,
        noise: float | None,
        confidence: Radius,
    ) -> None:
        self.kernel: Kernel = as_kernel(kernel)
        self.regularization = real(
            regularization, "regularization", "a positive variance, for instance noise**2", above=0
        )
        # Observations without a noise of their own weigh ω = 1: ξ = √λ unless it is given.
        self.noise = float(np.sqrt(self.regularization))
        self.noise_variance = self.regularization  # √λ squared is not λ in float64
        if noise is not None:
            self.noise = real(noise, "noise", "a positive standard deviation", above=0)
            self.noise_variance = self.noise**2
        self.confidence = as_radius(confidence)
        check_noise(self.confidence, self.noise, self.regularization)
        self.rule = rule
        self.stats = Stats()

    def _begin(self, arms: Arms, rng: np.random.Generator, told: Any = None) -> None:
        """Nothing is observed yet."""
        belief = self.rule.prior(self.kernel, arms, self.regularization, self.noise, rng)
        self._state = State(belief, Log(), 0, first_norm(self.confidence), told)
        # A radius that does not suit the belief is refused now, not after the first trial.
        self.confidence_is_valid()

    def observe(
        self,
        arms: ArrayLike,
        rewards: ArrayLike,
        *,
        noise: ArrayLike | None = None,
    ) -> Record:
        """Learn the rewards of arms, repeats included, in one step or not at all.

        Parameters
        ----------
        arms : array_like, (n,) or (n, d)
            By number, or by value as rows; over a domain always as rows. Rewards of one arm by
            number are merged into their mean.
        rewards : array_like, (n,)
            What they gave.
        noise : float or array_like, (n,), optional
            Standard deviation of these rewards where it differs from the policy's ξ; an observation
            then weighs ω = ξ²/noise².

        Returns
        -------
        Record
            What was decided: which rows entered the inducing set.

        Raises
        ------
        ObservationError
            A reward is no finite number.
        UnknownArmError
            A number names no arm.
        """
        batch = self.batch_of(arms, rewards, noise)
        return self.learn(batch) if len(batch.rows) else Record.nothing()

    @in_one_thread
    def learn(self, batch: Batch) -> Record:
        """Observe a batch, checked."""
        state = self._state
        start = perf_counter()
        # Everything is computed before anything is assigned: an error has changed nothing.
        step = state.belief.observed(batch)
        log = state.log
        # Rows given by value have the key −1: they are no arms of the table.
        if batch.keys[0] >= 0:
            log = log.added(batch.keys, step.record.sizes, batch.weights, batch.rewards)
        norm = state.norm
        # A guess of ‖f‖ that these results refute is doubled before the next radius.
        if norm is not None:
            norm = updated_norm(self.confidence, step.after.evidence.of(self._union, norm))
        n = state.n_observations + batch.n_observations
        self._follow(State(step.after, log, n, norm, state.told), step, batch)
        self.stats.took("observations", start)
        return step.record

    @abstractmethod
    def batch_of(self, arms: ArrayLike, rewards: ArrayLike, noise: ArrayLike | None) -> Batch:
        """Observations, checked."""

    @abstractmethod
    def _follow(self, after: State, step: Step, batch: Batch) -> None:
        """Replace the state: the only assignment of `learn`."""

    def _batch_of_rows(self, rows: Array, rewards: ArrayLike, noise: ArrayLike | None) -> Batch:
        n = len(rows)
        values = as_rewards(rewards, n)
        weights = as_weights(noise, n, self.noise_variance)
        return Batch(rows, self._diagonal(rows), values, weights, np.full(n, -1), n)

    def _diagonal(self, X: Array) -> Array:
        """k(x, x) of rows, (n,)."""
        return diagonal(self.kernel, X, self.regularization)

    @property
    @in_one_thread
    def beta(self) -> float:
        """β̃, the radius of the scores now."""
        return self._radius(self.evidence)

    @property
    @in_one_thread
    def evidence(self) -> Evidence:
        """What the radius is a function of, now; `evidence.norm` is the current guess of ‖f‖ where
        it is doubled."""
        return self._state.belief.evidence.of(self._union, self._guess)

    @property
    def belief(self) -> Belief:
        """What is known of f, as a value."""
        return self._state.belief

    @property
    def guarantee(self) -> Guarantee:
        """What is known of the posterior, by the observations so far."""
        belief = self._state.belief
        radius = self.confidence
        if belief.guarantee == "resampled" and isinstance(radius, TheoremTwo):
            return "resampled" if radius.lack(belief.evidence) else "theorem 1"
        return belief.guarantee

    @property
    def effective_dimension(self) -> float:
        """d̃ = Σ_s ωσ̃²(x_s) over what was observed, the policy's estimate of Tr K(K + λI)⁻¹."""
        return self.evidence.effective_dimension

    @property
    def _union(self) -> float:
        """Arms over which a radius is a union: infinitely many over a domain."""
        return np.inf

    @property
    def _guess(self) -> float | None:
        return self._state.norm

    def _radius(self, evidence: Evidence) -> float:
        beta = self.confidence(evidence)
        # The usual case; `real` converts other numbers, and refuses what is no radius.
        if type(beta) is float and 0 <= beta < np.inf:
            return beta
        return real(beta, "what confidence returns", RADIUS, at_least=0)

    @in_one_thread
    def confidence_is_valid(self) -> None:
        """Raise ParameterError where the radius is not for such a belief, or is no radius."""
        try:
            self._radius(self.evidence)
        except (TypeError, AttributeError) as error:
            raise ParameterError(
                "confidence must be a radius such as Constant(2.0), or a function of Evidence, got "
                f"{shortened(self.confidence)}: {error}"
            ) from error


class Policy(Learner):
    """Chooses arms and learns from their rewards. Arms are the rows of a table; an arm is its
    index."""

    @in_one_thread
    def __init__(
        self,
        arms: ArrayLike | str | Path | Checked | RowsElsewhere | None,
        kernel: Any,
        *,
        rule: Rule,
        chooser: Chooser,
        batches: BatchRule = GlobalRule(),
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius = Constant(2.0),
        seed: Seed = 0,
        n_features: int | None = None,
        memory: float | str | None = None,
        tuning: Tuning = Tuning(),
    ) -> None:
        super().__init__(kernel, rule, regularization, noise, confidence)
        self.arms = _table(encoded(arms, self.kernel), n_features)
        for part, method, name, example in (
            (rule, "prior", "rule", "Inserted()"),
            (batches, "started", "batches", "GlobalRule()"),
        ):
            if isinstance(part, type) or not hasattr(part, method):
                raise ParameterError(f"{name} must be one such as {example}, got {shortened(part)}")
        if not isinstance(tuning, Tuning):
            raise ParameterError(f"tuning must be a Tuning(…), got {shortened(tuning)}")
        self.chooser = chooser
        self.batches = batches
        self.memory = half_the_memory() if memory is None else as_bytes(memory)
        self.tuning = tuning
        self._diag = self._diagonal_of_table()
        self._check_kernel(self.arms, self._diag)
        rng = as_generator(seed)
        self._chance = Chance.of(rng)
        # Drawn once: asked again before the first result, `choose` answers the same.
        self._first_arm = self._chance.integer(self.n_arms or 2)
        self._scores_cache: tuple[State, ArmScores] | None = None
        self._moments_cache: tuple[State, Array, Array] | None = None
        self._supposed_cache: Supposed | None = None
        self._begin(Arms(self.arms, self._diag), rng)
        if tuning.device is not None:
            elsewhere = isinstance(self.arms, RowsElsewhere)
            check_device(tuning.device, self.belief, None if elsewhere else self.arms[:2])

    # Observing

    @property
    def _union(self) -> float:
        return self.n_arms or 1

    def _follow(self, after: State, step: Step, batch: Batch) -> None:
        cached = self._scores_cache
        # Only scores of the state before can be brought forward by this step.
        if cached is not None:
            cached = (after, cached[1].after(step)) if cached[0] is self._state else None
        self._state = after
        self._scores_cache = cached
        self._supposed_cache = None  # what was supposed was supposed before this

    def batch_of(self, arms: ArrayLike, rewards: ArrayLike, noise: ArrayLike | None) -> Batch:
        """Observations, checked."""
        if is_rows(arms):
            return self._batch_of_rows(self._given(arms), rewards, noise)
        numbers = self._numbers(arms)
        n = len(numbers)
        values = as_rewards(rewards, n)
        weights = as_weights(noise, n, self.noise_variance)
        # Results of one arm become one row: their weights add up, and y is the weighted mean.
        if n > 1:
            numbers, values, weights = by_arm(numbers, values, weights)
            if not (np.isfinite(values).all() and np.isfinite(weights).all()):
                raise ObservationError(
                    "the rewards of an arm, times their weights ξ²/noise², add up beyond "
                    "float64; rescale the rewards"
                )
        rows = self.arms[numbers].astype(np.float64, copy=False)
        return Batch(rows, self._diag.take(numbers), values, weights, numbers, n)

    # Choosing

    @in_one_thread
    def choose(
        self,
        n: int | None = 1,
        *,
        arms: ArrayLike | None = None,
        pending: ArrayLike = NOTHING,
        exclude: ArrayLike = NOTHING,
        beta: float | None = None,
    ) -> Indices:
        """The arms to pull next. Asked again before an `observe`, it answers the same.

        A batch supposes each arm pulled before choosing the next: its variance shrinks, the means
        stay. What a radius promises holds for sets that change (the paper's appendix A):
        `Certified`, `Theory` and `LogDet` contain f everywhere; `Bayes` is taken for k arms.

        Parameters
        ----------
        n : int or None
            How many. With None a rule ends the batch (`batches`): arms are added while those before
            them, pending ones included, have 1 + Σσ̃²(x_s) ≤ C, with the variances of now. Such
            batches grow as variances shrink, up to 1,000 arms, and are empty while what is
            pending must be awaited. The radius is the policy's own.
        arms : array_like, (k, d), optional
            Rows to choose among instead of the policy's own; the answer numbers them, as does
            `exclude`.
        pending : array_like
            Arms whose rewards are still outstanding, as in `observe`.
        exclude : array_like
            Arms that must not be chosen: indices, or a mask of all arms.
        beta : float, optional
            A radius in place of the policy's own; what that promises does not hold for it.

        Returns
        -------
        ndarray, (n,)
            Numbers of arms.
        """
        if beta is not None:
            beta = real(beta, "beta", RADIUS, at_least=0)
        size = n
        if n is not None and not (type(n) is int and 0 < n <= MOST_AT_ONCE):
            size = whole(n, "n", at_most=MOST_AT_ONCE)
        log = self._state.log
        n_observations = self._state.n_observations
        if arms is None:
            self._check_table()
            k = len(self.arms)
            waiting = NO_ARMS if pending is NOTHING else as_arms(pending, k)
            barred = None if exclude is NOTHING else as_excluded(exclude, k)
            first = self._first_arm
            diag = self._diag
            scores = self._scores
        else:
            X = self._given(arms)
            k = len(X)
            rows = self.rows_of(pending)
            waiting = np.arange(k, k + len(rows))
            barred = as_excluded(exclude, k)
            if len(rows):
                # Pending rows stand behind those of now: they can be supposed, not chosen.
                own = np.zeros(k, dtype=bool) if barred is None else barred
                barred = np.concatenate([own, np.ones(len(rows), dtype=bool)])
                X = np.vstack([X, rows])
            first = self._chance.integer(k)
            # The log is of arms of the table, and numbers mean other rows here.
            log = Log()
            diag = self._diagonal(X)
            scores = offered(self._state.belief, Arms(X, diag), self.memory, self.stats)
        chosen: list[int] = []
        if not n_observations and not len(waiting):
            chosen.append(_next_allowed(first, k, barred))  # Alg. 1, line 1
        # Before the first result a batch of no given size is one arm, or none while one is pending.
        if len(chosen) == size or (size is None and not n_observations):
            return np.array(chosen, dtype=np.intp)
        start = perf_counter()
        # One radius for the whole batch, that of the results so far. It is not widened: the theorem
        # on regret in batches asks for √C times as much (docs/theory.md, statement 3).
        radius = beta
        if radius is None:
            radius = self._radius(self._state.belief.evidence.of(k, self._state.norm))
        lam = self.regularization
        view = View(scores, radius, lam, barred, k, log, n_observations, 0, self._chance)
        try:
            self._fill(chosen, size, waiting, view, diag)
        except BaseException:
            # A pass that was interrupted may have left half of a table behind.
            self._scores_cache = None
            self._supposed_cache = None
            raise
        self.stats.took("choices", start)
        return np.array(chosen, dtype=np.intp)

    def _fill(
        self, chosen: list[int], n: int | None, waiting: Indices, view: View, diag: Array
    ) -> None:
        """Choose until there are n, or until the rule ends the batch, each with those before it
        supposed pulled."""
        goes_on = self.batches.started(view.scores) if n is None else None
        standing = view.scores
        supposed = np.array(chosen, dtype=np.intp) if chosen else waiting
        known = self._supposed_cache
        if goes_on is None and known is not None and known.begins(standing, waiting):
            # One who asks again, with what was chosen pending too, goes on from there.
            view = view._replace(scores=known.scores, number=len(waiting))
            supposed = waiting[len(known.arms) :]
        while len(chosen) != n:
            if goes_on is not None and not goes_on(supposed):
                return
            if len(supposed):
                scores = view.scores.supposing(supposed) if self.chooser.looks else view.scores
                view = view._replace(scores=scores, number=len(waiting) + len(chosen))
            arm = self.chooser.pick(view)
            chosen.append(arm)
            supposed = np.array([arm])
            # Where k(x, x) = 0 f is known, and nothing would end the batch.
            if goes_on is not None and (not diag[arm] or len(chosen) == LONGEST_BATCH):
                return
        # Rows given by value are scored once, and forgotten.
        cached = self._scores_cache
        if view.scores is not standing and cached is not None and cached[1] is standing:
            # The last arm chosen is not supposed in these scores.
            pulled = np.concatenate([waiting, np.array(chosen[:-1], dtype=np.intp)])
            self._supposed_cache = Supposed(standing, pulled, view.scores)

    @in_one_thread
    def highest(self, *, exclude: ArrayLike = (), beta: float | None = None) -> int:
        """The arm of largest upper bound μ̃ + β̃σ̃, however the policy chooses.

        Parameters
        ----------
        exclude : array_like
            Arms that do not count: indices, or a mask.
        beta : float, optional
            Another radius than that of the policy.

        Returns
        -------
        int
            The number of the arm.
        """
        self._check_table()
        upper = Upper(self.beta if beta is None else real(beta, "beta", RADIUS, at_least=0))
        return self._scores.arg_max(upper, as_excluded(exclude, self.n_arms))

    @in_one_thread
    def surest(self, arms: ArrayLike) -> int:
        """The arm of largest lower bound μ̃ − β̃σ̃ among some arms.

        Parameters
        ----------
        arms : array_like
            Their numbers.

        Returns
        -------
        int
            The number of the arm.
        """
        self._check_table()
        some = as_arms(arms, self.n_arms)
        if not len(some):
            raise ArmsError("the surest of no arms is none; give one at least")
        # No lower bound is above its mean: where all means are at hand, few arms need a score.
        if SHARE_OF_ALL * len(some) >= self.n_arms:
            means, error = self._scores.means()
            foremost = np.argsort(-means[some], kind="stable")[:SCORED_FIRST]
            values, tolerance = self._lower(some[foremost])
            best = int(np.argmax(values))
            may_be = means[some] + error + 8 * tolerance[best] >= values[best]
            may_be[foremost[best]] = True  # rewards of 1e88 are rounded more than error says
            some = some[may_be]
        return int(some[best_of(*self._lower(some))])

    def _lower(self, arms: Indices) -> tuple[Array, Array]:
        """μ̃ − β̃σ̃ of some arms, and what is a tie with it."""
        mean, variance = self._scores.moments(arms)
        width = self.beta * np.sqrt(variance)
        return mean - width, TIE * (np.abs(mean) + width)

    @in_one_thread
    def leading(self, k: int, *, exclude: ArrayLike = ()) -> Indices:
        """The k arms of largest posterior mean, best first; fewer if fewer are left.

        Parameters
        ----------
        k : int
            How many.
        exclude : array_like
            Arms that do not count: indices, or a mask.

        Returns
        -------
        ndarray, (k,)
            Numbers of arms.
        """
        self._check_table()
        means, error = self._scores.means()
        kept = means.copy()
        barred = as_excluded(exclude, self.n_arms)
        if barred is not None:
            kept[barred] = -np.inf
        k = min(whole(k, "k"), int(np.isfinite(kept).sum()))
        if not k:
            return np.array([], dtype=np.intp)
        least = np.partition(kept, -k)[-k]
        # Means that are kept are nearly right: those near the last one decide exactly.
        margin = 2 * error + TIE * np.abs(kept[kept >= least]).max()
        some = np.flatnonzero(kept >= least - margin)
        mean, _ = self._scores.moments(some)
        # Stable: of equal means the lowest number comes first.
        return np.asarray(some[np.argsort(-mean, kind="stable")[:k]])

    # What is known

    @in_one_thread
    def scores(self) -> Scores:
        """Mean, variance (leverage units) and upper confidence bound of every arm, each (A,),
        read-only."""
        self._check_table()
        state = self._state
        cached = self._moments_cache
        if cached is None or cached[0] is not state:
            self.stats.count("full scorings")
            cached = self._moments_cache = (state, *self._scores.moments())
        _, mean, variance = cached
        scores = Scores(mean, variance, mean + self.beta * np.sqrt(variance))
        # The moments are kept: a caller who wrote into them would change later answers.
        for array in scores:
            array.setflags(write=False)
        return scores

    @in_one_thread
    def predict(self, X: ArrayLike | None = None, *, arms: ArrayLike | None = None) -> Prediction:
        """Posterior mean and standard deviation of f.

        Parameters
        ----------
        X : array_like, (n, d), optional
            Rows, or objects where arms are; all arms of the table where neither is given.
        arms : array_like, (n,), optional
            Some arms of the table, by number.

        Returns
        -------
        Prediction
            μ̃ and √(λσ̃²), (n,) each.
        """
        moments = self._state.belief.moments
        if arms is not None:
            numbers = self._numbers(arms)
            mean, variance = moments(self.arms[numbers], self._diag[numbers])
        elif X is None:
            mean, variance, _ = self.scores()
            # The scores are read-only; a prediction is the caller's own.
            mean = mean.copy()
        else:
            rows = as_rows(encoded(X, self.kernel, self.n_features), self.n_features)
            mean, variance = moments(rows, self._diagonal(rows))
        # σ̃² is in leverage units: the variance of f is λσ̃² (docs/theory.md, notation).
        return Prediction(mean, np.sqrt(self.regularization * variance))

    @property
    def best(self) -> int:
        """The pulled arm of largest lower confidence bound μ̃ − β̃σ̃."""
        pulled = self._state.log.pulled
        if not len(pulled):
            raise StateError("no arm of the table was observed yet: call observe() first")
        # The largest lower bound, not the largest mean: a lucky single pull is not the best arm.
        return self.surest(pulled)

    @property
    def counts(self) -> Array:
        """Weight of the observations of every arm of the table, (A,): how often it was pulled,
        unless `noise` was given."""
        log = self._state.log
        return np.bincount(log.arms, log.weights, minlength=self.n_arms).astype(np.float64)

    @property
    def log(self) -> Log:
        """What was observed of the arms of the table, oldest first."""
        return self._state.log

    @property
    def n_arms(self) -> int:
        """A, the number of arms in the table."""
        return len(self.arms)

    @property
    def n_features(self) -> int:
        """d, the columns of a row."""
        return int(self.arms.shape[1])

    def __repr__(self) -> str:
        state = self._state
        done = f"{state.n_observations} observations of {len(state.log.pulled)} arms"
        return f"{type(self).__name__}({self.n_arms} arms, {self.kernel!r}, {done})"

    # The same policy elsewhere

    def resumed(self, state: State) -> Self:
        """The same policy in another state, such as a stored one; this policy stays as it is.

        Parameters
        ----------
        state : State
            Of a policy with the same settings.

        Returns
        -------
        Policy
            A twin of this one.
        """
        twin = copy(self)
        twin._state = state
        # Caches are of one state and one table, and the twin may have others.
        twin._scores_cache = None
        twin._moments_cache = None
        twin._supposed_cache = None
        return twin

    @in_one_thread
    def over(self, arms: ArrayLike | Checked) -> Self:
        """The same policy over a table that has grown.

        The belief, the log and the norm go on, and numbers stay.

        Parameters
        ----------
        arms : array_like, (A, d)
            The table, which begins with that of now.

        Returns
        -------
        Policy
            A twin of this one.
        """
        if isinstance(self.belief, KeepsScores):
            raise StateError(
                "this belief is about the arms of its own table: make the policy anew over the "
                "other one"
            )
        if isinstance(self.belief, Engine) and self.belief.discount < 1:
            raise StateError(
                "this policy has a discount, and its observations fade: it takes no table, as the "
                "search of one rests on variances that never rise"
            )
        twin = self.resumed(self._state)
        twin.arms = _table(encoded(arms, self.kernel), None)
        twin._diag = twin._diagonal_of_table()
        twin._first_arm = self._chance.integer(twin.n_arms)
        return twin

    # Parts

    @property
    def _scores(self) -> ArmScores:
        """The scores of the table's arms: a cache."""
        state = self._state
        cached = self._scores_cache
        if cached is None or cached[0] is not state:
            arms = Arms(self.arms, self._diag)
            scores = scores_of(state.belief, arms, self.memory, self.tuning, self.stats)
            cached = self._scores_cache = (state, scores)
        return cached[1]

    def _numbers(self, arms: ArrayLike) -> Indices:
        """Arms by number, checked."""
        try:
            return as_arms(arms, self.n_arms)
        except ArmsError as error:
            if isinstance(error, UnknownArmError) or encoder_of(self.kernel) is None:
                raise
            raise ArmsError(
                f"objects are given by their rows, kernel.encode(objects), or by number: {error}"
            ) from error

    def _given(self, arms: ArrayLike) -> Array:
        """Rows given by value, checked; −0 is 0."""
        rows = as_rows(encoded(arms, self.kernel, self.n_features), self.n_features)
        # Rows of W are found by their bytes, and those of −0 are not those of 0.
        X = np.add(rows, 0.0, dtype=np.float64)
        # Without a table the kernel is tried on the first rows that come.
        if not self.n_arms and not self._state.n_observations:
            self._check_kernel(X, self._diagonal(X))
        return X

    def rows_of(self, arms: ArrayLike) -> Array:
        """Rows of arms by number or by value."""
        if is_rows(arms):
            return self._given(arms)
        return self.arms[self._numbers(arms)].astype(np.float64, copy=False)

    def _check_table(self) -> None:
        if not len(self.arms):
            raise ArmsError(
                "the policy was made without arms: pass those of now, as choose(arms=X) or "
                "predict(X)"
            )

    def _check_kernel(self, X: Array, diag: Array) -> None:
        """Raise KernelError before the first trial where the kernel cannot work on these rows."""
        if not len(X):
            return
        # Eight rows, spread over the table: cheap, and finds most that is no covariance.
        some = np.linspace(0, len(X) - 1, min(len(X), 8)).astype(np.intp)
        check_kernel(self.kernel, X[some], diag[some])

    def _diagonal_of_table(self) -> Array:
        """k(x, x) of the policy's own arms, which must fit the memory."""
        arms = self.arms
        if isinstance(arms, RowsElsewhere):
            if not isinstance(self.rule, Inserted):
                raise ParameterError(
                    "rows that are not in this process are for rule=Inserted(…), got "
                    f"{shortened(self.rule)}"
                )
            return arms.diagonal_of(self.kernel, self.regularization)
        check_memory(len(arms), self.memory)
        return self._diagonal(arms)


def _table(arms: Any, n_features: int | None) -> Array:
    """The arms of the policy; none if arms are given at every choice."""
    if arms is None:
        return np.zeros((0, whole(n_features, "n_features (where arms are None)")))
    if n_features is not None:
        raise ParameterError(
            f"n_features is for policies without arms of their own, got "
            f"{shortened(n_features)} and arms too"
        )
    return arms if isinstance(arms, RowsElsewhere) else as_rows(arms)  # type: ignore[return-value]


def check_noise(confidence: Radius, noise: float, regularization: float) -> None:
    """Raise ParameterError if the radius was made for another noise than that which weighs the
    observations."""
    if isinstance(confidence, Promise) and not np.isclose(
        confidence.noise, noise, rtol=1e-6, atol=0
    ):
        raise ParameterError(
            f"{confidence!r} is for noise of standard deviation {confidence.noise:g}, the "
            "policy weighs observations by "
            f"{noise:g}: pass noise={confidence.noise:g} to the policy as well (or "
            f"regularization={confidence.noise**2:g})"
        )
    if isinstance(confidence, Bayes) and not np.isclose(
        np.sqrt(regularization), noise, rtol=1e-6, atol=0
    ):
        raise ParameterError(
            f"{confidence!r} is for a posterior whose λ is the variance of the noise, "
            f"{noise**2:g}, got regularization={regularization:g}: leave regularization at "
            f"{noise**2:g}, or use Certified, which holds for any λ"
        )


def _next_allowed(first: int, n: int, barred: Mask | None) -> int:
    """This arm of n, or the next one that may be chosen."""
    return first if barred is None else int(np.argmin(np.roll(barred[:n], -first)) + first) % n
