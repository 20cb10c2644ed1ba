"""A study in a schema of a PostgreSQL database, by psycopg. A writer locks the row of the head.

A network may go silent, which is no error to anybody who waits. So a wait is made of short turns,
between which Ctrl-C is answered, and ends when nothing has come for `SILENCE` seconds. The server
lets go of a client that has vanished: what that one had begun is rolled back.
"""

import os
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from manyarms.errors import StudyDamagedError, StudyError
from manyarms.runtime.signals import interruptible
from manyarms.study.events import SALVAGE
from manyarms.study.store import Store, refused

LOCKED_BY = """
SELECT activity.application_name, activity.pid
FROM head JOIN pg_locks AS held ON held.transactionid = head.xmax AND held.granted
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
"""
CONNECT_TIMEOUT = 10
"""Seconds that a server may take to let a client in."""
SILENCE = 20.0
"""Seconds without a byte after which a connection is given up, by either side."""
IDLE = 30.0
"""Seconds after which the server ends a transaction in which its client says nothing. What a client
computes inside of one is short."""
LONGEST = 600.0
"""Seconds that a statement may take on the server."""
TURN = 0.1
"""Seconds after which a wait looks whether somebody wants to interrupt it."""
LOCK_TIMEOUT = 2000
"""Milliseconds that PostgreSQL lets a writer wait in its queue before it asks again."""


class Connection(psycopg.Connection[Any]):
    """A connection whose waits are short turns, and not endless."""

    def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        """Drive what psycopg does, whose name for that this is: it says what it waits for."""
        try:
            wanted, heard = next(gen), time.monotonic()
            with selectors.DefaultSelector() as selector:
                selector.register(self.pgconn.socket, wanted)
                while True:
                    ready = selector.select(TURN)
                    if ready:
                        wanted, heard = gen.send(ready[0][1]), time.monotonic()
                        selector.modify(self.pgconn.socket, wanted)
                        continue
                    # What is asked for here comes after a turn: a signal does not break off what
                    # is quick.
                    with interruptible():
                        pass
                    if time.monotonic() - heard > SILENCE:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(
                            f"the server has said nothing for {SILENCE:g} s"
                        )
        except StopIteration as end:
            return end.value


class PostgresStore(Store):
    """A study in a schema of a database."""

    errors = (psycopg.Error, UnicodeDecodeError)
    types: Mapping[str, str] = {"number": "BIGINT", "bytes": "BYTEA"}
    looks = 30.0

    def begin(self, lock: bool, is_new: bool) -> None:
        """Begin a transaction; raises an error for which `is_busy` is true where others hold the
        lock."""
        before = self._connection
        try:
            self._begin(lock, is_new)
        except psycopg.Error:
            if before is None or not before.closed:
                raise
            # The connection of before was cut since: nothing was begun on it.
            self._let_go()
            self._begin(lock, is_new)

    def _begin(self, lock: bool, is_new: bool) -> None:
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

    def connected(self) -> Connection:
        """A new connection."""
        options = {
            "search_path": self.place.schema,
            "synchronous_commit": "on",
            "lock_timeout": LOCK_TIMEOUT,
            "statement_timeout": _milliseconds(LONGEST),
            "idle_in_transaction_session_timeout": _milliseconds(IDLE),
            "tcp_keepalives_idle": 10,
            "tcp_keepalives_interval": 5,
            "tcp_keepalives_count": 2,
            "tcp_user_timeout": _milliseconds(SILENCE),
        }
        own: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": _milliseconds(SILENCE),
            "options": " ".join(f"-c{name}={value}" for name, value in options.items()),
            "application_name": f"manyarms, {socket.gethostname()}:{os.getpid()}",
        }
        # Checked against what the server's library knows: `autocommit` in a URL is no option of it.
        conninfo = make_conninfo("", **{**(self.place.server or {}), **own})
        made: Future[Connection] = Future()
        # Names are looked up in C code, which no signal interrupts.
        Thread(target=_connect, args=(conninfo, made), daemon=True).start()
        try:
            while not wait([made], TURN).done:
                with interruptible():
                    pass
        except BaseException:
            made.add_done_callback(_close)
            raise
        return made.result()


def _connect(conninfo: str, made: "Future[Connection]") -> None:
    try:
        made.set_result(Connection.connect(conninfo))
    except Exception as error:  # it is the caller's, whatever it is
        made.set_exception(error)


def _close(made: "Future[Connection]") -> None:
    """Close a connection for which nobody waits any more."""
    if made.exception() is None:
        made.result().close()


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
