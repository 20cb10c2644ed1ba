"""The books of a study as they were at one event, so that a call that only appends reads what came
since, and not the whole log.

They are a cache, as snapshots of models are: what they say is in the log. They name the last event
that they have, by number and digest; books of another log, or of another make, are as good as none.
Of the table of candidates they name the events that made it. Books of a box are not kept.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from manyarms.campaign.ledger import ENTRY, Ledger, Pending
from manyarms.campaign.trials import Forecast
from manyarms.engine.growing import Stack
from manyarms.errors import ManyArmsError
from manyarms.study.events import Head

if TYPE_CHECKING:
    from manyarms.study.replica import Replay

MAKE = f"books 1, {ENTRY.descr}"
"""Books of another make are not read."""
TYPES = (ENTRY, np.dtype(np.intp), np.dtype(np.int64))
"""Of results, retired candidates, and sources of results."""


def written(replay: "Replay", head: Head) -> bytes | None:
    """The books as bytes: a line of JSON, and arrays one behind the other; None for a box."""
    ledger = replay.ledger
    if replay.space.box is not None:
        return None
    outcomes = ledger.outcomes
    sources = np.array(replay.sources, dtype=np.int64).ravel()
    arrays = outcomes.entries.items, outcomes.taken.items, sources
    said = {
        "make": MAKE,
        "head": head,
        "table": replay.made,
        "sizes": [len(array) for array in arrays],
        "changed": [outcomes.is_changed, outcomes.has_grown],
        "pending": ledger.pending,
        "tokens": replay.tokens,
        "notes": list(replay.notes.items()),
        "batches": list(replay.batches.items()),
    }
    return b"\n".join([json.dumps(said).encode(), b"".join(each.tobytes() for each in arrays)])


def read(
    data: bytes,
    digest_of: Callable[[int], str | None],
    made: Callable[[list[int]], "Replay"],
) -> "tuple[Replay, Head] | None":
    """What was written, and the last event of it; None where that is not in the log. `made` replays
    the events that made the table."""
    line, _, rest = data.partition(b"\n")
    try:
        said = json.loads(line)
        if said["make"] != MAKE or digest_of(said["head"][0]) != said["head"][1]:
            return None
        replay = made(said["table"])
        replay.ledger = _ledger(replay.ledger, said, rest)
        start = len(rest) - 8 * said["sizes"][2]
        sources = np.frombuffer(rest, TYPES[2], offset=start).reshape(-1, 2).tolist()
        replay.sources = [(event, place) for event, place in sources]
        replay.tokens = {name: tuple(told) for name, told in said["tokens"].items()}
        replay.notes = {tuple(source): note for source, note in said["notes"]}
        replay.batches = {tuple(source): batch for source, batch in said["batches"]}
    except (LookupError, TypeError, ValueError, ManyArmsError):
        return None
    return replay, Head(*said["head"])


def _ledger(ledger: Ledger, said: dict[str, Any], rest: bytes) -> Ledger:
    """The books of this table with what is said of it; ValueError where that does not fit."""
    n, n_taken, _ = said["sizes"]
    entries = np.frombuffer(rest, ENTRY, n).copy()
    taken = np.frombuffer(rest, TYPES[1], n_taken, offset=entries.nbytes).copy()
    pending = tuple(
        Pending(*each)._replace(forecast=each[3] and Forecast(*each[3])) for each in said["pending"]
    )
    named = [each.position for each in pending]
    places = np.concatenate([entries["position"], taken, np.array(named, dtype=np.intp)])
    if not np.isin(places, np.arange(len(ledger.candidates))).all():
        raise ValueError("a candidate that is not there")
    is_changed, has_grown = said["changed"]
    outcomes = replace(
        ledger.outcomes,
        entries=Stack(entries),
        taken=Stack(taken),
        is_changed=is_changed,
        has_grown=has_grown,
    )
    return replace(ledger, outcomes=outcomes, pending=pending)
