"""Tables between a study and a spreadsheet: candidates out, results in."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from manyarms.campaign.trials import FAILED, CandidateId, Trial
from manyarms.cli.app import InputError
from manyarms.cli.boxes import NumberedPoints
from manyarms.cli.comparing import check_cells
from manyarms.cli.output import count, note
from manyarms.errors import UnknownArmError
from manyarms.sheets.csvfiles import write_csv
from manyarms.sheets.numerals import number_in
from manyarms.sheets.reading import Sheet, read_sheet
from manyarms.sheets.workbooks import WRITTEN, is_workbook, write_workbook
from manyarms.space.outcomes import FAILURES
from manyarms.space.pool import Pool, new_levels
from manyarms.space.stored import described
from manyarms.study import Event, Study

EITHER = ".,"
"""The decimal mark of workbooks: numbers have points in them, and text may have commas."""


class Row(NamedTuple):
    """A result in a file."""

    id: CandidateId
    value: Any  # a float, or FAILED
    batch: int  # the number of the last event when it was suggested; 0 where the file does not say
    noise: float | None  # standard deviation of the value, where the file says it
    note: str | None = None


class Line(NamedTuple):
    """A line of a file, as text."""

    where: str
    id: str | None
    value: str | None
    noise: str | None
    batch: str | None
    note: str | None
    point: tuple[str | None, ...]  # the columns of a box, or those of a table that the file has


CELLS = len(Line._fields) - 2
"""Cells of a line that are neither its place nor columns of a candidate."""


class Told(NamedTuple):
    """What a file says: results, and how many rows have no value yet."""

    rows: list[Row]
    n_empty: int


Listed = Pool | NumberedPoints
"""What a study chooses among, as it is listed."""


def own_id(pool: Listed) -> str | None:
    """The column of ids that a table came with."""
    return None if isinstance(pool, NumberedPoints) else described(pool)["id"]


def id_name(pool: Listed) -> str:
    """Of the column of ids in files; pools without one have the row numbers as "id"."""
    return own_id(pool) or free("id", pool)


def value_name(pool: Listed) -> str:
    """Of the column to be filled in: the target, where the table has one."""
    target = None if isinstance(pool, NumberedPoints) else pool.target
    return target or free("value", pool)


def decimal_of(pool: Listed, decimal: str | None) -> str:
    """The mark before fractions: the one given, else that of the table of candidates."""
    return decimal or ("." if isinstance(pool, NumberedPoints) else pool.decimal)


def unit_of(pool: Listed) -> str:
    """The unit of the values: the table of candidates has it behind them, or in the name of the
    column, such as yield (%)."""
    if isinstance(pool, NumberedPoints) or pool.target is None:
        return ""
    in_name = re.search(r"[(\[/]\s*([^()\[\]]+?)\s*[)\]]?$", pool.target)
    return pool.units.get(pool.target) or (in_name[1] if in_name else "")


def goal(study: Study) -> str:
    """What a study is after, such as "maximize yield"."""
    target = getattr(study.pool, "target", None)
    return f"{study.direction} {target or 'the value'}"


def unused(pool: Listed) -> dict[str, str]:
    """The columns that are no features, and why."""
    return {} if isinstance(pool, NumberedPoints) else pool.unused


def not_used(pool: Listed) -> list[str]:
    """A line for people that names the columns that are no features, where there are any."""
    listed = "; ".join(f"{name} ({why})" for name, why in unused(pool).items())
    return [f"NOT USED: {listed}."] if listed else []


def noise_name(pool: Listed) -> str:
    """Of the column of standard deviations, which may be missing."""
    return free("noise", pool)


def batch_name(pool: Listed) -> str:
    """Of the column that says when a candidate was suggested."""
    return free("batch", pool)


def note_name(pool: Listed) -> str:
    """Of the column of remarks, which may be missing: the table's, where it has one."""
    own = None if isinstance(pool, NumberedPoints) else pool.remarks
    return own or free("note", pool)


def free(name: str, pool: Listed) -> str:
    """A name that no column of the table has."""
    while name in pool.names or name == own_id(pool):
        name += "_"
    return name


def as_ids(pool: Listed, texts: list[str]) -> list[CandidateId]:
    """Ids as they are typed, in the type that the pool has; UnknownArmError where one is not
    there."""
    ids = typed_ids(pool, texts)
    # Called for its error.
    pool.positions(ids)
    return ids


def typed_ids(pool: Listed, texts: list[str]) -> list[Any]:
    """Ids in the type that the pool has, whether they are there or not; those that a spreadsheet
    took for numbers, 001 for 1, are as they were."""
    if isinstance(pool, NumberedPoints) or pool.ids.dtype != object:
        return [_number(text) for text in texts]
    return [pool.parts.ids.meant(text) or text for text in texts]


def _number(text: str) -> int | str:
    # So many digits always fit int64.
    found = re.fullmatch(r"(-?\d{1,18})(\.0*)?", text.strip(), re.ASCII)
    return int(found[1]) if found else text


