"""Tables between a study and a spreadsheet: candidates out, results in."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from manyarms.arms.pool import Pool
from manyarms.arms.reading import read_csv
from manyarms.arms.stored import described
from manyarms.cli.app import InputError
from manyarms.trials import FAILED, LARGEST, CandidateId

FAILURES = ("failed", "fail", "failure", "error", "crashed")
"""What stands for a trial that failed in place of its value, in any case."""


class Row(NamedTuple):
    """A result in a file."""

    id: CandidateId
    value: Any  # a float, or FAILED
    batch: int  # the number of the last event when it was suggested; 0 where the file does not say


class Told(NamedTuple):
    """What a file says: results, and how many rows have no value yet."""

    rows: list[Row]
    n_empty: int


def id_name(pool: Pool) -> str:
    """Of the column of ids in files; pools without one have the row numbers as "id"."""
    return described(pool)["id"] or free("id", pool)


def value_name(pool: Pool) -> str:
    """Of the column to be filled in."""
    return free("value", pool)


def batch_name(pool: Pool) -> str:
    """Of the column that says when a candidate was suggested."""
    return free("batch", pool)


def free(name: str, pool: Pool) -> str:
    """A name that no column of the table has."""
    while name in pool.names or name == described(pool)["id"]:
        name += "_"
    return name


def as_ids(pool: Pool, texts: list[str]) -> list[CandidateId]:
    """Ids as they are typed, in the type that the pool has; UnknownArmError where one is not there."""
    ids: list[Any] = list(texts) if pool.ids.dtype == object else [_number(text) for text in texts]
    pool.positions(ids)
    return ids


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII) else text


def as_value(text: str, decimal: str, where: str) -> Any:
    """A value as it is typed: a float, or FAILED."""
    plain = text.strip()
    if plain.lower() in FAILURES:
        return FAILED
    try:
        number = float(plain.replace(",", ".") if decimal == "," else plain)
        if not abs(number) <= LARGEST or "_" in plain or (decimal == "," and "." in plain):
            raise ValueError
        return number
    except ValueError:
        comma = "," in plain and decimal == "."
        advice = (
            'give --decimal "," where that is the mark' if comma else "correct it; in a file, leave it empty until it is known"
        )
        raise InputError(f"{where}: a value must be a finite number or `failed`, got {plain[:60]!r}; {advice}") from None


def results_in(path: Path, pool: Pool, column: str | None, decimal: str) -> Told:
    """The results in a CSV file."""
    name, value, batch = id_name(pool), column or value_name(pool), batch_name(pool)
    frame = read_csv(path, name, {name, value, batch}, {name, value, batch}, decimal)
    if name not in frame.columns or value not in frame.columns:
        raise InputError(
            f"{path} must have the columns {name!r} and {value!r}, got {', '.join(map(repr, frame.columns))[:300]}; "
            "--value names another column of values"
        )
    batches = frame[batch] if batch in frame.columns else [None] * len(frame)
    rows = [(f"{path}, row {i + 2}", *cells) for i, cells in enumerate(zip(frame[name], frame[value], batches, strict=True))]
    for where, id, text, _ in rows:
        if id is None and text is not None:
            raise InputError(f"{where}: a value {text[:60]!r} without an id; fill in {name!r}")
    rows = [row for row in rows if row[1] is not None]
    ids = as_ids(pool, [id for _, id, _, _ in rows])
    told = [
        Row(id, as_value(text, decimal, f"{where} ({id!r})"), _batch(number, where, batch))
        for id, (where, _, text, number) in zip(ids, rows, strict=True)
        if text is not None and text.strip()
    ]
    return Told(told, len(rows) - len(told))


def _batch(text: str | None, where: str, name: str) -> int:
    if text is None or not text.strip():
        return 0
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
        raise InputError(f"{where}: {name!r} must be the number that suggest wrote, got {text[:60]!r}; leave it as it was")
    return int(text)


def rows_of(pool: Pool, ids: list[CandidateId]) -> pl.DataFrame:
    """Candidates as they came, ids first."""
    rows = [{id_name(pool): id, **row} for id, row in zip(ids, pool.rows(ids), strict=True)]
    return pl.DataFrame(rows, infer_schema_length=None)


class Marks(NamedTuple):
    """What a CSV file is written with."""

    separator: str
    decimal: str


def marks(decimal: str, separator: str | None = None) -> Marks:
    """Those that were asked for; InputError where they cannot be."""
    if decimal not in (".", ","):
        raise InputError(f'--decimal must be "." or ",", got {decimal!r}')
    if separator not in (None, ",", ";", "|", "tab"):
        raise InputError(f'--separator must be ",", ";", "|" or "tab", got {separator!r}')
    if decimal == separator == ",":
        raise InputError('--separator and --decimal must differ; give --separator ";"')
    return Marks("\t" if separator == "tab" else separator or (";" if decimal == "," else ","), decimal)


def write_csv(frame: pl.DataFrame, path: Path, marks: Marks) -> None:
    """A CSV file; with a decimal comma it is one for spreadsheets, which want a mark that it is UTF-8."""
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List | pl.Array)]
    flat = frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join("") for name in lists)
    comma = marks.decimal == ","
    flat.write_csv(path, separator=marks.separator, decimal_comma=comma, include_bom=comma)
