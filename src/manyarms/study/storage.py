"""Where a study is kept: a SQLite file, or a schema of a PostgreSQL database; one transaction a
call.

SQLite runs with a TRUNCATE journal and synchronous=FULL: what is committed survives a kill and a
power cut. A writer takes the lock at once (BEGIN IMMEDIATE; on PostgreSQL the row of the head), so
writers wait for each other and none is refused. A transaction ends on every path: signals wait for
its end (`signals.py`).
"""

import hashlib
import os
import socket
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from manyarms.errors import (
    Advice,
    StudyDamagedError,
    StudyError,
    StudyStorageError,
    StudyVersionError,
)
from manyarms.machine import uncollected
from manyarms.signals import deferred
from manyarms.study.location import as_location
from manyarms.study.log import SALVAGE, START, Event, Head, checked, damaged, row_after
from manyarms.study.waiting import BUSY, Turns, process_with_lock

PART = 1 << 26
"""Bytes of a blob in one row, 64 MiB: far below what SQLite (1 GB) and PostgreSQL take."""
OWN = 0o600
"""The rights of a study's file: only its owner reads and writes it."""
LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL's code for a lock that was waited for in vain."""
LOCKED_BY = """
SELECT activity.application_name, activity.pid
FROM head JOIN pg_locks AS held ON held.transactionid = head.xmax AND held.granted
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
"""
CONNECT_TIMEOUT = 10
"""Seconds that a server may take to answer: Ctrl-C has to wait as long."""
LOCK_TIMEOUT = 2000
"""Milliseconds that PostgreSQL lets a writer wait in its queue, uninterrupted, before it asks
again."""

