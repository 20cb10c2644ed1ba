"""A study in memory: the books as the log says, and the last model of them.

A call first takes in what was appended since the last one, by this process or another, then acts,
then appends, in one transaction. So memory follows the disk, and each state replaces the one before
in one assignment. A model is a function of the books, so processes need not agree on one: each
learns for itself, between transactions, so that others need not wait.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from manyarms.campaign.ledger import Corrections, Ledger, Pending
from manyarms.campaign.model import Campaign, Model, learn
from manyarms.campaign.prior import PriorResults, with_prior
from manyarms.campaign.settings import ARGUMENTS, Settings
from manyarms.campaign.trials import CandidateId, Forecast, Trial
from manyarms.errors import StudyDamagedError, StudyStorageError
from manyarms.runtime.machine import uncollected
from manyarms.runtime.signals import deferred, interruptible
from manyarms.space.points import Space, as_space
from manyarms.space.pool import Pool
from manyarms.space.stored import read_table, read_types, retyped, stored_pool, with_table
from manyarms.study import books
from manyarms.study.events import SALVAGE, START, Event, Head, damaged, taken_back, understood
from manyarms.study.snapshot import digest_of, read, written
from manyarms.study.spec import maker_of, read_box, read_settings
from manyarms.study.store import News, Store, Transaction
from manyarms.typing import Indices

Fetch = Callable[[str], bytes]
"""Gives a stored table, by its digest."""
ALONE = ("add", "correct", "retype", "undo")
"""The kinds of events that change what came before: applied one by one."""
TEACHING = ("tell", "correct", "retype")
"""The kinds of events without which the results, or what was known of them, were others."""
Source = tuple[int, int]
"""A result: the event that told it, and its place in that event."""


@dataclass(frozen=True)
class Lease:
    """A pending candidate: who tries it, until when (seconds since 1970; None: without end), what
    was predicted of its result, and why it was suggested."""

    id: CandidateId
    worker: str
    until: float | None
    forecast: Forecast | None = None  # None: it was drawn at random
    reason: str = ""
    event: int = 0  # the number of the one that asked for it


class Replay:
    """The log, summed up; a value, of which `after` makes another one."""

    def __init__(self, first: Event, fetch: Fetch) -> None:
        if first.kind != "create":
            raise damaged(0, "its first event has no settings")
        self.settings: dict[str, Any] = {**ARGUMENTS, **first.payload}
        self.space: Space  # as it was first, or when types of columns were changed last
        self.prior: PriorResults | None = None
        if "box" in self.settings:
            self.space = as_space(read_box(self.settings["box"]))
        else:
            described = self.settings["pool"]
            tables = [fetch(digest) for digest in described["tables"]]
            self.prior = read_prior(self.settings, fetch)
            self.space = self.with_prior(stored_pool(described, tables))
        self.ledger = Ledger.begun(self.space, self.settings)
        self.made = [first.number]  # the events of the table: candidates, types of columns
        self.tokens: dict[str, tuple[list[int], list[float | None]]] = {}  # positions and values
        self.sources: list[Source] = []  # of each result of the ledger
        self.notes: dict[Source, str] = {}
        self.batches: dict[Source, int] = {}  # as files say, see `Trial.batch`

    @classmethod
    def of(cls, events: Sequence[Event], fetch: Fetch) -> "Replay":
        """Of a whole log."""
        with understood():
            return cls(events[0], fetch).after(events[1:], fetch)

    def after(self, events: Sequence[Event], fetch: Fetch) -> "Replay":
        """With the events that follow. Where one takes another back, that one must be among them,
        too: it is passed over."""
        found = copy(self)
        for name in ("tokens", "sources", "notes", "batches"):
            setattr(found, name, copy(getattr(self, name)))
        with understood():
            found._apply(events, fetch)
        return found

    def _apply(self, events: Sequence[Event], fetch: Fetch) -> None:
        void = taken_back(events)
        for kind, group in groupby(events, lambda event: event.kind if event.kind in ALONE else ""):
            if not kind:
                self._fold(list(group), void)
                continue
            for event in group:
                if event.number in void:
                    continue
                if kind == "add":
                    self._add(event, fetch(event.payload["table"]))
                elif kind == "correct":
                    self._correct(event)
                elif kind == "retype":
                    self._retype(event)
                elif event.payload["kind"] in TEACHING:
                    self._is_changed()

    def with_prior(self, pool: Pool) -> Pool:
        """A table of candidates with what the prior of the study makes one expect of them; the
        pool itself where the study has none."""
        if self.prior is None:
            return pool
        return with_prior(pool, self.prior, self.settings["kernel"])

    def _fold(self, events: list[Event], void: set[int]) -> None:
        """Apply events between which the table is the same, but for those that are void."""
        # Points of a box keep their numbers, also those that only void events name.
        if self.space.box is None:
            events = [event for event in events if event.number not in void]
        # Ids are looked up at once, and results noted at once: 10⁵ of them are read in seconds.
        named = [event.payload.get("ids", ()) for event in events]
        positions = self._positions([id for ids in named for id in ids])
        stops = np.cumsum([len(ids) for ids in named]).tolist()
        told: list[Indices] = []
        values: list[float | None] = []
        noise: list[float | None] = []
        tells: list[int] = []
        ended: list[Pending | None] = []
        for event, ids, stop in zip(events, named, stops, strict=True):
            at = positions[stop - len(ids) : stop]
            if event.number in void:
                continue
            if event.kind != "tell":
                self._happens(event, at)
                continue
            ended += self._ends(event, at)
            told.append(at)
            tells += [event.number] * len(at)
            values += event.payload["values"]
            noise += event.payload.get("noise", [None] * len(at))
        if told:
            self.ledger = self.ledger.noted(
                np.concatenate(told), values, noise, ended, np.array(tells)
            )

    def _positions(self, ids: list[Any]) -> Indices:
        """Where candidates are; points of a box that are new are known from now on."""
        if not ids:
            return np.zeros(0, dtype=np.intp)
        self.ledger, positions = self.ledger.knowing(ids, checked=True)
        return positions

    def _happens(self, event: Event, positions: Indices) -> None:
        """What brings no result."""
        said = event.payload
        ledger = self.ledger
        match event.kind:
            case "ask":
                forecasts = [each and Forecast(*each) for each in said["forecasts"]]
                self.ledger = ledger.asked(
                    positions.tolist(),
                    said["worker"],
                    said["until"],
                    forecasts,
                    said["reasons"],
                    event.number,
                    len(self.sources),
                )
            case "release":
                self.ledger = ledger.released(positions, said["worker"])
            case "expire":
                self.ledger = ledger.expired(said["by"])
            case "renew":
                self.ledger = ledger.renewed(said["worker"], said["until"])
            case "retire":
                self.ledger = ledger.retired(positions)
            case "restore":
                self.ledger = ledger.restored(positions)
            case "note":
                self.notes.update(zip(map(tuple, said["of"]), said["notes"], strict=True))
            case kind:
                raise damaged(event.number - 1, f"event {event.number} is of the kind {kind!r}")

    def _ends(self, event: Event, positions: Indices) -> list[Pending | None]:
        """What a tell is but for its results; returns what was pending of them."""
        told = event.payload
        self.ledger, ended = self.ledger.ended(positions, told["worker"])
        if "token" in told:
            self.tokens[told["token"]] = positions.tolist(), told["values"]
        sources = [(event.number, place) for place in range(len(positions))]
        self.sources += sources
        notes = zip(sources, told.get("notes", ()), strict=False)  # not every tell has some
        self.notes.update(pair for pair in notes if pair[1])
        batches = zip(sources, told.get("batches", ()), strict=False)
        self.batches.update(pair for pair in batches if pair[1])
        return ended

    def _correct(self, event: Event) -> None:
        """Some results have other values; those that were taken back since are passed over."""
        said = event.payload
        trial_of = {source: trial for trial, source in enumerate(self.sources)}
        sources = [(number, place) for number, place in said["of"]]
        known = [i for i, source in enumerate(sources) if source in trial_of]
        removed = [i in said.get("removed", ()) for i in known]
        noise = said.get("noise", [None] * len(sources))
        corrections = Corrections(
            np.array([trial_of[sources[i]] for i in known], dtype=np.intp),
            [said["values"][i] for i in known],
            [noise[i] for i in known],
            removed,
        )
        self.ledger = self.ledger.corrected(corrections)
        gone = {sources[i] for i, is_removed in zip(known, removed, strict=True) if is_removed}
        self.sources = [source for source in self.sources if source not in gone]

    def _retype(self, event: Event) -> None:
        """Columns are of other types: the features are others, and a model of them begins anew."""
        before = self.ledger.candidates.table("change columns of")
        pool = retyped(before, read_types(event.payload["columns"]))
        self.space = self.with_prior(pool)
        self.ledger = replace(self.ledger, candidates=self.space)
        self.made = [*self.made, event.number]
        if self.sources:
            self._is_changed()

    def _is_changed(self) -> None:
        """What was known is not as it was, perhaps because of the values."""
        outcomes = replace(self.ledger.outcomes, is_changed=True)
        self.ledger = replace(self.ledger, outcomes=outcomes)

    def _add(self, event: Event, table: bytes) -> None:
        before = self.ledger.candidates.table("add to")
        pool = with_table(before, table, event.payload["next_row"])
        self.ledger = self.ledger.added(pool)
        self.made = [*self.made, event.number]

    @property
    def leases(self) -> list[Lease]:
        """Who is trying what, those whose time has run out included."""
        pending = self.ledger.pending
        names = self.ledger.names([each.position for each in pending])
        return [Lease(name, *each[1:6]) for name, each in zip(names, pending, strict=True)]

    @property
    def history(self) -> list[Trial]:
        """Every result that counts, oldest first."""
        return self.trials(np.arange(len(self.sources)))

    def trials(self, numbers: Indices) -> list[Trial]:
        """The results of these numbers."""
        sources = [self.sources[number] for number in numbers]
        return [
            Trial(
                trial.number,
                trial.id,
                trial.value,
                trial.noise,
                trial.forecast,
                source[0],
                self.notes.get(source),
                self.batches.get(source, 0),
            )
            for trial, source in zip(self.ledger.trials(numbers), sources, strict=True)
        ]


def read_prior(settings: dict[str, Any], fetch: Fetch) -> PriorResults | None:
    """The results that a study began with as a prior; None where it has none."""
    if "prior" not in settings:
        return None
    frame, _ = read_table(fetch(settings["prior"]["table"]))
    return PriorResults(frame, np.array(settings["prior"]["values"], dtype=np.float64))


EVERY = 200
"""Results from one snapshot to the next, at most; a fit has one of its own. With |W| = 1,000 a
snapshot takes 8 MB."""

FIRST = 20
"""Results from which a fit has a snapshot: to load SciPy's optimiser and fit once more costs the
next command .2 s, more than to write and read a snapshot as small as that."""


BOOKS, SHARE = 2000, 16
"""Events from one keeping of the books to the next, at most so many, or this share of all, if that
is more. They take 90 bytes a result."""


def settings_of(replay: Replay, policy: Any = None) -> Settings:
    """The settings that a log has, over its last space: where types of columns were changed, a
    model has other features."""
    maker = maker_of(policy, replay.settings["policy"])
    with understood():
        return read_settings(replay.settings, replay.space, maker)


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
        self._booked: int  # events of the books that are kept
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
            if self.head == START:
                self._open_books()
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
                self._keep_books(transaction)
                yield transaction
                news = transaction.news(self.head)
            self._take_in(news)

    @contextmanager
    def learned(self) -> Iterator[Campaign]:
        """The search, its model up to date."""
        with self._lock:
            self.current()
            if self._model is None or not len(self._model.results.values):
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
        self._begin(replay, news.head, 0)

    def _begin(self, replay: Replay, head: Head, booked: int) -> None:
        """Begin anew with these books, of which so many events are kept."""
        settings = settings_of(replay, self._policy)
        with deferred():
            self.replay, self.head, self._booked = replay, head, booked
            self._settings, self._model, self._kept = settings, None, (0, 0)

    def _open_books(self) -> None:
        """Begin with the books that are kept, where there are some of this log."""
        with self._store.reading() as transaction:
            kept = books.kept(transaction)
        found = kept and books.read(kept, Replay.of)
        if found:
            self._begin(*found, found[1].number)

    def verify(self) -> int:
        """Check every event, every table and the books; the number of events."""
        with self.reading() as transaction:
            events = transaction.since(START)
            tables, kept = transaction.tables(events), books.kept(transaction)
        found = kept and books.read(kept, Replay.of)
        if found and books.written(*found) != books.written(
            Replay.of(events[: found[1].number], tables.__getitem__), found[1]
        ):
            raise StudyDamagedError(
                "the books that are kept of this study do not say what its log says; the log is "
                "whole",
                "go back to a copy",
                SALVAGE,
                whole=len(events),
            )
        return len(events)

    def _keep_books(self, transaction: Transaction) -> None:
        """Keep the books for those who open the study, where that is due."""
        number = self.head.number
        if number < self._booked + max(BOOKS, number // SHARE):
            return
        data = books.written(self.replay, self.head)
        if data is not None:
            transaction.put_books(data)
        self._booked = number

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
        with self._store.reading() as transaction:
            for n in transaction.snapshots():
                data = transaction.snapshot(n) if n <= len(results.values) else None
                known = results.at(slice(n))
                digest = digest_of(self.replay.settings, rows, known)
                found = data and read(data, digest, self._settings, rows, known)
                if found:
                    self._model = found
                    self._kept = n, found.plan.fitted
                    return

    def _keep(self, model: Model) -> None:
        """Keep the model for those who open the study, where that is due."""
        n, fitted = self._kept
        n_results = len(model.results.values)
        # After a fit the snapshot before it is of little use: nobody goes on from it.
        first = min(FIRST, self.snapshot_every)
        is_fitted_anew = model.plan.fitted != fitted and n_results >= first
        if n_results < n + self.snapshot_every and not is_fitted_anew:
            return
        data = written(model, digest_of(self.replay.settings, model.arms, model.results))
        if data is not None:
            with self._store.writing() as transaction:
                transaction.put_snapshot(n_results, data)
        self._kept = n_results, model.plan.fitted
