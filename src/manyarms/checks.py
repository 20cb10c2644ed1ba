"""What a caller gives, checked once: numbers, and rows of numbers. The error says what was expected
and what came."""

import re
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.errors import ArmsError, ManyArmsError, ParameterError, shortened
from manyarms.runtime.foreign import read_parquet
from manyarms.typing import AnyArray, Array, ArrayLike

LARGEST = 1e100
"""Values, rewards and standard deviations of their noise, at most: the square of a sum of many of
them fits float64, whose largest number is 1.8e308."""
MOST_AT_ONCE = 1_000_000
"""Arms that may be asked for in one call: more cannot be meant."""
LONGEST_BATCH = 1000
"""Arms of a batch of no given size, at most: where variances are tiny no rule would end it."""
LARGEST_SEED = 2**128 - 1
"""As many bits as NumPy's own seeds have."""
NO_ARRAY = (TypeError, ValueError, OverflowError, np.ma.MAError)
"""What NumPy raises at something of which it cannot make an array."""
ROWS_READ = 1 << 16
"""Rows checked for NaN and infinity at a time: a mapped file is never in memory as a whole."""
_BYTES = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*([kmgt]?)(i?)b?", re.IGNORECASE)
"""1.5e9, 500 MB, 2GiB: a number, its exponent, what it counts, and whether that is a power of
1,024."""
_NO_NUMBERS = (bool, np.complexfloating, np.timedelta64)
"""Types that pass for numbers by their base classes."""


def real(
    value: Any,
    name: str,
    meaning: str,
    *,
    above: float = -np.inf,
    at_least: float = -np.inf,
    below: float = np.inf,
    error: type[ManyArmsError] = ParameterError,
) -> float:
    """A finite real number within bounds; `meaning` completes the sentence "name must be …"."""
    if isinstance(value, Real | np.number) and not isinstance(value, _NO_NUMBERS):
        try:
            number = float(value)
        except OverflowError:
            number = np.inf  # a whole number beyond float64 is refused below
        if np.isfinite(number) and above < number < below and number >= at_least:
            return number
    raise error("{option} must be {expected}, got {got}", option=name, expected=meaning, got=value)


def as_bytes(value: Any) -> float:
    """`memory=`: a positive number of bytes, or text such as "500 MB"."""
    number = value
    found = _BYTES.fullmatch(value.strip()) if isinstance(value, str) else None
    if found:
        mantissa, exponent, prefix, is_binary = found.groups()
        power = " kmgt".index(prefix.lower() or " ")
        size = float(mantissa + (exponent or "")) * (1024 if is_binary else 1000) ** power
        number = size if 0 < size < np.inf else value  # else an error says what came
    return real(number, "memory", 'a positive number of bytes, or text such as "2 GB"', above=0)


def whole(
    value: Any,
    name: str,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    error: type[ManyArmsError] = ParameterError,
) -> int:
    """A whole number from `at_least`, to `at_most` where that is given."""
    if is_whole(value):
        number = int(value)
        if number >= at_least and (at_most is None or number <= at_most):
            return number
    end = "" if at_most is None else f" to {at_most:,}"
    wanted = f"a whole number from {at_least}{end}"
    raise error("{option} must be {expected}, got {got}", option=name, expected=wanted, got=value)


