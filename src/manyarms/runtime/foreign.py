"""Files in formats of other programs, Parquet and workbooks, read in a process of their own with
limits.

A damaged file may end the process that reads it: its decoder trusts sizes that the file states, and
aborts where memory for them cannot be had; and a small file may say that it holds a table of any
size. So another process reads the file, with memory and time that follow from the file's size, and
hands the table on as an Arrow file. What becomes of that process is an error like others.
"""

import errno
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from manyarms.errors import ArmsError
from manyarms.runtime.machine import half_the_memory

if TYPE_CHECKING:
    import polars as pl

MAGIC, ENCRYPTED = b"PAR1", b"PARE"
"""How files begin and end."""
MEMORY, TABLE, SECONDS = 1 << 29, 1 << 26, 5
"""What reading a small file may take: bytes of memory, bytes of the table, and seconds of the
processor. Python with polars takes 150 MB and 0.2 s."""
MORE_MEMORY, MORE_TABLE, MORE_SECONDS = 1 << 12, 512, 1 << 19
"""Larger files may take more: size²/2¹² bytes of memory, 512 bytes of the table for each of the
file, and a second for 512 kB. Twenty factors of two levels take 1.15 MB as a file and 370 MB as a
table of texts: 320 for one."""
VIEW, PAGE, DEPTH = 16, 1000, 50
"""What a table that this process reads is counted for, in bytes: a value (the view of a text), and
a page of a file, whatever it holds; and how often columns may be within columns."""
NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of following what another program wrote, where that makes no sense."""
READER = """
import contextlib, json, sys
name, arguments, path, limits = json.loads(sys.argv[1])
sys.path[:] = path
for limit, most in limits.items():
    # Not every system knows every limit.
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource
        resource.setrlimit(getattr(resource, limit), (most, most))
from manyarms.runtime import foreign
try:
    for answer in getattr(foreign, name)(*arguments):
        print(json.dumps(answer), flush=True)
except BaseException as error:
    sys.exit(" ".join(str(error).split()) or type(error).__name__)
"""
"""What the other process runs; as an argument, it is no module that a user's script could hide."""


