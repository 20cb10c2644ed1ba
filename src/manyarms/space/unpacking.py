"""The text of a file, plain or gzipped."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from manyarms.errors import ArmsError

Source = Path | bytes
"""A plain file, or what a gzipped one held."""
GZIP = b"\x1f\x8b"
OTHER_FILES = {
    b"PK\x03\x04": "a workbook or another archive; give a workbook a name that ends in .xlsx, or "
    "save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old workbook; give it a name that ends in .xls, or save the "
    "sheet as CSV",
    b"PAR1": "a Parquet file; give it a name that ends in .parquet",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"\x78\x01": "compressed with zlib; unpack it first",
    b"\x78\x9c": "compressed with zlib; unpack it first",
    b"\x78\xda": "compressed with zlib; unpack it first",
}
"""The first bytes of files of other kinds, and what such a file is."""
MOST_UNPACKED = 1 << 30
"""Bytes that a gzipped file may hold: a file of 1 MB can hold a thousand times as much."""
BYTES_AT_ONCE = 1 << 20
"""Bytes unpacked at a time."""


def unpacked(path: Path) -> Source:
    """The path itself, or the content of a gzipped file; ArmsError if that is damaged or too
    large."""
    check_file(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
        for mark, what in OTHER_FILES.items():
            if start.startswith(mark):
                raise ArmsError(f"cannot read {path}: it is {what}")
        if not start.startswith(GZIP):
            return path
        # Twice through the file, so that one that holds too much takes no memory.
        size = 0
        for piece in _pieces(path):
            size += len(piece)
            if size > MOST_UNPACKED:
                raise ArmsError(
                    f"cannot read {path}: it holds more than {MOST_UNPACKED:,} bytes, the most "
                    "that is unpacked here; where that is right, unpack it first (`gunzip`): a "
                    "plain file may be of any size"
                )
        return b"".join(_pieces(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArmsError(
            f"cannot read {path}: it is damaged, or a part of a gzipped file ({error}); copy or "
            "write it again"
        ) from error
    except OSError as error:
        raise ArmsError(f"cannot read {path}: {error.strerror or error}") from error


def opened(source: Source) -> IO[str]:
    """The text to read line by line."""
    # "utf-8-sig" drops the mark that spreadsheets put at the beginning.
    return io.TextIOWrapper(_binary(source), encoding="utf-8-sig", newline="")


def as_utf8(path: Path, source: Source) -> Source:
    """The same text in UTF-8: what spreadsheets write in Windows-1252 or UTF-16 is converted."""
    with _binary(source) as file:
        start = file.read(2)
    encoding = "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "cp1252"
    if encoding == "cp1252" and _is_utf8(source):
        return source
    try:
        text = source if isinstance(source, bytes) else source.read_bytes()
        decoded = text.decode(encoding)
    except UnicodeDecodeError:
        decoded = "\0"
    # No text has bytes of 0: it is something else altogether.
    if "\0" in decoded:
        raise ArmsError(
            f"cannot read {path}: it must be text in UTF-8 or Windows-1252, got other bytes",
            "save it as CSV in UTF-8",
        )
    return decoded.encode()


def _is_utf8(source: Source) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with _binary(source) as file:
            while piece := file.read(BYTES_AT_ONCE):
                decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _binary(source: Source) -> IO[bytes]:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def check_file(path: Path) -> None:
    """Raise ArmsError unless there is such a file."""
    try:
        if path.is_file():
            return
    except (OSError, ValueError):  # a name that the system does not take
        pass
    raise ArmsError(f"there is no file {path!s:.200}; the path must be that of a file")


def _pieces(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as file:
        while piece := file.read(BYTES_AT_ONCE):
            yield piece
