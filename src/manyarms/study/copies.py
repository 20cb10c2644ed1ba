"""A study as JSON, with its log and its tables; and a new study of that, event by event the
same."""

import base64
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from manyarms.errors import StudyDamagedError, StudyError
from manyarms.study.events import NO_PREDECESSOR, Event, row_of
from manyarms.study.places import store_at
from manyarms.study.store import CARRY_OVER, Transaction
from manyarms.study.study import Study

FORMAT = "manyarms study, format 3"


class Copy(NamedTuple):
    """All that a study is made of."""

    events: list[Event]
    tables: dict[str, bytes]  # by digest


def copied(study: Study) -> Copy:
    """A study, read and checked."""
    return Copy(list(study.events()), study.tables())


def written_copy(copy: Copy) -> str:
    """A copy as JSON; tables as base64 of their Parquet. The digest at its end is that of the chain
    of events."""
    events = [
        {"kind": each.kind, "time": each.time, "payload": each.payload} for each in copy.events
    ]
    tables = {digest: base64.b64encode(table).decode() for digest, table in copy.tables.items()}
    parts = {
        "format": FORMAT,
        "events": events,
        "tables": tables,
        "digest": _end(copy.events),
    }
    return json.dumps(parts, ensure_ascii=False, allow_nan=False)


def read_copy(path: Path) -> Copy:
    """The copy that `written_copy` wrote to a file; StudyError where it is none, or was changed
    since."""
    try:
        read = json.loads(path.read_bytes())
        if read["format"] != FORMAT:
            raise StudyError(
                f"{path} must be an export of this version ({FORMAT}), got {read['format']!r:.80}; "
                f"{CARRY_OVER}"
            )
        events = [
            Event(i + 1, each["kind"], each["time"], each["payload"])
            for i, each in enumerate(read["events"])
        ]
        tables = {digest: base64.b64decode(table) for digest, table in read["tables"].items()}
        digests = {hashlib.sha256(table).hexdigest() for table in tables.values()}
        needed = {digest for event in events for digest in event.tables}
        # The end of the chain is a digest of every event before it.
        as_written = _end(events) == read["digest"] and needed == set(tables) == digests
    except StudyDamagedError:
        as_written = False
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StudyError(
            f"{path} is not an export of a study ({type(error).__name__}: {error}); check the file"
        ) from error
    if not as_written or not events:
        raise StudyError(
            f"{path} is not as it was written; export the study again, or tell its results from a "
            "CSV file"
        )
    return Copy(events, tables)


def create_from(location: str | Path, copy: Copy) -> Study:
    """A new study of a copy, with the same log."""

    def fill(transaction: Transaction) -> None:
        for table in copy.tables.values():
            transaction.keep(table)
        for event in copy.events:
            transaction.append(event.kind, event.payload, event.time)

    store_at(location).create(fill)
    return Study.open(location)


def _end(events: list[Event]) -> str:
    """The digest at the end of the chain that the log has of these events."""
    digest = NO_PREDECESSOR
    for event in events:
        event.check()
        digest = row_of(event, digest)[-1]
    return digest
