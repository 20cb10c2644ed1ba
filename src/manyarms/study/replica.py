"""A study in memory: the log as far as this process has read it, and the model as far as it has
learned from it.

A call first takes in what other processes have appended since, then acts, then appends, in one
transaction; memory changes after the commit, and what is interrupted in between is read from the
log again. The model learns between transactions, so that others need not wait. What it decided is
then appended, unless another process has already recorded something else for the same steps.
"""

import math
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from manyarms.campaign.batching import BatchConditions
from manyarms.campaign.campaign import Campaign
from manyarms.campaign.candidates import Points
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.proposers import Learner
from manyarms.campaign.reasons import reasons
from manyarms.errors import StudyDamagedError, StudyStorageError
from manyarms.machine import uncollected
from manyarms.signals import deferred, interruptible
from manyarms.study.learning import Resume, StepsTaken, learn
from manyarms.study.log import LEARNING, START, Event, Head
from manyarms.study.replay import Lease, Replay
from manyarms.study.snapshot import EVERY, resume, take
from manyarms.study.spec import campaign_of, maker_of
from manyarms.study.storage import EventStore, Transaction, Unread

PIECE = 2.0
"""Seconds of learning before what was decided is written down."""


class Replica:
    """What a study object holds of its log; for one thread at a time."""

    def __init__(self, store: EventStore, policy: Any = None) -> None:
        self._store, self._lock = store, threading.RLock()
        self._policy = policy
        self._is_torn = True  # nothing is read yet
        self.head: Head
        self.replay: Replay
        self._begun: Campaign  # before any event
        self._learner: Learner
        self._done: int  # steps it has taken
        self._kept: int  # results of the last snapshot
        self.snapshot_every = EVERY
        self._unwritten: StepsTaken | None = None  # steps taken of which nothing is written yet
        with self.current():
            pass

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction to read what is stored."""
        with self._lock, self._store.reading() as transaction:
            yield transaction

    @contextmanager
    def current(self) -> Iterator[Replay]:
        """What the log says, up to date."""
        with self._lock:
            with self._store.reading() as transaction:
                news = self._news(transaction)
            self._take_in(news)  # afterwards, so that no writer waits for it
            yield self.replay

    @contextmanager
    def writing(self) -> Iterator["Call"]:
        """A transaction: events of others are taken in first, those appended are applied after the
        commit."""
        with self._lock, deferred():
            with self._store.writing() as transaction:
                self._take_in(self._news(transaction))
                call = Call(self, transaction)
                yield call
            with self._all_or_nothing():
                if _takes_back(transaction.appended):
                    self._is_torn = True  # what is left is read from the log
                    return
                begun = self.replay.begun
                self.replay.apply(transaction.appended, transaction.kept.__getitem__)
                self.head, self._learner, self._done = transaction.head, call.learner, call.done
                self._forget_since(begun)

    @contextmanager
    def learned(self) -> Iterator[Campaign]:
        """The search, its model up to date. Where nothing can be written, what was learned is
        kept for later."""
        with self._lock:
            learner = None
            try:
                self.catch_up()
            except StudyStorageError:
                # A disk that is full still answers: what was learned waits for room.
                with self.current():
                    self._unwritten = self._next(math.inf, self.resume)
                    learner = self._unwritten.learner
            yield self.campaign(learner or self._learner)

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._store.close()

    # The log

    @property
    def _read_so_far(self) -> Head:
        return START if self._is_torn else self.head

    def _news(self, transaction: Transaction) -> Unread:
        """What others have appended; all of the log, where some of it was taken back."""
        news = transaction.news(self._read_so_far)
        if self._is_torn or not _takes_back(news.events):
            return news
        self._is_torn = True
        return transaction.news(START)

    def _forget_since(self, begun: int) -> None:
        """Where the model begins anew since, what was learned before counts no more."""
        if self.replay.begun != begun:
            self._learner = self._prior
            self._done = self._kept = 0
            self._unwritten = None

    def _take_in(self, news: Unread) -> None:
        """Apply what others have appended. Where they decided about a step that this model has
        taken, it starts anew."""
        with deferred(), self._all_or_nothing():
            if self._is_torn:
                with interruptible():
                    self._read_all(news)
                return
            # The last step that this model has taken; what is decided about later ones suits it.
            number = self.replay.steps[self._done - 1].number if self._done else 0
            begun = self.replay.begun
            self.replay.apply(news.events, news.tables.__getitem__)
            self.head = news.head
            self._forget_since(begun)
            if any(
                event.kind in LEARNING and event.payload["step"] <= number for event in news.events
            ):
                self._learner, self._done = self._prior, 0

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What is interrupted here is read from the log again."""
        try:
            yield
        except BaseException:
            self._is_torn = True
            raise

    def _read_all(self, news: Unread) -> None:
        """The state from the log alone."""
        with uncollected():
            first, *others = news.events
            self.replay = Replay(first, news.tables.__getitem__)
            self.replay.apply(others, news.tables.__getitem__)
            # Afterwards: where types of columns were changed, a model has other features to begin.
            settings = self.replay.settings
            maker = maker_of(self._policy, settings["policy"])
            self._begun = campaign_of(settings, self.replay.space, maker)
            self._learner = self._prior
            self._done = self._kept = 0
            self._unwritten = None
        self.head, self._is_torn = news.head, False

    # The model

    def catch_up(self, *, leave_last: bool = False) -> None:
        """Learn what there is without making others wait: between transactions, written down piece
        by piece.

        With `leave_last` the last piece is not written: the transaction of the call that needs it
        does so (`Call.learn`).
        """
        with self.current() as replay:
            while self._done < len(replay.steps):
                found = self._unwritten = self._next(PIECE, self.resume)
                if leave_last and found.done == len(replay.steps):
                    return  # it stays in `_unwritten`, where `Call.learn` finds it
                # Without a decision or a snapshot there is nothing to write, and no lock is taken.
                if found.made or self.is_due(found):
                    with self.writing() as call:
                        call.adopt(found)
                else:
                    self._learner, self._done = found.learner, found.done
                self._unwritten = None

    def _next(self, seconds: float, resume: Resume) -> StepsTaken:
        """What is learned from here on; it begins with what could not be written before."""
        replay = self.replay
        before = self._unwritten
        if before is None or before.begun != self._done or not before.agrees(replay):
            return learn(replay, self._learner, self._done, resume, seconds)
        return before.followed_by(
            learn(replay, before.learner, before.done, lambda _: None, seconds)
        )

    def resume(
        self, after: int, transaction: Transaction | None = None
    ) -> tuple[Learner, int] | None:
        """What the snapshot has learned, if it has taken more steps than that and this object
        none."""
        if self._done or not self.replay.steps:
            return None
        try:
            with (
                deferred(),
                nullcontext(transaction) if transaction else self._store.reading() as open_,
            ):
                found = resume(open_, self.replay, self._prior, after)
        except StudyDamagedError as error:
            # A snapshot only saves time: the model learns from the log instead.
            warnings.warn(
                f"the snapshot of {self._store.shown} is not used: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        self._kept = found[0].model.n_results if found else 0
        return found

    def is_due(self, found: StepsTaken) -> bool:
        """Whether a snapshot is to be taken."""
        # After a refit the snapshot before it is of no use: nothing resumes from it.
        refitted = any(kind == "refit" for kind, _ in found.made.values())
        n = found.n_results
        every = self.snapshot_every
        return n >= self._kept + every or (refitted and n >= every)

    @property
    def _prior(self) -> Learner:
        """Before anything is learned."""
        return Learner(self._begun.model, self._begun.proposer)

    def campaign(self, learner: Learner, ledger: Ledger | None = None) -> Campaign:
        """The search as the log says, with what has learned from it."""
        ledger = ledger or self.replay.ledger
        if isinstance(ledger.candidates, Points):  # some may be pending, and new
            learner = learner.over(ledger.candidates.X)
        return Campaign(ledger, *learner)


def _takes_back(events: list[Event]) -> bool:
    """Whether one of them takes another back, or changes the features: what was read before is not
    the state any more."""
    return any(event.kind in ("undo", "retype") for event in events)


class Call:
    """What happens in one transaction: events, and the model after them."""

    def __init__(self, replica: Replica, transaction: Transaction) -> None:
        self._replica, self._transaction = replica, transaction
        self.learner: Learner = replica._learner
        self.done: int = replica._done
        self.replay = replica.replay
        self.keep = transaction.keep

    def append(self, kind: str, payload: dict[str, Any]) -> Event:
        """One more event, now."""
        return self._transaction.append(kind, payload, time.time())

    def events(self) -> list[Event]:
        """The whole log."""
        return self._transaction.since(START)

    def replayed(self, events: list[Event]) -> Replay:
        """The state that a log would have."""
        first, *others = events
        replay = Replay(first, self._transaction.fetch)
        replay.apply(others, self._transaction.fetch)
        return replay

    def knowing(self, ids: Any) -> Ledger:
        """The ledger with these candidates in it: of a box any point may be told."""
        return self.learner.proposer.knowing(self.replay.ledger, ids)

    def asked(self, n: int, ledger: Ledger, rule: BatchConditions | None) -> list[Lease]:
        """n candidates to try, what is predicted of their results, and why they were chosen."""
        with interruptible():
            before = self._replica.campaign(self.learner, ledger)
            found, ids = before.asked(n, rule=rule)
            # What was just asked for is the last of what is pending.
            pending = found.ledger.pending[-len(ids) :]
            why = reasons(before, found.ledger, [each.position for each in pending], rule)
        return [
            Lease(id, each.worker, each.until, each.forecast, reason)
            for id, each, reason in zip(ids, pending, why, strict=True)
        ]

    def learn(self) -> None:
        """The model takes the steps that are left."""
        if self.done < len(self.replay.steps):
            resume = self._replica.resume
            with interruptible():
                found = self._replica._next(
                    math.inf, lambda after: resume(after, self._transaction)
                )
            self.adopt(found)
            self._replica._unwritten = None

    def adopt(self, found: StepsTaken) -> None:
        """Go on with a model that has learned, and write down what it decided, unless others
        decided otherwise meanwhile."""
        if self.done != found.begun or not found.agrees(self.replay):
            return
        for number, (kind, payload) in found.made.items():
            if number > self.replay.learned:
                self.append(kind, payload)
        self.learner, self.done = found.learner, found.done
        if self._replica.is_due(found):
            take(self._transaction, self.replay, found)
            self._replica._kept = found.n_results
