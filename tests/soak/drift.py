"""Memory and time over many tells, and memory with a large table on disk (Linux).

    python -m soak.drift tells [--tells 1000000]
    python -m soak.drift disk [--arms 10000000] [--columns 32] [--steps 50] [--memory 1.5e9]

`tells`: a policy without a table observes rows one by one. What it keeps is bounded, so neither memory nor the time of a call
may grow: those of the last tenth are compared with those of the second one. Then a study is told as much; it keeps every
result, and the bytes that one takes are printed.

`disk`: a table of float32 in a mapped .npy file, `memory` bytes for the search. The most memory of the process itself is
printed; pages of the mapped file are the system's, and do not count.
"""

import argparse
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import manyarms as ma
from soak.common import N, place, pool


class Drift(NamedTuple):
    """Of the last tenth of many calls, beside the second tenth."""

    memory: float  # ratio
    median: float  # ratio of CPU times
    p99: float
    milliseconds: float  # the median, at the end
    bytes_each: float  # memory that a call took for good


def own_memory() -> int:
    """Bytes of this process, without pages of files that are mapped."""
    text = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", text)
    assert found is not None
    return 1024 * int(found[1])


def policy_tells(number: int) -> Drift:
    """A policy without a table, which keeps 100 inducing rows at most."""
    rng = np.random.default_rng(0)
    policy = ma.BKB(None, ma.kernels.RBF(0.5), n_features=4, rule=ma.Inserted(most=100))
    rows = rng.random((1000, 1, 4))

    def tell(i: int) -> None:
        policy.observe(rows[i % 1000], [float(rows[i % 1000].sum() + 0.1 * rng.normal())])

    return _drift(tell, number)


def study_tells(number: int) -> Drift:
    """A study; the file is in memory, so that a sync costs nothing."""
    with place("memory") as folder:
        study = ma.Study.create(Path(folder) / "study.db", pool())
        found = _drift(lambda i: study.tell(i % N, [float(i)]), number)
        assert study.n_results == number
        study.close()
        return found


def _drift(tell, number: int) -> Drift:
    tenth = number // 10
    took = np.full(number, np.nan)  # filled, so that its own pages are there from the start
    memory = []
    for i in range(number):
        if i % tenth == 0:
            memory.append(own_memory())
        begun = time.thread_time()
        tell(i)
        took[i] = time.thread_time() - begun
    memory.append(own_memory())
    first = took[tenth : 2 * tenth]
    last = took[-tenth:]
    return Drift(
        memory[-1] / memory[2],
        float(np.median(last) / np.median(first)),
        float(np.quantile(last, 0.99) / np.quantile(first, 0.99)),
        1e3 * float(np.median(last)),
        (memory[-1] - memory[2]) / (number - 2 * tenth),
    )


def from_disk(arms: int, columns: int, steps: int, memory: float) -> float:
    """The most bytes that the process itself took."""
    most = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], own_memory())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arms.npy"
        table = np.lib.format.open_memmap(path, "w+", np.float32, (arms, columns))
        rng = np.random.default_rng(0)
        for start in range(0, arms, 1 << 16):
            block = table[start : start + (1 << 16)]
            block[:] = rng.random(block.shape, dtype=np.float32)
        table.flush()
        del table
        X = np.load(path, mmap_mode="r")
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            policy = ma.BKB(X, ma.kernels.RBF(1.5), memory=memory, regularization=0.01)
            for _ in range(steps):
                chosen = policy.choose()
                heights = np.sin(3 * X[chosen, 0]) + X[chosen, 1]
                policy.observe(chosen, heights + 0.1 * rng.normal(size=len(chosen)))
        finally:
            ended.set()
            watcher.join()
    print(f"{len(policy.inducing)} inducing arms")
    return float(most[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["tells", "disk"])
    parser.add_argument("--tells", type=int, default=1_000_000)
    parser.add_argument("--arms", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--memory", type=float, default=1.5e9)
    given = parser.parse_args()
    begun = time.process_time()
    if given.what == "tells":
        print("policy:", policy_tells(given.tells), flush=True)
        print("study:", study_tells(given.tells), flush=True)
    else:
        found = from_disk(given.arms, given.columns, given.steps, given.memory)
        print(f"{given.arms:,} × {given.columns}: {found / 1e9:.2f} GB of its own at most")
    print(f"{time.process_time() - begun:.0f} s of the processor")
