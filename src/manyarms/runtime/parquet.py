"""Parquet files, read in a process of their own.

A damaged file may end the process that reads it: its decoder trusts sizes that the file states, and
aborts where memory for them cannot be had. So another process reads the file and hands the table on
as an Arrow file, and what becomes of that process is an error like others.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from manyarms.errors import ArmsError
from manyarms.runtime.machine import half_the_memory

if TYPE_CHECKING:
    import polars as pl

MAGIC, ENCRYPTED = b"PAR1", b"PARE"
"""How files begin and end."""
READER = """
import json, sys
sources, target, first, n, path, memory = json.loads(sys.argv[1])
sys.path[:] = path
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
except (ImportError, OSError, ValueError):
    pass  # the system knows no such limit
import polars
try:
    for source in sources:
        table = polars.scan_parquet(source, glob=False)
        if target:
            (table if n is None else table.slice(first, n)).collect().write_ipc(target)
        else:
            columns = [[name, str(kind)] for name, kind in table.collect_schema().items()]
            print(json.dumps([table.select(polars.len()).collect().item(), columns]), flush=True)
except BaseException as error:
    sys.exit(" ".join(str(error).split()) or type(error).__name__)
"""
"""What the other process runs; as an argument, it is no module that a user's script could hide."""


def is_parquet(path: Path) -> bool:
    """Whether the name ends as that of a Parquet file."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_parquet(path: Path, first: int = 0, n: int | None = None) -> "pl.DataFrame":
    """The table in a file, or n rows of it; ArmsError where that cannot be read."""
    import polars as pl  # noqa: PLC0415  a bare BKB loads NumPy and SciPy only

    _check_ends(path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        table = Path(folder) / "table.arrow"
        reader = _read([path], table, first, n)
        if reader.returncode:
            raise ArmsError(f"cannot read {path}: {_why(reader)}")
        with table.open(
            "rb"
        ) as file:  # a path would be mapped, and could not be removed on Windows
            return pl.read_ipc(file)


def parquet_shapes(paths: list[Path]) -> list[tuple[int, tuple[tuple[str, str], ...]]]:
    """How many rows files have, and the name and type of each column."""
    for path in paths:
        _check_ends(path)
    reader = _read(paths, None, 0, None)
    said = [json.loads(line) for line in reader.stdout.splitlines()]
    if reader.returncode:  # it reads them in order
        raise ArmsError(f"cannot read {paths[len(said)]}: {_why(reader)}")
    return [(n, tuple((name, kind) for name, kind in columns)) for n, columns in said]


def _read(
    paths: list[Path], target: Path | None, first: int, n: int | None
) -> "subprocess.CompletedProcess[bytes]":
    """The process that read files, and wrote their rows to `target` or what they say of themselves
    to its output."""
    sources = [str(path.absolute()) for path in paths]
    written = None if target is None else str(target)
    task = json.dumps([sources, written, first, n, sys.path, int(half_the_memory())])
    command = [sys.executable, "-P", "-c", READER, task]
    try:
        return subprocess.run(command, capture_output=True, check=False)  # noqa: S603  Python
    except OSError as error:
        raise ArmsError(
            f"cannot read {paths[0]}: no other process could be started for it ({error}); read it "
            "into a data frame yourself"
        ) from error


def _check_ends(path: Path) -> None:
    """Raise ArmsError unless a file begins and ends as a Parquet file does."""
    try:
        with path.open("rb") as file:
            first = file.read(4)
            size = file.seek(0, 2)
            file.seek(max(0, size - 8))
            last = file.read(8)
    except OSError as error:
        raise ArmsError(f"cannot read {path}: {error.strerror or error}") from error
    if first == last[4:] == ENCRYPTED:
        raise ArmsError(f"cannot read {path}: it is encrypted; write it without encryption")
    length = int.from_bytes(last[:4], "little")
    marks = 12  # bytes: the mark, the length of the metadata, and the mark again
    if first != MAGIC or last[4:] != MAGIC or size < marks or length > size - marks:
        raise ArmsError(
            f"cannot read {path}: it is no Parquet file, or a part of one; write or copy it again"
        )


def _why(reader: "subprocess.CompletedProcess[bytes]") -> str:
    """What became of the process that read."""
    said = reader.stderr.decode(errors="replace").strip()
    if reader.returncode == 1 and said:  # the last line: panics are announced before
        return f"{said.splitlines()[-1][:300]}; check what it holds, or write it again"
    return (
        f"its reader was ended (code {reader.returncode}), as damaged files do, and such that need "
        "more than half of the machine's memory; write it again, or in parts"
    )
