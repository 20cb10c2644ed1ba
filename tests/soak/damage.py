"""A study file cut off at every byte, and with single bits flipped: a typed error, or the right answer.

    python -m soak.damage [--cuts all|N] [--flips 10000]

The file is small: results, a failure, candidates added and retired, one pending, a snapshot, and the books of two events ago. Of
each damaged copy everything is asked that a study can tell: candidates, settings, history, what is pending, the best, and then the
events, all of which are read only for that. A flip may change nothing (a byte that no record uses); then the answers must be the
true ones.
"""

import argparse
import random
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import manyarms as ma
from manyarms.study import replica as module
from soak.common import place
from soak.forged import books_every


class Outcome(NamedTuple):
    """Copies that raised a typed error, and those that gave the right answers."""

    refused: int
    right: int


def small(path: Path) -> bytes:
    """The bytes of a small study, with a snapshot."""
    every, module.EVERY = module.EVERY, 4
    try:
        study = ma.Study.create(
            path, ma.Pool.from_array(np.random.default_rng(0).random((12, 2))), worker="w"
        )
        for id in range(6):
            study.tell(id, [float(id)], token=f"job {id}")
        study.tell(6, failed=True)
        study.add(np.array([[0.5, 0.5]]))
        study.best()
        with books_every(1):
            study.retire(7)
            study.ask()
        study.ask()
    finally:
        module.EVERY = every
    study.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM snapshots").fetchone() == (2,)
    connection.close()
    return path.read_bytes()


def answers(path: Path) -> Iterator[object]:
    """All that a study tells."""
    study = ma.Study.open(path, worker="w")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a snapshot that is not used
            best = study.best().recommended
        known = (
            study.pool.ids.tolist(),
            study.pool.X.tolist(),
            study.settings,
            study.history,
            study.leases,
            study.size,
        )
        yield known, best.id, round(best.mean, 9)
        yield [(event.number, event.kind, event.payload) for event in study.events()]
        yield study.verify()
    finally:
        study.close()


def cuts(path: Path, number: int | None = None, seed: int = 0) -> Outcome:
    """Cut the file at every byte, or at so many of them."""
    whole = small(path)
    lengths = (
        range(len(whole))
        if number is None
        else random.Random(seed).sample(range(len(whole)), number)
    )
    truth = list(answers(path))
    return _tried(path, (whole[:length] for length in lengths), truth)


def flips(path: Path, number: int, seed: int = 0) -> Outcome:
    """Flip one bit at a time."""
    whole, rng = small(path), random.Random(seed)
    truth = list(answers(path))

    def flipped() -> Iterator[bytes]:
        for bit in rng.sample(range(8 * len(whole)), number):
            copy = bytearray(whole)
            copy[bit // 8] ^= 1 << (bit % 8)
            yield bytes(copy)

    return _tried(path, flipped(), truth)


def _tried(path: Path, copies: Iterable[bytes], truth: list[object]) -> Outcome:
    refused = right = 0
    faults = []
    for data in copies:
        path.write_bytes(data)
        found: list[object] = []
        try:
            found.extend(answers(path))
        except ma.errors.ManyArmsError:
            refused += 1
        except Exception as error:
            faults.append(f"an error without a type of ours: {error!r}")
        else:
            right += 1
        # Before an error all is right, too: with books most of the log is read only for the events.
        if found != truth[: len(found)]:
            faults.append(f"another answer than the true one: {found}")
    assert not faults, f"{len(faults)} of {refused + right + len(faults)}: {faults[:5]}"
    return Outcome(refused, right)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", default="all", help="how many, or all")
    parser.add_argument("--flips", type=int, default=10_000)
    given = parser.parse_args()
    with place("memory") as where:
        number = None if given.cuts == "all" else int(given.cuts)
        print("cut:", cuts(where / "cut.db", number), flush=True)
        print("bits flipped:", flips(where / "flipped.db", given.flips))
