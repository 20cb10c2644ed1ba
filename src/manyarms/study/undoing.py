"""Which events can be taken back, and whether what is left makes sense.

An event `undo` names another one, and the log is read as if that one were not in it. An undo may be
taken back as well: then what it took back counts again.
"""

from collections.abc import Callable, Sequence
from typing import Any

from manyarms.checks import is_whole
from manyarms.errors import ArmsError, ObservationError, ParameterError, StateError
from manyarms.study.log import Event
from manyarms.study.replay import Replay, taken_back

Read = Callable[[list[Event]], Replay]
"""Makes the state of a log."""
CALLED_FOR = ("ask", "tell", "correct", "note", "release", "retire", "restore", "add", "retype")
"""The kinds of events that people and programs cause by a call."""


def undoable(events: Sequence[Event], number: int | None) -> Event:
    """The event of this number, or the last call that counts; StateError if there is none."""
    void = taken_back(events)
    if number is None:
        calls = (each for each in reversed(events) if each.kind in CALLED_FOR)
        found = next((each for each in calls if each.number not in void), None)
        if found is None:
            raise StateError("nothing is left to take back")
        return found
    if not is_whole(number) or not 1 <= number <= len(events):
        raise ParameterError(
            f"event must be the number of one, from 1 to {len(events)}, got {number!r:.80}"
        )
    event = events[int(number) - 1]
    if event.number in void:
        by = next(each.number for each in events if _takes_back(each, event, void))
        raise StateError(
            f"event {number} was taken back by event {by} already; take that back to have it again"
        )
    if event.kind not in (*CALLED_FOR, "undo"):
        raise StateError(
            f"event {number} is of the kind {event.kind!r}, which cannot be taken back; those that "
            f"can are {', '.join(CALLED_FOR)} and undo"
        )
    return event


def _takes_back(event: Event, other: Event, void: set[int]) -> bool:
    is_undo = event.kind == "undo" and event.number not in void
    return is_undo and bool(event.payload["event"] == other.number)


def root_of(events: Sequence[Event], event: Event) -> Event:
    """The event that an event is about in the end: for an undo, the one that it takes back or
    brings back."""
    while event.kind == "undo":
        event = events[event.payload["event"] - 1]
    return event


def check_left(read: Read, events: Sequence[Event], payload: dict[str, Any]) -> None:
    """Raise StateError if the events left after such an undo make no sense."""
    undo = Event(len(events) + 1, "undo", events[-1].time, payload)
    try:
        read([*events, undo]).ledger.check_counts()
    except (ArmsError, ObservationError) as error:
        raise StateError(
            f"event {payload['event']} cannot be taken back while what came later needs it: {error}"
        ) from error
