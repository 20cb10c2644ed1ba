"""A study in memory: the books as the log says, and the last model of them.

A call first takes in what was appended since the last one, by this process or another, then acts,
then appends, in one transaction. So memory follows the disk, and each state replaces the one before
in one assignment. A model is a function of the books, so processes need not agree on one: each
learns for itself, between transactions, so that others need not wait.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from manyarms.campaign.campaign import Campaign
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model, learn
from manyarms.campaign.settings import Settings
from manyarms.errors import StudyStorageError
from manyarms.runtime.machine import uncollected
from manyarms.runtime.signals import deferred, interruptible
from manyarms.study.events import START, Head
from manyarms.study.replay import Replay
from manyarms.study.snapshot import digest_of, read, written
from manyarms.study.spec import maker_of, read_settings
from manyarms.study.store import News, Store, Transaction

EVERY = 200
"""Results from one snapshot to the next, at most; a fit has one of its own. With |W| = 1,000 a
snapshot takes 8 MB."""

FIRST = 20
"""Results from which a fit has a snapshot: to load SciPy's optimiser and fit once more costs the
next command .2 s, more than to write and read a snapshot as small as that."""


class Replica:
    """What a study object holds of its log; for one thread at a time."""

    def __init__(self, store: Store, policy: Any = None) -> None:
        self._store, self._lock = store, threading.RLock()
        self._policy = policy
        self.replay: Replay
        self.head: Head = START  # of what is read
        self._settings: Settings
        self._model: Model | None = None  # made when somebody asks: a result is told without one
        self._kept: tuple[int, int]  # results of the last snapshot, and of its last fit
        self.snapshot_every = EVERY
        with uncollected():
            self.current()

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction to read what is stored."""
        with self._lock, self._store.reading() as transaction:
            yield transaction

    def current(self) -> Replay:
        """What the log says, up to date."""
        with self._lock:
            with self._store.reading() as transaction:
                news = transaction.news(self.head)
            self._take_in(news)  # afterwards, so that no writer waits for it
            return self.replay

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that appends, after what is in the log is taken in."""
        with self._lock, deferred():
            with self._store.writing() as transaction:
                self._take_in(transaction.news(self.head))
                yield transaction
                news = transaction.news(self.head)
            self._take_in(news)

    @contextmanager
    def learned(self) -> Iterator[Campaign]:
        """The search, its model up to date."""
        with self._lock:
            self.current()
            if self._model is None or not self._model.n_results:
                self._resume()
            campaign = self.campaign()
            yield campaign
            # A snapshot only saves time: where nothing can be written, there is none.
            with suppress(StudyStorageError):
                self._keep(campaign.model)

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._store.close()

    def _take_in(self, news: News) -> None:
        """Follow the log; where all of it came, from its beginning."""
        if not news.events:
            return
        if news.events[0].number > 1:
            replay = self.replay.after(news.events, news.tables.__getitem__)
            with deferred():
                self.replay, self.head = replay, news.head
            return
        with interruptible():
            replay = Replay.of(news.events, news.tables.__getitem__)
        # Of the last space: where types of columns were changed, a model has other features.
        maker = maker_of(self._policy, replay.settings["policy"])
        settings = read_settings(replay.settings, replay.space, maker)
        with deferred():
            self.replay, self.head = replay, news.head
            self._settings, self._model, self._kept = settings, None, (0, 0)

    # The model

    def campaign(self, ledger: Ledger | None = None) -> Campaign:
        """The search with these books, those of the log where None, and a model of their
        results."""
        ledger = ledger or self.replay.ledger
        rows, results = ledger.candidates.X, ledger.results
        with interruptible():
            self._model = learn(self._settings, rows, results, self._model)
        return Campaign(ledger, self._model)

    def _resume(self) -> None:
        """Begin with the snapshot of the most results that are still there."""
        ledger = self.replay.ledger
        rows, results = ledger.candidates.X, ledger.results
        nothing = self._model or learn(self._settings, rows, results.at(slice(0)))
        self._model = nothing
        with self._store.reading() as transaction:
            for n in transaction.snapshots():
                data = transaction.snapshot(n) if n <= len(results.values) else None
                known = results.at(slice(n))
                digest = digest_of(self.replay.settings, rows, known)
                found = data and read(data, digest, nothing, rows, known)
                if found:
                    self._model = found
                    self._kept = n, found.plan.fitted
                    return

    def _keep(self, model: Model) -> None:
        """Keep the model for those who open the study, where that is due."""
        n, fitted = self._kept
        # After a fit the snapshot before it is of little use: nobody goes on from it.
        first = min(FIRST, self.snapshot_every)
        is_fitted_anew = model.plan.fitted != fitted and model.n_results >= first
        if model.n_results < n + self.snapshot_every and not is_fitted_anew:
            return
        data = written(model, digest_of(self.replay.settings, model.arms, model.results))
        if data is not None:
            with self._store.writing() as transaction:
                transaction.put_snapshot(model.n_results, data)
        self._kept = model.n_results, model.plan.fitted
