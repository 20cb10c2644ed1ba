"""A study in a schema of a PostgreSQL database, by psycopg. A writer locks the row of the head."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from manyarms.errors import StudyDamagedError, StudyError
from manyarms.study.events import SALVAGE
from manyarms.study.store import Store, refused

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


class PostgresStore(Store):
    """A study in a schema of a database."""

    errors = (psycopg.Error, UnicodeDecodeError)
    types: Mapping[str, str] = {"number": "BIGINT", "bytes": "BYTEA"}

    def begin(self, lock: bool, is_new: bool) -> None:
        """Begin a transaction; raises an error for which `is_busy` is true where others hold the
        lock."""
        try:
            if is_new:
                self.execute("SET LOCAL lock_timeout = 0")
                # Quoted as it may be a word of SQL; it has small letters, digits and _ only.
                self.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.place.schema}"')
            elif lock:
                self.execute("SELECT number FROM head FOR UPDATE")
            else:
                # One state for all statements; a writer has it by the lock on the head.
                self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except psycopg.errors.LockNotAvailable:
            # PostgreSQL takes no statement after an error before a rollback.
            self.here().rollback()
            raise

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement, with a value for each ? in it."""
        return self.here().execute(statement.replace("?", "%s").encode(), values)

    def tables(self) -> set[str]:
        """The names of the tables there are."""
        named = "SELECT tablename FROM pg_tables WHERE schemaname = ?"
        return {name for (name,) in self.execute(named, (self.place.schema,))}

    def holder(self) -> str:
        """Who holds the lock."""
        found = self.execute(LOCKED_BY).fetchone()
        self.here().rollback()
        return f"{found[0]} (process {found[1]} of the server)" if found else "another client"

    def is_busy(self, error: Exception) -> bool:
        """Whether others hold the lock."""
        return isinstance(error, psycopg.errors.LockNotAvailable)

    def typed(self, error: Exception) -> StudyError:
        """What an error of the server or the driver means for a study."""
        shown = self.place.shown
        said = self.place.without_secrets(str(error)).strip()
        what = said.splitlines()[0] if said else type(error).__name__
        if isinstance(error, UnicodeDecodeError):  # text that no one wrote
            return StudyDamagedError(f"{shown} is damaged: {what}", "go back to a copy", SALVAGE)
        if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
            return StudyError(f"{shown} could not be used: {what}", "check the options in its URL")
        return refused(self.place, what)

    def connected(self) -> psycopg.Connection[Any]:
        """A new connection."""
        options = {
            "search_path": self.place.schema,
            "synchronous_commit": "on",
            "lock_timeout": LOCK_TIMEOUT,
        }
        own: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT,
            "options": " ".join(f"-c{name}={value}" for name, value in options.items()),
            "application_name": f"manyarms, {socket.gethostname()}:{os.getpid()}",
        }
        # Checked against what the server's library knows: `autocommit` in a URL is no option of it.
        return psycopg.connect(make_conninfo("", **{**(self.place.server or {}), **own}))
