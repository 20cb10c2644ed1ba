"""Where a study is kept: a SQLite file, or a schema of a PostgreSQL database; one transaction a
call.

Writers wait for each other and none is refused. A transaction ends on every path: signals wait for
its end (`signals.py`). Statements are the same for every place; a `Database` runs them
(`sqlite.py`, `postgres.py`).
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from manyarms.errors import (
    Advice,
    StudyDamagedError,
    StudyError,
    StudyStorageError,
    StudyVersionError,
)
from manyarms.runtime.machine import uncollected
from manyarms.runtime.signals import deferred
from manyarms.study.database import Database, foreign
from manyarms.study.events import START, TAKING_BACK, Event, Head, damaged, read, row_of
from manyarms.study.location import Location, as_location
from manyarms.study.sqlite import SQLiteFile

PART = 1 << 26
"""Bytes of a blob in one row, 64 MiB: far below what SQLite (1 GB) and PostgreSQL take."""
TABLES = (
    "CREATE TABLE manyarms (version INTEGER NOT NULL)",
    "CREATE TABLE events (number {number} NOT NULL PRIMARY KEY, kind TEXT NOT NULL, "
    "time DOUBLE PRECISION NOT NULL, record TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE head (number BIGINT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE blobs (digest TEXT NOT NULL, part INTEGER NOT NULL, data {bytes} NOT NULL, "
    "PRIMARY KEY (digest, part))",
    "CREATE TABLE snapshots (number BIGINT NOT NULL PRIMARY KEY, digest TEXT NOT NULL)",
)
"""A key is the place of a row in SQLite where its type is INTEGER; elsewhere that is too small."""
FORMAT = 3
"""Of the log. Earlier ones recorded what a model decided."""
CARRY_OVER = (
    "its results carry over: write them to a CSV file with `manyarms export` of the version that "
    "made it, and begin here with `manyarms init --target` on that file, or tell them"
)
"""How the results of a study of an earlier format come here."""

KEPT = 3
"""Snapshots that are kept, at most, each of about half as many results as the next."""

_HEAD = "SELECT number, digest FROM head"
_SINCE = "SELECT number, kind, time, record, digest FROM events WHERE number > ? ORDER BY number"
_APPEND = "INSERT INTO events (number, kind, time, record, digest) VALUES (?, ?, ?, ?, ?)"
_MOVE = "UPDATE head SET number = ?, digest = ?"


def _connection(place: Location) -> Database[Any]:
    if place.server is None:
        return SQLiteFile(place)
    try:
        from manyarms.study.postgres import PostgresServer  # noqa: PLC0415  psycopg is an extra
    except ModuleNotFoundError as error:
        raise StudyError(
            "a study in PostgreSQL needs psycopg: pip install 'manyarms[postgres]'"
        ) from error
    return PostgresServer(place)


class News(NamedTuple):
    """What was appended after a head: events, the tables that they brought, and the head now."""

    events: list[Event]
    tables: dict[str, bytes]  # by digest
    head: Head


class Transaction:
    """What may be read and written between begin and commit."""

    def __init__(self, connection: Database[Any], replaced: Callable[[], StudyError]) -> None:
        self._connection, self._replaced = connection, replaced
        found = connection.execute(_HEAD).fetchall()
        # SQLite keeps any type in any column: a damaged head may be text.
        if len(found) != 1 or not isinstance(found[0][0], int):
            raise damaged(0, "the number of its events is lost")
        self.head = Head(*found[0])

    def since(self, head: Head) -> list[Event]:
        """The events after a head that was read before; StudyError where that is not in the log any
        more."""
        if self.head == head:
            return []
        try:
            events, last = read(self._connection.execute(_SINCE, (head.number,)), head)
            # The chain itself does not tell that its end was cut off; the head does.
            if last != self.head:
                what = f"{self.head.number} events were written and {last.number} are left"
                raise damaged(last.number, what)
        except StudyDamagedError as error:
            if head != START and self.digest_of(head.number) != head.digest:
                raise self._replaced() from error
            raise
        return events

    def news(self, head: Head) -> News:
        """All that is needed to follow the log from a head on, without this transaction; all of the
        log, where some of it was taken back since."""
        with uncollected():
            events = self.since(head)
            if head != START and any(event.kind in TAKING_BACK for event in events):
                events = self.since(START)
        return News(events, self.tables(events), self.head)

    def tables(self, events: Iterable[Event]) -> dict[str, bytes]:
        """The tables that events brought, by their digests; StudyDamagedError where one is
        damaged."""
        return {digest: self.fetch(digest) for event in events for digest in event.tables}

    def append(self, kind: str, payload: dict[str, Any], when: float | None = None) -> Event:
        """One more event, of now unless another time is given."""
        event = Event(self.head.number + 1, kind, when or time.time(), payload)
        event.check()
        row = row_of(event, self.head.digest)
        self._connection.execute(_APPEND, row)
        self.head = Head(row.number, row.digest)
        self._connection.execute(_MOVE, self.head)
        return event

    def keep(self, data: bytes) -> str:
        """Store bytes once, by their digest."""
        digest = hashlib.sha256(data).hexdigest()
        found = "SELECT 1 FROM blobs WHERE digest = ? LIMIT 1"
        if self._connection.execute(found, (digest,)).fetchone() is None:
            insert = "INSERT INTO blobs (digest, part, data) VALUES (?, ?, ?)"
            for part, start in enumerate(range(0, len(data), PART)):
                piece = data[start : start + PART]
                self._connection.execute(insert, (digest, part, piece))
        return digest

    def fetch(self, digest: str) -> bytes:
        """Bytes that were stored; StudyDamagedError where they are not as they were."""
        data = self._stored(digest)
        if data is None:
            raise damaged(0, f"what is stored as {digest[:12]} is not what was written")
        return data

    def _stored(self, digest: str) -> bytes | None:
        parts = "SELECT data FROM blobs WHERE digest = ? ORDER BY part"
        rows = self._connection.execute(parts, (digest,))
        data = b"".join(bytes(row[0]) for row in rows if isinstance(row[0], bytes | memoryview))
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def digest_of(self, number: int) -> str | None:
        """The digest of an event."""
        select = "SELECT digest FROM events WHERE number = ?"
        found = self._connection.execute(select, (number,)).fetchone()
        return None if found is None else found[0]

    def put_snapshot(self, number: int, data: bytes) -> None:
        """Keep what a model of so many results is made of again. Of those kept before, one of about
        half as many results stays, and one of a quarter: what comes after a correction needs not
        begin at nothing."""
        sizes = {each: each.bit_length() for each in self.snapshots()}
        level = number.bit_length()
        gone = [each for each, size in sizes.items() if not level - KEPT < size < level]
        for each in gone:
            self._forget(each)
        insert = "INSERT INTO snapshots (number, digest) VALUES (?, ?)"
        self._connection.execute(insert, (number, self.keep(data)))

    def _forget(self, number: int) -> None:
        # Bytes first: without the row nothing would say which they are.
        delete = "DELETE FROM blobs WHERE digest IN (SELECT digest FROM snapshots WHERE number = ?)"
        self._connection.execute(delete, (number,))
        self._connection.execute("DELETE FROM snapshots WHERE number = ?", (number,))

    def snapshots(self) -> list[int]:
        """The numbers of results of those that are kept, the largest first."""
        select = "SELECT number FROM snapshots ORDER BY number DESC"
        return [row[0] for row in self._connection.execute(select).fetchall()]

    def snapshot_bytes(self) -> int:
        """The size of all snapshots."""
        select = (
            "SELECT sum(length(data)) FROM blobs WHERE digest IN (SELECT digest FROM snapshots)"
        )
        return int(self._connection.execute(select).fetchone()[0] or 0)

    def snapshot(self, number: int) -> bytes | None:
        """What was kept of so many results; None where it is not as it was."""
        select = "SELECT digest FROM snapshots WHERE number = ?"
        found = self._connection.execute(select, (number,)).fetchone()
        return None if found is None else self._stored(str(found[0]))


class EventStore:
    """A place for one study."""

    def __init__(self, location: str | Path) -> None:
        self._place = as_location(location)
        self.location, self.shown = self._place.text, self._place.shown
        self._connection = _connection(self._place)
        self._is_replaced = False

    def create(self, fill: Callable[[Transaction], object]) -> None:
        """Make the tables and their first contents, in one transaction."""
        self._connection.make()
        with self._connected(lock=True, is_new=True) as connection:
            if connection.tables():
                raise StudyError(
                    f"there is a study in {self.shown} already",
                    Advice("open it with {}", "Study.open"),
                    "give another place",
                )
            # Tables and first event in one transaction: a study is there, or nothing is.
            for table in TABLES:
                connection.execute(table.format(**connection.types))
            insert = "INSERT INTO manyarms (version) VALUES (?)"
            connection.execute(insert, (FORMAT,))
            insert = "INSERT INTO head (number, digest) VALUES (?, ?)"
            connection.execute(insert, START)
            fill(Transaction(connection, self._replaced))

    def check(self) -> None:
        """Raise StudyError unless a study is there that this version can read."""
        self._connection.find()
        with self._connected(lock=False) as connection:
            self._check_version(connection)

    def _check_version(self, connection: Database[Any]) -> None:
        tables = connection.tables()
        if "manyarms" not in tables:
            raise foreign(self._place)
        found = connection.execute("SELECT version FROM manyarms").fetchone()
        version = None if found is None else found[0]
        if not isinstance(version, int) or version < 1:  # SQLite keeps any type in any column
            raise damaged(0, "its version is lost")
        if version < FORMAT:
            raise StudyVersionError(
                f"{self.shown} was written by an earlier version of manyarms, whose studies do not "
                f"go on here; {CARRY_OVER}"
            )
        if version > FORMAT:
            raise StudyVersionError(
                f"{self.shown} has format {version}, this version of manyarms knows {FORMAT}; "
                "install a newer one"
            )

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one state of the study."""
        with self._connected(lock=False) as connection:
            yield Transaction(connection, self._replaced)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that no other writer runs beside; it commits at the end, or nothing is
        written."""
        transaction: Transaction | None = None
        try:
            with self._connected(lock=True) as connection:
                begun = Transaction(connection, self._replaced)
                yield begun
                transaction = begun
        except StudyStorageError as error:
            if transaction is None or not self._is_committed(transaction, error):
                raise

    def _is_committed(self, transaction: Transaction, error: StudyStorageError) -> bool:
        """Whether a commit that ended in an error took place all the same, as when the last sync
        fails or the server's answer is lost. If so it is made sure of by a commit that succeeds."""
        try:
            with self._connected(lock=True) as connection:
                now = Transaction(connection, self._replaced)
                found = now.digest_of(transaction.head.number) == transaction.head.digest
                if found:
                    # Something to commit, so that what is there is synced to the disk.
                    connection.execute(_MOVE, now.head)
        except StudyStorageError:
            raise StudyStorageError(
                f"{error.problem}; whether this call was written is not known",
                "look at `history` before you call again",
                "tell with a token",
            ) from error
        return found

    def close(self) -> None:
        """Let go of the connection; it is opened again when needed."""
        with deferred():
            self._connection.close()

    @contextmanager
    def _connected(self, lock: bool, is_new: bool = False) -> Iterator[Database[Any]]:
        """A transaction: it commits at the end, or nothing is written."""
        connection = self._connection
        with deferred():
            try:
                self._check_same()
                with connection.in_line() if lock else nullcontext(None) as is_first:
                    connection.wait(lambda: connection.begin(lock, is_new), is_first)
                self._check_same()  # it may have been replaced while this waited
                yield connection
                # Those who are reading have to end first.
                connection.wait(connection.commit)
            except connection.errors as error:
                connection.close()  # what was begun is rolled back
                # An error with a password in its text must not be shown as the cause.
                cause = error if str(error) == self._place.without_secrets(str(error)) else None
                raise connection.typed(error) from cause
            except BaseException:
                # Closing rolls back: no transaction outlives its call.
                connection.close()
                raise

    def _check_same(self) -> None:
        """Raise StudyError where the file is not the one that was opened first."""
        if self._is_replaced or not self._connection.is_same():
            raise self._replaced()

    def _replaced(self) -> StudyError:
        self._is_replaced = True
        return StudyError(
            f"{self.shown} was replaced, removed or set back since it was opened, so nothing is "
            "read or written",
            Advice("open it again with {}", "Study.open"),
        )
