"""Files that are damaged, or made to do harm: a typed error or a table, in little memory and time, and the process
lives.

    python -m soak.files [--csv 9000] [--gzip 9000] … [--seed 0] [--keep FOLDER]

Small tables are written as CSV, gzipped CSV, workbooks, Parquet and .npy, and mutated: bytes are changed, cut
out, doubled, moved, or replaced by what parsers trip over; of a packed file what is inside, too. One of ten is a bomb
(`soak/bombs.py`). A table of text is read as candidates, as a table of a pool that is there, and as results. Tables as
studies store them are read in this process, as a study does; exports are forged (`soak/forged.py`) and imported. Each kind has a
process of its own, so that its end would be seen. Files that fail are kept.
"""

import argparse
import gzip
import io
import random
import resource
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

import manyarms as ma
from manyarms.cli.reading import results_in
from manyarms.space.stored import read_table
from soak import bombs
from soak.common import PROCESSES
from soak.forged import forged, look

TOKENS = [
    *(b"", b'"', b'""', b",", b";", b"\t", b"|", b"\n", b"\r\n", b"\r", b"\0", b"\xef\xbb\xbf"),
    *(b"\xff\xfe", b"\xf0\x9f", b"=1", b"'", b"nan", b"inf", b"-1e400", b"9" * 40, b"0x10", b"1_0"),
    *(
        b"True",
        b"null",
        b"2026-01-01",
        b"01010101",
        b"a" * 5000,
        b"," * 300,
        b"\n" * 50,
        b"#",
        b" ",
    ),
]
"""What parsers trip over."""
LONGEST = 10.0
"""Seconds of the processor that a file may take, at most, those of the process that reads it included."""
BOMBS = {
    "csv": bombs.texts,
    "gzip": bombs.gzips,
    "parquet": bombs.parquets,
    "workbook": bombs.workbooks,
}
ENDINGS = {"gzip": "csv", "workbook": "xlsx", "table": "parquet", "export": "json"}
NUMBERS = {
    "csv": 9000,
    "gzip": 9000,
    "npy": 2000,
    "parquet": 2000,
    "workbook": 2000,
    "table": 5000,
    "export": 5000,
}
"""How many files of each kind."""


class Outcome(NamedTuple):
    """How often a file was read, and how often refused with a typed error; the slowest in seconds,
    and the most memory in MB: of the process, and of those that it started."""

    read: int
    refused: int
    slowest: float
    memory: int
    memory_of_readers: int


def tables() -> list[pl.DataFrame]:
    """Small tables with columns of every kind."""
    rng = np.random.default_rng(0)
    n = 60
    return [
        pl.DataFrame(
            {
                "id": [f"m{i}" for i in range(n)],
                "x": rng.normal(size=n),
                "log": np.exp(rng.normal(size=n) * 5),
                "n": rng.integers(-5, 5, n),
                "c": rng.choice(["a", "b", "é"], n),
                "b": rng.random(n) < 0.5,
                "bits": ["".join(rng.choice(["0", "1"], 16)) for _ in range(n)],
                "note": [f"text {i}, =said" for i in range(n)],
                "value": [None if i % 3 else f"{i}.5" for i in range(n)],
            }
        ),
        pl.DataFrame({"id": range(5), "x": [0.5, None, 1.5, 2.5, 3.5], "value": ["1"] * 5}),
        pl.DataFrame({"x": range(2000), "y": rng.random(2000)}),
    ]


def written(kind: str) -> list[bytes]:
    """These tables as files."""
    return [_written(kind, table) for table in tables()]


