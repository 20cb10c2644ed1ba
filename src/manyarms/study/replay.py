"""What the log says: the books, made by folding the events in order."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from manyarms.campaign.ledger import Corrections, Ledger, Pending
from manyarms.campaign.prior import PriorResults, with_prior
from manyarms.campaign.trials import CandidateId, Forecast, Trial
from manyarms.space.points import Space, as_space
from manyarms.space.pool import Pool
from manyarms.space.stored import read_table, read_types, retyped, stored_pool, with_table
from manyarms.study.events import Event, damaged, taken_back
from manyarms.study.spec import read_box
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
        self.settings: dict[str, Any] = first.payload
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
        self.tokens: dict[str, tuple[list[int], list[float | None]]] = {}  # positions and values
        self.sources: list[Source] = []  # of each result of the ledger
        self.notes: dict[Source, str] = {}
        self.batches: dict[Source, int] = {}  # as files say, see `Trial.batch`

    @classmethod
    def of(cls, events: Sequence[Event], fetch: Fetch) -> "Replay":
        """Of a whole log."""
        return cls(events[0], fetch).after(events[1:], fetch)

    def after(self, events: Sequence[Event], fetch: Fetch) -> "Replay":
        """With the events that follow. Where one takes another back, that one must be among them,
        too: it is passed over."""
        found = copy(self)
        for name in ("tokens", "sources", "notes", "batches"):
            setattr(found, name, copy(getattr(self, name)))
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
                    outcomes = replace(self.ledger.outcomes, is_changed=True)
                    self.ledger = replace(self.ledger, outcomes=outcomes)

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

    def _add(self, event: Event, table: bytes) -> None:
        before = self.ledger.candidates.table("add to")
        pool = with_table(before, table, event.payload["next_row"])
        self.ledger = self.ledger.added(pool)

    @property
    def leases(self) -> list[Lease]:
        """Who is trying what, those whose time has run out included."""
        pending = self.ledger.pending
        names = self.ledger.names([each.position for each in pending])
        return [Lease(name, *each[1:6]) for name, each in zip(names, pending, strict=True)]

    @property
    def history(self) -> list[Trial]:
        """Every result that counts, oldest first."""
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
            for trial, source in zip(self.ledger.history, self.sources, strict=True)
        ]


def read_prior(settings: dict[str, Any], fetch: Fetch) -> PriorResults | None:
    """The results that a study began with as a prior; None where it has none."""
    if "prior" not in settings:
        return None
    frame, _ = read_table(fetch(settings["prior"]["table"]))
    return PriorResults(frame, np.array(settings["prior"]["values"], dtype=np.float64))
