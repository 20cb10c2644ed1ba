"""CSV files as spreadsheets write them: separators, headers, and what is wrong with others."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from manyarms.errors import Advice, ArmsError
from manyarms.space.forked import check_threads
from manyarms.space.formulas import unmarked_name
from manyarms.space.reading import said_by
from manyarms.space.unpacking import Source, as_utf8, opened, unpacked

SEPARATORS = ",;\t|"
"""What may separate the columns of a CSV file; of equally likely separators the first one wins."""
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises if it cannot read a file."""
TYPED = 10_000
"""Rows of a CSV file from which its types are guessed; if that fails, all rows are used."""
DUPLICATE = re.compile(r"(.*)_duplicated_\d+", re.DOTALL)
"""What polars calls the second of two columns of one name."""


@dataclass(frozen=True)
class CsvFile:
    """A file and how it is laid out."""

    path: Path
    source: Source
    separator: str
    first_row: int  # of the rows below the header, as spreadsheets count
    has_long_lines: bool = False  # with nothing in what they have more than the header

    def strings(self, n_rows: int) -> pl.DataFrame:
        """The first rows, as text."""
        return self._read(infer_schema_length=0, n_rows=n_rows)

    def typed(self, as_strings: dict[str, Any], decimal: str) -> pl.DataFrame:
        """All rows, with types that polars guesses."""

        def read(length: int | None) -> pl.DataFrame:
            return self._read(
                infer_schema_length=length,
                schema_overrides=as_strings,
                decimal_comma=decimal == ",",
            )

        try:
            return read(TYPED)
        except ArmsError:
            # A row further down is of another type, or the file is broken: read it whole, to know.
            return read(None)

    def _read(self, **options: Any) -> pl.DataFrame:
        check_threads()
        try:
            return pl.read_csv(
                self.source,
                separator=self.separator,
                truncate_ragged_lines=self.has_long_lines,
                glob=False,
                **options,
            )
        except (OSError, *UNREADABLE) as error:
            if not self.has_long_lines and self._has_separators_at_line_ends():
                return replace(self, has_long_lines=True)._read(**options)
            raise self._unreadable(error) from error

    def _has_separators_at_line_ends(self) -> bool:
        """Whether lines are longer than the header by empty fields alone."""
        is_any = self.long_line(lambda surplus: True) is not None
        return is_any and not self.long_line(lambda surplus: any(map(str.strip, surplus)))

    def _unreadable(self, error: BaseException) -> ArmsError:
        """What is wrong with the file, and what to do about it."""
        long = None if isinstance(error, OSError) else self.long_line(lambda surplus: True)
        if long is not None:
            names = "1 column" if long.n_names == 1 else f"{long.n_names} columns"
            return ArmsError(
                f"cannot read {self.path}: its header names {names}, got {long.n_fields} fields in "
                f"line {long.number}",
                "quote fields that hold the separator",
                *(["delete the lines above the header"] if long.n_names == 1 else []),
            )
        by_frame = Advice("read it into a data frame for {}", "Pool.from_frame")
        said = f"cannot read {self.path}: {said_by(error)}"
        return ArmsError(said, "check what it holds", by_frame)

    def long_line(self, is_wanted: Callable[[list[str]], bool]) -> "LongLine | None":
        """The first line that has more fields than the header, with a wanted surplus."""
        with opened(self.source) as file:
            lines = csv.reader(file, delimiter=self.separator)
            try:
                n = len(next(lines, []))
                for row in lines:
                    if len(row) > n and is_wanted(row[n:]):
                        return LongLine(n, len(row), lines.line_num + self.first_row - 2)
            except csv.Error:  # a quote that is not closed
                pass
        return None


class LongLine(NamedTuple):
    """A line with more fields than the header has names, and its number in the file."""

    n_names: int
    n_fields: int
    number: int


def opened_csv(path: Path) -> CsvFile:
    """A file, its separator, and the line of its header."""
    source = as_utf8(path, unpacked(path))
    separator = None
    n_above = 0  # lines above the header
    with opened(source) as file:
        while header := file.readline(1 << 20):  # a file without line ends is not read whole
            hint = re.fullmatch(r"\"?sep=(.)\"?\s*", header, re.IGNORECASE)  # a spreadsheet's
            if hint:
                separator = hint[1]
            elif header.strip(f'{SEPARATORS}\r\n "'):
                break
            n_above += 1
        else:
            # Nothing but empty lines: what polars says about that is right.
            n_above = 0
    if n_above:
        text = source if isinstance(source, bytes) else source.read_bytes()
        source = text.split(b"\n", n_above)[-1]
    # Every other part of the header is inside quotes.
    bare = "".join(header.split('"')[::2])
    separator = separator or max(SEPARATORS, key=bare.count)
    return CsvFile(path, source, separator, first_row=2 + n_above)


def names_of(path: Path, columns: list[str]) -> dict[str, str]:
    """The names of columns, without blanks around them and without the apostrophe of formulas, by
    those that polars has; one without a name is left out."""
    _check_header(path, columns)
    names = {column: unmarked_name(column.strip()) for column in columns}
    named = {column: name for column, name in names.items() if name and not _has_no_name(column)}
    if len(set(named.values())) < len(named):
        raise ArmsError(
            f"{path} must name its columns differently, also without blanks around names and the "
            "apostrophe before = + - and @; rename one"
        )
    return named


def check_unnamed(path: Path, frame: pl.DataFrame, named: dict[str, str]) -> None:
    """Raise ArmsError if a column without a name has values: nobody knows what they are."""
    for place, column in enumerate(frame.columns):
        if column not in named and frame[column].null_count() < len(frame):
            value = frame[column].drop_nulls()[0]
            raise ArmsError(
                f"{path} must name every column that has values, got {value!r:.40} in column "
                f"{place + 1}, which has no name; name it, or empty it"
            )


def _has_no_name(column: str) -> bool:
    twice = DUPLICATE.fullmatch(column)
    return not column.strip() or (twice is not None and not twice[1].strip())


def _check_header(path: Path, columns: list[str]) -> None:
    if any("\0" in name for name in columns):
        raise ArmsError(f"cannot read {path}: it is no text, got bytes of 0 in the header")
    for name in columns:
        twice = DUPLICATE.fullmatch(name)
        if twice is not None and twice[1].strip() and twice[1] in columns:
            raise ArmsError(f"{path} must name its columns differently, got {twice[1]!r} twice")