METADATA = sa.MetaData()
VERSION = sa.Table("manyarms", METADATA, sa.Column("version", sa.Integer, nullable=False))
EVENTS = sa.Table(
    "events",
    METADATA,
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
HEAD = sa.Table(
    "head",
    METADATA,
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
BLOBS = sa.Table(
    "blobs",
    METADATA,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
SNAPSHOTS = sa.Table(
    "snapshots",
    METADATA,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
)

FORMAT = 2
"""Of the log. Format 1, of manyarms 0.1, recorded the draws of an engine that is gone."""

_head = sa.select(HEAD.c.number, HEAD.c.digest)
_since = sa.select(EVENTS).where(EVENTS.c.number > sa.bindparam("after")).order_by(EVENTS.c.number)
_insert = sa.insert(EVENTS)
_move = sa.update(HEAD)

_CONNECTING = threading.Lock()
_STORES: "weakref.WeakSet[EventStore]" = weakref.WeakSet()
"""Of this process."""


@dataclass(frozen=True)
class Unread:
    """What was appended after a head: events, the tables that they brought, and the head now."""

    events: list[Event]
    tables: dict[str, bytes]  # by digest
    head: Head


class Transaction:
    """What may be read and written between begin and commit."""

    def __init__(self, connection: sa.Connection, replaced: Callable[[], StudyError]) -> None:
        self._connection, self._replaced = connection, replaced
        found = connection.execute(_head).all()
        # SQLite keeps any type in any column: a damaged head may be text.
        if len(found) != 1 or not isinstance(found[0][0], int):
            raise damaged(0, "the number of its events is lost")
        self.head = Head(*found[0])
        self.appended: list[Event] = []
        self.kept: dict[str, bytes] = {}

    def since(self, head: Head) -> list[Event]:
        """The events after a head that was read before; StudyError where that is not in the log any
        more."""
        if self.head == head:
            return []
        try:
            events, last = checked(self._connection.execute(_since, {"after": head.number}), head)
            # The chain itself does not tell that its end was cut off; the head does.
            if last != self.head:
                what = f"{self.head.number} events were written and {last.number} are left"
                raise damaged(last.number, what)
        except StudyDamagedError as error:
            if head != START and self.digest_of(head.number) != head.digest:
                raise self._replaced() from error
            raise
        return events

    def news(self, head: Head) -> Unread:
        """All that is needed to follow the log from a head on, without this transaction."""
        with uncollected():
            events = self.since(head)
        return Unread(events, self.tables(events), self.head)

    def tables(self, events: Iterable[Event]) -> dict[str, bytes]:
        """The tables that events brought, by their digests; StudyDamagedError where one is
        damaged."""
        return {digest: self.fetch(digest) for event in events for digest in event.tables}

    def append(self, kind: str, payload: dict[str, Any], time: float) -> Event:
        """One more event."""
        row = row_after(self.head, kind, time, payload)
        self._connection.execute(_insert, asdict(row))
        self.head = Head(row.number, row.digest)
        self._connection.execute(_move, asdict(self.head))
        self.appended.append(Event(row.number, kind, time, payload))
        return self.appended[-1]

    def keep(self, data: bytes) -> str:
        """Store bytes once, by their digest."""
        digest = hashlib.sha256(data).hexdigest()
        self.kept[digest] = data
        if not self._connection.execute(
            sa.select(sa.exists().where(BLOBS.c.digest == digest))
        ).scalar():
            with _patient(self._connection):
                for part, start in enumerate(range(0, len(data), PART)):
                    self._connection.execute(
                        sa.insert(BLOBS),
                        {"digest": digest, "part": part, "data": data[start : start + PART]},
                    )
        return digest

    def fetch(self, digest: str) -> bytes:
        """Bytes that were stored; StudyDamagedError where they are not as they were."""
        data = self._stored(digest)
        if data is None:
            raise damaged(0, f"what is stored as {digest[:12]} is not what was written")
        return data

    def _stored(self, digest: str) -> bytes | None:
        rows = self._connection.execute(
            sa.select(BLOBS.c.data).where(BLOBS.c.digest == digest).order_by(BLOBS.c.part)
        )
        data = b"".join(bytes(row[0]) for row in rows if isinstance(row[0], bytes | memoryview))
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def digest_of(self, number: int) -> str | None:
        """The digest of an event."""
        return self._connection.execute(
            sa.select(EVENTS.c.digest).where(EVENTS.c.number == number)
        ).scalar()

    def put_snapshot(self, number: int, data: bytes) -> None:
        """Keep bytes that stand for the log up to an event, in place of those kept before."""
        # Bytes first: without the rows of snapshots nothing would say which they are.
        self._connection.execute(
            sa.delete(BLOBS).where(BLOBS.c.digest.in_(sa.select(SNAPSHOTS.c.digest)))
        )
        self._connection.execute(sa.delete(SNAPSHOTS))
        self._connection.execute(
            sa.insert(SNAPSHOTS), {"number": number, "digest": self.keep(data)}
        )

    def snapshot_bytes(self) -> int:
        """The size of what `put_snapshot` kept last."""
        parts = sa.select(sa.func.sum(sa.func.length(BLOBS.c.data))).where(
            BLOBS.c.digest.in_(sa.select(SNAPSHOTS.c.digest))
        )
        return int(self._connection.execute(parts).scalar() or 0)

    def snapshot(self) -> bytes | None:
        """What `put_snapshot` kept last; StudyDamagedError where it is not as it was."""
        # A snapshot that is lost costs time, not results: the caller goes on without it.
        try:
            digest = self._connection.execute(sa.select(SNAPSHOTS.c.digest)).scalar()
            data = None if digest is None else self._stored(str(digest))
        except sa.exc.DBAPIError as error:
            raise StudyDamagedError(f"it cannot be read: {error.orig}") from error
        if digest is not None and data is None:
            raise StudyDamagedError("it is not what was written")
        return data


class EventStore:
    """A place for one study."""

    def __init__(self, location: str | Path) -> None:
        self._place = as_location(location)
        self.location, self.shown = self._place.text, self._place.shown
        self._is_url = self._place.url is not None
        self._path = self._place.path
        self._engine: sa.Engine | None = None
        self._letting_go: weakref.finalize[..., EventStore] | None = None
        self._process = 0
        self._file: tuple[int, int] | None = None  # device and inode of what was opened first
        self._connected_to: tuple[int, int] | None = None
        self._is_replaced = False
        self._turns = Turns()
        _STORES.add(self)

    def create(self, fill: Callable[[Transaction], None]) -> None:
        """Make the tables and their first contents, in one transaction."""
        if not self._is_url:
            self._make_file()
        with self._connected(lock=True, is_new=True) as connection:
            if self._is_url:
                connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
                connection.execute(sa.schema.CreateSchema(self._place.schema, if_not_exists=True))
            if sa.inspect(connection).get_table_names():
                raise StudyError(
                    f"there is a study in {self.shown} already",
                    Advice("open it with {}", "Study.open"),
                    "give another place",
                )
            # Tables and first event in one transaction: a study is there, or nothing is.
            METADATA.create_all(connection)
            connection.execute(sa.insert(VERSION), {"version": FORMAT})
            connection.execute(sa.insert(HEAD), asdict(START))
            fill(Transaction(connection, self._replaced))

    def _make_file(self) -> None:
        """An empty file that only its owner may read; SQLite gives its journal the same rights."""
        path = self._path
        try:
            if _size(path) and not _size(_journal(path)):
                raise StudyError(
                    f"there is a file {self.shown} already",
                    Advice("open it with {}", "Study.open"),
                    "give another path",
                )
            if not path.parent.is_dir():
                raise StudyError(f"there is no directory {path.parent}", "make it first")
            if path.is_file():  # empty, or of a creation that was interrupted
                if not _size(path):
                    path.chmod(OWN)
            else:
                # O_EXCL: of two who create at once one is refused, and a link is not followed.
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWN))
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error

    def check(self) -> None:
        """Raise StudyError unless a study is there that this version can read."""
        if not self._is_url:
            try:
                is_there = self._path.is_file()
                is_empty = is_there and not _size(self._path)
            except OSError as error:
                raise self._refused(error.strerror or str(error)) from error
            if not is_there:
                raise StudyError(
                    f"there is no study {self.shown}",
                    Advice("make one with {}", "Study.create"),
                    "check the path",
                )
            if is_empty:
                raise self._interrupted()
        with self._connected(lock=False) as connection:
            self._check_version(connection)

    def _check_version(self, connection: sa.Connection) -> None:
        tables = sa.inspect(connection).get_table_names()
        if not self._is_url and not tables:
            raise self._interrupted()
        if "manyarms" not in tables:
            raise self._foreign()
        version = connection.execute(sa.select(VERSION.c.version)).scalar()
        if not isinstance(version, int) or version < 1:  # SQLite keeps any type in any column
            raise damaged(0, "its version is lost")
        if version < FORMAT:
            raise StudyVersionError(
                f"{self.shown} was written by manyarms 0.1, and its model cannot go on here. Its "
                "results can: run "
                "`manyarms export` on it with manyarms 0.1, then `manyarms import` on that file "
                "with this version"
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
            if (
                transaction is None
                or not transaction.appended
                or not self._is_committed(transaction, error)
            ):
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
                    connection.execute(_move, asdict(now.head))
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
            if self._letting_go is not None:
                self._letting_go()
            self._engine = self._letting_go = self._connected_to = None

    @contextmanager
    def _connected(self, lock: bool, is_new: bool = False) -> Iterator[sa.Connection]:
        with deferred():
            try:
                self._check_file()
                with self._begun(lock, is_new) as connection:
                    self._check_file()  # it may have been replaced while this waited
                    yield connection
                    self._commit(connection)
            except (sa.exc.DBAPIError, sqlite3.Error) as error:
                self.close()  # what was begun is rolled back
                # An error with a password in its text must not be shown as the cause.
                cause = error if str(error) == self._place.without_secrets(str(error)) else None
                raise self._typed(error) from cause
            except sa.exc.ArgumentError as error:
                self.close()
                what = self._place.without_secrets(str(error))
                raise StudyError(
                    f"{self.shown} could not be used: {what}", "check the options in its URL"
                ) from None
            except (
                UnicodeDecodeError,
                sa.exc.SQLAlchemyError,
            ) as error:  # text, or columns, that no one wrote
                self.close()
                raise StudyDamagedError(
                    f"{self.shown} is damaged: {error}", "go back to a copy", SALVAGE
                ) from error
            except BaseException:
                # Closing rolls back: no transaction outlives its call.
                self.close()
                raise

    def _begun(self, lock: bool, is_new: bool) -> sa.Connection:
        """A connection on which a transaction has begun, once those of others let it."""
        made: list[sa.Connection] = []

        def attempt() -> bool:
            try:
                if not made:
                    made.append(self._engine_here().connect())
                self._begin(made[0], lock, is_new)
            except (sa.exc.DBAPIError, sqlite3.Error) as error:
                if not _is_busy(error):
                    raise
                # PostgreSQL takes no statement after an error before a rollback.
                if made and self._is_url:
                    made[0].rollback()
                return False
            return True

        try:
            line = _journal(self._path) if lock and not self._is_url else None
            self._turns.take(attempt, self.shown, self._holder, line)
        except BaseException:
            for connection in made:
                connection.close()
            raise
        return made[0]

    def _begin(self, connection: sa.Connection, lock: bool, is_new: bool) -> None:
        """Raises an error for which `_is_busy` is true where others hold the lock."""
        if not self._is_url:
            _begin_sqlite(connection.connection.driver_connection, lock)
        elif not lock:  # one state for all statements; a writer has it by the lock on the head
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        elif not is_new:
            connection.execute(_head.with_for_update())

    def _commit(self, connection: sa.Connection) -> None:
        """Commit, once those have ended who are reading."""
        # For SQLAlchemy a transaction is over when its commit was refused; for SQLite it goes on.
        ways = iter([connection.commit])
        again = connection.connection.driver_connection.commit  # type: ignore[union-attr]

        def attempt() -> bool:
            try:
                next(ways, again)()
            except (sa.exc.DBAPIError, sqlite3.Error) as error:
                if not _is_busy(error):
                    raise
                return False
            return True

        Turns().take(attempt, self.shown, self._holder)

    def _holder(self) -> str:
        """Who holds the lock."""
        if not self._is_url:
            return process_with_lock(self._path)
        with self._engine_here().connect() as connection:
            found = connection.exec_driver_sql(LOCKED_BY).all()
        return f"{found[0][0]} (process {found[0][1]} of the server)" if found else "another client"

    def _check_file(self) -> None:
        """Raise StudyError where the file is not the one that was opened first."""
        if self._is_replaced:
            raise self._replaced()
        if self._is_url:
            return
        found = _identity(self._path)
        self._file = self._file or found
        if found != self._file:
            raise self._replaced()

    def _replaced(self) -> StudyError:
        self._is_replaced = True
        return StudyError(
            f"{self.shown} was replaced, removed or set back since it was opened, so nothing is "
            "read or written",
            Advice("open it again with {}", "Study.open"),
        )

    def _interrupted(self) -> StudyError:
        return StudyError(
            f"{self.shown} is empty, its creation was interrupted",
            Advice("make it again with {}", "Study.create"),
        )

    def _typed(self, error: Exception) -> StudyError:
        cause = _cause(error)
        said = self._place.without_secrets(str(cause)).strip()
        what = said.splitlines()[0] if said else type(cause).__name__
        code = getattr(cause, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_NOTADB:
            return StudyError(f"{self.shown} is not a study of manyarms: {what}", "check the path")
        if isinstance(cause, sqlite3.Error) and _is_damage(cause, code):
            return StudyDamagedError(
                f"{self.shown} is damaged: {what}", "go back to a copy", SALVAGE
            )
        return self._refused(what)

    def _refused(self, what: str) -> StudyStorageError:
        return StudyStorageError(
            f"{self.shown} could not be used: {what}",
            "nothing was written, mend that and call again",
        )

    def _engine_here(self) -> sa.Engine:
        """The engine of this process: connections do not survive a fork."""
        if self._engine is None or self._process != os.getpid():
            self.close()
            engine = self._server() if self._is_url else self._of_file()
            self._engine, self._process = engine, os.getpid()
            self._letting_go = weakref.finalize(self, _dispose, engine, os.getpid())
        return self._engine

    def _of_file(self) -> sa.Engine:
        path = self._path

        def connect() -> sqlite3.Connection:
            with _CONNECTING:
                self._look()
                # rw: a file that was removed is not made anew, empty. SQLite itself waits for no
                # lock, as `Turns` does that; and Python's module begins no transaction unasked.
                connection = sqlite3.connect(
                    f"file:{quote(str(path))}?mode=rw",
                    uri=True,
                    timeout=0,
                    isolation_level=None,
                    check_same_thread=False,
                )
                connection.execute("PRAGMA journal_mode=TRUNCATE")
                connection.execute("PRAGMA synchronous=FULL")
                self._connected_to = _identity(path)
                return connection

        return sa.create_engine("sqlite://", creator=connect, poolclass=StaticPool)

    def _look(self) -> None:
        """Raise StudyError where the file is one of another program, before anything of it is
        changed: its journal mode, or the files beside it."""
        path = self._path
        if not _size(path):
            return
        # To close a file gives up the locks that this process has on it. So a file that one of its
        # studies has open is not looked at; it was before.
        found = _identity(path)
        if any(each._connected_to == found for each in list(_STORES)):
            return
        # Immutable: SQLite takes no lock, and leaves journals alone.
        look = f"file:{quote(str(path))}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(look, uri=True)) as connection:
                tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                names = {name for (name,) in tables}
        except sqlite3.DatabaseError:
            return  # opening it will say what is wrong
        if names and VERSION.name not in names:
            raise self._foreign()

    def _foreign(self) -> StudyError:
        return StudyError(
            f"{self.shown} is not a study of manyarms",
            Advice("make one with {} elsewhere", "Study.create"),
        )

    def _server(self) -> sa.Engine:
        options = {
            "search_path": self._place.schema,
            "synchronous_commit": "on",
            "lock_timeout": LOCK_TIMEOUT,
        }
        try:
            return sa.create_engine(
                self._place.url or "",
                poolclass=StaticPool,
                connect_args={
                    "connect_timeout": CONNECT_TIMEOUT,
                    "options": " ".join(f"-c{name}={value}" for name, value in options.items()),
                    "application_name": f"manyarms, {socket.gethostname()}:{os.getpid()}",
                },
            )
        except ModuleNotFoundError as error:
            raise StudyError(
                "a study in PostgreSQL needs psycopg: pip install 'manyarms[postgres]'"
            ) from error


def _is_damage(error: sqlite3.Error, code: int | None) -> bool:
    """Whether the file is not as it was written, as against a disk that refuses.

    SQLITE_ERROR is a table or column that is not there, since the statements are always the same;
    an error without a code is text that is not UTF-8, which Python finds.
    """
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return code is None or code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)


def _dispose(engine: sa.Engine, process: int) -> None:
    """Close the connection, in the process that made it: a child's copy is not its own."""
    engine.dispose(close=process == os.getpid())


@contextmanager
def _patient(connection: sa.Connection) -> Iterator[None]:
    """What does not fit SQLite's cache goes to the file before the commit, which has to wait for
    readers."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(1000 * BUSY)}")
    try:
        yield
    finally:
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")


def _begin_sqlite(driver: Any, lock: bool) -> None:
    """Without SQLAlchemy, which takes ten times as long to ask."""
    if lock:
        driver.execute("BEGIN IMMEDIATE")
        return
    driver.execute("BEGIN")
    try:
        driver.execute("PRAGMA schema_version").fetchone()  # takes the lock of readers
    except sqlite3.Error:
        driver.rollback()
        raise


def _cause(error: Exception) -> BaseException:
    """What the driver raised."""
    return error.orig or error if isinstance(error, sa.exc.DBAPIError) else error


def _is_busy(error: Exception) -> bool:
    """Whether others hold the lock."""
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return bool(code & 0xFF == sqlite3.SQLITE_BUSY)
    return getattr(cause, "sqlstate", None) == LOCK_NOT_AVAILABLE


def _identity(path: Path) -> tuple[int, int]:
    """The file that a path leads to: device and inode, 0 where there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def _size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0
