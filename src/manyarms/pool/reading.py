"""Tables from files, data frames, dicts and arrays, all as one kind of data frame."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from manyarms.arms import parquet
from manyarms.errors import Advice, ArmsError, ParameterError, shortened
from manyarms.numbers import NO_ARRAY, items_of
from manyarms.pool.forked import check_threads
from manyarms.pool.formulas import unmarked, unmarked_name
from manyarms.pool.unpacking import Source, check_file, opened, unpacked
from manyarms.pool.values import is_bits
from manyarms.typing import ArrayLike

Levels = tuple[Any, ...]
Declared = str | Levels
"""A type, or the levels of an ordered column."""
Read = TypeVar("Read")
NOT_A_NUMBER = ["", "na", "n/a", "nan", "null", "none"]
"""What stands for a missing number in a CSV file, in any case."""
SEPARATORS = ",;\t|"
"""Of the columns of a CSV file; the first one wins a draw."""
SAMPLED = 100
"""Rows of a CSV file looked at for strings of bits, before polars guesses types: it would take them
for large numbers."""
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises at a file that it cannot read."""
FOREIGN = (
    TypeError,
    ValueError,
    OverflowError,
    ImportError,
    NotImplementedError,
    OSError,
    pl.exceptions.PolarsError,
)
"""What other libraries raise at a table that they cannot read."""
PLAIN = {bool, int, float, str}
"""Types of which polars takes a mixture, or refuses it."""
KNOWN = (*PLAIN, bytes, list, Decimal, date, time, timedelta)
"""Types that a column can have; any other is an object to it."""
TYPED = 10_000
"""Rows of a CSV file that its types are guessed from; all, where that fails."""


def as_path(path: Any) -> Path:
    """The path of a file."""
    if not isinstance(path, str | Path):
        raise ArmsError(f"the path of a file must be a string or a Path, got {path!r:.80}")
    return Path(path)


def read_parquet(path: Path) -> pl.DataFrame:
    """The table in a Parquet file."""
    check_file(path)
    check_threads()
    return parquet.read_parquet(path)


