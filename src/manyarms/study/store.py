"""Where a study is kept: a SQLite file, or a schema of a PostgreSQL database; one transaction a
call.

A place is a subclass of `Store`, which says how statements are run there and how one waits for the
lock; `manyarms.testing` checks one. Writers wait for each other and none is refused. A transaction
ends on every path: signals wait for its end (`runtime/signals.py`).
"""

import hashlib
import os
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from manyarms.errors import (
    Advice,
    StudyDamagedError,
    StudyError,
    StudyStorageError,
    StudyVersionError,
)
from manyarms.runtime.signals import deferred, interruptible
from manyarms.study.events import (
    SALVAGE,
    START,
    TAKING_BACK,
    Event,
    Head,
    damaged,
    read,
    row_of,
)
from manyarms.study.location import Location, as_location

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
_ONE = "SELECT number, kind, time, record, digest FROM events WHERE number = ?"
_APPEND = "INSERT INTO events (number, kind, time, record, digest) VALUES (?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM blobs WHERE digest IN (SELECT digest FROM snapshots WHERE number = ?)"
_MOVE = "UPDATE head SET number = ?, digest = ?"


BUSY = 600.0
"""Seconds a call waits for others."""
PATIENCE = 5.0
"""Seconds after which a call says for whom it waits; and again after four times as long."""
OUT_OF_TURN = 0.5
"""Seconds between two attempts of a writer who is not the first in line."""
AGAIN = 0.2
"""Seconds between two looks whether a commit took place."""
FIRST, OTHERS = 1e-3, 5e-3
"""Seconds between two looks, of the first in line and of the others."""


class News(NamedTuple):
    """What was appended after a head: events, the tables that they brought, and the head now."""

    events: list[Event]
    tables: dict[str, bytes]  # by digest
    head: Head


