"""The column of a table that says what came out: results where it is filled, nothing yet where it
is blank."""

import re
from typing import NamedTuple

import polars as pl

from manyarms.errors import ArmsError
from manyarms.sheets.numerals import column_numbers, is_blank
from manyarms.space.values import Label, first_true, is_text

FAILURES = ("failed", "fail", "failure", "error", "crashed")
"""Words for a failed trial, in place of its value, in any case."""
OUTCOME_NAMES = (
    *("yield", "yields", "ausbeute", "score", "loss", "target", "outcome", "result", "results"),
    *("response", "objective", "reward", "value", "y", "conversion", "selectivity", "ee"),
    "accuracy",
)
"""Words in the names of columns of results, the most likely word first."""
HALF_EMPTY = 1 / 3
"""Share of empty cells from which a column of numbers looks like one of results."""


class TargetColumn(NamedTuple):
    """A result for each row: its value (null: none) and whether the trial failed; and the unit."""

    values: pl.Series
    failed: pl.Series
    unit: str


def outcomes_in(series: pl.Series, decimal: str, label: Label) -> TargetColumn:
    """The results in a column; ArmsError names the first cell that is none."""
    if not is_text(series.dtype):
        if not series.dtype.is_numeric() and series.null_count() < len(series):
            raise ArmsError(
                "the target {column!r} must hold {expected}, got {got}",
                "name another column",
                column=series.name,
                expected="numbers, blanks, and the word failed",
                got=series.dtype,
            )
        values = series.cast(pl.Float64).fill_nan(None)
        failed = pl.repeat(False, len(series), eager=True)
        bad = first_true(values.is_infinite().fill_null(False))
        if bad is not None:
            raise _no_outcome(series, bad, label)
        return TargetColumn(values, failed, "")
    texts = series.cast(pl.String)
    failed = texts.str.strip_chars().str.to_lowercase().is_in(list(FAILURES)).fill_null(False)
    written = column_numbers(texts.zip_with(~failed, pl.Series([None], dtype=pl.String)), decimal)
    bad = first_true(written.numbers.is_null() & ~is_blank(texts) & ~failed)
    if bad is not None:
        raise _no_outcome(series, bad, label)
    units = written.units.drop_nulls().unique(maintain_order=True).to_list()
    others = [unit for unit in units if unit]
    if len(others) > 1:
        second = first_true((written.units == others[1]).fill_null(False))
        raise ArmsError(
            "the target {column!r} must have one unit, {expected}, got {got} in {place}",
            "write all values in one unit",
            column=series.name,
            expected=repr(others[0]),
            got=texts[second or 0],
            **label(second or 0),
        )
    return TargetColumn(written.numbers, failed, others[0] if others else "")


def _no_outcome(series: pl.Series, row: int, label: Label) -> ArmsError:
    return ArmsError(
        "the target {column!r} must hold {expected}, got {got} in {place}",
        "correct it",
        "leave the cell blank until the value is known",
        column=series.name,
        expected="finite numbers, blanks, and the word failed",
        got=series[row],
        **label(row),
    )


def outcome_rank(name: str) -> int:
    """The rank of a column's name among names of results; the last rank if it is not one of
    them."""
    words = re.split(r"[\W_\d]+", name.casefold())
    return min(
        (OUTCOME_NAMES.index(word) for word in words if word in OUTCOME_NAMES),
        default=len(OUTCOME_NAMES),
    )


def looks_like_outcome(series: pl.Series, decimal: str) -> bool:
    """Whether a column has a name of results, or holds numbers and is half empty."""
    is_called_so = outcome_rank(series.name) < len(OUTCOME_NAMES)
    if is_text(series.dtype):
        texts = series.cast(pl.String)
        is_failed = texts.str.strip_chars().str.to_lowercase().is_in(list(FAILURES))
        known = texts.filter(~is_blank(texts) & ~is_failed.fill_null(False))
        are_numbers = not column_numbers(known, decimal).numbers.null_count()
        n_known = len(known)
    else:
        are_numbers = series.dtype.is_numeric() or series.dtype == pl.Null
        n_known = len(series) - series.null_count()
    if not are_numbers:
        return False
    is_half_empty = 0 < n_known <= (1 - HALF_EMPTY) * len(series)
    return is_called_so or is_half_empty
