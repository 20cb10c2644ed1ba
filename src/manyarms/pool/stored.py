"""A pool as bytes: its tables in Parquet, and in JSON what else it was made of. Reading them makes
the same pool again."""

import io
from collections.abc import Sequence
from typing import Any

import polars as pl

from manyarms.errors import ArmsError, ParameterError
from manyarms.pool.forked import check_threads
from manyarms.pool.ids import as_objects
from manyarms.pool.parts import Origin, first_parts, grown_parts
from manyarms.pool.pool import Pool
from manyarms.pool.reading import Declared
from manyarms.typing import AnyArray

BY_VALUES = ("continuous", "log", "integer", "boolean", "categorical", "text", "bits")
"""Types that a column may have by its values; of others, more than the type is found again."""
PLAIN = (str, int, float, bool, type(None))


def described(pool: Pool) -> dict[str, Any]:
    """What a pool was made of beside its tables, for JSON."""
    origin = pool.parts.origin
    declared = {
        name: kind if isinstance(kind, str) else list(kind)
        for name, kind in origin.declared.items()
    }
    levels = {name: list(values) for name, values in origin.levels.items()}
    # A type is a string: its letters pass, too.
    for values in [*declared.values(), *levels.values()]:
        if not all(isinstance(value, PLAIN) for value in values):
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
        "decided": {
            column.name: column.type
            for column in pool.parts.columns
            if column.name not in declared and column.type in BY_VALUES
        },
    }


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
    # Ids are not columns of a pool's tables; here they are the first, whatever its name.
    named = pl.Series(_free(frame), ids.tolist() if ids.dtype == object else ids)
    file = io.BytesIO()
    frame.select(named, pl.all()).write_parquet(file)
    return file.getvalue()


def tables_of(pool: Pool) -> list[bytes]:
    """All of them."""
    return [bytes_of(pool, index) for index in range(len(pool.parts.tables))]


def stored_pool(description: dict[str, Any], tables: Sequence[bytes]) -> Pool:
    """The pool of `described` and `tables_of`."""
    declared: dict[str, Declared] = {
        name: kind if isinstance(kind, str) else tuple(kind)
        for name, kind in description["declared"].items()
    }
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
    frame, ids = _opened(tables[0])
    pool = Pool(first_parts(origin, frame, ids, _label(ids), description["next_row"]))
    for table in tables[1:]:
        pool = with_table(pool, table, description["next_row"])
    return pool


def with_table(pool: Pool, table: bytes, next_row: int) -> Pool:
    """The pool with one more of `tables_of`."""
    frame, ids = _opened(table)
    return Pool(grown_parts(pool.parts, frame, ids, _label(ids), next_row))


def _opened(table: bytes) -> tuple[pl.DataFrame, AnyArray]:
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


def _label(ids: AnyArray) -> Any:
    return lambda position: f"the row of {ids[position]!r}"
