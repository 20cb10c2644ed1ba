"""What to try and what came out: suggest, tell, failed, release."""

import hashlib
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from manyarms.campaign.trials import FAILED, CandidateId
from manyarms.cli.app import AsJson, Decimal, Force, InputError, Separator, StudyAt, Worker, opened
from manyarms.cli.candidates import Ids
from manyarms.cli.output import answer, count, new_file, note, table, told
from manyarms.cli.tables import (
    Row,
    Told,
    as_ids,
    as_noise,
    as_value,
    batch_name,
    marks,
    results_in,
    results_told,
    rows_of,
    value_name,
    write_csv,
)
from manyarms.study import Study

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds in a unit of time."""


def seconds(text: str | None, option: str) -> float | None:
    """A time such as 90, 90s, 15m, 8h or 2d."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip(), re.ASCII)
    time = float(found[1]) * UNITS[found[2]] if found else 0.0
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
            "--pending", metavar="", help="Nothing new: those that are pending once more."
        ),
    ] = False,
    lease: Annotated[
        str,
        typer.Option(
            help="Give them back after this time, such as 8h or 3d, if not told.", metavar="TIME"
        ),
    ] = "30d",
    worker: Worker = None,
    separator: Separator = None,
    decimal: Decimal = ".",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Say which candidates to try next.

    They are pending, for all who use the study, until they are told, released, or their lease runs
    out. With -o they go to a CSV file with a column "value" to fill in: a number, or "failed".
    Then: manyarms tell STUDY FILE. The column "batch" says when they were suggested; leave it as it
    is.

    [bold]Example:[/bold]
      manyarms suggest lab.db -n 8 -o next.csv
    """
    written_as = marks(decimal, separator)
    time = seconds(lease, "--lease")
    with opened(study, worker) as known:
        if output is None:
            ids = known.pending if again else known.ask(n, lease=time)
            _show(known, ids, as_json)
            return
        # Made ready first: where the file cannot be written, no candidate becomes pending.
        with new_file(output, force) as draft:
            ids = known.pending if again else known.ask(n, lease=time)
            if not ids:
                raise InputError("nothing is pending; leave --pending out for new candidates")
            try:
                # The number of the last event: results of this batch come after it (see _unknown).
                marked = [
                    pl.lit(known.n_events).alias(batch_name(known.pool)),
                    pl.lit(None, pl.String).alias(value_name(known.pool)),
                ]
                write_csv(rows_of(known.pool, ids).with_columns(marked), draft, written_as)
            except BaseException:
                if not again:
                    known.release(ids)  # nobody would know of them
                raise
        answer(
            {"ids": ids, "written": str(output)},
            as_json,
            f"{count(len(ids), 'candidate')} to try in {output}.",
        )


def _show(study: Study, ids: list[CandidateId], as_json: bool) -> None:
    rows = study.pool.rows(ids)
    data = [{"id": id, "columns": row} for id, row in zip(ids, rows, strict=True)]
    names = [*study.pool.names][:12]
    listed = table(
        ["id", *names],
        ([id, *(row[name] for name in names)] for id, row in zip(ids, rows, strict=True)),
    )
    answer({"candidates": data}, as_json, listed if ids else "Nothing is pending.")


def tell(
    study: StudyAt,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...|ID VALUE",
            help="CSV files, or an id and its value.",
            show_default=False,
        ),
    ],
    value: Annotated[
        str | None,
        typer.Option(
            help="Column of the values in the files.", metavar="COLUMN", show_default="value"
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="Column of the values' standard deviations in the files; of one value, the "
            "standard deviation itself.",
            metavar="COLUMN|SD",
            show_default="noise, where the file has it",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            metavar="",
            help="Rows that were told before are replicates: count them again.",
        ),
    ] = False,
    decimal: Decimal = ".",
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Tell what came out.

    A file needs the columns of ids and of values; others are passed over. A row whose value is
    empty is not done yet and is skipped; "failed" in place of a value says that the trial failed.
    All rows are told, or none if one is wrong.

    Where the standard deviation of a value is known, such as the standard error of a mean, it
    stands in a column "noise": the value then weighs by it. Empty, it is that of all others.

    A file may be told again when more of it is filled in: a row that the study has (same candidate
    and value, told after it was suggested) is not counted twice, unless --again says that it is
    another trial.

    [bold]Examples:[/bold]
      manyarms tell lab.db next.csv
      manyarms tell lab.db ethanol-80 71.5
      manyarms tell lab.db means.csv --value mean --noise standard_error
    """
    # Ids and values may begin with "-", so Typer lets options that it does not know pass.
    strange = [text for text in what if text.startswith("--")]
    if strange:
        raise InputError(f"no such option: {strange[0]}; see `manyarms tell --help`")
    marks(decimal)
    with opened(study, worker) as known:
        if _are_files(what):
            tell_files(
                known,
                [results_in(Path(path), known.pool, value, noise, decimal) for path in what],
                again,
                as_json,
            )
            return
        if value is not None:
            raise InputError(
                "--value names a column of files; of one candidate give the id and its value alone"
            )
        (id,) = as_ids(known.pool, what[:1])
        known.tell(
            [id], [as_value(what[1], decimal, f"{id!r}")], noise=as_noise(noise, decimal, f"{id!r}")
        )
        total = known.n_results
        answer({"told": 1, "results": total}, as_json, told(1, 0, total))


