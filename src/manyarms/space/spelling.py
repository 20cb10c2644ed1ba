"""What text in a column means: numbers with a unit, words that stand for numbers, and levels that
differ by case or blanks only; and the results in the column of a target, in which a candidate
whose cell is blank has none yet."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from manyarms.errors import Advice, ArmsError, ParameterError
from manyarms.sheets.numerals import (
    DECIMALS,
    as_whole,
    column_numbers,
    is_blank,
    number_in,
    read_numbers,
)
from manyarms.space.columns import Label, first_of, first_true, is_text
from manyarms.space.frames import Declared

NUMBER_TYPES = ("continuous", "log", "integer", "number")
"""Types of columns of numbers; the values of the type "number" decide whether it is continuous, log
or integer."""
MERGE = "categorical:merge"
"""The type of columns in which levels count as one if they differ only by case or blanks."""


class Converted(NamedTuple):
    """A table with numbers for text, and the units that its columns of numbers have."""

    frame: pl.DataFrame
    units: dict[str, str]


def plain_kind(declared: Declared | None) -> Declared | None:
    """A declared type without the part behind the colon."""
    return declared.partition(":")[0] if isinstance(declared, str) else declared


def words_of(declared: Declared | None) -> dict[str, float]:
    """The numbers that words stand for: "number:RT=25,reflux=110"."""
    if not isinstance(declared, str) or plain_kind(declared) not in NUMBER_TYPES:
        return {}
    words: dict[str, float] = {}
    for part in filter(None, declared.partition(":")[2].split(",")):
        word, is_there, text = part.rpartition("=")
        found = number_in(text, ".")
        if not is_there or not word.strip() or found is None or found[1]:
            raise ParameterError(
                "{option}: words stand for numbers, as in {expected}; got {got}",
                option="columns",
                expected="number:RT=25",
                got=declared,
            )
        words[word.strip().casefold()] = found[0]
    return words


def converted(
    frame: pl.DataFrame,
    declared: Mapping[str, Declared],
    units: Mapping[str, str],
    decimal: str,
    label: Label,
    levels: Mapping[str, list[Any]] | None = None,
) -> Converted:
    """The table with numbers in place of text in columns of numbers, and with one spelling for
    levels that are to be merged; `units` and `levels` are those known before."""
    found = dict(units)
    columns: list[pl.Series] = []
    for series in frame:
        kind = declared.get(series.name)
        if kind == MERGE:
            columns.append(_merged(series, (levels or {}).get(series.name, [])))
        if not isinstance(series.dtype, pl.String | pl.Categorical):
            continue
        texts = series.cast(pl.String)
        are_numbers = plain_kind(kind) in NUMBER_TYPES or series.name in units
        if kind is None and not is_remarks_name(series.name):
            are_numbers = are_numbers or _are_numbers(texts, decimal)
        if are_numbers:
            numbers, unit = _numbers(texts, words_of(kind), found.get(series.name), decimal, label)
            found[series.name] = unit
            columns.append(numbers)
    return Converted(frame.with_columns(columns), found)


def _numbers(
    texts: pl.Series, words: dict[str, float], unit: str | None, decimal: str, label: Label
) -> tuple[pl.Series, str]:
    """A column that must be numbers, and its unit."""
    plain = texts.str.strip_chars().str.to_lowercase()
    by_word = plain.replace_strict(
        list(words), list(words.values()), default=None, return_dtype=pl.Float64
    )
    is_word = by_word.is_not_null()
    written = column_numbers(texts.zip_with(~is_word, pl.Series([None], dtype=pl.String)), decimal)
    bad = first_true(written.numbers.is_null() & ~is_blank(texts) & ~is_word)
    if bad is not None:
        raise _unreadable(texts, bad, label)
    numbers = as_whole(written.numbers.zip_with(~is_word, by_word))
    return numbers, one_unit(texts, written.units, unit, label)


def as_numbers_where_all_are(values: pl.Series, decimal: str) -> pl.Series:
    """A column of text as numbers where all its cells are such, of one unit, or empty; else the
    column as it is."""
    if not is_text(values.dtype):
        return values
    texts = values.cast(pl.String)
    written = column_numbers(texts, decimal)
    units = written.units.filter(written.units != "").n_unique()
    # Zeros at the beginning belong to names.
    is_name = texts.str.contains(r"^\s*0\d") | (written.numbers.is_null() & ~is_blank(texts))
    return values if units > 1 or is_name.any() else written.numbers


def _are_numbers(texts: pl.Series, decimal: str) -> bool:
    """Whether a column of text is meant as numbers: most of its texts are numbers, and some have a
    unit or cannot be read."""
    # Levels are few as a rule, and rows many.
    levels = texts.unique()
    distinct = levels.filter(~is_blank(levels))
    # A digit begins every number: most columns of text have none, and are done with.
    if not distinct.str.contains(r"^\s*[+\-−]?[.,]?\d").any():
        return False
    read = [read_numbers(distinct, mark) for mark in DECIMALS]
    n_numbers = int((read[0].numbers.is_not_null() | read[1].numbers.is_not_null()).sum())
    with_units = any((each.units != "").fill_null(False).any() for each in read)
    are_clear = not column_numbers(distinct, decimal).numbers.null_count()
    # A unit says that a number is meant; without one, half of the levels may be names.
    are_few = 2 * n_numbers < len(distinct) + (0 if with_units else 1)
    return not are_few and (with_units or not are_clear)


def _unreadable(texts: pl.Series, row: int, label: Label) -> ArmsError:
    word = texts[row].strip()
    is_word = re.fullmatch(r"[^\W\d_]+([ .][^\W\d_]*)*", word[:20]) is not None
    name = texts.name
    # Room temperature is about 25 °C.
    is_room = word.casefold() in ("rt", "r.t.", "room temperature", "ambient")
    number = "25" if is_room else "…"
    meant = (
        [Advice("say what it stands for by {}", "columns", {name: f"number:{word}={number}"})]
        if is_word
        else []
    )
    return ArmsError(
        "column {column!r} must hold {expected}, got {got} in {place}",
        "correct the value",
        *meant,
        Advice("make all of them categories by {}", "columns", {name: "categorical"}),
        Advice("leave the column out by {}", "columns", {name: "ignore"}),
        column=name,
        expected="numbers",
        got=texts[row],
        **label(row),
    )


def one_unit(
    texts: pl.Series, units: pl.Series, unit: str | None, label: Label, what: str = "column"
) -> str:
    """The unit of a column; an error if the column has two."""
    there = units.filter((units != "").fill_null(False)).unique(maintain_order=True).to_list()
    first = unit or (there[0] if there else "")
    other = first_true(((units != "") & (units != first)).fill_null(False))
    if other is not None:
        as_levels = Advice("make categories of them by {}", "columns", {texts.name: "categorical"})
        raise ArmsError(
            f"{what} {{column!r}} must have one unit, {{expected}}, got {{got}} in {{place}}",
            "write all values in one unit",
            *([as_levels] if what == "column" else []),
            column=texts.name,
            expected=repr(first),
            got=texts[other],
            **label(other),
        )
    return str(first)


def are_remarks(values: pl.Series, missing: str) -> bool:
    """Whether text is remarks on some of the rows: the column has such a name, or more than half of
    its cells are empty and that is no level."""
    if not is_text(values.dtype):
        return False
    is_mostly_empty = 2 * values.null_count() > len(values) and missing != "category"
    return is_mostly_empty or is_remarks_name(values.name)


def is_remarks_name(name: str) -> bool:
    """Whether a column has the name of a column of remarks."""
    remarks = ("note", "notes", "comment", "comments", "remark", "remarks")
    return name.strip().casefold() in remarks


def check_levels(texts: pl.Series, name: str) -> None:
    """Raise ArmsError if levels differ only by case or blanks: they probably mean the same."""
    levels = texts.drop_nulls().unique().sort()
    alike = levels.filter(_key(levels).is_duplicated())
    if not len(alike):
        return
    same = alike.filter(_key(alike) == _key(alike)[0]).to_list()
    raise ArmsError(
        "column {column!r} has levels that differ by case or blanks alone, {expected}",
        Advice("make one of them by {}", "columns", {name: MERGE}),
        Advice("keep them apart by {}", "columns", {name: "categorical"}),
        column=name,
        expected=" and ".join(map(repr, first_of(same))),
    )


def _merged(texts: pl.Series, known: list[str]) -> pl.Series:
    """One spelling for each level: without blanks around it, and in the case of the known level, or
    else of the most frequent one."""
    plain = texts.cast(pl.String).str.strip_chars().str.replace_all(r"\s+", " ")
    counts = plain.drop_nulls().value_counts(sort=True)
    listed = [*known, *counts.sort("count", plain.name, descending=[True, False])[plain.name]]
    spelling: dict[str, str] = {}
    for level in listed:
        spelling.setdefault(level.casefold(), level)
    return plain.replace({level: spelling[level.casefold()] for level in listed})


def _key(levels: pl.Series) -> pl.Series:
    return levels.str.strip_chars().str.replace_all(r"\s+", " ").str.to_lowercase()


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
