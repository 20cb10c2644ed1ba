"""What a pool is made of: its tables as they came, the columns that the first table decided, and
the encoded rows. Equal rows are one arm.

Tables that users give are checked: ids, columns, results, and which rows are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.equal import group
from manyarms.errors import Advice, ArmsError, ParameterError
from manyarms.sheets.forked import check_threads
from manyarms.space.columns import Coded, Column, Label, Numeric, Place, UnusedColumn, cleaned
from manyarms.space.deciding import decide
from manyarms.space.frames import Declared, Levels
from manyarms.space.ids import Ids, checked_ids, given_ids, not_unique, plain
from manyarms.space.spelling import MERGE, are_remarks, converted, is_remarks_name, outcomes_in
from manyarms.typing import AnyArray, Array, Indices, Mask


@dataclass(frozen=True)
class Origin:
    """What the user said about the tables."""

    id: str | None  # the column of ids
    numbered: bool  # the ids are row numbers
    missing: str
    declared: dict[str, Declared]
    levels: dict[str, Levels]  # of ordered columns whose table does not say so
    decimal: str = "."  # the mark before fractions in the file that the first table came from
    units: dict[str, str] = field(
        default_factory=dict
    )  # of columns that came as text, and of the target
    target: str | None = None  # the column of outcomes, which is no feature
    decided: dict[str, str] = field(
        default_factory=dict
    )  # types of stored columns, by their values then


class TableResult(NamedTuple):
    """A result in a table of candidates."""

    id: Any
    value: float | None  # None: failed
    note: str | None


Expectation = Callable[[Array], Array]
"""From encoded rows (n, d) to a number each, (n,)."""


@dataclass(frozen=True)
class Parts:
    """The contents of a pool. Tables keep their rows as they came, so nothing has to be decoded."""

    origin: Origin
    tables: tuple[pl.DataFrame, ...]
    columns: tuple[Column, ...]
    next_row: int
    ids: Ids
    X: Array
    arm_of: Indices
    results: tuple[TableResult, ...] = ()
    notes: tuple[str, ...] = ()  # what was done to the tables, in sentences
    expected: Expectation | None = None  # what the first column of X holds of the others

    def __post_init__(self) -> None:
        for array in (self.X, self.arm_of):
            array.setflags(write=False)

    @property
    def n_expected(self) -> int:
        """How many columns a prior adds in front of X: 0 or 1."""
        return int(self.expected is not None)

    @property
    def ids_of_tables(self) -> list[AnyArray]:
        """The ids of each table."""
        ends = np.cumsum([len(table) for table in self.tables])
        return np.split(self.ids.array, ends[:-1])

    def completed(self, rows: Array) -> Array:
        """Encoded rows with what a prior expects of them in front."""
        return rows if self.expected is None else np.column_stack([self.expected(rows), rows])


def first_parts(
    origin: Origin, frame: pl.DataFrame, ids: AnyArray, label: Label, next_row: int
) -> Parts:
    """The parts that the first table makes. It has neither its ids nor rows that are left out."""
    levels = {
        n: tuple(dtype.categories)
        for n, dtype in frame.schema.items()
        if isinstance(dtype, pl.Enum)
    } | origin.levels
    columns = _decided(frame, {**origin.decided, **origin.declared}, levels, origin.missing, label)
    rows = encode(frame, columns, label)
    # Candidates with equal features are one arm: what one teaches, the others know.
    first, arm_of = group(rows)
    X = rows if len(first) == len(rows) else rows[first]
    return Parts(origin, (frame,), columns, next_row, Ids(ids), X, arm_of)


def grown_parts(
    parts: Parts, frame: pl.DataFrame, ids: AnyArray, label: Label, next_row: int
) -> Parts:
    """The parts with one more table. It has neither its ids nor rows that are left out."""
    columns = []
    for column in parts.columns:
        values = cleaned(frame[column.name])
        check_missing(column, values, parts.origin.missing, label)
        columns.append(column.grown(values, label))
    # The arms there are come first, so that they keep their numbers.
    rows = np.concatenate([parts.X[:, parts.n_expected :], encode(frame, columns, label)])
    first, arms = group(rows)
    new = rows[first[len(parts.X) :]]
    return replace(
        parts,
        tables=(*parts.tables, frame),
        columns=tuple(columns),
        next_row=next_row,
        ids=parts.ids.with_more(ids),
        X=np.concatenate([parts.X, parts.completed(new)]) if len(new) else parts.X,
        arm_of=np.concatenate([parts.arm_of, arms[len(parts.X) :]]),
    )


def _decided(
    frame: pl.DataFrame,
    declared: dict[str, Declared],
    levels: dict[str, Levels],
    missing: str,
    label: Label,
) -> tuple[Column, ...]:
    def column(name: str, keep_constant: bool) -> Column:
        values = cleaned(frame[name])
        given = levels.get(name, ())
        found = decide(values, name, declared.get(name), label, given, keep_constant, missing)
        check_missing(found, values, missing, label)
        return found

    columns = tuple(column(name, False) for name in frame.columns)
    if encoded_columns(columns):
        return columns
    # Nothing tells candidates apart. Constants will do where not even texts do.
    texts = [each.name for each in columns if each.type == "text"]
    if not any(frame[name].n_unique() > 1 for name in texts):  # candidates are all alike
        columns = tuple(column(name, True) for name in frame.columns)
    if not encoded_columns(columns) and texts:
        raise ArmsError(
            f"a pool needs features, got only text ({quoted(texts)}) to tell candidates by",
            "add columns of numbers or categories",
            Advice("read molecules by {}", "columns", {texts[0]: "smiles"}),
            Advice("declare {}", "columns", {texts[0]: "categorical"}),
        )
    if not encoded_columns(columns):
        raise ArmsError(
            "a pool needs features, got only columns that are ignored or empty: "
            f"{quoted(frame.columns)}"
        )
    return columns


def check_missing(column: Column, values: pl.Series, missing: str, label: Label) -> None:
    """Raise ArmsError if a value is missing in a column where a missing value is no level."""
    if not values.null_count() or (
        column.takes_missing and (missing == "category" or not column.width)
    ):
        return
    row = values.is_null().arg_max() or 0
    in_all = f"({counted(values.null_count(), 'row')} in all)"
    advice: list[str | Advice] = ["fill it", Advice("leave the row out ({})", "missing", "drop")]
    if missing == "category":
        in_all += f", and the type {column.type} has no level for it"
    else:
        advice.append(Advice("make it a category ({})", "missing", "category"))
    raise ArmsError(
        f"column {{column!r}} misses a value in {{place}} {in_all}",
        *advice,
        column=column.name,
        **label(row),
    )


def encoded_columns(columns: Iterable[Column]) -> list[Column]:
    """The columns that are encoded, in the order of the features."""
    # Numbers, then codes, then bits: each kernel takes columns that stand together.
    order = {"boolean": 1, "categorical": 1, "bits": 2, "smiles": 2}
    return sorted(
        (column for column in columns if column.width), key=lambda column: order.get(column.type, 0)
    )


def encode(frame: pl.DataFrame, columns: Iterable[Column], label: Label) -> Array:
    """The features of the rows of a table."""
    columns = list(columns)
    rows = np.empty((len(frame), sum(column.width for column in columns)))
    start = 0
    # Those of no width encode nothing, and check that a constant has stayed the same.
    for column in [*encoded_columns(columns), *(column for column in columns if not column.width)]:
        column.encode(cleaned(frame[column.name]), label, rows[:, start : start + column.width])
        start += column.width
    rows += 0.0  # −0 is 0
    return rows


def counted(number: int, noun: str) -> str:
    """A number and its noun: "1 row", "2 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, as a list in a sentence."""
    return ", ".join(map(repr, names)) or "none"


