"""Whether a file that is told is of this study: its cells are compared with the candidates."""

import math
from typing import Any

from manyarms.cli.app import InputError
from manyarms.sheets.numerals import DECIMALS, number_in

RELATIVE_TOLERANCE = 1e-6
"""Share of a number by which the same number in a file may differ: spreadsheets keep fifteen
digits, some of them fewer."""


def check_cells(
    where: str,
    id: Any,
    known: dict[str, Any],
    cells: dict[str, str | None],
    words: dict[str, dict[str, float]],
) -> None:
    """InputError where a row of a file has another value than the candidate of its id; `words` of a
    column stand for numbers."""
    for name, cell in cells.items():
        plain = (cell or "").strip()
        number = words.get(name, {}).get(plain.casefold())
        is_known = known[name] == number if number is not None else False
        if plain and not is_known and not is_same(known[name], plain):
            raise InputError(
                f"{where}: {name!r} of {id!r} is {known[name]!r} in this study, the file has "
                f"{plain[:60]!r}; tell the file to the study that it is of, or put that back"
            )


def is_same(known: Any, cell: str) -> bool:
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
    # A cell that shows 3.36 may stand for 3.357.
    _, _, fraction = cell.replace(",", ".").partition(".")
    digits = len(fraction) if fraction.isdecimal() else 0
    rounding = 0.5 * 10.0**-digits * (1 + RELATIVE_TOLERANCE) if digits else 0.0
    return any(
        math.isclose(one, other, rel_tol=RELATIVE_TOLERANCE, abs_tol=rounding)
        for one in ({float(known)} if not isinstance(known, str) else _numbers(known))
        for other in _numbers(cell)
    )


def _numbers(text: str) -> set[float]:
    """What a text may be as a number, with or without a unit: a sheet may have both decimal
    marks."""
    return {found[0] for mark in DECIMALS if (found := number_in(text, mark)) is not None}
