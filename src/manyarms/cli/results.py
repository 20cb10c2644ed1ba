"""What to try and what came out: suggest, tell, failed, release."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms.campaign.trials import FAILED, CandidateId
from manyarms.cli.app import (
    AsJson,
    Decimal,
    Force,
    InputError,
    Note,
    Separator,
    StudyAt,
    Worker,
    Yes,
    opened,
)
from manyarms.cli.candidates import Ids
from manyarms.cli.changes import said_value
from manyarms.cli.output import answer, confirm, count, new_file, shown, table, told
from manyarms.cli.output import note as remark
from manyarms.cli.sheets import EXPECTED, as_options, expected, leases_of, sheet
from manyarms.cli.tables import (
    Row,
    as_ids,
    as_noise,
    as_value,
    check_output,
    decimal_of,
    free,
    marks,
    results_in,
    unit_of,
    write_table,
)
from manyarms.cli.telling import Correction, Sorted, all_new, compared, replacing
from manyarms.pool.workbooks import READ
from manyarms.study import Study

MOST_EACH = 2
"""How often one candidate is in a batch at most: people at a bench seldom want more at once."""
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
    where: Annotated[
        list[str] | None,
        typer.Option(
            help='Only candidates that meet a condition, such as "temperature > 60".',
            metavar="CONDITION",
            show_default=False,
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            help="Only candidates with this value of a column.",
            metavar="COLUMN=VALUE",
            show_default=False,
        ),
    ] = None,
    same: Annotated[
        list[str] | None,
        typer.Option(
            help="One value of this column for all of them, the one that is best for the batch.",
            metavar="COLUMN",
            show_default=False,
        ),
    ] = None,
    max_new: Annotated[
        list[str] | None,
        typer.Option(
            help="At most so many different values of a column among them.",
            metavar="COLUMN=K",
            show_default=False,
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            help="Give them back after this time, such as 8h or 3d, if not told.", metavar="TIME"
        ),
    ] = "30d",
    worker: Worker = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Say which candidates to try next.

    Beside each stands what is predicted of its result, with an interval, and why it was chosen.
    They are pending, for all who use the study, until they are told, released, or their lease runs
    out. With -o they go to a CSV file with a column "value" to fill in: a number, or "failed".
    Then: manyarms tell STUDY FILE. The column "batch" says when they were suggested; leave it as it
    is. What is written into "note" is kept.

    [bold]Examples:[/bold]
      manyarms suggest lab.db -n 8 -o next.csv
      manyarms suggest lab.db -n 8 --fix temperature=80 --max-new ligand=3
      manyarms suggest lab.db -n 8 --same temperature --where "solvent != 'DMF'"
    """
    written_as = marks(decimal, separator)
    check_output(output)
    time = seconds(lease, "--lease")
    rules = {"where": where, "fix": fix, "same": same, "max_new": max_new}
    if again and any(rules.values()):
        raise InputError("--pending lists what was suggested; leave the rules for new ones out")
    with opened(study, worker) as known:
        options = {} if again else as_options(known.pool, decimal_of(known.pool, decimal), **rules)

        def ask() -> list[CandidateId]:
            if again:
                return known.pending
            ids: list[CandidateId] = known.ask(n, lease=time, most_each=MOST_EACH, **options)
            if len(ids) < n:
                remark(f"only {count(len(ids), 'candidate')} may be suggested now, not {n:,}")
            return ids

        if output is None:
            ids = ask()
            _show(known, ids, as_json)
            return
        # Made ready first: where the file cannot be written, no candidate becomes pending.
        with new_file(output, force) as draft:
            ids = ask()
            if not ids:
                raise InputError("nothing is pending; leave --pending out for new candidates")
            try:
                write_table(sheet(known, ids), draft, output, written_as, known.pool)
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
    pool = study.pool
    rows = pool.rows(ids)
    known = expected(study, leases_of(study, ids))
    data = [
        {"id": id, "columns": row, **each} for id, row, each in zip(ids, rows, known, strict=True)
    ]
    names = [*pool.names]
    listed = table(
        ["id", *names, *(free(name, pool) for name in EXPECTED)],
        (
            [id, *(row[name] for name in names), *each.values()]
            for id, row, each in zip(ids, rows, known, strict=True)
        ),
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
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            metavar="",
            help="The values take the place of all that their candidates have.",
        ),
    ] = False,
    note: Note = None,
    yes: Yes = False,
    decimal: Decimal = None,
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
    another trial. Where the value of a suggestion was changed in the file, that is a correction:
    it takes the place of the old one. --replace does so for every candidate, whatever it had.

    The file must be of this study: its columns are compared with the candidates. A column "note"
    is kept with the results; --note is for those that have none.

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
    if again and replace:
        raise InputError("--again adds results and --replace takes their place; give one of them")
    with opened(study, worker) as known:
        if _are_files(what):
            told = [results_in(Path(path), known.pool, value, noise, decimal) for path in what]
            rows = [row for file in told for row in file.rows]
            n_empty = sum(file.n_empty for file in told)
            sort = all_new if again else partial(replacing if replace else compared, known)
            tell_rows(known, sort(rows), n_empty, yes, as_json, note=note, is_token=not again)
            return
        if value is not None:
            raise InputError(
                "--value names a column of files; of one candidate give the id and its value alone"
            )
        (id,) = as_ids(known.pool, what[:1])
        mark = decimal_of(known.pool, decimal)
        row = Row(
            id,
            as_value(what[1], mark, f"{id!r}", unit_of(known.pool)),
            batch=0,
            noise=as_noise(noise, mark, f"{id!r}"),
        )
        found = replacing(known, [row]) if replace else all_new([row])
        tell_rows(known, found, 0, yes, as_json, note=note, is_token=False)


