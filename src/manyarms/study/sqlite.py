"""A study in a SQLite file.

The file has a TRUNCATE journal and synchronous=FULL: what is committed survives a kill and a power
cut. A writer takes the lock at once (BEGIN IMMEDIATE).

SQLite has no queue: a writer that finds the lock taken asks again later, and who happens to ask
first gets it. So writers stand in line: each locks one byte of the journal, whose position is the
time at which it came; the first is the one before whom no byte is locked. The system gives up the
byte of a process that dies. These are locks of an open file, which Linux has: those of a process
would be lost whenever SQLite looks at the journal. On other systems there is no line. The line only
makes waiting fair. What protects the study is the lock of SQLite.
"""

import os
import sqlite3
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import Any
from urllib.parse import quote

from manyarms.errors import Advice, StudyDamagedError, StudyError
from manyarms.runtime.files import sync
from manyarms.runtime.signals import deferred
from manyarms.study.events import SALVAGE
from manyarms.study.store import TABLES, IsFirst, Store, Transaction, foreign, refused

if sys.platform == "linux":
    import fcntl

NOWHERE = "nowhere"
"""The identity of a file that is not there."""
LOCK_BYTES = range(0x4000_0001, 0x4000_0200)
"""Where SQLite locks a file to write (RESERVED) and to read (SHARED), behind the PENDING byte:
https://www.sqlite.org/fileformat2.html#the_lock_byte_page"""


