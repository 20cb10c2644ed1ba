"""Results in files: which they are, and whether the file is of this study."""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from manyarms.cli.app import InputError
from manyarms.cli.output import count
from manyarms.cli.output import note as remark
from manyarms.cli.tables import (
    BESIDE,
    as_noise,
    as_value,
    free,
    id_name,
    note_name,
    unit_of,
    value_name,
)
from manyarms.cli.typed import NUMBER
from manyarms.errors import ArmsError, UnknownArmError
from manyarms.sheets.numerals import DECIMALS, number_in
from manyarms.sheets.reading import Sheet, is_workbook, read_sheet
from manyarms.space.box import Choice, NumericLevels, Side
from manyarms.space.points import NewPoint, Space
from manyarms.space.spelling import is_remarks_name
from manyarms.study.arguments import LONGEST_NOTE

EITHER = ".,"
"""The decimal mark of workbooks: numbers have points in them, and text may have commas."""
DATE = re.compile(r"\s*\d{1,4}[-./ ]\w{1,9}[-./ ]\d{1,4}(?!\w)")
"""What begins so is a date."""
CUT = 1e-6
"""Share of a number, or of a range, by which the same number in a file may differ: spreadsheets
keep fifteen digits, some of them fewer."""


class Row(NamedTuple):
    """A result in a file."""

    id: Any  # a number of a box, or a NewPoint
    value: Any  # a float, or FAILED
    batch: int = 0  # the number of the last event when it was suggested; 0 where nobody says
    noise: float | None = None  # standard deviation of the value, where the file says it
    note: str | None = None


class Told(NamedTuple):
    """What a file says: results, and how many rows have no value yet."""

    rows: list[Row]
    n_empty: int


class Line(NamedTuple):
    """A line of a file, as text."""

    where: str
    id: str | None
    value: str | None
    noise: str | None
    batch: str | None
    note: str | None
    cells: dict[str, str | None]  # of the columns of candidates that the file has
    others: dict[str, str]  # what stands in columns that nobody knows, and is kept beside the note


def results_in(
    path: Path,
    pool: Space,
    value: str | None,
    noise: str | None,
    decimal: str | None,
    again: bool = False,
) -> Told:
    """The results in a CSV file or a workbook; `value` and `noise` are the names of columns, where
    they are not the usual ones. Copies of rows count only where all rows are to count `again`."""
    for option, name in (("--value", value), ("--noise", noise)):
        if name is not None and pool.columns.get(name, "ignore") not in ("ignore", "text"):
            raise InputError(
                f"{option} names {name!r}, which is a column of the candidates; give the column "
                "of results"
            )
    mark = decimal or (EITHER if is_workbook(path) else pool.decimal)
    batch = free("batch", pool)
    names = [
        id_name(pool),
        value or value_name(pool),
        noise or free("noise", pool),
        batch,
        note_name(pool),
    ]
    sheet = _read(path, names, pool)
    there = sheet.frame.columns
    needed = [names[1], *([noise] if noise else [])]
    if not _has_points(sheet, pool):
        needed = [names[0], *needed]
    if not set(needed) <= set(there):
        instead = f" (or in place of {names[0]!r} all columns of the box)" if pool.box else ""
        raise InputError(
            f"{path} must have the columns {' and '.join(map(repr, needed))}{instead}, "
            f"got {', '.join(map(repr, there))[:300]}; --value names another column of values"
        )
    lines = _lines(path, sheet, names, pool)
    # The sheet that a study was made of, told again: its rows may be further trials.
    is_own = pool.target is not None and batch not in there
    told = []
    kept: dict[str, None] = {}
    lost: dict[str, None] = {}
    n_waiting = 0
    for id, line in zip(_ids_in(lines, pool, names[0], mark, is_own), lines, strict=True):
        note, cut = _note_of(line)
        if _is_blank(line.value):
            n_waiting += note is not None
            continue
        place = f"{line.where} ({id!r})"
        number = as_value(line.value or "", mark, place, unit_of(pool))
        sd = as_noise(line.noise, mark, place)
        told.append(Row(id, number, _batch(line.batch, line.where, batch), sd, note))
        kept |= dict.fromkeys(name for name in line.others if name not in cut)
        lost |= dict.fromkeys(cut)
    n_empty = len(lines) - len(told)
    distinct = list(dict.fromkeys(told)) if is_own and not again else told
    for is_so, sentence in (
        (kept, f"kept in the notes of the results: {_listed(kept)}"),
        (lost, f"left out, as a note has {LONGEST_NOTE:,} characters at most: {_listed(lost)}"),
        (n_waiting, f"left out the notes of {count(n_waiting, 'row')} without a value"),
        (
            len(distinct) < len(told),
            f"left out {count(len(told) - len(distinct), 'row')}: all that counts is that of a row "
            "above; --again would count them as replicates",
        ),
    ):
        if is_so:
            remark(sentence)
    return Told(distinct, n_empty)


