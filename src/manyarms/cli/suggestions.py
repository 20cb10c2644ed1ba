"""What to try: suggest."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from manyarms.cli.app import (
    Decimal,
    Force,
    InputError,
    Separator,
    StudyAt,
    Worker,
    opened,
)
from manyarms.cli.output import ALREADY_DONE, Answer, count, new_file, note, table
from manyarms.cli.tables import (
    FORECAST_COLUMNS,
    free_names,
    marks,
    note_name,
    place,
    rows_of,
    value_name,
    write_table,
)
from manyarms.cli.typed import NUMBER
from manyarms.space.points import Space
from manyarms.study import Lease, Study

MOST_EACH = 2
"""How often one candidate is in a batch at most: people at a bench seldom want more at once."""
DIGITS = 6
"""Significant digits of predictions in files."""
SECONDS_IN_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds in a unit of time."""


def seconds(text: str | None, option: str) -> float | None:
    """A time such as 90, 90s, 15m, 8h or 2d."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip(), re.ASCII)
    time = float(found[1]) * SECONDS_IN_UNIT[found[2]] if found else 0.0
    # 0 stands for a text that is no time, and is no time itself.
    if not 0 < time < 1e10:
        raise InputError(f"{option} takes a time such as 90s, 15m, 8h or 2d, got {text!r}")
    return time


def suggest(
    study: StudyAt,
    n: Annotated[
        int, typer.Option("-n", "--number", min=1, max=100_000, help="How many candidates.")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="CSV file to write.", show_default=False)
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--pending",
            metavar="",
            help="List the pending candidates; suggest no new ones.",
        ),
    ] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help='Only candidates that meet a condition, such as "temperature > 60".',
            metavar="CONDITION",
            show_default=False,
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            help="Only candidates with this value of a column.",
            metavar="COLUMN=VALUE",
            show_default=False,
        ),
    ] = None,
    same: Annotated[
        list[str] | None,
        typer.Option(
            help="One value of this column for all of them, the one that is best for the batch.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    max_new: Annotated[
        list[str] | None,
        typer.Option(
            help="The most different values of a column in the batch.",
            metavar="COLUMN=K",
            show_default=False,
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            help="Give them back after this time, such as 8h or 3d, if not told.", metavar="TIME"
        ),
    ] = "30d",
    worker: Worker = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
) -> Answer:
    """Say which candidates to try next.

    Beside each stands what is predicted of its result, with an interval, and why it was chosen.
    They are pending, for all who use the study, until they are told, released, or their lease runs
    out. With -o they go to a CSV file with a column "value" to fill in: a number, or "failed".
    Then: manyarms tell STUDY FILE. The column "batch" says when they were suggested; leave it as it
    is. What is written into "note" is kept.

    [bold]Examples:[/bold]
      manyarms suggest lab.db -n 8 -o next.csv
      manyarms suggest lab.db -n 8 --fix temperature=80 --max-new ligand=3
      manyarms suggest lab.db -n 8 --same temperature --where "solvent != 'DMF'"
    """
    written_as = marks(decimal, separator, output)
    time = seconds(lease, "--lease")
    rules = {"where": where, "fix": fix, "same": same, "max_new": max_new}
    if again and any(rules.values()):
        raise InputError("--pending lists what was suggested; leave the rules for new ones out")
    with opened(study, worker) as known:
        pool = known.pool
        options = {} if again else as_options(pool, decimal or pool.decimal, **rules)

        def ask() -> tuple[Space, list[Lease]]:
            """What is chosen among, over a box with more points than before; and what is
            pending."""
            ids = []
            if not again:
                ids = known.ask(n, lease=time, most_each=MOST_EACH, **options)
                if len(ids) < n:
                    note(f"only {count(len(ids), 'candidate')} may be suggested now, not {n:,}")
            there = known.leases
            pool = known.pool  # afterwards: it has all points that are pending
            return pool, there if again else _leases_of(pool, there, ids)

        asked: list[Lease] = []
        if output is None:
            kept = (
                f"the candidates are pending: manyarms suggest {place(study)} --pending lists them"
            )
            pool, asked = ask()
            return _show(pool, asked, _expected(known, asked), "" if again else kept)
        try:
            # Made ready first: where the file cannot be made, no candidate becomes pending.
            with new_file(output, force) as draft:
                pool, asked = ask()
                if not asked:
                    raise InputError("nothing is pending; leave --pending out for new candidates")
                sheet = _sheet(pool, asked, _expected(known, asked))
                write_table(sheet, draft, output, written_as, pool)
        except BaseException:
            if asked and not again:
                known.release([each.id for each in asked])  # nobody would know of them
            raise
        ids = pool.labels([each.id for each in asked])
        said = f"{count(len(asked), 'candidate')} to try in {output}."
        return Answer.of({"ids": ids, "written": str(output)}, said, kept=ALREADY_DONE)


def _leases_of(pool: Space, there: list[Lease], ids: list[Any]) -> list[Lease]:
    """What is known of candidates that were just asked for: of each id the newest lease."""
    leases = defaultdict(list)
    for label, lease in zip(pool.labels([each.id for each in there]), there, strict=True):
        leases[label].append(lease)
    return [leases[label].pop() for label in reversed(pool.labels(ids))][::-1]


def _show(pool: Space, asked: list[Lease], expected: list[dict[str, Any]], kept: str) -> Answer:
    """Print candidates, what is expected of each, and why it was chosen."""
    ids = [each.id for each in asked]
    labels, cells = pool.labels(ids), pool.rows(ids)
    data = [
        {"id": label, "columns": row, **each}
        for label, row, each in zip(labels, cells, expected, strict=True)
    ]
    header = ["id", *pool.names, *free_names(FORECAST_COLUMNS, pool)]
    rows = [
        [label, *row.values(), *each.values()]
        for label, row, each in zip(labels, cells, expected, strict=True)
    ]
    return Answer.of(
        {"candidates": data},
        table(header, rows) if asked else "Nothing is pending.",
        kept=kept,
    )


def _sheet(pool: Space, asked: list[Lease], expected: list[dict[str, Any]]) -> pl.DataFrame:
    """A table to fill in: candidates with their columns, what is expected, and empty cells."""
    types = dict.fromkeys(FORECAST_COLUMNS, pl.Float64) | {"why": pl.String}
    forecast = pl.DataFrame(expected, schema=types)
    *names, batch_name = free_names([*FORECAST_COLUMNS, "batch"], pool)
    # The event that asked for a candidate tells its results from those of another suggestion.
    batch = pl.Series(batch_name, [lease.event for lease in asked])
    empty = [pl.lit(None, pl.String).alias(name(pool)) for name in (note_name, value_name)]
    rows = rows_of(pool, pool.labels([each.id for each in asked]))
    named = forecast.rename(dict(zip(FORECAST_COLUMNS, names, strict=True)))
    return rows.with_columns([*named, batch, *empty])


def _expected(study: Study, asked: list[Lease]) -> list[dict[str, Any]]:
    """What is expected of candidates that are pending, by the names of FORECAST_COLUMNS."""
    least, largest = study.settings["bounds"] or (None, None)
    low = -np.inf if least is None else least
    high = np.inf if largest is None else largest
    found = []
    for lease in asked:
        ends = [
            None if end is None else float(f"{min(max(end, low), high):.{DIGITS}g}")
            for end in lease.forecast or (None, None, None)
        ]
        found.append(dict(zip(FORECAST_COLUMNS, (*ends, lease.reason), strict=True)))
    return found


def as_options(
    pool: Space,
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


def _all_of(pool: Space, conditions: list[str]) -> Any:
    """Who meets all conditions; each is read for itself, so that an error names it."""
    if not conditions or pool.box is not None:
        return conditions[0] if conditions else None
    return np.logical_and.reduce([pool.where(condition) for condition in conditions])


def _equal(pool: Space, text: str, decimal: str) -> str:
    """The condition of COLUMN=VALUE."""
    name, value = _divided("--fix", text, "COLUMN=VALUE")
    _check_column("--fix", name, pool)
    plain = value.replace(",", ".") if "," in decimal else value
    is_number = re.fullmatch(NUMBER, plain)
    is_text = pool.box is None and pool.parts.tables[0][name].dtype == pl.String
    if (is_number and not is_text) or value.lower() in ("true", "false"):
        return f"`{name}` == {plain}"
    quote = '"' if "'" in value else "'"
    return f"`{name}` == {quote}{value}{quote}"


def _check_column(option: str, name: str, pool: Space) -> None:
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
