"""The power fails at a random moment: what was not synced is lost, all of it or any part.

    python -m soak.power [--cuts 1000] [--seed 0]

A process makes a study, tells, asks, corrects, takes back, and has the program write exports, sheets and a report, some over files
that are there. A shim, made by the C compiler, writes down each call that changes a file or a name, each sync, and what was
acknowledged when. From that the disk is made as it may be after a cut at any moment: of what was written to a file since its last
sync each sector of 512 bytes is there or not (where the file had grown, zeros or noise stand for it), a truncation took place or
not, and so did a name that came, went or moved since the last sync of the directory. Then the study must be as it was after the last
acknowledged call, or after the one that was under way, and go on; and each file must be whole: the one of before, or the new one,
which it is once that was acknowledged.
"""

import argparse
import ctypes
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import manyarms as ma
from manyarms.errors import StudyError
from manyarms.runtime import files
from manyarms.study.sqlite import SQLiteStore
from soak.common import N, pool
from soak.disk import built

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int target = -1;

#define REAL(type, name, parameters) \
    static type (*real) parameters; \
    if (!real) real = dlsym(RTLD_NEXT, #name)

static ssize_t put(const void *data, size_t n) {
    REAL(ssize_t, write, (int, const void *, size_t));
    return real(target, data, n);
}

static int is_inside(const char *path) {
    const char *root = getenv("SOAK_ROOT");
    if (!root || !path || strncmp(path, root, strlen(root))) return 0;
    if (target < 0) target = open(getenv("SOAK_LOG"), O_WRONLY | O_APPEND | O_CLOEXEC);
    return 1;
}

static void note(char what, int64_t file, int64_t at, const void *one_, size_t n, const void *two, size_t m) {
    struct { char what[8]; int64_t file, at, n, m; } head = {{what}, file, at, n, m};
    if (put(&head, sizeof head) != sizeof head || (n && put(one_, n) != (ssize_t)n) || (m && put(two, m) != (ssize_t)m))
        abort();
}

/* The number of an open file below the root, -1 of another; -2 of a directory there. */
static int64_t file_of(int fd) {
    char link[64], name[PATH_MAX];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, sizeof name - 1);
    if (n < 0) return -1;
    name[n] = 0;
    if (!is_inside(name) || fstat(fd, &found)) return -1;
    return S_ISDIR(found.st_mode) ? -2 : (int64_t)found.st_ino;
}

void shim_acknowledge(const char *text) { is_inside(getenv("SOAK_ROOT")); note('A', 0, 0, text, strlen(text), "", 0); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, (const char *, int, ...)); \
        va_list more; va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if (!(flags & (O_CREAT | O_TRUNC)) || !is_inside(path)) return real(path, flags, mode); \
        pthread_mutex_lock(&one); \
        int is_new = access(path, F_OK), fd = real(path, flags, mode); \
        if (fd >= 0 && is_new) note('N', file_of(fd), 0, path, strlen(path), "", 0); \
        else if (fd >= 0 && flags & O_TRUNC) note('T', file_of(fd), 0, "", 0, "", 0); \
        pthread_mutex_unlock(&one); \
        return fd; \
    }
OPEN(open)
OPEN(open64)

#define SHIM(type, name, parameters, arguments, before, after) \
    type name parameters { \
        REAL(type, name, parameters); \
        int64_t file = file_of(fd); \
        if (file == -1) return real arguments; \
        pthread_mutex_lock(&one); \
        before; \
        type done = real arguments; \
        if (done >= 0) after; \
        pthread_mutex_unlock(&one); \
        return done; \
    }
#define HERE off_t at = fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR)
#define WROTE note('W', file, at, data, done, "", 0)
SHIM(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n), HERE, WROTE)
SHIM(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at), , WROTE)
SHIM(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at), , WROTE)
SHIM(int, ftruncate, (int fd, off_t n), (fd, n), , note('T', file, n, "", 0, "", 0))
SHIM(int, ftruncate64, (int fd, off64_t n), (fd, n), , note('T', file, n, "", 0, "", 0))
SHIM(int, fsync, (int fd), (fd), , note('S', file, 0, "", 0, "", 0))
SHIM(int, fdatasync, (int fd), (fd), , note('S', file, 0, "", 0, "", 0))

