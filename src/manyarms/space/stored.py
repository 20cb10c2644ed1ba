"""A pool as bytes: its tables in Parquet, and in JSON what else it was made of. Reading them makes
the same pool again."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from manyarms.errors import ArmsError, ParameterError
from manyarms.sheets.forked import check_threads
from manyarms.space.ids import as_objects, plain
from manyarms.space.parts import Origin, first_parts, grown_parts, quoted
from manyarms.space.pool import Pool
from manyarms.space.reading import Declared
from manyarms.space.spelling import converted
from manyarms.space.values import Label
from manyarms.typing import AnyArray

BY_VALUES = ("continuous", "log", "integer", "boolean", "categorical", "text", "bits")
"""Types that a column may get from its values alone."""
JSON_TYPES = (str, int, float, bool, type(None))


def described(pool: Pool) -> dict[str, Any]:
    """What a pool was made of apart from its tables, as JSON."""
    origin = pool.parts.origin
    declared = written_types(origin.declared)
    levels = {name: list(values) for name, values in origin.levels.items()}
    # A type is a string: its letters pass, too.
    for values in [*declared.values(), *levels.values()]:
        if not all(isinstance(value, JSON_TYPES) for value in values):
            raise ParameterError(
                f"levels of a pool that is stored must be strings or numbers, got {values!r}"
            )
    return {
        "id": origin.id,
        "numbered": origin.numbered,
        "missing": origin.missing,
        "declared": declared,
        "levels": levels,
        "next_row": pool.parts.next_row,
        "decimal": origin.decimal,
        "units": origin.units,
        "target": origin.target,
        # As decided when the study was made: rules of later versions may decide otherwise.
        "decided": _decided(pool),
    }


def written_types(declared: Mapping[str, Declared]) -> dict[str, str | list[Any]]:
    """Types for JSON."""
    return {name: kind if isinstance(kind, str) else list(kind) for name, kind in declared.items()}


def read_types(written: Mapping[str, Any]) -> dict[str, Declared]:
    """The types that `written_types` wrote."""
    return {name: kind if isinstance(kind, str) else tuple(kind) for name, kind in written.items()}


def _decided(pool: Pool) -> dict[str, str]:
    """The types that columns have by their values."""
    declared = pool.parts.origin.declared
    return {
        column.name: column.type
        for column in pool.parts.columns
        if column.name not in declared and column.type in BY_VALUES
    }


def retyped(pool: Pool, columns: Mapping[str, Declared]) -> Pool:
    """The pool with other types for some of its columns; the others keep those they have."""
    unknown = [name for name in columns if name not in pool.names]
    if unknown:
        raise ParameterError(
            "{option} must name columns of the table, {expected}; got {got}",
            option="columns",
            expected=quoted(pool.names),
            got=unknown[0],
        )
    parts = pool.parts
    origin = parts.origin
    decided = {name: kind for name, kind in _decided(pool).items() if name not in columns}
    declared = {**origin.declared, **columns}
    units = {name: unit for name, unit in origin.units.items() if name not in columns}
    sizes = [len(table) for table in parts.tables]
    stops = np.cumsum(sizes).tolist()
    tables: list[tuple[pl.DataFrame, AnyArray]] = []
    for table, start, stop in zip(parts.tables, [0, *stops], stops, strict=False):
        ids = parts.ids.array[start:stop]
        some = table.select(name for name in columns if name in table.columns)
        found = converted(some, columns, units, origin.decimal, _label(ids, start))
        units |= found.units
        tables.append((table.with_columns(found.frame), ids))
    origin = replace(origin, declared=declared, units=units, decided=decided)
    first, *others = tables
    made = first_parts(origin, *first, _label(first[1]), parts.next_row)
    for frame, ids in others:
        made = grown_parts(made, frame, ids, _label(ids), parts.next_row)
    return Pool(made)


def bytes_of(pool: Pool, index: int) -> bytes:
    """A table of a pool, by its place, as a Parquet file with the ids in the first column."""
    if pool.kernel is not None:
        raise ParameterError(
            f"a pool of objects cannot be stored, got {pool!r}; search it with an Optimizer"
        )
    check_threads()
    sizes = [len(frame) for frame in pool.parts.tables]
    start = sum(sizes[:index])
    frame = pool.parts.tables[index]
    ids = pool.ids[start : start + len(frame)]
    return written_table(frame, ids)


def written_table(frame: pl.DataFrame, ids: AnyArray) -> bytes:
    """A table as a Parquet file with the ids in the first column."""
    for column in frame:
        if isinstance(column.dtype, pl.Object):
            raise ArmsError(
                "column {column!r} holds objects, which cannot be stored",
                "make numbers or text of them",
                "take the column out of the table",
                column=column.name,
            )
    # Ids are not columns of a pool's tables; here they are the first, whatever its name.
    named = pl.Series(_free(frame), ids.tolist() if ids.dtype == object else ids)
    file = io.BytesIO()
    frame.select(named, pl.all()).write_parquet(file)
    return file.getvalue()


def tables_of(pool: Pool) -> list[bytes]:
    """All tables of a pool, each as a Parquet file."""
    return [bytes_of(pool, index) for index in range(len(pool.parts.tables))]


def stored_pool(description: dict[str, Any], tables: Sequence[bytes]) -> Pool:
    """The pool made from the answers of `described` and `tables_of`."""
    declared = read_types(description["declared"])
    levels = {name: tuple(values) for name, values in description["levels"].items()}
    origin = Origin(
        description["id"],
        description["numbered"],
        description["missing"],
        declared,
        levels,
        # Earlier versions wrote no more.
        description.get("decimal", "."),
        description.get("units", {}),
        description.get("target"),
        description.get("decided", {}),
    )
    frame, ids = read_table(tables[0])
    pool = Pool(first_parts(origin, frame, ids, _label(ids), description["next_row"]))
    for table in tables[1:]:
        pool = with_table(pool, table, description["next_row"])
    return pool


def with_table(pool: Pool, table: bytes, next_row: int) -> Pool:
    """The pool with one more table, in the format of `tables_of`."""
    frame, ids = read_table(table)
    return Pool(grown_parts(pool.parts, frame, ids, _label(ids), next_row))


def read_table(table: bytes) -> tuple[pl.DataFrame, AnyArray]:
    """A table in the format of `written_table`."""
    check_threads()
    try:
        frame = pl.read_parquet(io.BytesIO(table))
    except pl.exceptions.PolarsError as error:
        raise ArmsError(f"a stored table cannot be read: {error}") from error
    named = frame.to_series(0)
    if named.dtype == pl.Int64:
        return frame[:, 1:], named.to_numpy().copy()
    return frame[:, 1:], as_objects(named.to_list())


def _free(frame: pl.DataFrame) -> str:
    """A name that no column has."""
    name = "id"
    while name in frame.columns:
        name += "_"
    return name


def _label(ids: AnyArray, start: int = 0) -> Label:
    return lambda position: {"row": start + position, "id": plain(ids[position])}