def store(thing: object, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is made: numbers of other types become plain."""
    for name, value in values.items():
        object.__setattr__(thing, name, value)


def is_whole(value: Any) -> bool:
    """A whole number, of Python or NumPy; truths and spans of time are none."""
    return isinstance(value, Integral) and not isinstance(value, _NO_NUMBERS)


def items_of(values: Any) -> list[Any] | None:
    """What is in a sequence, an array, a series or another iterable; None where it is none, or is
    text."""
    if isinstance(values, str | bytes):
        return None
    try:
        return list(values)
    except TypeError:  # an array of no dimension says that it is iterable, and is not
        return None


def needed(module: str, why: str, error: type[ManyArmsError] = ArmsError) -> Any:
    """An optional module; an error says why it is needed, and how it is installed."""
    try:
        return import_module(module)
    except ImportError as cause:
        raise error(why) from cause


def truth(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False, got {shortened(value)}")
    return bool(value)


def probability(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    return real(value, name, "strictly between 0 and 1", above=0, below=1)


def are_geometric(levels: Array) -> bool:
    """Whether logarithms space numbers more evenly than they are spaced themselves."""
    if len(levels) < 3 or levels.min() <= 0:
        return False
    return _unevenness(np.log(levels)) < _unevenness(levels)


def _unevenness(levels: Array) -> float:
    """Standard deviation over mean of the steps from one level to the next."""
    steps = np.diff(np.sort(levels))
    return float(np.std(steps) / np.mean(steps))


@dataclass(frozen=True)
class Checked:
    """Rows that came from `as_rows`, for policies made again and again on one table."""

    rows: Array


def as_rows(arms: "ArrayLike | str | Path | Checked", n_columns: int | None = None) -> Array:
    """The candidates as a read-only array of float64 or float32, (A, d).

    Shares memory with such an input and never changes it; a .npy file is mapped, a .parquet file is
    read (all its columns, with polars). Raises ArmsError for anything but a non-empty
    two-dimensional table of finite real numbers, and where `n_columns` is given for rows of another
    length. What is `Checked` already is not looked at again.
    """
    if isinstance(arms, Checked):
        return arms.rows
    X = table_of(_read(Path(arms)) if isinstance(arms, str | Path) else arms, "arms")
    if 0 in X.shape:
        raise ArmsError(f"arms must hold at least one arm and one feature, got shape {X.shape}")
    if n_columns is not None and X.shape[1] != n_columns:
        raise ArmsError(f"rows must have the {n_columns} features of the arms, got {X.shape[1]}")
    # A view, so that what is made read-only below is ours and not the caller's array.
    rows: AnyArray = X.view() if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    for start in range(0, len(rows), ROWS_READ):
        finite = np.isfinite(rows[start : start + ROWS_READ])
        if not finite.all():
            bad = np.argwhere(~finite)
            row = start + bad[0][0]
            column = bad[0][1]
            raise ArmsError(
                f"arms must be finite, got {rows[row, column]} in row {row}, column {column}"
            )
    rows.setflags(write=False)
    return rows


def table_of(given: Any, what: str) -> AnyArray:
    """A rectangular table of real numbers, (n, d); an error calls it `what`."""
    if np.ma.is_masked(given):
        raise ArmsError(f"{what} must not be masked; fill the masked values or leave the rows out")
    try:
        X: AnyArray = np.asarray(given)
    except NO_ARRAY as error:
        raise ArmsError(f"{what} must be a rectangular table of numbers: {error}") from error
    if X.dtype.kind not in "fiub":
        raise ArmsError(
            f"{what} must be real numbers, got dtype {X.dtype}; encode other columns as numbers "
            "first"
        )
    if X.ndim != 2:
        raise ArmsError(
            f"{what} must be a table, of shape (n_arms, n_features), got {X.shape}; a single "
            f"feature is {what}.reshape(-1, 1)"
        )
    return X


def mapped(path: Path) -> AnyArray:
    """What a .npy file holds, of which only what is touched is read."""
    if path.suffix != ".npy":
        raise ArmsError(f"arms come from .npy or .parquet files, got {path}")
    try:
        array: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ArmsError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # NumPy evaluates the header as Python: anything may come of it
        raise ArmsError(
            f"cannot read {path}: it is no .npy file of numbers, or damaged ({error}); write it "
            "again"
        ) from error
    return array


def _read(path: Path) -> AnyArray:
    return read_parquet(path).to_numpy() if path.suffix == ".parquet" else mapped(path)


def flat(values: Any, what: str) -> Array:
    """A flat sequence of finite numbers, (n,); an error calls it `what`."""
    if np.ma.is_masked(values):
        raise ArmsError(f"{what} must not be masked; fill the masked values")
    try:
        row: Array = as_rows([values])[0]
    except ArmsError as error:
        raise ArmsError(
            f"{what} must be a flat sequence of finite numbers, got {shortened(values)}"
        ) from error
    return row


def joined(context: Any, arms: ArrayLike) -> Array:
    """Rows (k, c + d) to choose among: the context (c,) in front of each of the arms (k, d).

    With the product kernel ``On(first, 0, c) * On(second, c, c + d)`` two rows are alike where both
    contexts and arms are: k((c, a), (c′, a′)) = k₁(c, c′)·k₂(a, a′) (Krause and Ong, NIPS 2011).

    Parameters
    ----------
    context : array_like, (c,)
        What is known about the moment of the choice.
    arms : array_like, (k, d)
        The arms to choose among.

    Returns
    -------
    ndarray, (k, c + d)
        For ``policy.choose(arms=…)``.

    Raises
    ------
    ArmsError
        The context is not a flat sequence of finite numbers.
    """
    rows = as_rows(arms)
    shared = np.repeat(flat(context, "a context")[None], len(rows), axis=0)
    return np.hstack([shared, rows], dtype=np.float64)
