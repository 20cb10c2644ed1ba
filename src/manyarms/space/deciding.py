"""Which type a column is of: as declared, else by its values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from manyarms.checks import are_geometric, items_of
from manyarms.errors import Advice, ArmsError, ParameterError
from manyarms.sheets.reading import are_bits
from manyarms.space.bits import Bits
from manyarms.space.columns import TYPES, Coded, Column, Numeric, Ordered, UnusedColumn
from manyarms.space.molecules import BY_DESCRIPTORS, SMILES, molecules_as
from manyarms.space.reading import Declared
from manyarms.space.spelling import (
    MERGE,
    NUMBER_TYPES,
    are_remarks,
    check_levels,
    plain_kind,
    words_of,
)
from manyarms.space.values import (
    Label,
    as_numbers,
    as_python,
    date_error,
    first_of,
    is_text,
    like,
    plain_type,
)
from manyarms.typing import Array

QUANTILES = 64
"""Different numbers of a column, up to which each is a level; of a column with more, so many
quantiles describe how they are spread."""
LEVELS_AT_LEAST = 50
"""Different strings up to which text is a category: a table so small lists each on purpose."""
DATE = r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$"


WAYS = (MERGE, BY_DESCRIPTORS)
"""Types with an addition behind a colon."""


def repeats(texts: pl.Series) -> bool:
    """Whether strings are levels: there are few different ones, or at least half of the rows share
    theirs with another row."""
    # A level that no other row has teaches nothing about other rows: such text names or comments.
    return texts.n_unique() <= LEVELS_AT_LEAST or 2 * int(texts.is_duplicated().sum()) >= len(texts)


def checked_types(columns: Mapping[str, str | Sequence[Any]] | None) -> dict[str, Declared]:
    """The argument `columns`, its types checked."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise ParameterError(
            f"columns must map names to types, such as {{'dose': 'log'}}, got {columns!r}"
        )
    return {name: _checked_type(name, declared) for name, declared in columns.items()}


def _checked_type(name: str, declared: Any) -> Declared:
    if isinstance(declared, str):
        kind = plain_kind(declared)
        # Behind a colon stand words of a number, or one of the ways that a type has.
        if kind not in TYPES or (
            declared != kind and kind not in NUMBER_TYPES and declared not in WAYS
        ):
            raise _no_type(name, declared)
        words_of(declared)
        return declared
    listed = items_of(declared) if isinstance(declared, Sequence | np.ndarray | pl.Series) else None
    if listed is None:
        raise _no_type(name, declared)
    levels = tuple(level.item() if isinstance(level, np.generic) else level for level in listed)
    if (
        not levels
        or len(set(map(repr, levels))) < len(levels)
        or not (_all_numbers(levels) or _all(levels, str))
    ):
        raise ParameterError(
            "{option} of {column!r} must list distinct levels, all strings or all numbers; got "
            "{got}",
            option="columns",
            column=name,
            got=list(levels),
        )
    return levels


def _no_type(name: str, declared: Any) -> ParameterError:
    return ParameterError(
        "{option} of {column!r} must be {expected}; got {got}",
        option="columns",
        column=name,
        expected=f"one of {', '.join(TYPES)}, or a list of levels in order",
        got=declared,
    )


def _all(values: Sequence[Any], kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)


def _all_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


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
    dtype = values.dtype
    if declared == "ignore":
        return UnusedColumn(name, "ignore")
    if declared is None and dtype.is_temporal():
        raise date_error(
            name, f"{dtype}", values.drop_nulls()[0] if values.null_count() < len(values) else None
        )
    if declared is None and not _can_be_typed(dtype):
        raise ArmsError(
            "column {column!r} must hold {expected}, got {got}",
            "put its parts into columns of their own",
            Advice("leave it out by {}", "columns", {name: "ignore"}),
            column=name,
            expected="numbers, booleans, strings or lists of bits",
            got=dtype,
        )
    known = values.drop_nulls()
    if not len(known):
        # An empty column: nothing to encode, and nothing to check in tables to come but that.
        if declared in ("text", "categorical", None):
            return (
                UnusedColumn(name, "text")
                if declared == "text"
                else UnusedColumn(name, "ignore", (None,))
            )
        raise ArmsError(
            "column {column!r} is declared {expected} and holds no value at all",
            "fill it",
            Advice("leave it out by {}", "columns", {name: "ignore"}),
            column=name,
            expected=repr(declared),
        )
    # A declared type stands, even for a column of one value; a guess may be dropped below.
    if declared is not None:
        return _as_declared(
            known, values, name, levels if levels and declared == "ordered" else declared, label
        )
    if not levels and are_remarks(values, missing):
        return UnusedColumn(name, "text")
    column = (
        _as_declared(known, values, name, levels, label)
        if levels
        else _by_values(known, values, name, label)
    )
    if not keep_constant and _is_constant(column, values, label):
        return UnusedColumn(name, "ignore", (as_python(values[0]),))
    return column


