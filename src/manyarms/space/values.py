"""What stands in a column, as numbers, booleans or levels; and how messages name it."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypedDict

import numpy as np
import polars as pl

from manyarms.errors import Advice, ArmsError
from manyarms.typing import AnyArray


class Place(TypedDict, total=False):
    """Where an error is: the row of the table, and its id if the table has ids of its own."""

    row: int
    id: Any


Label = Callable[[int], Place]
"""How messages name the row at a position."""

WHOLE_TYPES = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
"""Types whose values all fit int64."""


def cleaned(values: pl.Series) -> pl.Series:
    """The values with NaN as null: either is a missing value."""
    # Looked for first: `fill_nan` makes and runs a query, which few columns need.
    has_nan = values.dtype.is_float() and values.is_nan().any()
    return values.fill_nan(None) if has_nan else values


def as_numbers(values: pl.Series, name: str, type: str, label: Label) -> AnyArray:
    """The values as int64, uint64 or float64: finite, whole for the type "integer", positive for
    "log"."""
    dtype = values.dtype
    if is_text(dtype):
        numbers = values.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
    elif dtype.is_temporal():
        raise date_error(name, f"{dtype}", values[0])
    elif dtype.is_numeric() or dtype == pl.Boolean:
        plain = pl.Int64() if dtype == pl.Boolean else plain_type(dtype)
        numbers = values.cast(plain if plain in (pl.Int64, pl.UInt64) else pl.Float64)
    else:
        raise ArmsError(
            "column {column!r} must hold {expected}, got {got}",
            "put its parts into columns of their own",
            column=name,
            expected="numbers",
            got=dtype,
        )
    demands = {"numbers": numbers.is_not_null(), "finite numbers": numbers.is_finite()}
    if type == "integer":
        demands["whole numbers"] = numbers == numbers.round()
    if type == "log":
        demands["numbers above 0 as its type is log"] = numbers > 0
    for expected, is_met in demands.items():
        bad = first_true(~is_met)
        if bad is not None:
            raise wrong_value(name, expected, values[bad], label(bad))
    return numbers.to_numpy()


def as_booleans(values: pl.Series, name: str, label: Label) -> pl.Series:
    if values.dtype == pl.Boolean:
        return values
    if is_text(values.dtype):
        texts = values.cast(pl.String).str.strip_chars().str.to_lowercase()
        true = texts.is_in(["true", "t", "yes", "y", "1"])
        false = texts.is_in(["false", "f", "no", "n", "0"])
    elif values.dtype.is_numeric():
        true = values == 1
        false = values == 0
    else:
        raise ArmsError(
            "column {column!r} must hold {expected}, got {got}",
            Advice("declare another type by {}", "columns", {name: "…"}),
            column=name,
            expected="booleans",
            got=values.dtype,
        )
    bad = first_true(~(true | false))
    if bad is not None:
        expected = "booleans (true and false, yes and no, 1 and 0)"
        raise wrong_value(name, expected, values[bad], label(bad))
    return true


def codes_of(values: pl.Series, levels: pl.Series) -> pl.Series:
    """The position of each value among the levels; null for a value that is none of them."""
    codes = pl.Series(np.arange(len(levels), dtype=np.float64))
    return values.replace_strict(levels, codes, default=None, return_dtype=pl.Float64)


def like(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The values as another type; null for a value that this would change."""
    if values.dtype == dtype:
        return values
    if dtype == pl.String:
        return values.cast(pl.String)
    if is_text(values.dtype):
        return values.cast(pl.String).str.strip_chars().cast(dtype, strict=False)
    plain = values.cast(dtype, strict=False)
    # A cast from float to integer cuts the fraction off: 1.5 is not the level 1.
    if values.dtype.is_float() and dtype.is_integer():
        return pl.select(pl.when(plain.cast(pl.Float64) == values).then(plain)).to_series()
    return plain


def plain_type(dtype: pl.DataType) -> pl.DataType:
    """The type in which levels or numbers of a column are stored."""
    if is_text(dtype):
        return pl.String()
    if dtype in WHOLE_TYPES:
        return pl.Int64()
    return pl.Float64() if dtype.is_float() or isinstance(dtype, pl.Decimal) else dtype


def is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def first_true(mask: pl.Series) -> int | None:
    """The first position that is true."""
    return mask.arg_max() if mask.any() else None


def as_python(value: Any) -> Any:
    return value.to_list() if isinstance(value, pl.Series) else value


def closest(text: str, known: Iterable[str]) -> str | None:
    """The known text that is most similar to a mistyped one; None if none is similar."""
    rapidfuzz = import_module("rapidfuzz")  # only a mistake needs it
    # 60 percent of the letters must agree in order: two letters of "base" may be swapped, and of
    # "yes" and "no" neither suggests the other.
    found = rapidfuzz.process.extractOne(text, known, scorer=rapidfuzz.fuzz.ratio, score_cutoff=60)
    return None if found is None else str(found[0])


def first_of(levels: list[Any]) -> list[Any]:
    """Levels for a message: eight at most."""
    return [*levels[:8], *(["…"] if len(levels) > 8 else [])]


def date_error(name: str, came: str, example: Any) -> ArmsError:
    return ArmsError(
        f"column {{column!r}} must not hold dates or times, got {came} such as {{got}}",
        "convert it to a number first (days since the first, say)",
        Advice("make it a category by {}", "columns", {name: "categorical"}),
        Advice("leave it out by {}", "columns", {name: "ignore"}),
        column=name,
        got=str(example),
    )


def wrong_value(name: str, expected: str, got: Any, place: Place) -> ArmsError:
    """A value that a column of its type cannot hold."""
    return ArmsError(
        "column {column!r} must hold {expected}, got {got} in {place}",
        "correct the value",
        "leave the row out",
        Advice("declare another type by {}", "columns", {name: "…"}),
        column=name,
        expected=expected,
        got=got,
        **place,
    )
