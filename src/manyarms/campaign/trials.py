"""What was asked and what came back: one entry for every result, in the order told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from manyarms.checks import LARGEST
from manyarms.engine.growing import Stack
from manyarms.errors import Advice, ObservationError, shortened
from manyarms.typing import Array, Indices, Mask

CandidateId = int | str | tuple[Any, ...] | dict[str, Any]
"""Of a pool an id; of a box the point itself."""
LEAST_DEVIATION = 1e-100
"""Standard deviation of a noise that was told, at least: its inverse square is finite."""
REPEATS = 3
"""Different values that must have been repeated, each exactly, before values count as exact."""
UNREPEATED = 64
"""Results, none of them repeated, up to which values are taken as they are and the best one
measured is recommended: with so few the model recommends no better
(docs/experiments/defaults.md)."""
NO_VALUE = Advice("tell {} for a trial that gave none", "manyarms.FAILED")


class Results(NamedTuple):
    """What a model learns from: the results that have a value, in the order told, (n,) each."""

    arms: Indices
    values: Array  # signed: larger is better
    noise: Array  # standard deviations, NaN where none was told
    tells: Indices  # the number of the `tell` that brought each, never falling
    known: Indices  # results that there were when it was asked for, −1 where nobody asked

    @classmethod
    def at_once(cls, arms: Indices, values: Array, noise: Array) -> "Results":
        """Results that one `tell` brought, and nobody had asked for."""
        n = len(arms)
        return cls(arms, values, noise, np.zeros(n, dtype=np.intp), np.full(n, -1))

    def at(self, places: Any) -> "Results":
        """Some of them, by a slice, a mask or their places."""
        return Results(*(column[places] for column in self))

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.arms)

    @property
    def ends(self) -> Indices:
        """How many results there were after each `tell`."""
        return np.append(np.flatnonzero(np.diff(self.tells)) + 1, self.n)[: self.n]

    @property
    def weights(self) -> Array:
        """The inverse squares of the noise that was told, 1 where none was."""
        told = np.maximum(self.noise, LEAST_DEVIATION)
        return 1 / np.square(np.where(np.isnan(told), 1.0, told))

    @property
    def by_arm(self) -> "ByArm":
        """Mean values of distinct arms."""
        told = ~np.isnan(self.noise)
        keys, at = np.unique(2 * self.arms + told, return_inverse=True)
        weights = self.weights
        total = np.bincount(at, weights).astype(np.float64)
        means = np.bincount(at, weights * self.values) / total
        return ByArm(keys // 2, keys % 2 == 1, total, means, at)

    def begin(self, other: "Results") -> bool:
        """Whether others begin with these."""
        return self.n <= other.n and all(
            np.array_equal(mine, theirs[: self.n], equal_nan=mine.dtype.kind == "f")
            for mine, theirs in zip(self, other, strict=True)
        )


class ByArm(NamedTuple):
    """Results by arm; of an arm those whose noise was told are apart."""

    arms: Indices  # (u,)
    known: Mask  # (u,) whether their noise was told
    total: Array  # (u,) their weights: how many, or the sum of the inverse squares of their noise
    means: Array  # (u,) of values
    at: Indices  # (n,) which of these each result is of


@dataclass(frozen=True)
class Outcomes:
    """What became of n candidates: every result, in the order told, and the retired candidates."""

    n: int
    tried: Stack  # (t,) position of the candidate of each result
    values: Stack  # (t,) NaN where the trial failed
    noise: Stack  # (t,) standard deviations, NaN where none was told
    forecasts: Stack  # (t, 3) mean, low and high, NaN where there was none
    tells: Stack  # (t,) the number of the `tell` that brought it, never falling
    known: Stack  # (t,) results there were when it was asked for, −1 where nobody asked
    taken: Stack  # positions of retired candidates
    is_changed: bool = False  # a result was corrected, or taken back
    has_grown: bool = False  # candidates were added to known results

    @classmethod
    def none(cls, n: int) -> "Outcomes":
        """The outcomes before anything was tried."""
        positions = Stack(np.zeros(0, dtype=np.intp))
        numbers = Stack(np.zeros(0))
        forecasts = Stack(np.zeros((0, 3)))
        return cls(n, positions, numbers, numbers, forecasts, positions, positions, positions)

    @cached_property
    def has_value(self) -> Mask:
        """(t,) whether each result has a value."""
        return ~np.isnan(self.values.items)

    @cached_property
    def with_value(self) -> Indices:
        """The numbers of the results that have a value."""
        return np.flatnonzero(self.has_value)

    @cached_property
    def counts(self) -> Indices:
        """(n,) how many values each candidate has."""
        return np.bincount(self.tried.items[self.has_value], minlength=self.n)

    @cached_property
    def again(self) -> Array:
        """Repeated values, one a candidate, each value once; with NaN if the repeats of any
        candidate disagree."""
        at = self.with_value
        tried = self.tried.items[at]
        values = self.values.items[at]
        candidates, first, counts = np.unique(tried, return_index=True, return_counts=True)
        firsts = np.full(self.n, np.nan)
        firsts[candidates] = values[first]
        differ = values != firsts[tried]
        firsts[tried[differ]] = np.nan
        return np.unique(firsts[candidates[counts > 1]])

    @property
    def repeat_exactly(self) -> bool:
        """Whether results are exact, as far as repeats show it: the repeats of every candidate
        agree, and candidates with REPEATS different values were repeated. Fewer different values
        may agree by chance: 0 and 1, or the end of a scale."""
        return len(self.again) >= REPEATS and not np.isnan(self.again).any()

    @property
    def may_be_exact(self) -> bool:
        """Whether nothing says that values have noise: no repeats disagree, and either a value
        was repeated or there are few results."""
        n_values = len(self.with_value)
        return not np.isnan(self.again).any() and (len(self.again) > 0 or n_values <= UNREPEATED)

    @cached_property
    def failed(self) -> Mask:
        """(n,) whether the last result of the candidate was a failure: a later value lifts it."""
        mask = np.zeros(self.n, dtype=bool)
        mask[self.tried.items] = ~self.has_value  # of several results the last one is kept
        return mask

    @cached_property
    def retired(self) -> Mask:
        """(n,) whether the candidate was retired."""
        mask = np.zeros(self.n, dtype=bool)
        mask[self.taken.items] = True
        return mask

    @cached_property
    def out(self) -> Mask:
        """(n,) whether the candidate was retired or failed."""
        return self.retired | self.failed

    def changed(
        self, trials: Indices, values: Sequence[float | None], noise: Sequence[float | None]
    ) -> "Outcomes":
        """These outcomes with other values for some results. A result keeps its noise unless
        another is given."""
        new_values = self.values.items.copy()
        new_values[trials] = np.array(values, dtype=np.float64)
        new_noise = self.noise.items.copy()
        given = np.array(noise, dtype=np.float64)
        new_noise[trials] = np.where(np.isnan(given), new_noise[trials], given)
        return replace(self, values=Stack(new_values), noise=Stack(new_noise), is_changed=True)

    def without(self, trials: Indices) -> "Outcomes":
        """These outcomes without some results."""
        kept = np.ones(self.tried.n, dtype=bool)
        kept[trials] = False
        # How many of the first k results are left, for each k; −1 stays −1.
        left = np.concatenate([[0], np.cumsum(kept), [-1]])
        return replace(
            self,
            tried=Stack(self.tried.items[kept]),
            values=Stack(self.values.items[kept]),
            noise=Stack(self.noise.items[kept]),
            forecasts=Stack(self.forecasts.items[kept]),
            tells=Stack(self.tells.items[kept]),
            known=Stack(left[self.known.items[kept]]),
            is_changed=True,
        )


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
