"""Which candidates there are: init, columns, add, retire, restore."""

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms.cli.app import Decimal, Ids, InputError, Note, StudyAt, Worker, me, opened
from manyarms.cli.output import ALREADY_DONE, Answer, asked, count, shown, table
from manyarms.cli.tables import as_ids, id_name, level_lines, not_used, place
from manyarms.cli.typed import ColumnTypes, as_box, as_levels, as_types
from manyarms.sheets.reading import Sheet
from manyarms.space.box import Box, Choice, Range
from manyarms.space.deciding import checked_types
from manyarms.space.points import Points, Space
from manyarms.space.pool import Pool, new_levels, pool_of, sheet_of
from manyarms.space.spelling import looks_like_outcome, outcome_rank
from manyarms.study import Study

ROWS_WITH_EXAMPLES = 200
"""Rows in which examples are looked for."""


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
    goal: Annotated[
        str,
        typer.Option(
            help="Find the best one by the end, or earn good values on the way.",
            metavar="find|earn",
        ),
    ] = "find",
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
) -> Answer:
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
    if (pool is not None) + bool(box) + bool(levels) != 1:
        raise InputError(
            "give --pool FILE, --levels NAME=LEVEL,… or --box NAME=LOW:HIGH, and one of them only"
        )
    if more_levels and not levels:
        raise InputError(f"unexpected {more_levels[0]!r}; see `manyarms init --help`")
    if levels and "=" in study and not study.startswith("postgresql"):
        raise InputError(f"give the path of the study first, then --levels; got {study[:80]!r}")
    if pool is None:
        of_tables = {"--id": id, "--target": target, "--missing": missing != "error"}
        _refuse("tables", of_tables | ({"--column": column} if box else {}))
    if not levels:
        _refuse("--levels", {"--where": where, "--exclude": exclude})
    types = as_types(column or [])
    space: Space
    if box:
        space = Points.none(as_box(box))
    elif levels:
        factors = as_levels([*levels, *(more_levels or [])])
        space = Pool.from_levels(factors, where=where, exclude=exclude, columns=types)
    else:
        declared = checked_types(types)
        sheet = sheet_of(pool or Path(), id, declared, decimal)
        outcome = _target(sheet, id, target, declared)
        space = pool_of(sheet, id, declared, missing, outcome)
    direction: Any = "minimize" if minimize else "maximize"
    settings: dict[str, Any] = {
        "direction": direction,
        "goal": goal,
        "kernel": kernel,
        "noise": noise,
        "repeats": int(repeats) if re.fullmatch("[0-9]+", repeats) else repeats,
        "bounds": bounds,
        "seed": seed,
    }
    Study.create(study, space, worker=me(), **settings).close()
    more, what, remarks = _said_of(space)
    # Advice is for people: it must not get into the output that a program reads.
    if sys.stdout.isatty():
        remarks.append(f"Next: manyarms suggest {place(study)} -n 8 -o next.csv")
    return Answer.of(
        {"study": place(study), **settings, **more},
        f"{place(study)}: {what}; {direction} {space.target or 'the value'}.",
        columns_table(space),
        *remarks,
        kept=ALREADY_DONE,
    )


def _refuse(of: str, options: dict[str, Any]) -> None:
    """InputError where an option is given that the candidates have no use for."""
    given = [name for name, value in options.items() if value]
    if given:
        raise InputError(f"{given[0]} is for {of}; leave it out here")


