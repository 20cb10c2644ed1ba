"""The books of a study as they were at one event, so that a call that only appends reads what came
since, and not the whole log.

They are a cache, as snapshots of models are: what they say is in the log. They name the last event
that they have, by number and digest; books of another log, or of another make, are as good as none,
and so are books that make no sense. What they say is compared with the log by `Study.verify`. Of
the table of candidates they name the events that made it. Books of a box are not kept.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from manyarms.campaign.ledger import ENTRY, Pending
from manyarms.campaign.trials import Forecast
from manyarms.checks import LARGEST
from manyarms.engine.growing import Stack
from manyarms.errors import ManyArmsError
from manyarms.runtime.foreign import NONSENSE
from manyarms.study.events import EACH, ENTRIES, Event, Head

if TYPE_CHECKING:
    from manyarms.study.replica import Fetch, Replay
    from manyarms.study.store import Transaction

TOLD = np.dtype([("entry", ENTRY), ("place", np.int64)])
"""A result, and its place in the event that told it."""
MAKE = f"books 2, {TOLD.descr}"
"""Books of another make are not read."""
LINE = 1 << 24
"""Bytes of JSON in books, at most, 16 MiB: lists within lists take 44 times as much in memory."""

Kept = tuple[dict[str, Any], bytes, list[Event], dict[str, bytes]]
"""Books of a log: what they say, their results, and the events and tables of the table."""


def written(replay: "Replay", head: Head) -> bytes | None:
    """The books as bytes: a line of JSON, and an array of results; None for a box, and where the
    line is longer than one that is read."""
    ledger = replay.ledger
    outcomes = ledger.outcomes
    told = np.empty(outcomes.entries.n, dtype=TOLD)
    told["entry"] = outcomes.entries.items
    told["place"] = [place for _, place in replay.sources]
    said = {
        "make": MAKE,
        "head": head,
        "table": replay.made,
        "taken": outcomes.taken.items.tolist(),
        "changed": [outcomes.is_changed, outcomes.has_grown],
        "pending": ledger.pending,
        "tokens": replay.tokens,
        "notes": list(replay.notes.items()),
        "batches": list(replay.batches.items()),
    }
    line = json.dumps(said).encode()
    is_kept = replay.space.box is None and len(line) <= LINE
    return b"\n".join([line, told.tobytes()]) if is_kept else None


def kept(transaction: "Transaction") -> Kept | None:
    """The books that are kept of this log, and what they are made of; None where there are none."""
    line, _, rest = (transaction.books() or b"").partition(b"\n")
    try:
        said = json.loads(line if len(line) <= LINE else b"")
        (number, digest), made = said["head"], said["table"]
        if not (
            said["make"] == MAKE
            and _are_whole([number], 1, transaction.head.number)
            and transaction.digest_of(number) == digest
            and _are_whole(made, 1, number)
            and (np.diff(made) > 0).all()
        ):
            return None
        events = [transaction.event(each) for each in made]
        return said, rest, events, transaction.tables(events)
    except (*NONSENSE, ManyArmsError):
        return None


def read(
    kept: Kept, made: "Callable[[list[Event], Fetch], Replay]"
) -> "tuple[Replay, Head] | None":
    """The books that were written, and the last event of them; None where they make no sense.
    `made` replays events."""
    said, rest, events, tables = kept
    try:
        replay, head = made(events, tables.__getitem__), Head(*said["head"])
        told = np.frombuffer(rest, TOLD)
        outcomes = replace(
            replay.ledger.outcomes,
            entries=Stack(told["entry"].copy()),
            taken=Stack(np.array(said["taken"], dtype=np.intp)),
            is_changed=bool(said["changed"][0]),
            has_grown=bool(said["changed"][1]),
        )
        pending = tuple(
            Pending(*each)._replace(forecast=each[3] and Forecast(*each[3]))
            for each in said["pending"]
        )
        replay.ledger = replace(replay.ledger, outcomes=outcomes, pending=pending)
        replay.sources = list(
            zip(told["entry"]["tell"].tolist(), told["place"].tolist(), strict=True)
        )
        replay.tokens = {name: (at, values) for name, (at, values) in said["tokens"].items()}
        replay.notes = {tuple(source): note for source, note in said["notes"]}
        replay.batches = {tuple(source): batch for source, batch in said["batches"]}
        return (replay, head) if _make_sense(replay, head, said["taken"]) else None
    except (*NONSENSE, ManyArmsError):
        return None


def _make_sense(replay: "Replay", head: Head, taken: Any) -> bool:
    """Whether these books may be of a log that ends there."""
    ledger, told = replay.ledger, replay.tokens.values()
    entries, pending = ledger.outcomes.entries.items, ledger.pending
    last, n = len(ledger.candidates) - 1, len(entries)
    wholes = (
        (entries["position"], 0, last),
        (entries["tell"], 1, head.number),
        (entries["known"], -1, n),
        (taken, 0, last),
        ([place for _, place in replay.sources], 0, sys.maxsize),
        ([each.position for each in pending], 0, last),
        ([each.event for each in pending], 0, head.number),
        ([each.known for each in pending], 0, n),
        ([each for positions, _ in told for each in positions], 0, last),
    )
    fields = (
        (ENTRIES["worker"], [each.worker for each in pending]),
        (ENTRIES["until"], [each.until for each in pending]),
        (EACH["forecasts"], [each.forecast for each in pending]),
        (EACH["reasons"], [each.reason for each in pending]),
        (EACH["values"], [each for _, values in told for each in values]),
        (EACH["of"], [*replay.notes, *replay.batches]),
        (ENTRIES["note"], replay.notes.values()),
        (EACH["batches"], replay.batches.values()),
    )
    floats = np.column_stack([entries[name] for name in ("value", "noise", "forecast")])
    return bool(
        all(_are_whole(*each) for each in wholes)
        and all(all(map(is_right, values)) for is_right, values in fields)
        and not np.isinf(floats).any()
        and not (np.abs(floats[:, :2]) > LARGEST).any()
        and not (entries["noise"] < 0).any()
        and not np.diff(np.isnan(floats[:, 2:])).any()  # a forecast has all of its numbers
        and (np.diff(entries["tell"]) >= 0).all()
    )


def _are_whole(numbers: Any, low: int, high: int) -> bool:
    """Whether these are whole numbers from `low` to `high`, one after the other."""
    found = np.asarray(numbers)
    return found.ndim == 1 and bool(
        not found.size or (found.dtype.kind == "i" and low <= found.min() and found.max() <= high)
    )
