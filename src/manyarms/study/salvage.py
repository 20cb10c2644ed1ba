"""What is whole of a damaged study file, in a new one.

An event is whole if its digest is that of itself and of its predecessor's digest, as they stand in
the file; those behind a damaged one are found too. Nothing is saved without the settings and the
candidates, the first event.
"""

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyarms.errors import ManyArmsError, StudyDamagedError, StudyError, StudyVersionError
from manyarms.study.events import NO_PREDECESSOR, Event, Head, read
from manyarms.study.replay import Fetch, Replay
from manyarms.study.storage import CARRY_OVER, FORMAT, EventStore, Transaction

LONGEST_GAP = 1000
"""Events in a row that cannot be read, after which none is looked for, unless the file says how
many there are: several pages of a file may be damaged together."""
NOTHING = {"ids": [], "workers": [], "by": 0.0}
"""What stands where an event was lost or left out: nobody's lease expired."""
EVENT = "SELECT number, kind, time, record, digest FROM events WHERE number = ?"
"""One at a time: a damaged page stops a longer query, and nothing behind it would be read."""


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
            events, lost = _whole(connection)
            if _is_old(connection):
                raise StudyVersionError(
                    f"{damaged} was written by an earlier version, which can salvage it; "
                    f"{CARRY_OVER}"
                )
            tables: dict[str, bytes] = {}

            def fetch(digest: str) -> bytes:
                tables[digest] = _blob(connection, digest)
                return tables[digest]

            if not events or events[0].kind != "create":
                raise StudyDamagedError(
                    f"of {damaged} the first event, with the settings, is lost: nothing can be "
                    "saved"
                )
            good, replay = _fitting(events, fetch)
    lost += len(events) - len(good)

    def fill(transaction: Transaction) -> None:
        for table in tables.values():
            transaction.keep(table)
        for event in good:
            # Events keep their numbers: files name them, and so does what corrects or takes back.
            while transaction.head.number + 1 < event.number:
                transaction.append("expire", NOTHING, event.time)
            transaction.append(event.kind, event.payload, event.time)

    store = EventStore(new)
    store.create(fill)
    store.close()
    return Salvaged(len(good), replay.ledger.n_trials, lost)


def _padded(data: bytes) -> bytes:
    """The file at the length that its header tells, so that a file cut off is read up to there."""
    # Bytes 16 and 17 of a SQLite file are its page size (1 stands for 65,536), 28 to 31 its pages.
    page = int.from_bytes(data[16:18], "big")
    size = (65_536 if page == 1 else page) * int.from_bytes(data[28:32], "big")
    # A damaged header may tell any size: more than 64 times what is there is not believed.
    return data if size > 64 * max(1, len(data)) else data.ljust(size, b"\0")


def _whole(connection: sqlite3.Connection) -> tuple[list[Event], int]:
    """The events that are whole, and the number of those that are not."""
    events: list[Event] = []
    lost, before = 0, NO_PREDECESSOR
    for number, row in _rows(connection):
        digest = row[4] if row is not None else None
        # Checked against the digest that stands before it, right or wrong: what follows a damaged
        # event is whole all the same.
        try:
            found = read([row], Head(number - 1, before))[0] if row is not None else []
        except (StudyDamagedError, ValueError, TypeError):
            found = []
        events += found
        lost += not found
        before = digest if isinstance(digest, str) else ""
    return events, lost


def _is_old(connection: sqlite3.Connection) -> bool:
    """Whether the file was written by an earlier version."""
    try:
        (version,) = connection.execute("SELECT version FROM manyarms").fetchone()
    except (sqlite3.Error, TypeError, ValueError):
        return False
    return isinstance(version, int) and 0 < version < FORMAT


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[int, Any]]:
    """Event by event, None where one cannot be read."""
    last = 0
    for select in ("SELECT number FROM head", "SELECT max(number) FROM events"):
        with suppress(sqlite3.Error, TypeError, ValueError):
            last = max(last, int(connection.execute(select).fetchone()[0]))
    number = missing = 0
    waiting: list[tuple[int, Any]] = []  # unreadable ones, which count if another follows
    while missing < LONGEST_GAP:
        number += 1
        row = None
        with suppress(sqlite3.Error, ValueError, OverflowError):
            row = connection.execute(EVENT, (number,)).fetchone()
        if row is None:
            missing += 1
            waiting.append((number, None))
            continue
        yield from waiting
        yield number, row
        waiting, missing = [], 0
    yield from (pair for pair in waiting if pair[0] <= last <= number)


def _blob(connection: sqlite3.Connection, digest: str) -> bytes:
    """A stored table; StudyDamagedError where it is not as it was."""
    try:
        rows = connection.execute(
            "SELECT data FROM blobs WHERE digest = ? ORDER BY part", (digest,)
        ).fetchall()
        data = b"".join(row[0] for row in rows)
    except (sqlite3.Error, TypeError) as error:
        raise StudyDamagedError(f"a table of candidates cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise StudyDamagedError(
            "a table of candidates is lost: without the candidates nothing can be saved"
        )
    return data


def _fitting(events: list[Event], fetch: Fetch) -> tuple[list[Event], Replay]:
    """The events that make sense without those that are lost, and the state they make."""
    with suppress(ManyArmsError):
        return events, Replay.of(events, fetch)
    good = events[:1]
    replay = Replay.of(good, fetch)
    for event in events[1:]:
        with suppress(ManyArmsError):
            replay = replay.after([event], fetch)
            good.append(event)
    # Read as a whole, for what some of them take back.
    with suppress(ManyArmsError):
        return good, Replay.of(good, fetch)
    good = [event for event in good if event.kind != "undo"]
    return good, Replay.of(good, fetch)
