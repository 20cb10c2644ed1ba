"""What the log says: the ledger, made by folding the events in order, and what a model decided at
each of its steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.campaign import table_of
from manyarms.campaign.candidates import CandidateTable, Points
from manyarms.campaign.ledger import Ledger, Pending
from manyarms.campaign.model import Size
from manyarms.campaign.settings import as_most, as_sign
from manyarms.campaign.trials import CandidateId, Forecast, Learnable, Results
from manyarms.domains.box import Box
from manyarms.pool.pool import Pool
from manyarms.pool.stored import stored_pool, with_table
from manyarms.study.log import LEARNING, Event
from manyarms.study.spec import read_box
from manyarms.typing import Indices

Fetch = Callable[[str], bytes]
NAMING = ("ask", "tell", "release", "retire")
"""The kinds of events that name candidates."""


@dataclass(frozen=True)
class Lease:
    """A pending candidate: who tries it, and until when (seconds since 1970; None: without end)."""

    id: CandidateId
    worker: str
    until: float | None


class ModelStep(NamedTuple):
    """What a model learns at once, after event `number`: the results from `start` up to `stop`; or,
    where there are none, that candidates were added."""

    number: int
    start: int
    stop: int
    candidates: CandidateTable
    n_asked: int = 0  # results that had been asked for
    pending: tuple[Pending, ...] = ()  # of a box, what was being tried then


class Replay:
    """The log, summed up."""

    def __init__(self, first: Event, fetch: Fetch) -> None:
        self.settings: dict[str, Any] = first.payload
        self.space: Pool | Box  # as it was first
        candidates: CandidateTable
        if "box" in self.settings:
            self.space = read_box(self.settings["box"])
            candidates = Points.none(self.space)
        else:
            described = self.settings["pool"]
            tables = [fetch(digest) for digest in described["tables"]]
            self.space = candidates = stored_pool(described, tables)
        sign = as_sign(self.settings["direction"])
        most = as_most(self.settings["repeats"])
        self.ledger = Ledger.begun(candidates, self.settings["seed"], sign, most)
        self.n_values = 0  # results that have one
        self.tokens: dict[str, tuple[list[int], list[float | None]]] = {}  # positions and values
        self.steps: list[ModelStep] = []
        self.records: dict[int, dict[str, Any]] = {}  # what was decided at a step
        self.n_sized = 0  # results when someone looked at the size of the sketch last
        self.learned = 0  # steps up to this event were taken; no record: nothing was decided

    def apply(self, events: Sequence[Event], fetch: Fetch) -> None:
        """Go on with the events that follow."""
        for is_add, group in groupby(events, lambda event: event.kind == "add"):
            if is_add:
                for event in group:
                    self._add(event, fetch(event.payload["table"]))
            else:
                self._fold(list(group))

    def _fold(self, events: list[Event]) -> None:
        """Apply events between which the table is the same."""
        # Ids are looked up at once, and results noted at once: 10⁵ of them are read in seconds.
        named = [event.payload["ids"] if event.kind in NAMING else () for event in events]
        positions = self._positions([id for each in named for id in each])
        stops = np.cumsum([len(each) for each in named]).tolist()
        told: list[Indices] = []
        values: list[float | None] = []
        noise: list[float | None] = []
        forecasts: list[Forecast | None] = []
        for event, each, stop in zip(events, named, stops, strict=True):
            at = positions[stop - len(each) : stop]
            if event.kind != "tell":
                self._apply_one(event, at)
            else:
                forecasts += self._tell(event, at)
                told.append(at)
                values += event.payload["values"]
                noise += event.payload.get("noise", [None] * len(at))
        if told:
            self.ledger = self.ledger.noted(np.concatenate(told), values, noise, forecasts)

    def _positions(self, ids: list[Any]) -> Indices:
        """Where candidates are; points of a box that are new are known from now on."""
        candidates = self.ledger.candidates
        if not ids:
            return np.zeros(0, dtype=np.intp)
        if not isinstance(candidates, Points):
            return candidates.positions(ids)
        points, positions = candidates.taken_in(ids)
        if points is not candidates:
            self.ledger = self.ledger.added(points)
        return positions

    def _apply_one(self, event: Event, positions: Indices) -> None:
        payload = event.payload
        ledger = self.ledger
        if event.kind == "ask":
            # Earlier versions wrote no forecasts.
            forecasts = [each and Forecast(*each) for each in payload.get("forecasts", ())]
            self.ledger = ledger.asked(
                positions.tolist(), payload["worker"], payload["until"], forecasts
            )
            self.learned = max(self.learned, payload["learned"])
        elif event.kind == "release":
            self.ledger = ledger.released(positions, payload["worker"])
        elif event.kind == "expire":
            self.ledger = ledger.expired(payload["by"])
        elif event.kind == "renew":
            self.ledger = ledger.renewed(payload["worker"], payload["until"])
        elif event.kind == "retire":
            self.ledger = ledger.retired(positions)
        elif event.kind in LEARNING:
            self.records[payload["step"]] = payload
            if "size" in payload:
                self.n_sized = payload["size"][0]
            self.learned = max(self.learned, payload["step"])

    def _tell(self, event: Event, positions: Indices) -> list[Forecast | None]:
        """What a tell is but for its results; returns what was predicted of them."""
        told = event.payload
        n_pending = len(self.ledger.pending)
        ledger, forecasts = self.ledger.ended(positions, told["worker"])
        self.ledger = ledger
        # A step of the model is what one tell brought: failures alone make none.
        start = self.n_values
        self.n_values += len(told["values"]) - told["values"].count(None)
        if self.n_values > start:
            n_asked = n_pending - len(ledger.pending)
            pending = ledger.pending if isinstance(self.space, Box) else ()
            self.steps.append(
                ModelStep(event.number, start, self.n_values, ledger.candidates, n_asked, pending)
            )
        if "token" in told:
            self.tokens[told["token"]] = positions.tolist(), told["values"]
        return forecasts

    def _add(self, event: Event, table: bytes) -> None:
        before = table_of(self.ledger, "add to")
        pool = with_table(before, table, event.payload["next_row"])
        self.ledger = self.ledger.added(pool)
        self.steps.append(ModelStep(event.number, self.n_values, self.n_values, pool))

    @property
    def leases(self) -> list[Lease]:
        """Who is trying what, those whose time has run out included."""
        pending = self.ledger.pending
        names = self.ledger.names([each.position for each in pending])
        return [
            Lease(name, each.worker, each.until) for name, each in zip(names, pending, strict=True)
        ]

    @property
    def sizes(self) -> list[Size]:
        """Of the sketch, at those steps at which someone looked."""
        records = (record for _, record in sorted(self.records.items()))
        return [Size(*record["size"]) for record in records if "size" in record]

    def all_results(self, step: ModelStep) -> Results:
        """What a model learns from, up to a step."""
        return self.ledger.results(0, step.stop)

    def news(self, steps: Sequence[ModelStep]) -> Learnable:
        """What a model learns at some steps that follow each other."""
        last = steps[-1]
        return Learnable(
            self.ledger.results(steps[0].start, last.stop),
            sum(step.n_asked for step in steps),
            np.array([each.position for each in last.pending], dtype=np.intp),
            lambda: self.all_results(last),
        )

    def is_restart(self, step: ModelStep) -> bool:
        """Whether what was decided at a step says all about the model after it."""
        record = self.records.get(step.number, {})
        return "fit" in record and ("progress" in record or not isinstance(self.space, Box))
