"""Sheets as people keep them, CSV files and workbooks, as typed tables with their row numbers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from manyarms.errors import ParameterError
from manyarms.space.csvfiles import check_unnamed, names_of, opened_csv
from manyarms.space.formulas import unmarked
from manyarms.space.numerals import DECIMALS, column_numbers, decimal_in, is_blank
from manyarms.space.unpacking import check_file
from manyarms.space.values import is_bits
from manyarms.space.workbooks import is_workbook, read_workbook, sheet_in
from manyarms.typing import Indices, Mask

SAMPLED = 100
"""Rows looked at for strings of bits, before polars guesses types: it would take them for large
numbers."""


NUMBER_CELL = r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"
"""A cell of a workbook that holds a number, as text."""


class Sheet(NamedTuple):
    """A table that was read."""

    frame: pl.DataFrame
    rows: Indices  # the number of each row in the file, as spreadsheets count
    decimal: str  # the mark before fractions

    def some(self, kept: Mask) -> "Sheet":
        """Some of the rows."""
        return self._replace(frame=self.frame.filter(pl.Series(kept)), rows=self.rows[kept])


def read_sheet(
    path: Path, id: str | None, texts: set[str], kept: set[str], decimal: str | None = None
) -> Sheet:
    """The table in a CSV file, or in a workbook.

    `texts` are read as strings, as is the id unless all are numbers written plainly; `kept` are not
    searched for numbers. The decimal mark is found where it is None.
    """
    if decimal not in (None, *DECIMALS):
        raise ParameterError(
            '{option} must be "." or ",", got {got}', option="decimal", got=decimal
        )
    as_text = texts | ({id} if id is not None else set())
    book, name = sheet_in(path)
    check_file(book)
    if is_workbook(book):
        sheet = _from_workbook(book, name, as_text, kept, decimal)
    else:
        sheet = _from_csv(path, as_text, kept, decimal)
    frame = sheet.frame
    # Ids are numbers only if each, written back, is the same text: "007" and "1.0" stay strings.
    if (
        id is not None
        and id in frame.columns
        and id not in texts
        and frame[id].str.contains(r"^(0|-?[1-9]\d{0,17})$").all()
    ):
        frame = frame.with_columns(pl.col(id).cast(pl.Int64))
    return sheet._replace(frame=unmarked(frame))


def _from_csv(path: Path, texts: set[str], kept: set[str], decimal: str | None) -> Sheet:
    file = opened_csv(path)
    # All as strings first: "0101" read as a number has lost its zeros.
    sample = file.strings(SAMPLED)
    named = names_of(path, sample.columns)
    bits = {name for column, name in named.items() if _are_bits(sample[column])} - texts
    as_strings = {
        column: pl.String() for column, name in named.items() if name in texts or name in bits
    }

    def typed(mark: str) -> pl.DataFrame:
        frame = file.typed(as_strings, mark)
        check_unnamed(path, frame, named)
        return frame.select(pl.col(column).alias(name) for column, name in named.items())

    frame = typed(decimal or ".")
    if decimal is None:
        searched = _searched(frame, texts | kept)
        decimal = decimal_in(searched, file.separator)
        if decimal == ",":
            # 1.200 was read as 1.2, and is text now: it divides thousands.
            frame = typed(decimal)
    return _typed(frame, file.first_row, texts | kept, bits, decimal)


def _from_workbook(
    path: Path, name: str | None, texts: set[str], kept: set[str], decimal: str | None
) -> Sheet:
    cells = read_workbook(path, name)
    named = names_of(path, cells.frame.columns)
    check_unnamed(path, cells.frame, named)
    frame = cells.frame.select(pl.col(column).alias(name) for column, name in named.items())
    bits = {name for name in frame.columns if _are_bits(frame[name].head(SAMPLED))} - texts
    # Cells that hold numbers have points in them, whatever the spreadsheet shows: cells of text
    # alone say which mark people use.
    searched = _searched(frame, texts | kept)
    written = [each.filter(~each.str.contains(NUMBER_CELL).fill_null(True)) for each in searched]
    decimal = decimal_in(written, ",") if decimal is None else decimal
    if decimal == ",":
        frame = frame.with_columns(_with_commas(each) for each in searched)
    return _typed(frame, cells.header_row + 1, texts | kept, bits, decimal)


def _typed(
    frame: pl.DataFrame, first_row: int, kept: set[str], bits: set[str], decimal: str
) -> Sheet:
    """Without empty rows, and with numbers where text is numbers."""
    # A cell of blanks is as empty as one without; spreadsheets leave whole rows of them.
    searched = pl.col([each.name for each in _searched(frame, kept)])
    frame = frame.with_columns(pl.when(searched.str.strip_chars() != "").then(searched).name.keep())
    is_filled = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    rows = first_row + np.flatnonzero(is_filled.to_numpy())
    frame = frame.filter(is_filled)
    frame = frame.with_columns(
        _numbers_in(each, each.name in bits, decimal) for each in _searched(frame, kept)
    )
    return Sheet(frame, rows, decimal)


def _searched(frame: pl.DataFrame, kept: set[str]) -> list[pl.Series]:
    return [each for each in frame if each.dtype == pl.String and each.name not in kept]


def _are_bits(texts: pl.Series) -> bool:
    known = texts.drop_nulls()
    return len(known) > 0 and is_bits(known)


def _with_commas(cells: pl.Series) -> pl.Series:
    """Cells of a workbook, numbers written with a decimal comma as the others are."""
    is_number = cells.str.contains(NUMBER_CELL).fill_null(False)
    return cells.str.replace(".", ",", literal=True).zip_with(is_number, cells)


def _numbers_in(texts: pl.Series, may_be_bits: bool, decimal: str) -> pl.Series:
    """Strings as numbers where all are, without units, or stand for a missing one; those of bits
    begin with 0 somewhere, or are long."""
    levels = texts.unique()
    distinct = levels.filter(~is_blank(levels))
    written = column_numbers(distinct, decimal)
    if not len(distinct) or written.numbers.null_count() or (written.units != "").any():
        return texts
    known = texts.filter(~is_blank(texts))
    # Of 0 and 1 alone, but a number: only if none begins with 0 and all fit 18 digits.
    if may_be_bits and is_bits(known) and (len(known[0]) > 18 or known.str.starts_with("0").any()):
        return texts
    # Whole numbers stay whole: float64 may round those of more than 15 digits.
    whole = texts.str.strip_chars().cast(pl.Int64, strict=False)
    if whole.null_count() == len(texts) - len(known):
        return whole
    numbers = column_numbers(texts, decimal).numbers
    # 1,200 is whole, and 80.0 was written as a number that need not be.
    has_fraction = known.str.contains(r"[.,]\d{0,2}$|[.,]\d{4,}|[eE]").any()
    are_whole = not has_fraction and bool((numbers == numbers.round()).all())
    return numbers.cast(pl.Int64) if are_whole else numbers
