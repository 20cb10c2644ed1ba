"""A million rows for people: seconds of a processor for `ask`, `tell` and the answers.

    python benchmarks/million.py            the two rows of the table, with their bars
    python benchmarks/million.py --answers  10⁶ rows with 40 and 10,000 results: every answer
    python benchmarks/million.py --files    memory of pools from Parquet and mapped files

Twenty columns: twelve numbers, three whole numbers, five categories of four levels. Values depend
on four of them, and have noise. All times are `time.process_time`, summed over threads.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import manyarms as ma
from manyarms.typing import Array

NOISE = 0.05


def columns(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """A table of n rows."""
    made: dict[str, Any] = {f"x{i}": rng.random(n) for i in range(12)}
    made |= {f"c{i}": rng.choice(["a", "b", "c", "d"], n) for i in range(5)}
    made |= {f"k{i}": rng.integers(0, 10, n) for i in range(3)}
    return made


def values(table: dict[str, Any]) -> Array:
    """f of its rows."""
    waves = np.sin(5 * table["x0"]) * np.cos(3 * table["x1"])
    return np.asarray(waves + 0.3 * (table["c0"] == "b") + 0.05 * table["k0"])


def seconds(work: Callable[[], Any]) -> float:
    """Of a processor, on all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak() -> float:
    """The largest memory of the process so far, in gigabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def row(name: str, spent: float, bar: float | None, unit: str = "s") -> None:
    """A line of the table."""
    limit = "" if bar is None else f"≤ {bar:g} {unit}"
    print(f"| {name} | {spent:.3g} {unit} | {limit} |", flush=True)


class Run:
    """An optimizer of n rows, and results for it."""

    def __init__(self, n: int) -> None:
        self.rng = np.random.default_rng(0)
        table = columns(n, self.rng)
        self.f = values(table)
        self.optimizer = ma.Optimizer(ma.Pool.from_frame(pl.DataFrame(table)))

    def tell(self, n: int) -> float:
        """Seconds to tell n results of rows at random."""
        ids = self.rng.choice(len(self.f), n, replace=False)
        told = self.f[ids] + NOISE * self.rng.standard_normal(n)
        return seconds(lambda: self.optimizer.tell(ids.tolist(), told))

    def answers(self) -> None:
        """Seconds of every answer."""
        optimizer = self.optimizer
        some = self.rng.choice(len(self.f), 1000, replace=False).tolist()
        more = pl.DataFrame(columns(1000, self.rng))
        row("ask(1)", seconds(optimizer.ask), None)
        row("ask(8)", seconds(lambda: optimizer.ask(8)), None)
        row("ask(100)", seconds(lambda: optimizer.ask(100)), None)
        row("top(10)", seconds(lambda: optimizer.top(10)), None)
        row("best()", seconds(optimizer.best), None)
        row("predict of 1,000", seconds(lambda: optimizer.predict(some)), None)
        row("predict_rows of 1,000", seconds(lambda: optimizer.predict_rows(more)), None)
        row("certificate()", seconds(optimizer.certificate), None)
        row("retire of 1,000", seconds(lambda: optimizer.retire(some)), None)
        row("ask(1) after that", seconds(optimizer.ask), None)
        row("add of 1,000", seconds(lambda: optimizer.add(more)), None)
        row("ask(1) after that", seconds(optimizer.ask), None)
        row("inducing rows", optimizer.policy.belief.m, None, "")
        row("memory", peak(), None, "GB")


def bars() -> None:
    """What the table of bars asks for."""
    print("| 10⁶ × 20, 40 results | measured | bar |\n|---|---|---|")
    run = Run(10**6)
    optimizer = run.optimizer
    run.tell(40)
    row("first ask", seconds(optimizer.ask), 2.5)
    optimizer.release(optimizer.pending)
    row("ask(100)", seconds(lambda: optimizer.ask(100)), 0.5)
    row("top(10)", seconds(lambda: optimizer.top(10)), 0.5)
    print("\n| 5·10⁵ × 20 | measured | bar |\n|---|---|---|")
    half = Run(500_000)
    row("tell of 500", half.tell(500), 1.0)
    row("then ask(1)", seconds(half.optimizer.ask), 3.0)
    row("tell of 10,000", half.tell(10_000), 15.0)
    row("then ask(1)", seconds(half.optimizer.ask), 8.0)
    row("memory, both tables together", peak(), 3.0, "GB")


FILES = """
import pathlib, re, sys, numpy as np, polars, manyarms as ma

def own():
    # Memory of the process alone, without pages of files that are mapped.
    text = pathlib.Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Anonymous:\\s+(\\d+)", text)[1]) * 1024 / 1e6

ma.Pool, ma.Optimizer, ma.BKB, polars.DataFrame({"a": [1.0]})
before = own()
if sys.argv[1].endswith(".npy"):
    pool = ma.Pool.from_array(np.load(sys.argv[1], mmap_mode="r"))
else:
    pool = ma.Pool.from_parquet(sys.argv[1])
made = own()
optimizer = ma.Optimizer(pool)
optimizer.tell(list(range(40)), np.sin(np.arange(40.0)))
optimizer.ask()
print(made - before, own() - before)
"""


def files(n: int = 10**6) -> None:
    """Memory that pools take beyond the import, each in a process of its own (Linux)."""
    rng = np.random.default_rng(0)
    print("| pool of 10⁶ × 20 | numbers | pool | with the first ask |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        array = Path(folder, "table.npy")
        np.save(array, rng.random((n, 20)))
        numbers = Path(folder, "numbers.parquet")
        pl.DataFrame(np.load(array)).write_parquet(numbers)
        mixed = Path(folder, "mixed.parquet")
        pl.DataFrame(columns(n, rng)).write_parquet(mixed)
        for path in (array, numbers, mixed):
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-c", FILES, str(path)], capture_output=True, text=True, check=True
            )
            made, asked = map(float, done.stdout.split())
            size = 8 * 20 * n / 1e6
            print(f"| {path.name} | {size:.0f} MB | {made:.0f} MB | {asked:.0f} MB |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--files", action="store_true")
    given = parser.parse_args()
    if given.files:
        files()
    elif given.answers:
        run = Run(10**6)
        for n in (40, 10_000):
            print(f"\n| 10⁶ × 20, {n:,} results | measured | |\n|---|---|---|")
            row(f"tell of {n:,}", run.tell(n), None)
            run.answers()
    else:
        bars()


if __name__ == "__main__":
    main()
