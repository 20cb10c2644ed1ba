"""What suggest shows and writes: candidates, what is expected of each and why; and its rules."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from manyarms.campaign.trials import CandidateId
from manyarms.cli.app import InputError
from manyarms.cli.tables import Listed, batch_name, free, note_name, rows_of, value_name
from manyarms.space.pool import Pool
from manyarms.study import Lease, Study

FORECAST_COLUMNS = ["predicted", "low", "high", "why"]
"""What stands beside a suggestion: the result that is predicted, the interval that holds it with
probability 95 %, and a reason."""
DIGITS = 6
"""Significant digits of predictions in files."""


def leases_of(study: Study, ids: Sequence[CandidateId]) -> list[Lease]:
    """What is known of candidates that are pending, of each the newest one first."""
    leases: dict[Any, list[Lease]] = defaultdict(list)
    for lease in study.leases:
        leases[lease.id].append(lease)
    return [leases[id].pop() for id in reversed(ids)][::-1]


def expected(study: Study, leases: Sequence[Lease]) -> list[dict[str, Any]]:
    """What is expected of candidates that are pending, by the names of EXPECTED."""
    least, largest = study.settings["bounds"] or (None, None)
    low = -np.inf if least is None else least
    high = np.inf if largest is None else largest
    found = []
    for lease in leases:
        ends = lease.forecast or (None, None, None)
        shown = [None if end is None else _short(min(max(end, low), high)) for end in ends]
        found.append(dict(zip(FORECAST_COLUMNS, (*shown, lease.reason), strict=True)))
    return found


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def sheet(study: Study, ids: list[CandidateId]) -> pl.DataFrame:
    """A table to fill in: candidates with their columns, what is expected, and empty cells."""
    pool: Listed = study.pool
    leases = leases_of(study, ids)
    known = expected(study, leases)
    types = {name: pl.String if name == "why" else pl.Float64 for name in FORECAST_COLUMNS}
    columns = [
        pl.Series(free(name, pool), [each[name] for each in known], dtype=types[name])
        for name in FORECAST_COLUMNS
    ]
    # The event that asked for a candidate tells its results from those of another suggestion.
    batch = pl.Series(batch_name(pool), [lease.event for lease in leases])
    empty = [pl.lit(None, pl.String).alias(name(pool)) for name in (note_name, value_name)]
    return rows_of(pool, ids).with_columns([*columns, batch, *empty])


def as_options(
    pool: Listed,
    decimal: str,
    where: list[str] | None,
    fix: list[str] | None,
    same: list[str] | None,
    max_new: list[str] | None,
) -> dict[str, Any]:
    """The rules of a batch as `ask` takes them."""
    limits = dict(_limit(text) for text in max_new or [])
    for option, names in (("--same", same or []), ("--max-new", limits)):
        for name in names:
            _check_column(option, name, pool)
    conditions = [*(where or []), *(_equal(pool, text, decimal) for text in fix or [])]
    return {
        "where": _all_of(pool, conditions),
        "same": same or None,
        "max_new": limits or None,
    }


def _all_of(pool: Listed, conditions: list[str]) -> Any:
    """Who meets all conditions; each is read for itself, so that an error names it."""
    if not conditions or not isinstance(pool, Pool):
        return conditions[0] if conditions else None
    return np.logical_and.reduce([pool.where(condition) for condition in conditions])


def _equal(pool: Listed, text: str, decimal: str) -> str:
    """The condition of COLUMN=VALUE."""
    name, value = _divided("--fix", text, "COLUMN=VALUE")
    _check_column("--fix", name, pool)
    plain = value.replace(",", ".") if "," in decimal else value
    is_number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", plain)
    is_text = isinstance(pool, Pool) and pool.parts.tables[0][name].dtype == pl.String
    if (is_number and not is_text) or value.lower() in ("true", "false"):
        return f"`{name}` == {plain}"
    quote = '"' if "'" in value else "'"
    return f"`{name}` == {quote}{value}{quote}"


def _check_column(option: str, name: str, pool: Listed) -> None:
    if name not in pool.names:
        raise InputError(
            f"{option}: there is no column {name!r}; those are "
            f"{', '.join(map(repr, pool.names))[:300]}"
        )


def _limit(text: str) -> tuple[str, int]:
    """The column and the number of COLUMN=K."""
    name, number = _divided("--max-new", text, "COLUMN=K")
    if not re.fullmatch(r"\d{1,6}", number) or int(number) < 1:
        raise InputError(f"--max-new takes COLUMN=K with a whole number from 1, got {text[:80]!r}")
    return name, int(number)


def _divided(option: str, text: str, expected: str) -> tuple[str, str]:
    # The last = divides, as the name of a column may have one itself.
    name, is_there, value = text.rpartition("=")
    if not is_there or not name.strip() or not value.strip():
        raise InputError(f"{option} takes {expected}, got {text[:80]!r}")
    return name.strip(), value.strip()
