"""What a `tell` costs beside a bare durable SQLite insert with the same pragmas: medians of one run, taken in turns.

python benchmarks/study_tell.py [directory] [number]
"""

import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import manyarms as ma


def main(directory: str | None = None, number: int = 200) -> tuple[float, float]:
    """Print both medians and their ratio; returns the medians."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        study = ma.Study.create(
            Path(folder) / "study.db",
            ma.Pool.from_array(np.random.default_rng(0).random((62_208, 6))),
        )
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode=TRUNCATE")
        bare.execute("PRAGMA synchronous=FULL")
        bare.execute("CREATE TABLE results (number INTEGER PRIMARY KEY, record TEXT)")
        told, inserted = [], []
        for i in range(number):
            start = time.perf_counter()
            study.tell(i, [0.5])
            told.append(time.perf_counter() - start)
            start = time.perf_counter()
            bare.execute("BEGIN IMMEDIATE")
            bare.execute("INSERT INTO results VALUES (?, ?)", (i, '{"ids":[1],"values":[0.5]}'))
            bare.execute("COMMIT")
            inserted.append(time.perf_counter() - start)
        bare.close()
        study.close()
    tell, insert = statistics.median(told), statistics.median(inserted)
    print(f"tell {1e3 * tell:.2f} ms, bare insert {1e3 * insert:.2f} ms, ratio {tell / insert:.2f}")
    return tell, insert


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None, int(sys.argv[2]) if len(sys.argv) > 2 else 200)
