"""Which candidates there are: init, add, retire."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms.cli.app import AsJson, Decimal, InputError, Note, StudyAt, Worker, opened
from manyarms.cli.boxes import as_box, column_extents, column_types, refuse_box
from manyarms.cli.output import answer, count, place, table
from manyarms.cli.tables import as_ids, id_name
from manyarms.domains.box import Box
from manyarms.pool.columns import TYPES
from manyarms.pool.pool import Pool
from manyarms.study import Study

Ids = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of candidates.", show_default=False)
]


def init(
    study: StudyAt,
    pool: Annotated[
        Path | None,
        typer.Option(
            help="Table of candidates, .csv or .parquet.", metavar="FILE", show_default=False
        ),
    ] = None,
    box: Annotated[
        list[str] | None,
        typer.Option(
            help="Without a table: NAME=LOW:HIGH, a range of numbers, with :log behind for a log "
            "scale and :int for whole numbers; or NAME=LEVEL,LEVEL,…, with :choice behind where "
            "numbers are names. Repeatable, one a column.",
            metavar="NAME=…",
            show_default=False,
        ),
    ] = None,
    minimize: Annotated[
        bool | None,
        typer.Option(
            "--minimize/--maximize",
            metavar="",
            help="Look for the smallest or the largest.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            help="Column of unique ids.", metavar="COLUMN", show_default="the row numbers from 0"
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help=f"NAME=TYPE overrules the type found: {', '.join(TYPES)}; or NAME=low,high, "
            "levels in order. Repeatable.",
            metavar="NAME=TYPE",
        ),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            help="What empty cells do: error, drop (leave the row out), category.", metavar="WHAT"
        ),
    ] = "error",
    noise: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the values of one candidate.",
            metavar="SD",
            show_default="learned",
        ),
    ] = None,
    kernel: Annotated[
        str, typer.Option(help="matern, rbf, tanimoto or linear.", metavar="NAME")
    ] = "matern",
    repeats: Annotated[
        str,
        typer.Option(
            help="Suggest a candidate again: allow, never, or at most K times in all.",
            metavar="allow|never|K",
        ),
    ] = "allow",
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Least and largest true value, such as 0 100: intervals stay inside.",
            metavar="LEAST LARGEST",
            show_default="none",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random start and the sketch.")] = 0,
    decimal: Decimal = ".",
    as_json: AsJson = False,
) -> None:
    """Make a study of a table of candidates, or of a box.

    The table is kept in the study. Columns of numbers, categories and bits are features; their
    types are found and printed: look whether they are right. CSV files may have commas, semicolons,
    tabs or bars between columns.

    A box has ranges and choices in place of a list: every point in it may be suggested. Points have
    numbers, from 1 on.

    [bold]Examples:[/bold]
      manyarms init lab.db --pool recipes.csv --id name --maximize --column dose=log --column
      batch=ignore
      manyarms init oven.db --box temperature=20:120 --box time=1:60:log --box trays=1:9:int --box
      fan=on,off --minimize
    """
    if minimize is None:
        raise InputError("say what to look for: --minimize or --maximize")
    if (pool is None) == (not box):
        raise InputError("give --pool FILE, or --box NAME=LOW:HIGH for each column, not both")
    if box and (id is not None or column or missing != "error"):
        raise InputError("--id, --column and --missing are for tables; leave them out with --box")
    candidates = as_box(box or []) if pool is None else _table(pool, id, column, missing, decimal)
    direction: Any = "minimize" if minimize else "maximize"
    asked = int(repeats) if repeats.isdecimal() and repeats.isascii() else repeats  # not "²"
    settings: dict[str, Any] = {
        "direction": direction,
        "kernel": kernel,
        "noise": noise,
        "repeats": asked,
        "bounds": bounds,
        "seed": seed,
    }
    Study.create(study, candidates, **settings).close()
    data: dict[str, Any] = {"study": place(study), **settings}
    if isinstance(candidates, Box):
        more, what, columns = _told_of_box(candidates)
    else:
        more, what, columns = _told_of_table(candidates)
    answer(data | more, as_json, f"{place(study)}: {what}; {direction} the value.", columns)
    # Advice is for people: it must not get into the output that a program reads.
    if not as_json and sys.stdout.isatty():
        print(f"Next: manyarms suggest {place(study)} -n 8 -o next.csv")


def _told_of_box(box: Box) -> tuple[dict[str, Any], str, Any]:
    """What init says of a box: as JSON, in words, and column by column."""
    types = column_types(box)
    values = column_extents(box)
    columns = [[name, kind, values[name]] for name, kind in types.items()]
    what = f"a box of {count(len(box.columns), 'column')}"
    return {"columns": types, "values": values}, what, table(["column", "type", "values"], columns)


def _told_of_table(pool: Pool) -> tuple[dict[str, Any], str, Any]:
    """What init says of a table: as JSON, in words, and column by column."""
    n_arms = len(pool.X)
    data = {
        "candidates": len(pool),
        "distinct": n_arms,
        "id": id_name(pool),
        "columns": pool.columns,
    }
    what = count(len(pool), "candidate")
    if n_arms < len(pool):
        what += f", {n_arms:,} of them with different features"
    return data, what, table(["column", "type", "such as"], _examples(pool))


def _table(
    path: Path, id: str | None, column: list[str] | None, missing: str, decimal: Any
) -> Pool:
    """The candidates in a file."""
    types = _types(column or [])
    if path.suffix == ".parquet":
        return Pool.from_parquet(path, id=id, columns=types, missing=missing)
    return Pool.from_csv(path, id=id, columns=types, missing=missing, decimal=decimal)


def _examples(pool: Pool) -> list[list[Any]]:
    rows = pool.rows(pool.ids[:3])
    return [
        [name, kind, ", ".join(str(row[name])[:20] for row in rows)]
        for name, kind in pool.columns.items()
    ]


def _types(columns: list[str]) -> dict[str, Any]:
    """NAME=TYPE, or NAME=levels with commas between."""
    types: dict[str, Any] = {}
    for text in columns:
        # The last = divides, as the name of a column may have one itself.
        name, is_there, kind = text.rpartition("=")
        if not is_there or not name:
            raise InputError(f"--column takes NAME=TYPE, got {text!r}")
        types[name] = _levels(kind.split(",")) if "," in kind else kind
    return types


def _levels(texts: list[str]) -> list[str] | list[float]:
    try:
        return [
            int(text) if text.strip().lstrip("-").isdecimal() else float(text) for text in texts
        ]
    except ValueError:
        return texts


def add(
    study: StudyAt,
    file: Annotated[
        Path,
        typer.Argument(
            help="Table with the columns of the study's, .csv or .parquet.", show_default=False
        ),
    ],
    decimal: Decimal = ".",
    as_json: AsJson = False,
) -> None:
    """Add candidates.

    The file has the same columns as the table that the study was made of, in any order, and ids
    that are new.

    [bold]Example:[/bold]
      manyarms add lab.db more-recipes.csv
    """
    with opened(study) as known:
        refuse_box(known, "add to")
        before = len(known.pool)
        known.add(known.pool.read(file, decimal=decimal))
        added = len(known.pool) - before
        total = len(known.pool)
    answer(
        {"added": added, "candidates": total},
        as_json,
        f"Added {count(added, 'candidate')}; there are {total:,} now.",
    )


def retire(
    study: StudyAt,
    ids: Ids,
    note: Note = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Candidates are no longer available.

    They are neither suggested nor recommended any more. What they taught stays. manyarms restore
    takes it back.

    [bold]Example:[/bold]
      manyarms retire lab.db toluene-80 toluene-90
    """
    with opened(study, worker) as known:
        refuse_box(known, "retire from")
        names = as_ids(known.pool, ids)
        known.retire(names, note=note)
    answer({"retired": names}, as_json, f"Retired {count(len(set(names)), 'candidate')}.")
