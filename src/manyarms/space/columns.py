"""One column of a table: what it holds, and how it becomes features.

| type | chosen for | encoded as |
|---|---|---|
| continuous, integer | numbers | one column, the range of the pool scaled to [0, 1] |
| log | numbers above 0, more even in logarithms (`deciding.py`) | the same, of the logarithm |
| ordered | Enum, ordered categoricals, a list of levels | one column, first level 0 and last 1 |
| boolean, categorical | booleans; strings, few of them distinct | one column of codes 0, 1, … |
| bits | lists of 0 and 1; long enough strings of them | packed, `BITS` to a column |
| smiles | molecules that are declared so (`molecules.py`) | fingerprints, packed; or descriptors |
| text, ignore | other strings; columns that hold one value only | not encoded |
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Literal, Self, TypedDict

import numpy as np
import polars as pl

from manyarms.errors import Advice, ArmsError
from manyarms.kernels.base import Kernel
from manyarms.kernels.inner import BITS, pack
from manyarms.kernels.objects import encoded
from manyarms.typing import AnyArray, Array


class Place(TypedDict, total=False):
    """Where an error is: the row of the table, and its id if the table has ids of its own."""

    row: int
    id: Any


Label = Callable[[int], Place]
"""How messages name the row at a position."""

FEW = 10
"""Different whole numbers of a column, at most, that may be names: numbers of methods, say."""
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


TYPES = (
    "number",
    "continuous",
    "log",
    "integer",
    "boolean",
    "ordered",
    "categorical",
    "text",
    "bits",
    "smiles",
    "ignore",
)

Kind = Literal["numeric", "categorical", "bits", "object"]


@dataclass(frozen=True)
class Feature:
    """Columns `start` to `stop` (exclusive) of the encoded features, made from the column `name` of
    the table.

    `kind` says which kernel suits: "numeric" distances, "categorical" equality of codes, "bits"
    overlap, "object" that of the pool. Code i stands for `levels[i]` (None: a missing value); an
    ordered column has its levels in order; `low` and `high` are scaled to 0 and 1; `n_bits` bits
    are packed. Numbers that are `named` are compared for equality as well.
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
    named: bool = False


@dataclass(frozen=True, eq=False)
class Column(ABC):
    """How one column is encoded: this is decided once, from the first table."""

    name: str
    type: str
    takes_missing: ClassVar[bool] = False  # whether a missing value may be a level

    @abstractmethod
    def features(self, start: int) -> tuple[Feature, ...]:
        """What stands in the encoded columns from `start`: one feature for each lengthscale that is
        learned."""

    @property
    def width(self) -> int:
        """How many encoded columns it has."""
        return sum(feature.stop - feature.start for feature in self.features(0))

    @abstractmethod
    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        """Fill `out`, (n, width). The values were checked for nulls before."""

    def grown(self, values: pl.Series, label: Label) -> Self:
        """The column after more values were added: codes that exist stay the same."""
        return self


@dataclass(frozen=True, eq=False)
class UnusedColumn(Column):
    """A column that stays in the table and is not encoded: text, a column to ignore, or one that
    holds a single value (`constant`, a tuple of that value)."""

    constant: tuple[Any] | None = None
    takes_missing: ClassVar[bool] = True

    def features(self, start: int) -> tuple[Feature, ...]:
        return ()

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        """Nothing is encoded; a constant that changes is an error, because the features would not
        show it."""
        if self.constant is None:
            return
        for row, value in enumerate(values.to_list()):
            if value != self.constant[0]:
                raise ArmsError(
                    "column {column!r} was {expected} in every row of the first table and is not "
                    "encoded, got {got} in {place}",
                    "make a new pool of all rows",
                    Advice("give the first one {}", "columns", {self.name: "ignore"}),
                    column=self.name,
                    expected=repr(self.constant[0]),
                    got=value,
                    **label(row),
                )

    def why(self, is_declared: bool) -> str:
        """Why the column is not used."""
        if self.constant is not None:
            only = self.constant[0]
            return "empty" if only is None else f"{only!r:.40} in every row"
        if is_declared:
            return "left out as asked" if self.type == "ignore" else "text, as asked"
        return "free text"