class Transaction:
    """What may be read and written between begin and commit."""

    def __init__(self, store: "Store") -> None:
        self._store, self._execute = store, store.execute
        found = self._execute(_HEAD).fetchall()
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
            events, last = read(self._execute(_SINCE, (head.number,)), head)
            # The chain itself does not tell that its end was cut off; the head does.
            if last != self.head:
                what = f"{self.head.number} events were written and {last.number} are left"
                raise damaged(last.number, what)
        except StudyDamagedError as error:
            if head != START and self.digest_of(head.number) != head.digest:
                raise self._store.replaced() from error
            raise
        return events

    def news(self, head: Head) -> News:
        """All that is needed to follow the log from a head on, without this transaction; all of the
        log, where some of it was taken back since."""
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
        now = time.time() if when is None else when
        event = Event(self.head.number + 1, kind, now, payload)
        event.check()
        row = row_of(event, self.head.digest)
        self._write(_APPEND, row)
        self.head = Head(event.number, row[-1])
        self._write(_MOVE, self.head)
        return event

    def keep(self, data: bytes) -> str:
        """Store bytes once, by their digest."""
        digest = hashlib.sha256(data).hexdigest()
        found = "SELECT 1 FROM blobs WHERE digest = ? LIMIT 1"
        if self._execute(found, (digest,)).fetchone() is None:
            insert = "INSERT INTO blobs (digest, part, data) VALUES (?, ?, ?)"
            for part, start in enumerate(range(0, len(data), PART)):
                piece = data[start : start + PART]
                self._write(insert, (digest, part, piece))
        return digest

    def fetch(self, digest: str) -> bytes:
        """Bytes that were stored; StudyDamagedError where they are not as they were."""
        data = self._stored(digest)
        if data is None:
            raise damaged(0, f"what is stored as {digest[:12]} is not what was written")
        return data

    def _stored(self, digest: str) -> bytes | None:
        parts = "SELECT data FROM blobs WHERE digest = ? ORDER BY part"
        rows = self._execute(parts, (digest,))
        data = b"".join(bytes(row[0]) for row in rows if isinstance(row[0], bytes | memoryview))
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def event(self, number: int) -> Event:
        """One event, checked against the digest of the one before."""
        before = START.digest if number == 1 else self.digest_of(number - 1)
        rows = self._execute(_ONE, (number,))
        (found,), _ = read(rows, Head(number - 1, before or ""))
        return found

    def digest_of(self, number: int) -> str | None:
        """The digest of an event."""
        select = "SELECT digest FROM events WHERE number = ?"
        found = self._execute(select, (number,)).fetchone()
        return None if found is None else found[0]

    def put_snapshot(self, number: int, data: bytes) -> None:
        """Keep what a model of so many results is made of again. Of those kept before, one of about
        half as many results stays, and one of a quarter: what comes after a correction needs not
        begin at nothing."""
        sizes = {each: each.bit_length() for each in self.snapshots()}
        level = number.bit_length()
        gone = [each for each, size in sizes.items() if not level - KEPT < size < level]
        self._replace_snapshots(gone, number, data)

    def put_books(self, data: bytes) -> None:
        """Keep the books at the last event, in place of those kept before. Their numbers are below
        0, those of snapshots above."""
        before = self._execute("SELECT number FROM snapshots WHERE number < 0").fetchall()
        self._replace_snapshots([number for (number,) in before], -self.head.number, data)

    def books(self) -> bytes | None:
        """The books that are kept; None where there are none, or they are not as they were."""
        found = self._execute("SELECT min(number) FROM snapshots WHERE number < 0").fetchone()
        return None if found[0] is None else self.snapshot(found[0])

    def _replace_snapshots(self, gone: Iterable[int], number: int, data: bytes) -> None:
        for each in gone:
            # Bytes first: without the row nothing would say which they are.
            self._execute(_FORGET, (each,))
            self._execute("DELETE FROM snapshots WHERE number = ?", (each,))
        insert = "INSERT INTO snapshots (number, digest) VALUES (?, ?)"
        self._write(insert, (number, self.keep(data)))

    def _write(self, statement: str, values: Sequence[Any]) -> None:
        """Change one row; StudyStorageError where another number of rows changed."""
        n = self._execute(statement, values).rowcount
        if n != 1:
            raise refused(self._store.place, f"{n} rows were written instead of 1")

    def snapshots(self) -> list[int]:
        """The numbers of results of those that are kept, the largest first."""
        select = "SELECT number FROM snapshots WHERE number > 0 ORDER BY number DESC"
        # SQLite keeps any type in any column.
        return [n for (n,) in self._execute(select).fetchall() if isinstance(n, int)]

    def snapshot_bytes(self) -> int:
        """The size of all snapshots."""
        select = (
            "SELECT sum(length(data)) FROM blobs WHERE digest IN (SELECT digest FROM snapshots)"
        )
        return int(self._execute(select).fetchone()[0] or 0)

    def snapshot(self, number: int) -> bytes | None:
        """What was kept of so many results; None where it is not as it was."""
        select = "SELECT digest FROM snapshots WHERE number = ?"
        found = self._execute(select, (number,)).fetchone()
        return None if found is None else self._stored(str(found[0]))


IsFirst = Callable[[], bool]
"""Says whether it is one's turn."""

_INHERITED: list[Any] = []
"""Connections of the process that this one is a fork of. They are never closed here: that would
end what the parent is writing."""


