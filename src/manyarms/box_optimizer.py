"""Ask and tell over a box: `Optimizer(Box(...))`. Ids are points; those asked for or told form a
table that grows."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from manyarms.arms.array import Checked
from manyarms.campaign.answers import Predictions
from manyarms.campaign.box_model import BoxModel
from manyarms.campaign.candidates import Points
from manyarms.campaign.certificate import Certificate
from manyarms.campaign.ledger import State
from manyarms.campaign.model import Model
from manyarms.campaign.settings import Direction
from manyarms.campaign.trials import CandidateId, Trial
from manyarms.domains.box import Box
from manyarms.domains.multistart import MultiStart
from manyarms.domains.policy import DomainBKB
from manyarms.errors import ParameterError, StateError
from manyarms.numbers import whole
from manyarms.optimizer import START, Optimizer
from manyarms.search.work import blas
from manyarms.sketch.confidence import Constant, Radius
from manyarms.typing import Array, Indices, Mask, Seed

RADIUS = Constant(2.0)
"""Of a box: see docs/optimizer.md."""
MAXIMISER = MultiStart(raw=256, starts=2, steps=15)
"""Less thorough than that of `DomainBKB`, and cheaper: regrets could not be told apart
(docs/optimizer.md)."""
OTHERS, GRID = 512, 1 << 14
"""Points drawn where the one of largest score is pending, or ruled out by `repeats`; a box of so
few points has all of them looked at instead."""


class BoxOptimizer(Optimizer):
    """What `Optimizer` is for a `Box`. A point is a dict of its columns, or a tuple of numbers
    where the box has no names.

    The first eight points are drawn uniformly. A point that is pending is asked for again only
    where no other is found. One that failed counts as bad as the worst value told when the next is
    chosen, so that it is left alone; predictions do not use it. `top` is of the points told or
    asked for. `policy` is `DomainBKB` or another with its arguments; ``maximiser=`` is passed on to
    it. A run that stalls searches elsewhere for a while (`box_model`), unless kernel and noise are
    given.
    """

    def __init__(
        self,
        pool: Box,
        *,
        direction: Direction = "maximize",
        kernel: Any = None,
        noise: float | None = None,
        confidence: Radius | None = None,
        repeats: Literal["allow", "never"] | int = "allow",
        policy: Any = DomainBKB,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        if not isinstance(pool, Box):
            raise ParameterError(
                f"BoxOptimizer takes a Box, got {type(pool).__name__}; Optimizer takes pools and "
                "boxes"
            )
        made = partial(_over, pool, policy) if callable(policy) else policy
        radius = RADIUS if confidence is None else confidence
        if policy is DomainBKB:
            options = {"maximiser": MAXIMISER, **options}
        settings = self._settings(
            pool, direction, kernel, noise, radius, repeats, made, seed, options
        )
        self._log = []
        model, nothing = (
            BoxModel.prior(settings, Checked(np.zeros((0, pool.dimension)))),
            np.zeros(0, dtype=bool),
        )
        none = nothing.astype(np.intp)
        self._state = State(Points.none(pool), none, model, 0, 0, (), none, nothing, nothing)

    @property
    def box(self) -> Box:
        """Where points come from."""
        box: Box = self._state.pool.box
        return box

    @property
    def history(self) -> list[Trial]:
        """Every result told, oldest first."""
        return [replace(trial, id=copy(trial.id)) for trial in self._trials]

    def ask(self, n: int = 1) -> list[CandidateId]:
        """n points to try, fewer where `repeats` leaves fewer; they are pending until told or
        released."""
        n, state, asked = whole(n, "n"), self._state, list[int]()
        for _ in range(n):
            with blas().limit(limits=1):
                row = self._next_row(state)
            if row is None and asked:
                break
            if row is None:
                out = int((state.failed | (state.tries >= self._most)).sum())
                raise StateError(
                    f"nothing is left to ask for: {out} points failed or were tried as often as "
                    "`repeats` allows"
                )
            (point,) = self.box.decode(row[None])
            state = _knowing(state, [point])
            asked.append(int(state.pool.positions([point])[0]))
            state = replace(state, pending=(*state.pending, asked[-1]))
        self._state = state
        return state.names(asked)

    def tell(self, ids: Any, values: Any = None, *, failed: Any = None, noise: Any = None) -> None:
        """Learn the values of points, asked for or not; otherwise as over a pool."""
        before = self._state
        self._state = _knowing(before, ids)
        try:
            super().tell(ids, values, failed=failed, noise=noise)
            self._state = replace(self._state, model=self._searching(len(before.pending)))
        except BaseException:
            self._state = before
            raise

    def _searching(self, n_pending: int) -> Model:
        """The model after what was told last, before which so many points were pending."""
        state, model = self._state, cast(BoxModel, self._state.model)
        new = self._results(self._log[-1].trials, state.pool)
        if not model.settings.learns or not len(new[0]):
            return model
        n_asked = n_pending - len(state.pending)
        with blas().limit(limits=1):
            return model.searching(
                new, n_asked, state.pending, lambda: self._results(self._trials, state.pool)
            )

    def predict(self, ids: Any, level: float = 0.95) -> Predictions:
        """Posterior mean, standard deviation and interval of the true values of any points of the
        box."""
        return Optimizer.predict(self._that_knows(ids), ids, level)

    def certificate(self, tolerance: float | None = None) -> Certificate:
        """As over a pool, but heuristic: the rival is the best point that the maximiser finds, and
        it may miss the maximum."""
        self._something_told()
        rival = self.box.decode(self._state.model.policy.choose())
        found = Optimizer.certificate(self._that_knows(rival), tolerance)
        if found.probability is None:
            return found
        reason = "over a box the rival comes from a search that may miss the largest upper bound"
        return replace(found, probability=None, reason=reason)

    def add(self, table: Any, *, ids: Any = None) -> None:
        """Not over a box."""
        raise ParameterError(
            "a box has no list of candidates to add to; tell() takes any point of it"
        )

    def predict_rows(self, table: Any, *, ids: Any = None, level: float = 0.95) -> Predictions:
        """A box has no rows: `predict` takes any point of it."""
        raise ParameterError("a box has no table of candidates; predict() takes any point of it")

    def retire(self, ids: Any) -> None:
        """Not over a box."""
        raise ParameterError(
            "a box has no list of candidates to retire from; tell a point as failed to keep away "
            "from it"
        )

    def _that_knows(self, points: Any) -> "BoxOptimizer":
        twin = copy(self)
        twin._state = _knowing(self._state, points)
        return twin

    def _means(self) -> Array:
        return np.asarray(self._state.model.predict(self._state.pool.arm_of).mean)

    def _rival(self, gone: Mask) -> int:
        policy: Any = self._state.model.policy
        return int(np.argmax(np.where(gone, -np.inf, policy.score(self._state.pool.X))))

    def _gone(self, state: State) -> Mask:
        return state.out

    def _positions(self, trials: Sequence[Trial], pool: Any) -> Indices:
        known: Indices = pool.known([trial.id for trial in trials])
        return known

    def _next_row(self, state: State) -> Array | None:
        """The row to ask for next, None where none may be."""
        model, pool = cast(BoxModel, state.model).chooser, state.pool
        rng = np.random.default_rng([model.settings.seed, 1, len(pool)])
        shut = {row.tobytes() for row in pool.X[state.failed | (state.tries >= self._most)]}
        pending, awaited = pool.X[list(state.pending)], None
        waiting = {row.tobytes() for row in pending}
        if model.settings.learns and model.n_results < START:
            drawn = self._some(rng)
        else:
            policy = self._avoiding(state)
            drawn = policy.choose(pending=pending)
            if self.box.encode(self.box.decode(drawn))[0].tobytes() in shut | waiting:
                policy, others = copy(policy), self._some(rng)
                policy.observe(pending, policy.predict(pending).mean)
                drawn = others[np.argsort(-policy.score(others), kind="stable")]
        for code in drawn:
            row = np.asarray(self.box.encode(self.box.decode(code[None]))[0])
            if row.tobytes() not in shut | waiting:
                return row
            awaited = row if awaited is None and row.tobytes() not in shut else awaited
        return awaited  # a result is coming anyway, but nothing else is to be had

    def _some(self, rng: np.random.Generator) -> Array:
        """All rows, in a random order, of a box that has few; else some drawn from it."""
        grid = self.box.grid(GRID)
        return self.box.sample(OTHERS, rng) if grid is None else rng.permutation(grid)

    def _avoiding(self, state: State) -> Any:
        """The policy as if failed points had given the worst reward there is."""
        model = cast(BoxModel, state.model).chooser
        if not state.failed.any() or not model.n_results:
            return model.policy
        policy = copy(model.policy)
        values = self._sign * np.array(
            [trial.value for trial in self._trials if trial.value is not None]
        )
        rows = state.pool.X[state.failed]
        policy.observe(rows, np.full(len(rows), model.warp.reward(values).min()))
        return policy


def _over(box: Box, policy: Any, _: Array, kernel: Any, **settings: Any) -> Any:
    """The policy over a box, whatever the table."""
    return policy(box, kernel, **settings)


def _knowing(state: State, points: Any) -> State:
    """The state with these points in its table."""
    pool = state.pool.with_(points)
    return (
        state
        if pool is state.pool
        else state.over(pool, np.arange(len(pool)), replace(state.model, arms=pool.X))
    )
