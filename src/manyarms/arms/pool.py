"""Candidates as a table: ids that stay, typed columns, encoded features."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from manyarms.arms.array import as_rows
from manyarms.arms.columns import TYPES, Aside, Column, Declared, Feature, Label, Objects, checked_types, cleaned, decide
from manyarms.arms.forked import check_threads
from manyarms.arms.objects import encoded
from manyarms.arms.reading import Levels, as_series, read_array, read_csv, read_dicts, read_frame, read_parquet
from manyarms.errors import ArmsError, ParameterError, UnknownArmError
from manyarms.kernels.base import Kernel
from manyarms.kernels.objects import encoder_of
from manyarms.typing import AnyArray, Array, ArrayLike, Indices

__all__ = ["Feature", "Pool"]

Columns = Mapping[str, str | Sequence[Any]]
MISSING = ("error", "drop", "category")
OBJECT = "object"
"""The only column of a pool of objects."""
COMPARED = 5000
"""Ids compared to suggest one."""
ENTRIES_HASHED = 1 << 20


@dataclass(frozen=True)
class _Parts:
    """What a pool holds. Tables keep the rows as they came, so that nothing is decoded."""

    tables: tuple[pl.DataFrame, ...]
    columns: tuple[Column, ...]
    id: str | None
    numbered: bool
    next_row: int
    missing: str
    declared: dict[str, Declared]
    levels: dict[str, Levels]  # of ordered columns whose table does not say so
    ids: AnyArray
    X: Array
    arm_of: Indices


class Pool:
    """Candidates from a table: their ids, their rows as they came, and their features encoded as numbers.

    Made by `from_objects`, and by `from_csv`, `from_parquet`, `from_frame`, `from_dicts` and `from_array`, which take:

    - ``id``: the column of stable, unique ids, strings or whole numbers; None: the row numbers from 0.
    - ``columns``: types that overrule those chosen by the values, a dict of names to "continuous", "log", "integer", "boolean",
      "ordered", "categorical", "text", "bits", "ignore", or to a list of levels in order.
    - ``missing``: what None and NaN do. "error"; "drop" leaves the rows out; "category" makes them a level of boolean and
      categorical columns, and is an error elsewhere. Ignored columns may miss values.

    By its values a column of numbers is continuous or integer, or log if all are positive and the 95th percentile is at least
    100 times the 5th; strings are categorical if a twentieth of the rows or fewer are distinct (up to 50 always, more than
    1000 never), else text; Enum and ordered categoricals are ordered; lists of 0 and 1, and equally long strings of at least
    eight, are bits. A column that holds one value only is ignored unless a type is given for it. `columns` tells what was
    decided.

    Candidates with the same features are one arm, a row of `X`: they share evidence and keep their ids. A pool never changes.
    """

    def __init__(self, parts: _Parts) -> None:
        if not isinstance(parts, _Parts):
            made = "from_array, from_frame, from_dicts, from_csv, from_parquet or from_objects"
            raise ArmsError(f"a pool is made by Pool.{made}, got {type(parts).__name__}")
        for array in (parts.ids, parts.X, parts.arm_of):
            array.setflags(write=False)
        self._parts = parts

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        *,
        id: str | None = None,
        columns: Columns | None = None,
        missing: str = "error",
        decimal: Literal[".", ","] = ".",
    ) -> "Pool":
        """The rows of a CSV file in UTF-8 with a header, as spreadsheets write it: separated by commas, semicolons, tabs or
        bars, whichever the header has most of. `decimal` is the mark before the fraction of a number."""
        declared = checked_types(columns)
        texts = {name for name, kind in declared.items() if kind in ("bits", "text")}
        kept = {name for name, kind in declared.items() if kind not in ("continuous", "log", "integer")}
        return _new_pool(read_csv(Path(path), id, texts, kept, decimal), {}, id, declared, missing)

    @classmethod
    def from_parquet(
        cls, path: str | Path, *, id: str | None = None, columns: Columns | None = None, missing: str = "error"
    ) -> "Pool":
        """The rows of a Parquet file."""
        return _new_pool(read_parquet(Path(path)), {}, id, checked_types(columns), missing)

    @classmethod
    def from_frame(cls, frame: Any, *, id: str | None = None, columns: Columns | None = None, missing: str = "error") -> "Pool":
        """The rows of a data frame of pandas, polars, pyarrow or what else narwhals knows. An index is left out."""
        return _new_pool(*read_frame(frame), id, checked_types(columns), missing)

    @classmethod
    def from_dicts(
        cls,
        rows: Iterable[Mapping[str, Any]],
        *,
        id: str | None = None,
        columns: Columns | None = None,
        missing: str = "error",
    ) -> "Pool":
        """One dict for each row. A key that a row does not have is a missing value."""
        return _new_pool(read_dicts(rows), {}, id, checked_types(columns), missing)

    @classmethod
    def from_array(
        cls,
        X: ArrayLike,
        *,
        ids: Sequence[Any] | AnyArray | None = None,
        names: Sequence[str] | None = None,
        columns: Columns | None = None,
    ) -> "Pool":
        """The rows of an array of numbers, (n, d); columns are called "x0", "x1", … unless `names` are given."""
        return _new_pool(read_array(X, names), {}, None, checked_types(columns), "error", ids)

    @classmethod
    def from_objects(cls, objects: Sequence[Any], kernel: Kernel, *, ids: Sequence[Any] | AnyArray | None = None) -> "Pool":
        """Objects of any kind that a kernel of objects can compare, such as strings and `kernels.Spectrum`.

        The object of a candidate is ``row(id)["object"]``; ids are 0, 1, … unless given.
        """
        if not isinstance(kernel, Kernel) or encoder_of(kernel) is None:
            raise ParameterError(
                f"kernel must be one of objects, such as kernels.Spectrum or kernels.OnObjects, got {kernel!r}"
            )
        rows = as_rows(encoded(objects, kernel))
        numbers = np.arange(len(rows))
        named = _checked_ids(_given_ids(numbers if ids is None else ids, len(rows)), numbers)
        first, arm_of = _group(rows)
        columns = (Objects(OBJECT, OBJECT, kernel, rows.shape[1]),)
        frame, n = _frame_of(objects), len(rows)
        return Pool(_Parts((frame,), columns, None, ids is None, n, "error", {}, {}, named, rows[first], arm_of))

    def add(self, table: Any, *, ids: Sequence[Any] | AnyArray | None = None) -> "Pool":
        """A pool with more candidates: a data frame, dicts, an array, the path of a .csv or .parquet file; or objects.

        Columns may come in any order. What was encoded stays as it is, arm by arm: numbers are scaled as those of the first
        table (and may fall outside [0, 1]), new categories get new codes, new features new rows of `X`. Row numbers continue;
        `ids` are for pools made by `from_array` with ids.
        """
        return _extended(self, self._read(table), ids)

    def read(self, path: str | Path, *, decimal: Literal[".", ","] | str = ".") -> pl.DataFrame:
        """The table in a .csv or .parquet file, read as one of this pool: its texts stay texts, its ids keep their type."""
        if Path(path).suffix == ".parquet":
            return read_parquet(Path(path))
        texts = {name for name, dtype in self._parts.tables[0].schema.items() if dtype == pl.String}
        texts |= {self._parts.id} if self._parts.id is not None and self.ids.dtype == object else set()
        return read_csv(Path(path), self._parts.id, texts, texts, decimal)

    def _read(self, table: Any) -> pl.DataFrame:
        if self.kernel is not None:
            return _frame_of(table)
        if isinstance(table, str | Path):
            return self.read(table)
        if isinstance(table, np.ndarray):
            return read_array(table, self.names)
        return read_dicts(table) if isinstance(table, list | tuple) else read_frame(table)[0]

    @property
    def ids(self) -> AnyArray:
        """The id of each candidate: int64, or strings."""
        return self._parts.ids

    @property
    def X(self) -> Array:
        """The features of each arm, read-only: numbers scaled to [0, 1], then codes, then packed bits; `features` tells."""
        return self._parts.X

    @property
    def arm_of(self) -> Indices:
        """The arm, a row of `X`, of the candidate at each position."""
        return self._parts.arm_of

    @property
    def kernel(self) -> Kernel | None:
        """The kernel that a pool of objects was made with; None for tables."""
        column = self._parts.columns[0]
        return column.kernel if isinstance(column, Objects) else None

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What the columns of `X` are."""
        features: list[Feature] = []
        for column in _encoded(self._parts.columns):
            features.append(column.feature(features[-1].stop if features else 0))
        return tuple(features)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table, without the ids."""
        return tuple(column.name for column in self._parts.columns)

    @property
    def columns(self) -> dict[str, str]:
        """The type of each column, as declared or as decided; "ignore" for one that holds a single value."""
        return {column.name: column.type for column in self._parts.columns}

    @cached_property
    def text(self) -> dict[str, AnyArray]:
        """The text columns: a string for each candidate."""
        names = [column.name for column in self._parts.columns if column.type == "text"]
        return {
            name: _objects(chain.from_iterable(t[name].cast(pl.String).to_list() for t in self._parts.tables)) for name in names
        }

    def members(self, arm: int) -> Indices:
        """The positions of the candidates that are an arm."""
        if not isinstance(arm, Integral) or isinstance(arm, bool) or not 0 <= arm < len(self.X):
            raise UnknownArmError(f"arm must be a row of X, from 0 to {len(self.X) - 1}, got {arm!r}")
        order, starts = self._by_arm
        return order[starts[arm] : starts[int(arm) + 1]]

    @cached_property
    def _by_arm(self) -> tuple[Indices, Indices]:
        order = np.argsort(self.arm_of, kind="stable")
        order.setflags(write=False)
        return order, np.concatenate([[0], np.cumsum(np.bincount(self.arm_of))]).astype(np.intp)

    def positions(self, ids: Any) -> Indices:
        """The positions of one id, or of several."""
        if self.ids.dtype == object:
            return self._positions_of_strings(_several(ids))
        numbers = _whole_numbers(ids, self)
        ordered, order = self._ordered
        found = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
        unknown = np.flatnonzero(ordered[found] != numbers)
        if len(unknown):
            raise self._unknown(int(numbers[unknown[0]]))
        return found if order is None else order[found]

    def _positions_of_strings(self, ids: list[Any]) -> Indices:
        index = self._index
        for id in ids:
            if not isinstance(id, str) or id not in index:
                raise self._unknown(id)
        return np.array([index[id] for id in ids], dtype=np.intp)

    @cached_property
    def _index(self) -> dict[str, int]:
        return dict(zip(self.ids, range(len(self)), strict=True))

    @cached_property
    def _ordered(self) -> tuple[AnyArray, Indices | None]:
        """The numbers that are ids in ascending order, and their positions unless they came so."""
        if (self.ids[1:] > self.ids[:-1]).all():
            return self.ids, None
        order = np.argsort(self.ids)
        return self.ids[order], order

    def _unknown(self, id: Any) -> UnknownArmError:
        strings = self.ids.dtype == object
        expected = "strings" if strings else "whole numbers"
        if isinstance(id, str) == strings and (strings or (isinstance(id, Integral) and not isinstance(id, bool))):
            near = _closest(id, self.ids) if strings else None
            known = f"did you mean {near!r}?" if near is not None else f"ids are {expected} such as {_id(self.ids[0])!r}"
            return UnknownArmError(f"no candidate has the id {_id(id)!r}; {known}")
        meant = _in_other_type(id, strings)
        hint = f"; did you mean {meant!r}?" if meant is not None and self._has(meant) else f", such as {_id(self.ids[0])!r}"
        return UnknownArmError(f"the ids of this pool are {expected}, got {_id(id)!r} of type {type(id).__name__}{hint}")

    def _has(self, id: Any) -> bool:
        return id in self._index if isinstance(id, str) else bool((self.ids == id).any())

    def row(self, id: Any) -> dict[str, Any]:
        """The values of a candidate as they came, without its id."""
        rows = self.rows(id)
        if len(rows) != 1:
            raise UnknownArmError(f"row takes one id, got {len(rows)}; rows takes several")
        return rows[0]

    def rows(self, ids: Any) -> list[dict[str, Any]]:
        """The values of candidates as they came, without their ids."""
        positions = self.positions(ids)
        ends = np.cumsum([len(table) for table in self._parts.tables])
        rows: list[dict[str, Any]] = [{}] * len(positions)
        for index, table in enumerate(self._parts.tables):
            start = ends[index] - len(table)
            here = np.flatnonzero((positions >= start) & (positions < ends[index]))
            columns = [column.gather(positions[here] - start).to_list() for column in table]  # without threads: see forked.py
            for place, values in zip(here, zip(*columns, strict=True), strict=True):
                rows[place] = dict(zip(table.columns, values, strict=True))
        return rows

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        types = list(self.columns.values())
        counts = ", ".join(f"{types.count(kind)} {_PLURAL.get(kind, kind)}" for kind in (*TYPES, OBJECT) if kind in types)
        same = f" ({len(self.X):,} distinct)" if len(self.X) < len(self) else ""
        return f"Pool({_count(len(self), 'candidate')}{same}, {_count(len(types), 'column')}: {counts})"


_PLURAL = {"ignore": "ignored"}


def _frame_of(objects: Any) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(OBJECT, list(objects), dtype=pl.Object)])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _new_pool(
    frame: pl.DataFrame,
    levels: dict[str, Levels],
    id: str | None,
    declared: dict[str, Declared],
    missing: str,
    ids: Sequence[Any] | AnyArray | None = None,
) -> Pool:
    if missing not in MISSING:
        raise ParameterError(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")
    if id is not None and id not in frame.columns:
        raise ParameterError(f"id must be a column, one of {_quoted(frame.columns)}; got {id!r}")
    names = [name for name in frame.columns if name != id]
    unknown = [name for name in declared if name not in names]
    if unknown:
        raise ParameterError(f"columns must name columns of the table, {_quoted(names)}; got {unknown[0]!r}")
    ignored = {name for name, kind in declared.items() if kind == "ignore"}
    numbered = id is None and ids is None
    n_rows = len(frame)
    frame, named, label = _candidates(frame, id, np.arange(n_rows) if numbered else ids, names, ignored, missing)
    return first_pool(frame, named, label, id, numbered, n_rows, missing, declared, levels)


def first_pool(
    frame: pl.DataFrame,
    ids: AnyArray,
    label: Label,
    id: str | None,
    numbered: bool,
    next_row: int,
    missing: str,
    declared: dict[str, Declared],
    levels: dict[str, Levels],
) -> Pool:
    """The pool of a table from which ids and rows to leave out were taken."""
    known = {n: tuple(dtype.categories) for n, dtype in frame.schema.items() if isinstance(dtype, pl.Enum)} | levels
    columns = _decided(frame, declared, known, missing, label)
    rows = _encode(frame, columns, label)
    first, arm_of = _group(rows)
    X = rows if len(first) == len(rows) else rows[first]
    return Pool(_Parts((frame,), columns, id, numbered, next_row, missing, declared, levels, ids, X, arm_of))


def _extended(pool: Pool, frame: pl.DataFrame, ids: Sequence[Any] | AnyArray | None) -> Pool:
    parts = pool._parts
    expected = [*pool.names, *([] if parts.id is None else [parts.id])]
    lacking = [name for name in expected if name not in frame.columns]
    surplus = [name for name in frame.columns if name not in expected]
    if lacking or surplus:
        came = [f"missing {_quoted(lacking)}"] if lacking else []
        came += [f"unexpected {_quoted(surplus)}"] if surplus else []
        raise ArmsError(f"the table must have the columns of the pool, {_quoted(expected)}; {' and '.join(came)}")
    given = parts.id is None and not parts.numbered
    if given != (ids is not None):
        raise ParameterError("ids must be given for a pool made from an array with ids, and only then")
    n_rows = len(frame)
    ids = np.arange(parts.next_row, parts.next_row + n_rows) if parts.numbered else ids
    ignored = {c.name for c in parts.columns if isinstance(c, Aside) and c.type == "ignore" and c.constant is None}
    frame, named, label = _candidates(frame, parts.id, ids, list(pool.names), ignored, parts.missing)
    _check_new(pool, named, label)
    return grown_pool(pool, frame, named, label, parts.next_row + n_rows)


def grown_pool(pool: Pool, frame: pl.DataFrame, ids: AnyArray, label: Label, next_row: int) -> Pool:
    """The pool with a table more, from which ids and rows to leave out were taken."""
    parts, columns = pool._parts, []
    for column in parts.columns:
        values = cleaned(frame[column.name])
        _check_missing(column, values, parts.missing, label)
        columns.append(column.grown(values, label))
    rows = np.concatenate([pool.X, _encode(frame, columns, label)])
    first, arms = _group(rows)
    return Pool(
        replace(
            parts,
            tables=(*parts.tables, frame),
            columns=tuple(columns),
            next_row=next_row,
            ids=np.concatenate([pool.ids, ids]),
            X=rows[first] if len(first) > len(pool.X) else pool.X,
            arm_of=np.concatenate([pool.arm_of, arms[len(pool.X) :]]),
        )
    )


def _candidates(
    frame: pl.DataFrame,
    id: str | None,
    given: Sequence[Any] | AnyArray | None,
    names: list[str],
    ignored: set[str],
    missing: str,
) -> tuple[pl.DataFrame, AnyArray, Label]:
    """The table without ids and without rows to leave out, the ids, and how messages name a row."""
    check_threads()
    if not names:
        raise ArmsError("a pool needs at least one column besides the id, got none")
    if not len(frame):
        raise ArmsError(f"a pool needs at least one candidate, got a table of {_count(len(names), 'column')} and no row")
    series = frame[id] if id is not None else _given_ids(given, len(frame))
    rows = np.arange(len(frame))
    checked = {name: cleaned(frame[name]) for name in names if name not in ignored}
    if missing == "drop":
        kept = series.is_not_null().to_numpy()
        for values in checked.values():
            kept = kept & values.is_not_null().to_numpy()
        if not kept.any():
            worst = max(checked, key=lambda name: checked[name].null_count())
            raise ArmsError(
                f"every row misses a value, none is left: column {worst!r} misses {checked[worst].null_count():,} "
                f'of {len(frame):,}; leave it out with columns={{{worst!r}: "ignore"}}'
            )
        if not kept.all():
            frame, series, rows = frame.filter(kept), series.filter(pl.Series(kept)), rows[kept]
    ids = _checked_ids(series, rows)

    def label(position: int) -> str:
        row, name = int(rows[position]), _id(ids[position])
        return f"row {row}" if row == name and id is None else f"row {row} (id {name!r})"

    if missing == "error":
        for name, values in checked.items():
            _check_missing(Aside(name, "text"), values, missing, label)
    return frame.select(names), ids, label


def _given_ids(given: Sequence[Any] | AnyArray | None, n_rows: int) -> pl.Series:
    series = (
        pl.Series(given) if isinstance(given, np.ndarray) and given.dtype.kind in "iu" else as_series("ids", _several(given))
    )
    if len(series) != n_rows:
        raise ArmsError(f"ids must be one for each of the {n_rows:,} rows, got {len(series):,}")
    return series.alias("ids")


def _checked_ids(series: pl.Series, rows: Indices) -> AnyArray:
    """The ids as int64 or strings; none missing, none twice."""
    dtype = series.dtype
    if not dtype.is_integer() and not isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        advice = (
            "make them whole numbers or strings, or give another column" if len(series) > series.null_count() else "fill them"
        )
        raise ArmsError(f"ids, in {series.name!r}, must be strings or whole numbers, got {dtype}; {advice}")
    if series.null_count():
        row = rows[series.is_null().arg_max() or 0]
        raise ArmsError(f"every row needs an id in {series.name!r}, got none in row {row}; fill it, or give missing='drop'")
    twice = series.is_duplicated()
    if twice.any():
        value = series[twice.arg_max() or 0]
        where = rows[(series == value).to_numpy()]
        raise ArmsError(
            f"ids must be unique, got {value!r} in rows {', '.join(map(str, where[:5]))}{' …' if len(where) > 5 else ''} "
            f"of {series.name!r}; rename them, or leave one of the rows out"
        )
    if not dtype.is_integer():
        return _objects(series.cast(pl.String).to_list())
    try:
        return series.cast(pl.Int64).to_numpy().copy()
    except pl.exceptions.PolarsError as error:
        raise ArmsError(f"ids that are numbers must fit 64 bits, got {dtype} in {series.name!r}; make them strings") from error


def _check_new(pool: Pool, ids: AnyArray, label: Label) -> None:
    if ids.dtype != pool.ids.dtype:
        kinds = ["strings" if array.dtype == object else "whole numbers" for array in (pool.ids, ids)]
        raise ArmsError(
            f"the ids of this pool are {kinds[0]}, got {kinds[1]}, {_id(ids[0])!r} in {label(0)}; convert them first"
        )
    old = np.isin(ids, pool.ids) if ids.dtype != object else np.array([id in pool._index for id in ids])
    if old.any():
        raise ArmsError(f"ids must be new, got one that the pool has in {label(int(old.argmax()))}; leave it out or rename it")


def _decided(
    frame: pl.DataFrame, declared: dict[str, Declared], levels: dict[str, Levels], missing: str, label: Label
) -> tuple[Column, ...]:
    def column(name: str, keep_constant: bool) -> Column:
        values = cleaned(frame[name])
        found = decide(values, name, declared.get(name), label, levels.get(name, ()), keep_constant)
        _check_missing(found, values, missing, label)
        return found

    columns = tuple(column(name, False) for name in frame.columns)
    if _encoded(columns):
        return columns
    texts = [each.name for each in columns if each.type == "text"]
    if not any(frame[name].n_unique() > 1 for name in texts):  # candidates are all alike
        columns = tuple(column(name, True) for name in frame.columns)
    if not _encoded(columns) and texts:
        raise ArmsError(
            f"a pool needs features, got only text ({_quoted(texts)}) to tell candidates by; add columns of numbers, "
            'categories or fingerprints (strings or lists of 0 and 1, columns={"fingerprint": "bits"}), '
            f'or declare columns={{{texts[0]!r}: "categorical"}}'
        )
    if not _encoded(columns):
        raise ArmsError(f"a pool needs features, got only columns that are ignored or empty: {_quoted(frame.columns)}")
    return columns


def _check_missing(column: Column, values: pl.Series, missing: str, label: Label) -> None:
    if not values.null_count() or (column.takes_missing() and (missing == "category" or column.type == "ignore")):
        return
    row = values.is_null().arg_max() or 0
    advice = (
        f'a column of type {column.type} has no level for it: fill it, or give missing="drop"'
        if missing == "category"
        else 'fill it, leave the row out (missing="drop"), or make it a category (missing="category")'
    )
    raise ArmsError(
        f"column {column.name!r} misses a value in {label(row)} ({_count(values.null_count(), 'row')} in all); {advice}"
    )


def _encoded(columns: Iterable[Column]) -> list[Column]:
    """The columns that are encoded, in the order of the features."""
    order = {"boolean": 1, "categorical": 1, "bits": 2}
    return sorted((column for column in columns if column.width), key=lambda column: order.get(column.type, 0))


def _encode(frame: pl.DataFrame, columns: Iterable[Column], label: Label) -> Array:
    columns = list(columns)
    rows = np.empty((len(frame), sum(column.width for column in columns)))
    start = 0
    for column in [*_encoded(columns), *(column for column in columns if not column.width)]:
        column.encode(cleaned(frame[column.name]), label, rows[:, start : start + column.width])
        start += column.width
    rows += 0.0  # −0 is 0
    return rows


def _group(rows: Array) -> tuple[Indices, Indices]:
    """The first of each distinct row, in order of appearance, and for each row which of them it equals."""
    _, first, inverse = np.unique(_hashes(rows), return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return np.arange(len(rows)), np.arange(len(rows))
    step = max(1, ENTRIES_HASHED // rows.shape[1])
    slices = [slice(start, start + step) for start in range(0, len(rows), step)]
    if not all(np.array_equal(rows[part], rows[first[inverse[part]]]) for part in slices):
        whole = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 8}").ravel()
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _hashes(rows: Array) -> AnyArray:
    """64 bits for each row, equal for equal rows; different rows may collide, which the caller checks."""
    weights = np.random.default_rng(0).integers(0, 2**64, rows.shape[1], dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(rows), np.uint64)
    step = max(1, ENTRIES_HASHED // rows.shape[1])
    for start in range(0, len(rows), step):
        bits = rows[start : start + step].view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        hashes[start : start + step] = mixed @ weights
    return hashes


def _several(ids: Any) -> list[Any]:
    """One id or several as a list."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and ids.ndim == 0):
        return [ids[()] if isinstance(ids, np.ndarray) else ids]
    return list(ids)


