"""What came out: tell, failed, release."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms.campaign.trials import FAILED
from manyarms.cli.app import Decimal, Ids, InputError, Note, StudyAt, Worker, Yes, opened
from manyarms.cli.mistakes import said_value
from manyarms.cli.output import ALREADY_DONE, Answer, confirm, count, shown, told
from manyarms.cli.output import note as remark
from manyarms.cli.reading import Row, results_in
from manyarms.cli.tables import as_ids, as_noise, as_value, marks, unit_of
from manyarms.cli.telling import Sorted, compared, replacing, results_by_label
from manyarms.sheets.reading import READ
from manyarms.study import Study


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
) -> Answer:
    """Tell results.

    A file needs the columns of ids and of values. A row whose value is empty is not done yet and is
    skipped; "failed" in place of a value says that the trial failed. All rows are told, or none if
    one is wrong.

    Where the standard deviation of a value is known, such as the standard error of a mean, it
    stands in a column "noise": the value then weighs by it. Empty, it is that of all others.

    A file may be told again when more of it is filled in: a row that the study has (same candidate
    and value, told after it was suggested) is not counted twice, unless --again says that it is
    another trial. Where the value of a suggestion was changed in the file, that is a correction:
    it takes the place of the old one. --replace does so for every candidate, whatever it had.

    The file must be of this study: its columns are compared with the candidates. A column "note"
    is kept with the results, and so is what stands in columns that the study does not have; --note
    is for results that have no note.

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
        pool = known.pool
        if _are_files(what):
            files = [results_in(Path(path), pool, value, noise, decimal, again) for path in what]
            rows = [row for file in files for row in file.rows]
            n_empty = sum(file.n_empty for file in files)
            sort = replacing if replace else compared
            found = Sorted(rows, []) if again else sort(known, rows)
            return record(known, found, yes, n_empty=n_empty, note=note, is_token=not again)
        if value is not None:
            raise InputError(
                "--value names a column of files; of one candidate give the id and its value alone"
            )
        (id,) = as_ids(pool, what[:1])
        mark = decimal or pool.decimal
        number = as_value(what[1], mark, f"{id!r}", unit_of(pool))
        row = Row(id, number, noise=as_noise(noise, mark, f"{id!r}"))
        found = replacing(known, [row]) if replace else Sorted([row], [])
        return record(known, found, yes, note=note, is_token=False)


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


def failed(
    study: StudyAt,
    ids: Ids,
    note: Note = None,
    yes: Yes = False,
    worker: Worker = None,
) -> Answer:
    """Tell that trials failed and gave no value.

    A candidate that failed teaches the model nothing. It is not suggested again, unless a value is
    told of it later. Of a candidate that has a value the command asks first; --yes answers that.

    [bold]Example:[/bold]
      manyarms failed lab.db ethanol-120
    """
    with opened(study, worker) as known:
        names = as_ids(known.pool, ids)
        check_failed(known, names, yes)
        known.tell(known.pool.ids_of(names), failed=True, note=note)
    return Answer.of({"failed": names}, f"{count(len(names), 'trial')} failed.", kept=ALREADY_DONE)


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
) -> Answer:
    """Give back candidates that are pending and will not be tried now.

    [bold]Examples:[/bold]
      manyarms release lab.db ethanol-80
      manyarms release lab.db --all
    """
    if everything == bool(ids):
        raise InputError("release takes ids, or --all")
    with opened(study, worker) as known:
        pool = known.pool
        names = pool.labels(known.pending) if everything else as_ids(pool, ids or [])
        if names:
            known.release(pool.ids_of(names))
    said = f"Released {count(len(names), 'candidate')}."
    return Answer.of({"released": names}, said, kept=ALREADY_DONE)


def record(
    study: Study,
    found: Sorted,
    yes: bool,
    *,
    n_empty: int = 0,
    note: str | None = None,
    is_token: bool = True,
) -> Answer:
    """Tell the results of files, and correct those that have another value there, at once."""
    new, corrections, n_known, n_stale, notes = found
    written = [*new, *(each.row for each in corrections if each.row)]
    check_failed(study, [row.id for row in written if row.value is FAILED], yes)
    told_rows = {
        "ids": study.pool.ids_of([row.id for row in new]),
        "values": [row.value for row in new],
        "noise": _noise_of(new),
        "note": [row.note or note for row in new],
        "batch": [row.batch for row in new],
        # With --again the same rows are meant to count once more: no token may prevent it.
        "token": _token(study, new) if is_token else None,
    }
    rows = [each.row for each in corrections]
    corrected = {
        "ids": [each.trial for each in corrections],
        "values": [row.value if row else None for row in rows],
        "noise": _noise_of(rows),
        "note": note,
    }
    study.revise(told_rows if new else None, corrected if corrections else None, notes)
    n_failed = sum(row.value is FAILED for row in new)
    total = study.n_results
    before = [
        {
            "id": each.id,
            "before": said_value(each.trial.value),
            "now": said_value(each.row.value) if each.row else "no result",
        }
        for each in corrections
    ]
    data = {
        "told": len(new),
        "failed": n_failed,
        "corrected": before,
        "noted": len(notes),
        "known": n_known,
        "empty": n_empty,
        "results": total,
    }
    for n, what in (
        (n_known, "that the study has; --again would count them as replicates"),
        (
            n_stale,
            "with a value that was corrected in the study since; --replace would put it back",
        ),
        (n_empty, "without a value: not done yet"),
    ):
        if n:
            remark(f"skipped {count(n, 'row')} {what}")
    if notes:
        remark(f"kept {count(len(notes), 'new note')}")
    for sentence in _doubts(study, new):
        remark(sentence)
    lines = [f"Corrected {each['id']}: {each['before']} is now {each['now']}." for each in before]
    only_corrected = corrections and not new
    last = f"The study has {count(total, 'result')}."
    lines.append(last if only_corrected else told(len(new), n_failed, total))
    return Answer.of(data, *lines, kept=ALREADY_DONE)


def _noise_of(rows: Sequence[Row | None]) -> list[float | None] | None:
    """Nothing at all where no row has one: an event without noise stays as it always was."""
    noise = [row.noise if row else None for row in rows]
    return noise if any(sd is not None for sd in noise) else None


def _doubts(study: Study, new: list[Row]) -> list[str]:
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
        n = len(results_by_label(study, [new[0].id])[new[0].id])
        if n > 1:
            found.append(
                f"{new[0].id} has {count(n, 'result')} now; if this one was to take the place of "
                "another, undo it and tell it with --replace"
            )
    return found


def check_failed(study: Study, ids: Sequence[Any], yes: bool) -> None:
    """Ask whether candidates that have values failed: they are neither suggested nor recommended
    any more."""
    told_of = results_by_label(study, ids)
    values = {id: [trial.value for trial in told_of[id] if not trial.failed] for id in ids}
    good = [id for id in ids if values[id]]
    if good:
        one = f"{good[0]!r} has a value, {shown(values[good[0]][-1])}"
        more = f", and {count(len(good) - 1, 'other')} have values, too" if len(good) > 1 else ""
        confirm(f"{one}{more}; as failed it is not suggested again", yes)


def _token(study: Study, new: list[Row]) -> str:
    """The same for the same new rows: two who tell a file at once tell it once."""
    # How many results a candidate has counts: a row that is equal to one told before is another.
    told_of = results_by_label(study, [row.id for row in new])
    text = "\n".join(f"{row.id!r} {row.value!r} {row.batch} {len(told_of[row.id])}" for row in new)
    return f"file {hashlib.sha256(text.encode()).hexdigest()}"
