"""What a pool is made of: its tables as they came, the columns that the first table decided, and
the encoded rows. Equal rows are one arm."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.equal import group
from manyarms.errors import Advice, ArmsError
from manyarms.space.columns import Column, Label, cleaned
from manyarms.space.deciding import decide
from manyarms.space.frames import Declared, Levels
from manyarms.space.ids import Ids
from manyarms.typing import AnyArray, Array, Indices


@dataclass(frozen=True)
class Origin:
    """What the user said about the tables."""

    id: str | None  # the column of ids
    numbered: bool  # the ids are row numbers
    missing: str
    declared: dict[str, Declared]
    levels: dict[str, Levels]  # of ordered columns whose table does not say so
    decimal: str = "."  # the mark before fractions in the file that the first table came from
    units: dict[str, str] = field(
        default_factory=dict
    )  # of columns that came as text, and of the target
    target: str | None = None  # the column of outcomes, which is no feature
    decided: dict[str, str] = field(
        default_factory=dict
    )  # types of stored columns, by their values then


class TableResult(NamedTuple):
    """A result in a table of candidates."""

    id: Any
    value: float | None  # None: failed
    note: str | None


Expectation = Callable[[Array], Array]
"""From encoded rows (n, d) to a number each, (n,)."""


@dataclass(frozen=True)
class Parts:
    """The contents of a pool. Tables keep their rows as they came, so nothing has to be decoded."""

    origin: Origin
    tables: tuple[pl.DataFrame, ...]
    columns: tuple[Column, ...]
    next_row: int
    ids: Ids
    X: Array
    arm_of: Indices
    results: tuple[TableResult, ...] = ()
    notes: tuple[str, ...] = ()  # what was done to the tables, in sentences
    expected: Expectation | None = None  # what the first column of X holds of the others

    def __post_init__(self) -> None:
        for array in (self.X, self.arm_of):
            array.setflags(write=False)

    @property
    def n_expected(self) -> int:
        """How many columns a prior adds in front of X: 0 or 1."""
        return int(self.expected is not None)

    @property
    def ids_of_tables(self) -> list[AnyArray]:
        """The ids of each table."""
        ends = np.cumsum([len(table) for table in self.tables])
        return np.split(self.ids.array, ends[:-1])

    def completed(self, rows: Array) -> Array:
        """Encoded rows with what a prior expects of them in front."""
        return rows if self.expected is None else np.column_stack([self.expected(rows), rows])


def first_parts(
    origin: Origin, frame: pl.DataFrame, ids: AnyArray, label: Label, next_row: int
) -> Parts:
    """The parts that the first table makes. It has neither its ids nor rows that are left out."""
    levels = {
        n: tuple(dtype.categories)
        for n, dtype in frame.schema.items()
        if isinstance(dtype, pl.Enum)
    } | origin.levels
    columns = _decided(frame, {**origin.decided, **origin.declared}, levels, origin.missing, label)
    rows = encode(frame, columns, label)
    # Candidates with equal features are one arm: what one teaches, the others know.
    first, arm_of = group(rows)
    X = rows if len(first) == len(rows) else rows[first]
    return Parts(origin, (frame,), columns, next_row, Ids(ids), X, arm_of)


def grown_parts(
    parts: Parts, frame: pl.DataFrame, ids: AnyArray, label: Label, next_row: int
) -> Parts:
    """The parts with one more table. It has neither its ids nor rows that are left out."""
    columns = []
    for column in parts.columns:
        values = cleaned(frame[column.name])
        check_missing(column, values, parts.origin.missing, label)
        columns.append(column.grown(values, label))
    # The arms there are come first, so that they keep their numbers.
    rows = np.concatenate([parts.X[:, parts.n_expected :], encode(frame, columns, label)])
    first, arms = group(rows)
    new = rows[first[len(parts.X) :]]
    return replace(
        parts,
        tables=(*parts.tables, frame),
        columns=tuple(columns),
        next_row=next_row,
        ids=parts.ids.with_more(ids),
        X=np.concatenate([parts.X, parts.completed(new)]) if len(new) else parts.X,
        arm_of=np.concatenate([parts.arm_of, arms[len(parts.X) :]]),
    )


def _decided(
    frame: pl.DataFrame,
    declared: dict[str, Declared],
    levels: dict[str, Levels],
    missing: str,
    label: Label,
) -> tuple[Column, ...]:
    def column(name: str, keep_constant: bool) -> Column:
        values = cleaned(frame[name])
        given = levels.get(name, ())
        found = decide(values, name, declared.get(name), label, given, keep_constant, missing)
        check_missing(found, values, missing, label)
        return found

    columns = tuple(column(name, False) for name in frame.columns)
    if encoded_columns(columns):
        return columns
    # Nothing tells candidates apart. Constants will do where not even texts do.
    texts = [each.name for each in columns if each.type == "text"]
    if not any(frame[name].n_unique() > 1 for name in texts):  # candidates are all alike
        columns = tuple(column(name, True) for name in frame.columns)
    if not encoded_columns(columns) and texts:
        raise ArmsError(
            f"a pool needs features, got only text ({quoted(texts)}) to tell candidates by",
            "add columns of numbers or categories",
            Advice("read molecules by {}", "columns", {texts[0]: "smiles"}),
            Advice("declare {}", "columns", {texts[0]: "categorical"}),
        )
    if not encoded_columns(columns):
        raise ArmsError(
            "a pool needs features, got only columns that are ignored or empty: "
            f"{quoted(frame.columns)}"
        )
    return columns


def check_missing(column: Column, values: pl.Series, missing: str, label: Label) -> None:
    """Raise ArmsError if a value is missing in a column where a missing value is no level."""
    if not values.null_count() or (
        column.takes_missing and (missing == "category" or not column.width)
    ):
        return
    row = values.is_null().arg_max() or 0
    in_all = f"({counted(values.null_count(), 'row')} in all)"
    advice: list[str | Advice] = ["fill it", Advice("leave the row out ({})", "missing", "drop")]
    if missing == "category":
        in_all += f", and the type {column.type} has no level for it"
    else:
        advice.append(Advice("make it a category ({})", "missing", "category"))
    raise ArmsError(
        f"column {{column!r}} misses a value in {{place}} {in_all}",
        *advice,
        column=column.name,
        **label(row),
    )


def encoded_columns(columns: Iterable[Column]) -> list[Column]:
    """The columns that are encoded, in the order of the features."""
    # Numbers, then codes, then bits: each kernel takes columns that stand together.
    order = {"boolean": 1, "categorical": 1, "bits": 2, "smiles": 2}
    return sorted(
        (column for column in columns if column.width), key=lambda column: order.get(column.type, 0)
    )


def encode(frame: pl.DataFrame, columns: Iterable[Column], label: Label) -> Array:
    """The features of the rows of a table."""
    columns = list(columns)
    rows = np.empty((len(frame), sum(column.width for column in columns)))
    start = 0
    # Those of no width encode nothing, and check that a constant has stayed the same.
    for column in [*encoded_columns(columns), *(column for column in columns if not column.width)]:
        column.encode(cleaned(frame[column.name]), label, rows[:, start : start + column.width])
        start += column.width
    rows += 0.0  # −0 is 0
    return rows


def counted(number: int, noun: str) -> str:
    """A number and its noun: "1 row", "2 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, as a list in a sentence."""
    return ", ".join(map(repr, names)) or "none"
