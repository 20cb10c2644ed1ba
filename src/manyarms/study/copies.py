"""A study as JSON, with its log and its tables; and a new study of that, event by event the
same."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from manyarms.errors import StudyDamagedError, StudyError
from manyarms.study.events import NO_PREDECESSOR, Event, row_of
from manyarms.study.replica import Replay, settings_of
from manyarms.study.store import CARRY_OVER, Transaction, store_at
from manyarms.study.study import Study

FORMAT = "manyarms study, format 3"


def exported(study: Study) -> str:
    """A study as JSON; tables as base64 of their Parquet. The digest at its end is that of the
    chain of events."""
    events = list(study.events())
    parts: dict[str, Any] = {
        "format": FORMAT,
        "events": [
            {"kind": each.kind, "time": each.time, "payload": each.payload} for each in events
        ],
        "tables": {
            digest: base64.b64encode(table).decode() for digest, table in study.tables().items()
        },
        "digest": _end(events),
    }
    return json.dumps(parts, ensure_ascii=False, allow_nan=False)


def imported(location: str | Path, file: Path) -> Study:
    """A new study of a file that `exported` wrote, with the same log; StudyError where it is none,
    or was changed since."""
    events, tables = _read(file)
    # What makes no sense is refused before anything is written.
    settings_of(Replay.of(events, tables.__getitem__))

    def fill(transaction: Transaction) -> None:
        for table in tables.values():
            transaction.keep(table)
        for event in events:
            transaction.append(event.kind, event.payload, event.time)

    store_at(location).create(fill)
    return Study.open(location)


def _read(file: Path) -> tuple[list[Event], dict[str, bytes]]:
    """The events in a file, and its tables by their digests."""
    try:
        read = json.loads(file.read_bytes())
        if read["format"] != FORMAT:
            raise StudyError(
                f"{file} must be an export of this version ({FORMAT}), got {read['format']!r:.80}; "
                f"{CARRY_OVER}"
            )
        events = [
            Event(i + 1, each["kind"], each["time"], each["payload"])
            for i, each in enumerate(read["events"])
        ]
        data = [base64.b64decode(table) for table in read["tables"].values()]
        tables = {hashlib.sha256(table).hexdigest(): table for table in data}
        # The end of the chain is a digest of every event before it.
        as_written = _end(events) == read["digest"]
        as_written &= {digest for event in events for digest in event.tables} == set(tables)
    except StudyDamagedError:
        as_written = False
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StudyError(
            f"{file} is not an export of a study ({type(error).__name__}: {error}); check the file"
        ) from error
    if not as_written or not events:
        raise StudyError(
            f"{file} is not as it was written; export the study again, or tell its results from a "
            "CSV file"
        )
    return events, tables


def _end(events: list[Event]) -> str:
    """The digest at the end of the chain that the log has of these events."""
    digest = NO_PREDECESSOR
    for event in events:
        event.check()
        digest = row_of(event, digest)[-1]
    return digest
