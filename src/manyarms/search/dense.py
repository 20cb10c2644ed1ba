"""z, μ̃ and σ̃² of some arms, brought forward from one belief to the next.

An observation gives (`Change`), for all arms alike,

    h = Gz(x),    σ̃² −= ‖h‖²,    μ̃ += hᵀ(surprise),

and a row that enters W a new coordinate of z before. So an arm costs O(m) a step, in one sweep over
its z (`sweep.py`), and O(m²) where everything is computed anew.

What is kept only filters: subtracting loses digits, and `slack` bounds how many. The arms that may
be best are scored by `moments`, the one function that scores.

Where the kernel has own parts, these are numbers of the part of f that arms share. Arms that were
tried are few, and are put right when they are looked at.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from math import sqrt

import numpy as np

from manyarms.engine.base import Arms, Change
from manyarms.engine.frozen import Engine
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
BINS = 512
"""Steps of the variance in the table of means that are needed."""
NONE: Indices = np.zeros(0, dtype=np.intp)

Changes = Sequence[Change | None] | None
"""What happened from one belief to a later one: None where that is not known; one that is None
leaves everything to be computed anew."""


class Dense:
    """The scores of some arms at a belief, kept and changed in place.

    `belief` is the one that they are of; None where a sweep was interrupted.
    """

    def __init__(
        self,
        arms: Arms,
        kernel: Kernel,
        device: Device | None = None,
        room: float = np.inf,
    ) -> None:
        self.arms = arms  # diag is that of `kernel`
        self.belief: Engine | None = None
        self.places = Places(arms.rows)
        self.mean = np.empty(len(arms.diag))
        self.variance = np.empty(len(arms.diag))
        # Embeddings, wherever they are: all else is the same.
        self._z = InMemory(kernel, room) if device is None else OnDevice(kernel, device)
        self._z.extend(arms)
        self.largest = 0.0  # variance when they were computed
        self._n_steps = 0  # lowered since then

    def __len__(self) -> int:
        return len(self.mean)

    def copy(self) -> "Dense":
        """The same arms at the same belief, which goes on by itself."""
        made = copy(self)
        made.mean = self.mean.copy()
        made.variance = self.variance.copy()
        made.places = copy(self.places)
        made._z = self._z.copy(0 if self.belief is None else self.belief.m)
        return made

    @property
    def bytes(self) -> float:
        """Bytes that embeddings take of this process."""
        return self._z.bytes

    # From belief to belief

    def compute(self, belief: Engine) -> None:
        """Everything anew: O(nm²)."""
        self.belief = None
        self._z.embed(belief.base, self.mean, self.variance)
        self.largest = float(self.variance.max(initial=0.0))
        self._n_steps = 0
        self.places.find(belief, anew=True)
        self.belief = belief

    def bring(self, belief: Engine, changes: Changes) -> None:
        """To a belief, after these changes."""
        before = self.belief
        base = belief.base
        if before is None or not before.m or changes is None or None in changes:
            self.compute(belief)
            return
        G, surprise = _joined(changes, base.m)  # type: ignore[arg-type]
        k = len(surprise)
        if 2 * k > base.m + 4:
            self.compute(belief)
            return
        self.belief = None
        n_before = self._n_steps
        self._n_steps += k
        means_anew = self._n_steps // MEANS_ANEW > n_before // MEANS_ANEW
        self._z.sweep(base, before.m, G, surprise, self.mean, self.variance, means_anew=means_anew)
        self.places.find(belief)
        self.belief = belief

    def extend(self, belief: Engine, arms: Arms) -> None:
        """With more arms, at the same belief."""
        self.belief = None
        n = len(self)
        more = np.empty(len(arms.diag))
        rows = np.concatenate([self.arms.rows, arms.rows])
        self.arms = Arms(rows, np.concatenate([self.arms.diag, arms.diag]))
        self.mean = np.concatenate([self.mean, more])
        self.variance = np.concatenate([self.variance, more])
        self._z.extend(self.arms)
        self._z.embed(belief.base, self.mean, self.variance, n)
        self.largest = max(self.largest, float(self.variance[n:].max()))
        self.places = Places(rows)
        self.places.find(belief)
        self.belief = belief

    def refresh(self, belief: Engine) -> bool:
        """Compute everything anew, unless it is new."""
        if not self._n_steps:
            return False
        self.compute(belief)
        return True

    # Reading

    @property
    def slack(self) -> float:
        """How far variances may be from the true ones by rounding."""
        if self.belief is None:
            return np.inf
        base = self.belief.base
        subtracted = 8 * EPS * (1 + self._n_steps + base.m) * self.largest
        return subtracted + 32 * base.rounding_seen / base.regularization

    def bounds(self) -> tuple[Array, Array, float]:
        """μ̃ and σ̃² of the part of f that arms share, new arrays, and the slack of the latter."""
        return self.mean.copy(), self.variance.copy(), self.slack

    def current(self, belief: Engine) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms with own parts, right but for rounding: new arrays."""
        mean = self.mean.copy()
        variance = self.variance + belief.own_variance / belief.regularization
        tried = self.places.positions
        if len(tried):
            mean[tried], variance[tried] = self._of_tried(belief)
        return mean, variance

    def means(self, belief: Engine, positions: Indices | None = None) -> tuple[Array, float]:
        """μ̃ of some arms, or of all, and what they may be wrong by beyond rounding: nothing."""
        mean, _ = self.current(belief)
        return (mean if positions is None else mean[positions]), 0.0

    def embedded(self) -> Iterator[tuple[slice, Array, Array]]:
        """Positions, z (m, k) and r (k,) of all arms, some at a time."""
        for chunk, Z in self._z.parts(0 if self.belief is None else self.belief.m):
            r = self.arms.diag[chunk] - np.add.reduce(np.square(Z), axis=0)
            yield chunk, Z, np.maximum(r, 0.0)

    def near(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None
    ) -> tuple[Indices, float]:
        """Positions, ascending, of the arms whose value may be the largest, given the rounding, and
        a value that the best of them reaches. None where all are shut."""
        slack = self.slack
        if not isinstance(acquisition, Rising):
            return self._near_by_both_ends(belief, acquisition, shut, slack), -np.inf
        own = belief.own_variance / belief.regularization
        least = -np.inf
        tried = self.places.positions
        upper = np.zeros(0)
        closed = shut
        if len(tried):
            # Own parts may have raised them, or lowered them: they are looked at by themselves.
            closed = self.places.and_shut(shut)
            mean, variance = self._of_tried(belief)
            upper, _ = acquisition(mean, np.sqrt(variance + slack))
            if shut is not None:
                upper[shut[tried]] = -np.inf
            best = int(upper.argmax())
            if upper[best] > -np.inf:
                least = _least(acquisition, mean[best], variance[best] - slack)
        at, top, second = peak(self.mean, self.variance, closed, acquisition.beta, own + slack)
        if at >= 0:
            reached = _least(acquisition, self.mean[at], self.variance[at] + own - slack)
            least = max(least, reached)
        if isinstance(acquisition, Upper) and second < least:
            # These were the values themselves: no other arm reaches that one.
            some = np.array([at], dtype=np.intp) if top >= least else NONE
        else:
            some, values = reaching(
                self.mean, self.variance, closed, acquisition, least, own + slack, self.largest
            )
            if len(some):
                # The best of an acquisition that is no upper bound may be another arm.
                at = int(some[values.argmax()])
                reached = _least(acquisition, self.mean[at], self.variance[at] + own - slack)
                least = max(least, reached)
                some = some[values >= least]
        if len(upper):
            some = np.sort(np.concatenate([some, tried[upper >= least]]))
        return some, least

    def _of_tried(self, belief: Engine) -> tuple[Array, Array]:
        """μ̃ and σ̃² of the arms that were tried, with own parts."""
        tried = self.places.positions
        return belief.corrected(self.mean[tried], self.variance[tried], self.places.places)

    def _near_by_both_ends(
        self, belief: Engine, acquisition: Acquisition, shut: Mask | None, slack: float
    ) -> Indices:
        """A value may fall with the deviation (probability of improvement): either end of what
        rounding allows may be larger."""
        mean, variance = self.current(belief)
        some = np.arange(len(mean)) if shut is None else np.flatnonzero(~shut)
        highest, tolerance = acquisition(mean[some], np.sqrt(variance[some] + slack))
        lowest, _ = acquisition(mean[some], np.sqrt(np.maximum(variance[some] - slack, 0.0)))
        low = np.minimum(highest, lowest)
        best = int(np.argmax(low))
        return np.asarray(some[np.maximum(highest, lowest) >= low[best] - 4 * tolerance[best]])