def _said_of(space: Space) -> tuple[dict[str, Any], str, list[str]]:
    """What init says of the candidates: as JSON, in words, and remarks."""
    if space.box is not None:
        columns = {name: kind for name, kind, _ in _sides(space.box)}
        values = {name: extent for name, _, extent in _sides(space.box)}
        return (
            {"columns": columns, "values": values},
            f"a box of {count(len(columns), 'column')}",
            [],
        )
    n_arms = len(space.X)
    n_failed = sum(each.value is None for each in space.results)
    data = {
        "candidates": len(space),
        "distinct": n_arms,
        "id": id_name(space),
        "columns": space.columns,
        "units": space.units,
        "target": space.target,
        "results": len(space.results),
        "not_used": space.unused,
        "decimal": space.decimal,
        "notes": list(space.notes),
    }
    what = count(len(space), "candidate")
    if n_arms < len(space):
        what += f", {n_arms:,} of them with different features"
    failed = f", {n_failed:,} of them failed" if n_failed else ""
    told = f"{count(len(space.results), 'result')} in column {space.target!r}{failed}."
    molecules = [
        f"Column {name!r} is names to the model; --column {shlex.quote(f'{name}=smiles')} compares "
        "molecules."
        for name, kind in space.columns.items()
        if "smiles" in name.casefold() and kind in ("categorical", "text")
    ]
    return (
        data,
        what,
        [*([told] if space.target else []), *space.notes, *molecules, *not_used(space)],
    )


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
    ignored = [shlex.quote(f"{each}=ignore") for each in likely if each != name]
    as_feature = shlex.quote(f"{name}=number")
    if target is not None:
        raise InputError(
            f"column {name!r} looks like an outcome beside the target {target!r}: repeat the "
            f"command with --column {shlex.quote(f'{name}=ignore')}, or with --column "
            f"{as_feature} where it is known before a trial"
        )
    said = asked(f"Is column {name!r} what came out of trials? [y/n]")
    if said is None:
        raise InputError(
            f"column {name!r} looks like an outcome: repeat the command with --target "
            f"{' --column '.join([shlex.quote(name), *ignored])}, or with --column {as_feature} "
            "where it is known before a trial"
        )
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
) -> Answer:
    """Add candidates.

    The file has the same columns as the table that the study was made of, in any order, and ids
    that are new. Where the study has a target and the file has it too, filled cells of it are
    results. Levels that are new are named.

    [bold]Example:[/bold]
      manyarms add lab.db more-recipes.csv
    """
    with opened(study) as known:
        before = known.pool.table("add to")
        n_results = known.n_results
        sheet = before.read(file, decimal=decimal)
        grown = before.add(sheet)  # for its notes: what others added meanwhile comes first
        known.add(sheet)
        total = len(known.pool)
        n_told = known.n_results - n_results
    added = len(grown) - len(before)
    results = [f"Told {count(n_told, 'result')} in column {before.target!r}."] if n_told else []
    return Answer.of(
        {
            "added": added,
            "candidates": total,
            "told": n_told,
            "new_levels": new_levels(before, grown),
        },
        f"Added {count(added, 'candidate')}; there are {total:,} now.",
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
) -> Answer:
    """Retire candidates.

    They are neither suggested nor recommended any more. What they taught stays. manyarms restore
    takes it back.

    [bold]Example:[/bold]
      manyarms retire lab.db toluene-80 toluene-90
    """
    with opened(study, worker) as known:
        names = as_ids(known.pool.table("retire from"), ids)
        known.retire(names, note=note)
    said = f"Retired {count(len(set(names)), 'candidate')}."
    return Answer.of({"retired": names}, said, kept=ALREADY_DONE)


def restore(
    study: StudyAt,
    ids: Ids,
    note: Note = None,
    worker: Worker = None,
) -> Answer:
    """Make retired candidates available again.

    [bold]Example:[/bold]
      manyarms restore lab.db toluene-80
    """
    with opened(study, worker) as known:
        names = as_ids(known.pool.table("restore to"), ids)
        known.restore(names, note=note)
    said = f"Restored {count(len(set(names)), 'candidate')}."
    return Answer.of({"restored": names}, said, kept=ALREADY_DONE)


def columns(
    study: StudyAt,
    column: ColumnTypes = None,
    note: Note = None,
    worker: Worker = None,
) -> Answer:
    """Show the columns of the candidates, or correct their types.

    With --column, columns are of other types than was decided when the study was made. The model
    learns all results anew.

    [bold]Examples:[/bold]
      manyarms columns lab.db
      manyarms columns lab.db --column temperature=number --column plate=ignore
    """
    types = as_types(column or [])
    with opened(study, worker) as known:
        if types:
            known.retype(types, note=note)
        pool = known.pool
    changed = [f"Changed {count(len(types), 'column')}; the model learns anew."] if types else []
    return Answer.of(
        {"columns": pool.columns, "units": pool.units, "not_used": pool.unused},
        *changed,
        columns_table(pool),
        *not_used(pool),
        kept=ALREADY_DONE if types else "",
    )


def columns_table(pool: Space) -> str:
    """The columns that are used, their types, and what stands in them."""
    if pool.box is not None:
        return table(["column", "type", "values"], _sides(pool.box))
    rows = pool.rows(pool.ids[:ROWS_WITH_EXAMPLES])
    found = []
    for name, kind in pool.columns.items():
        if name not in pool.unused:
            different = list(dict.fromkeys(shown(row[name])[:20] for row in rows))
            unit = f", in {pool.units[name]}" if name in pool.units else ""
            found.append([name, f"{kind}{unit}", ", ".join(different[:3])])
    return table(["column", "type", "such as"], found)


def _sides(box: Box) -> list[tuple[str, str, str]]:
    """The columns of a box: name, type and values, in words."""
    found = []
    for side in box.columns:
        if isinstance(side, Range):
            kind = "integer" if side.whole else "continuous"
            values = f"{shown(side.low)} to {shown(side.high)}"
        else:
            kind = "choice" if isinstance(side, Choice) else "levels"
            values = ", ".join(map(str, side.levels))
        log = not isinstance(side, Choice) and side.log
        found.append((side.name, f"{kind}, log scale" if log else kind, values))
    return found