MISSING = ("error", "drop", "category")
"""What to do about a missing value: refuse it, leave the row out, or make it a level."""
ROWS_NAMED = 5
"""Rows that a message names, at most."""


class GivenTable(NamedTuple):
    """The columns of a table of candidates, and what else is known about its rows."""

    frame: pl.DataFrame
    rows: Indices  # their numbers, for messages
    ids: pl.Series
    outcomes: pl.DataFrame  # as `outcomes_in` has them

    def label(self, position: int) -> Place:
        """How messages name a row."""
        place: Place = {"row": int(self.rows[position])}
        id = self.ids[position]
        return place if id is None or id == place["row"] else {**place, "id": id}

    def some(self, kept: Mask) -> "GivenTable":
        """Some of the rows."""
        mask = pl.Series(kept)
        outcomes = self.outcomes.filter(mask)
        return GivenTable(self.frame.filter(mask), self.rows[kept], self.ids.filter(mask), outcomes)

    @property
    def has_result(self) -> pl.Series:
        """Which rows say what came out."""
        return self.outcomes["failed"] | self.outcomes["value"].is_not_null()


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
    origin = Origin(id, id is None and ids is None, missing, declared, levels, decimal, {}, target)
    given, unit = _given(frame, rows, origin, ids, 0)
    checked = [name for name in given.frame.columns if _is_needed(given.frame[name], origin)]
    # Levels that the table lists are no text to be read.
    text = given.frame.drop([name for name in levels if name in given.frame.columns])
    found = converted(text, declared, {}, decimal, given.label)
    origin = replace(origin, units=found.units | ({} if target is None else {target: unit}))
    given = given._replace(frame=given.frame.with_columns(found.frame))
    given, notes = _without_gaps(given, missing, checked)
    given, again = _without_repeats(given, target)
    named = checked_ids(given.ids, given.rows)
    parts = first_parts(origin, given.frame, named, given.label, len(frame))
    _check_used(parts)
    _check_repeats(parts, given.rows, again)
    again, more = _without_copies(given, again)
    results = (*_results(given), *_results(again))
    return replace(parts, results=results, notes=(*notes, *more))