def _are_files(what: list[str]) -> bool:
    """Files, as against an id and its value."""
    files = [text for text in what if Path(text).is_file()]
    if len(files) == len(what):
        return True
    # Of two words the second is a value, unless it looks like a path that was mistyped.
    if len(what) == 2 and not files and not what[1].lower().endswith(".csv"):
        return False
    missing = next(text for text in what if text not in files)
    raise InputError(f"tell takes CSV files, or one id and its value; there is no file {missing!r}")


def tell_files(study: Study, files: list[Told], again: bool, as_json: bool) -> None:
    """Tell the results of files, at once; those that the study has only where `again` says so."""
    rows = [row for file in files for row in file.rows]
    n_empty = sum(file.n_empty for file in files)
    new = rows if again else _unknown(study, rows)
    if new:
        # With --again the same rows are meant to count once more: no token may prevent it.
        token = None if again else _token(rows, new)
        # Nothing at all where no row has one: an event without noise stays as it always was.
        noise = [row.noise for row in new] if any(row.noise is not None for row in new) else None
        # In one call: all rows are told, or none.
        study.tell([row.id for row in new], [row.value for row in new], noise=noise, token=token)
    n_failed = sum(row.value is FAILED for row in new)
    total = study.n_results
    data = {
        "told": len(new),
        "failed": n_failed,
        "known": len(rows) - len(new),
        "empty": n_empty,
        "results": total,
    }
    if len(new) < len(rows):
        note(
            f"skipped {count(len(rows) - len(new), 'row')} that the study has; --again would "
            "count them as replicates"
        )
    if n_empty:
        note(f"skipped {count(n_empty, 'row')} without a value: not done yet")
    answer(data, as_json, told(len(new), n_failed, total))


def _unknown(study: Study, rows: list[Row]) -> list[Row]:
    """Rows that are no result of the study: none of this candidate and value came after the row was
    suggested."""
    # By candidate and value, the events that brought it; a row takes the first after its batch, and
    # no other row takes that again.
    numbers_of = defaultdict(list)
    for event, id, value, _ in results_told(study):
        numbers_of[id, FAILED if value is None else value].append(event.number)
    new = []
    for row in rows:
        numbers = numbers_of[row.id, row.value]
        match = next((number for number in numbers if number > row.batch), None)
        if match is None:
            new.append(row)
        else:
            numbers.remove(match)
    return new


def _token(rows: list[Row], new: list[Row]) -> str:
    """The same for the same new rows of the same file: two who tell it at once tell it once."""
    # How often a row stands in the file counts: two equal rows are two results.
    counts = Counter(row[:3] for row in rows)
    text = "\n".join(f"{row.id!r} {row.value!r} {row.batch} {counts[row[:3]]}" for row in new)
    return f"file {hashlib.sha256(text.encode()).hexdigest()}"


def failed(study: StudyAt, ids: Ids, worker: Worker = None, as_json: AsJson = False) -> None:
    """Tell that trials failed and gave no value.

    A candidate that failed is not suggested again and teaches the model nothing.

    [bold]Example:[/bold]
      manyarms failed lab.db ethanol-120
    """
    with opened(study, worker) as known:
        names = as_ids(known.pool, ids)
        known.tell(names, failed=True)
    answer({"failed": names}, as_json, f"{count(len(names), 'trial')} failed.")


def release(
    study: StudyAt,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Ids of candidates.", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", metavar="", help="All that is pending, whoever asked for it.")
    ] = False,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Give back candidates that are pending and will not be tried now.

    [bold]Examples:[/bold]
      manyarms release lab.db ethanol-80
      manyarms release lab.db --all
    """
    if everything == bool(ids):
        raise InputError("release takes ids, or --all")
    with opened(study, worker) as known:
        names = known.pending if everything else as_ids(known.pool, ids or [])
        if names:
            known.release(names)
    answer({"released": names}, as_json, f"Released {count(len(names), 'candidate')}.")
