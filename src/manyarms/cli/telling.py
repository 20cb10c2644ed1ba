"""Rows of files against what a study has: which are new, known, or correct a result."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from manyarms.campaign.trials import FAILED, Trial
from manyarms.cli.reading import Row
from manyarms.study import Study
from manyarms.study.events import taken_back

Pair = tuple[Trial, Row]


class Correction(NamedTuple):
    """A result, and the row that says otherwise; None: no row has it, and it is taken back."""

    id: Any
    trial: Trial
    row: Row | None


class Sorted(NamedTuple):
    """Rows by what they are to a study."""

    new: list[Row]
    corrections: list[Correction]
    n_known: int = 0
    n_stale: int = 0  # their value was corrected in the study, the file still has the old one
    notes: tuple[tuple[Trial, str], ...] = ()  # results whose rows have another note now


def replacing(study: Study, rows: list[Row]) -> Sorted:
    """The rows take the place of all results that their candidates have: of those of the same
    batch, where a file says which."""
    new: list[Row] = []
    corrections: list[Correction] = []
    equal: list[Pair] = []
    trials_of = results_by_label(study, [row.id for row in rows])
    for (id, batch), mine in _by_suggestion(rows).items():
        same = [trial for trial in trials_of[id] if batch and trial.batch == batch]
        pairs, trials, rest = _paired(same or trials_of[id], mine)
        equal += pairs
        corrections += [Correction(id, *pair) for pair in zip_longest(trials, rest[: len(trials)])]
        new += rest[len(trials) :]
    return _sorted(rows, new, corrections, equal, 0)


def compared(study: Study, rows: list[Row]) -> Sorted:
    """A row is known if the study has its result: of the same suggestion and value, or, where that
    is not said, of the same candidate and value and told after it was suggested. Another value of
    the same suggestion is a correction."""
    new: list[Row] = []
    corrections: list[Correction] = []
    equal: list[Pair] = []
    n_stale = 0
    trials_of = results_by_label(study, [row.id for row in rows])
    corrected = _corrected_values(study)
    for (id, batch), mine in _by_suggestion(rows).items():
        same = [trial for trial in trials_of[id] if trial.batch == batch or not batch]
        # Told by hand, or by a version that did not keep the batch.
        unsaid = [
            trial
            for trial in trials_of[id]
            if batch and not trial.batch and (trial.event or 0) > batch
        ]
        pairs, others, rest = _paired(same, mine)
        more, _, rest = _paired(unsaid, rest)
        equal += [*pairs, *more]
        stale = [row for row in rest if _said(row.value) in corrected[id, batch]]
        rest = [row for row in rest if row not in stale]
        n_stale += len(stale)
        # Without a batch another value is another trial.
        others = others[len(stale) :] if batch else []
        corrections += [Correction(id, *pair) for pair in zip(others, rest, strict=False)]
        new += rest[len(others) :]
    return _sorted(rows, new, corrections, equal, n_stale)


def _sorted(
    rows: list[Row],
    new: list[Row],
    corrections: list[Correction],
    equal: list[Pair],
    n_stale: int,
) -> Sorted:
    """What was found of rows: those that are new in the order of the files, and notes that differ
    from those that results were told with."""
    place_of = {id(row): place for place, row in enumerate(rows)}  # equal rows are two
    pairs = [*equal, *((each.trial, each.row) for each in corrections if each.row)]
    return Sorted(
        sorted(new, key=lambda row: place_of[id(row)]),
        corrections,
        len(equal),
        n_stale,
        tuple((trial, row.note) for trial, row in pairs if row.note and row.note != trial.note),
    )


def _said(value: Any) -> float | None:
    """A value as events have it."""
    return None if value is FAILED else value


def results_by_label(study: Study, labels: Sequence[Any]) -> dict[Any, list[Trial]]:
    """The results of these candidates, by their ids as they are shown."""
    trials = study.results_of(study.pool.ids_of(list(dict.fromkeys(labels)))) if labels else []
    found: dict[Any, list[Trial]] = defaultdict(list)
    for label, trial in zip(study.pool.labels([each.id for each in trials]), trials, strict=True):
        found[label].append(trial)
    return found


def _by_suggestion(rows: list[Row]) -> dict[tuple[Any, int], list[Row]]:
    """Rows by candidate and batch, in the order of the files."""
    found: dict[tuple[Any, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.id, row.batch].append(row)
    return found


def _paired(trials: list[Trial], rows: list[Row]) -> tuple[list[Pair], list[Trial], list[Row]]:
    """Rows with results of the same value, each once; and the results and rows that are left."""
    left = list(trials)
    pairs: list[Pair] = []
    rest = []
    for row in rows:
        match = next((trial for trial in left if trial.value == _said(row.value)), None)
        if match is None:
            rest.append(row)
        else:
            left.remove(match)
            pairs.append((match, row))
    return pairs, left, rest


def _corrected_values(study: Study) -> dict[tuple[Any, int], list[float | None]]:
    """By candidate and batch, values that results had before they were corrected."""
    found: dict[tuple[Any, int], list[float | None]] = defaultdict(list)
    if not study.is_changed:  # the log of a long study takes a while to read
        return found
    events = list(study.events())
    void = taken_back(events)
    for event in events:
        if event.kind == "correct" and event.number not in void:
            said = event.payload
            labels = study.pool.labels(said["ids"])
            for label, (number, place), value in zip(
                labels, said["of"], said["before"], strict=True
            ):
                told = events[number - 1].payload
                batch = told["batches"][place] if "batches" in told else 0
                found[label, batch].append(value)
    return found
