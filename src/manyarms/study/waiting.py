"""Writers wait for each other, in the order in which they came, and say for whom.

SQLite has no queue: a writer that finds the lock taken asks again later, and who happens to ask
first gets it. So writers stand in line. Each locks one byte of the journal, whose position is the
time at which it came; the first is the one before whom no byte is locked. The system gives up the
byte of a process that dies. These are locks of an open file, which Linux has: those of a process
would be lost whenever SQLite looks at the journal. On other systems there is no line.

The line only makes waiting fair. What protects the study is the lock of SQLite, and whoever has
stood long in line asks for it in any case, lest a process that was stopped in front keeps the
others waiting.
"""

import os
import struct
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from manyarms.errors import StudyStorageError
from manyarms.signals import interruptible

if sys.platform == "linux":
    import fcntl

BUSY = 600.0
"""Seconds a writer waits for others."""
PATIENCE = 5.0
"""Seconds after which a writer says for whom it waits; and again after four times as long."""
OUT_OF_TURN = 0.5
"""Seconds between two attempts of one who is not the first."""
FIRST, OTHERS, LONGEST = 1e-3, 5e-3, 50e-3
"""Seconds between two looks, of one who is the first and of the others; and of those whose turn is
far."""
LOCK_BYTES = range(0x4000_0001, 0x4000_0200)
"""Where SQLite locks a file to write (RESERVED) and to read (SHARED), behind the PENDING byte:
https://www.sqlite.org/fileformat2.html#the_lock_byte_page"""


class PlaceInLine:
    """Where one stands; always in front where there is no file to stand in line at, or the system
    has no such locks."""

    def __init__(self, file: Path | None) -> None:
        self._fd: int | None = None
        self._byte = time.monotonic_ns() // 1000
        if file is None or sys.platform != "linux":
            return
        try:
            self._fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        # Two may come in the same microsecond: one of them stands behind the other.
        while not self._locked(self._byte, 1):
            self._byte += 1

    def is_first(self) -> bool:
        """Nobody has been here for longer."""
        return self._locked(0, self._byte + 1)

    def _locked(self, start: int, length: int) -> bool:
        """Lock bytes, unless another has one of them."""
        if sys.platform != "linux" or self._fd is None:
            return True
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)  # struct flock
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, lock)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            self.leave()
        return True

    def leave(self) -> None:
        """Let the next one come."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


class Turns:
    """The turns that a store has taken."""

    def __init__(self) -> None:
        self._usual = 0.0  # seconds that the last turn took to come

    def take(
        self,
        attempt: Callable[[], bool],
        shown: str,
        holder: Callable[[], str],
        line: Path | None = None,
    ) -> None:
        """Attempt until it succeeds, in the order of those who stand in line at a file;
        StudyStorageError after `BUSY` seconds."""
        begun = time.monotonic()
        waited = 0.0
        patience, out_of_turn = PATIENCE, OUT_OF_TURN
        place = PlaceInLine(line)
        try:
            while True:
                is_first = place.is_first()
                if is_first or waited > out_of_turn:
                    if attempt():
                        break
                    out_of_turn = waited + OUT_OF_TURN
                waited = time.monotonic() - begun
                if waited > patience:
                    patience *= 4
                    self._say(waited, shown, holder)
                with interruptible():
                    # Whose turn is far, by how long the last one took to come, looks less often:
                    # the looks of a crowd take time of the processor from the one who writes.
                    left = min(LONGEST, (self._usual - waited) / 4)
                    time.sleep(FIRST if is_first else max(OTHERS, left))
        finally:
            place.leave()
        self._usual = time.monotonic() - begun

    def _say(self, waited: float, shown: str, holder: Callable[[], str]) -> None:
        if waited > BUSY:
            raise StudyStorageError(
                f"{shown} could not be used: {holder()} held it for {waited:.0f} s; nothing was "
                "written, end that process if it hangs, and call again"
            )
        warnings.warn(
            f"waiting for {shown} since {waited:.0f} s: {holder()} holds it",
            RuntimeWarning,
            stacklevel=2,
        )


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
