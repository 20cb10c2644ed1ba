"""The type of each column: as declared, or else as its values suggest."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from manyarms.checks import are_geometric, items_of
from manyarms.errors import Advice, ArmsError, ParameterError, shortened
from manyarms.sheets.reading import are_bits
from manyarms.space.columns import (
    TYPES,
    Bits,
    Coded,
    Column,
    Label,
    Numeric,
    Ordered,
    UnusedColumn,
    as_numbers,
    as_python,
    date_error,
    first_of,
    is_text,
    like,
    plain_type,
)
from manyarms.space.frames import Declared
from manyarms.space.molecules import BY_DESCRIPTORS, SMILES, molecules_as
from manyarms.space.spelling import (
    MERGE,
    NUMBER_TYPES,
    are_remarks,
    check_levels,
    plain_kind,
    words_of,
)
from manyarms.typing import Array

QUANTILES = 64
"""A column of at most so many different numbers is described by all of them, and one with more by
so many quantiles."""


def checked_types(columns: Mapping[str, str | Sequence[Any]] | None) -> dict[str, Declared]:
    """The argument `columns`, its types checked."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise ParameterError(
            f"columns must map names to types, such as {{'dose': 'log'}}, got {shortened(columns)}"
        )
    return {name: _checked_type(name, declared) for name, declared in columns.items()}


def _checked_type(name: str, declared: Any) -> Declared:
    # Behind a colon stand words of a number, or one of the ways that a type has.
    kind = plain_kind(declared) if isinstance(declared, str) else None
    if kind in TYPES and (
        declared == kind or kind in NUMBER_TYPES or declared in (MERGE, BY_DESCRIPTORS)
    ):
        words_of(declared)
        return str(declared)
    listed = items_of(declared) if isinstance(declared, Sequence | np.ndarray | pl.Series) else None
    if listed is None or isinstance(declared, str):
        raise ParameterError(
            "{option} of {column!r} must be {expected}; got {got}",
            option="columns",
            column=name,
            expected=f"one of {', '.join(TYPES)}, or a list of levels in order",
            got=declared,
        )
    levels = tuple(level.item() if isinstance(level, np.generic) else level for level in listed)
    kinds = set(map(type, levels))
    are_alike = kinds == {str} or (kinds <= {int, float} and all(abs(n) < 2**63 for n in levels))
    if not levels or not are_alike or len(set(map(repr, levels))) < len(levels):
        raise ParameterError(
            "{option} of {column!r} must list distinct levels, all strings or all numbers; got "
            "{got}",
            option="columns",
            column=name,
            got=list(levels),
        )
    return levels


def decide(
    values: pl.Series,
    name: str,
    declared: Declared | None,
    label: Label,
    levels: tuple[Any, ...] = (),
    keep_constant: bool = False,
    missing: str = "error",
) -> Column:
    """How a column is encoded: as declared, or else according to its cleaned values. Levels are in
    the order of `levels` if the table gave one.

    Without a declaration a column that holds one value only is not encoded, unless `keep_constant`.
    """
    known = values.drop_nulls()
    if declared == "ignore":
        return UnusedColumn(name, "ignore")
    if declared is None:
        _check_dtype(known, name)
    if not len(known):
        # An empty column: nothing to encode, and nothing to check in tables to come but that.
        if declared == "text":
            return UnusedColumn(name, "text")
        if declared in ("categorical", None):
            return UnusedColumn(name, "ignore", (None,))
        raise ArmsError(
            "column {column!r} is declared {expected} and holds no value at all",
            "fill it",
            Advice("leave it out by {}", "columns", {name: "ignore"}),
            column=name,
            expected=repr(declared),
        )
    if levels and declared in ("ordered", None):
        kind: Declared = levels
    elif declared is not None:
        kind = declared
    else:
        kind = "text" if are_remarks(values, missing) else _type_of(known, name)
    column = _column_of(kind, known, values, name, label)
    # A declared type stands, even for a column of one value; a guess may be dropped.
    is_guess = declared is None and column.width and not keep_constant
    if is_guess and values.n_unique() == 1 and len(known) == len(values):
        return UnusedColumn(name, "ignore", (as_python(values[0]),))
    return column


def _check_dtype(known: pl.Series, name: str) -> None:
    """Raise ArmsError if nothing can be made of such values without a declaration."""
    if known.dtype.is_temporal():
        raise date_error(name, f"{known.dtype}", known[0] if len(known) else None)
    if not _can_be_typed(known.dtype):
        raise ArmsError(
            "column {column!r} must hold {expected}, got {got}",
            "put its parts into columns of their own",
            Advice("leave it out by {}", "columns", {name: "ignore"}),
            column=name,
            expected="numbers, booleans, strings or lists of bits",
            got=known.dtype,
        )


