"""Tables from data frames, dicts, arrays, and levels to be combined: all become data frames."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manyarms.checks import NO_ARRAY, items_of
from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.sheets.csvfiles import said_by
from manyarms.sheets.forked import check_threads
from manyarms.space.conditions import rows_where
from manyarms.typing import ArrayLike

Levels = tuple[Any, ...]
Declared = str | Levels
"""A type, or the levels of an ordered column."""
FOREIGN = (
    TypeError,
    ValueError,
    OverflowError,
    ImportError,
    NotImplementedError,
    OSError,
    pl.exceptions.PolarsError,
)
"""What other libraries raise if they cannot read a table."""
MIXABLE_TYPES = {bool, int, float, str}
"""Python types that may be mixed in one column: polars converts them, or refuses the column."""
COLUMN_TYPES = (*MIXABLE_TYPES, bytes, list, Decimal, date, time, timedelta)
"""Types of values that a column can have; a value of any other type is an object."""
MOST_COMBINED = 100_000_000
"""Combinations that are tested against conditions, at most: this takes about half a minute."""
MOST_ROWS = 5_000_000
"""Candidates that are listed, at most. Search more of them as a box, which lists none."""
COMBINATIONS_AT_ONCE = 1 << 20
"""Combinations that are made at a time: they take some tens of megabytes."""


def as_path(path: Any) -> Path:
    """The path of a file."""
    if not isinstance(path, str | Path):
        raise ArmsError(f"the path of a file must be a string or a Path, got {shortened(path)}")
    return Path(path)


def read_frame(frame: Any) -> tuple[pl.DataFrame, dict[str, Levels], dict[str, Declared]]:
    """The table, the levels of ordered columns that polars does not know as such, and types
    likewise."""
    import narwhals as nw  # noqa: PLC0415  only data frames need it

    check_threads()
    try:
        native = nw.from_native(frame, pass_through=True)
        if not isinstance(native, nw.DataFrame | nw.LazyFrame):
            raise ArmsError(
                f"cannot read a table from {type(frame).__name__}; give a data frame, a list of "
                "dicts, an array, or the path of a .csv or .parquet file"
            )
        eager = native.collect("polars") if isinstance(native, nw.LazyFrame) else native
        levels = {
            str(name): tuple(dtype.categories)
            for name, dtype in eager.schema.items()
            if isinstance(dtype, nw.Enum)
        }
        if eager.implementation.is_pyarrow():
            levels |= _arrow_levels(eager.to_native())
        table = pl.DataFrame([_column(str(name), eager.get_column(name)) for name in eager.columns])
    except ArmsError:
        raise
    except FOREIGN as error:
        raise ArmsError(
            f"cannot read a table from {type(frame).__name__}: {said_by(error)}; correct it, or "
            "give a list of dicts"
        ) from error
    # A categorical of numbers would come back as numbers, and be scaled.
    categories = [str(name) for name, dtype in eager.schema.items() if dtype == nw.Categorical]
    types: dict[str, Declared] = {
        name: "categorical" for name in categories if table.schema[name].is_numeric()
    }
    return table, {name: found for name, found in levels.items() if found}, types


def _column(name: str, given: Any) -> pl.Series:
    """A column of a data frame as polars can take it."""
    try:
        column: pl.Series = given.to_polars()
    except ImportError:
        # Polars takes most columns of pandas by way of pyarrow, which may not be installed.
        return as_series(name, _python_values(given.to_pandas()))
    except FOREIGN as error:
        raise TypeError(f"column {name!r}: {said_by(error)}") from error
    return column.alias(name)


def _python_values(column: Any) -> list[Any]:
    """The values of a column of pandas, None where one is missing."""
    if column.dtype.kind in "mM":
        column = column.dt.as_unit("us")  # Python's times have no finer unit
    pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
    return [None if is_missing else value for value, is_missing in pairs]


def _arrow_levels(table: Any) -> dict[str, Levels]:
    ordered = [field.name for field in table.schema if getattr(field.type, "ordered", False)]
    # Chunks may have dictionaries of their own; unified, that of the first is that of all.
    columns = {name: table.column(name).unify_dictionaries() for name in ordered}
    return {
        name: tuple(column.chunk(0).dictionary.to_pylist())
        for name, column in columns.items()
        if column.num_chunks
    }


def read_dicts(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    dicts = items_of(rows)
    if dicts is None or not all(isinstance(row, Mapping) for row in dicts):
        raise ArmsError(
            f"rows must be dicts, one for each candidate, got {type(rows).__name__} of other things"
        )
    names = dict.fromkeys(chain.from_iterable(dicts))
    if not all(isinstance(name, str) for name in names):
        raise ArmsError(
            "keys must be strings, the names of columns, got "
            f"{shortened(next(n for n in names if not isinstance(n, str)))}"
        )
    return pl.DataFrame([as_series(name, [row.get(name) for row in dicts]) for name in names])


def as_series(name: str, values: list[Any]) -> pl.Series:
    """One column. Polars guesses types from the first values, and a mixture may end the process: so
    it is given values of one type, or numbers."""
    values = [_plain(value) for value in values]
    kinds = _kinds(values)
    # NaN among strings or booleans is how pandas writes a missing value.
    if float in kinds and kinds - {float, int}:
        values = [
            None if isinstance(value, float) and np.isnan(value) else value for value in values
        ]
        kinds = _kinds(values)
    try:
        if kinds == {float, int}:
            return pl.Series(name, values, dtype=pl.Float64(), strict=False)
        if len(kinds) > 1 and not kinds <= MIXABLE_TYPES:
            raise TypeError("not a mixture of such")
        if list in kinds:
            within = _kinds(chain.from_iterable(value for value in values if value is not None))
            if not (within <= {bool, int, float} or within == {str}):
                raise TypeError("lists hold numbers, or text")
        is_known = all(issubclass(kind, COLUMN_TYPES) for kind in kinds)
        return pl.Series(name, values, dtype=None if is_known else pl.Object())
    except (Exception, pl.exceptions.PanicException) as error:
        came = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ArmsError(
            f"column {{column!r}} must hold values of one type, got {came}",
            "convert them first",
            column=name,
        ) from error


def _plain(value: Any) -> Any:
    """A scalar of NumPy as one of Python, a sequence as a list."""
    # item() of a long double is a long double again.
    if isinstance(value, Decimal) and value.is_nan():
        return np.nan  # also one that signals, of which Python makes no float
    if isinstance(value, np.longdouble) or (isinstance(value, Decimal) and not value.is_finite()):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim:
        return value.tolist()
    return list(value) if isinstance(value, tuple | range) else value


def _kinds(values: Iterable[Any]) -> set[type]:
    return set(map(type, values)) - {type(None)}


def read_array(X: ArrayLike, names: Sequence[str] | None) -> pl.DataFrame:
    try:
        array = np.asarray(X)
    except NO_ARRAY as error:
        raise ArmsError(f"X must be a rectangular table of numbers: {error}") from error
    if np.ma.is_masked(X) or array.dtype.kind not in "fiub":
        raise ArmsError(
            f"X must be real numbers, got dtype {array.dtype}; other columns can come by "
            "from_frame or from_dicts"
        )
    if array.ndim != 2:
        raise ArmsError(
            f"X must have shape (n_candidates, n_columns), got {array.shape}; a single column is "
            "X.reshape(-1, 1)"
        )
    width = array.shape[1]
    given = [f"x{j}" for j in range(width)] if names is None else names
    listed = items_of(given) or []
    strings = [str(name) for name in listed if isinstance(name, str)]
    if len(strings) != len(listed) or len(strings) != width or len(set(strings)) < width:
        raise ParameterError(
            f"names must be {width} different strings, one for each column of X, got "
            f"{shortened(names)}"
        )
    array = (
        array.astype(np.float64)
        if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8)
        else array
    )
    return pl.DataFrame(
        [pl.Series(name, np.ascontiguousarray(array[:, j])) for j, name in enumerate(strings)]
    )


def combined(
    levels: Mapping[str, Sequence[Any]], where: str | None = None, exclude: str | None = None
) -> pl.DataFrame:
    """The table of combinations, the levels of the last factor changing fastest."""
    columns = _factors(levels)
    sizes = [len(column) for column in columns.values()]
    n = math.prod(sizes)
    if n > MOST_COMBINED:
        raise ParameterError(
            f"levels must have at most {MOST_COMBINED:,} combinations, got {n:,}; use a Box, which "
            "lists none of them"
        )
    blocks: list[pl.DataFrame] = []
    n_rows = 0
    for start in range(0, n, COMBINATIONS_AT_ONCE):
        # The number of a combination has a digit for each factor.
        digits = np.unravel_index(np.arange(start, min(start + COMBINATIONS_AT_ONCE, n)), sizes)
        block = pl.DataFrame(
            [column.gather(at) for column, at in zip(columns.values(), digits, strict=True)]
        )
        kept = np.ones(len(block), dtype=bool)
        if where is not None:
            kept &= rows_where(block, where, columns)
        if exclude is not None:
            kept &= ~rows_where(block, exclude, columns)
        blocks.append(block.filter(kept))
        n_rows += len(blocks[-1])
        if n_rows > MOST_ROWS:
            raise ParameterError(
                f"at most {MOST_ROWS:,} combinations can be listed, got more; leave more of them "
                "out, or use a Box, which lists none"
            )
    if not n_rows:
        raise ArmsError(
            f"no combination of {n:,} is left; check the conditions: all of them exclude it"
        )
    return pl.concat(blocks)


def _factors(levels: Any) -> dict[str, pl.Series]:
    if not isinstance(levels, Mapping) or not levels:
        raise ParameterError(
            "levels must map names to levels, such as {'base': ['K2CO3', 'CsOAc']}, got "
            f"{shortened(levels)}"
        )
    columns = {}
    for name, given in levels.items():
        listed = None if isinstance(given, str) else items_of(given)
        if not isinstance(name, str) or not listed:
            raise ParameterError(
                "levels of {column!r} must be a list of at least one, got {got}",
                column=name,
                got=given,
            )
        series = as_series(name, listed)
        if series.dtype == pl.Object:
            raise ParameterError(
                "levels of {column!r} must be text, numbers or truths, got {got}",
                column=name,
                got=given,
            )
        twice = series.filter(series.is_duplicated())
        if len(twice) or series.null_count():
            raise ParameterError(
                "levels of {column!r} must be different and none empty, got {got} twice or empty",
                column=name,
                got=twice[0] if len(twice) else None,
            )
        columns[name] = series
    return columns