def is_parquet(path: Path) -> bool:
    """Whether the name ends as that of a Parquet file."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_parquet(path: Path, first: int = 0, n: int | None = None) -> "pl.DataFrame":
    """The table in a file, or n rows of it; ArmsError where that cannot be read."""
    _check_ends(path)
    return _read_table("_parquet", path, first, n)[0]


def parquet_shapes(paths: list[Path]) -> list[tuple[int, tuple[tuple[str, str], ...]]]:
    """How many rows files have, and the name and type of each column."""
    for path in paths:
        _check_ends(path)
    said = _answers("_shapes", paths, [str(path.absolute()) for path in paths])
    return [(n, tuple((name, kind) for name, kind in columns)) for n, columns in said]


def read_cells(path: Path, name: str | None) -> "tuple[pl.DataFrame, int]":
    """The cells of a sheet of a workbook as text, from its header on, and the place of that row;
    of the first sheet with a header and a row below it where there is no name."""
    table, (place,) = _read_table("_cells", path, name)
    return table, place


def _read_table(reader: str, path: Path, *arguments: Any) -> "tuple[pl.DataFrame, list[Any]]":
    """The table that a reader makes of a file, and what it says of it."""
    import polars as pl  # noqa: PLC0415  a bare BKB loads NumPy and SciPy only

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        table = Path(folder) / "table.arrow"
        said = _answers(reader, [path], str(path.absolute()), str(table), *arguments)
        # A path would be mapped, and could not be removed on Windows.
        with table.open("rb") as file:
            return pl.read_ipc(file), said


def _answers(reader: str, paths: list[Path], *arguments: Any) -> list[Any]:
    """What a reader says in another process; it reads files in their order."""
    size = sum(path.stat().st_size for path in paths)
    limits = {
        "RLIMIT_DATA": min(int(half_the_memory()), MEMORY + size * size // MORE_MEMORY),
        "RLIMIT_FSIZE": TABLE + MORE_TABLE * size,
        "RLIMIT_CPU": SECONDS + size // MORE_SECONDS,
    }
    task = json.dumps([reader, arguments, sys.path, limits])
    command = [sys.executable, "-P", "-c", READER, task]
    # Every thread of polars has memory of its own.
    few = {**os.environ, "POLARS_MAX_THREADS": "4"}
    try:
        ended = subprocess.run(command, capture_output=True, check=False, env=few)  # noqa: S603  Python
    except OSError as error:
        raise ArmsError(
            f"cannot read {paths[0]}: no other process could be started for it ({error}); read it "
            "into a data frame yourself"
        ) from error
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    if ended.returncode:
        raise ArmsError(f"cannot read {paths[min(len(said), len(paths) - 1)]}: {_why(ended)}")
    return said


# In the other process


def _parquet(source: str, target: str, first: int, n: int | None) -> Iterator[None]:
    import polars as pl  # noqa: PLC0415

    table = pl.scan_parquet(source, glob=False)
    table = table if n is None else table.slice(first, n)
    # A column of one value takes nothing in a file, and hardly more in an Arrow file.
    n_values = table.select(pl.len()).collect().item() * len(table.collect_schema())
    most = TABLE + MORE_TABLE * Path(source).stat().st_size
    if n_values * VIEW > most:
        raise ArmsError(f"it says that it has {n_values:,} values, too many for so small a file")
    table.collect().write_ipc(target)
    yield


def _shapes(sources: list[str]) -> Iterator[Any]:
    import polars as pl  # noqa: PLC0415

    for source in sources:
        table = pl.scan_parquet(source, glob=False)
        columns = [[name, str(kind)] for name, kind in table.collect_schema().items()]
        yield table.select(pl.len()).collect().item(), columns


def _cells(source: str, target: str, name: str | None) -> Iterator[int]:
    import fastexcel  # noqa: PLC0415
    import polars as pl  # noqa: PLC0415

    book = fastexcel.read_excel(source)
    names = book.sheet_names
    if name is not None and name not in names:
        raise ArmsError(f"it has no sheet {name!r}; it has {', '.join(map(repr, names))[:300]}")
    for each in names if name is None else [name]:
        # From the first row on, whether empty or not, so that rows keep their numbers.
        sheet = book.load_sheet(each, header_row=None, skip_rows=0, dtypes="string")
        cells = sheet.to_polars()
        is_filled = cells.select(pl.any_horizontal(pl.all().str.strip_chars() != ""))
        filled = is_filled.to_series().arg_true().to_list() if cells.width else []
        place = filled[0] if filled else len(cells)
        if filled and (place + 1 < len(cells) or name is not None):
            cells.slice(place).write_ipc(target)
            yield place
            return
    raise ArmsError("it needs a sheet with a header and a row below it")


# What a Parquet file says of itself


def check_parquet(data: bytes) -> None:
    """Raise ValueError where a table that this process will read says that it is far larger than
    its bytes let expect.

    Only the sizes are looked at, in the compact protocol of Thrift, in which Parquet says them:
    https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
    """
    most = TABLE + MORE_TABLE * len(data)
    file = io.BytesIO(data)
    file.seek(-8 - int.from_bytes(data[-8:-4], "little"), os.SEEK_END)
    said = _struct(file)
    _check_depth(said[2])
    size = rows = 0
    is_whole = True
    for group in said[4]:
        rows += group[3]
        for chunk in (column[3] for column in group[1]):
            file.seek(chunk.get(11, chunk[9]))  # a dictionary stands before the data
            end = file.tell() + chunk[7]
            n = 0
            while file.tell() < end and size <= most:
                page = _struct(file)
                n += sum(abs(page[kind][1]) for kind in (5, 7, 8) if kind in page)
                size += PAGE + abs(page[2])
                file.seek(page[3], os.SEEK_CUR)
            size += VIEW * max(n, group[3], chunk[5])
            is_whole = is_whole and file.tell() == end
    if not is_whole or size > most or rows != said[3]:
        raise ValueError(f"it says that it takes more than {most:,} bytes, or is cut off")


def _check_depth(elements: list[dict[int, Any]]) -> None:
    """Raise ValueError where columns are within columns too often: polars calls itself for each."""
    left = [1]  # elements to come, in every column that is open
    for element in elements:
        left[-1] -= 1
        left.append(element.get(5, 0))
        while left and not left[-1]:
            left.pop()
        if len(left) > DEPTH:
            raise ValueError(f"it has columns within columns more than {DEPTH} times")


def _struct(file: IO[bytes]) -> dict[int, Any]:
    """The fields of a struct of Thrift, by their numbers."""
    fields: dict[int, Any] = {}
    number = 0
    while head := file.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _whole(file)
        fields[number] = FIELDS[head & 15](file)
    return fields


def _list(file: IO[bytes]) -> list[Any]:
    head = file.read(1)[0]
    n = head >> 4 if head >> 4 < 15 else _varint(file)
    return [FIELDS[head & 15](file) for _ in range(n)]


def _whole(file: IO[bytes]) -> int:
    n = _varint(file)
    return (n >> 1) ^ -(n & 1)


def _varint(file: IO[bytes]) -> int:
    n = shift = 0
    while (byte := file.read(1)[0]) > 127:
        n |= (byte & 127) << shift
        shift += 7
    return n | byte << shift


FIELDS: dict[int, Callable[[IO[bytes]], Any]] = {
    **dict.fromkeys((1, 2), lambda file: None),  # true and false, which have no bytes
    3: lambda file: file.read(1),
    **dict.fromkeys((4, 5, 6), _whole),
    7: lambda file: file.read(8),
    8: lambda file: file.read(_varint(file)),
    **dict.fromkeys((9, 10), _list),
    12: _struct,
}
"""How a field of a struct, or an item of a list, is read, by the number of its type."""


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
    is_said = reader.returncode == 1 and said and os.strerror(errno.EFBIG) not in said
    if is_said:  # in the last line: panics are announced before
        return f"{said.splitlines()[-1][:300]}; check what it holds, or write it again"
    return (
        f"its reader was ended (code {reader.returncode}), as damaged files do, and such that need "
        "far more memory or time than their size lets expect; check what it holds (a cell far off "
        "makes a sheet large), or write it again as CSV"
    )
