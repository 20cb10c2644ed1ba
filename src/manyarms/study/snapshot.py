"""Snapshots: what of a model does not follow from the log at once, so that opening a study replays
little of it.

A snapshot holds the last step the model has taken, the digest of that event, and the belief as
arrays (`engine/packing`): two triangles of |W| rows, 8|W|² bytes in all, and little else. Results,
units and kernel come from the log, which is read and checked whole in any case. A snapshot is kept
by its SHA-256 and may be thrown away at any time.
"""

import json
from bisect import bisect_right
from typing import Any

import numpy as np

from manyarms.campaign.model import Fitted, Past
from manyarms.campaign.proposers import BoxProposer, Learner
from manyarms.engine.packing import NAMES, Arrays
from manyarms.errors import StudyDamagedError
from manyarms.study.learning import StepsTaken
from manyarms.study.log import read_lesson, read_progress, written_progress
from manyarms.study.replay import Replay
from manyarms.study.storage import Transaction

EVERY = 200
"""Results from one snapshot to the next, at most; a refit has one of its own. With |W| = 1,000 a
snapshot takes 8 MB."""


def take(transaction: Transaction, replay: Replay, found: StepsTaken) -> None:
    """Keep a model that has learned, if it can be resumed."""
    model, proposer = found.learner
    progress = written_progress(proposer)
    if not model.n_results or (isinstance(proposer, BoxProposer) and not progress):
        return
    kept = model.packed()
    if kept is None:
        return
    number = replay.steps[found.done - 1].number
    arrays, norm = kept
    head = {
        "step": number,
        "event": transaction.digest_of(number),
        "records": len(found.made.keys() | _records(replay, number)),
        "norm": norm,
        **progress,
    }
    transaction.put_snapshot(number, _written(head, arrays))


def resume(
    transaction: Transaction, replay: Replay, prior: Learner, after: int
) -> tuple[Learner, int] | None:
    """What was kept, and the steps it has taken; None where there is none or it has not taken more
    than `after`.

    StudyDamagedError for a snapshot that is not as it was written, or of another log.
    """
    data = transaction.snapshot()
    if data is None:
        return None
    try:
        head, arrays = _read(data)
        numbers = [step.number for step in replay.steps]
        done = bisect_right(numbers, head["step"])
        if done <= after or len(_records(replay, head["step"])) != head["records"]:
            return None  # nothing is gained, or others went on otherwise
        if (
            numbers[done - 1] != head["step"]
            or transaction.digest_of(head["step"]) != head["event"]
        ):
            raise StudyDamagedError("it is of another log")
        fitted, past = _past(replay, done)
        arms = replay.steps[done - 1].candidates.X
        model = prior.model.resumed(arms, fitted, past, arrays, head["norm"])
        proposer = prior.proposer
        if "progress" in head:
            proposer = read_progress(head["progress"], proposer, model)
        return Learner(model, proposer), done
    except (LookupError, TypeError, ValueError) as error:
        raise StudyDamagedError(f"it cannot be understood: {error!r}") from error


def _past(replay: Replay, done: int) -> tuple[Fitted | None, Past]:
    """The last fit of the first `done` steps, and what was decided since."""
    steps = replay.steps[:done]
    fits = [i for i, step in enumerate(steps) if "fit" in replay.records.get(step.number, ())]
    begin = fits[-1] if fits else 0
    fitted = None
    if fits:
        lesson = read_lesson(replay.records[steps[begin].number])
        if lesson.fitted is not None and lesson.warp is not None:
            fitted = Fitted(lesson.fitted, lesson.warp, steps[begin].stop, lesson.n_thorough)
    since = steps[begin:]
    stops = np.array([step.stop for step in since])
    entered = {
        i: np.array(replay.records[step.number]["entered"], dtype=np.intp)
        for i, step in enumerate(since)
        if replay.records.get(step.number, {}).get("entered")
    }
    n = steps[-1].stop
    return fitted, Past(
        replay.all_results(steps[-1]), np.searchsorted(stops, np.arange(n), side="right"), entered
    )


def _written(head: dict[str, Any], arrays: Arrays) -> bytes:
    """A line of JSON, and the bytes of the arrays one behind the other."""
    sizes = [int(arrays[name].size) for name in NAMES]
    parts = [arrays[name].astype(dtype).tobytes() for name, dtype in NAMES.items()]
    return b"".join([json.dumps({**head, "sizes": sizes}, allow_nan=False).encode(), b"\n", *parts])


def _read(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """What `_written` wrote."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    arrays: Arrays = {}
    start = 0
    for (name, dtype), size in zip(NAMES.items(), head["sizes"], strict=True):
        arrays[name] = np.frombuffer(rest, dtype=dtype, count=size, offset=start)
        start += arrays[name].nbytes
    return head, arrays


def _records(replay: Replay, number: int) -> set[int]:
    """The steps up to an event about which something was decided."""
    return {step for step in replay.records if step <= number}
