"""The event log: records that are only ever appended, each with a digest of itself and of its
predecessor."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from manyarms.errors import StudyDamagedError

NO_PREDECESSOR = "manyarms"
"""What the first event has in place of a predecessor's digest."""


@dataclass(frozen=True)
class Event:
    """One entry of the log: its number from 1, what happened, when (UTC, seconds since 1970), and
    the particulars."""

    number: int
    kind: str
    time: float
    payload: dict[str, Any]

    @property
    def tables(self) -> list[str]:
        """The digests of the tables of candidates that it brought."""
        if self.kind == "create" and "pool" in self.payload:
            prior = self.payload.get("prior")
            return [*self.payload["pool"]["tables"], *([prior["table"]] if prior else [])]
        return [self.payload["table"]] if self.kind == "add" else []


class StoredEvent(NamedTuple):
    """An event as it is stored; `record` is its JSON."""

    number: int
    kind: str
    time: float
    record: str
    digest: str


class Head(NamedTuple):
    """The number of the last event, and its digest."""

    number: int
    digest: str


START = Head(0, NO_PREDECESSOR)
"""Before the first event."""

SALVAGE = "salvage what is whole with `manyarms doctor`"
"""What to do about a study that is damaged."""


def row_after(head: Head, kind: str, time: float, payload: dict[str, Any]) -> StoredEvent:
    """The row of an event that follows."""
    # NaN is not JSON; a value that is none is written as null.
    record = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    number = head.number + 1
    return StoredEvent(number, kind, time, record, _digest(head.digest, number, kind, time, record))


def _digest(before: str, number: int, kind: str, time: float, record: str) -> str:
    # `repr` of a float is exact: the same bytes on every machine.
    return hashlib.sha256(f"{before}\n{number}\n{kind}\n{time!r}\n{record}".encode()).hexdigest()


def checked(rows: Iterable[Any], head: Head) -> tuple[list[Event], Head]:
    """The events in rows that follow a head, and the head after them; StudyDamagedError where the
    chain breaks."""
    before = head.digest
    start = head.number + 1
    whole: list[tuple[str, float]] = []
    records: list[str] = []
    for expected, (number, kind, time, record, digest) in enumerate(rows, start):
        plain = (
            type(number) is int
            and type(kind) is str
            and type(time) is float
            and type(record) is str
        )
        if not plain or number != expected or digest != _digest(before, number, kind, time, record):
            raise damaged(expected - 1, f"event {expected} is missing or not as it was written")
        whole.append((kind, time))
        records.append(record)
        before = digest
    payloads = json.loads(f"[{','.join(records)}]")  # at once: a fifth of the time
    pairs = enumerate(zip(whole, payloads, strict=True), start)
    events = [Event(number, kind, time, payload) for number, ((kind, time), payload) in pairs]
    return events, Head(head.number + len(events), before)


def damaged(whole: int, what: str) -> StudyDamagedError:
    """The error for a log of which `whole` events are good."""
    return StudyDamagedError(
        f"the log of this study is damaged: {what}; it is whole up to event {whole}",
        "go back to a copy",
        SALVAGE,
        whole=whole,
    )
