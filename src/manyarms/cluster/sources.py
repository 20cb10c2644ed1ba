"""Where the rows of a table are read from, by row range: an array, .npy and Parquet files, URLs.

Whoever divides a table reads what the files say of themselves: columns, types, numbers of rows.
Whoever holds a part of it reads only the rows of that part.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyarms.checks import as_rows, mapped, needed
from manyarms.errors import ArmsError, shortened
from manyarms.runtime.foreign import parquet_shapes, read_parquet
from manyarms.typing import Array


@dataclass(frozen=True)
class ArraySource:
    """The rows of an array that was checked, from the one of number `first` on."""

    rows: Array
    first: int = 0

    row_bytes: ClassVar[int] = 0  # they are there already

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.rows.shape

    def read(self, start: int, stop: int) -> Array:
        """A view."""
        return self.rows[start - self.first : stop - self.first]

    def cut(self, start: int, stop: int) -> "ArraySource":
        """Some of them."""
        return ArraySource(self.read(start, stop), start)


@dataclass(frozen=True)
class File:
    """A file of rows."""

    path: str  # or a URL
    n: int
    columns: tuple[tuple[str, str], ...]  # name and type of each


@dataclass(frozen=True)
class Files:
    """Rows of several files, one behind the other."""

    files: tuple[File, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return sum(file.n for file in self.files), len(self.files[0].columns)

    @property
    def row_bytes(self) -> int:
        """Eight for a number, but for a single file that is mapped."""
        mapped = len(self.files) == 1 and Path(self.files[0].path).suffix == ".npy"
        return 0 if mapped and not is_url(self.files[0].path) else 8 * self.shape[1]

    def read(self, start: int, stop: int) -> Array:
        """Rows of all files that have some of them; ArmsError where a file has changed."""
        parts = []
        before = 0
        for file in self.files:
            first = max(start - before, 0)
            last = min(stop - before, file.n)
            before += file.n
            if first < last:
                parts.append(_rows(file, first, last))
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        try:
            return as_rows(rows)
        except ArmsError as error:
            raise ArmsError(
                f"rows {start} to {stop - 1} of {self.files[0].path}: {error}"
            ) from error

    def cut(self, start: int, stop: int) -> "Files":
        """It holds no rows."""
        return self


Source = ArraySource | Files
"""Rows of a table, (n, d): those from `start` to `stop` are read and checked, or `cut` out, so that
the source holds no others. `row_bytes` is the memory that a row takes where it is read."""


def source_of(data: Any) -> Source:
    """From an array, a path with wildcards, or a URL."""
    if not isinstance(data, str | Path):
        return ArraySource(as_rows(data))
    text = str(data)
    paths = _expanded(text)
    if not paths:
        raise ArmsError(f"there is no file {text}; give a .npy or .parquet file, or a pattern")
    files = _looked_at(paths)
    for file in files[1:]:
        _check_same(files[0], file)
    empty = [file.path for file in files if not file.n]
    if empty or not files[0].columns:
        raise ArmsError(f"{(empty or paths)[0]} has no rows or no columns; leave it out")
    return Files(files)


def is_url(path: str) -> bool:
    """Whether it is for fsspec."""
    return "://" in path


def _expanded(text: str) -> list[str]:
    """The files that a pattern stands for, by name."""
    if is_url(text):
        if "*" not in text:
            return [text]
        filesystem, there = _fsspec(text)
        return sorted(filesystem.unstrip_protocol(each) for each in filesystem.glob(there))
    path = Path(text)
    try:
        if path.is_dir():
            return sorted(
                str(each) for each in path.iterdir() if each.suffix in (".npy", ".parquet")
            )
        return [text] if path.exists() else sorted(glob(text))
    except OSError as error:
        raise ArmsError(f"cannot read {shortened(text)}: {error.strerror}") from error


def _fsspec(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    why = f"{url} is a URL, which fsspec reads: pip install fsspec, or copy the file"
    fsspec = needed("fsspec", why)
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise ArmsError(f"cannot read {url}: {error}") from error
    return filesystem, path


@contextmanager
def _local(path: str) -> Iterator[Path]:
    """A file as one of this machine, copied where it is elsewhere."""
    if not is_url(path):
        yield Path(path)
        return
    filesystem, there = _fsspec(path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copied = Path(folder) / Path(there).name
        try:
            filesystem.get_file(there, str(copied))
        except Exception as error:  # file systems raise what they like
            raise ArmsError(f"cannot read {path}: {error}") from error
        yield copied


def _looked_at(paths: list[str]) -> tuple[File, ...]:
    """What files say of themselves."""
    with ExitStack() as stack:
        local = [stack.enter_context(_local(path)) for path in paths]
        tables = [path for path in local if path.suffix == ".parquet"]
        shapes = dict(zip(tables, parquet_shapes(tables), strict=True)) if tables else {}
        pairs = zip(paths, local, strict=True)
        return tuple(File(path, *(shapes.get(file) or _shape(file))) for path, file in pairs)


def _shape(path: Path) -> tuple[int, tuple[tuple[str, str], ...]]:
    """How many rows a .npy file has, and the number and type of each column."""
    array = mapped(path)
    if array.ndim != 2:
        raise ArmsError(f"{path} must hold a table (n_arms, n_features), got {array.shape}")
    return len(array), tuple((str(i), str(array.dtype)) for i in range(array.shape[1]))


def _check_same(first: File, other: File) -> None:
    """Raise ArmsError where two files have different columns."""
    if first.columns == other.columns:
        return
    ours = dict(first.columns)
    theirs = dict(other.columns)
    differing = [name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name)]
    what = "they come in another order"
    for name in differing[:1]:
        what = f"{name!r} is {ours.get(name, 'missing')} and {theirs.get(name, 'missing')}"
    raise ArmsError(
        f"{first.path} and {other.path} have different columns: {what}; write them alike"
    )


def _rows(file: File, first: int, last: int) -> Array:
    """Some rows of a file that must be as it was."""
    with _local(file.path) as path:
        if path.suffix == ".parquet":
            array = read_parquet(path, first, last - first).to_numpy(order="c")
        else:
            array = mapped(path)[first:last]
            if is_url(file.path):
                array = np.array(array)  # the copy of the file goes with this block
    if array.shape != (last - first, len(file.columns)):
        raise ArmsError(
            f"{file.path} has changed: rows {first} to {last - 1} of {len(file.columns)} columns "
            f"were expected, got shape {array.shape}; divide the table anew"
        )
    return array