def _joined(changes: Sequence[Change], m: int) -> tuple[Array, Array]:
    """G (k, m) and the surprises (k,) of several changes; earlier ones have fewer coordinates."""
    if len(changes) == 1 and changes[0].G.shape[1] == m:
        return changes[0]
    surprise = np.concatenate([change.surprise for change in changes])
    G = np.zeros((len(surprise), m))
    start = 0
    for one, _ in changes:
        stop = start + len(one)
        G[start:stop, : one.shape[1]] = one
        start = stop
    return G, surprise


def _least(acquisition: Rising, mean: float, variance: float) -> float:
    """What the value of one arm is not below, less eight times what is a tie."""
    deviation = sqrt(max(variance, 0.0))
    value, ties = acquisition(float(mean), deviation)  # type: ignore[arg-type]
    return float(value - 8 * ties)


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
    need = acquisition.needed(least, np.sqrt(edges + more)) - moved * np.sqrt(edges)
    need -= 1e-12 * np.abs(need)  # what rounding does to this very sum
    some = reach(mean, variance, shut, need, scale)
    bound = mean[some]
    if moved:
        bound = bound + moved * np.sqrt(variance[some])
    values, _ = acquisition(bound, np.sqrt(variance[some] + more))
    reached = values >= least
    return some[reached], values[reached]
