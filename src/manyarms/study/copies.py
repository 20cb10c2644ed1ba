"""A study elsewhere: its log and tables as JSON, a new study of them, and what is whole of a damaged one."""

import base64
import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from manyarms.errors import StudyDamagedError, StudyError
from manyarms.study.ledger import Ledger
from manyarms.study.log import START, Event, checked, read_record
from manyarms.study.storage import BLOBS, EVENTS, Store, Transaction
from manyarms.study.study import Study, _optimizer, _tables

FORMAT = "manyarms study, format 1"


class Copy(NamedTuple):
    """All that a study is made of."""

    events: list[Event]
    tables: dict[str, bytes]  # by digest


def copied(study: Study) -> Copy:
    """A study, read and checked."""
    events = list(study.events())
    digests = [digest for event in events for digest in _tables(event)]
    with study._store.reading() as transaction:
        return Copy(events, {digest: transaction.fetch(digest) for digest in digests})


def written_copy(copy: Copy) -> str:
    """A copy as JSON; tables as base64 of their Parquet."""
    events = [{"kind": each.kind, "time": each.time, "payload": each.payload} for each in copy.events]
    tables = {digest: base64.b64encode(table).decode() for digest, table in copy.tables.items()}
    return json.dumps({"format": FORMAT, "events": events, "tables": tables}, ensure_ascii=False, allow_nan=False)


def read_copy(path: Path) -> Copy:
    """The copy that `written_copy` wrote to a file; StudyError where it is none."""
    try:
        read = json.loads(path.read_bytes())
        if read["format"] != FORMAT:
            raise StudyError(f"{path} must be an export of this version ({FORMAT}), got {read['format']!r:.80}")
        events = [_event(i + 1, **each) for i, each in enumerate(read["events"])]
        tables = {digest: base64.b64decode(table) for digest, table in read["tables"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StudyError(f"{path} is not an export of a study ({type(error).__name__}: {error}); check the file") from error
    return Copy(events, tables)


def _event(number: int, kind: str, time: float, payload: dict[str, Any]) -> Event:
    """An event that the log would take."""
    plain = isinstance(kind, str) and isinstance(time, float) and math.isfinite(time) and isinstance(payload, dict)
    if not plain or (kind == "create") != (number == 1):
        raise ValueError(f"event {number} is not one of a log")
    json.dumps([kind, payload], ensure_ascii=False, allow_nan=False).encode()
    return Event(number, kind, time, payload)


def create_from(location: str | Path, copy: Copy) -> Study:
    """A new study of a copy, with the same log; StudyError, and no study, where the copy makes no sense."""
    wrong = [digest for digest, table in copy.tables.items() if hashlib.sha256(table).hexdigest() != digest]
    if wrong:
        raise StudyError(f"the copy is damaged: table {wrong[0]:.12} is not what was written; export it again")
    try:
        ledger = Ledger(copy.events[0], copy.tables.__getitem__)
        _optimizer(ledger.settings, ledger.pool)
        ledger.apply(copy.events[1:], copy.tables.__getitem__)
        for record in ledger.records.values():
            read_record(record)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StudyError(f"the copy is not of a study ({type(error).__name__}: {error}); export it again") from error

    def fill(transaction: Transaction) -> None:
        for table in copy.tables.values():
            transaction.keep(table)
        for event in copy.events:
            transaction.append(event.kind, event.payload, event.time)

    Store(location).create(fill)
    return Study.open(location)


def whole_part(location: str | Path) -> Copy:
    """What is certain of a study that may be damaged: events up to the first that is not as written, and their tables."""
    store, head = Store(location), START
    events: list[Event] = []
    tables: dict[str, bytes] = {}
    try:
        with store._connected(lock=False) as connection:
            for row in connection.execute(sa.select(EVENTS).order_by(EVENTS.c.number)):
                (event,), head = checked([row], head)
                for digest in _tables(event):
                    parts = connection.execute(sa.select(BLOBS.c.data).where(BLOBS.c.digest == digest).order_by(BLOBS.c.part))
                    table = b"".join(bytes(part[0]) for part in parts)
                    if hashlib.sha256(table).hexdigest() != digest:
                        return Copy(events, tables)
                    tables[digest] = table
                events.append(event)
    except (StudyDamagedError, TypeError):
        pass
    return Copy(events, tables)
