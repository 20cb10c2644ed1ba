"""Workbooks: the first sheet that has cells, read as text; and tables written as one."""

from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from manyarms.errors import ArmsError
from manyarms.sheets.csvfiles import Cells, said_by, without_lists

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
    fastexcel = _needed("fastexcel", path)
    try:
        book = fastexcel.read_excel(path)
        names = book.sheet_names
        if name is not None and name not in names:
            raise ArmsError(
                f"{path} has no sheet {name!r}; it has {', '.join(map(repr, names))[:300]}"
            )
        for each in names if name is None else [name]:
            # From the first row on, whether empty or not, so that rows keep their numbers.
            sheet = book.load_sheet(each, header_row=None, skip_rows=0, dtypes="string")
            cells = sheet.to_polars()
            is_filled = cells.select(pl.any_horizontal(pl.all().str.strip_chars() != ""))
            filled = is_filled.to_series().arg_true().to_list() if cells.width else []
            place = filled[0] if filled else len(cells)
            if filled and (place + 1 < len(cells) or name is not None):
                return Cells(cells.slice(place), place + 1, ",", NUMBER)
    except (OSError, ValueError, fastexcel.FastExcelError) as error:
        if isinstance(error, ArmsError):
            raise
        raise ArmsError(
            f"cannot read {path}: {said_by(error).splitlines()[0]:.200}; save it as .xlsx or CSV"
        ) from error
    raise ArmsError(f"cannot read {path}: it needs a sheet with a header and a row below it")


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
    try:
        return import_module(library)
    except ImportError as error:
        raise ArmsError(
            f"{path} is a workbook, which needs {library}: `pip install 'manyarms[excel]'`; or use "
            "a CSV file"
        ) from error