def _can_be_typed(dtype: pl.DataType) -> bool:
    plain = dtype.is_numeric() or is_text(dtype)
    return plain or isinstance(dtype, pl.Boolean | pl.List | pl.Array | pl.Null)


def _type_of(known: pl.Series, name: str) -> str:
    """The type that values have by themselves."""
    dtype = known.dtype
    if dtype.is_numeric():
        numbers = known.cast(pl.Float64)
        is_positive = bool((numbers.is_finite() & (numbers > 0)).all())
        if is_positive and are_geometric(_typical(numbers)):
            return "log"
        return "integer" if dtype.is_integer() else "continuous"
    if dtype == pl.Boolean:
        return "boolean"
    if isinstance(dtype, pl.List | pl.Array):
        return "bits"
    return _type_of_strings(known.cast(pl.String), name)


def _typical(numbers: pl.Series) -> Array:
    """The different numbers of a column, or quantiles of them if there are many."""
    levels = numbers.unique().to_numpy()
    if len(levels) <= QUANTILES:
        return levels
    # The outermost ones say little: a single number may be far from all others.
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return np.unique(np.quantile(numbers.to_numpy(), shares))


def _type_of_strings(known: pl.Series, name: str) -> str:
    # The most special type first: bits are strings, dates and booleans are levels otherwise.
    if are_bits(known):
        return "bits"
    distinct = known.unique()
    if distinct.str.contains(r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$").all():
        raise date_error(name, "dates", known[0])
    if distinct.str.to_lowercase().is_in(["true", "false"]).all():
        return "boolean"
    # A level that no other row has teaches nothing about other rows: such text names or comments.
    # But a table so small that it has 50 different ones at most lists each on purpose.
    if len(distinct) <= 50 or 2 * int(known.is_duplicated().sum()) >= len(known):
        check_levels(known, name)
        return "categorical"
    # Many different strings, most of which are numbers: some cell is not what it should be.
    numbers = known.str.strip_chars().cast(pl.Float64, strict=False)
    if 2 * numbers.null_count() < len(known):
        other = known.filter(numbers.is_null())
        where = "among the numbers" if len(other) else "and others as text"
        raise ArmsError(
            f"column {{column!r}} seems to hold numbers, got {{got}} {where}",
            "correct it",
            Advice("say that they are by {}", "columns", {name: "continuous"}),
            "declare it categorical, text or ignore",
            column=name,
            got=other[0] if len(other) else known[0],
        )
    return "text"


def _column_of(
    kind: Declared, known: pl.Series, values: pl.Series, name: str, label: Label
) -> Column:
    """The column of a type, or of levels in order."""
    here = _known_label(values, label)
    if isinstance(kind, tuple):
        kinds = set(map(type, kind))
        dtype = pl.String if str in kinds else pl.Int64 if kinds == {int} else pl.Float64
        return Ordered(name, "ordered", pl.Series(kind, dtype=dtype))
    way, kind = kind, str(plain_kind(kind))
    if kind == "number":
        as_numbers(known, name, kind, here)  # raises where one is none
        return _column_of(_type_of(known, name), known, values, name, label)
    if kind in NUMBER_TYPES:
        return Numeric.fit(known, name, kind, here)
    is_plain = _can_be_typed(values.dtype) and not isinstance(values.dtype, pl.List | pl.Array)
    if kind != "bits" and not is_plain and not values.dtype.is_temporal():
        raise ArmsError(
            f"column {{column!r}} holds {{got}}, which cannot be {kind}",
            Advice("declare {} or bits", "columns", {name: "ignore"}),
            column=name,
            got=values.dtype,
        )
    if kind == "ordered" and not values.dtype.is_numeric():
        # Alphabetical would be an order too, and hardly ever the right one.
        levels = sorted(known.cast(pl.String).unique().to_list())
        raise ParameterError(
            "the order of column {column!r} is not known",
            Advice("list its levels in order, {}", "columns", {name: first_of(levels)}),
            column=name,
        )
    if kind == "ordered":
        return Ordered(name, kind, like(known, plain_type(values.dtype)).unique().sort())
    if kind in ("bits", SMILES):
        is_bits = kind == "bits"
        return Bits.fit(known, name, here) if is_bits else molecules_as(way, known, name, here)
    return UnusedColumn(name, kind) if kind == "text" else Coded.fit(values, name, kind, label)


def _known_label(values: pl.Series, label: Label) -> Label:
    """The label of rows by their position among the values that are not null."""
    if not values.null_count():
        return label
    positions = values.is_not_null().arg_true()
    return lambda row: label(positions[row])
