"""Ask and tell over a pool of candidates, with nothing to tune."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from manyarms.campaign.answers import Knowledge
from manyarms.campaign.ledger import (
    Size,
    State,
    Told,
    grown_order,
    is_size_due,
    size_of,
    start_order,
)
from manyarms.campaign.model import Model, Settings
from manyarms.campaign.settings import Direction, as_most, as_pool, as_settings, as_sign
from manyarms.campaign.trials import CandidateId, Trial, as_noise, as_told
from manyarms.domains.box import Box
from manyarms.errors import ObservationError, StateError
from manyarms.numbers import whole
from manyarms.policies import BKB
from manyarms.pool.pool import Pool
from manyarms.search.work import blas
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, Indices, Seed

START = 8
"""Candidates drawn at random before the model chooses."""


class Optimizer(Knowledge):
    """Suggests which candidates of a pool to try next, and says what is known of them.

    pool : a `Pool`, the path of a .csv or .parquet file, anything `Pool.from_frame` or
        `Pool.from_array` takes, or objects where the kernel is one of objects.
    direction : "maximize" or "minimize" the values told.
    kernel : "matern" (None means that) learns a lengthscale for each column: Matérn-5/2 on numeric
        ones, a Hamming kernel on categories, Tanimoto on bits; "rbf" has the Gaussian kernel for
        Matérn's. "tanimoto" and "linear" on all columns, a kernel object or a function of two
        blocks of encoded rows: only the scale is learned.
    noise : standard deviation of the values of one candidate; learned where None, 0 where values
        are exact. With a kernel object *and* a noise nothing is learned and the kernel is taken in
        the units of the values: only then may a theorem cover what `certificate` says.
    confidence : radius of the scores, `Growing(1.3, most=3.0)` where None.
    repeats : "allow" asks for a candidate again where that pays, "never" does not, k asks at most k
        times.
    policy : `BKB`, `GPUCB`, or another with their arguments.
    seed : an integer or a numpy Generator, for the random start and the sketch.
    options : further arguments of the policy, such as ``memory=`` or ``rule=``.
    """

    def __new__(cls, pool: Any = None, *_: Any, **__: Any) -> "Optimizer":
        if not isinstance(pool, Box):
            return object.__new__(cls)
        from manyarms.box_optimizer import BoxOptimizer  # noqa: PLC0415  which is an Optimizer

        return object.__new__(BoxOptimizer)

    def __init__(
        self,
        pool: Any,
        *,
        direction: Direction = "maximize",
        kernel: Any = None,
        noise: float | None = None,
        confidence: Radius | None = None,
        repeats: Literal["allow", "never"] | int = "allow",
        policy: Callable[..., Any] = BKB,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        pool = as_pool(pool, kernel)
        settings = self._settings(
            pool, direction, kernel, noise, confidence, repeats, policy, seed, options
        )
        order, nothing = start_order(settings.seed, len(pool)), np.zeros(len(pool), dtype=bool)
        self._log: list[Told] = []  # entries from n_told on are of calls that failed
        self._state = State(
            pool,
            order,
            Model.prior(settings, pool.X),
            0,
            0,
            (),
            nothing.astype(np.intp),
            nothing,
            nothing,
        )

    def _settings(
        self,
        pool: Any,
        direction: Any,
        kernel: Any,
        noise: Any,
        confidence: Any,
        repeats: Any,
        policy: Any,
        seed: Any,
        options: dict[str, Any],
    ) -> Settings:
        """What was given, checked."""
        self._sign, self.direction = as_sign(direction), direction
        self._most = as_most(repeats)
        return as_settings(pool, kernel, noise, confidence, policy, seed, options)

    # What comes next

    def ask(self, n: int = 1) -> list[CandidateId]:
        """The ids of n candidates to try; they are pending until told or released."""
        n, state = whole(n, "n"), self._state
        asked: list[int] = []
        for _ in range(n):
            with blas().limit(limits=1):
                position = self._next(replace(state, pending=(*state.pending, *asked)))
            if position is None:
                if not asked:
                    raise StateError(self._nothing_left(state))
                break
            asked.append(position)
        self._state = replace(state, pending=(*state.pending, *asked))
        return state.names(asked)

    def release(self, ids: Any) -> None:
        """These candidates are not being tried after all."""
        state, pending = self._state, list(self._state.pending)
        for position in state.pool.positions(ids).tolist():
            if position not in pending:
                raise StateError(
                    f"{state.names([position])[0]!r} is not pending; {self.pending or 'nothing'} is"
                )
            pending.remove(position)
        self._state = replace(state, pending=tuple(pending))

    @property
    def pending(self) -> list[CandidateId]:
        """Asked, and neither told nor released."""
        return self._state.names(self._state.pending)

    # What came back

    def tell(self, ids: Any, values: Any = None, *, failed: Any = None, noise: Any = None) -> None:
        """Learn the values of candidates, asked for or not, in any order; a repeated id is a
        replicate.

        `noise` is the standard deviation of these values where it is known, one number or one each
        (None: that of all others): a value then weighs by its own noise, in what is learned of the
        kernel too. A standard error of a mean is such a noise.

        A value may be `FAILED`; `failed` (True, or one truth each) says so of all or some of the
        ids instead. A failed candidate is not asked for again and teaches the model nothing. On an
        error nothing has changed.
        """
        state = self._state
        positions = state.pool.positions(ids)
        told = as_told(values, failed, len(positions))
        if self._most == 1:
            self._check_once(positions, told)
        results_told = zip(
            state.names(positions), told, as_noise(noise, len(positions)), strict=True
        )
        trials = [Trial(state.n_trials + i, *result) for i, result in enumerate(results_told)]
        good = np.array([value is not None for value in told], dtype=bool)
        pending, results, failures = list(state.pending), state.results.copy(), state.failed.copy()
        for position in positions.tolist():
            if position in pending:
                pending.remove(position)
        np.add.at(results, positions[good], 1)
        failures[positions[~good]] = True
        model = state.model
        if good.any():
            arms, rewards, sd = self._results(trials, state.pool)
            with blas().limit(limits=1):
                model = model.told(
                    arms, rewards, sd, lambda: self._results([*self._trials, *trials], state.pool)
                )
        sizes = self._sizes
        last = sizes[-1].n_results if sizes else 0
        size = size_of(model) if is_size_due(model.n_results, last) else None
        del self._log[state.n_told :]
        self._log.append(Told(trials, size))
        self._state = replace(
            state,
            model=model,
            n_told=state.n_told + 1,
            n_trials=state.n_trials + len(trials),
            pending=tuple(pending),
            results=results,
            failed=failures,
        )

    @property
    def history(self) -> list[Trial]:
        """Every result told, oldest first."""
        return self._trials

    @property
    def _trials(self) -> list[Trial]:
        return [trial for told in self._log[: self._state.n_told] for trial in told.trials]

    @property
    def sizes(self) -> list[Size]:
        """Results, inducing arms and effective dimension, whenever there were 5 % more results, and
        now."""
        sizes = self._sizes
        model = self._state.model
        if model.n_results and (not sizes or sizes[-1].n_results < model.n_results):
            sizes.append(size_of(model))
        return sizes

    @property
    def _sizes(self) -> list[Size]:
        return [told.size for told in self._log[: self._state.n_told] if told.size is not None]

    # Candidates come and go

    def add(self, table: Any, *, ids: Any = None) -> None:
        """More candidates, in a table with the columns of the pool; `ids` for pools made of an
        array with ids."""
        state = self._state
        pool = state.pool.add(table, ids=ids)
        model = state.model.on(pool.X, *self._results(self._trials, pool))
        order = grown_order(state.order, model.settings.seed, len(pool) - len(state.pool))
        self._state = state.over(pool, order, model)

    def retire(self, ids: Any) -> None:
        """These candidates are no longer available: not asked for, not recommended. What they
        taught stays."""
        retired = self._state.retired.copy()
        retired[self._state.pool.positions(ids)] = True
        pending = tuple(position for position in self._state.pending if not retired[position])
        self._state = replace(self._state, retired=retired, pending=pending)

    def __copy__(self) -> "Optimizer":
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._log = self._log[: self._state.n_told]
        return twin

    def __repr__(self) -> str:
        state = self._state
        done = f"{state.n_trials} results, {len(state.pending)} pending"
        return f"Optimizer({state.pool!r}, {self.direction}, {done})"

    # How

    def _next(self, state: State) -> int | None:
        """The position of the next candidate, None where none may be asked for."""
        tries = state.tries
        open_ = ~state.out & (tries < self._most)
        if not open_.any():
            return None
        if state.model.settings.learns and state.model.n_results < START:
            fresh = state.order[open_[state.order] & (tries[state.order] == 0)]
            if len(fresh):
                return int(fresh[0])
        waiting = np.array(state.pending, dtype=np.intp)
        idle = open_.copy()
        idle[waiting] = False  # a result is coming anyway
        open_ = idle if idle.any() else open_
        closed = np.ones(state.model.policy.n_arms, dtype=bool)
        closed[state.pool.arm_of[open_]] = False
        pending = state.pool.arm_of[waiting]
        arm = int(state.model.policy.choose(pending=pending, exclude=closed)[0])
        members = state.pool.members(arm)
        members = members[open_[members]]
        return int(members[np.argmin(tries[members])])

    def _nothing_left(self, state: State) -> str:
        out = f"{int(state.retired.sum())} are retired, {int(state.failed.sum())} failed"
        counts = f"{out}, {len(state.pending)} are pending"
        return (
            f"nothing is left to ask for: of {len(state.pool)} candidates {counts}, the others "
            "were tried as often as "
            "`repeats` allows; tell what is pending, add candidates or allow repeats"
        )

    def _check_once(self, positions: Indices, told: list[float | None]) -> None:
        """Raise ObservationError where repeats="never" and a candidate would have a second
        value."""
        once = self._state.results > 0
        for position, value in zip(positions.tolist(), told, strict=True):
            if value is not None and once[position]:
                (name,) = self._state.names([position])
                raise ObservationError(
                    f"{name!r} has a value already, and repeats is 'never' or 1; allow repeats to "
                    "tell replicates"
                )
            once[position] = True

    def _positions(self, trials: Sequence[Trial], pool: Pool) -> Indices:
        """Of the candidates of trials."""
        return pool.positions([trial.id for trial in trials])

    def _results(self, trials: Sequence[Trial], pool: Pool) -> tuple[Indices, Array, Array]:
        """Arms and signed values of all results, and their noise, NaN where none was told."""
        good = [trial for trial in trials if trial.value is not None]
        if not good:
            return np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)
        arms = pool.arm_of[self._positions(good, pool)]
        noise = np.array([np.nan if trial.noise is None else trial.noise for trial in good])
        return arms, self._sign * np.array([trial.value for trial in good]), noise