@dataclass(frozen=True, eq=False)
class Numeric(Column):
    """(v − low) / (high − low), of logarithms for the type "log"."""

    low: float
    high: float
    named: bool = False

    @classmethod
    def fit(cls, values: pl.Series, name: str, type: str, label: Label) -> "Numeric":
        numbers = as_numbers(values, name, type, label)
        levels = np.unique(numbers)
        # Of two values both kernels say the same.
        named = 2 < len(levels) <= FEW and bool((levels == np.round(levels)).all())
        return cls(name, type, levels[0].item(), levels[-1].item(), named)

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        numbers = as_numbers(values, self.name, self.type, label)
        # By the first table's range, for ever: a row added later may fall outside [0, 1].
        if self.type == "log":
            # A column of one value has a range of 0: divided by 1, it is 0 everywhere.
            low = np.log(float(self.low))
            high = np.log(float(self.high))
            scaled = (np.log(numbers.astype(np.float64)) - low) / ((high - low) or 1.0)
        else:
            # Half of each where the range itself overflows: from −1e308 to 1e308, say.
            scale = 1.0 if np.isfinite(float(self.high) - float(self.low)) else 0.5
            width = (
                float(self.high - self.low)
                if scale == 1.0
                else self.high * scale - self.low * scale
            ) or 1.0
            # What overflows is refused below, with the row that it is in.
            with np.errstate(over="ignore"):
                scaled = _minus(numbers, self.low, scale) / width
        bad = np.flatnonzero(~np.isfinite(scaled))
        if len(bad):
            raise ArmsError(
                "column {column!r} is scaled by the first table, {expected}, got {got} in {place}, "
                "too far from it",
                "make a new pool of all rows",
                column=self.name,
                expected=f"from {self.low} to {self.high}",
                got=numbers[bad[0]].item(),
                **label(int(bad[0])),
            )
        out[:, 0] = scaled

    def features(self, start: int) -> tuple[Feature, ...]:
        found = Feature(self.name, "numeric", start, start + 1, self.type)
        return (replace(found, low=self.low, high=self.high, named=self.named),)


def _minus(numbers: AnyArray, low: float, scale: float) -> Array:
    """scale·(numbers − low): whole numbers of 64 bits are subtracted exactly, then rounded once."""
    if numbers.dtype.kind == "f" or isinstance(low, float):
        return numbers.astype(np.float64) * scale - float(low) * scale
    # Halves of 32 bits: neither difference overflows int64, and both are exact in float64.
    high_half = (numbers >> 32).astype(np.int64) - (low >> 32)
    low_half = (numbers & 0xFFFFFFFF).astype(np.int64) - (low & 0xFFFFFFFF)
    difference: Array = high_half * 2.0**32 + low_half
    return difference


@dataclass(frozen=True, eq=False)
class Ordered(Column):
    """The position of the value among the levels: 0 for the first level, 1 for the last."""

    levels: pl.Series

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        found = codes_of(like(values, self.levels.dtype), self.levels)
        bad = first_true(found.is_null())
        if bad is not None:
            levels = first_of(self.levels.to_list())
            raise ArmsError(
                "column {column!r} must hold {expected}, got {got} in {place}",
                "correct the value",
                "give all levels in order",
                column=self.name,
                expected=f"one of its levels {levels}",
                got=values[bad],
                **label(bad),
            )
        # Evenly spaced: an order says nothing of distances.
        np.divide(found.to_numpy(), max(len(self.levels) - 1, 1), out=out[:, 0])

    def features(self, start: int) -> tuple[Feature, ...]:
        levels = tuple(self.levels.to_list())
        return (Feature(self.name, "numeric", start, start + 1, "ordered", levels),)


@dataclass(frozen=True, eq=False)
class Coded(Column):
    """The code of the level. Levels are sorted within the table that brought them; a null becomes a
    level as soon as one was seen."""

    levels: pl.Series
    takes_missing: ClassVar[bool] = True

    @classmethod
    def fit(cls, values: pl.Series, name: str, type: str, label: Label) -> "Coded":
        # Booleans have both levels from the start, so that False is 0 whatever comes first.
        known = [False, True] if type == "boolean" else []
        dtype = pl.Boolean() if type == "boolean" else plain_type(values.dtype)
        return cls(name, type, pl.Series(known, dtype=dtype)).grown(values, label)

    def _values(self, values: pl.Series, label: Label) -> pl.Series:
        if self.type == "boolean":
            return as_booleans(values, self.name, label)
        plain = like(values, self.levels.dtype)
        # A value that the levels' type cannot hold would pass for a missing one.
        lost = first_true(plain.is_null() & values.is_not_null())
        if lost is not None:
            raise ArmsError(
                "column {column!r} held {expected} in the first table, got {got} in {place}",
                "give both tables the same type of values",
                column=self.name,
                expected=f"{self.levels.dtype}",
                got=values[lost],
                **label(lost),
            )
        return plain

    def grown(self, values: pl.Series, label: Label) -> Self:
        plain = self._values(values, label).unique()
        new = plain.filter(
            ~plain.is_in(self.levels.drop_nulls().to_list()) & plain.is_not_null()
        ).sort()
        # A missing value is a level like others, behind those that came with it.
        if plain.null_count() and not self.levels.null_count():
            new = new.extend(pl.Series([None], dtype=self.levels.dtype))
        return type(self)(self.name, self.type, pl.concat([self.levels, new])) if len(new) else self

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        found = codes_of(self._values(values, label), self.levels)
        if self.levels.null_count():
            # `replace_strict` has no code for null, which is a level here.
            found = found.fill_null(float(first_true(self.levels.is_null()) or 0))
        out[:, 0] = found.to_numpy()

    def features(self, start: int) -> tuple[Feature, ...]:
        levels = tuple(self.levels.to_list())
        return (Feature(self.name, "categorical", start, start + 1, self.type, levels),)


