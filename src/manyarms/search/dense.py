"""z, μ̃ and σ̃² of some arms, brought forward from one belief to the next.

An observation gives (`Change`), for all arms alike,

    h = Gᵀz(x),    σ̃² −= ‖h‖²,    μ̃ += hᵀ(surprise),

and a row that enters W a new coordinate of z before. So an arm costs O(m) a step, in one sweep over
its z (`sweep.py`), and O(m²) where everything is computed anew.

What is kept only filters: subtracting loses digits, and `slack` bounds how many. The arms that may
be best are scored by `moments`, the one function that scores.

Where the kernel has own parts, these are numbers of the part of f that arms share. Arms that were
tried are few, and are put right when they are looked at.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from math import sqrt

import numpy as np

from manyarms.engine.base import Arms, Change, Step
from manyarms.engine.frozen import Engine, Frozen
from manyarms.engine.linalg import EPS
from manyarms.kernels import Kernel
from manyarms.search.devices import Device, OnDevice
from manyarms.search.embeddings import InMemory
from manyarms.search.places import Places
from manyarms.search.scores import Acquisition, Rising, Upper
from manyarms.search.sweep import peak, reach
from manyarms.typing import Array, Indices, Mask

MEANS_ANEW = 256
"""Steps after which means are computed anew: the rounding of as many sums is far below a tie."""
SMALL = 8192
"""Arms up to which all values of an acquisition take less time than a table of what is needed."""
BINS = 512
"""Steps of the variance in that table."""


@dataclass(frozen=True)
class Path:
    """The steps that lead from one belief to a later one."""

    start: Engine
    steps: tuple[Step, ...] = ()

    @property
    def belief(self) -> Engine:
        """The later one."""
        return self.steps[-1].after if self.steps else self.start  # type: ignore[return-value]

    def after(self, step: Step) -> "Path":
        """With one more step."""
        return Path(self.start, (*self.steps, step))

    def changes_since(self, before: Frozen | None) -> list[Change] | None:
        """What the steps do after a belief on the way; None where that is not known."""
        changes: list[Change] = []
        for step in reversed(self.steps):
            if step.after.base is before:  # type: ignore[attr-defined]
                break
            if step.change is None:
                return None
            changes.append(step.change)
        else:
            if self.start.base is not before:
                return None
        return changes[::-1]


class Dense:
    """The scores of some arms at a belief, kept and changed in place.

    `belief` is the one that they are of; None where a sweep was interrupted.
    """

    def __init__(self, arms: Arms, kernel: Kernel, device: Device | None = None) -> None:
        self.arms = arms  # diag is that of `kernel`
        self.belief: Frozen | None = None
        self.places = Places(arms.rows)
        self.mean = np.empty(len(arms.diag))
        self.variance = np.empty(len(arms.diag))
        # Embeddings, wherever they are: all else is the same.
        self._z = InMemory(kernel) if device is None else OnDevice(kernel, device)
        self._z.extend(arms)
        self._largest = 0.0  # variance when they were computed
        self._n_steps = 0  # lowered since then

    def __len__(self) -> int:
        return len(self.mean)

    # From belief to belief

    def bring(self, path: Path) -> None:
        """To the belief at the end of a path."""
        if self.belief is path.belief.base:
            return
        changes = path.changes_since(self.belief)
        if changes is None:
            self.compute(path.belief)
        else:
            self.follow(path.belief, changes)

    def compute(self, belief: Engine) -> None:
        """Everything anew: O(nm²)."""
        self.belief = None
        self._z.embed(belief.base, self.mean, self.variance)
        self._largest = float(self.variance.max(initial=0.0))
        self._n_steps = 0
        self.places.find(belief, anew=True)
        self.belief = belief.base

    def follow(self, belief: Engine, changes: Sequence[Change]) -> None:
        """To the belief after these changes."""
        before = self.belief
        base = belief.base
        k = sum(len(change.surprise) for change in changes)
        if before is None or not before.m or 2 * k > base.m + 4:
            self.compute(belief)
            return
        if len(changes) == 1 and len(changes[0].lowering) == base.m:
            lowering, surprise = changes[0]
            G = np.ascontiguousarray(lowering.T)
        else:
            G = np.zeros((k, base.m))
            start = 0
            for lowering, _ in changes:
                m, size = lowering.shape
                G[start : start + size, :m] = lowering.T
                start += size
            surprise = np.concatenate([change.surprise for change in changes])
        self.belief = None
        n_before = self._n_steps
        self._n_steps += k
        means_anew = self._n_steps // MEANS_ANEW > n_before // MEANS_ANEW
        self._z.sweep(base, before.m, G, surprise, self.mean, self.variance, means_anew=means_anew)
        self.places.find(belief)
        self.belief = base

    def extend(self, belief: Engine, arms: Arms) -> None:
        """With more arms, at the same belief."""
        self.belief = None
        n = len(self)
        more = len(arms.diag)
        rows = np.concatenate([self.arms.rows, arms.rows])
        self.arms = Arms(rows, np.concatenate([self.arms.diag, arms.diag]))
        self.mean = np.concatenate([self.mean, np.empty(more)])
        self.variance = np.concatenate([self.variance, np.empty(more)])
        self._z.extend(self.arms)
        self._z.embed(belief.base, self.mean, self.variance, n)
        self._largest = max(self._largest, float(self.variance[n:].max()))
        self.places = Places(rows)
        self.places.find(belief, anew=True)
        self.belief = belief.base

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        for chunk, Z in self._z.parts(0 if self.belief is None else self.belief.m):
            r = self.arms.diag[chunk] - np.add.reduce(np.square(Z), axis=0)
            yield chunk, Z, np.maximum(r, 0.0)

    # Reading

    @property
    def slack(self) -> float:
        """How far variances may be from the true ones by rounding."""
        base = self.belief
        if base is None:
            return np.inf
        subtracted = 8 * EPS * (1 + self._n_steps + base.m) * self._largest
        return subtracted + 32 * base.rounding_seen / base.regularization

    def current(self, belief: Engine) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms with own parts, right but for rounding: new arrays."""
        if not belief.own_variance:
            return self.mean.copy(), self.variance.copy()
        mean = self.mean.copy()
        variance = self.variance + belief.own_variance / belief.regularization
        tried, places = self.places.positions, self.places.places
        if len(tried):
            right = belief.corrected(self.mean[tried], self.variance[tried], places)
            mean[tried], variance[tried] = right
        return mean, variance

    def highest(self, belief: Engine) -> tuple[Array, Array]:
        """What μ̃ and σ̃² of all arms do not exceed: new arrays."""
        mean, variance = self.current(belief)
        return mean, variance + self.slack

    def copy(self) -> "Dense":
        """The same arms at the same belief, which goes on by itself."""
        made = copy(self)
        made.mean = self.mean.copy()
        made.variance = self.variance.copy()
        made.places = copy(self.places)
        made._z = self._z.copy(0 if self.belief is None else self.belief.m)
        return made

    def refresh(self, belief: Engine, near: Indices, most: int) -> bool:
        """Compute everything anew where many arms may be best: rounding may be why."""
        if len(near) <= most or not self._n_steps:
            return False
        self.compute(belief)
        return True

    def near(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> tuple[Indices, float]:
        """Positions, ascending, of the arms whose value may be the largest, given the rounding, and
        a value that the best of them reaches. None where all are shut."""
        if not isinstance(acquisition, Rising):
            return self._near_by_both_ends(belief, acquisition, shut), -np.inf
        if len(self) > SMALL or isinstance(acquisition, Upper):
            return self._near_among_many(belief, acquisition, shut)
        mean, variance = self.mean, self.variance
        if belief.own_variance:
            mean, variance = self.current(belief)
        slack = self.slack
        values = acquisition.upper(mean, np.sqrt(variance + slack))
        if shut is not None:
            values[shut] = -np.inf
        best = int(values.argmax()) if len(values) else -1
        if best < 0 or values[best] == -np.inf:
            return np.zeros(0, dtype=np.intp), -np.inf
        lowest = sqrt(max(float(variance[best]) - slack, 0.0))
        least = acquisition.least(float(mean[best]), lowest)
        return np.flatnonzero(values >= least), least

    def _near_among_many(
        self, belief: Engine, acquisition: Rising, shut: Mask | None
    ) -> tuple[Indices, float]:
        """The same without a value for every arm. Tried arms are looked at by themselves."""
        slack = self.slack
        own = belief.own_variance / belief.regularization
        least = -np.inf
        tried = self.places.positions
        closed = shut
        upper = np.zeros(0)
        if len(tried):
            closed = self.places.mask if shut is None else self.places.mask | shut
            moments = belief.corrected(self.mean[tried], self.variance[tried], self.places.places)
            mean, variance = moments
            upper = acquisition.upper(mean, np.sqrt(variance + slack))
            if shut is not None:
                upper[shut[tried]] = -np.inf
            best = int(upper.argmax())
            if upper[best] > -np.inf:
                lowest = sqrt(max(float(variance[best]) - slack, 0.0))
                least = acquisition.least(float(mean[best]), lowest)
        at, top, second = peak(self.mean, self.variance, closed, acquisition.beta, own + slack)
        if at >= 0:
            lowest = sqrt(max(float(self.variance[at]) + own - slack, 0.0))
            least = max(least, acquisition.least(float(self.mean[at]), lowest))
        if isinstance(acquisition, Upper) and second < least:
            # These were the values themselves: no other arm reaches that one.
            some = np.array([at] if top >= least else [], dtype=np.intp)
            return self._with_tried(some, upper, least), least
        some, values = reaching(
            self.mean, self.variance, closed, acquisition, least, own + slack, self._largest
        )
        if len(some):
            # The best of an acquisition that is no upper bound may be another arm.
            best = int(values.argmax())
            lowest = sqrt(max(float(self.variance[some[best]]) + own - slack, 0.0))
            least = max(least, acquisition.least(float(self.mean[some[best]]), lowest))
            some = some[values >= least]
        return self._with_tried(some, upper, least), least

    def _with_tried(self, some: Indices, upper: Array, least: float) -> Indices:
        """Some arms, and the tried ones whose bounds reach so much, in index order."""
        if not len(upper):
            return some
        return np.sort(np.concatenate([some, self.places.positions[upper >= least]]))

    def _near_by_both_ends(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> Indices:
        """A value may fall with the deviation (probability of improvement): either end of what
        rounding allows may be larger."""
        mean, variance = self.current(belief)
        some = np.arange(len(mean)) if shut is None else np.flatnonzero(~shut)
        mean = mean[some]
        variance = variance[some]
        slack = self.slack
        highest, tolerance = acquisition(mean, np.sqrt(variance + slack))
        lowest, _ = acquisition(mean, np.sqrt(np.maximum(variance - slack, 0.0)))
        low = np.minimum(highest, lowest)
        best = int(np.argmax(low))
        return np.asarray(some[np.maximum(highest, lowest) >= low[best] - 4 * tolerance[best]])


def reaching(
    mean: Array,
    variance: Array,
    shut: Mask | None,
    acquisition: Rising,
    least: float,
    more: float,
    largest: float,
    moved: float = 0.0,
) -> tuple[Indices, Array]:
    """Arms whose values may reach so much, and bounds on these, once no mean has risen by more than
    D·σ̃, D = `moved`, and variances are to be larger by `more`; none is above `largest`.

    What an arm needs of the mean depends on its variance alone: it is looked up in a table.
    """
    scale = BINS / largest if largest > 0 else 0.0
    edges = np.arange(1, BINS + 1) * (largest / BINS)
    deviation = np.sqrt(edges)
    need = acquisition.needed(least, np.sqrt(edges + more)) - moved * deviation
    need -= 1e-12 * np.abs(need)  # what rounding does to this very sum
    some = reach(mean, variance, shut, need, scale)
    bound = mean[some]
    if moved:
        bound = bound + moved * np.sqrt(variance[some])
    values = acquisition.upper(bound, np.sqrt(variance[some] + more))
    reached = values >= least
    return some[reached], values[reached]
