"""A study in a schema of a PostgreSQL database, by SQLAlchemy. A writer locks the row of the
head."""

import os
import socket
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from manyarms.errors import StudyDamagedError, StudyError
from manyarms.study.location import Location
from manyarms.study.log import SALVAGE
from manyarms.study.sqlite import foreign, refused

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


class PostgresServer:
    """A connection to a database, made when it is needed."""

    errors = (sa.exc.SQLAlchemyError, UnicodeDecodeError)
    types: Mapping[str, str] = {"number": "BIGINT", "bytes": "BYTEA"}
    line = None  # the server has a queue of its own

    def __init__(self, place: Location) -> None:
        self._place = place
        self._engine: sa.Engine | None = None
        self._connection: sa.Connection | None = None  # while a transaction is open
        self._letting_go: weakref.finalize[..., PostgresServer] | None = None
        self._process = 0

    def make(self) -> None:
        """Nothing: `begin` makes the schema."""

    def find(self) -> None:
        """Nothing: connecting to the server will tell."""

    def is_same(self) -> bool:
        """Always: the log itself tells where it was set back."""
        return True

    def begin(self, lock: bool, is_new: bool) -> None:
        """Begin a transaction; raises an error for which `is_busy` is true where others hold the
        lock."""
        if self._connection is None:
            self._connection = self._engine_here().connect()
        try:
            if is_new:
                self.execute("SET LOCAL lock_timeout = 0")
                # Quoted as it may be a word of SQL; it has small letters, digits and _ only.
                self.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._place.schema}"')
            elif lock:
                self.execute("SELECT number FROM head FOR UPDATE")
            else:
                # One state for all statements; a writer has it by the lock on the head.
                self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except sa.exc.DBAPIError as error:
            # PostgreSQL takes no statement after an error before a rollback.
            if self.is_busy(error):
                self._connection.rollback()
            raise

    def execute(
        self, statement: str, values: Mapping[str, Any] | None = None
    ) -> "sa.CursorResult[Any]":
        """Run a statement, with a value for each :name in it."""
        if self._connection is None:
            raise sa.exc.InvalidRequestError("no transaction is open")
        return self._connection.execute(_text(statement), values or {})

    def commit(self) -> None:
        """Commit, and give the connection back."""
        if self._connection is not None:
            self._connection.commit()
            self._connection.close()
        self._connection = None

    def close(self) -> None:
        """Let go of the connection, which rolls back what was begun."""
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        if self._letting_go is not None:
            self._letting_go()
        self._engine = self._connection = self._letting_go = None

    def tables(self) -> set[str]:
        """The names of the tables there are."""
        named = "SELECT tablename FROM pg_tables WHERE schemaname = :schema"
        return {name for (name,) in self.execute(named, {"schema": self._place.schema})}

    def patient(self) -> AbstractContextManager[None]:
        """Nothing: readers do not keep writers waiting."""
        return nullcontext()

    def holder(self) -> str:
        """Who holds the lock."""
        with self._engine_here().connect() as connection:
            found = connection.execute(_text(LOCKED_BY)).all()
        return f"{found[0][0]} (process {found[0][1]} of the server)" if found else "another client"

    def is_busy(self, error: Exception) -> bool:
        """Whether others hold the lock."""
        return getattr(_cause(error), "sqlstate", None) == LOCK_NOT_AVAILABLE

    def typed(self, error: Exception) -> StudyError:
        """What an error of the server or the driver means for a study."""
        cause = _cause(error)
        said = self._place.without_secrets(str(cause)).strip()
        what = said.splitlines()[0] if said else type(cause).__name__
        if isinstance(error, sa.exc.DBAPIError):
            return refused(self._place, what)
        shown = self._place.shown
        if isinstance(error, sa.exc.ArgumentError):
            return StudyError(f"{shown} could not be used: {what}", "check the options in its URL")
        # Text, or columns, that no one wrote.
        return StudyDamagedError(f"{shown} is damaged: {what}", "go back to a copy", SALVAGE)

    def without_tables(self) -> StudyError:
        """The error for a schema in which there is nothing."""
        return foreign(self._place)

    def _engine_here(self) -> sa.Engine:
        """The engine of this process: connections do not survive a fork."""
        if self._engine is None or self._process != os.getpid():
            self.close()
            self._process = os.getpid()
            self._engine = self._made()
            self._letting_go = weakref.finalize(self, _dispose, self._engine, self._process)
        return self._engine

    def _made(self) -> sa.Engine:
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


@cache
def _text(statement: str) -> sa.TextClause:
    return sa.text(statement)


def _cause(error: Exception) -> BaseException:
    """What the driver raised."""
    return error.orig or error if isinstance(error, sa.exc.DBAPIError) else error


def _dispose(engine: sa.Engine, process: int) -> None:
    """Close the connection, in the process that made it: a child's copy is not its own."""
    engine.dispose(close=process == os.getpid())
