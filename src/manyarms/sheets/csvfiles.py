"""CSV files as spreadsheets write them: plain or gzipped, in any usual encoding and with any usual
separator; and what is wrong with other files.

A spreadsheet runs text that begins with = + - or @, and a tab or a return before it does not help.
Such text is written with an apostrophe in front, which shows it as text, and is read without it.
Text that already has apostrophes there gets another one, so what is written is read back unchanged.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import polars as pl

from manyarms.errors import Advice, ArmsError

SEPARATORS = ",;\t|"
"""What may separate the columns of a CSV file; of equally likely separators the first one wins."""
UNREADABLE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises if it cannot read a file."""
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
MOST_UNPACKED, SMALL, PACKED = 1 << 30, 1 << 23, 64
"""Bytes that a gzipped file may hold, and that a small one may; others may hold so many times their
size. Tables are packed to a third or a thirtieth, and what is all alike to a thousandth."""
MOST_ABOVE, LONGEST_HEADER, MOST_COLUMNS = 1000, 1 << 20, 1 << 14
"""Empty lines above the header, characters of the header, and columns: as many as sheets have."""
LONGEST_CELL = 1 << 20
"""Bytes of a text in a table: spreadsheets take 32,767."""
BYTES_AT_ONCE = 1 << 20
"""Bytes unpacked at a time."""

FORMULA = r"^'*[=+\-@\t\r]"
"""Text that a spreadsheet would run, or that would be taken for a formula when read."""
MARKED = r"^'+[=+\-@\t\r]"

Source = Path | bytes
"""A plain file, or the text that a file held when unpacked or converted to UTF-8."""


class Cells(NamedTuple):
    """The cells of a sheet as text, its header in the first row, and how it is laid out."""

    frame: pl.DataFrame
    header_row: int  # its number, as spreadsheets count
    separator: str
    number: str | None = None  # pattern of cells with a decimal point whatever mark people use


def read_csv(path: Path) -> Cells:
    """The cells of a CSV file."""
    source = _as_utf8(path, _unpacked(path))
    separator = None
    n_above = 0  # lines above the header
    with _opened(source) as file:
        # A file without line ends is not read whole.
        while n_above <= MOST_ABOVE and (header := file.readline(LONGEST_HEADER)):
            hint = re.fullmatch(r"\"?sep=(.)\"?\s*", header, re.IGNORECASE)  # a spreadsheet's
            if hint:
                separator = hint[1]
            elif header.strip(f'{SEPARATORS}\r\n "'):
                break
            n_above += 1
        else:
            raise _unreadable(
                path, f"nothing in its {n_above:,} first lines" if n_above else "empty CSV"
            )
    if n_above:
        text = source if isinstance(source, bytes) else source.read_bytes()
        source = text.split(b"\n", n_above)[-1]
    # Every other part of the header is inside quotes.
    bare = "".join(header.split('"')[::2])
    separator = separator or max(SEPARATORS, key=bare.count)
    if len(header) == LONGEST_HEADER or bare.count(separator) >= MOST_COLUMNS:
        raise _unreadable(
            path,
            f"its header must have at most {LONGEST_HEADER:,} characters, and name at most "
            f"{MOST_COLUMNS:,} columns",
        )
    try:
        try:
            frame = _read(source, separator, truncate_ragged_lines=False)
        except UNREADABLE as error:
            is_file = not isinstance(error, OSError)
            if not (is_file and _has_long_lines(path, source, separator, n_above)):
                raise
            frame = _read(source, separator, truncate_ragged_lines=True)
    except UNREADABLE as error:
        # Columns have numbers only: their names are in the first row.
        said = re.sub(r"'column_\d+' \(column number (\d+)\)", r"\1", said_by(error)[:300])
        raise _unreadable(path, said) from error
    return Cells(frame, 1 + n_above, separator)


def _unreadable(path: Path, why: str) -> ArmsError:
    by_frame = Advice("read it into a data frame for {}", "Pool.from_frame")
    return ArmsError(f"cannot read {path}: {why}", "check what it holds", by_frame)


def _read(source: Source, separator: str, *, truncate_ragged_lines: bool) -> pl.DataFrame:
    # All as text: "0101" read as a number has lost its zeros.
    return pl.read_csv(
        source,
        has_header=False,
        separator=separator,
        infer_schema=False,
        glob=False,
        truncate_ragged_lines=truncate_ragged_lines,
    )