class Store(ABC):
    """A place for one study. Its connection is made when it is needed, in every process anew."""

    errors: tuple[type[Exception], ...]
    """What it raises for what goes wrong there."""
    types: Mapping[str, str]
    """Its names of two types: `number`, an integer of 64 bits, and `bytes`."""
    looks = 0.0
    """Seconds for which it looks whether a commit took place whose answer was lost."""

    def __init__(self, place: Location) -> None:
        self.place = place
        self._connection: Any = None
        self._letting_go: weakref.finalize[..., Store] | None = None
        self._process = 0
        self._first: object = None  # what `identity` said first
        self._is_replaced = False

    # What a place must have

    @abstractmethod
    def connected(self) -> Any:
        """A new connection, which begins no transaction of itself; it has `commit` and `close`,
        which rolls back what was begun."""

    @abstractmethod
    def begin(self, lock: bool, is_new: bool) -> None:
        """Begin a transaction that sees one state, with `lock` as the only writer; an error for
        which `is_busy` is true where others hold the lock."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement, with a value for each ? in it; the answer has `fetchone`,
        `fetchall`, and the `rowcount` of a change."""

    @abstractmethod
    def tables(self) -> set[str]:
        """The names of the tables there are."""

    @abstractmethod
    def holder(self) -> str:
        """Who holds the lock."""

    @abstractmethod
    def is_busy(self, error: Exception) -> bool:
        """Whether others hold the lock."""

    @abstractmethod
    def typed(self, error: Exception) -> StudyError:
        """What one of `errors` means for a study."""

    # What it may have

    def identity(self) -> object:
        """What is another one where the place was replaced, if that is not seen in the log."""
        return None

    def foreign_parts(self) -> list[str]:
        """What is in the place and not as `create` makes it, where others might have changed
        that."""
        return []

    def in_line(self) -> AbstractContextManager[IsFirst | None]:
        """Stand in line with other writers, where the place has no queue of its own."""
        return nullcontext()

    def commit(self) -> None:
        """End the transaction; where others are reading, it may raise an error for which `is_busy`
        is true, and the transaction goes on."""
        self.here().commit()

    # What every place has

    def create(self, fill: Callable[[Transaction], object]) -> None:
        """Make the tables and their first contents, in one transaction."""
        is_filled = False

        def noted(transaction: Transaction) -> None:
            nonlocal is_filled
            fill(transaction)
            is_filled = True

        try:
            self.fill(noted)
        except StudyStorageError as error:
            if not is_filled:
                raise
            raise StudyStorageError(
                f"{error.problem}; whether the study was made is not known",
                "look whether it can be opened before you make it again",
            ) from error

    def fill(self, fill: Callable[[Transaction], object]) -> None:
        """Make the tables and their first contents, in one transaction; nothing is made, or it is
        not known, where that ends in an error."""
        with self._connected(lock=True, is_new=True):
            if self.tables():
                raise StudyError(
                    f"there is a study in {self.place.shown} already",
                    Advice("open it with {}", "Study.open"),
                    "give another place",
                )
            # Tables and first event in one transaction: a study is there, or nothing is.
            for table in TABLES:
                self.execute(table.format(**self.types))
            self.execute("INSERT INTO manyarms (version) VALUES (?)", (FORMAT,))
            self.execute("INSERT INTO head (number, digest) VALUES (?, ?)", START)
            fill(Transaction(self))

    def check(self) -> None:
        """Raise StudyError unless a study is there that this version can read."""
        with self._connected(lock=False):
            tables = self.tables()
            if "manyarms" not in tables:
                raise foreign(self.place, tables)
            found = self.execute("SELECT version FROM manyarms").fetchone()
            others = self.foreign_parts()
        version = None if found is None else found[0]
        if not isinstance(version, int) or version < 1:  # SQLite keeps any type in any column
            raise damaged(0, "its version is lost")
        if version < FORMAT:
            raise StudyVersionError(
                f"{self.place.shown} was written by an earlier version of manyarms, whose studies "
                f"do not go on here; {CARRY_OVER}"
            )
        if version > FORMAT:
            raise StudyVersionError(
                f"{self.place.shown} has format {version}, this version of manyarms knows "
                f"{FORMAT}; install a newer one"
            )
        if others:
            raise StudyDamagedError(
                f"{self.place.shown} was changed by another program, or is damaged: "
                f"{', '.join(others):.200} is not as manyarms makes it",
                "go back to a copy",
                SALVAGE,
            )

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one state of the study."""
        with self._connected(lock=False):
            yield Transaction(self)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that no other writer runs beside; it commits at the end, or nothing is
        written."""
        written: Head | None = None
        try:
            with self._connected(lock=True):
                transaction = Transaction(self)
                yield transaction
                written = transaction.head
        except StudyStorageError as error:
            if written is None or not self._is_committed(written, error):
                raise

    def _is_committed(self, written: Head, error: StudyStorageError) -> bool:
        """Whether a commit that ended in an error took place all the same, as when the last sync
        fails or the server's answer is lost. If so it is made sure of by a commit that succeeds."""
        end = time.monotonic() + self.looks
        while True:
            try:
                with self._connected(lock=True):
                    now = Transaction(self)
                    found = now.digest_of(written.number) == written.digest
                    if found:
                        # Something to commit, so that what is there is synced to the disk.
                        self.execute(_MOVE, now.head)
                return found
            except StudyStorageError:
                if time.monotonic() > end:
                    raise StudyStorageError(
                        f"{error.problem}; whether this call was written is not known",
                        "look at `history` before you call again",
                        "tell with a token",
                    ) from error
            with interruptible():
                time.sleep(AGAIN)

    @contextmanager
    def _connected(self, lock: bool, is_new: bool = False) -> Iterator[None]:
        """A transaction: it commits at the end, or nothing is written."""
        with deferred():
            try:
                self._check_same()
                with self.in_line() if lock else nullcontext(None) as is_first:
                    self._wait(lambda: self.begin(lock, is_new), is_first)
                self._check_same()  # it may have been replaced while this waited
                yield
                # Those who are reading have to end first.
                self._wait(self.commit)
            except self.errors as error:
                self._let_go()  # what was begun is rolled back
                # An error with a password in its text must not be shown as the cause.
                cause = error if str(error) == self.place.without_secrets(str(error)) else None
                raise self.typed(error) from cause
            except BaseException:
                # Closing rolls back: no transaction outlives its call.
                self._let_go()
                raise

    def _check_same(self) -> None:
        """Raise StudyError where the place is not the one that was opened first."""
        found = self.identity()
        self._first = self._first or found
        if self._is_replaced or found != self._first:
            raise self.replaced()

    def replaced(self) -> StudyError:
        """The error where the place is another one, now and from now on."""
        self._is_replaced = True
        return StudyError(
            f"{self.place.shown} was replaced, removed or set back since it was opened, so nothing "
            "is read or written",
            Advice("open it again with {}", "Study.open"),
        )

    def _wait(self, call: Callable[[], None], is_first: IsFirst | None = None) -> None:
        """Call until nobody else holds the lock, when it is one's turn; StudyStorageError after
        `BUSY` seconds.

        Who has waited for long calls in any case: a process that was stopped in front of a line
        must not keep the others waiting.
        """
        begun = time.monotonic()
        patience, out_of_turn = PATIENCE, OUT_OF_TURN
        while True:
            waited = time.monotonic() - begun
            is_mine = is_first is None or is_first()
            if is_mine or waited > out_of_turn:
                out_of_turn = waited + OUT_OF_TURN
                try:
                    return call()
                except self.errors as error:
                    if not self.is_busy(error):
                        raise
                    waited = time.monotonic() - begun  # PostgreSQL itself waits, too
            if waited > patience:
                patience *= 4
                self._say(waited)
            with interruptible():
                time.sleep(FIRST if is_mine else OTHERS)

    def _say(self, waited: float) -> None:
        if waited > BUSY:
            raise StudyStorageError(
                f"{self.place.shown} could not be used: {self.holder()} held it for {waited:.0f} "
                "s; nothing was written, end that process if it hangs, and call again"
            )
        warnings.warn(
            f"waiting for {self.place.shown} since {waited:.0f} s: {self.holder()} holds it",
            RuntimeWarning,
            stacklevel=2,
        )

    def here(self) -> Any:
        """The connection of this process: none survives a fork."""
        if self._connection is None or self._process != os.getpid():
            self._let_go()
            self._process = os.getpid()
            self._connection = self.connected()
            self._letting_go = weakref.finalize(self, _close, self._connection, self._process)
        return self._connection

    def close(self) -> None:
        """Let go of the connection; it is made again when needed."""
        with deferred():
            self._let_go()

    def _let_go(self) -> None:
        if self._letting_go is not None:
            self._letting_go()
        self._connection = self._letting_go = None


def refused(place: Location, what: str) -> StudyStorageError:
    """The error where a disk or a server does not do what it should."""
    return StudyStorageError(
        f"{place.shown} could not be used: {what}", "nothing was written, mend that and call again"
    )


def foreign(place: Location, tables: set[str]) -> StudyError:
    """The error where there is no study."""
    why = "" if tables else ": there is nothing in it, or its creation was interrupted"
    return StudyError(
        f"{place.shown} is not a study of manyarms{why}",
        Advice("make one with {}", "Study.create"),
        "check the place",
    )


def _close(connection: Any, process: int) -> None:
    """Close a connection, in the process that made it."""
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)


def store_at(location: str | Path) -> Store:
    """The store at the path of a file, or at the URL of a PostgreSQL database."""
    place = as_location(location)
    if place.server is None:
        from manyarms.study.sqlite import SQLiteStore  # noqa: PLC0415  a Store itself

        return SQLiteStore(place)
    try:
        from manyarms.study.postgres import PostgresStore  # noqa: PLC0415  psycopg is an extra
    except ModuleNotFoundError as error:
        raise StudyError(
            "a study in PostgreSQL needs psycopg: pip install 'manyarms[postgres]'"
        ) from error
    return PostgresStore(place)
