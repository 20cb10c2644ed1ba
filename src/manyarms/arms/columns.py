"""One column of a table: what it holds, and how it becomes features.

| type | chosen for | encoded as |
|---|---|---|
| continuous, integer | numbers | one column, the range of the pool scaled to [0, 1] |
| log | numbers above 0 whose 95th percentile is at least `SPREAD` times the 5th | the same, of the logarithm |
| ordered | Enum, ordered categoricals, a list of levels | one column, the first level 0 and the last 1 |
| boolean, categorical | booleans; strings with at most `distinct_allowed` values | one column of codes 0, 1, … |
| bits | lists of 0 and 1; strings of 0 and 1, equally long, `SHORTEST_BITS` or more | packed, `BITS` to a column |
| text, ignore | other strings; columns that hold one value only | not encoded |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import polars as pl

from manyarms.arms.objects import encoded
from manyarms.errors import ArmsError, ParameterError
from manyarms.kernels.base import Kernel
from manyarms.kernels.discrete import BITS, pack
from manyarms.typing import AnyArray, Array

TYPES = ("continuous", "log", "integer", "boolean", "ordered", "categorical", "text", "bits", "ignore")
SPREAD = 100
"""Positive numbers are taken as logarithms where the 95th percentile is at least this many times the 5th. Of numbers that are
spread evenly it is 19 times, however many there are."""
SHORTEST_BITS = 8
"""Strings of 0 and 1 this long or longer are bits."""
ENTRIES_DECODED = 1 << 22
"""Bits decoded at a time."""

Kind = Literal["numeric", "categorical", "bits", "object"]
Declared = str | tuple[Any, ...]
"""A type, or the levels of an ordered column."""
Label = Callable[[int], str]
"""How a message names the row at a position."""

NARROW = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
TRUE, FALSE = ["true", "t", "yes", "y", "1"], ["false", "f", "no", "n", "0"]
DATE = r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$"


def distinct_allowed(n_rows: int) -> int:
    """Distinct strings up to which a column is categorical: a twentieth of the rows, at least 50 and at most 1000."""
    return max(50, min(n_rows // 20, 1000))


@dataclass(frozen=True)
class Feature:
    """Columns `start` to `stop` (exclusive) of the encoded features, made from the column `name` of the table.

    `kind` says which kernel suits: "numeric" distances, "categorical" equality of codes, "bits" overlap, "object" that of the
    pool. Code i stands for
    `levels[i]` (None: a missing value); an ordered column has its levels in order; `low` and `high` are scaled to 0 and 1;
    `n_bits` bits are packed.
    """

    name: str
    kind: Kind
    start: int
    stop: int
    type: str
    levels: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    n_bits: int = 0


@dataclass(frozen=True, eq=False)
class Column(ABC):
    """How one column is encoded: decided once, on the first table."""

    name: str
    type: str

    @property
    def width(self) -> int:
        """Encoded columns."""
        return 1

    @abstractmethod
    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        """Fill `out`, (n, width). Nulls are checked before."""

    def grown(self, values: pl.Series, label: Label) -> Self:
        """The column after more values: codes that exist stay."""
        return self

    @abstractmethod
    def feature(self, start: int) -> Feature:
        """What stands in the encoded columns from `start`."""

    def takes_missing(self) -> bool:
        """Whether a missing value may be a level."""
        return False


@dataclass(frozen=True, eq=False)
class Aside(Column):
    """Kept, not encoded: text, ignored columns, and those that hold one value only (`constant`, a tuple of that value)."""

    constant: tuple[Any] | None = None

    @property
    def width(self) -> int:
        return 0

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        """Nothing to fill; a constant that changes is an error, since the features would not tell."""
        if self.constant is None or (values.n_unique() == 1 and _python(values[0]) == self.constant[0]):
            return
        for row, value in enumerate(values.to_list()):
            if value != self.constant[0]:
                raise ArmsError(
                    f"column {self.name!r} was {self.constant[0]!r} in every row of the first table and is not encoded, got "
                    f"{value!r} in {label(row)}; make a new pool of all rows, or give the first one "
                    f'columns={{{self.name!r}: "ignore"}} or a type to encode it by'
                )

    def feature(self, start: int) -> Feature:
        raise NotImplementedError

    def takes_missing(self) -> bool:
        return self.constant is not None or self.type == "ignore"


@dataclass(frozen=True, eq=False)
class Numeric(Column):
    """(v − low) / (high − low), of logarithms for the type "log"."""

    low: float
    high: float

    @classmethod
    def fit(cls, values: pl.Series, name: str, type: str, label: Label) -> "Numeric":
        numbers = as_numbers(values, name, type, label)
        low, high = numbers.min().item(), numbers.max().item()
        return cls(name, type, low, high)

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        numbers = as_numbers(values, self.name, self.type, label)
        if self.type == "log":
            low, high = np.log(float(self.low)), np.log(float(self.high))
            scaled = (np.log(numbers.astype(np.float64)) - low) / ((high - low) or 1.0)
        else:
            scale = 1.0 if np.isfinite(float(self.high) - float(self.low)) else 0.5
            width = (float(self.high - self.low) if scale == 1.0 else self.high * scale - self.low * scale) or 1.0
            with np.errstate(over="ignore"):
                scaled = _minus(numbers, self.low, scale) / width
        bad = np.flatnonzero(~np.isfinite(scaled))
        if len(bad):
            raise ArmsError(
                f"column {self.name!r} is scaled by the first table, from {self.low} to {self.high}, "
                f"got {numbers[bad[0]]} in {label(bad[0])}, too far from it; make a new pool of all rows"
            )
        out[:, 0] = scaled

    def feature(self, start: int) -> Feature:
        return Feature(self.name, "numeric", start, start + 1, self.type, low=self.low, high=self.high)


@dataclass(frozen=True, eq=False)
class Ordered(Column):
    """The position among the levels, the first 0 and the last 1."""

    levels: pl.Series

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        found = _codes(_like(values, self.levels.dtype), self.levels)
        bad = _first(found.is_null())
        if bad is not None:
            raise ArmsError(
                f"column {self.name!r} must hold one of its levels {_listed(self.levels.to_list())}, "
                f"got {values[bad]!r} in {label(bad)}; correct the value or give all levels in order"
            )
        np.divide(found.to_numpy(), max(len(self.levels) - 1, 1), out=out[:, 0])

    def feature(self, start: int) -> Feature:
        return Feature(self.name, "numeric", start, start + 1, "ordered", tuple(self.levels.to_list()))


@dataclass(frozen=True, eq=False)
class Coded(Column):
    """The code of the level. Levels are sorted within the table that brought them; a null is a level once one was seen."""

    levels: pl.Series

    @classmethod
    def fit(cls, values: pl.Series, name: str, type: str, label: Label) -> "Coded":
        empty = pl.Series([], dtype=pl.Boolean if type == "boolean" else _plain(values.dtype))
        column = cls(name, type, empty)
        return column.grown(pl.Series([False, True]) if type == "boolean" else values, label).grown(values, label)

    def _values(self, values: pl.Series, label: Label) -> pl.Series:
        if self.type == "boolean":
            return _booleans(values, self.name, label)
        plain = _like(values, self.levels.dtype)
        lost = _first(plain.is_null() & values.is_not_null())
        if lost is not None:
            raise ArmsError(
                f"column {self.name!r} held {self.levels.dtype} in the first table, got {values[lost]!r} in {label(lost)}; "
                "give both tables the same type of values"
            )
        return plain

    def grown(self, values: pl.Series, label: Label) -> Self:
        plain = self._values(values, label).unique()
        new = plain.filter(~plain.is_in(self.levels.drop_nulls().to_list()) & plain.is_not_null()).sort()
        if plain.null_count() and not self.levels.null_count():
            new = new.extend(pl.Series([None], dtype=self.levels.dtype))
        return type(self)(self.name, self.type, pl.concat([self.levels, new])) if len(new) else self

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        found = _codes(self._values(values, label), self.levels)
        if self.levels.null_count():
            found = found.fill_null(float(_first(self.levels.is_null()) or 0))
        out[:, 0] = found.to_numpy()

    def feature(self, start: int) -> Feature:
        return Feature(self.name, "categorical", start, start + 1, self.type, tuple(self.levels.to_list()))

    def takes_missing(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Bits(Column):
    """Bits, packed (`kernels.pack`)."""

    n_bits: int

    @property
    def width(self) -> int:
        return -(-self.n_bits // BITS)

    @classmethod
    def fit(cls, values: pl.Series, name: str, label: Label) -> "Bits":
        texts = not isinstance(values.dtype, pl.List | pl.Array)
        n_bits = len(values.cast(pl.String)[0] if texts else values[0])
        if not n_bits:
            raise ArmsError(f"column {name!r} must hold at least one bit, got none in {label(0)}")
        return cls(name, "bits", n_bits)

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        for start, bits in self.decoded(values, label):
            out[start : start + len(bits)] = pack(bits)

    def decoded(self, values: pl.Series, label: Label) -> Iterator[tuple[int, AnyArray]]:
        """Blocks of rows of 0 and 1, each with its first position."""
        n_rows = max(1, ENTRIES_DECODED // self.n_bits)
        texts = not isinstance(values.dtype, pl.List | pl.Array)
        plain = values.cast(pl.String) if texts else values if isinstance(values.dtype, pl.List) else values.arr.to_list()
        for start in range(0, len(values), n_rows):
            block = plain.slice(start, n_rows)
            lengths = (block.str.len_bytes() if texts else block.list.len()).to_numpy()
            _raise_first(lengths != self.n_bits, start, self, values, f"{self.n_bits} of them as in the first row", label)
            flat = np.frombuffer(block.str.join("").item().encode(), np.uint8) - ord("0") if texts else self._entries(block)
            bits = flat.reshape(len(block), self.n_bits)
            _raise_first(bits.max(axis=1) > 1, start, self, values, "0 and 1", label)
            yield start, bits

    def _entries(self, block: pl.Series) -> AnyArray:
        """The entries of lists one after another, 2 for what is not a bit."""
        entries = block.explode()
        if not entries.dtype.is_numeric() and entries.dtype != pl.Boolean:
            return np.full(len(entries), 2, np.uint8)
        numbers = entries.cast(pl.Float64).fill_null(2.0).to_numpy()
        return np.where((numbers == 0) | (numbers == 1), numbers, 2).astype(np.uint8)

    def feature(self, start: int) -> Feature:
        return Feature(self.name, "bits", start, start + self.width, "bits", n_bits=self.n_bits)


@dataclass(frozen=True, eq=False)
class Objects(Column):
    """Objects of any kind, as rows that the encoder of their kernel makes of them."""

    kernel: Kernel
    size: int

    @property
    def width(self) -> int:
        return self.size

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        out[:] = encoded(values.to_list(), self.kernel, self.size)

    def feature(self, start: int) -> Feature:
        return Feature(self.name, "object", start, start + self.width, "object")


def _raise_first(bad: AnyArray, start: int, column: Bits, values: pl.Series, expected: str, label: Label) -> None:
    if bad.any():
        row = start + int(bad.argmax())
        raise ArmsError(
            f"column {column.name!r} is of bits and must hold {expected} in every row, "
            f"got {_shown(values[row])} in {label(row)}; correct it, put numbers into columns of their own, "
            f'or leave the column out with columns={{{column.name!r}: "ignore"}}'
        )


def checked_types(columns: Mapping[str, str | Sequence[Any]] | None) -> dict[str, Declared]:
    """The argument `columns`, its types checked."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise ParameterError(f"columns must map names to types, such as {{'dose': 'log'}}, got {columns!r}")
    return {name: _checked_type(name, declared) for name, declared in columns.items()}