def more_parts(
    parts: Parts,
    frame: pl.DataFrame,
    ids: Sequence[Any] | AnyArray | None,
    *,
    rows: Indices | None = None,
    decimal: str | None = None,
) -> Parts:
    """The parts with another table of the same columns."""
    origin = replace(parts.origin, decimal=decimal or parts.origin.decimal)
    frame = _with_unused(parts, frame)
    _check_columns(parts, frame)
    # Ids come from a column, from row numbers, or beside the table: always the same way.
    was_given = origin.id is None and not origin.numbered
    if was_given != (ids is not None):
        raise ParameterError(
            "ids must be given for a pool made from an array with ids, and only then"
        )
    given, _ = _given(frame, rows, origin, ids, parts.next_row)
    candidates = given.frame.select(column.name for column in parts.columns)
    # What the first table had as numbers must be numbers here; nothing else is looked at.
    kinds: dict[str, Declared] = {}
    known: dict[str, list[Any]] = {}
    checked: list[str] = []
    for column in parts.columns:
        kind = origin.declared.get(column.name)
        kinds[column.name] = kind if kind == MERGE else "text"
        if isinstance(column, Numeric):
            kinds[column.name] = kind or "number"
        if isinstance(column, Coded):
            known[column.name] = column.levels.drop_nulls().to_list()
        if not isinstance(column, UnusedColumn) or column.constant is not None:
            checked.append(column.name)
    found = converted(candidates, kinds, origin.units, origin.decimal, given.label, known)
    given, notes = _without_gaps(given._replace(frame=found.frame), origin.missing, checked)
    named = checked_ids(given.ids, given.rows)
    _check_new(parts.ids, named, given.label)
    # Rows left out have numbers too.
    grown = grown_parts(parts, given.frame, named, given.label, parts.next_row + len(frame))
    return replace(grown, results=(*parts.results, *_results(given)), notes=tuple(notes))


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
    rows: Indices | None,
    origin: Origin,
    ids: Sequence[Any] | AnyArray | None,
    first: int,
) -> tuple[GivenTable, str]:
    """The features of a table, its ids and its results; and the unit of the results."""
    check_threads()
    id, target = origin.id, origin.target
    features = frame.drop([name for name in (id, target) if name in frame.columns])
    if not features.width:
        raise ArmsError("a pool needs at least one column besides the id, got none")
    if not len(frame):
        raise ArmsError(
            f"a pool needs at least one candidate, got a table of "
            f"{counted(features.width, 'column')} and no row"
        )
    if origin.numbered:
        ids = np.arange(first, first + len(frame))
    series = frame[id] if id is not None else given_ids(ids, len(frame))
    rows = np.arange(len(frame)) if rows is None else rows
    nothing = pl.Series(target or "", [None] * len(frame), dtype=pl.Float64)
    told = frame[target] if target in frame.columns else nothing
    given = GivenTable(features, rows, series, pl.DataFrame())
    outcomes, unit = outcomes_in(told, origin.decimal, origin.units.get(target or ""), given.label)
    return given._replace(outcomes=outcomes), unit