def _written(kind: str, table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    if kind == "npy":
        np.save(file, np.random.default_rng(0).random((40, 3)))
    elif kind == "workbook":
        table.write_excel(file)
    elif kind in ("parquet", "table"):
        bits = table.columns.count("bits") * [
            pl.col("bits").str.split("").list.eval(pl.element().cast(pl.UInt8)).alias("list")
        ]
        table.with_columns(bits).write_parquet(file, row_group_size=700)
    else:
        table.write_csv(file, separator="," if len(table) % 2 else ";")
    return file.getvalue()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """With one to four changes."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        _change(found, rng)
    return bytes(found)


def _change(data: bytearray, rng: random.Random) -> None:
    # The ends are hit as often as the rest: headers and footers are there.
    place = rng.choice([rng.randrange(len(data) + 1), rng.randrange(min(64, len(data) + 1))])
    if rng.random() < 0.3:
        place = max(0, len(data) - place % 600)
    length = int(2 ** rng.uniform(0, 9))
    part = bytes(data[place : place + length])
    match rng.randrange(8):
        case 0:
            data[place : place + 1] = bytes([rng.randrange(256)])
        case 1:
            del data[place : place + length]
        case 2:
            data[place:place] = part * rng.choice([1, 2, 20])
        case 3:
            data[place : place + rng.choice([0, 1, 4])] = rng.choice(TOKENS)
        case 4:
            del data[place:]
        case 5:
            data[place : place + length] = rng.randbytes(len(part))
        case 6:
            for i in range(place, min(place + rng.choice([1, 4, 8]), len(data))):
                data[i] ^= 1 << rng.randrange(8)
        case 7:
            data[place : place + 4] = rng.choice([0, 1, 2**31 - 1, 2**32 - 1]).to_bytes(4, "little")


def damaged(kind: str, files: list[bytes], rng: random.Random) -> bytes:
    """A mutated file of a kind, or a bomb."""
    if kind == "export":
        return forged(rng, _damaged_table)
    if kind in BOMBS and rng.random() < 0.1:
        return rng.choice(BOMBS[kind]())(rng)
    whole = rng.choice(files)
    if kind == "table":
        return _damaged_table(whole, rng)
    if kind not in ("gzip", "workbook") or rng.random() < 0.5:
        return mutated(gzip.compress(whole, mtime=0) if kind == "gzip" else whole, rng)
    return gzip.compress(mutated(whole, rng), mtime=0) if kind == "gzip" else _inside(whole, rng)


def _inside(book: bytes, rng: random.Random) -> bytes:
    """A workbook with one of its parts mutated."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as before, zipfile.ZipFile(file, "w") as after:
        changed = rng.choice(before.namelist())
        for name in before.namelist():
            part = before.read(name)
            after.writestr(name, mutated(part, rng) if name == changed else part)
    return file.getvalue()


def _damaged_table(whole: bytes, rng: random.Random) -> bytes:
    """A Parquet file mutated anywhere, or in what it says of itself."""
    if rng.random() < 0.5:
        return mutated(whole, rng)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    said = mutated(whole[start:-8], rng)
    return whole[:start] + said + len(said).to_bytes(4, "little") + whole[-4:]


def reads(kind: str) -> list[Callable[[Path], object]]:
    """What is done with a file of a kind."""
    if kind == "npy":
        return [lambda path: ma.BKB(path, ma.kernels.RBF(0.3)).choose(2)]
    if kind == "table":
        return [lambda path: read_table(path.read_bytes())]
    if kind == "export":
        return [_import]
    if kind == "workbook":
        return [ma.Pool.from_csv]
    first = ma.Pool.from_frame(tables()[0], id="id", columns={"value": "ignore"})
    if kind == "parquet":
        return [ma.Pool.from_parquet]  # another process reads it: once must do
    return [
        ma.Pool.from_csv,
        lambda path: ma.Pool.from_csv(path, id="id", missing="drop", decimal=","),
        first.add,
        lambda path: results_in(path, first, None, None, "."),
    ]


def _import(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        look(Path(folder) / "study.db", path)


def _used() -> float:
    """Seconds of the processor, of this process and those that it started."""
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + child.ru_utime + child.ru_stime


def _work(kind: str, number: int, seed: int, folder: Path, answer: Connection) -> None:
    """Read so many files; sends what came of it."""
    warnings.simplefilter("ignore")
    files, read = [] if kind == "export" else written(kind), reads(kind)
    path = folder / f"tried.{ENDINGS.get(kind, kind)}"
    n_read = n_refused = 0
    slowest = 0.0
    faults = []
    for i in range(number):
        rng = random.Random(seed + i)
        data = damaged(kind, files, rng)
        path.write_bytes(data)
        for each in read:
            start = _used()
            try:
                each(path)
                n_read += 1
            except ma.errors.ManyArmsError:
                n_refused += 1
            except BaseException:
                faults.append((seed + i, traceback.format_exc(limit=-3)[-600:]))
                (folder / f"{kind}-{seed + i}").write_bytes(data)
            slowest = max(slowest, _used() - start)
    used = [resource.getrusage(who).ru_maxrss // 1024 for who in (0, -1)]
    answer.send((Outcome(n_read, n_refused, slowest, *used), faults))


def run(kind: str, number: int, folder: Path, seed: int = 0) -> Outcome:
    """Read so many damaged files in another process; AssertionError where one should not be."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=_work, args=(kind, number, seed, folder, sender))
    child.start()
    sender.close()
    try:
        outcome, faults = receiver.recv()
    except EOFError:
        child.join()
        raise AssertionError(
            f"a file ended the process ({child.exitcode}): {folder}/tried.*"
        ) from None
    child.join()
    assert not faults, f"{len(faults)} of {number} {kind} files: " + "\n".join(map(str, faults[:5]))
    assert outcome.slowest < LONGEST, outcome
    assert max(outcome.memory, outcome.memory_of_readers) < 1000, outcome
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for kind, number in NUMBERS.items():
        parser.add_argument(f"--{kind}", type=int, default=number)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp())
    for kind in NUMBERS:
        print(f"{kind}:", run(kind, getattr(given, kind), folder, given.seed), flush=True)