def _note_of(line: Line) -> tuple[str | None, list[str]]:
    """The note of a line, with what stands in columns that nobody knows behind it; and the names of
    those for which there is no room."""
    note = (line.note or "").strip()
    cut = []
    for name, text in line.others.items():
        more = f"{note}; {name}: {text}" if note else f"{name}: {text}"
        if len(more) > LONGEST_NOTE:
            cut.append(name)
        else:
            note = more
    return note or None, cut


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))[:300]


def points_in(path: Path, pool: Space, decimal: str | None) -> list[Any]:
    """The points that a file names, by their numbers or by all their columns."""
    name = id_name(pool)
    sheet = _read(path, [name], pool)
    if name not in sheet.frame.columns and not _has_points(sheet, pool):
        raise InputError(
            f"{path} must have the column {name!r} or all columns of the box, got "
            f"{', '.join(map(repr, sheet.frame.columns))[:300]}; add them"
        )
    lines = _lines(path, sheet, [name, "", "", "", ""], pool)
    return [_point_in(line, pool, decimal or ".") for line in lines]


def _read(path: Path, names: list[str], pool: Space) -> Sheet:
    """A file, all as text: numbers are read later, where an error can name the row."""
    return read_sheet(path, names[0], None, set())


def _has_points(sheet: Sheet, pool: Space) -> bool:
    """Whether a table has all columns of a box."""
    return pool.box is not None and set(pool.names) <= set(sheet.frame.columns)


def _lines(path: Path, sheet: Sheet, names: list[str], pool: Space) -> list[Line]:
    """The lines of a table that are not empty, given the names of their columns."""
    frame = sheet.frame
    there = set(frame.columns)
    columns = [each for each in pool.names if each in there and each not in names]
    if pool.box is not None:
        columns = pool.names
    written = [{free(name, pool) for name in group} for group in BESIDE]
    known = {*names, *columns}.union(*(group for group in written if group <= there))
    others = [name for name in frame.columns if name not in known]
    cells = [
        frame[name].to_list() if name in there else [None] * len(frame)
        for name in (*names, *columns, *others)
    ]
    found = []
    n_lost = 0
    for row, id, value, noise, batch, note, *rest in zip(sheet.rows, *cells, strict=True):
        of_pool = dict(zip(columns, rest, strict=False))
        more = zip(others, rest[len(columns) :], strict=True)
        unknown = {name: cell.strip() for name, cell in more if not _is_blank(cell)}
        # Spreadsheets leave rows in which nothing is filled in.
        filled = (id, value, *(of_pool.values() if pool.box is not None else ()))
        if any(cell is not None for cell in filled):
            where = f"{path}, row {row}"
            found.append(Line(where, id, value, noise, batch, note, of_pool, unknown))
        else:
            n_lost += 1
    if n_lost:
        remark(f"left out {count(n_lost, 'row')} without an id and a value")
    return found


def _ids_in(lines: list[Line], pool: Space, name: str, decimal: str, is_own: bool) -> list[Any]:
    """The candidates of lines; an error names the first line whose candidate is not there, or has
    other columns."""
    if pool.box is not None:
        # A row without a value is skipped, so it need not name a point.
        return [None if _is_blank(line.value) else _point_in(line, pool, decimal) for line in lines]
    for line in lines:
        if line.id is None:
            value = (line.value or "")[:60]
            raise InputError(f"{line.where}: a value {value!r} without an id; fill in {name!r}")
    ids = pool.ids_of([line.id or "" for line in lines])
    try:
        rows = pool.rows(ids)
    except UnknownArmError as error:
        where = lines[ids.index(error.fields["id"])].where
        raise UnknownArmError(f"{where}: {error}") from None
    for line, row in zip(lines, rows, strict=True):
        line.others.update(_differing(line, row, pool, is_own))
    return ids


def _is_blank(text: str | None) -> bool:
    return text is None or not text.strip()


def _batch(text: str | None, where: str, name: str) -> int:
    if text is None or _is_blank(text):
        return 0
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
        raise InputError(
            f"{where}: {name!r} must be the number that suggest wrote, got {text[:60]!r}; leave "
            "it as it was"
        )
    return int(text)


# Whether a file is of this study


