"""Writers wait for each other, each as long as the others, and say for whom.

SQLite has no queue: a writer that finds the lock taken asks again later, and who happens to ask
first gets it. So a writer asks the more often the longer it has waited, measured by how long its
last turn took to come. Among 64 writers the one that has waited longest asks a hundred times as
often as the one that came last.
"""

import math
import os
import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from manyarms.errors import StudyStorageError
from manyarms.study.signals import interruptible

BUSY = 600.0
"""Seconds a writer waits for others."""
PATIENCE = 5.0
"""Seconds after which a writer says for whom it waits; and again after four times as long."""
SHORTEST = 1e-3
"""Seconds between two attempts, at least: one takes 0.03 ms of the processor."""
LOCK_BYTES = range(0x4000_0001, 0x4000_0200)
"""Where SQLite locks a file to write (RESERVED) and to read (SHARED), behind the PENDING byte:
https://www.sqlite.org/fileformat2.html#the_lock_byte_page"""


class Turns:
    """The turns that a store has taken."""

    def __init__(self) -> None:
        self._usual = 0.0  # seconds that a turn took to come

    def take(self, attempt: Callable[[], bool], shown: str, holder: Callable[[], str]) -> None:
        """Attempt until it succeeds; StudyStorageError after `BUSY` seconds."""
        begun = time.monotonic()
        patience = PATIENCE
        while not attempt():
            waited = time.monotonic() - begun
            if waited > BUSY:
                raise StudyStorageError(
                    f"{shown} could not be used: {holder()} held it for {waited:.0f} s; nothing "
                    "was written, end that process if it hangs, and call again"
                )
            if waited > patience:
                patience *= 4
                warnings.warn(
                    f"waiting for {shown} since {waited:.0f} s: {holder()} holds it",
                    RuntimeWarning,
                    stacklevel=2,
                )
            with interruptible():
                time.sleep(self._pause(waited))
        self._usual = max(time.monotonic() - begun, self._usual / 2)

    def _pause(self, waited: float) -> float:
        """Seconds to the next attempt."""
        age = waited / self._usual if self._usual else 1.0  # 1: its turn should come
        pause = self._usual / 4 * math.exp2(-8 * age)
        return max(pause, SHORTEST, waited * SHORTEST) * random.uniform(0.5, 1.5)  # noqa: S311


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
