"""What it takes to open a study: seconds of the processor, and of the clock, in a process of its own.

    python benchmarks/study_open.py build PATH [--results 5000] [--candidates 62208] [--order asked|concentrated|random]
    python benchmarks/study_open.py open PATH

`asked`: each result is of the candidate that the study asks for. `concentrated`: told without asking, 500 of candidates
at random and the others of the 200 best, as late in a run; `random`: all at random, the hardest for a sketch. Each is a `tell`.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import manyarms as ma

NOISE = 0.05


def build(path: str, results: int, candidates: int, order: str) -> None:
    """A study with so many results, whose model has learned from all of them."""
    rng = np.random.default_rng(0)
    X = rng.random((candidates, 6))
    f = -np.square(X - 0.4).sum(axis=1)
    study = ma.Study.create(path, ma.Pool.from_array(X))
    best = np.argsort(-f)[:200]
    if order == "asked":
        for _ in range(results):
            (id,) = study.ask()
            study.tell(id, [float(f[id] + NOISE * rng.normal())])
    else:
        near = rng.random(results) > (500 / results if order == "concentrated" else 1.0)
        ids = np.where(near, rng.choice(best, results), rng.integers(candidates, size=results))
        with (
            study._store.writing() as transaction
        ):  # the events of as many calls, in one transaction
            for id in ids.tolist():
                asked = {
                    "ids": [id],
                    "worker": "bench",
                    "until": None,
                    "forecasts": [None],
                    "reasons": [""],
                }
                told = {
                    "ids": [id],
                    "values": [float(f[id] + NOISE * rng.normal())],
                    "worker": "bench",
                }
                transaction.append("ask", asked, time.time())
                transaction.append("tell", told, time.time())
    with timed("learning what was told"):
        study.best()
    for _ in range(20):
        (id,) = study.ask()
        study.tell(id, [float(f[id] + NOISE * rng.normal())])


def measure(path: str) -> None:
    """Open, and the first answers."""
    with timed("open"):
        study = ma.Study.open(path)
    with timed("best"):
        study.best()
    with timed("first suggest"):
        study.ask()
    with timed("second suggest"):
        study.ask()
    with timed("suggest 8"):
        study.ask(8)
    with timed("verify"):
        study.verify()
    inducing = len(study.policy.inducing)
    print(f"{len(study.history)} results, {study.n_events} events, {inducing} inducing arms")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what a block took."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    print(
        f"{what}: {time.process_time() - cpu:.2f} s of the processor, {time.perf_counter() - wall:.2f} s",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["build", "open"])
    parser.add_argument("path")
    parser.add_argument("--results", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=62_208)
    parser.add_argument("--order", choices=["asked", "concentrated", "random"], default="asked")
    given = parser.parse_args()
    if given.what == "build":
        build(given.path, given.results, given.candidates, given.order)
    else:
        measure(given.path)
