"""Where a study is kept: a SQLite file, or a schema of a PostgreSQL database; one transaction a
call.

SQLite runs with a TRUNCATE journal and synchronous=FULL: what is committed survives a kill and a
power cut. A writer takes the lock at once (BEGIN IMMEDIATE; on PostgreSQL the row of the head), so
writers wait for each other and none is refused.
"""

import hashlib
import os
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
from manyarms.study.log import SALVAGE, START, Event, Head, checked, damaged, row_after

BUSY = 600.0
"""Seconds a writer waits for others: longer than any transaction of theirs should take."""
PART = 1 << 26
"""Bytes of a blob in one row, 64 MiB: far below what SQLite (1 GB) and PostgreSQL take."""
SCHEMA = "manyarms"
"""Of PostgreSQL, unless the URL ends in #name."""

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


class Transaction:
    """What may be read and written between begin and commit."""

    def __init__(self, connection: sa.Connection, lock: bool) -> None:
        self._connection = connection
        # The row of the head is the lock of PostgreSQL; SQLite has locked the file at BEGIN.
        found = connection.execute(
            _head.with_for_update() if lock and connection.dialect.name != "sqlite" else _head
        ).all()
        if len(found) != 1 or not isinstance(found[0][0], int):
            raise damaged(0, "the number of its events is lost")
        self.head = Head(*found[0])
        self.appended: list[Event] = []
        self.kept: dict[str, bytes] = {}

    def since(self, head: Head) -> list[Event]:
        """The events after a head that was read before."""
        if self.head == head:
            return []
        events, last = checked(self._connection.execute(_since, {"after": head.number}), head)
        # The chain itself does not tell that its end was cut off; the head does.
        if last != self.head:
            raise damaged(
                last.number, f"{self.head.number} events were written and {last.number} are left"
            )
        return events

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
        self.location = str(location)
        self.shown = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", self.location)  # for messages
        self._is_url = bool(re.match(r"postgres(ql)?(\+\w+)?://", self.location))
        if "://" in self.location and not self._is_url:
            raise StudyError(
                "a study is a file, or a PostgreSQL database by URL (postgresql://…), got "
                f"{self.shown!r}"
            )
        self._engine: sa.Engine | None = None
        self._letting_go: weakref.finalize[..., EventStore] | None = None
        self._process = 0
        self._may_create = False

    def create(self, fill: Callable[[Transaction], None]) -> None:
        """Make the tables and their first contents, in one transaction."""
        if not self._is_url and _size(self.location) and not _size(f"{self.location}-journal"):
            raise StudyError(
                f"there is a file {self.shown} already",
                Advice("open it with {}", "Study.open"),
                "give another path",
            )
        if not self._is_url and not Path(self.location).absolute().parent.is_dir():
            raise StudyError(
                f"there is no directory {Path(self.location).absolute().parent}; make it first"
            )
        self._may_create = True
        with self._connected(lock=True) as connection:
            if self._is_url:
                connection.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))
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
            fill(Transaction(connection, lock=True))
        self._may_create = False

    def check(self) -> None:
        """Raise StudyError unless a study is there that this version can read."""
        path = Path(self.location)
        if not self._is_url and not path.is_file():
            raise StudyError(
                f"there is no study {self.shown}",
                Advice("make one with {}", "Study.create"),
                "check the path",
            )
        if not self._is_url and not path.stat().st_size:
            raise self._interrupted()
        with self._connected(lock=False) as connection:
            self._check_version(connection)

    def _check_version(self, connection: sa.Connection) -> None:
        tables = sa.inspect(connection).get_table_names()
        if not self._is_url and not tables:
            raise self._interrupted()
        if "manyarms" not in tables:
            raise StudyError(
                f"{self.shown} is not a study of manyarms",
                Advice("make one with {} elsewhere", "Study.create"),
            )
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
            yield Transaction(connection, lock=False)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that no other writer runs beside; it commits at the end, or nothing is
        written."""
        transaction: Transaction | None = None
        try:
            with self._connected(lock=True) as connection:
                begun = Transaction(connection, lock=True)
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
                now = Transaction(connection, lock=True)
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
        if self._letting_go is not None:
            self._letting_go()
        self._engine = self._letting_go = None

    @contextmanager
    def _connected(self, lock: bool) -> Iterator[sa.Connection]:
        try:
            with self._engine_here().connect() as connection:
                if not self._is_url:
                    connection.exec_driver_sql("BEGIN IMMEDIATE" if lock else "BEGIN")
                elif not lock:
                    # One state for all statements; a writer has it by the lock on the head.
                    connection.exec_driver_sql(
                        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
                    )
                yield connection
                connection.commit()
        except sa.exc.DBAPIError as error:
            self.close()  # what was begun is rolled back
            raise self._typed(error) from error
        except (UnicodeDecodeError, sa.exc.SQLAlchemyError) as error:
            # Text, or columns, that no one wrote.
            self.close()
            raise StudyDamagedError(
                f"{self.shown} is damaged: {error}", "go back to a copy", SALVAGE
            ) from error
        except BaseException:
            self.close()
            raise

    def _interrupted(self) -> StudyError:
        return StudyError(
            f"{self.shown} is empty, its creation was interrupted",
            Advice("make it again with {}", "Study.create"),
        )

    def _typed(self, error: sa.exc.DBAPIError) -> StudyError:
        what = (
            str(error.orig).strip().splitlines()[0]
            if str(error.orig).strip()
            else type(error.orig).__name__
        )
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_NOTADB:
            return StudyError(f"{self.shown} is not a study of manyarms: {what}", "check the path")
        if isinstance(error.orig, sqlite3.Error) and _is_damage(error.orig, code):
            return StudyDamagedError(
                f"{self.shown} is damaged: {what}", "go back to a copy", SALVAGE
            )
        return StudyStorageError(
            f"{self.shown} could not be used: {what}",
            "nothing was written, mend that and call again",
        )

    def _engine_here(self) -> sa.Engine:
        """The engine of this process: connections do not survive a fork."""
        if self._engine is None or self._process != os.getpid():
            self.close()  # in a child: forgets the parent's connection without closing it
            self._engine = self._server() if self._is_url else self._file()
            self._process = os.getpid()
            self._letting_go = weakref.finalize(self, _dispose, self._engine, self._process)
        return self._engine

    def _file(self) -> sa.Engine:
        mode = "rwc" if self._may_create else "rw"

        def connect() -> sqlite3.Connection:
            uri = f"file:{quote(str(Path(self.location).absolute()))}?mode={mode}"
            connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
            # The journal is synced before the file and cut to nothing after it; no WAL, see
            # docs/architecture.md.
            connection.execute("PRAGMA journal_mode=TRUNCATE")
            connection.execute("PRAGMA synchronous=FULL")
            return connection

        return sa.create_engine("sqlite://", creator=connect, poolclass=StaticPool)

    @property
    def _schema(self) -> str:
        name = self.location.partition("#")[2] or SCHEMA
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
            raise StudyError(
                "the name of a study, after # in its URL, must be small letters, digits and _, "
                f"got {name!r}"
            )
        return name

    def _server(self) -> sa.Engine:
        url = sa.make_url(
            re.sub(
                r"^postgres(ql)?(\+\w+)?://",
                "postgresql+psycopg://",
                self.location.partition("#")[0],
            )
        )
        try:
            return sa.create_engine(
                url,
                poolclass=StaticPool,
                connect_args={"options": f"-csearch_path={self._schema} -csynchronous_commit=on"},
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


def _size(path: str) -> int:
    """Bytes of a file, 0 where there is none."""
    return Path(path).stat().st_size if Path(path).is_file() else 0