def is_parquet(path: Path) -> bool:
    """By the ending of its name."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_csv(
    path: Path, id: str | None, texts: set[str], kept: set[str], decimal: str = "."
) -> pl.DataFrame:
    """`texts` are read as strings, as is the id unless all are numbers written plainly; `kept` are
    not searched for numbers."""
    if decimal not in (".", ","):
        raise ParameterError(
            '{option} must be "." or ",", got {got}', option="decimal", got=decimal
        )
    source = unpacked(path)
    parse = partial(
        pl.read_csv, source, separator=_separator(source), decimal_comma=decimal == ",", glob=False
    )
    # All as strings first: "0101" read as a number has lost its zeros.
    sample = _attempt(path, source, lambda: parse(infer_schema_length=0, n_rows=SAMPLED))
    # Here columns go by names without the apostrophe; polars needs those in the file.
    written = {unmarked_name(name): name for name in sample.columns}
    _check_header(path, sample.columns, len(written))
    sample.columns = list(written)
    bits = (
        {
            name
            for name in sample.columns
            if len(known := sample[name].drop_nulls()) and is_bits(known)
        }
        - texts
        - {id}
    )
    as_strings = {
        in_file: pl.String()
        for name, in_file in written.items()
        if name in texts or name in bits or name == id
    }

    def read(length: int | None) -> pl.DataFrame:
        return parse(infer_schema_length=length, schema_overrides=as_strings)

    try:
        frame = read(TYPED)
    except UNREADABLE:
        # A row further down is of another type, or the file is broken: read it whole, to know.
        frame = _attempt(path, source, lambda: read(None))
    frame.columns = list(written)
    # Spreadsheets leave empty lines at the end, which polars reads as rows of nulls.
    height = len(frame)
    while height and all(value is None for value in frame.row(height - 1)):
        height -= 1
    frame = frame.head(height)
    searched = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.String and name not in kept and name != id
    ]
    frame = frame.with_columns(_numbers_in(frame[name], name in bits, decimal) for name in searched)
    # Ids are numbers only if each, written back, is the same text: "007" and "1.0" stay strings.
    if (
        id is not None
        and id in frame.columns
        and id not in texts
        and frame[id].str.contains(r"^(0|-?[1-9]\d{0,17})$").all()
    ):
        frame = frame.with_columns(pl.col(id).cast(pl.Int64))
    return unmarked(frame)


def _separator(source: Source) -> str:
    """What separates the names of the header: the mark that occurs most outside quotes, a comma
    where none does."""
    with opened(source) as file:
        header = file.readline(1 << 20)  # a file without line ends is not read whole
    bare = "".join(header.split('"')[::2])  # every other part is inside quotes
    return max(SEPARATORS, key=bare.count)


def _numbers_in(texts: pl.Series, may_be_bits: bool, decimal: str) -> pl.Series:
    """Strings as numbers where all are, or stand for a missing one; those of bits begin with 0
    somewhere, or are long."""
    plain = texts.str.strip_chars()
    if decimal == ",":
        plain = plain.str.replace(",", ".", literal=True)
    known = plain.filter(plain.is_not_null() & ~plain.str.to_lowercase().is_in(NOT_A_NUMBER))
    if not len(known) or known.cast(pl.Float64, strict=False).null_count():
        return texts
    # Of 0 and 1 alone, but a number: only if none begins with 0 and all fit 18 digits.
    if may_be_bits and is_bits(known) and (len(known[0]) > 18 or known.str.starts_with("0").any()):
        return texts
    # Whole numbers stay whole: float64 may round those of more than 15 digits.
    whole = plain.cast(pl.Int64, strict=False)
    return (
        whole
        if whole.null_count() == len(plain) - len(known)
        else plain.cast(pl.Float64, strict=False)
    )


def _check_header(path: Path, names: list[str], n_different: int) -> None:
    strange = [name for name in names if "\ufffd" in name or "\0" in name]
    if strange:
        raise ArmsError(
            f"cannot read {path}: it must be a CSV file in UTF-8, got the header "
            f"{strange[0][:40]!r}; convert it first"
        )
    # What polars calls the second of two columns of one name.
    twice = [
        name
        for name in names
        if name.removesuffix("_duplicated_0") in names and name.endswith("_duplicated_0")
    ]
    if twice:
        raise ArmsError(
            f"{path} must name its columns differently, got "
            f"{twice[0].removesuffix('_duplicated_0')!r} twice"
        )
    if n_different < len(names):
        raise ArmsError(
            f"{path} must name its columns differently, also without the apostrophe before = + - "
            "and @; rename one"
        )


def _attempt(path: Path, source: Source, read: Callable[[], Read]) -> Read:
    check_threads()
    try:
        return read()
    except (OSError, *UNREADABLE) as error:
        raise _unreadable_file(path, source, error) from error


def _unreadable_file(path: Path, source: Source, error: BaseException) -> ArmsError:
    """What is wrong with a file, found by a look at it, and what to do."""
    if not isinstance(error, OSError):
        if not _is_utf8(source):
            return ArmsError(
                f"cannot read {path}: it must be text in UTF-8, got other bytes",
                "save it as CSV in UTF-8",
            )
        long = _long_line(source)
        if long is not None:
            return ArmsError(
                f"cannot read {path}: its header names {long[0]} columns, got {long[1]} fields in "
                f"line {long[2]}",
                "quote fields that hold the separator",
            )
    by_frame = Advice("read it into a data frame for {}", "Pool.from_frame")
    return ArmsError(f"cannot read {path}: {_said(error)}", "check what it holds", by_frame)


def _long_line(source: Source) -> tuple[int, int, int] | None:
    """Fields of the header, and of the first line that has more of them, and its number."""
    with opened(source) as file:
        lines = csv.reader(file, delimiter=_separator(source))
        try:
            n = len(next(lines, []))
            return next(((n, len(row), lines.line_num) for row in lines if len(row) > n), None)
        except csv.Error:  # a quote that is not closed
            return None


def _is_utf8(source: Source) -> bool:
    try:
        with opened(source, errors="strict") as file:
            # Reads to the end: no line is empty, as each has at least its line end.
            return all(file)
    except UnicodeDecodeError:
        return False


def _said(error: BaseException) -> str:
    """What another library says, without its advice."""
    return " ".join(str(error).split("\n\n")[0].split())


def read_frame(frame: Any) -> tuple[pl.DataFrame, dict[str, Levels], dict[str, Declared]]:
    """The table, the levels of ordered columns that polars does not know as such, and types
    likewise."""
    import narwhals as nw  # noqa: PLC0415  only data frames need it

    check_threads()
    try:
        native = nw.from_native(frame)
    except TypeError as error:
        raise ArmsError(
            f"cannot read a table from {type(frame).__name__}; give a data frame, a list of dicts, "
            "an array, or the path of a "
            ".csv or .parquet file"
        ) from error
    except FOREIGN as error:
        raise ArmsError(
            f"cannot read a table from {type(frame).__name__}: {_said(error)}"
        ) from error
    try:
        eager = native.collect("polars") if isinstance(native, nw.LazyFrame) else native
        levels = {
            str(name): tuple(dtype.categories)
            for name, dtype in eager.schema.items()
            if isinstance(dtype, nw.Enum)
        }
        if eager.implementation.is_pyarrow():
            levels |= _arrow_levels(eager.to_native())
        table = eager.to_polars()
    except FOREIGN as error:
        where = _unreadable(native) if isinstance(native, nw.DataFrame) else ""
        raise ArmsError(
            f"cannot read a table from {type(frame).__name__}: {where}{_said(error)}; correct it, "
            "or give a list of dicts"
        ) from error
    # A categorical of numbers would come back as numbers, and be scaled.
    categories = [str(name) for name, dtype in eager.schema.items() if dtype == nw.Categorical]
    types: dict[str, Declared] = {
        name: "categorical" for name in categories if table.schema[name].is_numeric()
    }
    return table, {name: found for name, found in levels.items() if found}, types


def _unreadable(frame: Any) -> str:
    """Names the first column that polars cannot hold."""
    for name in frame.columns:
        try:
            frame[name].to_polars()
        except FOREIGN:
            return f"column {str(name)!r}: "
    return ""


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
            f"{next(n for n in names if not isinstance(n, str))!r}"
        )
    return pl.DataFrame([as_series(name, [row.get(name) for row in dicts]) for name in names])


def as_series(name: str, values: list[Any]) -> pl.Series:
    """One column. Polars guesses types by a look at the values, and may end the process over a
    mixture: it gets values of one type, or numbers."""
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
        if len(kinds) > 1 and not kinds <= PLAIN:
            raise TypeError("not a mixture of such")
        if list in kinds:
            within = _kinds(chain.from_iterable(value for value in values if value is not None))
            if not (within <= {bool, int, float} or within == {str}):
                raise TypeError("lists hold numbers, or text")
        is_known = all(issubclass(kind, KNOWN) for kind in kinds)
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
