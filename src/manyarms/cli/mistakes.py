"""What takes mistakes back: correct, undo; and what was changed in a study, in words."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from manyarms.campaign.trials import FAILED, Trial
from manyarms.cli.app import Decimal, InputError, Note, StudyAt, Worker, Yes, opened
from manyarms.cli.output import ALREADY_DONE, Answer, clock, confirm, count, moment, shown
from manyarms.cli.tables import as_ids, as_noise, as_value, marks, place, unit_of
from manyarms.space.points import Space
from manyarms.study import Event, Study

NO_RESULT = "none"
"""What stands for no result in place of a value."""
CHANGES = ("correct", "undo", "retire", "restore", "retype")
"""The kinds of events that change what was told, or who is available."""
LISTED = 4
"""Candidates that a sentence names."""
DONE_WITH = {"retire": "retired", "restore": "restored", "release": "released", "ask": "suggested"}


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
) -> Answer:
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
        pool = known.pool
        (name,) = as_ids(pool, [id])
        mark, unit = decimal or pool.decimal, unit_of(pool)
        new = None if value.strip() == NO_RESULT else as_value(value, mark, f"{name!r}", unit)
        sd = as_noise(noise, mark, f"{name!r}")
        old = None if was is None else as_value(was, mark, f"--was of {name!r}", unit)
        trial = _trial(known, name, old)
        before = said_value(trial.value)
        if new is FAILED and not trial.failed:
            confirm(f"{name!r} has a value, {before}, as failed it has none", yes)
        known.correct([trial], [new], noise=sd, note=note)
        total = known.n_results
    now = "no result" if new is None else said_value(new)
    return Answer.of(
        {"id": name, "before": before, "now": now, "results": total},
        f"Corrected {name}: {before} is now {now}. The study has {count(total, 'result')}.",
        kept=ALREADY_DONE,
    )


def _trial(study: Study, label: Any, was: Any) -> Trial:
    """The result that is meant; `was` is its value, None where that was not said."""
    (id,) = study.pool.ids_of([label])
    trials = [trial for trial in study.history if trial.id == id]
    if not trials:
        raise InputError(f"{label!r} has no result to correct; `manyarms tell` takes a new one")
    listed = ", ".join(said_value(trial.value) for trial in trials[-5:])
    if was is None:
        if len(trials) > 1:
            raise InputError(
                f"{label!r} has {len(trials)} results, {listed}; say which is wrong with --was "
                "VALUE"
            )
        return trials[0]
    # People copy a value as it is printed.
    meant = [each for each in trials if said_value(each.value) == said_value(was)]
    if not meant:
        raise InputError(f"{label!r} has no result {said_value(was)}; it has {listed}")
    return meant[-1]


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
) -> Answer:
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
    return Answer.of(
        {
            "undone": taken.number,
            "kind": taken.kind,
            "what": what,
            "event": number,
            "results": total,
        },
        f"Took back event {taken.number} of {clock(moment(taken.time))}: {what}.",
        f"The study has {count(total, 'result')}. Take this back with: "
        f"manyarms undo {place(study)} {number}",
        kept=ALREADY_DONE,
    )


def changes_of(events: Sequence[Event], pool: Space) -> list[dict[str, Any]]:
    """Every change in a log, oldest first: event, time, worker, what was changed, and why."""
    return [
        {
            "event": event.number,
            "time": moment(event.time),
            "worker": event.payload.get("worker"),
            "change": in_words(event, events, pool),
            "note": event.payload.get("note"),
        }
        for event in events
        if event.kind in CHANGES
    ]


def listed_changes(changes: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """The same for people: header and rows."""
    rows = [[*(change | {"time": clock(change["time"])}).values()] for change in changes]
    return list(changes[0]) if changes else [], rows


def in_words(event: Event, events: Sequence[Event], pool: Space) -> str:
    """What an event did."""
    payload = event.payload
    match event.kind:
        case "undo":
            target = events[payload["event"] - 1]
            if target.kind == "undo":
                return f"took back event {target.number}, which took back another"
            return f"took back event {target.number}: {in_words(target, events, pool)}"
        case "add":
            return f"added {count(payload['n'], 'candidate')}"
        case "retype":
            what = [
                f"{name} {kind if isinstance(kind, str) else ', '.join(map(str, kind))}"
                for name, kind in payload["columns"].items()
            ]
            done = "changed the types of columns:"
        case "note":
            done, what = "noted", payload["notes"]
        case "tell":
            labels = pool.labels(payload["ids"])
            values = map(said_value, payload["values"])
            done, what = (
                "told",
                [" ".join(map(str, pair)) for pair in zip(labels, values, strict=True)],
            )
        case "correct":
            done, what = "corrected", _corrected(pool.labels(payload["ids"]), payload)
        case kind:
            done, what = DONE_WITH[kind], list(map(str, pool.labels(payload["ids"])))
    more = len(what) - LISTED
    return f"{done} {', '.join(what[:LISTED])}{f' and {more:,} more' if more > 0 else ''}"


def _corrected(labels: list[Any], payload: dict[str, Any]) -> list[str]:
    now = list(map(said_value, payload["values"]))
    for i in payload.get("removed", ()):
        now[i] = "no result"
    return [
        f"{label} from {said_value(old)} to {new}"
        for label, old, new in zip(labels, payload["before"], now, strict=True)
    ]


def said_value(value: Any) -> str:
    """A value, or that there was none."""
    return "failed" if value is None or value is FAILED else shown(value)