def _checked_type(name: str, declared: Any) -> Declared:
    if isinstance(declared, str):
        if declared not in TYPES:
            raise ParameterError(
                f"columns[{name!r}] must be one of {', '.join(TYPES)}, or a list of levels in order; got {declared!r}"
            )
        return declared
    if not isinstance(declared, Sequence | np.ndarray | pl.Series):
        raise ParameterError(f"columns[{name!r}] must be one of {', '.join(TYPES)}, or a list of levels; got {declared!r}")
    levels = tuple(level.item() if isinstance(level, np.generic) else level for level in declared)
    if not levels or len(set(map(repr, levels))) < len(levels) or not (_all_numbers(levels) or _all(levels, str)):
        raise ParameterError(f"columns[{name!r}] must list distinct levels, all strings or all numbers; got {list(levels)!r}")
    return levels


def _all(values: Sequence[Any], kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)


def _all_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def cleaned(values: pl.Series) -> pl.Series:
    """The values with NaN as null: either is a missing value."""
    return values.fill_nan(None) if values.dtype.is_float() else values


def decide(
    values: pl.Series,
    name: str,
    declared: Declared | None,
    label: Label,
    levels: tuple[Any, ...] = (),
    keep_constant: bool = False,
) -> Column:
    """How a column is encoded: as declared, else by its values (cleaned), in the order of `levels` where the table gave them.

    Without a declaration a column that holds one value only is not encoded, unless `keep_constant`.
    """
    dtype = values.dtype
    if declared == "ignore":
        return Aside(name, "ignore")
    if declared is None and dtype.is_temporal():
        raise _date_error(name, f"{dtype}", values.drop_nulls()[0] if values.null_count() < len(values) else None)
    if declared is None and isinstance(dtype, pl.Struct | pl.Object | pl.Binary):
        raise ArmsError(
            f"column {name!r} must hold numbers, booleans, strings or lists of bits, got {dtype}; "
            f'put its parts into columns of their own, or leave it out with columns={{{name!r}: "ignore"}}'
        )
    known = values.drop_nulls()
    if not len(known):
        if declared in ("text", "categorical", None):
            return Aside(name, "text") if declared == "text" else Aside(name, "ignore", (None,))
        raise ArmsError(f"column {name!r} is declared {declared!r} and holds no value at all; fill it or ignore it")
    if declared is not None:
        return _as_declared(known, values, name, levels if levels and declared == "ordered" else declared, label)
    column = _as_declared(known, values, name, levels, label) if levels else _by_values(known, values, name, label)
    if not keep_constant and _is_constant(column, values, label):
        return Aside(name, "ignore", (_python(values[0]),))
    return column


