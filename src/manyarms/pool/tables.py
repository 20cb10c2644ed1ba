"""A table that a user gave, checked: its ids, its columns, and the rows to leave out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from manyarms.errors import Advice, ArmsError, ParameterError
from manyarms.pool.columns import Aside
from manyarms.pool.forked import check_threads
from manyarms.pool.ids import Ids, checked_ids, given_ids, plain
from manyarms.pool.parts import (
    Origin,
    Parts,
    check_missing,
    counted,
    first_parts,
    grown_parts,
    quoted,
)
from manyarms.pool.reading import Declared, Levels
from manyarms.pool.values import Label, Place, cleaned
from manyarms.typing import AnyArray

MISSING = ("error", "drop", "category")
"""What may be done about a missing value: refuse it, leave the row out, make it a level."""


def new_parts(
    frame: pl.DataFrame,
    levels: dict[str, Levels],
    id: str | None,
    declared: dict[str, Declared],
    missing: str,
    ids: Sequence[Any] | AnyArray | None = None,
) -> Parts:
    """Of the first table of a pool."""
    if not isinstance(missing, str) or missing not in MISSING:
        raise ParameterError(
            "{option} must be one of {expected}, got {got}",
            option="missing",
            expected=", ".join(MISSING),
            got=missing,
        )
    if id is not None and (not isinstance(id, str) or id not in frame.columns):
        raise ParameterError(
            "{option} must be a column, one of {expected}; got {got}",
            option="id",
            expected=quoted(frame.columns),
            got=id,
        )
    names = [name for name in frame.columns if name != id]
    # A type for a column that is not there is a typing error, which would go unnoticed.
    unknown = [name for name in declared if name not in names]
    if unknown:
        raise ParameterError(
            "{option} must name columns of the table, {expected}; got {got}",
            option="columns",
            expected=quoted(names),
            got=unknown[0],
        )
    ignored = {name for name, kind in declared.items() if kind == "ignore"}
    origin = Origin(id, id is None and ids is None, missing, declared, levels)
    ids = np.arange(len(frame)) if origin.numbered else ids
    return first_parts(origin, *_candidates(frame, origin, ids, names, ignored), len(frame))


def more_parts(parts: Parts, frame: pl.DataFrame, ids: Sequence[Any] | AnyArray | None) -> Parts:
    """With another table of the same columns."""
    origin = parts.origin
    names = [column.name for column in parts.columns]
    expected = [*names, *([] if origin.id is None else [origin.id])]
    lacking = [name for name in expected if name not in frame.columns]
    surplus = [name for name in frame.columns if name not in expected]
    if lacking or surplus:
        came = [f"missing {quoted(lacking)}"] if lacking else []
        came += [f"unexpected {quoted(surplus)}"] if surplus else []
        raise ArmsError(
            f"the table must have the columns of the pool, {quoted(expected)}, got "
            f"{' and '.join(came)}",
            "give the same columns",
            "make a new pool of all rows",
        )
    # Ids come from a column, from row numbers, or beside the table: always the same way.
    given = origin.id is None and not origin.numbered
    if given != (ids is not None):
        raise ParameterError(
            "ids must be given for a pool made from an array with ids, and only then"
        )
    next_row = parts.next_row + len(frame)  # rows left out have numbers too
    ids = np.arange(parts.next_row, next_row) if origin.numbered else ids
    ignored = {
        c.name
        for c in parts.columns
        if isinstance(c, Aside) and c.type == "ignore" and c.constant is None
    }
    frame, named, label = _candidates(frame, origin, ids, names, ignored)
    _check_new(parts.ids, named, label)
    return grown_parts(parts, frame, named, label, next_row)


def _candidates(
    frame: pl.DataFrame,
    origin: Origin,
    given: Sequence[Any] | AnyArray | None,
    names: list[str],
    ignored: set[str],
) -> tuple[pl.DataFrame, AnyArray, Label]:
    """The table without ids and without rows to leave out, the ids, and how messages name a row."""
    check_threads()
    id = origin.id
    missing = origin.missing
    if not names:
        raise ArmsError("a pool needs at least one column besides the id, got none")
    if not len(frame):
        raise ArmsError(
            f"a pool needs at least one candidate, got a table of {counted(len(names), 'column')} "
            "and no row"
        )
    series = frame[id] if id is not None else given_ids(given, len(frame))
    rows = np.arange(len(frame))  # in the table as it came: for messages
    checked = {name: cleaned(frame[name]) for name in names if name not in ignored}
    if missing == "drop":
        kept = series.is_not_null().to_numpy()
        for values in checked.values():
            kept = kept & values.is_not_null().to_numpy()
        if not kept.any():
            worst = max(checked, key=lambda name: checked[name].null_count())
            raise ArmsError(
                "every row misses a value, none is left: column {column!r} misses "
                f"{checked[worst].null_count():,} of {len(frame):,}",
                Advice("leave it out by {}", "columns", {worst: "ignore"}),
                column=worst,
            )
        if not kept.all():
            frame = frame.filter(kept)
            series = series.filter(pl.Series(kept))
            rows = rows[kept]
    ids = checked_ids(series, rows)

    def label(position: int) -> Place:
        row = int(rows[position])
        name = plain(ids[position])
        return {"row": row} if row == name and id is None else {"row": row, "id": name}

    if missing == "error":
        # Before types are decided: a missing value is the first thing to hear about.
        for name, values in checked.items():
            check_missing(Aside(name, "text"), values, missing, label)
    return frame.select(names), ids, label


def _check_new(known: Ids, ids: AnyArray, label: Label) -> None:
    if ids.dtype != known.array.dtype:
        kinds = [
            "strings" if array.dtype == object else "whole numbers" for array in (known.array, ids)
        ]
        raise ArmsError(
            f"the ids of this pool are {kinds[0]}, got {kinds[1]}, in {{place}}",
            "convert them first",
            **{**label(0), "id": plain(ids[0])},
        )
    old = known.known(ids)
    if old.any():
        raise ArmsError(
            "ids must be new, got one that the pool has in {place}",
            "leave it out",
            "rename it",
            **label(int(old.argmax())),
        )
