"""Many processes tell at once: every result is there once. And one that dies with the lock does not keep the others waiting.

python -m soak.writers [--processes 64] [--tells 1000] [--where memory|disk|postgresql]
"""

import argparse
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import manyarms as ma
from soak.common import PROCESSES, N, at, place, pool, start


class Crowd(NamedTuple):
    """How long it took in all, and the longest that one `tell` did, in seconds."""

    total: float
    longest: float


def writers(where: str | Path, processes: int, tells: int) -> Crowd:
    """AssertionError where a result is lost, doubled or refused."""
    location = at(where, "writers")
    ma.Study.create(location, pool()).close()
    begun = time.perf_counter()
    reader, writer = PROCESSES.Pipe(duplex=False)
    children = [start(_tell, location, process, tells, writer) for process in range(processes)]
    longest = max(reader.recv() for _ in children)
    for child in children:
        child.join()
    seconds, refused = time.perf_counter() - begun, sum(child.exitcode != 0 for child in children)
    assert not refused, f"{refused} processes had a result refused"
    study = ma.Study.open(location)
    values = [trial.value for trial in study.history]
    assert len(values) == processes * tells
    assert sorted(values) == list(range(processes * tells)), "a result is lost or doubled"
    assert study.verify() == 1 + processes * tells
    study.close()
    return Crowd(seconds, longest)


def _tell(location: str | Path, process: int, tells: int, writer: Connection) -> None:
    study = ma.Study.open(location)
    longest = 0.0
    for i in range(tells):
        begun = time.perf_counter()
        study.tell((process + i) % N, [float(process * tells + i)])
        longest = max(longest, time.perf_counter() - begun)
    writer.send(longest)


def dies_with_lock(where: str | Path) -> float:
    """Seconds that the next writer's `tell` takes after a writer was killed in the middle of its transaction."""
    location = at(where, "dies")
    study = ma.Study.create(location, pool())
    study.tell(0, [0.0])
    study.close()
    reader, writer = PROCESSES.Pipe(duplex=False)
    child = start(_hold, location, writer)
    reader.recv()
    os.kill(child.pid, signal.SIGKILL)
    begun = time.perf_counter()
    study.tell(2, [2.0])
    seconds = time.perf_counter() - begun
    child.join()
    assert [trial.value for trial in study.history] == [0.0, 2.0]
    study.close()
    return seconds


def _hold(location: str | Path, writer: Connection) -> None:
    with ma.Study.open(location)._store.writing() as transaction:
        transaction.append("tell", {"ids": [1], "values": [1.0], "worker": "dies"}, time.time())
        writer.send(None)
        time.sleep(600)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--tells", type=int, default=1000)
    parser.add_argument("--where", choices=["disk", "memory", "postgresql"], default="memory")
    given = parser.parse_args()
    with place(given.where) as where:
        print(
            f"{given.where}: the next writer after one died with the lock waited {dies_with_lock(where):.3f} s",
            flush=True,
        )
        found = writers(where, given.processes, given.tells)
        print(
            f"{given.where}: {given.processes} processes × {given.tells} tells, each there once, in {found.total:.0f} s; the "
            f"longest took {found.longest:.2f} s"
        )
