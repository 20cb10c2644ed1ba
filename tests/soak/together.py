"""Processes ask and tell on one study at once: each has the model that its log says, bit by bit.

    python -m soak.together [--processes 8] [--steps 500] [--where memory|disk|postgresql]

Each process asks, tells a value of its own, and now and then looks at the best, so that all learn at other moments and in other
portions. Books are kept after every ten events, and each process opens the study again now and then, and so begins with books that
are some events behind. When all have ended, each takes in what is left and says a digest of its model. A process that only reads
the log, from its beginning, must say the same.
"""

import argparse
import hashlib
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import manyarms as ma
from manyarms.study.replica import Replay
from manyarms.study.snapshot import written
from soak.common import PROCESSES, at, place, pool, start
from soak.forged import books_every

BOOKS = 10
"""Events from one keeping of the books to the next."""


def together(where: str | Path, processes: int, steps: int) -> int:
    """Results; AssertionError where a process has another model than the log."""
    location = at(where, f"together{processes}x{steps}")
    ma.Study.create(location, pool(), seed=1).close()
    pipes = [PROCESSES.Pipe() for _ in range(processes)]
    share = -(-steps // processes)
    children = [start(_work, location, number, share, pipe[1]) for number, pipe in enumerate(pipes)]
    for mine, _ in pipes:
        mine.recv()  # it has told all
    for mine, _ in pipes:
        mine.send(None)
    digests = [mine.recv() for mine, _ in pipes]
    for child in children:
        child.join()
    with ma.Study.open(location) as study:
        assert study._replica._booked > 0, "no books were kept"
        assert study.verify() == study.n_events
    with ma.Study.open(location) as study:
        study._replica._resume = lambda: None  # from the log alone
        study._replica._begin(
            Replay.of(list(study.events()), dict(study.tables()).__getitem__),
            study._replica.head,
            0,
        )
        assert len(study.history) == processes * share
        assert {event.kind for event in study.events()} <= {"create", "ask", "tell"}
        assert digests == [digest(study)] * processes, "a process has another model than the log"
        study._replica.close()
    return processes * share


def digest(study: ma.Study) -> str:
    """Of a model: fits, factors, weights and all, as they are."""
    with study._now() as campaign:
        data = written(campaign.model, "")
    assert data is not None
    return hashlib.sha256(data).hexdigest()


def _work(location: str | Path, number: int, steps: int, pipe: Connection) -> None:
    study = ma.Study.open(location, worker=f"worker {number}")
    X = study.pool.X
    rng = np.random.default_rng(number)
    for step in range(steps):
        with books_every(BOOKS):
            (id,) = study.ask()
            study.tell(id, [float(np.sin(9 * X[id]).sum() + 0.1 * rng.normal())])
        if step % 7 == number % 7:
            study.best()
        if step % 11 == number % 11:
            study.close()
            study = ma.Study.open(location, worker=f"worker {number}")
    pipe.send(None)
    pipe.recv()
    pipe.send(digest(study))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--where", choices=["disk", "memory", "postgresql"], default="memory")
    given = parser.parse_args()
    with place(given.where) as where:
        n = together(where, given.processes, given.steps)
        print(f"{given.where}: {given.processes} processes, {n} results: one model")
