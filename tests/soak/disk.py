"""Every write, sync and truncation of a study file fails once, with "no space left" and with an I/O error.

    python -m soak.disk [--quick]

A shim, made by the C compiler and loaded before the process starts, counts the calls that change a file and fails the k-th, or
the k-th and all after it, for every k until nothing fails. `create`, `tell`, `ask`, `best`, `add`, `retire` must go through, or
raise StudyStorageError with nothing written; where the disk fails for good in the moment of the commit, the error must say that
this is not known. What was committed stays readable, and once the disk is well the same study goes on.
"""

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

import manyarms as ma
from manyarms.errors import ArmsError, ParameterError, StudyError, StudyStorageError
from soak.common import N, place, pool

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1;  /* calls that still succeed; negative: all do */
static int error_number, is_once;
long shim_calls;

void shim_fail(long after, int number, int once) { left = after; error_number = number; is_once = once; shim_calls = 0; }

static int fails(int fd) {
    char link[64], name[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return 0;
    name[n] = 0;
    if (!strstr(name, ".db")) return 0;
    shim_calls++;
    if (left < 0) return 0;
    if (left > 0) { left--; return 0; }
    if (is_once) left = -1;
    errno = error_number;
    return 1;
}

#define SHIM(type, name, parameters, arguments) \
    type name parameters { \
        static type (*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        return fails(fd) ? -1 : real arguments; \
    }
SHIM(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n))
SHIM(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
SHIM(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at))
SHIM(int, fsync, (int fd), (fd))
SHIM(int, fdatasync, (int fd), (fd))
SHIM(int, ftruncate, (int fd, off_t n), (fd, n))
SHIM(int, ftruncate64, (int fd, off64_t n), (fd, n))
"""

CALLS: dict[str, Callable[[ma.Study], object]] = {
    "tell": lambda study: study.tell(1, [1.0]),
    "ask": lambda study: study.ask(),
    "best": lambda study: study.best(),
    "add": lambda study: study.add(np.full((1, 2), 2.0)),
    "retire": lambda study: study.retire(3),
}


MODES = [(number, once) for number in (errno.ENOSPC, errno.EIO) for once in (0, 1)]


def faults(folder: Path, shim: ctypes.CDLL, quick: bool) -> dict[str, int]:
    """For each call, the number of faults it met; the quick ones are of `create` and `tell`, in two ways."""
    modes = [MODES[0], MODES[-1]] if quick else MODES
    tried = {"create": sum(_creating(folder, shim, *mode) for mode in modes)}
    for name in ["tell"] if quick else CALLS:
        tried[name] = sum(_calling(folder, shim, name, CALLS[name], *mode) for mode in modes)
    return tried


def _creating(folder: Path, shim: ctypes.CDLL, number: int, once: int) -> int:
    for k in range(1000):
        path = folder / f"create{number}_{once}_{k}.db"
        shim.shim_fail(ctypes.c_long(k), number, once)
        with suppress(StudyStorageError):
            ma.Study.create(path, pool())
        reached = shim_calls(shim) > k
        shim.shim_fail(ctypes.c_long(-1), 0, 0)
        with suppress(StudyError):
            ma.Study.create(path, pool())  # the place is free, or the study is there
        assert len(ma.Study.open(path).pool) == N
        if not reached:
            return k
    raise AssertionError("faults without end")


def _calling(
    folder: Path,
    shim: ctypes.CDLL,
    name: str,
    call: Callable[[ma.Study], object],
    number: int,
    once: int,
) -> int:
    path = folder / f"{name}{number}_{once}.db"
    study = ma.Study.create(path, pool())
    for id in range(9):
        study.tell(id, [float(id)])
    if name != "best":
        study.best()
    study.close()
    whole = path.read_bytes()
    for k in range(1000):
        for each in folder.glob(f"{path.name}*"):
            each.unlink()
        path.write_bytes(whole)
        study = ma.Study.open(path)
        before, message = study.n_events, None
        shim.shim_fail(ctypes.c_long(k), number, once)
        try:
            call(study)
        except StudyStorageError as error:
            message = str(error)
        reached = shim_calls(shim) > k
        shim.shim_fail(ctypes.c_long(-1), 0, 0)
        reopened = ma.Study.open(path)
        assert [trial.value for trial in reopened.history][:9] == [float(id) for id in range(9)], (
            "committed data is lost"
        )
        assert reopened.verify() == reopened.n_events
        if message is not None:
            assert reopened.n_events == before or "not known" in message, (
                "an error was raised, and something was written"
            )
            assert not (once and "not known" in message)
        elif name != "best":
            assert reopened.n_events > before, "no error was raised, and nothing was written"
        with suppress(ParameterError, ArmsError):  # it may be there already
            call(study)
        study.tell(5, [50.0])
        assert reopened.history[-1].value == 50.0
        assert study.history == reopened.history
        study.close()
        reopened.close()
        if not reached:
            return k
    raise AssertionError("faults without end")


def shim_calls(shim: ctypes.CDLL) -> int:
    """Calls that changed a study file since the last `shim_fail`."""
    return int(ctypes.c_long.in_dll(shim, "shim_calls").value)


def built(folder: Path, source: str) -> Path | None:
    """A shim as a library; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    (folder / "shim.c").write_text(source)
    library = folder / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, folder / "shim.c", "-ldl"], check=True
    )
    return library


def main() -> None:
    """Start anew with the shim loaded, or, with it, try every fault."""
    if "SOAK_SHIM" in os.environ:
        with place("memory") as where:
            tried = faults(Path(where), ctypes.CDLL(os.environ["SOAK_SHIM"]), "--quick" in sys.argv)
        print(f"{sum(tried.values())} faults: {tried}")
        return
    with tempfile.TemporaryDirectory() as folder:
        library = built(Path(folder), SHIM)
        if library is None:
            sys.exit("this check needs Linux and a C compiler")
        environment = {**os.environ, "SOAK_SHIM": str(library), "LD_PRELOAD": str(library)}
        sys.exit(
            subprocess.run(
                [sys.executable, "-m", "soak.disk", *sys.argv[1:]], env=environment, check=False
            ).returncode
        )


if __name__ == "__main__":
    main()
