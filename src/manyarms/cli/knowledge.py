"""What is known: status, top, history, predict."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from manyarms.campaign.predictions import Best, Candidate
from manyarms.cli.app import AsJson, Decimal, Force, Separator, StudyAt, opened
from manyarms.cli.changes import changes_of, changes_table
from manyarms.cli.output import (
    ALREADY_DONE,
    answer,
    clock,
    count,
    moment,
    new_file,
    percent,
    place,
    shown,
    table,
)
from manyarms.cli.tables import (
    Listed,
    beside,
    check_output,
    decimal_of,
    extent,
    free,
    goal,
    id_name,
    marks,
    noise_name,
    not_used,
    note_name,
    results_told,
    unused,
    value_name,
    write_table,
)
from manyarms.errors import StateError
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
    verbose: Annotated[
        bool, typer.Option("--verbose", metavar="", help="Say what the model is like, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how a study stands.

    The best candidate as measured and as recommended, how much better another one may be, which
    columns are not used, and who is trying what.

    [bold]Example:[/bold]
      manyarms status lab.db --tolerance 2
    """
    with opened(study) as known:
        data: dict[str, Any] = {"study": place(study), **state_of(known, level, tolerance)}
        pool: Any = known.pool
        lines = [
            f"{place(study)}: {goal(known)}; {extent(pool)}, "
            f"{count(data['results'], 'result')}"
            f" ({data['failed']:,} failed), {len(data['pending']):,} pending",
            *not_used(pool),
        ]
    if data["best"]:
        lines += [
            "",
            *best_lines(data["best"], level),
            *recipe_lines(pool, data["best"]),
            "",
            data["certificate"]["statement"],
            *(["", *model_lines(data)] if verbose else []),
        ]
    else:
        lines.append("No values yet: manyarms suggest, then manyarms tell.")
    names, columns = beside(pool, [each["id"] for each in data["pending"]])
    pending = [
        [each["id"], *cells, each["worker"], clock(each["until"])]
        for each, cells in zip(data["pending"], columns, strict=True)
    ]
    listed = [table(["pending", *names, "worker", "until"], pending)] if pending else []
    answer(data, as_json, "\n".join(lines), *(f"\n{part}" for part in listed))


def state_of(study: Study, level: float, tolerance: float | None) -> dict[str, Any]:
    """What `status` and `report` say of a study."""
    data: dict[str, Any] = {
        "direction": study.direction,
        "candidates": len(study.pool),
        "not_used": unused(study.pool),
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


def model_lines(data: dict[str, Any]) -> list[str]:
    """What the model is like, for those who know its words."""
    model = data["model"]
    return [
        data["certificate"]["basis"],
        f"Model: {count(model['inducing'], 'inducing candidate')}, "
        f"{shown(model['effective_dimension'])} effective dimensions, noise "
        f"{shown(model['noise'])}; the snapshot has {model['snapshot_bytes']:,} bytes",
    ]


def plain(candidate: Candidate) -> dict[str, Any]:
    """A candidate and what is known of it, for JSON."""
    # HEADER names the fields of Candidate in their order.
    return dict(zip(["id", *HEADER], asdict(candidate).values(), strict=True))


def plain_best(best: Best) -> dict[str, Any]:
    """The best candidate as measured and as recommended, for JSON."""
    measured, recommended = plain(best.measured), plain(best.recommended)
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


def recipe_lines(pool: Listed, best: dict[str, Any]) -> list[str]:
    """The columns of the best candidates, one beside the other where there are two."""
    ids = list(dict.fromkeys([best["measured"]["id"], best["recommended"]["id"]]))
    names, columns = beside(pool, ids)
    rows = zip(names, *columns, strict=True)
    if len(ids) == 1:
        return [f"  {name}: {shown(cell)}" for name, cell in rows]
    return ["", table(["", *map(str, ids)], rows)]


def top(
    study: StudyAt,
    k: Annotated[int, typer.Option("-k", "--number", min=1, help="How many.")] = 10,
    level: Level = 0.95,
    output: Output = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """List the candidates with the best estimates, tried or not.

    [bold]Example:[/bold]
      manyarms top lab.db -k 20 -o best.csv
    """
    written_as = marks(decimal, separator)
    check_output(output)
    with opened(study) as known:
        rows = [plain(each) for each in known.top(k, level)]
        pool = known.pool
    ids = [row["id"] for row in rows]
    if output is None:
        names, columns = beside(pool, ids)
        listed = ([*row.values(), *cells] for row, cells in zip(rows, columns, strict=True))
        answer({"top": rows, "level": level}, as_json, table(["id", *HEADER, *names], listed))
        return
    header = [id_name(pool), *(free(name, pool) for name in HEADER)]
    cells = [
        dict(zip(header, row.values(), strict=True)) | columns
        for row, columns in zip(rows, pool.rows(ids), strict=True)
    ]
    frame = pl.DataFrame(cells, infer_schema_length=None)
    with new_file(output, force) as draft:
        write_table(frame, draft, output, written_as, pool)
    answer(
        {"candidates": len(rows), "written": str(output)},
        as_json,
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
            [*(clock(row[name]) if name == "time" else row[name] for name in names), *cells]
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
        kept=ALREADY_DONE,
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
