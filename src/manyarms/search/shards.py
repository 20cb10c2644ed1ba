"""The search over rows that are divided among shards, in this process or in others.

A *shard* holds some rows of the table, in the table's order, and a replica of the belief. The
driver sends what is new: observations (rows, rewards, weights) with the record of what was decided,
so that every replica takes the same step, O(d) numbers for each. A shard answers with those of its
arms that may be the best, scored exactly. The best of all is among them:

    arm = min { j : u_j ≥ u* − τ* },    u* = max u_j,    τ* what is a tie with it.

Let arm j of a shard be that minimum. All lower arms of the shard are below u* − τ* ≤ u_j, so u_j is
larger than each of them. Hence a shard sends only the arms whose value is larger than that of every
lower arm: few, also where a million arms tie.

A shard that is new, or that missed something, is sent the whole belief: O(m²) numbers. It is a pure
function of its rows and of what it was sent, so one that died is made again and answers the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from manyarms.beliefs.base import Arms, Batch, Record, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.beliefs.packing import Arrays, packed, unpacked
from manyarms.errors import ClusterError
from manyarms.kernels import Kernel
from manyarms.lapack import OneThread
from manyarms.search.lazy import Lazy
from manyarms.search.scores import Acquisition, best_of, diagonal
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats
from manyarms.typing import AnyArray, Array, Indices, Mask

MOST_NEWS = 1024
"""Steps that are kept for shards which have not seen them. One that missed more is sent the whole
belief, which costs it a pass over its rows."""
MOST_TRIES = 5
"""How often a shard is asked in one round. Each time it was lost, or had missed something."""
SPARSE = 64
"""Barred arms are sent by number where they are less than one in so many: a number has 64 bits."""
ROWS_HASHED = 1 << 16
"""Rows that are hashed at a time."""

_ids = count()


# What is sent


class Taken(NamedTuple):
    """A step that was taken. With its record, a replica of the belief takes the same one."""

    id: int  # of the scores after it
    batch: Batch
    record: Record


class Whole(NamedTuple):
    """A belief, as arrays."""

    id: int  # of the scores it is of
    prior: Frozen  # before anything was observed
    arrays: Arrays
    W: Array  # (m, d)
    tuning: Tuning


class News(NamedTuple):
    """How a shard comes from what it has to the scores that it is asked about."""

    start: int  # the scores that the steps go on from
    steps: tuple[Taken, ...]
    whole: Whole | None = None  # the belief there, for a shard that does not have it


class Barred(NamedTuple):
    """Arms of a shard that must not be chosen, by number or as packed bits."""

    n: int
    numbers: Indices | None
    bits: AnyArray | None

    @classmethod
    def of(cls, mask: Mask) -> "Barred | None":
        """From a mask; None where it bars none."""
        n_barred = int(np.count_nonzero(mask))
        if not n_barred:
            return None
        if SPARSE * n_barred < len(mask):
            return cls(len(mask), np.flatnonzero(mask), None)
        return cls(len(mask), None, np.packbits(mask))

    @property
    def mask(self) -> Mask:
        """(n,)."""
        if self.bits is not None:
            return np.unpackbits(self.bits, count=self.n).astype(bool)
        mask = np.zeros(self.n, dtype=bool)
        mask[self.numbers] = True
        return mask


# What a shard is asked


class Foremost(NamedTuple):
    """Which of your arms may be the best of all?"""

    acquisition: Acquisition
    barred: Barred | None

    def answer(self, shard: "Shard", lazy: Lazy) -> "Contenders":
        """Those whose value is larger than that of every lower arm."""
        barred = None if self.barred is None else self.barred.mask
        numbers, values, tolerance = lazy.nearly_best(self.acquisition, barred)
        before = np.maximum.accumulate(np.concatenate(([-np.inf], values[:-1])))
        some = values > before
        numbers = numbers[some]
        rows = shard.rows[numbers].astype(np.float64, copy=False)
        return Contenders(shard.first + numbers, values[some], tolerance[some], rows)


class Contenders(NamedTuple):
    """Arms by number, with their values, what ties with them, and their rows."""

    numbers: Indices
    values: Array
    tolerance: Array
    rows: Array


class Kept(NamedTuple):
    """What are μ̃ and σ̃² of all your arms, as you keep them?"""

    def answer(self, shard: "Shard", lazy: Lazy) -> tuple[Array, Array]:
        """(n,) each."""
        return lazy.current()


class Scored(NamedTuple):
    """What are μ̃ and σ̃² of all your arms, by the one function that scores?"""

    def answer(self, shard: "Shard", lazy: Lazy) -> tuple[Array, Array]:
        """(n,) each."""
        return lazy.moments()


Question = Foremost | Kept | Scored


class Lost(NamedTuple):
    """The answer of a shard that died, or that does not have the scores which the news go on
    from."""

    why: str = "it does not have what was sent before"

    def error(self, i: int) -> ClusterError:
        """What is said when the shard was lost again and again."""
        return ClusterError(
            f"shard {i} was lost {MOST_TRIES} times in one round: {self.why}; see the logs of the "
            "cluster, and whether its rows fit the memory there"
        )


class Shard:
    """Some rows of a table, from the one of number `first` on, and their scores.

    It keeps the scores of the last real belief that it was told of, and those of the last one, with
    what is only supposed.
    """

    def __init__(self, rows: Array, first: int, room: float) -> None:
        self.rows = rows
        self.first = first
        self.room = room  # bytes that embeddings may take
        self.digest = digest_of(rows)
        self._real: tuple[int, Lazy] | None = None
        self._last: tuple[int, Lazy] | None = None

    def ask(self, news: News, question: Question) -> Any:
        """Follow the news, then answer; `Lost` where the news go on from other scores."""
        with OneThread():
            lazy = self._followed(news)
            return Lost() if lazy is None else question.answer(self, lazy)

    def known_by(self) -> str:
        """The digest of its rows."""
        return self.digest

    def some(self, numbers: Indices) -> Array:
        """Rows by the table's numbers."""
        return self.rows[numbers - self.first].astype(np.float64, copy=False)

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""
        diagonal(kernel, self.rows, regularization)

    def _followed(self, news: News) -> Lazy | None:
        """The scores that the news lead to."""
        if news.whole is not None:
            self._real = self._last = (news.start, self._fresh(news.whole))
        for known in (self._last, self._real):
            if known is not None and known[0] == news.start:
                lazy = known[1]
                break
        else:
            return None
        for taken in news.steps:
            step = lazy.belief.observed(taken.batch, taken.record)
            if taken.batch.supposed:
                lazy = lazy.after_supposed(step)
            else:
                lazy = lazy.after(step)
                self._real = (taken.id, lazy)
            self._last = (taken.id, lazy)
        return lazy

    def _fresh(self, whole: Whole) -> Lazy:
        """Scores at a belief, of which nothing is kept yet."""
        belief = unpacked(whole.prior, whole.arrays, whole.W)
        diag = diagonal(belief.kernel, self.rows, belief.regularization)
        return Lazy(belief, Arms(self.rows, diag), self.room, whole.tuning, Stats())