def _whole_numbers(ids: Any, pool: Pool) -> AnyArray:
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind == "i":
        return ids
    several = _several(ids)
    for id in several:
        if not isinstance(id, Integral) or isinstance(id, bool) or not -(2**63) <= int(id) < 2**63:
            raise pool._unknown(id)
    return np.array(several, dtype=np.int64)


def _closest(id: str, ids: AnyArray) -> str | None:
    """The id most like this one."""
    held = pl.Series(ids.tolist(), dtype=pl.String)
    if len(held) > COMPARED:
        near = held.str.len_chars().cast(pl.Int64).is_between(len(id) - 2, len(id) + 2)
        held = held.filter(near & (held.str.starts_with(id[:3]) | held.str.ends_with(id[-3:]))).head(COMPARED)
    found = get_close_matches(id, held.to_list(), n=1)
    return found[0] if found else None


def _in_other_type(id: Any, strings: bool) -> str | int | None:
    """An id as the type that it should have been."""
    if strings:
        return str(id)
    try:
        number = float(id)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and not isinstance(id, bool) else None


def _id(id: Any) -> Any:
    """An id as Python shows it."""
    return id.item() if isinstance(id, np.generic) else id


def _objects(values: Iterable[Any]) -> AnyArray:
    held = list(values)
    array = np.empty(len(held), dtype=object)
    array[:] = held
    array.setflags(write=False)
    return array


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
