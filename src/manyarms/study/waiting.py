"""Writers of a file stand in line, and one can say who is writing.

SQLite has no queue: a writer that finds the lock taken asks again later, and who happens to ask
first gets it. So each writer locks one byte of the journal, whose position is the time at which it
came; the first is the one before whom no byte is locked. The system gives up the byte of a process
that dies. These are locks of an open file, which Linux has: those of a process would be lost
whenever SQLite looks at the journal. On other systems there is no line.

The line only makes waiting fair. What protects the study is the lock of SQLite.
"""

import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyarms.study.store import IsFirst

if sys.platform == "linux":
    import fcntl

LOCK_BYTES = range(0x4000_0001, 0x4000_0200)
"""Where SQLite locks a file to write (RESERVED) and to read (SHARED), behind the PENDING byte:
https://www.sqlite.org/fileformat2.html#the_lock_byte_page"""


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
