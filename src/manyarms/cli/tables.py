"""Tables between a study and a spreadsheet: candidates out, results in."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from manyarms.campaign.trials import FAILED, CandidateId
from manyarms.cli.app import InputError
from manyarms.errors import UnknownArmError
from manyarms.numbers import LARGEST
from manyarms.pool.formulas import marked
from manyarms.pool.pool import Pool
from manyarms.pool.reading import read_csv
from manyarms.pool.stored import described
from manyarms.study import Event

FAILURES = ("failed", "fail", "failure", "error", "crashed")
"""What stands for a trial that failed in place of its value, in any case."""


class Row(NamedTuple):
    """A result in a file."""

    id: CandidateId
    value: Any  # a float, or FAILED
    batch: int  # the number of the last event when it was suggested; 0 where the file does not say
    noise: float | None  # standard deviation of the value, where the file says it


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


def noise_name(pool: Pool) -> str:
    """Of the column of standard deviations, which may be missing."""
    return free("noise", pool)


def batch_name(pool: Pool) -> str:
    """Of the column that says when a candidate was suggested."""
    return free("batch", pool)


def free(name: str, pool: Pool) -> str:
    """A name that no column of the table has."""
    while name in pool.names or name == described(pool)["id"]:
        name += "_"
    return name


def as_ids(pool: Pool, texts: list[str]) -> list[CandidateId]:
    """Ids as they are typed, in the type that the pool has; UnknownArmError where one is not
    there."""
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
    number = _typed(plain, decimal)
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


def _typed(plain: str, decimal: str) -> float | None:
    """A number as it is typed, None where it is none."""
    try:
        number = float(plain.replace(",", ".") if decimal == "," else plain)
    except ValueError:
        return None
    return (
        number
        if abs(number) <= LARGEST and "_" not in plain and not (decimal == "," and "." in plain)
        else None
    )


def _advice(plain: str, decimal: str, otherwise: str) -> str:
    return (
        'give --decimal "," where that is the mark'
        if "," in plain and decimal == "."
        else otherwise
    )


def results_in(path: Path, pool: Pool, value: str | None, noise: str | None, decimal: str) -> Told:
    """The results in a CSV file; `value` and `noise` are the names of columns, where they are not
    the usual ones."""
    names = id_name(pool), value or value_name(pool), noise or noise_name(pool), batch_name(pool)
    frame = read_csv(path, names[0], set(names), set(names), decimal)
    lacking = [
        name for name in (*names[:2], *([noise] if noise else [])) if name not in frame.columns
    ]
    if lacking:
        raise InputError(
            f"{path} must have the columns {names[0]!r} and "
            f"{names[1]!r}{f' and {noise!r}' if noise else ''}, "
            f"got {', '.join(map(repr, frame.columns))[:300]}; --value names another column of "
            "values"
        )
    columns = [frame[name] if name in frame.columns else [None] * len(frame) for name in names]
    rows = [(f"{path}, row {i + 2}", *cells) for i, cells in enumerate(zip(*columns, strict=True))]
    for where, id, text, *_ in rows:
        if id is None and text is not None:
            raise InputError(f"{where}: a value {text[:60]!r} without an id; fill in {names[0]!r}")
    rows = [row for row in rows if row[1] is not None]
    ids = _ids_in(pool, rows)
    told = []
    for id, (where, _, text, sd, number) in zip(ids, rows, strict=True):
        if text is not None and text.strip():
            there = f"{where} ({id!r})"
            told.append(
                Row(
                    id,
                    as_value(text, decimal, there),
                    _batch(number, where, names[3]),
                    as_noise(sd, decimal, there),
                )
            )
    return Told(told, len(rows) - len(told))


def _ids_in(pool: Pool, rows: list[Any]) -> list[CandidateId]:
    """The ids of rows; UnknownArmError names the first row whose id is not there."""
    try:
        return as_ids(pool, [id for _, id, *_ in rows])
    except UnknownArmError:
        for where, id, *_ in rows:
            try:
                as_ids(pool, [id])
            except UnknownArmError as error:
                raise UnknownArmError(f"{where}: {error}") from None
        raise


def results_told(event: Event) -> Iterator[tuple[CandidateId, float | None, float | None]]:
    """Candidate, value (None: failed) and noise (None: not told) of every result that an event
    brought."""
    if event.kind == "tell":
        ids, told = event.payload["ids"], event.payload
        yield from zip(ids, told["values"], told.get("noise", [None] * len(ids)), strict=True)


def _batch(text: str | None, where: str, name: str) -> int:
    if text is None or not text.strip():
        return 0
    if not re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
        raise InputError(
            f"{where}: {name!r} must be the number that suggest wrote, got {text[:60]!r}; leave "
            "it as it was"
        )
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
    return Marks(
        "\t" if separator == "tab" else separator or (";" if decimal == "," else ","), decimal
    )


def write_csv(frame: pl.DataFrame, path: Path, marks: Marks) -> None:
    """A CSV file in which no text is a formula; with a decimal comma it is one for spreadsheets,
    which want a mark that it is UTF-8."""
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List | pl.Array)]
    flat = frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join("") for name in lists)
    comma = marks.decimal == ","
    marked(flat).write_csv(path, separator=marks.separator, decimal_comma=comma, include_bom=comma)
