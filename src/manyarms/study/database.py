"""What a place of studies has to do: run statements in transactions that one writer at a time may
begin.

A place is a subclass of `Database`; `manyarms.testing` checks one.
"""

import os
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

from manyarms.errors import Advice, StudyError, StudyStorageError
from manyarms.runtime.signals import interruptible
from manyarms.study.location import Location

BUSY = 600.0
"""Seconds a call waits for others."""
PATIENCE = 5.0
"""Seconds after which a call says for whom it waits; and again after four times as long."""
OUT_OF_TURN = 0.5
"""Seconds between two attempts of a writer who is not the first in line."""
FIRST, OTHERS = 1e-3, 5e-3
"""Seconds between two looks, of the first in line and of the others."""


class Connection(Protocol):
    """What connections of `sqlite3` and of psycopg have in common."""

    def commit(self) -> None:
        """End the transaction."""

    def close(self) -> None:
        """Let go of it, which rolls back what was begun."""


C = TypeVar("C", bound=Connection)
IsFirst = Callable[[], bool]
"""Says whether it is one's turn."""

_INHERITED: list[Connection] = []
"""Connections of the process that this one is a fork of. They are never closed here: that would
end what the parent is writing."""


class Database(ABC, Generic[C]):
    """A connection to a place, made when it is needed, in every process anew."""

    errors: tuple[type[Exception], ...]
    """What it raises for what goes wrong there."""
    types: Mapping[str, str]
    """Its names of two types: `number`, an integer of 64 bits, and `bytes`."""

    def __init__(self, place: Location) -> None:
        self._place = place
        self._connection: C | None = None
        self._letting_go: weakref.finalize[..., Database[C]] | None = None
        self._process = 0

    # What a place must have

    @abstractmethod
    def connected(self) -> C:
        """A new connection, which begins no transaction of itself."""

    @abstractmethod
    def begin(self, lock: bool, is_new: bool) -> None:
        """Begin a transaction that sees one state, with `lock` as the only writer; an error for
        which `is_busy` is true where others hold the lock."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement, with a value for each ? in it; the answer has `fetchone` and
        `fetchall`."""

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

    def make(self) -> None:
        """Prepare the place for a new study, where `begin` does not."""

    def find(self) -> None:
        """Raise StudyError where there is no such place, if that is known without a connection."""

    def is_same(self) -> bool:
        """Whether the place is the one that was opened first, as far as the log does not tell."""
        return True

    def in_line(self) -> AbstractContextManager[IsFirst | None]:
        """Stand in line with other writers, where the place has no queue of its own."""
        return nullcontext()

    # What every place has

    def commit(self) -> None:
        """End the transaction; where others are reading, it may raise an error for which `is_busy`
        is true, and the transaction goes on."""
        self.here().commit()

    def close(self) -> None:
        """Let go of the connection, which rolls back what was begun."""
        if self._letting_go is not None:
            self._letting_go()
        self._connection = self._letting_go = None

    def here(self) -> C:
        """The connection of this process: none survives a fork."""
        if self._connection is None or self._process != os.getpid():
            self.close()
            self._process = os.getpid()
            self._connection = self.connected()
            self._letting_go = weakref.finalize(self, _close, self._connection, self._process)
        return self._connection

    def wait(self, call: Callable[[], None], is_first: IsFirst | None = None) -> None:
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
            if waited > patience:
                patience *= 4
                self._say(waited)
            with interruptible():
                time.sleep(FIRST if is_mine else OTHERS)

    def _say(self, waited: float) -> None:
        if waited > BUSY:
            raise StudyStorageError(
                f"{self._place.shown} could not be used: {self.holder()} held it for {waited:.0f} "
                "s; nothing was written, end that process if it hangs, and call again"
            )
        warnings.warn(
            f"waiting for {self._place.shown} since {waited:.0f} s: {self.holder()} holds it",
            RuntimeWarning,
            stacklevel=2,
        )


def refused(place: Location, what: str) -> StudyStorageError:
    """The error where a disk or a server does not do what it should."""
    return StudyStorageError(
        f"{place.shown} could not be used: {what}", "nothing was written, mend that and call again"
    )


def foreign(place: Location) -> StudyError:
    """The error where there is something, and no study."""
    return StudyError(
        f"{place.shown} is not a study of manyarms",
        Advice("make one with {} elsewhere", "Study.create"),
    )


def _close(connection: Connection, process: int) -> None:
    """Close a connection, in the process that made it."""
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)
