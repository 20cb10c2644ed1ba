"""Results are written into a study: told and corrected at once, and what is said of that."""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from manyarms.campaign.trials import FAILED, CandidateId
from manyarms.cli.changes import said_value
from manyarms.cli.output import ALREADY_DONE, answer, confirm, count, shown, told
from manyarms.cli.output import note as remark
from manyarms.cli.tables import Row
from manyarms.cli.telling import Correction, Sorted
from manyarms.study import Study


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
    check_failed(study, [row.id for row in written if row.value is FAILED], yes)
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
    for sentence in _doubts(study, new):
        remark(sentence)
    lines = [f"Corrected {each['id']}: {each['before']} is now {each['now']}." for each in before]
    only_corrected = corrections and not new
    last = f"The study has {count(total, 'result')}."
    answer(
        data,
        as_json,
        *lines,
        last if only_corrected else told(len(new), n_failed, total),
        kept=ALREADY_DONE,
    )


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


def check_failed(study: Study, ids: list[CandidateId], yes: bool) -> None:
    """Ask whether candidates that have values failed: they are neither suggested nor recommended
    any more."""
    if not ids:  # the history of a long study takes a while to make
        return
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
