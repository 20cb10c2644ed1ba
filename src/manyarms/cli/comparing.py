"""Whether a file that is told is of this study: its cells are compared with the candidates."""

import math
import re
from typing import Any

from manyarms.cli.app import InputError

NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
SAME = 1e-6
"""Of a number: how far that in a file may be off. Spreadsheets keep fifteen digits, some fewer."""


def check_cells(
    where: str, id: Any, known: dict[str, Any], cells: dict[str, str | None], decimal: str
) -> None:
    """InputError where a row of a file has another value than the candidate of its id."""
    for name, cell in cells.items():
        if cell is not None and cell.strip() and not is_same(known[name], cell.strip(), decimal):
            raise InputError(
                f"{where}: {name!r} of {id!r} is {known[name]!r} in this study, the file has "
                f"{cell.strip()[:60]!r}; tell the file to the study that it is of, or put that back"
            )


def is_same(known: Any, cell: str, decimal: str) -> bool:
    """Whether a cell says what a candidate has, as far as a spreadsheet leaves it alone: that
    shortens numbers, writes TRUE for true, and takes 007 for 7."""
    if known is None:
        return False
    # Dates are written in as many ways as there are countries; lists of bits lose their zeros.
    if not isinstance(known, str | int | float):
        return True
    if cell.casefold() == str(known).strip().casefold():
        return True
    if isinstance(known, bool):
        return cell == str(int(known))
    one, other = _number(str(known), decimal), _number(cell, decimal)
    if one is None or other is None:
        return False
    # A cell that shows 3.36 may stand for 3.357.
    _, _, fraction = cell.replace(",", ".").partition(".")
    digits = len(fraction) if fraction.isdecimal() else 0
    rounding = 0.5 * 10.0**-digits * (1 + SAME) if digits else 0.0
    return math.isclose(one, other, rel_tol=SAME, abs_tol=rounding)


def _number(text: str, decimal: str) -> float | None:
    """A number, None where the text is none."""
    plain = text.strip().replace(",", ".") if decimal == "," else text.strip()
    return float(plain) if re.fullmatch(NUMBER, plain) else None
