"""Tables of a study: the names of their columns, the numbers and ids in them, and how they are
written."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from manyarms.campaign.trials import FAILED
from manyarms.cli.app import InputError
from manyarms.cli.output import count, new_file
from manyarms.sheets.csvfiles import write_csv
from manyarms.sheets.numerals import number_in
from manyarms.sheets.reading import WRITTEN, is_workbook, write_workbook
from manyarms.space.points import Space
from manyarms.space.pool import Pool, new_levels
from manyarms.space.spelling import FAILURES
from manyarms.study import Study
from manyarms.study.location import as_location

FORECAST_COLUMNS = ("predicted", "low", "high", "why")
"""What stands beside a suggestion: the result that is predicted, the interval that holds it with
probability 95 %, and a reason."""
HEADER = ("estimate", "low", "high", "results", "measured")
"""What is known of a candidate, beside its id."""
ESTIMATE = ("estimate", "sd", "low", "high")
"""What is predicted of a candidate: mean, standard deviation, and the ends of the interval."""
BESIDE = (FORECAST_COLUMNS, HEADER, ESTIMATE, ("number", "time", "worker"))
"""The columns that commands write beside those of the study, each of these with the others."""


def id_name(pool: Space) -> str:
    """Of the column of ids in files; pools without one have the row numbers as "id"."""
    return pool.id_column or free("id", pool)


def value_name(pool: Space) -> str:
    """Of the column to be filled in: the target, where the table has one."""
    return pool.target or free("value", pool)


def note_name(pool: Space) -> str:
    """Of the column of remarks, which may be missing: the table's, where it has one."""
    return pool.remarks or free("note", pool)


def free(name: str, pool: Space) -> str:
    """A name that no column of the table has."""
    return free_names([name], pool)[0]


def free_names(names: Iterable[str], pool: Space) -> list[str]:
    """The same of several."""
    taken = {*pool.names, pool.id_column}
    found = list(names)
    for i in range(len(found)):
        while found[i] in taken:
            found[i] += "_"
    return found


def unit_of(pool: Space) -> str:
    """The unit of the values: the table of candidates has it behind them, or in the name of the
    column, such as yield (%)."""
    if pool.target is None:
        return ""
    in_name = re.search(r"[(\[/]\s*([^()\[\]]+?)\s*[)\]]?$", pool.target)
    return pool.units.get(pool.target) or (in_name[1] if in_name else "")


def place(location: str) -> str:
    """Where a study is, without the password of a URL."""
    return as_location(location).shown


def name_of(location: str) -> str:
    """What a study is called, wherever it is."""
    return as_location(location).name


def goal(study: Study) -> str:
    """What a study is after, such as "maximize yield"."""
    return f"{study.direction} {study.pool.target or 'the value'}"


def not_used(pool: Space) -> list[str]:
    """A line for people that names the columns that are no features, where there are any."""
    listed = "; ".join(f"{name} ({why})" for name, why in pool.unused.items())
    return [f"NOT USED: {listed}."] if listed else []


def extent(pool: Space) -> str:
    """How much there is to choose among, in words."""
    if pool.box is not None:
        return f"a box of {count(len(pool.names), 'column')}, {count(len(pool), 'point')} so far"
    return count(len(pool), "candidate")


def as_ids(pool: Space, texts: Sequence[str]) -> list[Any]:
    """Ids as they are typed, of a box the numbers of points; UnknownArmError where one is not
    there."""
    ids = pool.ids_of(texts)
    # Called for its error.
    pool.positions(ids)
    return pool.labels(ids)


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


def beside(pool: Space, labels: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    """What stands beside ids in tables: the columns of the candidates. Bits are counted."""
    return list(pool.names), [
        [f"{len(cell):,} bits" if isinstance(cell, list) else cell for cell in row.values()]
        for row in pool.rows(pool.ids_of(labels))
    ]


def rows_of(pool: Space, labels: Sequence[Any]) -> pl.DataFrame:
    """Candidates as they came, ids first."""
    rows = pool.rows(pool.ids_of(labels))
    named = [{id_name(pool): label, **row} for label, row in zip(labels, rows, strict=True)]
    # Types by all rows: the first hundred may be whole numbers, and a later one not.
    return pl.DataFrame(named, infer_schema_length=None)


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

    def of(self, pool: Space) -> tuple[str, str]:
        """Separator and decimal mark; those of a study, where none were given."""
        decimal = self.decimal or pool.decimal
        # What a spreadsheet with decimal commas expects.
        usual = ";" if decimal == "," else ","
        if self.separator == decimal == ",":
            raise InputError('--separator and --decimal must differ; give --separator ";"')
        return self.separator or usual, decimal


def marks(decimal: str | None, separator: str | None = None, output: Path | None = None) -> Marks:
    """Those that were asked for; InputError where they cannot be, or no table can be written under
    this name."""
    if decimal not in (None, ".", ","):
        raise InputError(f'--decimal must be "." or ",", got {decimal!r}')
    if separator not in (None, ",", ";", "|", "tab"):
        raise InputError(f'--separator must be ",", ";", "|" or "tab", got {separator!r}')
    if decimal == separator == ",":
        raise InputError('--separator and --decimal must differ; give --separator ";"')
    if output is not None and is_workbook(output) and output.suffix.lower() != WRITTEN:
        raise InputError(f"{output}: workbooks are written as {WRITTEN}; give such a name, or .csv")
    return Marks("\t" if separator == "tab" else separator, decimal)


def save(frame: pl.DataFrame, path: Path, force: bool, marks: Marks, pool: Space) -> None:
    """A table to a file, whole or not at all."""
    with new_file(path, force) as draft:
        write_table(frame, draft, path, marks, pool)


def write_table(frame: pl.DataFrame, draft: Path, path: Path, marks: Marks, pool: Space) -> None:
    """A table to a file that will have this path: a workbook where that ends so, else CSV."""
    if is_workbook(path):
        # Values are text for the sake of those that failed.
        write_workbook(frame, draft, value_name(pool))
    else:
        separator, decimal = marks.of(pool)
        write_csv(frame, draft, separator, decimal)
