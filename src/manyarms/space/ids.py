"""Ids of candidates: strings or whole numbers, each once, and found among many."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from manyarms.checks import is_whole, items_of
from manyarms.errors import Advice, ArmsError, UnknownArmError, shortened
from manyarms.space.columns import closest
from manyarms.space.frames import as_series
from manyarms.typing import AnyArray, Indices, Mask


@dataclass(frozen=True, eq=False)
class Ids:
    """Checked ids, int64 or strings as objects. The position of an id is found by a dictionary, or
    by bisection for numbers."""

    array: AnyArray  # (n,)

    def __post_init__(self) -> None:
        self.array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.array)

    @property
    def are_strings(self) -> bool:
        return self.array.dtype == object

    def with_more(self, array: AnyArray) -> "Ids":
        """These ids and others that are not among them."""
        return Ids(np.concatenate([self.array, array]))

    def known(self, array: AnyArray) -> Mask:
        """Which of some ids of the same type are among these."""
        return (
            np.array([id in self._index for id in array])
            if self.are_strings
            else np.isin(array, self.array)
        )

    def positions(self, ids: Any) -> Indices:
        """The positions of one id, or of several."""
        if self.are_strings:
            strings = _several(ids)
            index = self._index
            for id in strings:
                if not isinstance(id, str) or id not in index:
                    raise self._unknown(id)
            return np.array([index[id] for id in strings], dtype=np.intp)
        numbers = self._whole_numbers(ids)
        ordered, order = self._ordered
        # Bisection, 8 bytes an id; a dictionary of a million numbers would take 100 MB.
        # A number above all others is compared with the last one, and differs from it.
        found = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
        unknown = np.flatnonzero(ordered[found] != numbers)
        if len(unknown):
            raise self._unknown(int(numbers[unknown[0]]))
        return found if order is None else order[found]

    def meant(self, id: str) -> str | None:
        """The id that a spreadsheet changed into this one: it takes 001 for a number and writes 1.
        None if there is no such id, or more than one."""
        if id in self._index:
            return id
        number = _as_number(id)
        return None if number is None else self._by_number.get(number)

    @cached_property
    def _by_number(self) -> dict[float, str | None]:
        """The strings that are numbers, by their number; None if two strings are the same
        number."""
        found: dict[float, str | None] = {}
        for id in self.array if self.are_strings else ():
            number = _as_number(id)
            if number is not None:
                found[number] = None if number in found else id
        return found

    def _whole_numbers(self, ids: Any) -> AnyArray:
        if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind == "i":
            return ids
        several = _several(ids)
        # Only what is no plain int is looked at one by one: a log may have a hundred thousand.
        odd = several if set(map(type, several)) != {int} else [min(several), max(several)]
        for id in odd:
            if not is_whole(id) or not -(2**63) <= int(id) < 2**63:
                raise self._unknown(id)
        return np.array(several, dtype=np.int64)

    @cached_property
    def _index(self) -> dict[str, int]:
        # Made when an id is first looked for: a pool that is only read needs none.
        return dict(zip(self.array, range(len(self)), strict=True))

    @cached_property
    def _ordered(self) -> tuple[AnyArray, Indices | None]:
        """The numbers in ascending order, and their positions; None if they were in order
        already."""
        if (self.array[1:] > self.array[:-1]).all():
            return self.array, None  # row numbers, as a rule: no second array
        order = np.argsort(self.array)
        return self.array[order], order

    def _unknown(self, id: Any) -> UnknownArmError:
        example = plain(self.array[0])
        expected = "strings" if self.are_strings else "whole numbers"
        if isinstance(id, str) if self.are_strings else is_whole(id):
            near = closest(id, self.array) if self.are_strings else None
            known = f"ids are {expected} such as {example!r}"
            advice = known if near is None else f"did you mean {near!r}?"
            return UnknownArmError("no candidate has the id {id!r}", advice, id=plain(id))
        # The id as a string or as a number, whichever it should have been.
        meant = text_of(id) if self.are_strings else _as_whole(id)
        is_known = meant in self._index if self.are_strings else (self.array == meant).any()
        return UnknownArmError(
            f"the ids of this pool are {{expected}}, got {{id!r}} of type {type(id).__name__}",
            f"did you mean {meant!r}?" if is_known else f"give one such as {example!r}",
            expected=expected,
            id=plain(id),
        )


def text_of(id: Any) -> str:
    """An id as text."""
    try:
        return str(id)
    except ValueError:  # Python writes no number of 4,301 digits, and no id has as many
        return shortened(id)


def _as_number(id: str) -> float | None:
    """The number for which a spreadsheet takes an id; None if it is no number."""
    return float(id) if re.fullmatch(r"\s*[+-]?\d+(\.\d*)?([eE][+-]?\d+)?\s*", id) else None


def given_ids(given: Sequence[Any] | AnyArray | None, n_rows: int) -> pl.Series:
    """Ids given beside a table, one for each of its rows."""
    series = (
        pl.Series(given)
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu"
        else as_series("ids", _several(given))
    )
    if len(series) != n_rows:
        raise ArmsError(f"ids must be one for each of the {n_rows:,} rows, got {len(series):,}")
    return series.alias("ids")


def checked_ids(series: pl.Series, rows: Indices) -> AnyArray:
    """The ids as int64 or strings, none of them missing or repeated."""
    dtype = series.dtype
    if not dtype.is_integer() and not isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        advice = (
            "make them whole numbers or strings, or give another column"
            if len(series) > series.null_count()
            else "fill them"
        )
        raise ArmsError(
            f"ids, in {series.name!r}, must be strings or whole numbers, got {dtype}; {advice}"
        )
    if series.null_count():
        row = rows[series.is_null().arg_max() or 0]
        raise ArmsError(
            "every row needs an id in {column!r}, got none in {place}",
            "fill it",
            Advice("leave the row out ({})", "missing", "drop"),
            column=series.name,
            row=int(row),
        )
    twice = series.is_duplicated()
    if twice.any():
        value = series[twice.arg_max() or 0]
        where = rows[(series == value).to_numpy()]
        raise not_unique(value, where, series.name)
    if not dtype.is_integer():
        return as_objects(series.cast(pl.String).to_list())
    try:
        return series.cast(pl.Int64).to_numpy().copy()
    except pl.exceptions.PolarsError as error:
        raise ArmsError(
            f"ids that are numbers must fit 64 bits, got {dtype} in {series.name!r}; make them "
            "strings"
        ) from error


def not_unique(id: Any, rows: Sequence[Any] | Indices, column: str) -> ArmsError:
    """The error for an id that several candidates have."""
    listed = ", ".join(map(str, rows[:5])) + (" …" if len(rows) > 5 else "")
    return ArmsError(
        f"ids must be unique, got "
        f"{shortened(id)} in rows {listed} of {column!r}; rename them, or leave one "
        "of the rows out"
    )


def _several(ids: Any) -> list[Any]:
    """One id or several as a list."""
    one = [ids[()] if isinstance(ids, np.ndarray) else ids]
    several = items_of(ids)
    return one if several is None else several


def _as_whole(id: Any) -> int | None:
    """What is written as a whole number."""
    try:
        number = float(id)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() and not isinstance(id, bool) else None


def plain(id: Any) -> Any:
    """An id as a Python int or str."""
    return id.item() if isinstance(id, np.generic) else id


def as_objects(values: Iterable[Any]) -> AnyArray:
    """A read-only array of objects."""
    held = list(values)
    array = np.empty(len(held), dtype=object)
    array[:] = held
    array.setflags(write=False)
    return array