def _has_long_lines(path: Path, source: Source, separator: str, n_above: int) -> bool:
    """Whether lines are longer than the header by empty fields; ArmsError if one has more fields
    that are filled."""
    is_long = False
    with _opened(source) as file:
        lines = csv.reader(file, delimiter=separator)
        try:
            n = len(next(lines, []))
            for row in lines:
                is_long = is_long or len(row) > n
                if any(map(str.strip, row[n:])):
                    names = "1 column" if n == 1 else f"{n} columns"
                    raise ArmsError(
                        f"cannot read {path}: its header names {names}, got {len(row)} fields in "
                        f"line {lines.line_num + n_above}",
                        "quote fields that hold the separator",
                        *(["delete the lines above the header"] if n == 1 else []),
                    )
        except csv.Error:  # a quote that is not closed
            pass
    return is_long


def write_csv(frame: pl.DataFrame, path: Path, separator: str, decimal: str) -> None:
    """Write a CSV file in which no text is a formula. One with decimal commas is for spreadsheets,
    which need a mark that it is UTF-8."""
    has_commas = decimal == ","
    _marked(without_lists(frame)).write_csv(
        path, separator=separator, decimal_comma=has_commas, include_bom=has_commas
    )


def _marked(frame: pl.DataFrame) -> pl.DataFrame:
    """A table to write: names and cells of text that look like a formula get an apostrophe."""
    text = pl.col(pl.String)
    # -5 begins like a formula and is a number, which a spreadsheet may take as it is.
    number = r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?$"
    is_formula = text.str.contains(FORMULA) & ~text.str.contains(number)
    cells = pl.when(is_formula).then(pl.lit("'") + text).otherwise(text).name.keep()
    names = {name: f"'{name}" for name in frame.columns if re.match(FORMULA, name)}
    return frame.with_columns(cells).rename(names)


def unmarked(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells of a table as they were before `_marked`."""
    text = pl.col(pl.String)
    cells = pl.when(text.str.contains(MARKED)).then(text.str.slice(1)).otherwise(text).name.keep()
    return frame.with_columns(cells)


def unmarked_name(name: str) -> str:
    """The name of a column as it was before `_marked`."""
    return name[1:] if re.match(MARKED, name) else name


def without_lists(frame: pl.DataFrame) -> pl.DataFrame:
    """A table to write: files have no lists, so those of bits become strings of them."""
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List | pl.Array)]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join("") for name in lists)


def check_file(path: Path) -> None:
    """Raise ArmsError unless there is such a file."""
    try:
        if path.is_file():
            return
    except (OSError, ValueError):  # a name that the system does not take
        pass
    raise ArmsError(f"there is no file {path!s:.200}; the path must be that of a file")


def check_lengths(path: Path, frame: pl.DataFrame) -> None:
    """Raise ArmsError where a text is longer than a cell may be: to read what it means would take
    long."""
    lengths = frame.select(pl.col(pl.String).str.len_bytes().max().fill_null(0))
    for name, longest in lengths.row(0, named=True).items() if lengths.width else ():
        if longest > LONGEST_CELL:
            raise ArmsError(
                f"cannot read {path}: column {{column!r}} has a text of {longest:,} bytes, of at "
                f"most {LONGEST_CELL:,}",
                "check for a quote that is not closed",
                column=name,
            )


def said_by(error: BaseException) -> str:
    """The message of another library, without its advice."""
    return " ".join(str(error).split("\n\n")[0].split())


def _unpacked(path: Path) -> Source:
    """The path itself, or the content of a gzipped file; ArmsError if that is damaged or too
    large."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        for mark, what in OTHER_FILES.items():
            if start.startswith(mark):
                raise ArmsError(f"cannot read {path}: it is {what}")
        if not start.startswith(b"\x1f\x8b"):  # gzip
            return path
        # Twice through the file, so that one that holds too much takes no memory.
        size = 0
        most = min(MOST_UNPACKED, max(SMALL, PACKED * path.stat().st_size))
        for piece in _pieces(path):
            size += len(piece)
            if size > most:
                raise ArmsError(
                    f"cannot read {path}: it holds more than {most:,} bytes, the most that is "
                    "unpacked of such a file; where that is right, unpack it first (`gunzip`): a "
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


def _pieces(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as file:
        while piece := file.read(BYTES_AT_ONCE):
            yield piece


def _as_utf8(path: Path, source: Source) -> Source:
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
    try:
        with _opened(source) as file:
            while file.read(BYTES_AT_ONCE):
                pass
    except UnicodeDecodeError:
        return False
    return True


def _opened(source: Source) -> IO[str]:
    """The text to read line by line."""
    # "utf-8-sig" drops the mark that spreadsheets put at the beginning.
    return io.TextIOWrapper(_binary(source), encoding="utf-8-sig", newline="")


def _binary(source: Source) -> IO[bytes]:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
