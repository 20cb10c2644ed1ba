"""What is known: status, top, history, predict."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from manyarms.campaign.answers import Best, Candidate
from manyarms.cli.app import AsJson, Decimal, Force, InputError, Separator, StudyAt, opened
from manyarms.cli.boxes import NewPoint, NumberedPoints
from manyarms.cli.changes import changes_of, changes_table
from manyarms.cli.output import answer, count, moment, new_file, percent, place, shown, table
from manyarms.cli.tables import (
    CELLS,
    Listed,
    beside,
    check_output,
    decimal_of,
    extent,
    free,
    id_name,
    lines_in,
    marks,
    names_points,
    noise_name,
    note_name,
    results_told,
    value_name,
    write_table,
)
from manyarms.errors import StateError
from manyarms.pool.pool import Pool
from manyarms.pool.sheets import read_sheet
from manyarms.pool.stored import described
from manyarms.study import Study


def _probability(level: float) -> float:
    if not 0 < level < 1:
        raise typer.BadParameter(f"must be between 0 and 1, got {level}")
    return level


def _tolerance(tolerance: float | None) -> float | None:
    if tolerance is not None and not 0 <= tolerance < 1e100:
        raise typer.BadParameter(f"must be a regret of 0 or more, got {tolerance}")
    return tolerance


Level = Annotated[float, typer.Option(help="Probability of the intervals.", callback=_probability)]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="CSV file to write.", show_default=False)
]
HEADER = ["estimate", "low", "high", "results", "measured"]
"""What is known of a candidate, beside its id."""
RESULT = ["number", "id", "value", "noise", "time", "worker", "event", "note"]
"""What a result has."""
OPTIONAL = ("noise", "note")
"""What few results have: such a column is left out where none has it."""


def status(
    study: StudyAt,
    level: Level = 0.95,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Say whether the regret is at most this, so that one may stop.",
            callback=_tolerance,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how a study stands.

    The best candidate as measured and as recommended, how much better another one may be (the
    certificate), the size of the model, and who is trying what.

    [bold]Example:[/bold]
      manyarms status lab.db --tolerance 2
    """
    with opened(study) as known:
        data: dict[str, Any] = {"study": place(study), **state_of(known, level, tolerance)}
        pool: Any = known.pool
        what = extent(pool)
    lines = [
        f"{place(study)}: {data['direction']}, {what}, "
        f"{count(data['results'], 'result')}"
        f" ({data['failed']:,} failed), {len(data['pending']):,} pending"
    ]
    if data["best"]:
        model = data["model"]
        lines += [
            "",
            *best_lines(data["best"], level),
            *(f"  {name}: {shown(value)}" for name, value in data["best"]["columns"].items()),
            "",
            data["certificate"]["statement"],
            "",
            f"Model: {count(model['inducing'], 'inducing candidate')}, "
            f"{shown(model['effective_dimension'])} effective "
            f"dimensions, noise {shown(model['noise'])}; the snapshot has "
            f"{model['snapshot_bytes']:,} bytes",
        ]
    else:
        lines.append("No values yet: manyarms suggest, then manyarms tell.")
    names, columns = beside(pool, [each["id"] for each in data["pending"]])
    pending = [
        [each["id"], *cells, each["worker"], each["until"] or "no end"]
        for each, cells in zip(data["pending"], columns, strict=True)
    ]
    answer(
        data,
        as_json,
        "\n".join(lines),
        *([table(["pending", *names, "worker", "until"], pending)] if pending else []),
    )


def state_of(study: Study, level: float, tolerance: float | None) -> dict[str, Any]:
    """What `status` and `report` say of a study."""
    data: dict[str, Any] = {
        "direction": study.direction,
        "candidates": len(study.pool),
        "results": study.n_results,
        "failed": study.n_failed,
        "best": None,
        "certificate": None,
        "model": None,
        "pending": [
            {"id": each.id, "worker": each.worker, "until": moment(each.until)}
            for each in study.leases
        ],
    }
    try:
        best = study.best(level)
        certificate = study.certificate(tolerance)
        policy = study.policy
    except StateError:  # no values yet
        return data
    data["best"] = {**plain_best(best), "columns": study.pool.row(best.recommended.id)}
    data["certificate"] = {
        **asdict(certificate),
        "reached": certificate.reached,
        "text": str(certificate),
        "statement": certificate.statement,
    }
    # The exact posterior has no inducing set: every arm observed counts.
    inducing = getattr(policy, "inducing", None)
    data["model"] = {
        "inducing": int((policy.counts > 0).sum()) if inducing is None else len(inducing),
        "effective_dimension": policy.effective_dimension,
        "noise": study.noise,
        "snapshot_bytes": study.snapshot_bytes,
    }
    return data


