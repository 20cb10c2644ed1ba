"""The search over rows that are divided among shards, in this process or in others.

A *shard* holds some rows of the table, in the table's order, and a replica of the belief. The
driver sends what is new: observations (rows, rewards, weights) with the record of what was decided,
so that every replica takes the same step, O(d) numbers for each. A shard answers with those of its
arms that may be the best, scored exactly. The best of all is among them:

    arm = min { j : u_j ≥ u* − τ* },    u* = max u_j,    τ* what is a tie with it.

Let arm j of a shard be that minimum. All lower arms of the shard are below u* − τ* ≤ u_j, so u_j is
larger than each of them. Hence a shard sends only the arms whose value is larger than that of every
lower arm: few, also where a million arms tie.

A shard that is new, or that missed something, is sent the whole belief: O(m²) numbers, and two for
every row that was tried where rows have own parts. It is a pure function of its rows and of what it
was sent, so one that died is made again and answers the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import count, pairwise
from operator import methodcaller
from typing import Any, NamedTuple
from zlib import compress, decompress

import numpy as np

from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.frozen import Engine
from manyarms.errors import ClusterError
from manyarms.kernels import Kernel
from manyarms.lapack import OneThread
from manyarms.search.scores import Acquisition, best_of, diagonal
from manyarms.search.table import Table, TableScores
from manyarms.search.tuning import Tuning
from manyarms.search.work import Stats
from manyarms.typing import Array, Indices, Mask

MOST_NEWS = 1024
"""Steps that are kept for shards which have not seen them. One that missed more is sent the whole
belief, which costs it a pass over its rows."""
MOST_TRIES = 5
"""How often a shard is asked in one round. Each time it was lost, or had missed something."""
ROWS_HASHED = 1 << 16
"""Rows that are hashed at a time."""

_ids = count()


# What is sent


class Taken(NamedTuple):
    """A step that was taken. With its record, a replica of the belief takes the same one."""

    before: int  # the scores that it goes on from
    id: int  # of the scores after it
    batch: Batch
    record: Record


class Update(NamedTuple):
    """How a shard comes from what it has to the scores that it is asked about."""

    start: int  # scores that it has had
    steps: tuple[Taken, ...]  # from there; those that are only supposed come last
    tuning: Tuning
    belief: Engine | None = None  # at the start, for a shard that does not have it


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


# What a shard is asked

Question = Callable[[TableScores], Any]


def foremost(
    acquisition: Acquisition, barred: bytes | None, first: int, scores: TableScores
) -> tuple[Indices, Array, Array, Array]:
    """Which of your arms, numbered from `first` on, may be the best of all? Those whose value is
    larger than that of every lower arm: their values, what ties with these, and their rows."""
    rows = scores.arms.rows
    shut = None if barred is None else unpacked_mask(barred, len(rows))
    numbers, values, tolerance = scores.nearly_best(acquisition, shut)
    before = np.maximum.accumulate(np.concatenate(([-np.inf], values[:-1])))
    some = values > before
    numbers = numbers[some]
    found = rows[numbers].astype(np.float64, copy=False)
    return first + numbers, values[some], tolerance[some], found


def packed_mask(mask: Mask) -> bytes | None:
    """A mask as bytes; None where it bars none."""
    return compress(np.packbits(mask).tobytes(), level=1) if mask.any() else None


def unpacked_mask(sent: bytes, n: int) -> Mask:
    """The mask of n arms that was packed."""
    bits = np.frombuffer(decompress(sent), dtype=np.uint8)
    return np.unpackbits(bits, count=n).astype(bool)


class Shard:
    """Some rows of a table, from the one of number `first` on, and their scores.

    It keeps those of the last real belief that it was told of, and those of the last one with what
    is only supposed.
    """

    def __init__(self, rows: Array, first: int, room: float) -> None:
        self.rows = rows
        self.first = first
        self.room = room  # bytes that embeddings may take
        self.digest = digest_of(rows)
        # Of the last step that was supposed, and of the last one that was not, with their ids.
        self._last: dict[bool, tuple[int, TableScores]] = {}

    def ask(self, news: Update, question: Question) -> Any:
        """Follow the news, then answer; `Lost` where the news go on from other scores."""
        with OneThread():
            scores = self._followed(news)
            return Lost() if scores is None else question(scores)

    def known_by(self) -> str:
        """The digest of its rows."""
        return self.digest

    def some(self, numbers: Indices) -> Array:
        """Rows by the table's numbers."""
        return self.rows[numbers - self.first].astype(np.float64, copy=False)

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""
        diagonal(kernel, self.rows, regularization)

    def _followed(self, news: Update) -> TableScores | None:
        """The scores that the news lead to."""
        if news.belief is not None:
            diag = diagonal(news.belief.kernel, self.rows, news.belief.regularization)
            table = Table(Arms(self.rows, diag), self.room, news.tuning, Stats())
            self._last[False] = (news.start, TableScores(table, news.belief))
        known = dict(self._last.values())
        ids = [news.start, *(taken.id for taken in news.steps)]
        found = [i for i, id in enumerate(ids) if id in known]
        if not found:
            return None
        scores = known[ids[found[-1]]]
        for taken in news.steps[found[-1] :]:
            step = scores.belief.observed(taken.batch, taken.record)
            is_supposed = taken.batch.supposed
            scores = (scores.apart() if is_supposed else scores).after(step)
            self._last[is_supposed] = (taken.id, scores)
        return scores


