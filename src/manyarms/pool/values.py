"""What stands in a column, as numbers, booleans or levels; and how messages name it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from manyarms.errors import ArmsError
from manyarms.typing import AnyArray

Label = Callable[[int], str]
"""How a message names the row at a position."""

SHORTEST_BITS = 8
"""Strings of 0 and 1 this long or longer are bits."""
NARROW = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
TRUE, FALSE = ["true", "t", "yes", "y", "1"], ["false", "f", "no", "n", "0"]


def cleaned(values: pl.Series) -> pl.Series:
    """The values with NaN as null: either is a missing value."""
    return values.fill_nan(None) if values.dtype.is_float() else values


def is_bits(texts: pl.Series) -> bool:
    """Whether strings are bits: of 0 and 1 alone, equally long, not short."""
    lengths = texts.str.len_bytes()
    return (
        lengths[0] >= SHORTEST_BITS
        and lengths.n_unique() == 1
        and bool(texts.str.contains("^[01]+$").all())
    )


def as_numbers(values: pl.Series, name: str, type: str, label: Label) -> AnyArray:
    """The values as int64, uint64 or float64: finite, whole for the type "integer", positive for
    "log"."""
    dtype = values.dtype
    plain = pl.Int64() if dtype == pl.Boolean else plain_type(dtype)
    numbers = (
        values.cast(plain).to_numpy()
        if plain in (pl.Int64, pl.UInt64)
        else _floats(values, name, label)
    )
    bad = ~np.isfinite(numbers)
    expected = "finite numbers"
    if not bad.any() and type == "integer" and numbers.dtype.kind == "f":
        bad, expected = numbers != np.round(numbers), "whole numbers"
    if not bad.any() and type == "log":
        bad, expected = numbers <= 0, "numbers above 0 as its type is log"
    if bad.any():
        row = int(bad.argmax())
        raise ArmsError(
            f"column {name!r} must hold {expected}, got {values[row]!r} in {label(row)}; "
            "correct the value, leave the row out, or declare another type by "
            f"columns={{{name!r}: …}}"
        )
    return numbers


def _floats(values: pl.Series, name: str, label: Label) -> AnyArray:
    if is_text(values.dtype):
        numbers = values.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        bad = first_true(numbers.is_null())
        if bad is not None:
            raise ArmsError(
                f"column {name!r} must hold numbers, got {values[bad]!r} in {label(bad)}; "
                "correct the value, leave the row out, or declare another type"
            )
        return numbers.to_numpy()
    if values.dtype.is_temporal():
        raise date_error(name, f"{values.dtype}", values[0])
    if not values.dtype.is_numeric():
        raise ArmsError(
            f"column {name!r} must hold numbers, got {values.dtype}; put its parts into columns of "
            "their own"
        )
    return values.cast(pl.Float64).to_numpy()


def as_booleans(values: pl.Series, name: str, label: Label) -> pl.Series:
    if values.dtype == pl.Boolean:
        return values
    if is_text(values.dtype):
        texts = values.cast(pl.String).str.strip_chars().str.to_lowercase()
        true, false = texts.is_in(TRUE), texts.is_in(FALSE)
    elif values.dtype.is_numeric():
        true, false = values == 1, values == 0
    else:
        raise ArmsError(
            f"column {name!r} must hold booleans, got {values.dtype}; declare another type"
        )
    bad = first_true(~(true | false))
    if bad is not None:
        raise ArmsError(
            f"column {name!r} must hold booleans (true and false, yes and no, 1 and 0), got "
            f"{values[bad]!r} in {label(bad)}; "
            "correct the value or declare another type"
        )
    return true


def codes_of(values: pl.Series, levels: pl.Series) -> pl.Series:
    """The position of each value among the levels, null where it is none."""
    codes = pl.Series(np.arange(len(levels), dtype=np.float64))
    return values.replace_strict(levels, codes, default=None, return_dtype=pl.Float64)


def like(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The values as another type, null where that would change them."""
    if values.dtype == dtype:
        return values
    if dtype == pl.String:
        return values.cast(pl.String)
    if is_text(values.dtype):
        return values.cast(pl.String).str.strip_chars().cast(dtype, strict=False)
    plain = values.cast(dtype, strict=False)
    if values.dtype.is_float() and dtype.is_integer():
        return pl.select(pl.when(plain.cast(pl.Float64) == values).then(plain)).to_series()
    return plain


def plain_type(dtype: pl.DataType) -> pl.DataType:
    """The type that levels, or numbers, of a column are held in."""
    if is_text(dtype):
        return pl.String()
    if dtype in NARROW:
        return pl.Int64()
    return pl.Float64() if dtype.is_float() or isinstance(dtype, pl.Decimal) else dtype


def is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def first_true(mask: pl.Series) -> int | None:
    """The first position that is true."""
    return mask.arg_max() if mask.any() else None


def as_python(value: Any) -> Any:
    return value.to_list() if isinstance(value, pl.Series) else value


def listed(levels: list[Any]) -> str:
    return f"[{', '.join(map(repr, levels[:8]))}{', …' if len(levels) > 8 else ''}]"


def date_error(name: str, came: str, example: Any) -> ArmsError:
    return ArmsError(
        f"column {name!r} must not hold dates or times, got {came} such as {str(example)!r}; "
        "convert it to a number first "
        f'(days since the first, say), or give columns={{{name!r}: "categorical"}} or "ignore"'
    )
