"""What this process may use of the machine: cores and memory, on Linux, macOS and Windows."""

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ASSUMED = 8e9
"""Bytes of memory to assume if the system does not say how much there is: that of a small
laptop."""


def cores() -> int:
    """How many cores this process may run on: those of its affinity mask, or else all."""
    # A container or a batch system may allow fewer cores than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, which finds nothing while a long log is read (40 % of the
    time) or modules are imported (15 %)."""
    # Calls may be nested, and the caller may have turned it off.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def half_the_memory(total: Callable[[], float] | None = None) -> float:
    """Half the bytes of `total`, which asks the system; half of `ASSUMED` where it cannot say.

    The other half is for the caller's own data, and for other programs.
    """
    if total is None:
        total = windows_memory if sys.platform == "win32" else posix_memory
    try:
        return 0.5 * total()
    except (OSError, AttributeError, ValueError):
        return 0.5 * ASSUMED


def posix_memory(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> float:
    """Bytes of the machine, or the limit of the control group (a container) where it is less."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    text = limit.read_text().strip() if limit.exists() else "max"
    return total if text == "max" else min(total, float(text))


def windows_memory(system: Any = None) -> float:
    """Bytes of the machine; `system` is kernel32."""
    # MEMORYSTATUSEX has 64 bytes: the first four hold that size, the second eight ullTotalPhys.
    status = (ctypes.c_uint64 * 8)(64)
    system = system or ctypes.CDLL("kernel32")
    if not system.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OSError("the system does not tell its memory")
    return float(status[1])