def _by_values(known: pl.Series, values: pl.Series, name: str, label: Label) -> Column:
    dtype = values.dtype
    if dtype.is_numeric():
        column = Numeric.fit(known, name, "integer" if dtype.is_integer() else "continuous", _known_label(values, label))
        if column.low > 0:
            low, high = known.quantile(0.05, "lower"), known.quantile(0.95, "higher")
            if low and high and high >= SPREAD * low:
                return Numeric(name, "log", column.low, column.high)
        return column
    if dtype == pl.Boolean:
        return Coded.fit(values, name, "boolean", label)
    if isinstance(dtype, pl.List | pl.Array):
        return Bits.fit(known, name, _known_label(values, label))
    return _of_strings(known.cast(pl.String), values, name, label)


def _of_strings(known: pl.Series, values: pl.Series, name: str, label: Label) -> Column:
    if is_bits(known):
        return Bits.fit(known, name, _known_label(values, label))
    distinct = known.unique()
    if distinct.str.contains(DATE).all():
        raise _date_error(name, "dates", known[0])
    if distinct.str.to_lowercase().is_in(["true", "false"]).all():
        return Coded.fit(values, name, "boolean", label)
    if len(distinct) <= distinct_allowed(len(values)):
        return Coded.fit(values, name, "categorical", label)
    numbers = known.str.strip_chars().cast(pl.Float64, strict=False)
    if 2 * numbers.null_count() < len(known):
        other = known.filter(numbers.is_null())
        but = f"{other[0]!r} among the numbers" if len(other) else f"text, such as {known[0]!r}"
        raise ArmsError(
            f"column {name!r} seems to hold numbers, got {but}; correct it, "
            f'or say what it is by columns={{{name!r}: "continuous"}}, "categorical", "text" or "ignore"'
        )
    return Aside(name, "text")


