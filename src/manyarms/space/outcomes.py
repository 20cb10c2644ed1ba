"""The column of a table that holds results. A candidate whose cell is blank has none yet."""

import re

import polars as pl

from manyarms.errors import ArmsError
from manyarms.sheets.numerals import column_numbers, is_blank
from manyarms.space.columns import Label, first_true, is_text
from manyarms.space.spelling import one_unit

FAILURES = ("failed", "fail", "failure", "error", "crashed")
"""Words for a failed trial, in place of its value, in any case."""
OUTCOME_NAMES = (
    *("yield", "yields", "ausbeute", "score", "loss", "target", "outcome", "result", "results"),
    *("response", "objective", "reward", "value", "y", "conversion", "selectivity", "ee"),
    "accuracy",
)
"""Words in the names of columns of results, the most likely word first."""


def outcomes_in(
    series: pl.Series, decimal: str, unit: str | None, label: Label
) -> tuple[pl.DataFrame, str]:
    """The results in a column: a `value` for each row, null where there is none, and whether the
    trial `failed`; and their unit. ArmsError names the first cell that is no result."""
    if is_text(series.dtype):
        texts = series.cast(pl.String)
        failed = _are_failures(texts)
        written = column_numbers(texts.set(failed, None), decimal)
        values = written.numbers
        bad = first_true(values.is_null() & ~is_blank(texts) & ~failed)
        unit = one_unit(texts, written.units, unit, label, "the target") if bad is None else unit
    elif series.dtype.is_numeric() or series.null_count() == len(series):
        values = series.cast(pl.Float64).fill_nan(None)
        failed = pl.repeat(False, len(series), eager=True)
        bad = first_true(values.is_infinite().fill_null(False))
    else:
        raise ArmsError(
            "the target {column!r} must hold {expected}, got {got}",
            "name another column",
            column=series.name,
            expected="numbers, blanks, and the word failed",
            got=series.dtype,
        )
    if bad is not None:
        raise ArmsError(
            "the target {column!r} must hold {expected}, got {got} in {place}",
            "correct it",
            "leave the cell blank until the value is known",
            column=series.name,
            expected="finite numbers, blanks, and the word failed",
            got=series[bad],
            **label(bad),
        )
    return pl.DataFrame({"value": values, "failed": failed}), unit or ""


def _are_failures(texts: pl.Series) -> pl.Series:
    return texts.str.strip_chars().str.to_lowercase().is_in(list(FAILURES)).fill_null(False)


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
        known = texts.filter(~is_blank(texts) & ~_are_failures(texts))
        are_numbers = not column_numbers(known, decimal).numbers.null_count()
        n_known = len(known)
    else:
        are_numbers = series.dtype.is_numeric() or series.dtype == pl.Null
        n_known = series.count()
    if not are_numbers:
        return False
    # A column of numbers looks like results if a third of its cells, or more, are empty.
    return is_called_so or 0 < 3 * n_known <= 2 * len(series)