def as_value(text: str, decimal: str, where: str, unit: str = "") -> Any:
    """A value as it is typed, with or without its unit: a float, or FAILED."""
    plain = text.strip()
    if plain.lower() in FAILURES:
        return FAILED
    number = _typed(plain, decimal, unit)
    if number is None:
        raise InputError(
            f"{where}: a value must be a finite number or `failed`, got {plain[:60]!r}; "
            + _advice(plain, decimal, "correct it; in a file, leave it empty until it is known")
        )
    return number


def as_noise(text: str | None, decimal: str, where: str) -> float | None:
    """A standard deviation as it is typed; None where nothing is."""
    plain = (text or "").strip()
    if not plain:
        return None
    number = _typed(plain, decimal)
    if number is None or number < 0:
        raise InputError(
            f"{where}: noise must be a standard deviation, a finite number of 0 or more, got "
            f"{plain[:60]!r}; "
            + _advice(plain, decimal, "correct it; in a file, leave it empty where it is not known")
        )
    return number


def _typed(plain: str, decimal: str, unit: str = "") -> float | None:
    """A number as it is typed, None where it is none."""
    for mark in decimal:
        # A mark that is not the decimal one may divide thousands, or be a mistake: it is refused.
        other = "," if mark == "." else "."
        found = None if other in plain else number_in(plain, mark)
        if found is not None and found[1] in ("", unit):
            return found[0]
    return None


def _advice(plain: str, decimal: str, otherwise: str) -> str:
    for mark in (".", ","):
        if mark in plain and mark not in decimal:
            return f'give --decimal "{mark}" where that is the mark'
    return otherwise


def results_in(
    path: Path, pool: Listed, value: str | None, noise: str | None, decimal: str | None
) -> Told:
    """The results in a CSV file or a workbook; `value` and `noise` are the names of columns, where
    they are not the usual ones."""
    for option, name in (("--value", value), ("--noise", noise)):
        if name is not None and pool.columns.get(name, "ignore") not in ("ignore", "text"):
            raise InputError(
                f"{option} names {name!r}, which is a column of the candidates; give the column "
                "of results"
            )
    decimal = EITHER if is_workbook(path) and not decimal else decimal_of(pool, decimal)
    names = [
        id_name(pool),
        value or value_name(pool),
        noise or noise_name(pool),
        batch_name(pool),
        note_name(pool),
    ]
    is_box = isinstance(pool, NumberedPoints)
    # All as text: numbers are read below, where an error can name the row.
    texts = {*names, *pool.names}
    sheet = read_sheet(path, names[0], texts, texts)
    frame = sheet.frame
    unused = {} if isinstance(pool, NumberedPoints) else pool.unused
    there = [
        name
        for name in pool.names
        if name in frame.columns and name not in names and name not in unused
    ]
    columns = pool.names if is_box else there
    needed = [names[1], *([noise] if noise else [])]
    if not names_points(frame, pool):
        needed = [names[0], *needed]
    if not set(needed) <= set(frame.columns):
        instead = f" (or in place of {names[0]!r} all columns of the box)" if is_box else ""
        raise InputError(
            f"{path} must have the columns {' and '.join(map(repr, needed))}{instead}, "
            f"got {', '.join(map(repr, frame.columns))[:300]}; --value names another column of "
            "values"
        )
    lines = lines_in(path, sheet, names, columns)
    # Spreadsheets leave rows in which nothing is filled in.
    lines = [
        line
        for line in lines
        if any(cell is not None for cell in (line.id, line.value, *(line.point if is_box else ())))
    ]
    ids = _ids_in(pool, lines, names[0], decimal)
    if isinstance(pool, Pool) and columns:
        for line, row in zip(lines, pool.rows(ids), strict=True):
            cells = dict(zip(columns, line.point, strict=True))
            check_cells(line.where, line.id, row, cells, pool.words)
    told = []
    for id, line in zip(ids, lines, strict=True):
        if not _is_blank(line.value):
            place = f"{line.where} ({id!r})"
            told.append(
                Row(
                    id,
                    as_value(line.value or "", decimal, place, unit_of(pool)),
                    _batch(line.batch, line.where, names[3]),
                    as_noise(line.noise, decimal, place),
                    None if _is_blank(line.note) else (line.note or "").strip(),
                )
            )
    n_empty = len(lines) - len(told)
    # The sheet that a study was made of, told again: a row that was copied in it is no trial.
    if isinstance(pool, Pool) and pool.target and names[3] not in frame.columns:
        told = _without_copies(told)
    return Told(told, n_empty)


def _without_copies(rows: list[Row]) -> list[Row]:
    """Rows but for those whose candidate and value are those of a row above."""
    kept = list({(row.id, row.value): row for row in reversed(rows)}.values())[::-1]
    if len(kept) < len(rows):
        n = len(rows) - len(kept)
        note(f"left out {count(n, 'row')}: candidate and value are those of a row above")
    return kept


def names_points(frame: pl.DataFrame, pool: Listed) -> bool:
    """Whether a table has all columns of a box."""
    return isinstance(pool, NumberedPoints) and set(pool.names) <= set(frame.columns)