int rename(const char *path, const char *to) {
    REAL(int, rename, (const char *, const char *));
    if (!is_inside(path)) return real(path, to);
    pthread_mutex_lock(&one);
    int done = real(path, to);
    if (!done) note('R', 0, 0, path, strlen(path), to, strlen(to));
    pthread_mutex_unlock(&one);
    return done;
}

int link(const char *path, const char *to) {
    REAL(int, link, (const char *, const char *));
    if (!is_inside(path)) return real(path, to);
    pthread_mutex_lock(&one);
    int done = real(path, to);
    if (!done) note('L', 0, 0, path, strlen(path), to, strlen(to));
    pthread_mutex_unlock(&one);
    return done;
}

int unlink(const char *path) {
    REAL(int, unlink, (const char *));
    if (!is_inside(path)) return real(path);
    pthread_mutex_lock(&one);
    int done = real(path);
    if (!done) note('U', 0, 0, path, strlen(path), "", 0);
    pthread_mutex_unlock(&one);
    return done;
}
"""
HEAD = struct.Struct("<c7xqqqq")
DIRECTORY = -2
GONE = "gone"
"""The state of a file, or of a study, that is not there."""


class Cuts(NamedTuple):
    """What came of it."""

    cuts: int
    calls: int  # that were recorded: writes, truncations, syncs, names
    acknowledged: int  # the calls of the study, and files written
    rolled_back: int  # cuts in a call after which the study is as before it
    under_way: int  # cuts in a call after which the study has it


class Call(NamedTuple):
    """What a process did to a file, by its number, or to a name; or what it was told."""

    what: str
    file: int
    at: int
    first: bytes
    second: bytes


# What is recorded


def record(root: Path, careless: str) -> None:
    """Work on studies and files, and say what is acknowledged."""
    from command_line import manyarms

    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def done(name: str, state: str) -> None:
        shim.shim_acknowledge(json.dumps([name, state]).encode())

    if careless == "studies":
        SQLiteStore.connected = _unsynced
    if careless == "files":
        files.sync = lambda path: None
    lab = root / "lab.db"
    study = ma.Study.create(lab, pool(), seed=0)

    def noted() -> None:
        study.history  # noqa: B018  takes in what the program wrote
        done("lab.db", study._replica.head.digest)

    noted()
    for step in range(24):
        (id,) = study.ask()
        noted()
        study.tell(id, float(step % 7), note="é" * (step * 40))
        noted()
        if step == 12:
            study.correct(study.history[3], 5.0)
            noted()
            study.undo()
            noted()
            study.add(np.random.default_rng(1).random((300, 2)) + 2)
            noted()
            study.retire(range(N, N + 5))
            noted()

    def wrote(name: str, *arguments: object) -> None:
        manyarms(*arguments)
        noted()
        done(name, _state(root / name))

    for times in range(2):
        force = ["--force"] * times
        study.tell(7, 100.0 + times)
        noted()
        wrote("study.json", "export", lab, "-o", root / "study.json", *force)
        wrote("results.csv", "export", lab, "-o", root / "results.csv", *force)
        wrote("next.csv", "suggest", lab, "-n", 3, "-o", root / "next.csv", *force)
        wrote("report.html", "report", lab, "-o", root / "report.html")
        stream = ma.Stream(ma.BKB(None, ma.kernels.RBF(0.5), n_features=2))
        stream.choose(times, np.ones((3, 2)))
        stream.save(root / "stream")
        done("stream", _state(root / "stream"))
    manyarms("import", root / "copy.db", root / "study.json")
    with ma.Study.open(root / "copy.db") as copy:
        done("copy.db", copy._replica.head.digest)
    study.close()


def _unsynced(store: SQLiteStore, connected: Any = SQLiteStore.connected) -> Any:
    connection = connected(store)
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def recorded(folder: Path, careless: str) -> tuple[list[Call], dict[str, bytes]]:
    """The calls of such a process, and the files that it left."""
    library = built(folder, SHIM)
    if library is None:
        sys.exit("this check needs Linux and a C compiler")
    root = folder / "root"
    root.mkdir()
    log = folder / "log"
    log.touch()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "SOAK_ROOT": f"{root}",
        "SOAK_LOG": str(log),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "soak.power", "--record", root, "--careless", careless]
    subprocess.run(command, env=environment, check=True)
    left = {each.name: each.read_bytes() for each in root.iterdir()}
    return list(_calls(log.read_bytes())), left


def _calls(log: bytes) -> Iterator[Call]:
    at = 0
    while at < len(log):
        what, file, place, n, m = HEAD.unpack_from(log, at)
        at += HEAD.size
        yield Call(what.decode(), file, place, log[at : at + n], log[at + n : at + n + m])
        at += n + m


# The disk

Moves = list[tuple[str, int | None]]
"""Names and the files that they lead to from now on, None for nowhere; all of it happens, or none."""


class Disk:
    """What is on disk for sure, and what is not yet."""

    def __init__(self) -> None:
        self.numbers: dict[
            int, int
        ] = {}  # of a file, the number of now: the system uses its own again
        self.data: dict[int, bytearray] = {}
        self.writes: dict[int, list[Call]] = {}  # not synced
        self.names: dict[str, int] = {}
        self.moves: list[Moves] = []  # not synced
        self.now: dict[str, int] = {}  # names as the process sees them
        self.acknowledged: list[tuple[str, str]] = []

    def take(self, call: Call) -> None:
        """Do what the process did."""
        if call.what == "A":
            name, state = json.loads(call.first)
            self.acknowledged.append((name, state))
        elif call.what in "NRLU":
            self._move(call)
        elif call.what == "S" and call.file == DIRECTORY:
            _applied(self.names, self.moves)
            self.moves = []
        else:
            file = self.numbers[call.file]
            if call.what == "S":
                for each in self.writes[file]:
                    _write(self.data[file], each)
                self.writes[file] = []
            else:
                self.writes[file].append(call)

    def _move(self, call: Call) -> None:
        name = Path(call.first.decode()).name
        moves: Moves = []
        if call.what == "N":
            self.numbers[call.file] = file = len(self.data)
            self.data[file], self.writes[file] = bytearray(), []
            moves.append((name, file))
        if call.what in "RL":
            moves.append((Path(call.second.decode()).name, self.now[name]))
        if call.what in "RU":
            moves.append((name, None))
        self.moves.append(moves)
        _applied(self.now, [moves])

    def whole(self) -> dict[str, bytes]:
        """The files as the process sees them."""
        found = {}
        for name, file in self.now.items():
            data = bytearray(self.data[file])
            for call in self.writes[file]:
                _write(data, call)
            found[name] = bytes(data)
        return found

    def after_a_cut(self, rng: random.Random) -> dict[str, bytes]:
        """The files as they may be found, by their names."""
        names = dict(self.names)
        _applied(names, [each for each in self.moves if rng.random() < _share(rng)])
        return {name: self._found(file, rng) for name, file in names.items()}

    def _found(self, file: int, rng: random.Random) -> bytes:
        data = bytearray(self.data[file])
        share = _share(rng)
        is_noise = rng.random() < 0.3
        for call in self.writes[file]:
            if call.what == "T":
                if rng.random() < share:
                    _write(data, call)
                continue
            for sector in _sectors(call):
                if rng.random() < share:
                    _write(data, sector)
                elif sector.at + len(sector.first) > len(data) and is_noise:
                    # The size is there, what it should hold is not.
                    _write(data, sector._replace(first=rng.randbytes(len(sector.first))))
        return bytes(data)


def _share(rng: random.Random) -> float:
    return rng.choice((0.0, 1.0, rng.random()))


def _applied(names: dict[str, int], moves: list[Moves]) -> None:
    for name, file in (each for together in moves for each in together):
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def _write(data: bytearray, call: Call) -> None:
    if call.what == "T":
        del data[call.at :]
        data.extend(bytes(call.at - len(data)))
        return
    data.extend(bytes(max(0, call.at - len(data))))
    data[call.at : call.at + len(call.first)] = call.first


def _sectors(call: Call) -> Iterator[Call]:
    """A write, cut at the ends of sectors."""
    start = 0
    while start < len(call.first):
        end = start + SECTOR - (call.at + start) % SECTOR
        yield call._replace(at=call.at + start, first=call.first[start:end])
        start = end


# The check


def cuts(number: int, seed: int = 0, careless: str = "") -> Cuts:
    """Cut the power so many times; AssertionError where something is lost, or wrong. What is careless, "studies" or "files", never
    syncs: there must be something to find."""
    rng = random.Random(seed)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name)
        calls, left = recorded(folder, careless)
        steps = list(_steps(calls))
        # Nothing is missing in the record: all calls together make the files that are there.
        disk = Disk()
        for call in calls:
            disk.take(call)
        assert disk.whole() == left
        said = disk.acknowledged
        found = [0, 0]
        disk, taken = Disk(), 0
        for at in sorted(rng.choice(rng.choice(steps)) for _ in range(number)):
            for call in calls[taken:at]:
                disk.take(call)
            taken = at
            place = folder / "cut"
            place.mkdir()
            for each, data in disk.after_a_cut(rng).items():
                (place / each).write_bytes(data)
            state = _checked(place, said, len(disk.acknowledged))
            if state is not None:
                found[state] += 1
            for each in place.iterdir():
                each.unlink()
            place.rmdir()
    return Cuts(number, sum(map(len, steps)), len(said), *found)


def _steps(calls: list[Call]) -> Iterator[list[int]]:
    """The places of the calls between two acknowledgements, as far as there are any."""
    step: list[int] = []
    for i, call in enumerate(calls):
        if call.what != "A":
            step.append(i)
        elif step:
            yield step
            step = []


def _checked(place: Path, said: list[tuple[str, str]], n: int) -> bool | None:
    """Whether the study has the call that was under way, after n acknowledged ones; None where it
    was another file's turn."""
    name_now = said[n][0] if n < len(said) else ""
    state = None
    for name in dict.fromkeys(each for each, _ in said):
        before = next((state for each, state in reversed(said[:n]) if each == name), GONE)
        # A command that writes a file may be acknowledged after the study has its event.
        after = next((state for each, state in said[n:] if each == name), before)
        is_study = name.endswith(".db")
        found = _opened(place / name) if is_study else _state(place / name)
        assert found in (before, after), f"{name} is {found}, after acknowledgement {n}: {said[n]}"
        if name == name_now and is_study and before != after:
            state = found == after
    return state


def _opened(path: Path) -> str:
    """The head of a study's log, which goes on; `GONE` where there is none yet."""
    try:
        study = ma.Study.open(path)
    except StudyError:
        with suppress(StudyError):
            ma.Study.create(path, pool()).close()
        return GONE
    study.verify()
    head = study._replica.head.digest
    study.tell(1, -1.5)
    study.close()
    with ma.Study.open(path) as again:
        assert again.history[-1].value == -1.5
    return head


def _state(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else GONE


def main() -> None:
    """Cut, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--careless", default="", help="studies or files, which never sync: it must fail"
    )
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.record, arguments.careless)
        return
    found = cuts(arguments.cuts, arguments.seed, arguments.careless)
    print(
        f"{found.cuts} cuts among {found.calls} calls, {found.acknowledged} acknowledgements: nothing acknowledged is lost, no "
        f"file is half; of the cuts within a call of the study {found.rolled_back} left it undone, {found.under_way} done"
    )


if __name__ == "__main__":
    main()