def _without_gaps(
    given: GivenTable, missing: str, checked: list[str]
) -> tuple[GivenTable, list[str]]:
    """Leave out the rows that miss a value, where `missing` asks for that. Returns what is left,
    and a note about the others."""
    frame = given.frame
    if missing != "drop":
        return given, []
    values = {name: cleaned(frame[name]) for name in checked}
    needed = [given.ids, *values.values()]
    kept = np.logical_and.reduce([each.is_not_null().to_numpy() for each in needed])
    if not kept.any():
        worst = max(checked, key=lambda name: values[name].null_count())
        raise ArmsError(
            "every row misses a value, none is left: column {column!r} misses "
            f"{values[worst].null_count():,} of {len(frame):,}",
            Advice("leave it out by {}", "columns", {worst: "ignore"}),
            column=worst,
        )
    if kept.all():
        return given, []
    gone = given.rows[~kept]
    has_lost = given.outcomes["value"].filter(pl.Series(~kept)).is_not_null().any()
    lost = ", with their results" if has_lost else ""
    return given.some(kept), [f"Left out {_listed(gone)}, which miss a value{lost}."]


def _without_repeats(given: GivenTable, target: str | None) -> tuple[GivenTable, GivenTable]:
    """Divide a table with results into the first row of each id, and rows that repeat an id."""
    is_again = ~given.ids.is_first_distinct() & given.ids.is_not_null()
    twice = is_again.to_numpy() & (target is not None)
    return given.some(~twice), given.some(twice)


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


def _without_copies(given: GivenTable, again: GivenTable) -> tuple[GivenTable, list[str]]:
    """Leave out repeated rows that have no value, and copies of rows above. Returns the others,
    which are further trials, and notes about all."""
    if not len(again.frame):
        return again, []
    told = given.some(given.has_result.to_numpy())
    # A trial of its own differs somewhere, in its value, its date, a remark; a copy nowhere.
    cells = [
        pl.concat(pair).alias(str(place))
        for place, pair in enumerate(zip(_cells(told), _cells(again), strict=True))
    ]
    is_new = pl.DataFrame(cells).to_struct().is_first_distinct().tail(len(again.frame)).to_numpy()
    has_result = again.has_result.to_numpy()
    kept = is_new & has_result
    same = "the candidate is that of a row above"
    notes = [
        f"{did} {_listed(again.rows[rows])}{why}."
        for did, rows, why in (
            ("Left out", has_result & ~is_new, ": every cell is that of a row above"),
            ("Left out", ~has_result, f" without a value: {same}"),
            ("Took", kept, f" as further trials: {same}"),
        )
        if rows.any()
    ]
    return again.some(kept), notes


def _cells(given: GivenTable) -> list[pl.Series]:
    """All that is in a table, column by column."""
    return [given.ids, *given.frame, *given.outcomes]


def _results(given: GivenTable) -> list[TableResult]:
    """What came out, of each row that says so."""
    told = given.some(given.has_result.to_numpy())
    remarks = next(filter(is_remarks_name, told.frame.columns), None)
    notes = [None] * len(told.ids) if remarks is None else told.frame[remarks].cast(pl.String)
    values = pl.select(pl.when(~told.outcomes["failed"]).then(told.outcomes["value"])).to_series()
    return [TableResult(*each) for each in zip(told.ids, values, notes, strict=True)]


def _check_used(parts: Parts) -> None:
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