def plain(candidate: Candidate) -> dict[str, Any]:
    """A candidate and what is known of it, for JSON."""
    # HEADER names the fields of Candidate in their order.
    return dict(zip(["id", *HEADER], asdict(candidate).values(), strict=True))


def plain_best(best: Best) -> dict[str, Any]:
    """The best candidate as measured and as recommended, for JSON."""
    measured, recommended = plain(best.measured), plain(best.recommended)
    return {"measured": measured, "recommended": recommended, "why": best.why}


def best_lines(best: dict[str, Any], level: float) -> list[str]:
    """What `plain_best` says, in words."""
    measured, recommended = best["measured"], best["recommended"]
    ends = f"{shown(recommended['low'])} to {shown(recommended['high'])}"
    return [
        f"Best measured: {measured['id']}, {shown(measured['measured'])} "
        f"({count(measured['results'], 'result')})",
        f"Recommended: {recommended['id']}, estimated {shown(recommended['estimate'])} "
        f"({percent(level)}: {ends}, {count(recommended['results'], 'result')})",
        f"Why: {best['why']}",
    ]


def top(
    study: StudyAt,
    k: Annotated[int, typer.Option("-k", "--number", min=1, help="How many.")] = 10,
    level: Level = 0.95,
    as_json: AsJson = False,
) -> None:
    """List the candidates of best estimate, tried or not.

    [bold]Example:[/bold]
      manyarms top lab.db -k 20
    """
    with opened(study) as known:
        rows = [plain(each) for each in known.top(k, level)]
        names, columns = beside(known.pool, [row["id"] for row in rows])
    listed = ([*row.values(), *cells] for row, cells in zip(rows, columns, strict=True))
    answer({"top": rows, "level": level}, as_json, table(["id", *HEADER, *names], listed))