def lines_in(path: Path, sheet: Sheet, names: Sequence[str], columns: Sequence[str]) -> list[Line]:
    """The lines of a table, given the names of these cells and the columns of candidates."""
    frame = sheet.frame
    cells = [
        frame[name].to_list() if name in frame.columns else [None] * len(frame)
        for name in (*names, *columns)
    ]
    return [
        Line(f"{path}, row {row}", id, value, noise, batch, note, tuple(point))
        for row, id, value, noise, batch, note, *point in zip(sheet.rows, *cells, strict=True)
    ]


def _ids_in(pool: Listed, lines: list[Line], name: str, decimal: str) -> list[Any]:
    """The candidates of lines; an error names the first line whose candidate is not there."""
    if isinstance(pool, NumberedPoints):
        # A row without a value is skipped, so it need not name a point.
        return [
            None if _is_blank(line.value) else pool.as_id(line.where, line.id, line.point, decimal)
            for line in lines
        ]
    for line in lines:
        if line.id is None:
            value = (line.value or "")[:60]
            raise InputError(f"{line.where}: a value {value!r} without an id; fill in {name!r}")
    ids = typed_ids(pool, [line.id or "" for line in lines])
    try:
        pool.positions(ids)
    except UnknownArmError as error:
        where = lines[ids.index(error.fields["id"])].where
        raise UnknownArmError(f"{where}: {error}") from None
    return ids


def _is_blank(text: str | None) -> bool:
    return text is None or not text.strip()


class LoggedResult(NamedTuple):
    """A result that counts, and the event that told it."""

    event: Event
    trial: Trial


def results_told(study: Study) -> list[LoggedResult]:
    """Every result of a study that counts, oldest first."""
    events = list(study.events())
    # The event of number n is the nth; every result of a study has one.
    return [LoggedResult(events[(trial.event or 1) - 1], trial) for trial in study.history]


def _batch(text: str | None, where: str, name: str) -> int:
    if text is None or not text.strip():
        return 0
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
        raise InputError(
            f"{where}: {name!r} must be the number that suggest wrote, got {text[:60]!r}; leave "
            "it as it was"
        )
    return int(text)


def rows_of(pool: Listed, ids: list[CandidateId]) -> pl.DataFrame:
    """Candidates as they came, ids first."""
    rows = [{id_name(pool): id, **row} for id, row in zip(ids, pool.rows(ids), strict=True)]
    # Types by all rows: the first hundred may be whole numbers, and a later one not.
    return pl.DataFrame(rows, infer_schema_length=None)


def level_lines(before: Pool, after: Pool) -> list[str]:
    """A line for each column that has levels which no candidate had."""
    return [
        f"New in column {name!r}: {', '.join(map(repr, levels[:8]))}"
        f"{', …' if len(levels) > 8 else ''}. Nothing is known of it yet."
        for name, levels in new_levels(before, after).items()
    ]


class Marks(NamedTuple):
    """What a CSV file is written with; None: as is usual for the study."""

    separator: str | None
    decimal: str | None

    def of(self, pool: Listed) -> tuple[str, str]:
        """Separator and decimal mark; those of a study, where none were given."""
        decimal = decimal_of(pool, self.decimal)
        # What a spreadsheet with decimal commas expects.
        usual = ";" if decimal == "," else ","
        if self.separator == decimal == ",":
            raise InputError('--separator and --decimal must differ; give --separator ";"')
        return self.separator or usual, decimal


def marks(decimal: str | None, separator: str | None = None) -> Marks:
    """Those that were asked for; InputError where they cannot be."""
    if decimal not in (None, ".", ","):
        raise InputError(f'--decimal must be "." or ",", got {decimal!r}')
    if separator not in (None, ",", ";", "|", "tab"):
        raise InputError(f'--separator must be ",", ";", "|" or "tab", got {separator!r}')
    if decimal == separator == ",":
        raise InputError('--separator and --decimal must differ; give --separator ";"')
    return Marks("\t" if separator == "tab" else separator, decimal)


def check_output(path: Path | None) -> None:
    """InputError where a table cannot be written under this name."""
    if path is not None and is_workbook(path) and path.suffix.lower() != WRITTEN:
        raise InputError(f"{path}: workbooks are written as {WRITTEN}; give such a name, or .csv")


def write_table(frame: pl.DataFrame, path: Path, name: Path, marks: Marks, pool: Listed) -> None:
    """A table to a file, which will have this name: a workbook where that ends so, else CSV."""
    check_output(name)
    if is_workbook(name):
        # Values are text for the sake of those that failed.
        write_workbook(frame, path, value_name(pool))
    else:
        separator, mark = marks.of(pool)
        write_csv(frame, path, separator, mark)


def beside(pool: Listed, ids: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    """What stands beside ids in tables: the columns of the candidates. Bits are counted."""
    return list(pool.names), [
        [f"{len(cell):,} bits" if isinstance(cell, list) else cell for cell in row.values()]
        for row in pool.rows(list(ids))
    ]


def extent(pool: Listed) -> str:
    """How much there is to choose among, in words."""
    if isinstance(pool, NumberedPoints):
        return f"a box of {count(len(pool.names), 'column')}, {count(len(pool), 'point')} so far"
    return count(len(pool), "candidate")
