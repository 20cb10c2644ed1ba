"""Rows of files against what a study has: which are new, known, or correct a result."""

from collections import defaultdict
from typing import Any, NamedTuple

from manyarms.campaign.trials import FAILED, CandidateId, Trial
from manyarms.cli.boxes import NumberedPoints
from manyarms.cli.tables import Row
from manyarms.study import Study
from manyarms.study.events import taken_back

Pair = tuple[Trial, Row]


class Correction(NamedTuple):
    """A result, and the row that says otherwise; None: no row has it, and it is taken back."""

    trial: Trial
    row: Row | None


class Sorted(NamedTuple):
    """Rows by what they are to a study."""

    new: list[Row]
    corrections: list[Correction]
    n_known: int = 0
    n_stale: int = 0  # their value was corrected in the study, the file still has the old one
    notes: tuple[tuple[Trial, str], ...] = ()  # results whose rows have another note now


def all_new(rows: list[Row]) -> Sorted:
    """Every row is another trial."""
    return Sorted(rows, [])


def replacing(study: Study, rows: list[Row]) -> Sorted:
    """The rows take the place of all results that their candidates have: of those of the same
    batch, where a file says which."""
    new: list[Row] = []
    corrections: list[Correction] = []
    equal: list[Pair] = []
    trials_of = _by_candidate(study)
    for (id, batch), mine in _by_suggestion(rows).items():
        same = [trial for trial in trials_of[id] if batch and trial.batch == batch]
        pairs, trials, rest = _paired(same or trials_of[id], mine)
        equal += pairs
        n = max(len(trials), len(rest))
        for trial, row in zip(_padded(trials, n), _padded(rest, n), strict=True):
            if trial is None:
                new.append(row)
            else:
                corrections.append(Correction(trial, row))
    return Sorted(_in_order(rows, new), corrections, len(equal), 0, _new_notes(equal, corrections))


def compared(study: Study, rows: list[Row]) -> Sorted:
    """A row is known if the study has its result: of the same suggestion and value, or, where that
    is not said, of the same candidate and value and told after it was suggested. Another value of
    the same suggestion is a correction."""
    new: list[Row] = []
    corrections: list[Correction] = []
    equal: list[Pair] = []
    n_stale = 0
    trials_of = _by_candidate(study)
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
        corrections += [Correction(*pair) for pair in zip(others, rest, strict=False)]
        new += rest[len(others) :]
    notes = _new_notes(equal, corrections)
    return Sorted(_in_order(rows, new), corrections, len(equal), n_stale, notes)


def _new_notes(equal: list[Pair], corrections: list[Correction]) -> tuple[tuple[Trial, str], ...]:
    """Results whose rows have another note than they were told with."""
    pairs = [*equal, *((trial, row) for trial, row in corrections if row)]
    return tuple((trial, row.note) for trial, row in pairs if row.note and row.note != trial.note)


def _said(value: Any) -> float | None:
    """A value as events have it."""
    return None if value is FAILED else value


def _by_candidate(study: Study) -> dict[CandidateId, list[Trial]]:
    found: dict[Any, list[Trial]] = defaultdict(list)
    for trial in study.history:
        found[trial.id].append(trial)
    return found


def _by_suggestion(rows: list[Row]) -> dict[tuple[Any, int], list[Row]]:
    """Rows by candidate and batch, in the order of the files."""
    found: dict[tuple[Any, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.id, row.batch].append(row)
    return found


def _in_order(rows: list[Row], some: list[Row]) -> list[Row]:
    """Some of the rows, in the order of the files."""
    place_of = {id(row): place for place, row in enumerate(rows)}  # equal rows are two
    return sorted(some, key=lambda row: place_of[id(row)])


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


def _padded(items: list[Any], n: int) -> list[Any]:
    return [*items, *[None] * (n - len(items))]


def _corrected_values(study: Study) -> dict[tuple[Any, int], list[float | None]]:
    """By candidate and batch, values that results had before they were corrected."""
    events = list(study.events())
    void = taken_back(events)
    pool: Any = study.pool
    found: dict[tuple[Any, int], list[float | None]] = defaultdict(list)
    for event in events:
        if event.kind != "correct" or event.number in void:
            continue
        said = event.payload
        ids = pool.numbers(said["ids"]) if isinstance(pool, NumberedPoints) else said["ids"]
        for id, (number, place), value in zip(ids, said["of"], said["before"], strict=True):
            told = events[number - 1].payload
            batch = told["batches"][place] if "batches" in told else 0
            found[id, batch].append(value)
    return found
