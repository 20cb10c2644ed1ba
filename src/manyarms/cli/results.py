"""What came out: tell, failed, release."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from manyarms.cli.app import (
    AsJson,
    Decimal,
    InputError,
    Note,
    StudyAt,
    Worker,
    Yes,
    opened,
)
from manyarms.cli.candidates import Ids
from manyarms.cli.output import ALREADY_DONE, answer, count
from manyarms.cli.recording import check_failed, tell_rows
from manyarms.cli.tables import (
    Row,
    as_ids,
    as_noise,
    as_value,
    decimal_of,
    marks,
    results_in,
    unit_of,
)
from manyarms.cli.telling import all_new, compared, replacing
from manyarms.sheets.workbooks import READ


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
    """Tell results.

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
        check_failed(known, names, yes)
        known.tell(names, failed=True, note=note)
    answer({"failed": names}, as_json, f"{count(len(names), 'trial')} failed.", kept=ALREADY_DONE)


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
    answer(
        {"released": names},
        as_json,
        f"Released {count(len(names), 'candidate')}.",
        kept=ALREADY_DONE,
    )
