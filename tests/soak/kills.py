"""kill -9 at random moments while a process tells and asks: nothing that was acknowledged may be lost.

    python -m soak.kills [--kills 1000] [--where disk|memory|postgresql] [--longest 0.15] [--seed 0]

A child tells results, each with a value of its own, and says so on a pipe once `tell` has returned. It is killed after a random
time. The study is opened anew, and one result is told: every acknowledged value must be there once, and at most one that was
under way. A new study is begun after every 50 kills.
"""

import argparse
import os
import random
import signal
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import manyarms as ma
from soak.common import PROCESSES, N, at, place, pool, start


class Kills(NamedTuple):
    """What came of it."""

    kills: int
    acknowledged: int
    unanswered: int  # there, though the child was killed before it could say so
    median: float  # seconds that opening took after a kill
    p99: float  # 99 of 100 were opened sooner
    slowest: float
    slowest_cpu: float  # of the processor


def kills(where: str | Path, number: int, seed: int = 0, longest: float = 0.15) -> Kills:
    """Kill so many; AssertionError where a result is lost or doubled."""
    rng, acknowledged, unanswered = random.Random(seed), 0, 0
    took: list[tuple[float, float]] = []

    def so_far() -> Kills:
        clock, processor = zip(*took, strict=True)
        return Kills(
            len(took),
            acknowledged,
            unanswered,
            statistics.median(clock),
            sorted(clock)[-1 - len(clock) // 100],
            max(clock),
            max(processor),
        )

    for i in range(number):
        if i % 50 == 0:
            location = at(where, f"kills{i}")
            ma.Study.create(location, pool(), seed=i).close()
            expected: list[float] = []
        reader, writer = PROCESSES.Pipe(duplex=False)
        child = start(_tell, location, writer, 1e6 * i)
        writer.close()
        reader.recv()  # it begins
        time.sleep(rng.uniform(0, longest))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        said = _received(reader)
        begun, cpu = time.perf_counter(), time.process_time()
        study = ma.Study.open(location)
        took.append((time.perf_counter() - begun, time.process_time() - cpu))
        study.tell(i % N, [-1.0 - i])
        values = [trial.value for trial in study.history if trial.value is not None]
        assert len(set(values)) == len(values), "a result is there twice"
        extra = set(values) - {*expected, *said, -1.0 - i}
        assert not {*expected, *said} - set(values), "an acknowledged result is lost"
        assert extra <= {said[-1] + 1 if said else 1e6 * i}, f"{extra} were never told"
        acknowledged, unanswered, expected = (
            acknowledged + len(said),
            unanswered + len(extra),
            values,
        )
        if i % 500 == 499:
            print(so_far(), flush=True)
        if i % 50 == 49:
            assert study.verify() == study.n_events
        study.close()
    return so_far()


def _tell(location: str | Path, writer: Connection, first: float) -> None:
    study = ma.Study.open(location)
    writer.send(None)
    for j in range(1_000_000):
        if j % 7 == 6:
            study.ask()
        study.tell(j % N, [first + j])
        writer.send(first + j)


def _received(reader: Connection) -> list[float]:
    said: list[float] = []
    with reader:
        try:
            while True:
                said.append(reader.recv())
        except EOFError:
            return said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--where", choices=["disk", "memory", "postgresql"], default="disk")
    parser.add_argument("--longest", type=float, default=0.15, help="seconds to a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with place(given.where) as where:
        found = kills(where, given.kills, given.seed, given.longest)
        print(f"{given.where}: {found}")
        assert found.p99 < 1, "opening took a second or more"
