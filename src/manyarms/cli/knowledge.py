"""What is known: status, top, history, predict."""

from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from manyarms.campaign.predictions import Best, Candidate
from manyarms.cli.app import Decimal, Force, InputError, Separator, StudyAt, opened
from manyarms.cli.mistakes import changes_of, listed_changes
from manyarms.cli.output import (
    ALREADY_DONE,
    Answer,
    clock,
    count,
    moment,
    note,
    percent,
    shown,
    table,
)
from manyarms.cli.reading import points_in
from manyarms.cli.tables import (
    ESTIMATE,
    HEADER,
    as_ids,
    beside,
    extent,
    free,
    goal,
    id_name,
    level_lines,
    marks,
    not_used,
    note_name,
    place,
    save,
    value_name,
)
from manyarms.errors import StateError
from manyarms.runtime.machine import uncollected
from manyarms.sheets.reading import Sheet
from manyarms.space.points import NewPoint, Space
from manyarms.space.pool import Pool
from manyarms.study import Event, Study


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
RESULT = ["number", "id", "value", "noise", "time", "worker", "event", "note"]
"""What a result has."""
OPTIONAL = ("noise", "note")
"""What few results have: such a column is left out where none has it."""
FILES = (".csv", ".parquet", ".xlsx")
"""Endings of words that are files, whether they are there or not."""


def status(
    study: StudyAt,
    level: Level = 0.95,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Say whether another candidate may be better by more than this.",
            callback=_tolerance,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", metavar="", help="Say what the model is like, too.")
    ] = False,
) -> Answer:
    """Show how a study stands.

    The best candidate as measured and as recommended, how much better another one like those tried
    may be, which columns are not used, and who is trying what.

    [bold]Example:[/bold]
      manyarms status lab.db --tolerance 2
    """
    with opened(study) as known:
        state = state_of(known, level, tolerance)
        pool = known.pool
        lines = [
            f"{place(study)}: {goal(known)}; {extent(pool)}, {count(state['results'], 'result')}"
            f" ({state['failed']:,} failed), {len(state['pending']):,} pending",
            *not_used(pool),
        ]
    if state["best"]:
        header, recipe = recipe_of(pool, state["best"])
        one = [f"  {name}: {shown(cell)}" for name, cell, *_ in recipe]
        lines += [
            "",
            *best_lines(state["best"], level),
            *(one if len(header) == 2 else ["", table(["", *header[1:]], recipe)]),
            "",
            state["certificate"]["statement"],
            *(["", *model_lines(state)] if verbose else []),
        ]
    else:
        lines.append("No values yet: manyarms suggest, then manyarms tell.")
    if state["pending"]:
        header, pending = pending_of(pool, state["pending"])
        lines += ["", table(["pending", *header], pending)]
    return Answer.of({"study": place(study), **state}, "\n".join(lines))


