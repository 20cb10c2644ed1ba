"""The stores of studies, by their locations."""

from pathlib import Path

from manyarms.errors import StudyError
from manyarms.study.location import as_location
from manyarms.study.sqlite import SQLiteStore
from manyarms.study.store import Store


def store_at(location: str | Path) -> Store:
    """The store at the path of a file, or at the URL of a PostgreSQL database."""
    place = as_location(location)
    if place.server is None:
        return SQLiteStore(place)
    try:
        from manyarms.study.postgres import PostgresStore  # noqa: PLC0415  psycopg is an extra
    except ModuleNotFoundError as error:
        raise StudyError(
            "a study in PostgreSQL needs psycopg: pip install 'manyarms[postgres]'"
        ) from error
    return PostgresStore(place)
