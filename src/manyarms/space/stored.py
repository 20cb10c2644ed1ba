"""A pool as bytes: its tables in Parquet, and in JSON what else it was made of. Reading them makes
the same pool again."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.runtime.foreign import NONSENSE, check_parquet
from manyarms.sheets.csvfiles import UNREADABLE
from manyarms.sheets.forked import check_threads
from manyarms.space.columns import Label
from manyarms.space.frames import Declared
from manyarms.space.ids import as_objects, plain
from manyarms.space.pool import Pool
from manyarms.space.spelling import converted
from manyarms.space.tables import Origin, first_parts, grown_parts, quoted
from manyarms.typing import AnyArray

BY_VALUES = ("continuous", "log", "integer", "boolean", "categorical", "text", "bits")
"""Types that a column may get from its values alone."""


DESCRIBED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "target"), (str, type(None))),
    **dict.fromkeys(("missing", "decimal"), (str,)),
    **dict.fromkeys(("declared", "levels", "units", "decided"), (dict,)),
    "numbered": (bool,),
    "next_row": (int,),
}
"""What says what a pool was made of, and its types."""


class Stored(NamedTuple):
    """A table and its ids."""

    frame: pl.DataFrame
    ids: AnyArray


def described(pool: Pool) -> dict[str, Any]:
    """What a pool was made of apart from its tables, as JSON."""
    origin = pool.parts.origin
    declared = written_types(origin.declared)
    levels = {name: list(values) for name, values in origin.levels.items()}
    # A type is a string: its letters pass, too.
    for values in [*declared.values(), *levels.values()]:
        if not all(isinstance(value, str | int | float | bool | None) for value in values):
            raise ParameterError(
                f"levels of a pool that is stored must be strings or numbers, got "
                f"{shortened(values)}"
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
    units = {name: unit for name, unit in origin.units.items() if name not in columns}
    tables: list[Stored] = []
    for table, ids in zip(parts.tables, parts.ids_of_tables, strict=True):
        some = table.select(name for name in columns if name in table.columns)
        found = converted(some, columns, units, origin.decimal, _label(ids))
        units |= found.units
        tables.append(Stored(table.with_columns(found.frame), ids))
    declared = {**origin.declared, **columns}
    origin = replace(origin, declared=declared, units=units, decided=decided)
    return _made(origin, tables, parts.next_row)


def _made(origin: Origin, tables: list[Stored], next_row: int) -> Pool:
    """The pool of tables, the first of which decides what columns are."""
    frame, ids = tables[0]
    parts = first_parts(origin, frame, ids, _label(ids), next_row)
    for frame, ids in tables[1:]:
        parts = grown_parts(parts, frame, ids, _label(ids), next_row)
    return Pool(parts)


def bytes_of(pool: Pool, index: int) -> bytes:
    """A table of a pool, by its place, as a Parquet file with the ids in the first column."""
    if pool.kernel is not None:
        raise ParameterError(
            f"a pool of objects cannot be stored, got "
            f"{shortened(pool)}; search it with an Optimizer"
        )
    return written_table(pool.parts.tables[index], pool.parts.ids_of_tables[index])


def written_table(frame: pl.DataFrame, ids: AnyArray) -> bytes:
    """A table as a Parquet file with the ids in the first column."""
    check_threads()
    objects = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Object)]
    if objects:
        raise ArmsError(
            "column {column!r} holds objects, which cannot be stored",
            "make numbers or text of them",
            "take the column out of the table",
            column=objects[0],
        )
    # Ids are not columns of a pool's tables; here they are the first, by a name that none has.
    name = "id"
    while name in frame.columns:
        name += "_"
    file = io.BytesIO()
    frame.select(pl.Series(name, ids.tolist()), pl.all()).write_parquet(file)
    return file.getvalue()


def tables_of(pool: Pool) -> list[bytes]:
    """All tables of a pool, each as a Parquet file."""
    return [bytes_of(pool, index) for index in range(len(pool.parts.tables))]


def stored_pool(description: dict[str, Any], tables: Sequence[bytes]) -> Pool:
    """The pool made from the answers of `described` and `tables_of`."""
    wrong = [name for name, kinds in DESCRIBED.items() if type(description[name]) not in kinds]
    if wrong or not all(isinstance(unit, str) for unit in description["units"].values()):
        raise ArmsError(f"a stored pool has a wrong {''.join(wrong[:1]) or 'unit'!r}")
    origin = Origin(
        description["id"],
        description["numbered"],
        description["missing"],
        read_types(description["declared"]),
        {name: tuple(values) for name, values in description["levels"].items()},
        description["decimal"],
        description["units"],
        description["target"],
        description["decided"],
    )
    return _made(origin, [read_table(table) for table in tables], description["next_row"])


def with_table(pool: Pool, table: bytes, next_row: int) -> Pool:
    """The pool with one more table, in the format of `tables_of`."""
    frame, ids = read_table(table)
    return Pool(grown_parts(pool.parts, frame, ids, _label(ids), next_row))


def read_table(table: bytes) -> Stored:
    """A table in the format of `written_table`."""
    check_threads()
    try:
        check_parquet(table)
        frame = pl.read_parquet(io.BytesIO(table))
    except (*UNREADABLE, *NONSENSE) as error:
        said = f"{type(error).__name__}: {error!s:.200}"
        raise ArmsError(f"a stored table cannot be read ({said})") from error
    named = frame.to_series(0)
    is_number = named.dtype == pl.Int64
    return Stored(frame[:, 1:], named.to_numpy().copy() if is_number else as_objects(named))


def _label(ids: AnyArray) -> Label:
    return lambda position: {"row": position, "id": plain(ids[position])}