def digest_of(rows: Array) -> str:
    """What rows are known by: a hash of their type, shape and bytes."""
    digest = blake2b(f"{rows.dtype.str} {rows.shape}".encode(), digest_size=16)
    for start in range(0, len(rows), ROWS_HASHED):
        digest.update(np.ascontiguousarray(rows[start : start + ROWS_HASHED]).data)
    return digest.hexdigest()


# The driver


class Crew(Protocol):
    """All shards of a table, wherever they are."""

    bounds: Indices  # (n_shards + 1,): shard i has the rows from bounds[i] to bounds[i + 1]
    known: list[tuple[int, ...]]  # of each shard the last real scores it has, and what follows them

    def ask(self, asked: dict[int, tuple[News, Question]]) -> dict[int, Any]:
        """The answers of some shards; of one that died, `Lost`."""

    def learned(self, numbers: Indices, rows: Array) -> None:
        """Rows that came with an answer, and will be asked for."""

    def rows(self, numbers: Indices) -> Array:
        """Rows by number, (n, d)."""

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""

    def close(self) -> None:
        """End all shards."""


@dataclass(frozen=True)
class ShardedScores:
    """Scores of arms that live in shards: a value of what the shards are told, and no row."""

    crew: Crew
    prior: Frozen
    tuning: Tuning
    real: Frozen  # the belief without what is only supposed
    belief: Frozen
    id: int  # of the scores at the real belief
    since: int  # the scores that the news go on from
    news: tuple[Taken, ...] = ()  # the last real steps, for shards that have not seen them
    supposed: tuple[Taken, ...] = ()

    @classmethod
    def at(cls, crew: Crew, belief: Frozen, tuning: Tuning) -> "ShardedScores":
        """At a belief, of which the shards know nothing yet."""
        prior = belief.rule.prior(
            belief.kernel,
            Arms(belief.W[:0], np.zeros(0)),
            belief.regularization,
            belief.noise,
            np.random.default_rng(0),  # nothing is drawn by frozen features
        )
        id = next(_ids)
        return cls(crew, prior, tuning, belief, belief, id, id)

    def after(self, step: Step) -> "ShardedScores":
        """At the belief after one more step."""
        belief: Frozen = step.after  # type: ignore[assignment]
        if step.batch is None:
            raise TypeError("a step that shards follow has its batch")
        taken = Taken(next(_ids), step.batch, step.record)
        # Steps that every shard has taken are forgotten.
        seen = min((known[0] for known in self.crew.known if known), default=self.since)
        n_seen = sum(before.id <= seen for before in self.news)
        since = self.news[n_seen - 1].id if n_seen else self.since
        news = (*self.news[n_seen:], taken)
        if len(news) > MOST_NEWS:
            since = taken.id
            news = ()
        return replace(
            self, real=belief, belief=belief, id=taken.id, since=since, news=news, supposed=()
        )

    def supposing(self, positions: Indices) -> "ShardedScores":
        """If these arms were pulled once more each."""
        rows = self.crew.rows(positions)
        n = len(rows)
        diag = self.belief.kernel.diag(rows)
        batch = Batch(rows, diag, np.zeros(n), np.ones(n), np.full(n, -1), n, True)
        step = self.belief.observed(batch)
        taken = Taken(next(_ids), batch, step.record)
        belief: Frozen = step.after  # type: ignore[assignment]
        return replace(self, belief=belief, supposed=(*self.supposed, taken))

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value that may be chosen; of those that tie with it, the lowest."""
        questions: dict[int, Question] = {}
        for i, (start, stop) in enumerate(self._ranges):
            shut = None if barred is None else barred[start:stop]
            if shut is None or not shut.all():
                questions[i] = Foremost(acquisition, None if shut is None else Barred.of(shut))
        answers = self._ask(questions)
        numbers, values, tolerance, rows = map(np.concatenate, zip(*answers, strict=True))
        best = best_of(values, tolerance)
        self.crew.learned(numbers[best : best + 1], rows[best : best + 1])
        return int(numbers[best])

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms, as they are kept."""
        return self._of_all(Kept())

    def means(self) -> tuple[Array, float]:
        """μ̃ of all arms, right but for rounding."""
        return self.current()[0], 0.0

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, which are fetched, or of all."""
        if positions is None:
            return self._of_all(Scored())
        rows = self.crew.rows(positions)
        return self.belief.moments(rows, self.belief.kernel.diag(rows))

    def largest_mean(self, positions: Indices) -> float:
        """The largest μ̃ of some arms, which are fetched."""
        return float(self.moments(np.unique(positions))[0].max())

    @property
    def _ranges(self) -> Iterable[tuple[int, int]]:
        bounds = self.crew.bounds.tolist()
        return pairwise(bounds)

    def _of_all(self, question: Question) -> tuple[Array, Array]:
        answers = self._ask(dict.fromkeys(range(len(self.crew.known)), question))
        means, variances = zip(*answers, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _ask(self, questions: dict[int, Question]) -> list[Any]:
        """The answers of shards, in their order. One that is lost is told everything, and asked
        again."""
        left = dict(questions)
        answers: dict[int, Any] = {}
        path = (self.id, *(taken.id for taken in self.supposed))
        whole: Whole | None = None
        for _ in range(MOST_TRIES):
            asked = {}
            for i, question in left.items():
                news = self._news(self.crew.known[i])
                if news is None:
                    whole = whole or self._whole()
                    news = News(self.id, self.supposed, whole)
                asked[i] = (news, question)
                self.crew.known[i] = ()  # until it has answered
            answers |= self.crew.ask(asked)
            for i in asked:
                if not isinstance(answers[i], Lost):
                    self.crew.known[i] = path
                    del left[i]
            if not left:
                return [answers[i] for i in questions]
        raise answers[min(left)].error(min(left))

    def _news(self, known: tuple[int, ...]) -> News | None:
        """What a shard needs that was asked about other scores last; None where that is all."""
        if not known:
            return None
        supposed = tuple(taken.id for taken in self.supposed)
        n = len(known) - 1
        if known[0] == self.id and known[1:] == supposed[:n]:
            return News(known[-1], self.supposed[n:])
        ids = (self.since, *(taken.id for taken in self.news))
        if known[0] not in ids:
            return None
        return News(known[0], (*self.news[ids.index(known[0]) :], *self.supposed))

    def _whole(self) -> Whole:
        arrays = packed(self.real, folded=False)
        return Whole(self.id, self.prior, arrays, self.real.W, self.tuning)