@dataclass(frozen=True, eq=False)
class Objects(Column):
    """Objects of any kind, as rows that the encoder of their kernel makes of them."""

    kernel: Kernel
    size: int

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        out[:] = encoded(values.to_list(), self.kernel, self.size)

    def features(self, start: int) -> tuple[Feature, ...]:
        return (Feature(self.name, "object", start, start + self.size, "object"),)


@dataclass(frozen=True, eq=False)
class Bits(Column):
    """Bits, packed (`kernels.pack`)."""

    n_bits: int

    @classmethod
    def fit(cls, values: pl.Series, name: str, label: Label) -> "Bits":
        n_bits = len(values.cast(pl.String)[0] if _are_texts(values) else values[0])
        if not n_bits:
            raise ArmsError(
                "column {column!r} must hold {expected}, got none in {place}",
                column=name,
                expected="at least one bit",
                **label(0),
            )
        return cls(name, "bits", n_bits)

    def features(self, start: int) -> tuple[Feature, ...]:
        stop = start - (-self.n_bits // BITS)
        return (Feature(self.name, "bits", start, stop, "bits", n_bits=self.n_bits),)

    def encode(self, values: pl.Series, label: Label, out: Array) -> None:
        for start, bits in self.decoded(values, label):
            out[start : start + len(bits)] = pack(bits)

    def decoded(
        self, values: pl.Series, label: Label, entries: int = 1 << 22
    ) -> Iterator[tuple[int, AnyArray]]:
        """Blocks of rows of 0 and 1, of about so many entries, each with its first position."""
        n_rows = max(1, entries // self.n_bits)  # an entry is a byte: 4 MiB
        are_texts = _are_texts(values)
        plain = values.cast(pl.String) if are_texts else _as_lists(values)
        for start in range(0, len(values), n_rows):
            block = plain.slice(start, n_rows)
            # In bytes, which fill the rows below: a letter of several bytes is refused there.
            lengths = (block.str.len_bytes() if are_texts else block.list.len()).to_numpy()
            expected = f"{self.n_bits} of them as in the first row"
            self._check(lengths == self.n_bits, start, values, expected, label)
            # Strings of one length are one long string, whose bytes less "0" are the bits.
            flat = (
                np.frombuffer(block.str.join("").item().encode(), np.uint8) - ord("0")
                if are_texts
                else _entries(block)
            )
            bits = flat.reshape(len(block), self.n_bits)
            # Bytes below "0" have wrapped round to large numbers: one comparison finds all.
            self._check(bits.max(axis=1) <= 1, start, values, "0 and 1", label)
            yield start, bits

    def _check(
        self, good: AnyArray, start: int, values: pl.Series, expected: str, label: Label
    ) -> None:
        if not good.all():
            row = start + int(good.argmin())
            raise ArmsError(
                "column {column!r} is of bits and must hold {expected} in every row, got {got} "
                "in {place}",
                "correct it",
                "put numbers into columns of their own",
                Advice("leave the column out by {}", "columns", {self.name: "ignore"}),
                column=self.name,
                expected=expected,
                got=as_python(values[row]),
                **label(row),
            )


def _are_texts(values: pl.Series) -> bool:
    return not isinstance(values.dtype, pl.List | pl.Array)


def _as_lists(values: pl.Series) -> pl.Series:
    return values.arr.to_list() if isinstance(values.dtype, pl.Array) else values


def _entries(block: pl.Series) -> AnyArray:
    """The entries of lists one after another, 2 for what is not a bit."""
    entries = block.explode()
    if not entries.dtype.is_numeric() and entries.dtype != pl.Boolean:
        return np.full(len(entries), 2, np.uint8)
    numbers = entries.cast(pl.Float64).fill_null(2.0).to_numpy()
    return np.where((numbers == 0) | (numbers == 1), numbers, 2).astype(np.uint8)
