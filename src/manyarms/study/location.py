"""Where a study is: the path of a file, or the URL of a PostgreSQL database; and how that is said
without its passwords."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from manyarms.errors import StudyError, shortened

SCHEMA = "manyarms"
"""Of PostgreSQL, unless the URL ends in #name."""
SCHEMES = ("postgresql", "postgres")
URL = re.compile(
    r"""[^:]+://
    (?: (?P<user> [^:/@]* ) (?P<secret> : (?P<password> [^@]* ) )? @ )?
    (?P<place>
        (?: \[ (?P<address> [0-9A-Fa-f:.]+ ) \] | (?P<host> [A-Za-z0-9_.%-]* ) )
        (?: : (?P<port> [0-9]* ) )?
        (?: / (?P<dbname> [^?@]* ) )?
    )
    (?: \? (?P<query> .* ) )?""",
    re.VERBOSE | re.DOTALL,
)
"""The host is a name, or an address of IPv4 or IPv6. A password that was not escaped would continue
in the host or in the database."""
MISTYPED = re.compile(
    r"(?!\.{0,2}/(?!/)|[A-Z]:\\)(?:.*:.*@|.*password\s*=|postgres\w*\W*//)", re.I | re.S
)
"""What is no path, though it has no scheme either: a password may be in it."""
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
    shown: str  # for messages: without passwords, nor anything else that follows the database
    server: Mapping[str, str] | None = None  # how PostgreSQL is reached; None: a file
    schema: str = SCHEMA
    secrets: frozenset[str] = frozenset()  # the password, and all that follows a ?
    path: Path = Path()  # of a file, whatever directory the process goes to later

    @property
    def name(self) -> str:
        """What the study is called: its file, or its schema."""
        return self.path.name if self.server is None else self.schema

    def without_secrets(self, text: str) -> str:
        """What a driver said, without what must not be shown."""
        # Longest first: a secret inside of another one would leave the rest of that to be read.
        for secret in sorted(self.secrets - {""}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def as_location(location: Any) -> Location:
    """A location that a caller gave, checked. A URL is never repeated in a message: what cannot be
    understood may hold a password anywhere."""
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    is_url = isinstance(text, str) and (
        "://" in text or _scheme(text) in SCHEMES or MISTYPED.match(text) is not None
    )
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_LOCATION or not is_plain(text):
        got = "another URL" if is_url else shortened(text)
        raise StudyError(
            f"{LOCATIONS}, 1 to {LONGEST_LOCATION:,} Unicode characters without NUL; got {got}"
        )
    if not is_url:
        return Location(text, text, path=Path(text).absolute())
    address, mark, name = text.rpartition("#")
    schema = name if mark and name else SCHEMA
    found = _understood(address if mark else text)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise StudyError(
            "the name of a study, after # in its URL, must be small letters, digits and _, at most "
            f"63 of them; {ESCAPES}"
        )
    named = "" if schema == SCHEMA else f"#{schema}"
    password = "" if found["password"] is None else ":***"
    user = "" if found["user"] is None else f"{found['user']}{password}@"
    shown = f"postgresql://{user}{found['place']}{named}"
    given = found.groupdict("")
    server = {name: unquote(given[name]) for name in ("user", "password", "port", "dbname")}
    server["host"] = given["address"] or unquote(given["host"])
    query = dict(parse_qsl(given["query"], keep_blank_values=True))
    secrets = frozenset([server["password"], *query.values()])
    filled = {name: value for name, value in server.items() if value}
    return Location(text, shown, {**filled, **query}, schema, secrets)


def _understood(url: str) -> re.Match[str]:
    """The parts of the URL of a PostgreSQL database."""
    if _scheme(url) not in SCHEMES:
        raise StudyError(
            f"{LOCATIONS}; got a URL of another kind, or a file whose name looks like one: write "
            "./ before that"
        )
    found = URL.fullmatch(url)
    if found is None:
        raise StudyError(f"{LOCATIONS}; got a URL that cannot be understood; {ESCAPES}")
    return found


def _scheme(text: str) -> str:
    return text.partition(":")[0].partition("+")[0]


def is_plain(text: str) -> bool:
    """Whether it can be stored and printed: no NUL, no half of a surrogate pair."""
    return not re.search("[\0\ud800-\udfff]", text)
