"""A study as files, and its health: export, import, doctor."""

import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from manyarms.cli.app import (
    DAMAGED,
    Decimal,
    Force,
    InputError,
    Separator,
    StudyAt,
    Yes,
    opened,
)
from manyarms.cli.knowledge import results_frame, results_of
from manyarms.cli.output import ALREADY_DONE, Answer, count, moment, new_file, table
from manyarms.cli.reading import results_in
from manyarms.cli.results import record
from manyarms.cli.tables import Marks, extent, marks, place, rows_of, save
from manyarms.cli.telling import compared
from manyarms.errors import StudyDamagedError
from manyarms.sheets.reading import WRITTEN
from manyarms.study import Study
from manyarms.study.copies import exported, imported
from manyarms.study.salvage import salvage as save_whole_events


def export(
    study: StudyAt,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="A .json or .csv file, or a directory for both.",
            show_default=False,
        ),
    ],
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
) -> Answer:
    """Write a study to files.

    .json: everything, the table of candidates included; manyarms import makes the same study of it.
    .csv or .xlsx: every result with the columns of its candidate. A directory: study.json,
    results.csv and candidates.csv.

    [bold]Example:[/bold]
      manyarms export lab.db -o backup.json
    """
    # A wrong mark is an error before the study is opened.
    written_as = marks(decimal, separator)
    suffix = output.suffix.lower()
    if suffix not in (".json", ".csv", WRITTEN, "") and not output.is_dir():
        raise InputError(
            f"export writes a .json, .csv or .xlsx file or a directory, got {output.name!r}"
        )
    with opened(study) as known:
        if suffix == ".json":
            files = [output]
            _write_study(known, output, force)
        elif suffix in (".csv", WRITTEN):
            files = [output]
            _write_results(known, output, written_as, force)
        else:
            files = [output / name for name in ("study.json", "results.csv", "candidates.csv")]
            # All three are looked for first: none is written where one may not be.
            there = [str(file) for file in files if file.exists()]
            if there and not force:
                raise InputError(
                    f"there is a file {there[0]} already; give another directory, or --force to "
                    "write over it"
                )
            if output.exists() and not output.is_dir():
                raise InputError(f"{output} is not a directory; give another name")
            output.mkdir(parents=True, exist_ok=True)
            _write_study(known, files[0], force)
            _write_results(known, files[1], written_as, force)
            candidates = rows_of(known.pool, known.pool.labels(known.pool.ids))
            save(candidates, files[2], force, written_as, known.pool)
    return Answer.of(
        {"written": [str(file) for file in files]},
        f"Wrote {', '.join(map(str, files))}.",
        kept=ALREADY_DONE,
    )


def _write_study(study: Study, path: Path, force: bool) -> None:
    with new_file(path, force) as draft:
        draft.write_text(exported(study), encoding="utf-8")


def _write_results(study: Study, path: Path, written_as: Marks, force: bool) -> None:
    rows, _ = results_of(study)
    pool = study.pool
    told = results_frame(rows, pool, written_as.decimal)
    # Remarks stand beside the results already.
    names = [name for name in pool.names if name not in told.columns]
    # Without results the frame would have no columns to select.
    candidates = (
        rows_of(pool, [row["id"] for row in rows]).select(names) if rows else pl.DataFrame()
    )
    whole = pl.concat([told, candidates], how="horizontal")
    save(whole, path, force, written_as, pool)


def import_(
    study: StudyAt,
    file: Annotated[
        Path,
        typer.Argument(
            help="A .json file that export wrote, or a CSV file of results.", show_default=False
        ),
    ],
    value: Annotated[
        str | None,
        typer.Option(
            help="Column of the values in a CSV file.", metavar="COLUMN", show_default="value"
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="Column of the values' standard deviations in a CSV file.",
            metavar="COLUMN",
            show_default="noise, where the file has it",
        ),
    ] = None,
    decimal: Decimal = None,
    yes: Yes = False,
) -> Answer:
    """Make a study of an export, or take the results of a CSV file into one.

    A .json file makes a new study. A CSV file is told to a study that is there, as by manyarms
    tell.

    [bold]Example:[/bold]
      manyarms import copy.db backup.json
    """
    # Called for its error: a wrong mark must not wait until a file is read.
    marks(decimal)
    if file.suffix.lower() != ".json":
        with opened(study) as known:
            read = results_in(file, known.pool, value, noise, decimal)
            return record(known, compared(known, read.rows), yes, n_empty=read.n_empty)
    if not file.is_file():
        raise InputError(f"there is no file {file}; check the path")
    with imported(study, file) as made:
        data = {"candidates": len(made.pool), "results": len(made.history), "events": made.n_events}
        what = extent(made.pool)
    return Answer.of(
        data,
        f"{place(study)}: {what}, {count(data['results'], 'result')}.",
        kept=ALREADY_DONE,
    )


def doctor(
    study: StudyAt,
    salvage: Annotated[
        str | None,
        typer.Option(
            help="Write what is whole to a new study here.", metavar="NEW", show_default=False
        ),
    ] = None,
) -> Answer:
    """Check a study, and say what can be saved.

    Reads every event and every table and compares them with their digests, and the books that a
    long study keeps with its log. Exit code 3 where something is damaged; --salvage then makes a
    new study of all events that are whole, also those behind the damage. The damaged file is only
    read.

    [bold]Example:[/bold]
      manyarms doctor lab.db --salvage saved.db
    """
    try:
        with opened(study) as known:
            known.verify()
            events = list(known.events())
    except StudyDamagedError as error:
        return _operate(study, error.problem, salvage)
    if salvage is not None:
        raise InputError(
            f"{place(study)} is whole, there is nothing to salvage; `manyarms export` makes a copy"
        )
    kinds = Counter(event.kind for event in events)
    results = sum(len(event.payload["ids"]) for event in events if event.kind == "tell")
    first = moment(events[0].time)
    last = moment(events[-1].time)
    data = {
        "whole": True,
        "events": len(events),
        "results": results,
        "first": first,
        "last": last,
        "kinds": dict(kinds),
    }
    text = (
        f"Whole: {count(len(events), 'event')}, {count(results, 'result')}, from {first} to {last}."
    )
    return Answer.of(data, text, table(["event", "times"], kinds.items()))


def _operate(study: str, problem: str, new: str | None) -> Answer:
    """Say what can be saved of a damaged study, and save it where a new one is asked for."""
    # Salvage reads a file of SQLite past the damage; a server gives no such file.
    if "://" in study:
        raise StudyDamagedError(problem, "restore it from the backups of the server")
    with tempfile.TemporaryDirectory() as folder:
        # Without a place for it the salvage is made all the same, and thrown away: it counts.
        try:
            saved = save_whole_events(study, new or Path(folder) / "tried.db")
        except StudyDamagedError as error:
            raise StudyDamagedError(
                f"{problem}; and {error.problem}", "go back to a copy"
            ) from error
    data = {"whole": False, "problem": problem, **asdict(saved), "salvaged": new and place(new)}
    what = (
        f"{count(saved.events, 'event')} with {count(saved.results, 'result')}, {saved.lost:,} lost"
    )
    text = (
        f"Saved to {place(new)}: {what}." if new else f"Can be saved, with --salvage NEW: {what}."
    )
    return Answer.of(
        data, f"Damaged: {problem}.\n{text}", kept=ALREADY_DONE if new else "", code=DAMAGED
    )
