"""What was changed in a study, in words: corrections, what was taken back, retired, restored."""

from collections.abc import Sequence
from typing import Any

from manyarms.cli.boxes import NumberedPoints
from manyarms.cli.output import clock, count, moment, shown, table
from manyarms.study import Event, Study

CHANGES = ("correct", "undo", "retire", "restore", "retype")
"""The kinds of events that change what was told, or who is available."""
LISTED = 4
"""Candidates that a sentence names."""
DONE_WITH = {"retire": "retired", "restore": "restored", "release": "released", "ask": "suggested"}


def changes_of(study: Study) -> list[dict[str, Any]]:
    """Every change, oldest first: event, time, worker, what was changed, and why."""
    events = list(study.events())
    pool = study.pool
    return [
        {
            "event": event.number,
            "time": moment(event.time),
            # Versions before this one did not say who retired a candidate.
            "worker": event.payload.get("worker"),
            "change": in_words(event, events, pool),
            "note": event.payload.get("note"),
        }
        for event in events
        if event.kind in CHANGES
    ]


def changes_table(changes: list[dict[str, Any]]) -> str:
    """The same for people."""
    rows = ((change | {"time": clock(change["time"])}).values() for change in changes)
    return table(changes[0].keys(), rows)


def in_words(event: Event, events: Sequence[Event], pool: Any) -> str:
    """What an event did."""
    payload = event.payload
    if event.kind == "undo":
        target = events[payload["event"] - 1]
        return f"took back event {target.number}: {in_words(target, events, pool)}"
    if event.kind in ("add", "retype"):
        return _of_the_table(event)
    if event.kind == "note":
        return f"noted {_some(payload['notes'])}"
    ids = payload["ids"]
    names = pool.numbers(ids) if isinstance(pool, NumberedPoints) else ids
    if event.kind == "tell":
        said = [
            f"{name} {said_value(value)}"
            for name, value in zip(names, payload["values"], strict=True)
        ]
        return f"told {_some(said)}"
    if event.kind == "correct":
        return f"corrected {_some(_corrected(names, payload))}"
    return f"{DONE_WITH[event.kind]} {_some([str(name) for name in names])}"


def _of_the_table(event: Event) -> str:
    """What an event did to the table of candidates."""
    if event.kind == "add":
        return f"added {count(event.payload['n'], 'candidate')}"
    types = [
        f"{name} {kind if isinstance(kind, str) else ', '.join(map(str, kind))}"
        for name, kind in event.payload["columns"].items()
    ]
    return f"changed the types of columns: {_some(types)}"


def said_value(value: float | None) -> str:
    """A value, or that there was none."""
    return "failed" if value is None else shown(value)


def _corrected(names: Sequence[Any], payload: dict[str, Any]) -> list[str]:
    removed = payload.get("removed", ())
    return [
        f"{name} from {said_value(old)} to {'no result' if i in removed else said_value(new)}"
        for i, (name, old, new) in enumerate(
            zip(names, payload["before"], payload["values"], strict=True)
        )
    ]


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - LISTED
    return ", ".join(texts[:LISTED]) + (f" and {more:,} more" if more > 0 else "")
