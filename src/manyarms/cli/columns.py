"""What the columns of a table are, and how that is corrected: columns."""

import re
from typing import Annotated, Any

import typer

from manyarms.cli.app import AsJson, InputError, Note, StudyAt, Worker, opened
from manyarms.cli.boxes import refuse_box
from manyarms.cli.output import ALREADY_DONE, answer, count, shown, table
from manyarms.cli.tables import not_used
from manyarms.space.columns import TYPES
from manyarms.space.pool import Pool

ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        help=f"NAME=TYPE overrules the type found: {', '.join(TYPES)}; number:RT=25 where a "
        "word stands for a number; categorical:merge where levels that differ by case or "
        "blanks are one; or NAME=low,high, levels in order. Repeatable.",
        metavar="NAME=TYPE",
    ),
]

ROWS_WITH_EXAMPLES = 200
"""Rows in which examples are looked for."""


def columns(
    study: StudyAt,
    column: ColumnTypes = None,
    note: Note = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Show the columns of the candidates, or correct their types.

    With --column, columns are of other types than was decided when the study was made. The model
    learns all results anew.

    [bold]Examples:[/bold]
      manyarms columns lab.db
      manyarms columns lab.db --column temperature=number --column plate=ignore
    """
    types = as_types(column or [])
    with opened(study, worker) as known:
        refuse_box(known, "change columns of")
        if types:
            known.retype(types, note=note)
        pool = known.pool
    changed = [f"Changed {count(len(types), 'column')}; the model learns anew."] if types else []
    data = {"columns": pool.columns, "units": pool.units, "not_used": pool.unused}
    answer(
        data,
        as_json,
        *changed,
        columns_table(pool),
        *not_used(pool),
        kept=ALREADY_DONE if types else "",
    )


def columns_table(pool: Pool) -> str:
    """The columns that are used, their types, and what stands in them."""
    return table(["column", "type", "such as"], _examples(pool))


def _examples(pool: Pool) -> list[list[Any]]:
    """Of each column its type, and three different values among the first rows."""
    rows = pool.rows(pool.ids[:ROWS_WITH_EXAMPLES])
    units = pool.units
    found = []
    for name, kind in pool.columns.items():
        if name in pool.unused:
            continue
        different = dict.fromkeys(shown(row[name])[:20] for row in rows)
        unit = f", in {units[name]}" if name in units else ""
        found.append([name, f"{kind}{unit}", ", ".join(list(different)[:3])])
    return found


def as_types(columns: list[str]) -> dict[str, Any]:
    """NAME=TYPE, or NAME=levels with commas between."""
    types: dict[str, Any] = {}
    for text in columns:
        # A type with words behind it has = in it; of others the last = divides, as the name of a
        # column may have one itself.
        with_words = re.fullmatch(r"(.+?)=((?:number|continuous|log|integer):.*)", text, re.DOTALL)
        name, is_there, kind = (
            (with_words[1], "=", with_words[2]) if with_words else text.rpartition("=")
        )
        if not is_there or not name:
            raise InputError(f"--column takes NAME=TYPE, got {text!r}")
        types[name] = _levels(kind.split(",")) if "," in kind and not with_words else kind
    return types


def _levels(texts: list[str]) -> list[str] | list[float]:
    try:
        return [
            int(text) if text.strip().lstrip("-").isdecimal() else float(text) for text in texts
        ]
    except ValueError:
        return texts
