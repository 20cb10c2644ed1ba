"""The scores of a table's arms at a belief, and which of them is best.

Dense is the way: z, μ̃ and σ̃² of all arms, and one sweep an observation. Where embeddings of all
arms take more memory than there is, or longer than some passes over bounds, there are bounds of all
arms and one list (`listed.py`). Who may be best is scored by `moments`, the one function that
scores, so that both ways choose the same arm.
"""

from collections.abc import Iterator

import numpy as np

from manyarms.engine.base import Arms, Step
from manyarms.engine.frozen import Engine
from manyarms.engine.linalg import chunks
from manyarms.search.bounds import are_fine
from manyarms.search.dense import Dense, Path
from manyarms.search.devices import device_of
from manyarms.search.greedy import Followed, Greedy
from manyarms.search.listed import Listed
from manyarms.search.scores import Acquisition, best_of
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats
from manyarms.typing import Array, Indices, Mask

MANY = 64
"""Arms that may be best, above which variances are computed anew: rounding may be why."""
STEPS = 4
"""Steps that are kept beyond those that a sweep follows, half as many as W has rows."""


class Kept:
    """What is kept of a table's arms: one object for the scores at all beliefs of a policy."""

    core: Dense | Listed | None = None

    def __reduce__(self) -> tuple[type["Kept"], tuple[()]]:
        """A copy begins with nothing: what is kept is a cache."""
        return Kept, ()


class TableScores:
    """A value: the scores of a table's arms at a belief. What is kept is shared with those before
    and after it, and belongs to the one that was asked last."""

    def __init__(
        self, belief: Engine, arms: Arms, room: float, tuning: Tuning, stats: Stats
    ) -> None:
        self.belief = belief
        self.arms = arms  # diag is that of the whole kernel
        self._device = None if tuning.device is None else device_of(tuning.device)
        # Bytes that embeddings may take.
        self._room = room if self._device is None else self._device.room(arms)
        self._tuning = tuning
        self._stats = stats
        self._kept = Kept()
        self._path = Path(belief)  # from where what is kept may be

    def after(self, step: Step) -> "TableScores":
        """At the belief after one more step."""
        made = object.__new__(TableScores)  # `copy` takes longer than a small sweep
        made.__dict__.update(self.__dict__)
        made._path = self._path.after(step)
        made.belief = made._path.belief
        if len(made._path.steps) > made.belief.base.m // 2 + STEPS:
            made._path = Path(made.belief)
        return made

    def supposing(self, positions: Indices) -> Greedy:
        """If these arms were pulled once more each."""
        return self.bounds().supposing(positions)

    def bounds(self) -> Greedy:
        """Bounds on the scores, which hold while pulls are only supposed."""
        core = self._core()
        followed = core.followed(self.belief) if isinstance(core, Listed) else Followed()
        mean, variance = core.highest(self.belief)
        return Greedy(Path(self.belief), self.arms, mean, variance, followed)

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
        core = self._core()
        return core.current(self.belief) if isinstance(core, Dense) else self.moments()

    def means(self) -> tuple[Array, float]:
        """μ̃ of all arms as they are kept, and what they may be wrong by beyond rounding."""
        core = self._core()
        if isinstance(core, Dense):
            return core.current(self.belief)[0], 0.0
        return core.means(self.belief)

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, or of all, by the one function that scores."""
        rows, diag = self.arms
        some: Indices | slice = slice(None) if positions is None else positions
        return self.belief.moments(rows[some], diag[some])

    def largest_mean(self, positions: Indices) -> float:
        """The largest μ̃ of some arms, repeats allowed."""
        core = self._core()
        if isinstance(core, Dense):
            return float(core.current(self.belief)[0][positions].max())
        return float(core.means_of(self.belief, np.unique(positions)).max())

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time, of the part of f that arms
        share."""
        core = self._core()
        if isinstance(core, Dense):
            yield from core.embedded()
            return
        base = self.belief.base
        for some in chunks(len(core), max(1, base.m)):
            rows = np.asarray(self.arms.rows[some], dtype=np.float64)
            Z, r = base.features(rows, core.arms.diag[some])
            yield some, Z.T, r

    def _near(self, acquisition: Acquisition, barred: Mask | None) -> Indices:
        core = self._core()
        near, _ = core.near(self.belief, acquisition, barred)
        if core.refresh(self.belief, near, MANY):
            near, _ = core.near(self.belief, acquisition, barred)
        return near

    def _scored(self, near: Indices, acquisition: Acquisition) -> tuple[Array, Array]:
        mean, variance = self.moments(near)
        return acquisition(mean, np.sqrt(variance))

    def _core(self) -> Dense | Listed:
        """What is kept, at the belief of now."""
        kept = self._kept
        core = kept.core
        base = self.belief.base
        if core is not None and core.belief is base:
            return core
        if core is None or (isinstance(core, Dense) and not self._fits(base.m)):
            core = kept.core = self._made()
            if isinstance(core, Dense):
                self._stats.count("embeddings")
        core.bring(self._path)
        self._path = Path(self.belief)
        return core

    def _fits(self, m: int) -> bool:
        return 8.0 * len(self.arms.diag) * m <= self._room

    def _made(self) -> Dense | Listed:
        base = self.belief.base
        n = len(self.arms.diag)
        diag = self.arms.diag
        if self.belief.own_variance:
            diag = base.kernel.diag(self.arms.rows)
        arms = Arms(self.arms.rows, diag)
        tuning = self._tuning
        device = self._device
        is_quick = device or base.m <= tuning.rough or n * base.m**2 <= tuning.quick
        if self._fits(base.m) and (is_quick or not are_fine(base)):
            if device is not None:
                self._stats.count(f"arms on {device.name}", n)
            return Dense(arms, base.kernel, device)
        return Listed(arms, self._tuning.shortlist, self._room, self._stats)