def _as_declared(known: pl.Series, values: pl.Series, name: str, declared: Declared, label: Label) -> Column:
    if isinstance(declared, tuple):
        return Ordered(name, "ordered", pl.Series(declared, dtype=_level_type(declared)))
    if declared in ("continuous", "log", "integer"):
        return Numeric.fit(known, name, declared, _known_label(values, label))
    if isinstance(values.dtype, pl.List | pl.Array | pl.Struct | pl.Object | pl.Binary) and declared != "bits":
        raise ArmsError(
            f"column {name!r} holds {values.dtype}, which cannot be {declared}; only bits and ignore can be declared"
        )
    if declared == "ordered":
        if not values.dtype.is_numeric():
            raise ParameterError(
                f"the order of column {name!r} is not known: list its levels in order, "
                f"columns={{{name!r}: {_listed(sorted(known.cast(pl.String).unique().to_list()))}}}"
            )
        return Ordered(name, "ordered", _like(known, _plain(values.dtype)).unique().sort())
    if declared == "bits":
        return Bits.fit(known, name, _known_label(values, label))
    return Aside(name, "text") if declared == "text" else Coded.fit(values, name, declared, label)


def _is_constant(column: Column, values: pl.Series, label: Label) -> bool:
    if values.null_count():
        return False
    if isinstance(column, Numeric):
        return column.low == column.high
    if isinstance(column, Bits):
        first = None
        for _, bits in column.decoded(values, label):
            first = bits[0] if first is None else first
            if (bits != first).any():
                return False
        return True
    return values.n_unique() == 1