def _can_be_typed(dtype: pl.DataType) -> bool:
    plain = dtype.is_numeric() or is_text(dtype)
    return plain or isinstance(dtype, pl.Boolean | pl.List | pl.Array | pl.Null)


def _by_values(known: pl.Series, values: pl.Series, name: str, label: Label) -> Column:
    dtype = values.dtype
    if dtype.is_numeric():
        column = Numeric.fit(
            known,
            name,
            "integer" if dtype.is_integer() else "continuous",
            _known_label(values, label),
        )
        if column.low > 0 and are_geometric(_typical(known)):
            return Numeric(name, "log", column.low, column.high)
        return column
    if dtype == pl.Boolean:
        return Coded.fit(values, name, "boolean", label)
    if isinstance(dtype, pl.List | pl.Array):
        return Bits.fit(known, name, _known_label(values, label))
    return _of_strings(known.cast(pl.String), values, name, label)


def _typical(known: pl.Series) -> Array:
    """The different numbers of a column, or quantiles of them if there are many."""
    numbers = known.cast(pl.Float64)
    levels = numbers.unique().to_numpy()
    if len(levels) <= QUANTILES:
        return levels
    # The outermost ones say little: a single number may be far from all others.
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return np.unique(np.quantile(numbers.to_numpy(), shares))


def _of_strings(known: pl.Series, values: pl.Series, name: str, label: Label) -> Column:
    # The most special type first: bits are strings, dates and booleans are levels otherwise.
    if are_bits(known):
        return Bits.fit(known, name, _known_label(values, label))
    distinct = known.unique()
    if distinct.str.contains(DATE).all():
        raise date_error(name, "dates", known[0])
    if distinct.str.to_lowercase().is_in(["true", "false"]).all():
        return Coded.fit(values, name, "boolean", label)
    if repeats(known):
        check_levels(known, name)
        return Coded.fit(values, name, "categorical", label)
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
    return UnusedColumn(name, "text")


def _as_declared(
    known: pl.Series, values: pl.Series, name: str, declared: Declared, label: Label
) -> Column:
    if isinstance(declared, tuple):
        return Ordered(name, "ordered", pl.Series(declared, dtype=_level_type(declared)))
    way, declared = declared, str(plain_kind(declared))
    if declared == "number":
        as_numbers(known, name, declared, _known_label(values, label))  # raises where one is none
        return _by_values(known, values, name, label)
    if declared in NUMBER_TYPES:
        return Numeric.fit(known, name, declared, _known_label(values, label))
    nested = isinstance(values.dtype, pl.List | pl.Array) or not (
        _can_be_typed(values.dtype) or values.dtype.is_temporal()
    )
    if nested and declared != "bits":
        raise ArmsError(
            f"column {{column!r}} holds {{got}}, which cannot be {declared}",
            Advice("declare {} or bits", "columns", {name: "ignore"}),
            column=name,
            got=values.dtype,
        )
    if declared == "ordered":
        if not values.dtype.is_numeric():
            # Alphabetical would be an order too, and hardly ever the right one.
            levels = sorted(known.cast(pl.String).unique().to_list())
            raise ParameterError(
                "the order of column {column!r} is not known",
                Advice("list its levels in order, {}", "columns", {name: first_of(levels)}),
                column=name,
            )
        return Ordered(name, "ordered", like(known, plain_type(values.dtype)).unique().sort())
    if declared in ("bits", SMILES):
        here = _known_label(values, label)
        is_bits_type = declared == "bits"
        return Bits.fit(known, name, here) if is_bits_type else molecules_as(way, known, name, here)
    return (
        UnusedColumn(name, "text")
        if declared == "text"
        else Coded.fit(values, name, declared, label)
    )


def _is_constant(column: Column, values: pl.Series, label: Label) -> bool:
    if values.null_count():
        return False
    if isinstance(column, Numeric):
        return column.low == column.high
    if isinstance(column, Bits):
        # Block by block: unpacked, all bits at once may not fit.
        first = None
        for _, bits in column.decoded(values, label):
            first = bits[0] if first is None else first
            if (bits != first).any():
                return False
        return True
    return values.n_unique() == 1


def _level_type(levels: tuple[Any, ...]) -> pl.DataType:
    if _all(levels, str):
        return pl.String()
    return pl.Int64() if _all(levels, int) else pl.Float64()


def _known_label(values: pl.Series, label: Label) -> Label:
    """The label of rows by their position among the values that are not null."""
    if not values.null_count():
        return label
    positions = values.is_not_null().arg_true()
    return lambda row: label(positions[row])