def digest_of(rows: Array) -> str:
    """What rows are known by: a hash of their type, shape and bytes."""
    digest = blake2b(f"{rows.dtype.str} {rows.shape}".encode(), digest_size=16)
    for start in range(0, len(rows), ROWS_HASHED):
        digest.update(np.ascontiguousarray(rows[start : start + ROWS_HASHED]).data)
    return digest.hexdigest()


# The driver


class Crew(ABC):
    """All shards of a table, wherever they are, and the rows that were fetched from them."""

    def __init__(self, bounds: Indices) -> None:
        self.bounds = (
            bounds  # (n_shards + 1,): shard i has the rows from bounds[i] to bounds[i + 1]
        )
        # Of each shard the last real scores that it has, if it has any.
        self.known: list[int | None] = [None] * (len(bounds) - 1)
        self._rows: dict[int, Array] = {}

    @abstractmethod
    def call(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method of some shards returns for these arguments; of one that was lost,
        `Lost`."""

    @abstractmethod
    def close(self) -> None:
        """End all shards."""

    def ask(self, asked: dict[int, tuple[Update, Question]]) -> dict[int, Any]:
        """The answers of some shards."""
        return self.call("ask", asked)

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""
        self.surely("check", dict.fromkeys(range(len(self.known)), (kernel, regularization)))

    def learned(self, numbers: Indices, rows: Array) -> None:
        """Remember rows: those of arms chosen, and those asked for, some thousands at most."""
        if len(self._rows) + len(numbers) > 4096:
            self._rows.clear()
        self._rows.update(zip(numbers.tolist(), rows, strict=True))

    def rows(self, numbers: Indices) -> Array:
        """Rows by number, those that are not known from their shards."""
        unknown = np.array(sorted(set(numbers.tolist()) - self._rows.keys()), dtype=np.intp)
        owner = np.searchsorted(self.bounds, unknown, side="right") - 1
        asked = {i: (unknown[owner == i],) for i in np.unique(owner).tolist()}
        found = dict(self._rows)
        for i, rows in self.surely("some", asked).items():
            found.update(zip(asked[i][0].tolist(), rows, strict=True))
            self.learned(asked[i][0], rows)
        return np.array([found[number] for number in numbers.tolist()])

    def surely(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """The answers of shards that need to know nothing for them: one that was lost is asked
        again."""
        left = asked
        answers: dict[int, Any] = {}
        for _ in range(MOST_TRIES):
            answers |= self.call(method, left)
            left = {i: asked[i] for i in left if isinstance(answers[i], Lost)}
            if not left:
                return answers
        raise answers[min(left)].error(min(left))


@dataclass(frozen=True)
class ShardedScores:
    """Scores of arms that live in shards: a value of what the shards are told, and no row."""

    crew: Crew
    tuning: Tuning
    real: Engine  # the belief without what is only supposed
    belief: Engine
    id: int  # of the scores at the real belief
    news: tuple[Taken, ...] = ()  # the last real steps, for shards that have not seen them
    supposed: tuple[Taken, ...] = ()

    @classmethod
    def at(cls, crew: Crew, belief: Engine, tuning: Tuning) -> "ShardedScores":
        """At a belief, of which the shards know nothing yet."""
        return cls(crew, tuning, belief, belief, next(_ids))

    def after(self, step: Step) -> "ShardedScores":
        """At the belief after one more step."""
        belief, taken = self._taken(step)
        news = (*self.news, taken)[-MOST_NEWS:]
        return replace(self, real=belief, belief=belief, id=taken.id, news=news, supposed=())

    def supposing(self, positions: Indices) -> "ShardedScores":
        """If these arms were pulled once more each."""
        rows = self.crew.rows(positions)
        step = self.belief.supposing(rows, self.belief.kernel.diag(rows))
        belief, taken = self._taken(step)
        return replace(self, belief=belief, supposed=(*self.supposed, taken))

    def _taken(self, step: Step) -> tuple[Engine, Taken]:
        """The belief after a step, and what shards are told of it."""
        belief: Engine = step.after  # type: ignore[assignment]
        if step.batch is None:
            raise TypeError("a step that shards follow has its batch")
        return belief, Taken(self.id, next(_ids), step.batch, step.record)

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The arm of largest value that may be chosen; of those that tie with it, the lowest."""
        questions: dict[int, Question] = {}
        for i, (start, stop) in enumerate(pairwise(self.crew.bounds.tolist())):
            shut = None if barred is None else barred[start:stop]
            if shut is None or not shut.all():
                sent = None if shut is None else packed_mask(shut)
                questions[i] = partial(foremost, acquisition, sent, start)
        answers = self._ask(questions)
        numbers, values, tolerance, rows = map(np.concatenate, zip(*answers, strict=True))
        best = best_of(values, tolerance)
        self.crew.learned(numbers[best : best + 1], rows[best : best + 1])
        return int(numbers[best])

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all arms, as they are kept."""
        return self._of_all(methodcaller("current"))

    def means(self, positions: Indices | None = None) -> tuple[Array, float]:
        """μ̃ of some arms, which are fetched, or of all, right but for rounding."""
        return (self.current() if positions is None else self.moments(positions))[0], 0.0

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some arms, which are fetched, or of all."""
        if positions is None:
            return self._of_all(methodcaller("moments"))
        rows = self.crew.rows(positions)
        return self.belief.moments(rows, self.belief.kernel.diag(rows))

    def _of_all(self, question: Question) -> tuple[Array, Array]:
        answers = self._ask(dict.fromkeys(range(len(self.crew.known)), question))
        means, variances = zip(*answers, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _ask(self, questions: dict[int, Question]) -> list[Any]:
        """The answers of shards, in their order. One that is lost is told everything, and asked
        again."""
        left = dict(questions)
        answers: dict[int, Any] = {}
        for _ in range(MOST_TRIES):
            asked = {}
            for i, question in left.items():
                asked[i] = (self._news(self.crew.known[i]), question)
                self.crew.known[i] = None  # until it has answered
            answers |= self.crew.ask(asked)
            for i in asked:
                if not isinstance(answers[i], Lost):
                    self.crew.known[i] = self.id
                    del left[i]
            if not left:
                return [answers[i] for i in questions]
        raise answers[min(left)].error(min(left))

    def _news(self, known: int | None) -> Update:
        """What a shard needs that was at these scores last: the steps since then, or everything."""
        ids = [*(taken.before for taken in self.news), self.id]
        if known in ids:
            steps = self.news[ids.index(known) :] + self.supposed
            return Update(known, steps, self.tuning)
        return Update(self.id, self.supposed, self.tuning, self.real)