def is_bits(texts: pl.Series) -> bool:
    """Whether strings are bits: of 0 and 1 alone, equally long, not short."""
    lengths = texts.str.len_bytes()
    return lengths[0] >= SHORTEST_BITS and lengths.n_unique() == 1 and bool(texts.str.contains("^[01]+$").all())


def as_numbers(values: pl.Series, name: str, type: str, label: Label) -> AnyArray:
    """The values as int64, uint64 or float64: finite, whole for the type "integer", positive for "log"."""
    dtype = values.dtype
    plain = pl.Int64() if dtype == pl.Boolean else _plain(dtype)
    numbers = values.cast(plain).to_numpy() if plain in (pl.Int64, pl.UInt64) else _floats(values, name, label)
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
            f"correct the value, leave the row out, or declare another type by columns={{{name!r}: …}}"
        )
    return numbers


def _floats(values: pl.Series, name: str, label: Label) -> AnyArray:
    if _is_text(values.dtype):
        numbers = values.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        bad = _first(numbers.is_null())
        if bad is not None:
            raise ArmsError(
                f"column {name!r} must hold numbers, got {values[bad]!r} in {label(bad)}; "
                "correct the value, leave the row out, or declare another type"
            )
        return numbers.to_numpy()
    if values.dtype.is_temporal():
        raise _date_error(name, f"{values.dtype}", values[0])
    if not values.dtype.is_numeric():
        raise ArmsError(f"column {name!r} must hold numbers, got {values.dtype}; put its parts into columns of their own")
    return values.cast(pl.Float64).to_numpy()


