"""What takes mistakes back: correct, undo, restore."""

from typing import Annotated, Any

import typer

from manyarms.campaign.trials import FAILED, CandidateId, Trial
from manyarms.cli.app import AsJson, Decimal, InputError, Note, StudyAt, Worker, Yes, opened
from manyarms.cli.boxes import refuse_box
from manyarms.cli.candidates import Ids
from manyarms.cli.changes import in_words, said_value
from manyarms.cli.output import ALREADY_DONE, answer, clock, confirm, count, moment, place
from manyarms.cli.tables import as_ids, as_noise, as_value, decimal_of, marks, unit_of
from manyarms.study import Study

NO_RESULT = "none"
"""What stands for no result in place of a value."""


def correct(
    study: StudyAt,
    id: Annotated[str, typer.Argument(metavar="ID", help="Of a candidate.", show_default=False)],
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="What came out: a number, `failed`, or `none` where nothing was measured.",
            show_default=False,
        ),
    ],
    was: Annotated[
        str | None,
        typer.Option(
            help="The value that is wrong, where the candidate has several.",
            metavar="VALUE",
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="Standard deviation of the value; as it was unless given.",
            metavar="SD",
            show_default=False,
        ),
    ] = None,
    note: Note = None,
    yes: Yes = False,
    decimal: Decimal = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Correct a result.

    The new value replaces the one that the candidate has, and the model learns all results again.
    The history keeps both values, and the note.

    [bold]Examples:[/bold]
      manyarms correct lab.db ethanol-80 71.5 --note "decimal point"
      manyarms correct lab.db ethanol-80 71.5 --was 7.15
      manyarms correct lab.db ethanol-90 none
    """
    strange = [text for text in (id, value) if text.startswith("--")]
    if strange:
        raise InputError(f"no such option: {strange[0]}; see `manyarms correct --help`")
    marks(decimal)
    with opened(study, worker) as known:
        (name,) = as_ids(known.pool, [id])
        mark = decimal_of(known.pool, decimal)
        unit = unit_of(known.pool)
        is_gone = value.strip() == NO_RESULT
        new = None if is_gone else as_value(value, mark, f"{name!r}", unit)
        sd = as_noise(noise, mark, f"{name!r}")
        old = None if was is None else as_value(was, mark, f"--was of {name!r}", unit)
        trial = _trial(known, name, old)
        if new is FAILED and not trial.failed:
            confirm(f"{name!r} has a value, {said_value(trial.value)}, as failed it has none", yes)
        known.correct([trial], [new], noise=sd, note=note)
        total = known.n_results
    now = "no result" if new is None else said_value(None if new is FAILED else new)
    before = said_value(trial.value)
    answer(
        {"id": name, "before": before, "now": now, "results": total},
        as_json,
        f"Corrected {name}: {before} is now {now}. The study has {count(total, 'result')}.",
        kept=ALREADY_DONE,
    )


def _trial(study: Study, id: CandidateId, was: Any) -> Trial:
    """The result that is meant."""
    trials = [trial for trial in study.history if trial.id == id]
    if not trials:
        raise InputError(f"{id!r} has no result to correct; `manyarms tell` takes a new one")
    listed = ", ".join(said_value(trial.value) for trial in trials[-5:])
    if was is None:
        if len(trials) > 1:
            raise InputError(
                f"{id!r} has {len(trials)} results, {listed}; say which is wrong with --was VALUE"
            )
        return trials[0]
    value = None if was is FAILED else was
    meant = [trial for trial in trials if _is_shown_as(trial.value, value)]
    if not meant:
        raise InputError(f"{id!r} has no result {said_value(value)}; it has {listed}")
    return meant[-1]


def _is_shown_as(value: float | None, typed: float | None) -> bool:
    """Whether a value is the one that was typed; people copy it as it is printed."""
    return value == typed or said_value(value) == said_value(typed)


def undo(
    study: StudyAt,
    event: Annotated[
        int | None,
        typer.Argument(
            metavar="[EVENT]", help="Number of an event, as `history` lists it.", show_default=False
        ),
    ] = None,
    note: Note = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Take back the last call, or an event by its number.

    A suggest, tell, failed, correct, release, retire, restore or add is then as if it had not been
    called; where the model had learned from it, it learns all that is left anew. The last call is
    that of anyone. Called twice, it takes back two calls. To take back an undo, give the number
    that it printed.

    [bold]Examples:[/bold]
      manyarms undo lab.db --note "file of another day"
      manyarms undo lab.db 12
    """
    with opened(study, worker) as known:
        before = known.pool
        taken = known.undo(event, note=note)
        events = list(known.events())
        # Candidates that were added are not in the pool any more: those of before name them.
        what = in_words(taken, events, before)
        total = known.n_results
    number = events[-1].number
    answer(
        {
            "undone": taken.number,
            "kind": taken.kind,
            "what": what,
            "event": number,
            "results": total,
        },
        as_json,
        f"Took back event {taken.number} of {clock(moment(taken.time))}: {what}.",
        f"The study has {count(total, 'result')}. Take this back with: "
        f"manyarms undo {place(study)} {number}",
        kept=ALREADY_DONE,
    )


def restore(
    study: StudyAt,
    ids: Ids,
    note: Note = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Make retired candidates available again.

    [bold]Example:[/bold]
      manyarms restore lab.db toluene-80
    """
    with opened(study, worker) as known:
        refuse_box(known, "restore to")
        names = as_ids(known.pool, ids)
        known.restore(names, note=note)
    answer(
        {"restored": names},
        as_json,
        f"Restored {count(len(set(names)), 'candidate')}.",
        kept=ALREADY_DONE,
    )