def _are_files(what: list[str]) -> bool:
    """Files, as against an id and its value."""
    files = [text for text in what if Path(text).is_file()]
    if len(files) == len(what):
        return True
    # Of two words the second is a value, unless it looks like a path that was mistyped.
    if len(what) == 2 and not files and not what[1].lower().endswith((".csv", *READ)):
        return False
    missing = next(text for text in what if text not in files)
    raise InputError(f"tell takes files, or one id and its value; there is no file {missing!r}")


def tell_rows(
    study: Study,
    found: Sorted,
    n_empty: int,
    yes: bool,
    as_json: bool,
    *,
    note: str | None = None,
    is_token: bool = True,
) -> None:
    """Tell the results of files, and correct those that have another value there, at once."""
    new, corrections, n_known, n_stale, notes = found
    written = [*new, *(each.row for each in corrections if each.row)]
    _check_failed(study, [row.id for row in written if row.value is FAILED], yes)
    before = _said_of(corrections)
    # With --again the same rows are meant to count once more: no token may prevent it.
    token = _token(study, new) if is_token else None
    study.revise(
        _as_told(new, note, token) if new else None,
        _as_corrected(corrections, note) if corrections else None,
        notes,
    )
    n_failed = sum(row.value is FAILED for row in new)
    total = study.n_results
    data = {
        "told": len(new),
        "failed": n_failed,
        "corrected": before,
        "noted": len(notes),
        "known": n_known,
        "empty": n_empty,
        "results": total,
    }
    if n_known:
        remark(
            f"skipped {count(n_known, 'row')} that the study has; --again would count them as "
            "replicates"
        )
    if n_stale:
        remark(
            f"skipped {count(n_stale, 'row')} with a value that was corrected in the study since; "
            "--replace would put it back"
        )
    if n_empty:
        remark(f"skipped {count(n_empty, 'row')} without a value: not done yet")
    if notes:
        remark(f"kept {count(len(notes), 'new note')}")
    for sentence in doubts(study, new):
        remark(sentence)
    lines = [f"Corrected {each['id']}: {each['before']} is now {each['now']}." for each in before]
    answer(data, as_json, *lines, told(len(new), n_failed, total))


