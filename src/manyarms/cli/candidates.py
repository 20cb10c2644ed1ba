"""Which candidates there are: init, add, retire."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms.cli.app import AsJson, Decimal, InputError, Note, StudyAt, Worker, me, opened
from manyarms.cli.boxes import as_box, column_extents, column_types, refuse_box
from manyarms.cli.columns import ColumnTypes, as_types, columns_table
from manyarms.cli.levels import as_levels
from manyarms.cli.output import ALREADY_DONE, answer, count, place, printable, table
from manyarms.cli.tables import as_ids, id_name, level_lines, not_used, value_name
from manyarms.sheets.reading import Sheet
from manyarms.space.box import Box
from manyarms.space.deciding import checked_types
from manyarms.space.outcomes import looks_like_outcome, outcome_rank
from manyarms.space.pool import Pool, new_levels, pool_of, sheet_of
from manyarms.study import Study

Ids = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of candidates.", show_default=False)
]


def init(
    study: StudyAt,
    more_levels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=…]...", help="More levels, behind --levels.", show_default=False
        ),
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option(
            help="Table of candidates, .csv, .xlsx or .parquet.", metavar="FILE", show_default=False
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
    levels: Annotated[
        list[str] | None,
        typer.Option(
            help="Without a table: all combinations of NAME=LEVEL,LEVEL,… or NAME=LOW:HIGH:STEP, "
            "or of a file with a column of levels for each factor. Repeatable; more may follow.",
            metavar="NAME=…|FILE",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help='Only combinations that meet this, such as "a + b + c == 1".',
            metavar="CONDITION",
            show_default=False,
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            help="None that meets this, such as \"base == 'CsOAc' and temperature > 100\".",
            metavar="CONDITION",
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
    target: Annotated[
        str | None,
        typer.Option(
            help="Column of what came out: filled cells are results, blank ones candidates.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    column: ColumnTypes = None,
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
    decimal: Decimal = None,
    as_json: AsJson = False,
) -> None:
    """Make a study of a table of candidates, or of a box.

    The table is kept in the study. Columns of numbers, categories and bits are features; their
    types are found and printed: look whether they are right. Columns that are NOT USED are named.
    CSV files may have commas, semicolons, tabs or bars between columns, and decimal commas. Numbers
    may have a unit, such as 80 °C.

    --levels lists all combinations of levels in place of a table. A box has ranges and choices in
    place of a list: every point in it may be suggested. Points have numbers, from 1 on.

    [bold]Examples:[/bold]
      manyarms init lab.db --pool recipes.csv --id name --target yield --maximize --column dose=log
      --column batch=ignore
      manyarms init base.db --levels base=K2CO3,CsOAc temperature=60:120:20 --exclude "base ==
      'CsOAc' and temperature > 100" --maximize
      manyarms init oven.db --box temperature=20:120 --box time=1:60:log --box trays=1:9:int --box
      fan=on,off --minimize
    """
    if minimize is None:
        raise InputError("say what to look for: --minimize or --maximize")
    _check_source(study, pool, box, levels, more_levels)
    of_tables = {"--id": id, "--target": target, "--missing": missing != "error" or None}
    if pool is None:
        _refuse("tables", of_tables | ({"--column": column} if box else {}))
    if not levels:
        _refuse("--levels", {"--where": where, "--exclude": exclude})
    candidates: Pool | Box
    types = as_types(column or [])
    if box:
        candidates = as_box(box)
    elif levels:
        listed = as_levels([*levels, *(more_levels or [])])
        candidates = Pool.from_levels(listed, where=where, exclude=exclude, columns=types)
    else:
        candidates = _table(pool or Path(), id, target, checked_types(types), missing, decimal)
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
    Study.create(study, candidates, worker=me(), **settings).close()
    data: dict[str, Any] = {"study": place(study), **settings}
    told: list[str] = []
    if isinstance(candidates, Box):
        more, what, columns = _told_of_box(candidates)
    else:
        more, what, columns = _told_of_table(candidates)
        told = [
            *_told_of_results(candidates),
            *candidates.notes,
            *_told_of_molecules(candidates),
            *not_used(candidates),
        ]
    # Advice is for people: it must not get into the output that a program reads.
    if sys.stdout.isatty():
        told.append(f"Next: manyarms suggest {place(study)} -n 8 -o next.csv")
    named = value_name(candidates) if isinstance(candidates, Pool) and candidates.target else ""
    looked_for = f"{direction} {named or 'the value'}"
    answer(
        data | more,
        as_json,
        f"{place(study)}: {what}; {looked_for}.",
        columns,
        *told,
        kept=ALREADY_DONE,
    )


def _check_source(
    study: str,
    pool: Path | None,
    box: list[str] | None,
    levels: list[str] | None,
    more_levels: list[str] | None,
) -> None:
    """InputError unless the candidates come from one place."""
    if (pool is not None) + bool(box) + bool(levels) != 1:
        raise InputError(
            "give --pool FILE, --levels NAME=LEVEL,… or --box NAME=LOW:HIGH, and one of them only"
        )
    if more_levels and not levels:
        raise InputError(f"unexpected {more_levels[0]!r}; see `manyarms init --help`")
    if levels and "=" in study and not study.startswith("postgresql"):
        raise InputError(f"give the path of the study first, then --levels; got {study[:80]!r}")


def _refuse(of: str, options: dict[str, Any]) -> None:
    """InputError where an option is given that the candidates have no use for."""
    given = [name for name, value in options.items() if value]
    if given:
        raise InputError(f"{given[0]} is for {of}; leave it out here")


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
        "units": pool.units,
        "target": pool.target,
        "results": len(pool.results),
        "not_used": pool.unused,
        "decimal": pool.decimal,
        "notes": list(pool.notes),
    }
    what = count(len(pool), "candidate")
    if n_arms < len(pool):
        what += f", {n_arms:,} of them with different features"
    return data, what, columns_table(pool)


def _told_of_molecules(pool: Pool) -> list[str]:
    """What init says of columns that are called SMILES and are names to the model."""
    return [
        f"Column {name!r} is names to the model; --column {shlex.quote(f'{name}=smiles')} compares "
        "molecules."
        for name, kind in pool.columns.items()
        if "smiles" in name.casefold() and kind in ("categorical", "text")
    ]


def _told_of_results(pool: Pool) -> list[str]:
    """What init says of the results in a table."""
    if pool.target is None:
        return []
    n_failed = sum(each.value is None for each in pool.results)
    failed = f", {n_failed:,} of them failed" if n_failed else ""
    return [f"{count(len(pool.results), 'result')} in column {pool.target!r}{failed}."]


def _table(
    path: Path,
    id: str | None,
    target: str | None,
    types: dict[str, Any],
    missing: str,
    decimal: str | None,
) -> Pool:
    """The candidates in a file."""
    sheet = sheet_of(path, id, types, decimal)
    target = _target(sheet, id, target, types)
    return pool_of(sheet, id, types, missing, target)


def _ignoring(names: list[str]) -> str:
    """Options that leave columns out."""
    return "".join(f" --column {shlex.quote(f'{name}=ignore')}" for name in names)


def _target(sheet: Sheet, id: str | None, target: str | None, types: dict[str, Any]) -> str | None:
    """The column of outcomes: the one given, or the one that looks so and that someone confirms."""
    decided = {id, target, *types}
    likely = [
        column.name
        for column in sheet.frame
        if column.name not in decided and looks_like_outcome(column, sheet.decimal)
    ]
    if not likely:
        return target
    # Yields before conversions: the first word of a list is what people mean as a rule.
    name = min(likely, key=outcome_rank)
    others = [each for each in likely if each != name]
    as_feature = shlex.quote(f"{name}=number")
    if target is not None:
        ignored = shlex.quote(f"{name}=ignore")
        raise InputError(
            f"column {name!r} looks like an outcome beside the target {target!r}: repeat the "
            f"command with --column {ignored}, or with --column {as_feature} where it is known "
            "before a trial"
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"column {name!r} looks like an outcome: repeat the command with --target "
            f"{shlex.quote(name)}{_ignoring(others)}, or with --column {as_feature} where it is "
            "known before a trial"
        )
    question = f"Is column {printable(name)!r} what came out of trials? [y/n] "
    print(question, end="", file=sys.stderr, flush=True)
    said = sys.stdin.readline().strip().lower()
    if said in ("y", "yes"):
        return _target(sheet, id, name, types)
    if said in ("n", "no"):
        return _target(sheet, id, None, types | {name: "number"})
    raise InputError("nothing was written, as the answer was neither yes nor no")


def add(
    study: StudyAt,
    file: Annotated[
        Path,
        typer.Argument(
            help="Table with the columns of the study's, .csv, .xlsx or .parquet.",
            show_default=False,
        ),
    ],
    decimal: Decimal = None,
    as_json: AsJson = False,
) -> None:
    """Add candidates.

    The file has the same columns as the table that the study was made of, in any order, and ids
    that are new. Where the study has a target and the file has it too, filled cells of it are
    results. Levels that are new are named.

    [bold]Example:[/bold]
      manyarms add lab.db more-recipes.csv
    """
    with opened(study) as known:
        refuse_box(known, "add to")
        before = known.pool
        n_results = known.n_results
        sheet = before.read(file, decimal=decimal)
        grown = before.add(sheet)  # for its notes: what others added meanwhile comes first
        known.add(sheet)
        total = len(known.pool)
        n_told = known.n_results - n_results
    added = len(grown) - len(before)
    new = new_levels(before, grown)
    said = f"Added {count(added, 'candidate')}; there are {total:,} now."
    results = [f"Told {count(n_told, 'result')} in column {before.target!r}."] if n_told else []
    answer(
        {"added": added, "candidates": total, "told": n_told, "new_levels": new},
        as_json,
        said,
        *results,
        *grown.notes,
        *level_lines(before, grown),
        kept=ALREADY_DONE,
    )


def retire(
    study: StudyAt,
    ids: Ids,
    note: Note = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Retire candidates.

    They are neither suggested nor recommended any more. What they taught stays. manyarms restore
    takes it back.

    [bold]Example:[/bold]
      manyarms retire lab.db toluene-80 toluene-90
    """
    with opened(study, worker) as known:
        refuse_box(known, "retire from")
        names = as_ids(known.pool, ids)
        known.retire(names, note=note)
    answer(
        {"retired": names},
        as_json,
        f"Retired {count(len(set(names)), 'candidate')}.",
        kept=ALREADY_DONE,
    )
