"""Tables after a fork. Polars reads and makes them on threads, which a forked child does not have:
it would wait for ever."""

import io
import os
import threading
from functools import cache

import polars as pl

from manyarms.errors import ArmsError

PROCESS = os.getpid()
"""The process that imported this module; any other one is a fork of it."""


def check_threads() -> None:
    """Raise ArmsError in a forked child that cannot use tables because its parent used them before
    the fork."""
    if os.getpid() != PROCESS and not _can_read(os.getpid()):
        raise ArmsError(
            "tables cannot be used in a process that was forked after its parent had used some: "
            "the threads that read them do "
            'not survive a fork; start processes by "spawn" or "forkserver", or open the study '
            "before the fork"
        )


@cache
def _can_read(process: int) -> bool:
    """Whether this process can read a table; a thread tries it, and is left behind if it cannot."""
    # A daemon: a thread that never ends must not keep the process from ending.
    thread = threading.Thread(target=_use_tables, daemon=True)
    thread.start()
    thread.join(5.0)  # seconds; it takes milliseconds, or never ends
    return not thread.is_alive()


def _use_tables() -> None:
    file = io.BytesIO()
    pl.DataFrame({"": [0]}).write_parquet(file)
    pl.read_parquet(io.BytesIO(file.getvalue()))
