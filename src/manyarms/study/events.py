"""The events of a study: what people and machines did, and nothing that a model thought.

`KINDS` says which there are and what each has. The log is a chain: a record is only ever appended,
with a digest of itself and of its predecessor. An event `undo` names another one, and the log is
read as if that one were not in it; an undo may be taken back as well.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from manyarms.checks import LARGEST, is_whole
from manyarms.errors import ManyArmsError, ParameterError, StateError, StudyDamagedError, shortened
from manyarms.runtime.foreign import NONSENSE
from manyarms.runtime.machine import uncollected

KINDS = {
    "create": ("direction", "seed", "options"),  # and other settings, and a pool or a box
    "ask": ("ids", "worker", "until", "forecasts", "reasons"),
    "tell": ("ids", "values", "worker"),  # may have a token, noise, notes, batches
    "correct": ("of", "ids", "before", "values", "worker"),  # may have noise, removed
    "note": ("of", "notes", "worker"),
    "release": ("ids", "worker"),
    "renew": ("worker", "until"),
    "expire": ("ids", "workers", "by"),
    "add": ("table", "next_row", "n"),
    "retire": ("ids", "worker"),
    "restore": ("ids", "worker"),
    "retype": ("columns", "worker"),
    "undo": ("event", "kind", "worker"),
}
"""What the payload of an event has; who corrects, retires, restores, retypes or takes back may say
why, in a `note`."""
CALLED_FOR = ("ask", "tell", "correct", "note", "release", "retire", "restore", "add", "retype")
"""The kinds of events that people and programs cause by a call."""
TAKING_BACK = ("undo", "retype")
"""The kinds of events after which what was read before is not the state any more: another event
does not count, or the features are others."""
NO_PREDECESSOR = "manyarms"
"""What the first event has in place of a predecessor's digest."""
SALVAGE = "salvage what is whole with `manyarms doctor`"
"""What to do about a study that is damaged."""

IsRight = Callable[[Any], bool]


def _is(*types: type) -> IsRight:
    return lambda value: isinstance(value, types)


