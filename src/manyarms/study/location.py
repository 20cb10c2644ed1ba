"""Where a study is: the path of a file, or the URL of a PostgreSQL database; and how that is said
without its passwords."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyarms.errors import StudyError

if TYPE_CHECKING:
    import sqlalchemy as sa

SCHEMA = "manyarms"
"""Of PostgreSQL, unless the URL ends in #name."""
SCHEMES = ("postgresql", "postgres")
HOST = r"[A-Za-z0-9_.%-]*|[0-9A-Fa-f:.]+"
"""A name, or an address of IPv4 or IPv6."""
LONGEST_LOCATION = 4000
"""Characters of a location, at most."""
LOCATIONS = (
    "a study is a file, or a PostgreSQL database by URL (postgresql://user@host/database#name)"
)
ESCAPES = "in a password write / @ : # ? % as %2F %40 %3A %23 %3F %25"


@dataclass(frozen=True)
class Location:
    """A place for one study."""

    text: str  # as it was given
    url: "sa.URL | None" = None  # of a database; None: a file
    schema: str = SCHEMA

    @property
    def path(self) -> Path:
        """Of a file."""
        return Path(self.text).absolute()

    @property
    def name(self) -> str:
        """What the study is called: its file, or its schema."""
        return self.path.name if self.url is None else self.schema

    @property
    def shown(self) -> str:
        """For messages: without passwords, nor anything else that follows the database."""
        if self.url is None:
            return self.text
        public = self.url.set(drivername="postgresql", query={})
        named = "" if self.schema == SCHEMA else f"#{self.schema}"
        return public.render_as_string(hide_password=True) + named

    def without_secrets(self, text: str) -> str:
        """What a driver said, without what must not be shown."""
        if self.url is None:
            return text
        values = [self.url.password or "", *_flat(self.url.query.values())]
        # Longest first: a secret inside of another one would leave the rest of that to be read.
        for secret in sorted(map(str, values), key=len, reverse=True):
            text = text.replace(secret, "***") if secret else text
        return text


def as_location(location: Any) -> Location:
    """A location that a caller gave, checked. A URL is never repeated in a message: what cannot be
    understood may hold a password anywhere."""
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    is_url = isinstance(text, str) and ("://" in text or _scheme(text) in SCHEMES)
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_LOCATION or not is_plain(text):
        got = "another URL" if is_url else f"{text!a:.80}"
        raise StudyError(
            f"{LOCATIONS}, 1 to {LONGEST_LOCATION:,} Unicode characters without NUL; got {got}"
        )
    if not is_url:
        return Location(text)
    address, mark, name = text.rpartition("#")
    url = _url(address if mark else text)
    schema = name if mark and name else SCHEMA
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise StudyError(
            "the name of a study, after # in its URL, must be small letters, digits and _, at most "
            f"63 of them; {ESCAPES}"
        )
    return Location(text, url, schema)


def _url(text: str) -> "sa.URL":
    """The URL of a PostgreSQL database."""
    if _scheme(text) not in SCHEMES:
        raise StudyError(f"{LOCATIONS}; got a URL of another kind")
    import sqlalchemy as sa  # noqa: PLC0415  most studies are files, and need none of it

    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        url = None
    # A password that was not escaped continues in the host or in the database.
    if url is None or not re.fullmatch(HOST, url.host or "") or "@" in (url.database or ""):
        raise StudyError(f"{LOCATIONS}; got a URL that cannot be understood; {ESCAPES}")
    return url.set(drivername="postgresql+psycopg")


def _scheme(text: str) -> str:
    return text.partition(":")[0].partition("+")[0]


def is_plain(text: str) -> bool:
    """Whether it can be stored and printed: no NUL, no half of a surrogate pair."""
    return not re.search("[\0\ud800-\udfff]", text)


def _flat(values: Any) -> list[str]:
    """The values of a query, some of which are given twice."""
    return [item for value in values for item in ([value] if isinstance(value, str) else value)]