def _differing(
    line: Line, known: dict[str, Any], pool: Space, is_own: bool
) -> Iterator[tuple[str, str]]:
    """The remarks in columns of the candidates: what was filled in where a column that is not used
    was empty, is meant for remarks, or is that of another trial. InputError where a line has
    another value than the candidate of its id."""
    for name, cell in line.cells.items():
        plain = (cell or "").strip()
        number = pool.words.get(name, {}).get(plain.casefold())
        is_known = known[name] == number if number is not None else False
        if not plain or is_known or is_same(known[name], plain):
            continue
        if name not in pool.unused or not (known[name] is None or is_own or is_remarks_name(name)):
            raise InputError(
                f"{line.where}: {name!r} of {line.id!r} is {known[name]!r} in this study, the file "
                f"has {plain[:60]!r}; tell the file to the study that it is of, or put that back"
            )
        yield name, plain


def is_same(known: Any, cell: str) -> bool:
    """Whether a cell says what a candidate has, as far as a spreadsheet leaves it alone: that
    shortens numbers, writes TRUE for true, and takes 007 for 7."""
    if known is None:
        return False
    # Dates are written in as many ways as there are countries; lists of bits lose their zeros.
    if not isinstance(known, str | int | float) or (DATE.match(cell) and DATE.match(str(known))):
        return True
    if cell.casefold().split() == str(known).casefold().split():
        return True
    if isinstance(known, bool):
        return cell == str(int(known))
    # A cell that shows 3.36 may stand for 3.357.
    _, _, fraction = cell.replace(",", ".").partition(".")
    digits = len(fraction) if fraction.isdecimal() else 0
    rounding = 0.5 * 10.0**-digits * (1 + CUT) if digits else 0.0
    return any(
        math.isclose(one, other, rel_tol=CUT, abs_tol=rounding)
        for one in ({float(known)} if not isinstance(known, str) else _numbers(known))
        for other in _numbers(cell)
    )


def _numbers(text: str) -> set[float]:
    """What a text may be as a number, with or without a unit: a sheet may have both decimal
    marks."""
    return {found[0] for mark in DECIMALS if (found := number_in(text, mark)) is not None}


def _point_in(line: Line, pool: Space, decimal: str) -> Any:
    """Which point of a box a line is about: its number, or the values of one that is new.

    A line that has both must be of one point: what was suggested was not tried where they differ.
    """
    columns = pool.box.columns if pool.box else ()
    given = [
        None if cell is None or not cell.strip() else _cell(line.where, column, cell, decimal)
        for column, cell in zip(columns, line.cells.values(), strict=True)
    ]
    if line.id is not None and line.id.strip():
        points = pool.ids_of([line.id])
        (known,) = pool.rows(points)
        for column, value in zip(columns, given, strict=True):
            if value is not None and not _is_same_side(column, value, known[column.name]):
                raise InputError(
                    f"{line.where}: {column.name!r} of point {line.id.strip()} is "
                    f"{known[column.name]!r}, the file has {value!r}; put that back, or leave the "
                    "id empty where another point was tried"
                )
    else:
        lacking = [name for name, value in zip(line.cells, given, strict=True) if value is None]
        if lacking:
            raise InputError(
                f"{line.where}: neither an id nor a value of {lacking[0]!r}; a point is told by "
                "its number, or by all its columns"
            )
        points = pool.ids_of([NewPoint(given)])
    (label,) = pool.labels(points)  # one that is told by its columns may be known
    return label


def _cell(where: str, column: Side, cell: str, decimal: str) -> Any:
    """A value of a column as it stands in a file."""
    text: Any = cell.strip()
    if isinstance(column, Choice):
        for level in column.levels:
            if text in (str(level), "" if level is None else None):
                return level
    else:
        plain = text.replace(",", ".") if decimal == "," else text
        if re.fullmatch(NUMBER, plain):
            number = float(plain)
            if isinstance(column, NumericLevels):
                text = _level(column, number)
            else:
                # A spreadsheet may write 5 as 5.0.
                text = int(number) if column.whole and number == round(number) else number
    try:
        return column.check(text)
    except ArmsError as error:
        raise InputError(f"{where}: {error}") from None


def _level(column: NumericLevels, number: float) -> float:
    """The level that a number is up to its last digits, which a file may lack; else the number."""
    nearest = min(column.levels, key=lambda level: abs(level - number))
    return nearest if math.isclose(nearest, number, rel_tol=CUT) else number


def _is_same_side(column: Side, value: Any, known: Any) -> bool:
    if isinstance(column, Choice):
        return bool(value == known)
    # On the scale of the column, of logarithms too: SAME is a share of the range.
    one, other = column.encode([value, known])
    return bool(abs(one - other) <= CUT)
