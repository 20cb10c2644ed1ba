"""A result as people see it, and what they tell of it, checked."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from manyarms.checks import LARGEST
from manyarms.errors import Advice, ObservationError, shortened

CandidateId = int | str | tuple[Any, ...] | dict[str, Any]
"""Of a pool an id; of a box the point itself."""
NO_VALUE = Advice("tell {} for a trial that gave none", "manyarms.FAILED")


class _Failed:
    """A trial that gave no value."""

    _only: "_Failed | None" = None

    def __new__(cls) -> "_Failed":
        cls._only = cls._only or super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()
"""Told in place of a value: the trial failed. The candidate is not asked for again, and the model
learns nothing from it."""


FORECAST_WIDTH = 1.96
"""Standard deviations to either side that hold 95 % of a Gaussian."""


class Forecast(NamedTuple):
    """What the model predicted of a result when it was asked for, in the user's units: its mean,
    and the interval that was to hold it with probability 95 %, noise included."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Trial:
    """One result: its candidate, and its value in the user's units, None where it failed; the noise
    where it was told."""

    number: int
    id: CandidateId
    value: float | None
    noise: float | None = None  # standard deviation
    forecast: Forecast | None = None  # None where it was not asked for, or before a model chose
    # Of a study:
    event: int | None = field(default=None, compare=False)  # the number of the one that told it
    note: str | None = field(default=None, compare=False)
    batch: int = field(default=0, compare=False)  # the last event before its suggestion, 0: unknown

    @property
    def failed(self) -> bool:
        """It gave no value."""
        return self.value is None


def as_items(values: Any) -> list[Any]:
    """One value or several, as a list."""
    if isinstance(values, np.ndarray | np.generic):
        values = values.tolist()
    return list(values) if _is_sequence(values) else [values]


def as_values(values: Any, n: int) -> list[float | None]:
    """One finite number for each of n candidates, None for FAILED."""
    items = as_items(values)
    if len(items) != n:
        raise ObservationError(f"tell() takes one value for each of the {n} ids, got {len(items)}")
    return [None if item is FAILED else _number(item) for item in items]


def as_told(values: Any, failed: Any, n: int) -> list[float | None]:
    """A value for each of n ids, None for those that failed."""
    if failed is None:
        if values is None:
            raise ObservationError(
                "tell() takes a value for each id; manyarms.FAILED, or failed=True, where there "
                "is none"
            )
        return as_values(values, n)
    flags = as_items(failed)
    if not _is_sequence(failed):
        flags *= n  # one truth for all
    if len(flags) != n or not all(isinstance(flag, bool | np.bool_) for flag in flags):
        raise ObservationError(
            f"failed must be True, or one truth for each of the {n} ids, got {shortened(failed)}"
        )
    if all(flags) and values is None:
        return [None] * n
    if values is None:
        raise ObservationError("tell() takes a value for every id that did not fail")
    items = as_items(values)
    if len(items) != n:
        raise ObservationError(
            f"tell() takes one value for each of the {n} ids, got {len(items)}; None will do "
            "where it failed"
        )
    return as_values([FAILED if flag else item for flag, item in zip(flags, items, strict=True)], n)


def as_noise(noise: Any, n: int) -> list[float | None]:
    """Standard deviations of n values, given as one for all or one each; None if unknown."""
    items = as_items(noise)
    if not _is_sequence(noise):
        items *= n  # one standard deviation for all
    if len(items) != n:
        raise ObservationError(
            f"noise must be one standard deviation, or one for each of the {n} ids, got "
            f"{len(items)}"
        )
    try:
        deviations = [None if item is None else _number(item) for item in items]
    except ObservationError as error:
        raise ObservationError(
            f"noise must be standard deviations, finite numbers, got {shortened(noise)}"
        ) from error
    wrong = [sd for sd in deviations if sd is not None and sd < 0]
    if wrong:
        raise ObservationError(
            f"noise is a standard deviation and must not be negative, got {wrong[0]}"
        )
    return deviations


def _is_sequence(values: Any) -> bool:
    """Several values, or an iterable of one; not so a number, or an array of no dimension."""
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    return isinstance(values, Iterable) and not isinstance(values, str | bytes)


def _number(item: Any) -> float:
    item = item.item() if isinstance(item, np.generic | np.ndarray) and np.size(item) == 1 else item
    if isinstance(item, str | bytes | bool) or item is None:
        raise _wrong("a number", item, NO_VALUE)
    try:
        number = float(item)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong("a number that fits a float", item, NO_VALUE) from error
    if not np.isfinite(number):
        raise _wrong("finite", item, NO_VALUE)
    if abs(number) > LARGEST:
        raise _wrong(f"at most {LARGEST:.0e} in size", item, Advice("use other units"))
    return number


def _wrong(expected: str, got: Any, advice: Advice) -> ObservationError:
    return ObservationError(
        "a value must be {expected}, got {got}", advice, expected=expected, got=got
    )
