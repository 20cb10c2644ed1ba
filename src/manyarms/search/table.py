"""The scores of a table's arms at a belief, and which of them is best.

Dense is the way: z, μ̃ and σ̃² of all arms, and one sweep an observation. Where embeddings of all
arms take more memory than there is, or longer than some passes over bounds, there are bounds of all
arms and one list (`listed.py`). Who may be best is scored by `moments`, the one function that
scores, so that both ways choose the same arm.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from manyarms.engine.base import Arms, Change, Step
from manyarms.engine.frozen import Engine
from manyarms.engine.linalg import chunks
from manyarms.search.bounds import are_fine
from manyarms.search.dense import Changes, Dense
from manyarms.search.devices import device_of
from manyarms.search.listed import Listed
from manyarms.search.scores import Acquisition, best_of
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats
from manyarms.typing import Array, Indices, Mask

MANY = 64
"""Arms that may be best, above which variances are computed anew: rounding may be why."""
STEPS = 4
"""Steps that are remembered beyond those that a sweep follows, half as many as W has rows."""
FEW = 2048
"""Arms up to which all are followed where pulls are only supposed."""


class Table:
    """Arms, and what is kept of their scores: a cache for all beliefs about them. It belongs to the
    one that was asked last."""

    def __init__(self, arms: Arms, room: float, tuning: Tuning, stats: Stats) -> None:
        self.arms = arms  # diag is that of the whole kernel
        self.device = None if tuning.device is None else device_of(tuning.device)
        # Bytes that embeddings may take.
        self.room = room if self.device is None else self.device.room(arms)
        self.tuning = tuning
        self.stats = stats
        self.is_supposed = False  # pulls that come are only supposed
        self._core: Dense | Listed | None = None
        # Beliefs before and after, since what is kept was brought forward last.
        self._steps: list[tuple[Engine, Change | None, Engine]] = []

    def __reduce__(self) -> tuple[type["Table"], tuple[Arms, float, Tuning, Stats]]:
        """A copy begins with nothing kept."""
        return Table, (self.arms, self.room, self.tuning, self.stats)

    def took(self, before: Engine, change: Change | None, after: Engine) -> None:
        """Remember a step: scores follow it when they are asked."""
        if len(self._steps) > before.m // 2 + STEPS:
            self._steps.clear()  # so many are computed anew
        self._steps.append((before, change, after))

    def at(self, belief: Engine) -> Dense | Listed:
        """What is kept, at a belief."""
        core = self._core
        if core is not None and core.belief is belief:
            return core
        if core is None or (isinstance(core, Dense) and not self._fits(belief.m)):
            core = self._core = self._made(belief)
        core.bring(belief, self._changes(core.belief, belief))
        self._steps.clear()
        return core

    def _changes(self, before: Engine | None, now: Engine) -> Changes:
        """From one belief to a later one."""
        changes: list[Change | None] = []
        for earlier, change, later in reversed(self._steps):
            if later is now and now is not before:
                changes.append(change)
                now = earlier
        return changes[::-1] if now is before else None

    def _fits(self, m: int) -> bool:
        return 8.0 * len(self.arms.diag) * m <= self.room

    def _made(self, belief: Engine) -> Dense | Listed:
        base = belief.base
        rows, diag = self.arms
        n = len(diag)
        if belief.own_variance:
            diag = base.kernel.diag(rows)
        tuning = self.tuning
        is_quick = self.device or base.m <= tuning.rough or n * base.m**2 <= tuning.quick
        if not self._fits(base.m) or not (is_quick or not are_fine(base)):
            return Listed(Arms(rows, diag), tuning.shortlist, self.room, self.stats)
        self.stats.count("embeddings")
        if self.device is not None:
            self.stats.count(f"arms on {self.device.name}", n)
        return Dense(Arms(rows, diag), base.kernel, self.device, self.room)

    def supposing(self, belief: Engine) -> "Table":
        """The same arms at a belief, for pulls that are only supposed from there on."""
        core = self.at(belief)
        made = Table(self.arms, self.room, replace(self.tuning, device=None), self.stats)
        made.is_supposed = True
        if isinstance(core, Dense) and len(core) <= FEW:
            made._core = core.copy()
        else:
            room = self.room - core.bytes
            made._core = Listed.beside(core, belief, self.tuning.shortlist, room, self.stats)
        return made


class TableScores:
    """A value: the scores of a table's arms at a belief."""

    __slots__ = ("belief", "table")

    def __init__(self, table: Table, belief: Engine) -> None:
        self.table = table
        self.belief = belief

    @property
    def arms(self) -> Arms:
        """The arms that are scored."""
        return self.table.arms

    def after(self, step: Step) -> "TableScores":
        """At the belief after one more step."""
        after: Engine = step.after  # type: ignore[assignment]
        self.table.took(self.belief, step.change, after)
        return TableScores(self.table, after)

    def supposing(self, positions: Indices) -> "TableScores":
        """If these arms were pulled once more each."""
        rows, diag = self.arms
        some = rows[positions].astype(np.float64, copy=False)
        return self.apart().after(self.belief.supposing(some, diag[positions]))

    def apart(self) -> "TableScores":
        """The same, for pulls that are only supposed."""
        if self.table.is_supposed:
            return self
        return TableScores(self.table.supposing(self.belief), self.belief)

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value that may be chosen; of those that tie with it, the lowest."""
        near = self._near(acquisition, barred)
        if len(near) == 1:
            return int(near[0])
        values, tolerance = self._scored(near, acquisition)
        return int(near[best_of(values, tolerance)])

    def nearly_best(
        self, acquisition: Acquisition, barred: Mask | None
    ) -> tuple[Indices, Array, Array]:
        """Every arm that may be the best, or tie with it: numbers that ascend, values, and by how
        much each value may tie."""
        near = self._near(acquisition, barred)
        return near, *self._scored(near, acquisition)

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms as they are kept: right but for rounding."""
        core = self.table.at(self.belief)
        return core.current(self.belief) if isinstance(core, Dense) else self.moments()

    def means(self, positions: Indices | None = None) -> tuple[Array, float]:
        """μ̃ of some arms, or of all, and what they may be wrong by beyond rounding."""
        return self.table.at(self.belief).means(self.belief, positions)

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all, by the one function that scores."""
        rows, diag = self.arms
        some: Indices | slice = slice(None) if positions is None else positions
        return self.belief.moments(rows[some], diag[some])

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time, of the part of f that arms
        share."""
        core = self.table.at(self.belief)
        if isinstance(core, Dense):
            yield from core.embedded()
            return
        base = self.belief.base
        for some in chunks(len(core), max(1, base.m)):
            rows = np.asarray(core.arms.rows[some], dtype=np.float64)
            Z, r = base.features(rows, core.arms.diag[some])
            yield some, Z.T, r

    def _near(self, acquisition: Acquisition, barred: Mask | None) -> Indices:
        core = self.table.at(self.belief)
        near, _ = core.near(self.belief, acquisition, barred)
        if len(near) > MANY and core.refresh(self.belief):
            near, _ = core.near(self.belief, acquisition, barred)
        return near

    def _scored(self, near: Indices, acquisition: Acquisition) -> tuple[Array, Array]:
        mean, variance = self.moments(near)
        return acquisition(mean, np.sqrt(variance))