def history(
    study: StudyAt,
    last: Annotated[
        int | None, typer.Option(min=1, help="Only so many, the latest.", show_default="all")
    ] = None,
    output: Output = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """List every result, oldest first: when, of which candidate, which value, by whom.

    Below it stands what was changed: corrections, what was taken back, retired and restored, by
    whom and why. A file that is written has the results that count.

    [bold]Example:[/bold]
      manyarms history lab.db -o results.csv
    """
    written_as = marks(decimal, separator)
    check_output(output)
    with opened(study) as known:
        rows = results_of(known)
        changes = changes_of(known)
        pool = known.pool
    rows = rows if last is None else rows[-last:]
    if output is None:
        names = [name for name in RESULT if name not in OPTIONAL or has_any(rows, name)]
        more, columns = beside(pool, [row["id"] for row in rows])
        listed = (
            [*(row[name] for name in names), *cells]
            for row, cells in zip(rows, columns, strict=True)
        )
        answer(
            {"results": rows, "changes": changes},
            as_json,
            table([*names, *more], listed),
            *([f"\nWhat was changed since:\n{changes_table(changes)}"] if changes else []),
        )
        return
    with new_file(output, force) as draft:
        write_table(results_frame(rows, pool, decimal), draft, output, written_as, pool)
    answer(
        {"results": len(rows), "written": str(output)},
        as_json,
        f"{count(len(rows), 'result')} in {output}.",
    )


def results_of(study: Study) -> list[dict[str, Any]]:
    """Every result told, with its time and who told it; a dict with the keys of RESULT each."""
    told = [
        (
            trial.id,
            "failed" if trial.failed else trial.value,
            trial.noise,
            moment(event.time),
            event.payload["worker"],
            event.number,
            trial.note,
        )
        for event, trial in results_told(study)
    ]
    return [dict(zip(RESULT, (i + 1, *result), strict=True)) for i, result in enumerate(told)]


def has_any(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether any of these results has a noise, or a note."""
    return any(row[name] is not None for row in rows)


def results_frame(rows: list[dict[str, Any]], pool: Listed, decimal: str | None) -> pl.DataFrame:
    """Results as a table; values are text, as some may be "failed"."""
    columns = {
        free("number", pool): [row["number"] for row in rows],
        id_name(pool): [row["id"] for row in rows],
        value_name(pool): [
            str(row["value"]).replace(".", decimal_of(pool, decimal)) for row in rows
        ],
        **({noise_name(pool): [row["noise"] for row in rows]} if has_any(rows, "noise") else {}),
        free("time", pool): [row["time"] for row in rows],
        free("worker", pool): [row["worker"] for row in rows],
        **({note_name(pool): [row["note"] for row in rows]} if has_any(rows, "note") else {}),
    }
    return pl.DataFrame(
        columns, schema_overrides={value_name(pool): pl.String}, infer_schema_length=None
    )


def predict(
    study: StudyAt,
    file: Annotated[
        Path, typer.Argument(help="Table of candidates, .csv or .parquet.", show_default=False)
    ],
    level: Level = 0.95,
    output: Output = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Estimate the values of candidates in a table.

    Rows whose id the study knows are looked up by it. Others are taken by their features, and need
    the columns of the study's table; nothing is added to the study.

    [bold]Example:[/bold]
      manyarms predict lab.db other.csv -o estimates.csv
    """
    written_as = marks(decimal, separator)
    check_output(output)
    with opened(study) as known:
        rows = _predicted(known, file, level, decimal)
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
    )


def _predicted(study: Study, file: Path, level: float, decimal: str | None) -> list[dict[str, Any]]:
    """A row for each of the file, in its order."""
    pool = study.pool
    if isinstance(pool, NumberedPoints):
        return _predicted_points(study, pool, file, level, decimal)
    frame = pool.read(file, decimal=decimal).frame
    name = id_name(pool)
    given: list[Any] = frame[name].to_list() if name in frame.columns else [None] * len(frame)
    known = set(pool.ids.tolist())
    is_known = [id in known for id in given]
    new = frame.filter(pl.Series([not here for here in is_known], dtype=pl.Boolean))
    # Two predictions, of rows the study knows and of others, taken in turn as the file has them.
    found: dict[bool, Iterator[Any]] = {}
    if len(new):
        new = _with_features(pool, new, file)
        found[False] = zip(*study.predict_rows(new, level=level), strict=True)
    if any(is_known):
        found[True] = zip(*study.predict([id for id in given if id in known], level), strict=True)
    rows = []
    for number, (id, here) in enumerate(zip(given, is_known, strict=True)):
        _, *numbers = next(found[here])
        estimate = dict(zip(("estimate", "sd", "low", "high"), map(float, numbers), strict=True))
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
    header = [free(each, pool) for each in ("estimate", "sd", "low", "high")]
    rows: list[dict[str, Any]] = []
    _, *estimates = study.predict(ids, level)
    for id, *numbers in zip(ids, *estimates, strict=True):
        is_new = isinstance(id, NewPoint)
        columns = dict(zip(pool.names, id, strict=True)) if is_new else pool.row(id)
        estimate = dict(zip(header, map(float, numbers), strict=True))
        rows.append({name: None if is_new else id, **columns, **estimate})
    return rows


def _with_features(pool: Pool, rows: pl.DataFrame, file: Path) -> pl.DataFrame:
    """Rows that the pool would take, checked before anything is learned and written down."""
    expected = [*pool.names, *(each for each in [described(pool)["id"]] if each is not None)]
    lacking = [each for each in expected if each not in rows.columns]
    if lacking:
        raise InputError(
            f"{count(len(rows), 'row')} of {file} are not of this study, and lack the columns to "
            "take them by their features, "
            f"{', '.join(map(repr, lacking))[:200]}; add those, or check the ids"
        )
    rows = rows.select(expected)
    # A pool may leave rows with missing values out; here each row needs its answer.
    if len(pool.add(rows)) < len(pool) + len(rows):
        raise InputError(
            f"rows of {file} miss values, and this study leaves such rows out; fill them in"
        )
    return rows
