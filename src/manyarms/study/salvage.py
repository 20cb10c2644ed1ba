"""What is whole of a damaged study file, in a new one.

An event is whole if its digest is that of itself and of its predecessor's digest, as they stand in
the file; those behind a damaged one are found too. Nothing is saved without the settings and the
candidates, the first event.
"""

import hashlib
import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyarms.errors import ManyArmsError, StudyDamagedError, StudyError, StudyVersionError
from manyarms.study.events import NO_PREDECESSOR, Event, Head, read
from manyarms.study.replica import Fetch, Replay
from manyarms.study.sqlite import OWN_SCHEMA, schema
from manyarms.study.store import CARRY_OVER, FORMAT, Transaction, store_at

LONGEST_GAP = 1000
"""Events in a row that cannot be read, after which none is looked for, unless the file says how
many there are: several pages of a file may be damaged together."""
NOTHING = {"ids": [], "workers": [], "by": 0.0}
"""What stands where an event was lost or left out: nobody's lease expired."""
EVENT = "SELECT number, kind, time, record, digest FROM events WHERE number = ?"


@dataclass(frozen=True)
class Salvaged:
    """What was saved: the events, the number of results among them, and the events that are
    lost."""

    events: int
    results: int
    lost: int


def salvage(damaged: str | Path, new: str | Path) -> Salvaged:
    """Write all whole events of a damaged study file into a new study; the damaged file is only
    read.

    StudyDamagedError where the first event or the candidates are lost, StudyError where there is no
    file or the new one exists.
    """
    source = Path(damaged)
    if not source.is_file():
        raise StudyError(
            f"there is no file {damaged}; a study in PostgreSQL is restored from the server's own "
            "backups"
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        # A copy: SQLite would roll back into the damaged file itself.
        copy.write_bytes(_padded(source.read_bytes()))
        # A transaction that was cut off is rolled back by its journal, so that goes with the copy.
        journal = Path(f"{source}-journal")
        if journal.is_file():
            Path(f"{copy}-journal").write_bytes(journal.read_bytes())
        with closing(sqlite3.connect(copy)) as connection:
            _check_tables(source, connection)
            rows = _rows(connection)
            events = _whole(rows)
            if _answer(connection, "SELECT version FROM manyarms") in range(1, FORMAT):
                raise StudyVersionError(
                    f"{damaged} was written by an earlier version, which can salvage it; "
                    f"{CARRY_OVER}"
                )
            if not events or events[0].kind != "create":
                raise StudyDamagedError(
                    f"of {damaged} the first event, with the settings, is lost: nothing can be "
                    "saved"
                )
            tables: dict[str, bytes] = {}

            def fetch(digest: str) -> bytes:
                tables[digest] = _table(connection, digest)
                return tables[digest]

            good, replay = _fitting(events, fetch)

    def fill(transaction: Transaction) -> None:
        for table in tables.values():
            transaction.keep(table)
        for event in good:
            # Events keep their numbers: files name them, and so does what corrects or takes back.
            while transaction.head.number + 1 < event.number:
                transaction.append("expire", NOTHING, event.time)
            transaction.append(event.kind, event.payload, event.time)

    store = store_at(new)
    store.create(fill)
    store.close()
    return Salvaged(len(good), replay.ledger.n_trials, len(rows) - len(good))


def _check_tables(source: Path, connection: sqlite3.Connection) -> None:
    """Raise StudyDamagedError where a view, or what else may never end, stands in place of a
    table that is read; what is not there at all is lost."""
    connection.execute("PRAGMA trusted_schema=OFF")
    names = {name for _, name, _ in OWN_SCHEMA}
    with suppress(sqlite3.Error):
        for kind, name, _ in schema(connection) - set(OWN_SCHEMA):
            if name in names:
                raise StudyDamagedError(
                    f"{source} was changed by another program: the {kind} {name!r} is not as "
                    "manyarms makes it, so nothing is read from it"
                )


def _padded(data: bytes) -> bytes:
    """The file at the length that its header tells, so that a file cut off is read up to there."""
    # Bytes 16 and 17 of a SQLite file are its page size (1 stands for 65,536), 28 to 31 its pages.
    page = int.from_bytes(data[16:18], "big")
    size = (65_536 if page == 1 else page) * int.from_bytes(data[28:32], "big")
    # A damaged header may tell any size: more than 64 times what is there is not believed.
    return data if size > 64 * max(1, len(data)) else data.ljust(size, b"\0")


def _rows(connection: sqlite3.Connection) -> list[Any]:
    """The rows of all events, None for one that cannot be read."""
    said = (
        _answer(connection, "SELECT number FROM head"),
        _answer(connection, "SELECT max(number) FROM events"),
    )
    rows: list[Any] = []
    last = 0  # the last one that can be read
    while len(rows) - last < LONGEST_GAP:
        row = None
        # One at a time: a damaged page stops a longer query, and nothing behind it would be read.
        with suppress(sqlite3.Error, ValueError, OverflowError):
            row = connection.execute(EVENT, (len(rows) + 1,)).fetchone()
        rows.append(row)
        last = len(rows) if row is not None else last
    known = [number for number in said if isinstance(number, int) and number <= len(rows)]
    return rows[: max([last, *known])]


def _whole(rows: list[Any]) -> list[Event]:
    """The events that are whole."""
    events: list[Event] = []
    before = NO_PREDECESSOR
    for number, row in enumerate(rows):
        # Checked against the digest that stands before it, right or wrong: what follows a damaged
        # event is whole all the same.
        with suppress(StudyDamagedError, ValueError, TypeError):
            events += read([row], Head(number, before))[0]
        before = row[4] if row is not None and isinstance(row[4], str) else ""
    return events


def _answer(connection: sqlite3.Connection, select: str) -> Any:
    """The first answer of a query, None where there is none."""
    with suppress(sqlite3.Error, TypeError, ValueError):
        return connection.execute(select).fetchone()[0]
    return None


def _table(connection: sqlite3.Connection, digest: str) -> bytes:
    """A stored table; StudyDamagedError where it is not as it was."""
    select = "SELECT data FROM blobs WHERE digest = ? ORDER BY part"
    with suppress(sqlite3.Error, TypeError):
        data = b"".join(row[0] for row in connection.execute(select, (digest,)))
        if hashlib.sha256(data).hexdigest() == digest:
            return data
    raise StudyDamagedError(
        "a table of candidates is lost: without the candidates nothing can be saved"
    )


def _fitting(events: list[Event], fetch: Fetch) -> tuple[list[Event], Replay]:
    """The events that make sense without those that are lost, and the state they make."""
    with suppress(ManyArmsError):
        return events, Replay.of(events, fetch)
    good = events[:1]
    replay = Replay.of(good, fetch)
    for event in events[1:]:
        with suppress(ManyArmsError):
            # What is taken back is looked for among the others, below.
            replay = replay if event.kind == "undo" else replay.after([event], fetch)
            good.append(event)
    # Read as a whole, for what some of them take back.
    with suppress(ManyArmsError):
        return good, Replay.of(good, fetch)
    good = [event for event in good if event.kind != "undo"]
    return good, Replay.of(good, fetch)