def _booleans(values: pl.Series, name: str, label: Label) -> pl.Series:
    if values.dtype == pl.Boolean:
        return values
    if _is_text(values.dtype):
        texts = values.cast(pl.String).str.strip_chars().str.to_lowercase()
        true, false = texts.is_in(TRUE), texts.is_in(FALSE)
    elif values.dtype.is_numeric():
        true, false = values == 1, values == 0
    else:
        raise ArmsError(f"column {name!r} must hold booleans, got {values.dtype}; declare another type")
    bad = _first(~(true | false))
    if bad is not None:
        raise ArmsError(
            f"column {name!r} must hold booleans (true and false, yes and no, 1 and 0), got {values[bad]!r} in {label(bad)}; "
            "correct the value or declare another type"
        )
    return true


def _minus(numbers: AnyArray, low: float, scale: float) -> Array:
    """scale·(numbers − low): whole numbers of 64 bits are subtracted exactly, then rounded once."""
    if numbers.dtype.kind == "f" or isinstance(low, float):
        return numbers.astype(np.float64) * scale - float(low) * scale
    high_half = (numbers >> 32).astype(np.int64) - (low >> 32)
    low_half = (numbers & 0xFFFFFFFF).astype(np.int64) - (low & 0xFFFFFFFF)
    difference: Array = high_half * 2.0**32 + low_half
    return difference


def _codes(values: pl.Series, levels: pl.Series) -> pl.Series:
    """The position of each value among the levels, null where it is none."""
    codes = pl.Series(np.arange(len(levels), dtype=np.float64))
    return values.replace_strict(levels, codes, default=None, return_dtype=pl.Float64)


def _like(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The values as another type, null where that would change them."""
    if values.dtype == dtype:
        return values
    if dtype == pl.String:
        return values.cast(pl.String)
    if _is_text(values.dtype):
        return values.cast(pl.String).str.strip_chars().cast(dtype, strict=False)
    plain = values.cast(dtype, strict=False)
    if values.dtype.is_float() and dtype.is_integer():
        return pl.select(pl.when(plain.cast(pl.Float64) == values).then(plain)).to_series()
    return plain


def _plain(dtype: pl.DataType) -> pl.DataType:
    """The type that levels, or numbers, of a column are held in."""
    if _is_text(dtype):
        return pl.String()
    if dtype in NARROW:
        return pl.Int64()
    return pl.Float64() if dtype.is_float() or isinstance(dtype, pl.Decimal) else dtype


def _level_type(levels: tuple[Any, ...]) -> pl.DataType:
    if _all(levels, str):
        return pl.String()
    return pl.Int64() if _all(levels, int) else pl.Float64()


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def _first(mask: pl.Series) -> int | None:
    """The first position that is true."""
    return mask.arg_max() if mask.any() else None


def _known_label(values: pl.Series, label: Label) -> Label:
    """Names rows by their position among the values that are not null."""
    if not values.null_count():
        return label
    positions = values.is_not_null().arg_true()
    return lambda row: label(positions[row])


def _python(value: Any) -> Any:
    return value.to_list() if isinstance(value, pl.Series) else value


def _shown(value: Any) -> str:
    text = repr(_python(value))
    return text if len(text) <= 60 else text[:57] + "…"


def _listed(levels: list[Any]) -> str:
    return f"[{', '.join(map(repr, levels[:8]))}{', …' if len(levels) > 8 else ''}]"


def _date_error(name: str, came: str, example: Any) -> ArmsError:
    return ArmsError(
        f"column {name!r} must not hold dates or times, got {came} such as {str(example)!r}; convert it to a number first "
        f'(days since the first, say), or give columns={{{name!r}: "categorical"}} or "ignore"'
    )
