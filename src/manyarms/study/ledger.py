"""What the log says, but for the model: candidates, results, what is pending and for whom. Made by
applying events in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.ledger import Size, grown_order, start_order
from manyarms.campaign.model import Results
from manyarms.campaign.trials import CandidateId
from manyarms.pool.pool import Pool
from manyarms.pool.stored import stored_pool, with_table
from manyarms.study.log import LEARNING, Event
from manyarms.typing import Indices

Fetch = Callable[[str], bytes]


@dataclass(frozen=True)
class Lease:
    """A pending candidate: who tries it, and until when (seconds since 1970; None: without end)."""

    id: CandidateId
    worker: str
    until: float | None


class Step(NamedTuple):
    """What a model learns at once, after event `number`: the results from `start` up to `stop`; or,
    where there are none, that candidates were added."""

    number: int
    start: int
    stop: int
    pool: Pool


class Ledger:
    """The log, summed up."""

    def __init__(self, first: Event, fetch: Fetch) -> None:
        self.settings: dict[str, Any] = first.payload
        described = self.settings["pool"]
        self.pool = stored_pool(described, [fetch(digest) for digest in described["tables"]])
        self.order: Indices = start_order(self.settings["seed"], len(self.pool))
        self.results = np.zeros(len(self.pool), dtype=np.intp)  # values told of each candidate
        self.retired, self.failed = np.zeros((2, len(self.pool)), dtype=bool)
        self.leases: list[Lease] = []
        self.ids: list[CandidateId] = []  # of every result told
        self.values: list[float | None] = []
        self.noise: list[float | None] = []  # standard deviations told with them
        self.told_by: dict[
            str, tuple[list[CandidateId], list[float | None]]
        ] = {}  # what came with each token
        self.arms: list[int] = []  # of every result that has a value
        self.rewards: list[float] = []  # those values, with the sign of the direction
        self.deviations: list[float] = []  # and their noise, NaN where none was told
        self.sign = 1.0 if self.settings["direction"] == "maximize" else -1.0
        self.steps: list[Step] = []
        self.records: dict[int, dict[str, Any]] = {}  # what was decided at a step
        self.n_sized = 0  # results when someone looked at the size of the sketch last
        self.learned = 0  # steps up to this event were taken; no record: nothing was decided

    def apply(self, events: Sequence[Event], fetch: Fetch) -> None:
        """Go on with the events that follow."""
        # Tells are counted at once while the pool is the same: 10⁵ results are read in seconds.
        told: list[Event] = []
        for event in events:
            if event.kind == "tell":
                told.append(event)
                for id in event.payload["ids"] if self.leases else ():
                    self._let_go(id, event.payload["worker"])
                continue
            if event.kind == "add":
                self._count(told)
                told = []
            self._apply_one(event, fetch)
        self._count(told)

    def _apply_one(self, event: Event, fetch: Fetch) -> None:
        payload = event.payload
        if event.kind == "ask":
            self.leases += [Lease(id, payload["worker"], payload["until"]) for id in payload["ids"]]
            self.learned = max(self.learned, payload["learned"])
        elif event.kind == "release":
            for id in payload["ids"]:
                self._let_go(id, payload["worker"])
        elif event.kind == "expire":
            self.leases = unexpired(self.leases, payload["by"])
        elif event.kind == "renew":
            mine, until = payload["worker"], payload["until"]
            self.leases = [
                Lease(each.id, mine, until) if each.worker == mine else each for each in self.leases
            ]
        elif event.kind == "retire":
            self.retired[self.pool.positions(payload["ids"])] = True
            gone = set(payload["ids"])
            self.leases = [lease for lease in self.leases if lease.id not in gone]
        elif event.kind == "add":
            self._add(event, fetch(payload["table"]))
        elif event.kind in LEARNING:
            self.records[payload["step"]] = payload
            if "size" in payload:
                self.n_sized = payload["size"][0]
            self.learned = max(self.learned, payload["step"])

    def _count(self, events: list[Event]) -> None:
        """The results that these tells brought."""
        if not events:
            return
        ids = [id for event in events for id in event.payload["ids"]]
        values = [value for event in events for value in event.payload["values"]]
        noise = [
            sd
            for event in events
            for sd in event.payload.get("noise", [None] * len(event.payload["ids"]))
        ]
        positions = self.pool.positions(ids)
        good = np.array([value is not None for value in values], dtype=bool)
        np.add.at(self.results, positions[good], 1)
        self.failed[positions[~good]] = True
        stop = len(self.rewards)
        self.arms += self.pool.arm_of[positions[good]].tolist()
        self.rewards += [self.sign * value for value in values if value is not None]
        told_noise = zip(values, noise, strict=True)
        self.deviations += [
            np.nan if sd is None else sd for value, sd in told_noise if value is not None
        ]
        self.ids += ids
        self.values += values
        self.noise += noise
        for event in events:
            told, start = event.payload, stop
            stop += len(told["values"]) - told["values"].count(None)
            if stop > start:
                self.steps.append(Step(event.number, start, stop, self.pool))
            if "token" in told:
                self.told_by[told["token"]] = told["ids"], told["values"]

    def _let_go(self, id: CandidateId, worker: str) -> None:
        """A pending candidate is no more: the worker's own, or else whoever's was asked for
        first."""
        held = [lease for lease in self.leases if lease.id == id]
        if held:
            self.leases.remove(next((lease for lease in held if lease.worker == worker), held[0]))

    def _add(self, event: Event, table: bytes) -> None:
        pool = with_table(self.pool, table, event.payload["next_row"])
        more = np.zeros(len(pool) - len(self.pool), dtype=bool)
        self.order = grown_order(self.order, self.settings["seed"], len(more))
        self.results = np.concatenate([self.results, more.astype(np.intp)])
        self.retired, self.failed = (
            np.concatenate([self.retired, more]),
            np.concatenate([self.failed, more]),
        )
        self.pool = pool
        self.steps.append(Step(event.number, len(self.rewards), len(self.rewards), pool))

    @property
    def sizes(self) -> list[Size]:
        """Of the sketch, at those steps at which someone looked."""
        records = (record for _, record in sorted(self.records.items()))
        return [Size(*record["size"]) for record in records if "size" in record]

    def all_results(self, step: Step) -> Results:
        """Arms, signed values and noise of all results up to a step."""
        return self._results(0, step.stop)

    def new_results(self, step: Step) -> Results:
        """Those of the step alone."""
        return self._results(step.start, step.stop)

    def _results(self, start: int, stop: int) -> Results:
        arms, rewards, noise = (
            self.arms[start:stop],
            self.rewards[start:stop],
            self.deviations[start:stop],
        )
        return np.array(arms, dtype=np.intp), np.array(rewards), np.array(noise)


def unexpired(leases: Sequence[Lease], now: float) -> list[Lease]:
    """The leases that have not run out."""
    return [lease for lease in leases if lease.until is None or lease.until > now]