def _as_told(rows: list[Row], note: str | None, token: str | None) -> dict[str, Any]:
    """The arguments of `Study.tell`."""
    return {
        "ids": [row.id for row in rows],
        "values": [row.value for row in rows],
        "noise": _noise_of(rows),
        "note": [row.note or note for row in rows],
        "batch": [row.batch for row in rows],
        "token": token,
    }


def _noise_of(rows: Sequence[Row | None]) -> list[float | None] | None:
    """Nothing at all where no row has one: an event without noise stays as it always was."""
    noise = [row.noise if row else None for row in rows]
    return noise if any(sd is not None for sd in noise) else None


def _as_corrected(corrections: list[Correction], note: str | None) -> dict[str, Any]:
    """The arguments of `Study.correct`."""
    rows = [each.row for each in corrections]
    return {
        "ids": [each.trial for each in corrections],
        "values": [row.value if row else None for row in rows],
        "noise": _noise_of(rows),
        "note": note,
    }


def doubts(study: Study, new: list[Row]) -> list[str]:
    """What looks like a mistake in results that were just told."""
    least, largest = study.settings["bounds"] or (None, None)
    low = -math.inf if least is None else least
    high = math.inf if largest is None else largest
    out = [row for row in new if row.value is not FAILED and not low <= row.value <= high]
    found = [
        f"{row.id} has {shown(row.value)}, which is outside of the bounds {shown(low)} to "
        f"{shown(high)}; a typo is mended by: manyarms correct STUDY {row.id} VALUE"
        for row in out[:3]
    ]
    if len(new) == 1 and not new[0].batch:
        n = sum(trial.id == new[0].id for trial in study.history)
        if n > 1:
            found.append(
                f"{new[0].id} has {count(n, 'result')} now; if this one was to take the place of "
                "another, undo it and tell it with --replace"
            )
    return found


def _said_of(corrections: list[Correction]) -> list[dict[str, Any]]:
    """What becomes of each result that is corrected, in words."""
    return [
        {
            "id": trial.id,
            "before": said_value(trial.value),
            "now": said_value(None if row.value is FAILED else row.value) if row else "no result",
        }
        for trial, row in corrections
    ]


def _check_failed(study: Study, ids: list[CandidateId], yes: bool) -> None:
    """Ask whether candidates that have values failed: they are neither suggested nor recommended
    any more."""
    values = {trial.id: trial.value for trial in study.history if not trial.failed}
    good = [id for id in ids if id in values]
    if good:
        one = f"{good[0]!r} has a value, {shown(values[good[0]])}"
        more = f", and {count(len(good) - 1, 'other')} have values, too" if len(good) > 1 else ""
        confirm(f"{one}{more}; as failed it is not suggested again", yes)


def _token(study: Study, new: list[Row]) -> str:
    """The same for the same new rows: two who tell a file at once tell it once."""
    # How many results a candidate has counts: a row that is equal to one told before is another.
    counts = Counter(trial.id for trial in study.history)
    text = "\n".join(f"{row.id!r} {row.value!r} {row.batch} {counts[row.id]}" for row in new)
    return f"file {hashlib.sha256(text.encode()).hexdigest()}"


def failed(
    study: StudyAt,
    ids: Ids,
    note: Note = None,
    yes: Yes = False,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Tell that trials failed and gave no value.

    A candidate that failed teaches the model nothing. It is not suggested again, unless a value is
    told of it later. Of a candidate that has a value the command asks first; --yes answers that.

    [bold]Example:[/bold]
      manyarms failed lab.db ethanol-120
    """
    with opened(study, worker) as known:
        names = as_ids(known.pool, ids)
        _check_failed(known, names, yes)
        known.tell(names, failed=True, note=note)
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
