"""The table in a file as people keep it, a CSV file, a workbook or a Parquet file: with types, and
with the numbers of its rows. And workbooks: the first sheet that has cells, read as text; and
tables written as one."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.checks import needed
from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.runtime.foreign import is_parquet, read_cells, read_parquet
from manyarms.sheets.csvfiles import (
    Cells,
    check_file,
    check_lengths,
    read_csv,
    unmarked,
    unmarked_name,
    without_lists,
)
from manyarms.sheets.forked import check_threads
from manyarms.sheets.numerals import DECIMALS, as_whole, column_numbers, decimal_in, is_blank
from manyarms.typing import Indices, Mask

READ = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
"""Endings of the names of workbooks that can be read."""
WRITTEN = ".xlsx"
"""Ending of the names of workbooks that can be written."""
NUMBER = r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$"
"""A cell that holds a number, as text: it has a point, whatever the spreadsheet shows."""


def is_workbook(path: Path) -> bool:
    """Whether the name ends as that of a workbook."""
    return path.suffix.lower() in READ


def sheet_in(path: Path) -> tuple[Path, str | None]:
    """The workbook and the sheet that plan.xlsx#Runs names; the path as it is where it is a file,
    or names none."""
    name, mark, sheet = path.name.rpartition("#")
    if not mark or not is_workbook(Path(name)) or path.exists():
        return path, None
    return path.with_name(name), sheet


def read_workbook(path: Path, name: str | None = None) -> Cells:
    """A sheet of a workbook, by its name, or the first one that has a header and a row below it.
    The header is its first row with cells."""
    _needed("fastexcel", path)
    cells, place = read_cells(path, name)
    return Cells(cells, place + 1, ",", NUMBER)


def write_workbook(frame: pl.DataFrame, path: Path, mixed: str = "") -> None:
    """A workbook of one sheet. Text stays text, whatever it begins with; in the column `mixed` it
    is a number where it can be one."""
    xlsxwriter = _needed("xlsxwriter", path)
    # Without these, text such as =1+1 or http://… would become a formula or a link.
    options = dict.fromkeys(("strings_to_formulas", "strings_to_urls"), False)
    with xlsxwriter.Workbook(str(path), {**options, "strings_to_numbers": False}) as book:
        sheet = book.add_worksheet()
        bold = book.add_format({"bold": True})
        for column, series in enumerate(without_lists(frame)):
            sheet.write_string(0, column, series.name, bold)
            cells = series.to_list()
            if series.name == mixed and series.dtype == pl.String:
                numbers = series.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
                cells = [text if n is None else n for text, n in zip(cells, numbers, strict=True)]
            sheet.write_column(1, column, map(_as_cell, cells))
        sheet.freeze_panes(1, 0)
        sheet.autofit()


def _as_cell(value: Any) -> Any:
    """A truth value, or a number that float64 holds exactly, as it is; else its text."""
    is_number = isinstance(value, int | float) and abs(value) < 1e15
    return value if value is None or is_number else str(value)


def _needed(library: str, path: Path) -> Any:
    return needed(
        library,
        f"{path} is a workbook, which needs {library}: `pip install 'manyarms[excel]'`; or use a "
        "CSV file",
    )


class Sheet(NamedTuple):
    """A table that was read."""

    frame: pl.DataFrame
    rows: Indices  # the number of each row in the file, as spreadsheets count
    decimal: str  # the mark before fractions

    def some(self, kept: Mask) -> "Sheet":
        """Some of the rows."""
        return self._replace(frame=self.frame.filter(pl.Series(kept)), rows=self.rows[kept])


def read_sheet(
    path: Path, id: str | None, texts: set[str] | None, kept: set[str], decimal: str | None = None
) -> Sheet:
    """The table in a file; the ending of its name says of which kind it is.

    `texts` are read as strings, None: all columns; so is the id unless all are numbers written
    plainly. Of `kept`
    only plain numbers are read as such. The decimal mark is found where it is None.
    """
    if decimal not in (None, *DECIMALS):
        raise ParameterError(
            '{option} must be "." or ",", got {got}', option="decimal", got=decimal
        )
    check_threads()
    if is_parquet(path):
        check_file(path)
        frame = read_parquet(path)
        check_lengths(path, frame)
        if texts is None:
            frame = pl.DataFrame([_as_text(column) for column in frame])
        return Sheet(frame, np.arange(len(frame)), decimal or ".")
    book, name = sheet_in(path)
    check_file(book)
    cells = read_workbook(book, name) if is_workbook(book) else read_csv(path)
    frame = _named(path, cells)
    check_lengths(path, frame)
    texts = set(frame.columns) if texts is None else texts
    typed = [name for name in frame.columns if name not in texts and name != id]
    searched = [name for name in typed if name not in kept]
    found = _with_plain(frame, typed, decimal or ".", cells.number)
    if decimal is None:
        unclear = found.select(searched).select(pl.col(pl.String))
        if cells.number is not None:
            # Cells of text alone say which mark people use.
            is_text = ~pl.all().str.contains(cells.number)
            unclear = unclear.with_columns(pl.when(is_text).then(pl.all()).name.keep())
        decimal = decimal_in(unclear, cells.separator)
        found = _with_plain(frame, typed, ",", cells.number) if decimal == "," else found
    # A cell of blanks is as empty as one without; spreadsheets leave whole rows of them.
    left = pl.col(found.select(searched).select(pl.col(pl.String)).columns)
    found = found.with_columns(pl.when(left.str.strip_chars() != "").then(left).name.keep())
    is_filled = found.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    rows = cells.header_row + 1 + np.flatnonzero(is_filled.to_numpy())
    found = found.filter(is_filled)
    found = found.with_columns(_numbers_in(each, decimal) for each in found.select(left))
    # Ids are numbers only if each, written back, is the same text: "007" and "1.0" stay strings.
    if id is not None and id in found.columns and id not in texts:
        are_plain = found[id].str.contains(r"^(0|-?[1-9]\d{0,17})$").all()
        found = found.with_columns(pl.col(id).cast(pl.Int64)) if are_plain else found
    return Sheet(unmarked(found), rows, decimal)


def _as_text(column: pl.Series) -> pl.Series:
    cells = [None if each is None else str(each) for each in column.to_list()]
    return pl.Series(column.name, cells, pl.String)


def _with_plain(
    frame: pl.DataFrame, columns: list[str], decimal: str, number: str | None
) -> pl.DataFrame:
    """The table with types for columns that are truth values or plain numbers throughout."""
    if decimal == "," and number is not None:
        cell = pl.col(columns)
        with_commas = cell.str.replace(".", ",", literal=True)
        frame = frame.with_columns(
            pl.when(cell.str.contains(number)).then(with_commas).otherwise(cell).name.keep()
        )
    return frame.with_columns(_plain(frame[each], decimal) for each in columns)


def _plain(texts: pl.Series, decimal: str) -> pl.Series:
    """Truth values, or numbers without units and without marks between thousands; else the
    texts."""
    known = texts.drop_nulls()
    if not len(known) or are_bits(known):
        return texts
    if known[0].lower() in ("true", "false"):
        truths = texts.str.to_lowercase().replace_strict(
            ["true", "false"], [True, False], default=None, return_dtype=pl.Boolean
        )
        return truths if truths.null_count() == texts.null_count() else texts
    plain = texts
    if decimal == ",":
        has_point = texts.str.contains(".", literal=True)
        plain = texts.str.replace(",", ".", literal=True).set(has_point, None)
    whole = plain.cast(pl.Int64, strict=False)
    if whole.null_count() == texts.null_count():
        return whole
    numbers = plain.cast(pl.Float64, strict=False)
    # Only this spelling is a number everywhere: others are words for a missing one.
    numbers = numbers.set(numbers.is_nan() & (texts != "NaN"), None)
    return numbers if numbers.null_count() == texts.null_count() else texts


def _numbers_in(texts: pl.Series, decimal: str) -> pl.Series:
    """Strings as numbers where all are, without units, or stand for a missing one."""
    levels = texts.unique()
    distinct = levels.filter(~is_blank(levels))
    written = column_numbers(distinct, decimal)
    if not len(distinct) or written.numbers.null_count() or (written.units != "").any():
        return texts
    known = texts.filter(~is_blank(texts))
    # Of 0 and 1 alone, but a number: only if none begins with 0 and all fit 18 digits.
    if are_bits(texts.drop_nulls()) and (len(known[0]) > 18 or known.str.starts_with("0").any()):
        return texts
    # Whole numbers stay whole: float64 may round those of more than 15 digits.
    whole = texts.str.strip_chars().cast(pl.Int64, strict=False)
    if whole.count() == len(known):
        return whole
    numbers = column_numbers(texts, decimal).numbers
    # 1,200 is whole, and 80.0 was written as a number that need not be.
    has_fraction = known.str.contains(r"[.,]\d{0,2}$|[.,]\d{4,}|[eE]").any()
    return numbers if has_fraction else as_whole(numbers)


def are_bits(texts: pl.Series) -> bool:
    """Whether strings are bits: of 0 and 1 alone, equally long, not short."""
    lengths = texts.str.len_bytes()
    return (
        len(texts) > 0
        and lengths[0] >= 8  # shorter ones are codes, such as "01"
        and lengths.n_unique() == 1
        and bool(texts.str.contains("^[01]+$").all())
    )


def _named(path: Path, cells: Cells) -> pl.DataFrame:
    """The cells below the header, with the names in it: without blanks around them and without the
    apostrophe of formulas. An empty column without a name is left out."""
    below = cells.frame.slice(1)
    columns: dict[str, pl.Series] = {}
    for place, cell in enumerate(cells.frame.row(0)):
        name = unmarked_name((cell or "").strip())
        series = below.to_series(place).alias(name)
        if "\0" in name:
            raise ArmsError(f"cannot read {path}: it is no text, got bytes of 0 in the header")
        if name in columns:
            raise ArmsError(
                f"{path} must name its columns differently, also without blanks around names and "
                f"the apostrophe before = + - and @, got {shortened(name)} twice; rename one"
            )
        if name:
            columns[name] = series
        elif series.null_count() < len(series):
            # Nobody knows what these values are.
            raise ArmsError(
                f"{path} must name every column that has values, got "
                f"{series.drop_nulls()[0]:.40} in column {place + 1}, which has no name; name it, "
                "or empty it"
            )
    return pl.DataFrame(columns)
