"""Predictions: predict."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from manyarms.cli.app import AsJson, Decimal, Force, InputError, Separator, StudyAt, opened
from manyarms.cli.boxes import NewPoint, NumberedPoints
from manyarms.cli.knowledge import Level, Output
from manyarms.cli.output import ALREADY_DONE, answer, count, new_file, note, table
from manyarms.cli.tables import (
    CELLS,
    as_ids,
    beside,
    check_output,
    free,
    id_name,
    level_lines,
    lines_in,
    marks,
    names_points,
    own_id,
    write_table,
)
from manyarms.sheets.reading import Sheet, read_sheet
from manyarms.space.pool import Pool
from manyarms.study import Study

ESTIMATE = ("estimate", "sd", "low", "high")
"""What is predicted of a candidate: mean, standard deviation, and the ends of the interval."""
FILES = (".csv", ".parquet", ".xlsx")
"""Endings of words that are files, whether they are there or not."""


def predict(
    study: StudyAt,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|ID...",
            help="A table of candidates, .csv, .xlsx or .parquet; or ids of candidates.",
            show_default=False,
        ),
    ],
    level: Level = 0.95,
    output: Output = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Estimate the values of candidates, by their ids or in a table.

    Rows of a table whose id the study knows are looked up by it. Others are taken by their
    features, and need the columns of the study's table; nothing is added to the study.

    [bold]Examples:[/bold]
      manyarms predict lab.db ethanol-80
      manyarms predict lab.db other.csv -o estimates.csv
    """
    written_as = marks(decimal, separator)
    check_output(output)
    with opened(study) as known:
        file = _file(what)
        rows = (
            _predicted_ids(known, what, level)
            if file is None
            else _predicted(known, file, level, decimal)
        )
        pool = known.pool
        names = {"id": id_name(pool)} if isinstance(pool, Pool) else {}
    if output is None:
        answer(
            {"predictions": rows, "level": level},
            as_json,
            table(rows[0].keys() if rows else [], (row.values() for row in rows)),
        )
        return
    with new_file(output, force) as draft:
        frame = pl.DataFrame(rows, infer_schema_length=None).rename(names)
        write_table(frame, draft, output, written_as, pool)
    answer(
        {"predictions": len(rows), "written": str(output)},
        as_json,
        f"{count(len(rows), 'estimate')} in {output}.",
        kept=ALREADY_DONE,
    )


def _file(what: list[str]) -> Path | None:
    """The table that is asked about; None where the words are ids."""
    looks = [Path(text).is_file() or text.lower().endswith(FILES) for text in what]
    if not any(looks):
        return None
    if len(what) > 1:
        raise InputError("predict takes one file, or ids; give the rest in another command")
    if not Path(what[0]).is_file():
        raise InputError(f"there is no file {what[0]!r}; check the name")
    return Path(what[0])


def _predicted_ids(study: Study, texts: list[str], level: float) -> list[dict[str, Any]]:
    """A row for each candidate, with its columns."""
    ids = as_ids(study.pool, texts)
    names, columns = beside(study.pool, ids)
    header = [free(each, study.pool) for each in ESTIMATE]
    _, *estimates = study.predict(ids, level)
    return [
        {"id": id, **dict(zip([*header, *names], [*map(float, numbers), *cells], strict=True))}
        for id, cells, *numbers in zip(ids, columns, *estimates, strict=True)
    ]


def _predicted(study: Study, file: Path, level: float, decimal: str | None) -> list[dict[str, Any]]:
    """A row for each of the file, in its order."""
    pool = study.pool
    if isinstance(pool, NumberedPoints):
        return _predicted_points(study, pool, file, level, decimal)
    sheet = pool.read(file, decimal=decimal)
    frame = sheet.frame
    name = id_name(pool)
    given: list[Any] = frame[name].to_list() if name in frame.columns else [None] * len(frame)
    if pool.parts.ids.are_strings:
        given = [None if id is None else pool.parts.ids.meant(id) or id for id in given]
    known = set(pool.ids.tolist())
    is_known = [id in known for id in given]
    new = sheet.some(~np.array(is_known, dtype=bool))
    # Two predictions, of rows the study knows and of others, taken in turn as the file has them.
    found: dict[bool, Iterator[Any]] = {}
    if len(new.frame):
        new = _with_features(pool, new, file)
        found[False] = zip(*study.predict_rows(new, level=level), strict=True)
    if any(is_known):
        found[True] = zip(*study.predict([id for id in given if id in known], level), strict=True)
    rows = []
    for number, (id, here) in enumerate(zip(given, is_known, strict=True)):
        _, *numbers = next(found[here])
        estimate = dict(zip(ESTIMATE, map(float, numbers), strict=True))
        rows.append({"id": number if id is None else id, **estimate})
    return rows


def _predicted_points(
    study: Study, pool: NumberedPoints, file: Path, level: float, decimal: str | None
) -> list[dict[str, Any]]:
    """The same of points of a box, by their numbers or by their columns."""
    name = id_name(pool)
    texts = {name, *pool.names}
    sheet = read_sheet(file, name, texts, texts)
    frame = sheet.frame
    if name not in frame.columns and not names_points(frame, pool):
        raise InputError(
            f"{file} must have the column {name!r} or all columns of the box, got "
            f"{', '.join(map(repr, frame.columns))[:300]}; add them"
        )
    # Of a line only the id and the columns of the box are needed here.
    lines = lines_in(file, sheet, [name, *[""] * (CELLS - 1)], pool.names)
    ids = [pool.as_id(line.where, line.id, line.point, decimal or ".") for line in lines]
    header = [free(each, pool) for each in ESTIMATE]
    rows: list[dict[str, Any]] = []
    _, *estimates = study.predict(ids, level)
    for id, *numbers in zip(ids, *estimates, strict=True):
        is_new = isinstance(id, NewPoint)
        columns = dict(zip(pool.names, id, strict=True)) if is_new else pool.row(id)
        estimate = dict(zip(header, map(float, numbers), strict=True))
        rows.append({name: None if is_new else id, **columns, **estimate})
    return rows


def _with_features(pool: Pool, sheet: Sheet, file: Path) -> Sheet:
    """Rows that the pool would take, checked before anything is learned and written down; levels
    that it does not know are named."""
    rows = sheet.frame
    needed = [each for each in pool.names if each not in pool.unused]
    expected = [*needed, *(each for each in [own_id(pool)] if each is not None)]
    lacking = [each for each in expected if each not in rows.columns]
    if lacking:
        raise InputError(
            f"{count(len(rows), 'row')} of {file} are not of this study, and lack the columns to "
            "take them by their features, "
            f"{', '.join(map(repr, lacking))[:200]}; add those, or check the ids"
        )
    sheet = sheet._replace(frame=rows.select(expected))
    grown = pool.add(sheet)
    # A pool may leave rows with missing values out; here each row needs its answer.
    if len(grown) < len(pool) + len(rows):
        raise InputError(
            f"rows of {file} miss values, and this study leaves such rows out; fill them in"
        )
    for line in level_lines(pool, grown):
        note(line)
    return sheet