class SQLiteStore(Store):
    """A study in a file."""

    errors = (sqlite3.Error, UnicodeDecodeError)
    types: Mapping[str, str] = {"number": "INTEGER", "bytes": "BLOB"}

    def create(self, fill: Callable[[Transaction], object]) -> None:
        """Make the study under a name that nobody knows, and put it in its place when it is whole
        and on disk; nothing is left where that is refused."""
        path = self.place.path
        try:
            if path.exists() and (_size(path) or not path.is_file()):
                raise self._taken()
            if not path.parent.is_dir():
                raise StudyError(f"there is no directory {path.parent}", "make it first")
            with deferred():
                # SQLite gives its journal the same rights, those of the owner alone.
                handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
                os.close(handle)
                draft = SQLiteStore(replace(self.place, path=Path(name)))
                try:
                    draft.fill(fill)
                    self._put(draft.place.path)
                finally:
                    draft.close()
                    for each in (draft.place.path, _journal(draft.place.path)):
                        each.unlink(missing_ok=True)
        except OSError as error:
            raise refused(self.place, error.strerror or str(error)) from error

    def _put(self, draft: Path) -> None:
        """Give a file its name, unless another has it: of two who create at once one is refused,
        and a link is not followed. An empty file makes room."""
        path, there = self.place.path, draft.with_name(f"{draft.name}-there")
        try:
            if path.is_file() and not path.is_symlink():
                path.rename(there)
            if _size(there):  # somebody was faster
                os.link(there, path)
            os.link(draft, path)
        except FileExistsError as error:
            raise self._taken() from error
        except OSError:
            if path.exists():
                raise
            draft.rename(path)  # where a file cannot have two names
        finally:
            there.unlink(missing_ok=True)
        if os.name == "posix":  # elsewhere a directory cannot be opened
            sync(path.parent)

    def _taken(self) -> StudyError:
        return StudyError(
            f"there is a file {self.place.shown} already",
            Advice("open it with {}", "Study.open"),
            "give another path",
        )

    def identity(self) -> object:
        """The file that the path leads to: device and inode."""
        try:
            found = self.place.path.stat()
        except OSError:
            return NOWHERE
        return (found.st_dev, found.st_ino) if S_ISREG(found.st_mode) else NOWHERE

    def begin(self, lock: bool, is_new: bool) -> None:
        """Begin a transaction; raises an error for which `is_busy` is true where others hold the
        lock."""
        connection = self.here()
        if lock:
            connection.execute("BEGIN IMMEDIATE")
            return
        connection.execute("BEGIN")
        try:
            connection.execute("PRAGMA schema_version").fetchone()  # takes the lock of readers
        except sqlite3.Error:
            connection.rollback()
            raise

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement, with a value for each ? in it."""
        return self._connection.execute(statement, values)

    def tables(self) -> set[str]:
        """The names of the tables there are."""
        return {name for kind, name, _ in schema(self.here()) if kind == "table"}

    def foreign_parts(self) -> list[str]:
        """Triggers, views and whatever else is not as `create` makes it: they could have a
        statement do something else, or never end."""
        changed = schema(self.here()) ^ set(OWN_SCHEMA)
        return sorted({f"{kind} {name!r}" for kind, name, _ in changed})

    def in_line(self) -> AbstractContextManager[IsFirst | None]:
        """Stand in line with other writers, as SQLite has no queue of its own."""
        return in_line(_journal(self.place.path))

    def holder(self) -> str:
        """Who holds the lock."""
        return process_with_lock(self.place.path)

    def is_busy(self, error: Exception) -> bool:
        """Whether others hold the lock."""
        code = getattr(error, "sqlite_errorcode", None)
        return code is not None and code & 0xFF == sqlite3.SQLITE_BUSY

    def typed(self, error: Exception) -> StudyError:
        """What an error of SQLite means for a study."""
        what = str(error).strip() or type(error).__name__
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            return StudyError(
                f"{self.place.shown} is not a study of manyarms: {what}", "check the path"
            )
        if _is_damage(error):
            return StudyDamagedError(
                f"{self.place.shown} is damaged: {what}", "go back to a copy", SALVAGE
            )
        return refused(self.place, what)

    def connected(self) -> sqlite3.Connection:
        """A new connection, unless the file is one of another program."""
        if self.identity() == NOWHERE:
            raise StudyError(
                f"there is no study {self.place.shown}",
                Advice("make one with {}", "Study.create"),
                "check the path",
            )
        # rw: a file that was removed is not made anew, empty. SQLite itself waits for no lock, as
        # `wait` does that; and Python's module begins no transaction unasked.
        connection = sqlite3.connect(
            f"file:{quote(str(self.place.path))}?mode=rw",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # A view or a trigger of somebody else must not call functions.
            connection.execute("PRAGMA trusted_schema=OFF")
            found = schema(connection)
            if found and OWN_SCHEMA[0] not in found:
                raise foreign(self.place, {name for _, name, _ in found})
            connection.execute("PRAGMA journal_mode=TRUNCATE")
            connection.execute("PRAGMA synchronous=FULL")
            # What does not fit the cache would go to the file before the commit, which would have
            # to wait for readers.
            connection.execute("PRAGMA cache_spill=OFF")
        except BaseException:
            connection.close()
            raise
        return connection


def schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """The kind, name and definition without blanks of what is in a file, but for the indices of
    keys."""
    made = "SELECT type, name, sql FROM sqlite_master WHERE type <> 'index' OR sql IS NOT NULL"
    return {
        (str(kind), str(name), "".join(str(sql).split()))
        for kind, name, sql in connection.execute(made)
    }


def _is_damage(error: Exception) -> bool:
    """Whether the file is not as it was written, as against a disk that refuses.

    SQLITE_ERROR is a table or column that is not there, since the statements are always the same;
    an error without a code is text that is not UTF-8, which Python finds.
    """
    if not isinstance(error, sqlite3.OperationalError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def _size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0


@contextmanager
def in_line(file: Path) -> Iterator[IsFirst | None]:
    """Stand in line at a file; always in front where there is none, or the system has no such
    locks."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC) if sys.platform == "linux" else None
    except OSError:
        fd = None
    if fd is None:
        yield None
        return
    try:
        byte = time.monotonic_ns() // 1000
        # Two may come in the same microsecond: one of them stands behind the other.
        while not _locked(fd, byte, 1):
            byte += 1
        yield lambda: _locked(fd, 0, byte + 1)
    finally:
        os.close(fd)


def _locked(fd: int, start: int, length: int) -> bool:
    """Lock bytes of an open file, unless another has one of them."""
    if sys.platform == "linux":
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)  # struct flock
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: no line
            return True
    return True


def process_with_lock(path: Path) -> str:
    """Who has locked a SQLite file, where the system tells (Linux). The file is not opened for
    that: to close it again would give up the locks that this process has on it."""
    try:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    for line in lines:
        words = line.split()
        if len(words) == 8 and words[5].rpartition(":")[2] == inode and int(words[6]) in LOCK_BYTES:
            return _process(int(words[4]))
    return "another process"


def _process(number: int) -> str:
    if number == os.getpid():
        return "another thread of this process"
    try:
        name = Path(f"/proc/{number}/comm").read_text().strip()
    except OSError:
        return f"process {number}"
    return f"process {number} ({name})"


OWN_SCHEMA = [
    ("table", sql.split()[2], "".join(sql.format(**SQLiteStore.types).split())) for sql in TABLES
]
"""The schema of a study, in the order of `TABLES`."""
