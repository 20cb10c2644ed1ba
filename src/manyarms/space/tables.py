"""A table that a user gave, checked: its ids, its columns, its results, and the rows to leave
out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.errors import Advice, ArmsError, ParameterError
from manyarms.sheets.forked import check_threads
from manyarms.space.columns import Coded, Numeric, UnusedColumn
from manyarms.space.ids import Ids, checked_ids, given_ids, not_unique, plain
from manyarms.space.outcomes import TargetColumn, outcomes_in
from manyarms.space.parts import (
    Origin,
    Parts,
    TableResult,
    counted,
    encode,
    first_parts,
    grown_parts,
    quoted,
)
from manyarms.space.reading import Declared, Levels
from manyarms.space.spelling import MERGE, are_remarks, converted, is_remarks_name, merged
from manyarms.space.values import Label, Place, cleaned
from manyarms.typing import AnyArray, Indices

MISSING = ("error", "drop", "category")
"""What to do about a missing value: refuse it, leave the row out, or make it a level."""
ROWS_NAMED = 5
"""Rows that a message names, at most."""


class GivenTable(NamedTuple):
    """A table, and what else is known about its rows."""

    frame: pl.DataFrame
    rows: Indices  # their numbers, for messages
    ids: pl.Series
    outcomes: TargetColumn | None

    def label(self, position: int) -> Place:
        """How messages name a row before its id is checked."""
        place: Place = {"row": int(self.rows[position])}
        id = self.ids[position]
        return place if id is None or id == place["row"] else {**place, "id": id}

    def some(self, kept: AnyArray) -> "GivenTable":
        """Some of the rows."""
        mask = pl.Series(kept)
        outcomes = self.outcomes
        if outcomes is not None:
            outcomes = TargetColumn(
                outcomes.values.filter(mask), outcomes.failed.filter(mask), outcomes.unit
            )
        return GivenTable(self.frame.filter(mask), self.rows[kept], self.ids.filter(mask), outcomes)


def new_parts(
    frame: pl.DataFrame,
    levels: dict[str, Levels],
    id: str | None,
    declared: dict[str, Declared],
    missing: str,
    ids: Sequence[Any] | AnyArray | None = None,
    *,
    target: str | None = None,
    decimal: str = ".",
    rows: Indices | None = None,
) -> Parts:
    """The parts of the first table of a pool; `rows` are the numbers of its rows in messages,
    counted from 0 unless given."""
    _check_options(frame, id, declared, missing, target)
    rows = np.arange(len(frame)) if rows is None else rows
    origin = Origin(id, id is None and ids is None, missing, declared, levels, decimal, {}, target)
    given = _given(frame, rows, origin, np.arange(len(frame)) if origin.numbered else ids)
    candidates = given.frame.drop([] if id is None else id)
    checked = [name for name in candidates.columns if _is_needed(candidates[name], origin)]
    text = [name for name in candidates.columns if name not in levels]
    found = converted(candidates.select(text), declared, {}, decimal, given.label)
    candidates = candidates.with_columns(_merged(found.frame, declared, {}))
    origin = replace(origin, units=found.units | _unit_of(target, given.outcomes))
    given, notes = _without_gaps(given._replace(frame=candidates), missing, checked)
    given, again = _without_repeats(given, target)
    named = checked_ids(given.ids, given.rows)
    label = _label(given.rows, named, id)
    parts = first_parts(origin, given.frame, named, label, len(frame))
    _check_used(parts, label)
    _check_repeats(parts, given.rows, again)
    results = _results(given, named)
    again, more = _without_copies(again, {(each.id, each.value) for each in results})
    results += _results(again, again.ids.to_list())
    return replace(parts, results=tuple(results), notes=(*notes, *more))


def more_parts(
    parts: Parts,
    frame: pl.DataFrame,
    ids: Sequence[Any] | AnyArray | None,
    *,
    rows: Indices | None = None,
    decimal: str | None = None,
) -> Parts:
    """The parts with another table of the same columns."""
    origin = parts.origin
    rows = np.arange(len(frame)) if rows is None else rows
    frame = _with_unused(parts, frame)
    _check_columns(parts, frame)
    # Ids come from a column, from row numbers, or beside the table: always the same way.
    was_given = origin.id is None and not origin.numbered
    if was_given != (ids is not None):
        raise ParameterError(
            "ids must be given for a pool made from an array with ids, and only then"
        )
    next_row = parts.next_row + len(frame)  # rows left out have numbers too
    ids = np.arange(parts.next_row, next_row) if origin.numbered else ids
    given = _given(frame, rows, replace(origin, decimal=decimal or origin.decimal), ids)
    unused = {c.name for c in parts.columns if isinstance(c, UnusedColumn) and c.constant is None}
    checked = [column.name for column in parts.columns if column.name not in unused]
    candidates = given.frame.select(column.name for column in parts.columns)
    known = {c.name: c.levels.drop_nulls().to_list() for c in parts.columns if isinstance(c, Coded)}
    # What the first table had as numbers must be numbers here; nothing else is looked at.
    kinds: dict[str, Declared] = {
        c.name: origin.declared.get(c.name, "number") if isinstance(c, Numeric) else "text"
        for c in parts.columns
    }
    found = converted(candidates, kinds, origin.units, decimal or origin.decimal, given.label)
    candidates = candidates.with_columns(_merged(found.frame, origin.declared, known))
    given, notes = _without_gaps(given._replace(frame=candidates), origin.missing, checked)
    named = checked_ids(given.ids, given.rows)
    label = _label(given.rows, named, origin.id)
    _check_new(parts.ids, named, label)
    grown = grown_parts(parts, given.frame, named, label, next_row)
    results = (*parts.results, *_results(given, named))
    return replace(grown, results=results, notes=tuple(notes))


def _is_needed(values: pl.Series, origin: Origin) -> bool:
    """Whether a row must have a value in this column."""
    kind = origin.declared.get(values.name)
    if kind is None:
        return not are_remarks(values, origin.missing)
    return kind not in ("ignore", "text")


def _check_options(
    frame: pl.DataFrame,
    id: str | None,
    declared: dict[str, Declared],
    missing: str,
    target: str | None,
) -> None:
    if not isinstance(missing, str) or missing not in MISSING:
        raise ParameterError(
            "{option} must be one of {expected}, got {got}",
            option="missing",
            expected=", ".join(MISSING),
            got=missing,
        )
    for option, name in (("id", id), ("target", target)):
        if name is not None and (not isinstance(name, str) or name not in frame.columns):
            raise ParameterError(
                "{option} must be a column, one of {expected}; got {got}",
                option=option,
                expected=quoted(frame.columns),
                got=name,
            )
    if target is not None and target == id:
        raise ParameterError(
            "{option} must be another column than that of the ids, got {got} for both",
            option="target",
            got=target,
        )
    names = [name for name in frame.columns if name not in (id, target)]
    # A type for a column that is not there is a typing error, which would go unnoticed.
    unknown = [name for name in declared if name not in names]
    if unknown:
        is_target = unknown[0] == target
        raise ParameterError(
            "{option} must name columns of the table"
            + (" other than the target" if is_target else "")
            + ", {expected}; got {got}",
            option="columns",
            expected=quoted(names),
            got=unknown[0],
        )


def _with_unused(parts: Parts, frame: pl.DataFrame) -> pl.DataFrame:
    """The table with the unused columns that it lacks: each holds its constant, or nothing."""
    first = parts.tables[0].schema
    return frame.with_columns(
        pl.lit(None if c.constant is None else c.constant[0], first[c.name]).alias(c.name)
        for c in parts.columns
        if isinstance(c, UnusedColumn) and c.name not in frame.columns
    )


def _check_columns(parts: Parts, frame: pl.DataFrame) -> None:
    origin = parts.origin
    expected = [column.name for column in parts.columns]
    expected += [] if origin.id is None else [origin.id]
    lacking = [name for name in expected if name not in frame.columns]
    surplus = [name for name in frame.columns if name not in (*expected, origin.target)]
    if lacking or surplus:
        came = [f"missing {quoted(lacking)}"] if lacking else []
        came += [f"unexpected {quoted(surplus)}"] if surplus else []
        raise ArmsError(
            f"the table must have the columns of the pool, {quoted(expected)}, got "
            f"{' and '.join(came)}",
            "give the same columns",
            "make a new pool of all rows",
        )


def _given(
    frame: pl.DataFrame,
    rows: Indices,
    origin: Origin,
    ids: Sequence[Any] | AnyArray | None,
) -> GivenTable:
    """The table without its column of results, and with its ids."""
    check_threads()
    target = origin.target
    names = [name for name in frame.columns if name not in (origin.id, target)]
    if not names:
        raise ArmsError("a pool needs at least one column besides the id, got none")
    if not len(frame):
        raise ArmsError(
            f"a pool needs at least one candidate, got a table of {counted(len(names), 'column')} "
            "and no row"
        )
    series = frame[origin.id] if origin.id is not None else given_ids(ids, len(frame))
    given = GivenTable(frame, rows, series, None)
    if target is None or target not in frame.columns:
        return given
    outcomes = outcomes_in(frame[target], origin.decimal, given.label)
    unit = origin.units.get(target)
    if unit and outcomes.unit not in ("", unit):
        raise ArmsError(
            "the target {column!r} must have one unit, {expected}, got {got}",
            "write all values in one unit",
            column=target,
            expected=repr(unit),
            got=outcomes.unit,
        )
    return given._replace(frame=frame.drop(target), outcomes=outcomes)


def _unit_of(target: str | None, outcomes: TargetColumn | None) -> dict[str, str]:
    return {} if target is None or outcomes is None else {target: outcomes.unit}


def _merged(
    frame: pl.DataFrame, declared: dict[str, Declared], known: dict[str, list[Any]]
) -> pl.DataFrame:
    """The table with one spelling for levels that were declared to be merged."""
    return frame.with_columns(
        merged(frame[name], known.get(name, []))
        for name, kind in declared.items()
        if kind == MERGE and name in frame.columns
    )


def _without_gaps(
    given: GivenTable, missing: str, checked: list[str]
) -> tuple[GivenTable, list[str]]:
    """The table without rows that miss a value, if those are to be left out; and what to say about
    them."""
    frame = given.frame
    if missing != "drop":
        return given, []
    kept = given.ids.is_not_null().to_numpy()
    columns = {name: cleaned(frame[name]) for name in checked}
    for values in columns.values():
        kept = kept & values.is_not_null().to_numpy()
    if not kept.any():
        worst = max(columns, key=lambda name: columns[name].null_count())
        raise ArmsError(
            "every row misses a value, none is left: column {column!r} misses "
            f"{columns[worst].null_count():,} of {len(frame):,}",
            Advice("leave it out by {}", "columns", {worst: "ignore"}),
            column=worst,
        )
    if kept.all():
        return given, []
    gone = given.rows[~kept]
    with_results = (
        given.outcomes is not None
        and not given.outcomes.values.filter(pl.Series(~kept)).is_null().all()
    )
    lost = ", with their results" if with_results else ""
    return given.some(kept), [f"Left out {_listed(gone)}, which miss a value{lost}."]


def _without_repeats(given: GivenTable, target: str | None) -> tuple[GivenTable, GivenTable]:
    """The first row of each id, and the others: where there is a target, they may be replicates."""
    nothing = given.some(np.zeros(len(given.frame), dtype=bool))
    if target is None:
        return given, nothing
    twice = ~given.ids.is_first_distinct() & given.ids.is_not_null()
    if not twice.any():
        return given, nothing
    return given.some((~twice).to_numpy()), given.some(twice.to_numpy())


def _check_repeats(parts: Parts, rows: Indices, again: GivenTable) -> None:
    """Raise ArmsError unless rows with the same id are the same candidate."""
    if not len(again.frame):
        return
    positions = parts.ids.positions(again.ids.to_list())
    features = encode(again.frame, parts.columns, again.label)
    differ = (features != parts.X[parts.arm_of[positions]]).any(axis=1)
    if differ.any():
        place = int(differ.argmax())
        first = int(rows[positions[place]])
        raise not_unique(again.ids[place], [first, int(again.rows[place])], again.ids.name)


def _without_copies(
    again: GivenTable, known: set[tuple[Any, float | None]]
) -> tuple[GivenTable, list[str]]:
    """Without rows whose id and value came before, or that have no value; and what to say of
    both."""
    if again.outcomes is None or not len(again.frame):
        return again, []
    kept = []
    for result in zip(again.ids, again.outcomes.values, again.outcomes.failed, strict=True):
        id, value, failed = result
        kept.append((failed or value is not None) and (id, value) not in known)
        known.add((id, value))
    mask = np.array(kept)
    notes = []
    if not mask.all():
        gone = again.rows[~mask]
        notes.append(f"Left out {_listed(gone)}: id, columns and value are those of a row above.")
    if mask.any():
        rows = again.rows[mask]
        same = "id and columns are those of a row above"
        notes.append(f"Took {_listed(rows)} as further trials: {same}.")
    return again.some(mask), notes


def _results(given: GivenTable, ids: Iterable[Any]) -> list[TableResult]:
    if given.outcomes is None:
        return []
    remarks = [name for name in given.frame.columns if is_remarks_name(name)]
    notes = given.frame[remarks[0]].cast(pl.String) if remarks else [None] * len(given.frame)
    told = zip(ids, given.outcomes.values, given.outcomes.failed, notes, strict=True)
    return [
        TableResult(plain(id), None if failed else value, note)
        for id, value, failed, note in told
        if failed or value is not None
    ]


def _check_used(parts: Parts, label: Label) -> None:
    """Raise ArmsError if candidates that are the same to the model differ in unused text."""
    frame = parts.tables[0]
    for column in parts.columns:
        if column.type != "text" or column.name in parts.origin.declared:
            continue
        if are_remarks(frame[column.name], parts.origin.missing):
            continue
        values = frame[column.name].cast(pl.String)
        pairs = pl.DataFrame({"arm": parts.arm_of, "value": values}).drop_nulls()
        firsts = pairs.unique(maintain_order=True)
        others = firsts.filter(firsts["arm"].is_duplicated())
        if not len(others):
            continue
        one, other = others.filter(others["arm"] == others["arm"][0])["value"].to_list()[:2]
        raise ArmsError(
            "column {column!r} tells rows apart that are the same otherwise, {expected}, and is "
            "text that would not be used",
            Advice("make it a feature by {}", "columns", {column.name: "categorical"}),
            Advice("read molecules by {}", "columns", {column.name: "smiles"}),
            Advice("leave it out by {}", "columns", {column.name: "ignore"}),
            column=column.name,
            expected=f"{one!r:.40} and {other!r:.40}",
        )


def _listed(rows: Indices) -> str:
    """ "2 rows (3 and 7)"."""
    shown = ", ".join(map(str, rows[:ROWS_NAMED].tolist())) + (
        ", …" if len(rows) > ROWS_NAMED else ""
    )
    return f"{counted(len(rows), 'row')} ({shown})"


def _label(rows: Indices, ids: AnyArray, id: str | None) -> Label:
    def label(position: int) -> Place:
        row = int(rows[position])
        name = plain(ids[position])
        return {"row": row} if row == name and id is None else {"row": row, "id": name}

    return label


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
    for place, id in enumerate(ids if known.are_strings else ()):
        meant = known.meant(id)
        if meant not in (None, id):
            raise ArmsError(
                "ids must be new, got one in {place} that a spreadsheet may have made of "
                f"{meant!r}",
                "leave it out",
                "rename it",
                **label(place),
            )
    old = known.known(ids)
    if old.any():
        raise ArmsError(
            "ids must be new, got one that the pool has in {place}",
            "leave it out",
            "rename it",
            **label(int(old.argmax())),
        )
