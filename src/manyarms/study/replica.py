"""A study in memory: the books as the log says, and the last model of them.

A call first takes in what other processes have appended since, then acts, then appends, in one
transaction; memory changes after the commit, and what is interrupted in between is read from the
log again. A model is a function of the books, so processes need not agree on one: each learns for
itself, between transactions, so that others need not wait.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from manyarms.campaign.batching import BatchConditions
from manyarms.campaign.campaign import Campaign
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model, learn
from manyarms.campaign.reasons import reasons
from manyarms.errors import StudyStorageError
from manyarms.runtime.machine import uncollected
from manyarms.runtime.signals import deferred, interruptible
from manyarms.study.log import START, Event, Head
from manyarms.study.replay import Lease, Replay
from manyarms.study.snapshot import digest_of, read, written
from manyarms.study.spec import campaign_of, maker_of
from manyarms.study.storage import EventStore, Transaction, Unread

EVERY = 200
"""Results from one snapshot to the next, at most; a fit has one of its own. With |W| = 1,000 a
snapshot takes 8 MB."""


class Replica:
    """What a study object holds of its log; for one thread at a time."""

    def __init__(self, store: EventStore, policy: Any = None) -> None:
        self._store, self._lock = store, threading.RLock()
        self._policy = policy
        self._is_torn = True  # nothing is read yet
        self.head: Head
        self.replay: Replay
        self._model: Model
        self._kept: tuple[int, int]  # results of the last snapshot, and of its last fit
        self.snapshot_every = EVERY
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
                self.replay.apply(transaction.appended, transaction.kept.__getitem__)
                self.head = transaction.head

    @contextmanager
    def learned(self) -> Iterator[Campaign]:
        """The search, its model up to date."""
        with self._lock:
            with self.current():
                if not self._model.n_results:
                    self._resume()
                yield self.campaign()
            # A snapshot only saves time: where nothing can be written, there is none.
            with suppress(StudyStorageError):
                self._keep()

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

    def _take_in(self, news: Unread) -> None:
        """Apply what others have appended."""
        with deferred(), self._all_or_nothing():
            if self._is_torn:
                with interruptible():
                    self._read_all(news)
                return
            self.replay.apply(news.events, news.tables.__getitem__)
            self.head = news.head

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
            self._model = campaign_of(settings, self.replay.space, maker).model
            self._kept = 0, 0
        self.head, self._is_torn = news.head, False

    # The model

    def campaign(self, ledger: Ledger | None = None) -> Campaign:
        """The search with these books, those of the log where None, and a model of their
        results."""
        ledger = ledger or self.replay.ledger
        rows, results = ledger.candidates.X, ledger.results
        with interruptible():
            self._model = learn(self._model.settings, rows, results, self._model)
        return Campaign(ledger, self._model)

    def _resume(self) -> None:
        """Begin with the snapshot of the most results that are still there."""
        ledger = self.replay.ledger
        rows, results = ledger.candidates.X, ledger.results
        with self._store.reading() as transaction:
            for n in transaction.snapshots():
                data = transaction.snapshot(n) if n <= results.n else None
                known = results.at(slice(n))
                digest = digest_of(self.replay.settings, rows, known)
                found = data and read(data, digest, self._model, rows, known)
                if found:
                    self._model = found
                    self._kept = n, found.plan.fitted
                    return

    def _keep(self) -> None:
        """Keep the model for those who open the study, where that is due."""
        model = self._model
        n, fitted = self._kept
        # After a fit the snapshot before it is of little use: nobody goes on from it.
        if model.n_results < n + self.snapshot_every and (
            model.plan.fitted == fitted or model.n_results < self.snapshot_every
        ):
            return
        data = written(model, digest_of(self.replay.settings, model.arms, model.results))
        if data is not None:
            with self._store.writing() as transaction:
                transaction.put_snapshot(model.n_results, data)
        self._kept = model.n_results, model.plan.fitted


def _takes_back(events: list[Event]) -> bool:
    """Whether one of them takes another back, or changes the features: what was read before is not
    the state any more."""
    return any(event.kind in ("undo", "retype") for event in events)


class Call:
    """What happens in one transaction: events."""

    def __init__(self, replica: Replica, transaction: Transaction) -> None:
        self._replica, self._transaction = replica, transaction
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

    def asked(self, n: int, ledger: Ledger, rule: BatchConditions | None) -> list[Lease]:
        """n candidates to try, what is predicted of their results, and why they were chosen."""
        before = self._replica.campaign(ledger)
        with interruptible():
            found, ids = before.asked(n, rule=rule)
            # What was just asked for is the last of what is pending.
            pending = found.ledger.pending[-len(ids) :]
            why = reasons(before, found.ledger, [each.position for each in pending], rule)
        return [
            Lease(id, each.worker, each.until, each.forecast, reason)
            for id, each, reason in zip(ids, pending, why, strict=True)
        ]