def _is_list(value: Any, n: int, is_right: IsRight) -> bool:
    return isinstance(value, list | tuple) and len(value) == n and all(map(is_right, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and abs(value) <= sys.float_info.max  # NaN is not


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_value(value: Any) -> bool:
    return _is_number_or_none(value) and abs(value or 0.0) <= LARGEST


def _are_types(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str | list) for each in value.values())


def _is_source(value: Any) -> bool:
    return _is_list(value, 2, is_whole)


def _is_forecast(value: Any) -> bool:
    return value is None or _is_list(value, 3, _is_number)


ENTRIES: dict[str, IsRight] = {
    **dict.fromkeys(("worker", "direction", "table", "kind", "token", "note"), _is(str)),
    **dict.fromkeys(("seed", "next_row", "n", "event"), is_whole),
    **dict.fromkeys(("options", "pool", "prior"), _is(dict)),
    "columns": _are_types,
    **dict.fromkeys(("box", "removed"), _is(list)),
    "until": _is_number_or_none,  # None: without end
    "by": _is_number,
}
"""Entries of a payload."""
EACH: dict[str, IsRight] = {
    "ids": _is(int, str, list, tuple, dict),  # a point of a box has several numbers
    "values": _is_value,  # None: it failed
    "before": _is_value,
    "noise": lambda value: _is_value(value) and (value or 0.0) >= 0,
    "notes": _is(str, type(None)),
    "batches": is_whole,
    "of": _is_source,  # a result: the event that told it, and its place there
    "forecasts": _is_forecast,
    "reasons": _is(str),
    "workers": _is(str),
}
"""Entries that are lists, one item for each id; those of one event are equally long."""


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

    def check(self) -> None:
        """Raise StudyDamagedError unless it has what its kind has."""
        is_timed = isinstance(self.time, float) and _is_number(self.time)
        wrong = _wrong(self.kind, self.payload) if is_timed else "has a wrong time"
        if wrong:
            raise damaged(self.number - 1, f"event {self.number} {wrong}")


def _wrong(kind: str, payload: Any) -> str | None:
    """What is wrong with an event, None if nothing is."""
    if kind not in KINDS or not isinstance(payload, dict):
        return "is of no kind that this version knows"
    missing = [name for name in KINDS[kind] if name not in payload]
    if missing:
        return f"has no {missing[0]!r}"
    lengths = set()
    for name, value in payload.items():
        if name in ENTRIES:
            is_right = ENTRIES[name](value)
        elif name in EACH and kind != "create":
            is_right = isinstance(value, list) and all(map(EACH[name], value))
            lengths.add(len(value) if is_right else 0)
        else:
            continue  # a setting, which is checked where it is read
        if not is_right:
            return f"has a wrong {name!r}"
    return "has lists of different lengths" if len(lengths) > 1 else None


# The chain


class Head(NamedTuple):
    """The number of the last event, and its digest."""

    number: int
    digest: str


START = Head(0, NO_PREDECESSOR)
"""Before the first event."""


def row_of(event: Event, before: str) -> tuple[int, str, float, str, str]:
    """An event as it is stored, given the digest of its predecessor: number, kind, time, record as
    JSON, and digest."""
    number, kind, time = event.number, event.kind, event.time
    # NaN is not JSON; a value that is none is written as null.
    record = json.dumps(event.payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return number, kind, time, record, _digest(before, number, kind, time, record)


def _digest(before: str, number: int, kind: str, time: float, record: str) -> str:
    # `repr` of a float is exact: the same bytes on every machine.
    return hashlib.sha256(f"{before}\n{number}\n{kind}\n{time!r}\n{record}".encode()).hexdigest()


@uncollected()
def read(rows: Iterable[Any], head: Head) -> tuple[list[Event], Head]:
    """The events in rows that follow a head, checked, and the head after them; StudyDamagedError
    where the chain breaks."""
    before = head.digest
    whole: list[tuple[int, str, float]] = []
    records: list[str] = []
    for expected, (number, kind, time, record, digest) in enumerate(rows, head.number + 1):
        # SQLite keeps any type in any column.
        types = type(number), type(kind), type(time), type(record)
        if (
            types != (int, str, float, str)
            or number != expected
            or digest != _digest(before, number, kind, time, record)
        ):
            raise damaged(expected - 1, f"event {expected} is missing or not as it was written")
        whole.append((number, kind, time))
        records.append(record)
        before = digest
    payloads = json.loads(f"[{','.join(records)}]")  # at once: a fifth of the time
    events = [Event(*each, payload) for each, payload in zip(whole, payloads, strict=True)]
    for event in events:
        event.check()
    return events, Head(head.number + len(events), before)


@contextmanager
def understood() -> Iterator[None]:
    """Raise StudyDamagedError where what a log says cannot be followed."""
    try:
        yield
    except ManyArmsError:
        raise
    except NONSENSE as error:
        raise StudyDamagedError(
            f"the log of this study cannot be followed ({type(error).__name__}: {error!s:.80}): "
            "its digests are right, and what it says is not",
            "go back to a copy",
            SALVAGE,
        ) from error


def damaged(whole: int, what: str) -> StudyDamagedError:
    """The error for a log of which `whole` events are good."""
    return StudyDamagedError(
        f"the log of this study is damaged: {what}; it is whole up to event {whole}",
        "go back to a copy",
        SALVAGE,
        whole=whole,
    )


# What is taken back


def taken_back(events: Sequence[Event]) -> set[int]:
    """The numbers of events that a later one takes back; an undo that is itself taken back takes
    nothing back. StudyDamagedError where one takes back what cannot be."""
    void: set[int] = set()
    kinds: dict[int, str] = {}  # of calls, and for an undo that of the call in the end
    for event in events:
        kind = event.kind
        if kind == "undo":
            of, kind = event.payload["event"], event.payload["kind"]
            if kinds.get(of) != kind:
                raise damaged(event.number - 1, f"event {event.number} takes back {of!r:.20}")
        if kind in CALLED_FOR:
            kinds[event.number] = kind
    for event in reversed(events):
        if event.kind == "undo" and event.number not in void:
            void.add(event.payload["event"])
    return void


def undoable(events: Sequence[Event], number: int | None) -> Event:
    """The event of this number, or the last call that counts; StateError if there is none."""
    void = taken_back(events)
    if number is None:
        calls = [each for each in events if each.kind in CALLED_FOR and each.number not in void]
        if not calls:
            raise StateError("nothing is left to take back")
        return calls[-1]
    if not is_whole(number) or not 1 <= number <= len(events):
        raise ParameterError(
            f"event must be the number of one, from 1 to {len(events)}, got {shortened(number)}"
        )
    event = events[int(number) - 1]
    if event.number in void:
        undos = [each for each in events if each.kind == "undo" and each.number not in void]
        by = next(each.number for each in undos if each.payload["event"] == event.number)
        raise StateError(
            f"event {number} was taken back by event {by} already; take that back to have it again"
        )
    if event.kind not in (*CALLED_FOR, "undo"):
        raise StateError(
            f"event {number} is of the kind {event.kind!r}, which cannot be taken back; those that "
            f"can are {', '.join(CALLED_FOR)} and undo"
        )
    return event


def root_of(events: Sequence[Event], event: Event) -> Event:
    """The event that an event is about in the end: for an undo, the one that it takes back or
    brings back."""
    while event.kind == "undo":
        event = events[event.payload["event"] - 1]
    return event