def state_of(study: Study, level: float, tolerance: float | None) -> dict[str, Any]:
    """What `status` and `report` say of a study."""
    pool = study.pool
    leases = study.leases
    data: dict[str, Any] = {
        "direction": study.direction,
        "candidates": len(pool),
        "not_used": dict(pool.unused),
        "results": study.n_results,
        "failed": study.n_failed,
        "best": None,
        "certificate": None,
        "model": None,
        "pending": [
            {"id": id, "worker": each.worker, "until": moment(each.until)}
            for id, each in zip(pool.labels([each.id for each in leases]), leases, strict=True)
        ],
    }
    try:
        best = study.best(level)
        certificate = study.certificate(tolerance)
        policy = study.policy
    except StateError:  # no values yet
        return data
    pool = study.pool
    (columns,) = pool.rows([best.recommended.id])
    data["best"] = {**plain_best(best, pool), "columns": columns}
    best_id, rival = _named(pool, certificate.id), _named(pool, certificate.rival)
    certificate = replace(certificate, id=best_id, rival=rival)
    data["certificate"] = {
        **asdict(certificate),
        "reached": certificate.reached,
        "text": str(certificate),
        "statement": certificate.statement,
        "basis": certificate.basis,
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


def _named(pool: Space, id: Any) -> Any:
    """A candidate for sentences: its id; of a point its number, if it has one, and its columns."""
    if pool.box is None:
        return id
    (label,) = pool.labels([id])
    (row,) = pool.rows([id])
    cells = ", ".join(f"{name} {shown(value)}" for name, value in row.items())
    return f"{label} ({cells})" if isinstance(label, int) else cells


def model_lines(data: dict[str, Any]) -> list[str]:
    """What the model is like, for those who know its words."""
    model = data["model"]
    return [
        data["certificate"]["basis"],
        f"Model: {count(model['inducing'], 'inducing candidate')}, "
        f"{shown(model['effective_dimension'])} effective dimensions, noise "
        f"{shown(model['noise'])}; the snapshot has {model['snapshot_bytes']:,} bytes",
    ]


def plain(candidate: Candidate, pool: Space) -> dict[str, Any]:
    """A candidate and what is known of it, for JSON."""
    (label,) = pool.labels([candidate.id])
    # HEADER names the other fields of Candidate in their order.
    return dict(zip(["id", *HEADER], [label, *astuple(candidate)[1:]], strict=True))


def plain_best(best: Best, pool: Space) -> dict[str, Any]:
    """The best candidate as measured and as recommended, for JSON."""
    measured, recommended = (plain(each, pool) for each in (best.measured, best.recommended))
    return {"measured": measured, "recommended": recommended, "why": best.why}


def best_lines(best: dict[str, Any], level: float) -> list[str]:
    """What `plain_best` says, in words; the reason where the two are not the same."""
    measured, recommended = best["measured"], best["recommended"]
    if measured["id"] == recommended["id"]:
        return [f"Best measured and recommended: {_known(recommended, level)}"]
    return [
        f"Best measured: {measured['id']}, {_measured(measured)}",
        f"Recommended: {_known(recommended, level)}",
        f"Why: {best['why']}.",
    ]


def _known(candidate: dict[str, Any], level: float) -> str:
    """A candidate that was tried, its estimate with the interval, and its measured value."""
    ends = f"{shown(candidate['low'])} to {shown(candidate['high'])}"
    estimate = f"estimated {shown(candidate['estimate'])} ({percent(level)}: {ends})"
    return f"{candidate['id']}, {estimate}, {_measured(candidate)}"


def _measured(candidate: dict[str, Any]) -> str:
    results = count(candidate["results"], "result")
    mean = f"mean of {results}" if candidate["results"] > 1 else results
    return f"measured {shown(candidate['measured'])} ({mean})"


def recipe_of(pool: Space, best: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """The columns of the best candidates, one beside the other where there are two: header and
    rows."""
    ids = list(dict.fromkeys([best["measured"]["id"], best["recommended"]["id"]]))
    names, columns = beside(pool, ids)
    return ["column", *map(str, ids)], [*map(list, zip(names, *columns, strict=True))]


def pending_of(pool: Space, pending: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Who is trying what, with the columns of the candidates: header without the id, and rows."""
    names, columns = beside(pool, [each["id"] for each in pending])
    rows = [
        [each["id"], *cells, each["worker"], clock(each["until"])]
        for each, cells in zip(pending, columns, strict=True)
    ]
    return [*names, "worker", "until"], rows


def top(
    study: StudyAt,
    k: Annotated[int, typer.Option("-k", "--number", min=1, help="How many.")] = 10,
    level: Level = 0.95,
    output: Output = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
) -> Answer:
    """List the candidates with the best estimates, tried or not.

    [bold]Example:[/bold]
      manyarms top lab.db -k 20 -o best.csv
    """
    written_as = marks(decimal, separator, output)
    with opened(study) as known:
        found = known.top(k, level)
        pool = known.pool
    rows = [plain(each, pool) for each in found]
    ids = [row["id"] for row in rows]
    if output is None:
        names, columns = beside(pool, ids)
        listed = ([*row.values(), *cells] for row, cells in zip(rows, columns, strict=True))
        return Answer.of({"top": rows, "level": level}, table(["id", *HEADER, *names], listed))
        return None
    header = [id_name(pool), *(free(name, pool) for name in HEADER)]
    cells = [
        dict(zip(header, [_numbered(row["id"]), *list(row.values())[1:]], strict=True)) | columns
        for row, columns in zip(rows, pool.rows(pool.ids_of(ids)), strict=True)
    ]
    save(pl.DataFrame(cells, infer_schema_length=None), output, force, written_as, pool)
    return Answer.of(
        {"candidates": len(rows), "written": str(output)},
        f"The best {count(len(rows), 'candidate')} by estimate in {output}.",
        kept=ALREADY_DONE,
    )


def history(
    study: StudyAt,
    last: Annotated[
        int | None,
        typer.Option(min=1, help="How many of the latest results.", show_default="all"),
    ] = None,
    output: Output = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
) -> Answer:
    """List every result, oldest first: when, of which candidate, which value, by whom.

    Below it stands what was changed: corrections, what was taken back, retired and restored, by
    whom and why. A file that is written has the results that count.

    [bold]Example:[/bold]
      manyarms history lab.db -o results.csv
    """
    written_as = marks(decimal, separator, output)
    with opened(study) as known:
        rows, events = results_of(known, last)
        pool = known.pool
    changes = changes_of(events, pool)
    if output is None:
        said = [table(*listed(rows, pool))]
        if changes:
            said.append(f"\nWhat was changed since:\n{table(*listed_changes(changes))}")
        return Answer.of({"results": rows, "changes": changes}, *said)
        return None
    save(results_frame(rows, pool, decimal), output, force, written_as, pool)
    return Answer.of(
        {"results": len(rows), "written": str(output)},
        f"{count(len(rows), 'result')} in {output}.",
        kept=ALREADY_DONE,
    )


@uncollected()
def results_of(study: Study, last: int | None = None) -> tuple[list[dict[str, Any]], list[Event]]:
    """The latest results, or all, with their time and who told them, a dict with the keys of RESULT
    each; and the log, which has at least the events that told them."""
    trials = study.history[-(last or 0) :]
    events = list(study.events())
    found: list[dict[str, Any]] = []
    for trial, label in zip(trials, study.pool.labels([each.id for each in trials]), strict=True):
        # The event of number n is the nth; every result of a study has one.
        event = events[(trial.event or 1) - 1]
        value = "failed" if trial.failed else trial.value
        told = moment(event.time), event.payload["worker"], event.number
        row = (trial.number + 1, label, value, trial.noise, *told, trial.note)
        found.append(dict(zip(RESULT, row, strict=True)))
    return found, events


def listed(rows: list[dict[str, Any]], pool: Space) -> tuple[list[str], list[list[Any]]]:
    """Results with the columns of their candidates: header and rows."""
    names = [name for name in RESULT if name not in OPTIONAL or _has_any(rows, name)]
    more, columns = beside(pool, [row["id"] for row in rows])
    return [*names, *more], [
        [*(clock(row[name]) if name == "time" else row[name] for name in names), *cells]
        for row, cells in zip(rows, columns, strict=True)
    ]


def _has_any(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether any of these results has a noise, or a note."""
    return any(row[name] is not None for row in rows)


def results_frame(rows: list[dict[str, Any]], pool: Space, decimal: str | None) -> pl.DataFrame:
    """Results as a table; values are text, as some may be "failed"."""
    name_of = {
        "number": free("number", pool),
        "id": id_name(pool),
        "value": value_name(pool),
        "noise": free("noise", pool),
        "time": free("time", pool),
        "worker": free("worker", pool),
        "note": note_name(pool),
    }
    columns = {
        name_of[key]: [row[key] for row in rows]
        for key in name_of
        if key not in OPTIONAL or _has_any(rows, key)
    }
    mark = decimal or pool.decimal
    columns[name_of["value"]] = [str(row["value"]).replace(".", mark) for row in rows]
    text = {name_of["value"]: pl.String}
    return pl.DataFrame(columns, schema_overrides=text, infer_schema_length=None)


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
) -> Answer:
    """Estimate the values of candidates, by their ids or in a table.

    Rows of a table whose id the study knows are looked up by it. Others are taken by their
    features, and need the columns of the study's table; nothing is added to the study.

    [bold]Examples:[/bold]
      manyarms predict lab.db ethanol-80
      manyarms predict lab.db other.csv -o estimates.csv
    """
    written_as = marks(decimal, separator, output)
    with opened(study) as known:
        file = _file(what)
        if file is None:
            rows = _predicted_ids(known, what, level)
        elif known.pool.box is not None:
            rows = _predicted_points(known, file, level, decimal)
        else:
            rows = _predicted_rows(known, file, level, decimal)
        pool = known.pool
    if output is None:
        return Answer.of(
            {"predictions": rows, "level": level},
            table(rows[0].keys() if rows else [], (row.values() for row in rows)),
        )
        return None
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.rename({"id": id_name(pool)} if pool.box is None else {})
    save(frame, output, force, written_as, pool)
    return Answer.of(
        {"predictions": len(rows), "written": str(output)},
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
    pool = study.pool
    ids = as_ids(pool, texts)
    names, columns = beside(pool, ids)
    header = ["id", *(free(each, pool) for each in ESTIMATE), *names]
    _, *estimates = study.predict(pool.ids_of(ids), level)
    return [
        dict(zip(header, [id, *map(float, numbers), *cells], strict=True))
        for id, cells, *numbers in zip(ids, columns, *estimates, strict=True)
    ]


def _numbered(label: Any) -> Any:
    """An id as files have it: nothing for a point without a number, which its columns name."""
    return None if isinstance(label, NewPoint) else label


def _predicted_points(
    study: Study, file: Path, level: float, decimal: str | None
) -> list[dict[str, Any]]:
    """A row for each point in a file, which has their numbers or their columns."""
    pool = study.pool
    labels = points_in(file, pool, decimal)
    points = pool.ids_of(labels)
    header = [free(each, pool) for each in ESTIMATE]
    _, *estimates = study.predict(points, level)
    return [
        {
            id_name(pool): _numbered(label),
            **row,
            **dict(zip(header, map(float, numbers), strict=True)),
        }
        for label, row, *numbers in zip(labels, pool.rows(points), *estimates, strict=True)
    ]


def _predicted_rows(
    study: Study, file: Path, level: float, decimal: str | None
) -> list[dict[str, Any]]:
    """A row for each of a table, by its id where the study knows that, and else by its features."""
    pool = study.pool
    sheet = pool.read(file, decimal=decimal)
    frame, name = sheet.frame, id_name(pool)
    given: list[Any] = frame[name].to_list() if name in frame.columns else [None] * len(frame)
    if pool.parts.ids.are_strings:
        given = [None if id is None else pool.parts.ids.meant(id) or id for id in given]
    there = set(pool.ids.tolist())
    is_known = np.array([id in there for id in given], dtype=bool)
    estimates = np.empty((len(given), len(ESTIMATE)))
    if not is_known.all():
        new = _with_features(pool, sheet.some(~is_known), file)
        estimates[~is_known] = np.column_stack(study.predict_rows(new, level=level)[1:])
    if is_known.any():
        known = [id for id in given if id in there]
        estimates[is_known] = np.column_stack(study.predict(known, level)[1:])
    return [
        {"id": number if id is None else id, **dict(zip(ESTIMATE, row, strict=True))}
        for number, (id, row) in enumerate(zip(given, estimates.tolist(), strict=True))
    ]


def _with_features(pool: Pool, sheet: Sheet, file: Path) -> Sheet:
    """Rows that the pool would take, checked before anything is learned and written down; levels
    that it does not know are named."""
    rows = sheet.frame
    needed = [each for each in pool.names if each not in pool.unused]
    expected = [*needed, *([pool.id_column] if pool.id_column else [])]
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
