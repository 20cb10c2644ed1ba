"""What to try: suggest."""

import re
from pathlib import Path
from typing import Annotated

import typer

from manyarms.campaign.trials import CandidateId
from manyarms.cli.app import (
    AsJson,
    Decimal,
    Force,
    InputError,
    Separator,
    StudyAt,
    Worker,
    opened,
)
from manyarms.cli.output import ALREADY_DONE, answer, count, new_file, note, place, table
from manyarms.cli.sheets import FORECAST_COLUMNS, as_options, expected, leases_of, sheet
from manyarms.cli.tables import check_output, decimal_of, free, marks, write_table
from manyarms.study import Study

MOST_EACH = 2
"""How often one candidate is in a batch at most: people at a bench seldom want more at once."""
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
    as_json: AsJson = False,
) -> None:
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
    written_as = marks(decimal, separator)
    check_output(output)
    time = seconds(lease, "--lease")
    rules = {"where": where, "fix": fix, "same": same, "max_new": max_new}
    if again and any(rules.values()):
        raise InputError("--pending lists what was suggested; leave the rules for new ones out")
    with opened(study, worker) as known:
        options = {} if again else as_options(known.pool, decimal_of(known.pool, decimal), **rules)

        def ask() -> list[CandidateId]:
            if again:
                return known.pending
            ids: list[CandidateId] = known.ask(n, lease=time, most_each=MOST_EACH, **options)
            if len(ids) < n:
                note(f"only {count(len(ids), 'candidate')} may be suggested now, not {n:,}")
            return ids

        if output is None:
            ids = ask()
            kept = (
                f"the candidates are pending: manyarms suggest {place(study)} --pending lists them"
            )
            _show(known, ids, as_json, "" if again else kept)
            return
        # Made ready first: where the file cannot be written, no candidate becomes pending.
        with new_file(output, force) as draft:
            ids = ask()
            if not ids:
                raise InputError("nothing is pending; leave --pending out for new candidates")
            try:
                write_table(sheet(known, ids), draft, output, written_as, known.pool)
            except BaseException:
                if not again:
                    known.release(ids)  # nobody would know of them
                raise
        answer(
            {"ids": ids, "written": str(output)},
            as_json,
            f"{count(len(ids), 'candidate')} to try in {output}.",
            kept=ALREADY_DONE,
        )


def _show(study: Study, ids: list[CandidateId], as_json: bool, kept: str) -> None:
    pool = study.pool
    rows = pool.rows(ids)
    known = expected(study, leases_of(study, ids))
    data = [
        {"id": id, "columns": row, **each} for id, row, each in zip(ids, rows, known, strict=True)
    ]
    names = [*pool.names]
    listed = table(
        ["id", *names, *(free(name, pool) for name in FORECAST_COLUMNS)],
        (
            [id, *(row[name] for name in names), *each.values()]
            for id, row, each in zip(ids, rows, known, strict=True)
        ),
    )
    answer({"candidates": data}, as_json, listed if ids else "Nothing is pending.", kept=kept)
