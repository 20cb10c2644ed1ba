"""The event log: records that are only ever appended, each with a digest of itself and of its
predecessor."""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.fitting import Fit
from manyarms.campaign.model import NOTHING, Lesson, Model
from manyarms.campaign.proposers import BoxProposer, Gains, Proposer, Search
from manyarms.campaign.units import Warp
from manyarms.engine.base import Record
from manyarms.errors import StudyDamagedError
from manyarms.typing import AnyArray

NO_PREDECESSOR = "manyarms"
"""What the first event has in place of a predecessor's digest."""


@dataclass(frozen=True)
class Event:
    """One entry of the log: its number from 1, what happened, when (UTC, seconds since 1970), and
    the particulars."""

    number: int
    kind: str
    time: float
    payload: dict[str, Any]

    @property
    def tables(self) -> list[str]:
        """The digests of the tables of candidates that it brought."""
        if self.kind == "create" and "pool" in self.payload:
            prior = self.payload.get("prior")
            return [*self.payload["pool"]["tables"], *([prior["table"]] if prior else [])]
        return [self.payload["table"]] if self.kind == "add" else []


class StoredEvent(NamedTuple):
    """An event as it is stored; `record` is its JSON."""

    number: int
    kind: str
    time: float
    record: str
    digest: str


class Head(NamedTuple):
    """The number of the last event, and its digest."""

    number: int
    digest: str


START = Head(0, NO_PREDECESSOR)
"""Before the first event."""

SALVAGE = "salvage what is whole with `manyarms doctor`"
"""What to do about a study that is damaged."""


def row_after(head: Head, kind: str, time: float, payload: dict[str, Any]) -> StoredEvent:
    """The row of an event that follows."""
    # NaN is not JSON; a value that is none is written as null.
    record = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    number = head.number + 1
    return StoredEvent(number, kind, time, record, _digest(head.digest, number, kind, time, record))


def _digest(before: str, number: int, kind: str, time: float, record: str) -> str:
    # `repr` of a float is exact: the same bytes on every machine.
    return hashlib.sha256(f"{before}\n{number}\n{kind}\n{time!r}\n{record}".encode()).hexdigest()


def checked(rows: Iterable[Any], head: Head) -> tuple[list[Event], Head]:
    """The events in rows that follow a head, and the head after them; StudyDamagedError where the
    chain breaks."""
    before = head.digest
    start = head.number + 1
    whole: list[tuple[str, float]] = []
    records: list[str] = []
    for expected, (number, kind, time, record, digest) in enumerate(rows, start):
        plain = (
            type(number) is int
            and type(kind) is str
            and type(time) is float
            and type(record) is str
        )
        if not plain or number != expected or digest != _digest(before, number, kind, time, record):
            raise damaged(expected - 1, f"event {expected} is missing or not as it was written")
        whole.append((kind, time))
        records.append(record)
        before = digest
    payloads = json.loads(f"[{','.join(records)}]")  # at once: a fifth of the time
    pairs = enumerate(zip(whole, payloads, strict=True), start)
    events = [Event(number, kind, time, payload) for number, ((kind, time), payload) in pairs]
    return events, Head(head.number + len(events), before)


def damaged(whole: int, what: str) -> StudyDamagedError:
    """The error for a log of which `whole` events are good."""
    return StudyDamagedError(
        f"the log of this study is damaged: {what}; it is whole up to event {whole}",
        "go back to a copy",
        SALVAGE,
        whole=whole,
    )


# What a model decided at a step

LEARNING = ("insert", "refit")
"""The kinds of events that say what a model decided: arms entered W; a kernel, noise and units were
fitted."""


def written_lesson(lesson: Lesson) -> dict[str, Any]:
    """What was decided at a step, as JSON; arrays of floats as base64 of their bytes."""
    written: dict[str, Any] = {}
    if lesson.record is not None:
        written["entered"] = lesson.record.entered.tolist()
    if lesson.fitted is not None and lesson.warp is not None:
        fit = lesson.fitted
        warp = lesson.warp
        written["fit"] = {
            "scale": fit.scale,
            "noise": fit.noise,
            "mean": fit.mean,
            "loss": fit.loss if np.isfinite(fit.loss) else None,
        }
        written["thorough"] = lesson.n_thorough
        written["theta"] = fit.theta.tolist()
        written["warp"] = [packed(warp.values, "<f8"), packed(warp.rewards, "<f8"), warp.floor]
    return written


def read_lesson(written: dict[str, Any]) -> Lesson:
    """What `written_lesson` wrote."""
    entered = np.array(written.get("entered", ()), dtype=np.intp)
    record = Record(entered, np.zeros(0, dtype=np.intp))  # |W_s| follows from what entered
    if "fit" not in written:
        return Lesson(record)
    values, rewards, floor = written["warp"]
    warp = Warp(unpacked(values, "<f8"), unpacked(rewards, "<f8"), floor)
    found = Fit(np.array(written["theta"], dtype=np.float64), **written["fit"])
    if found.loss is None:
        found = replace(found, loss=np.inf)
    return Lesson(record, found, warp, written.get("thorough", 0))


def written_progress(proposer: Proposer) -> dict[str, Any]:
    """How a search of a box stands, as JSON, so that no step before need be known; nothing of a
    table, and none while another model knows results."""
    if not isinstance(proposer, BoxProposer):
        return {}
    gains = proposer.gains
    search = proposer.search
    if search is not None and search.model.n_results:
        return {}
    top = gains.top if np.isfinite(gains.top) else None
    progress: dict[str, Any] = {"top": top, "stalled": gains.stalled}
    if search is not None:
        progress |= {"start": search.start, "asked": list(search.asked)}
    return {"progress": progress}


def read_progress(written: dict[str, Any], proposer: Proposer, model: Model) -> Proposer:
    """What `written_progress` wrote, of a proposer with the same settings."""
    if not isinstance(proposer, BoxProposer):
        return proposer
    top = written["top"] if written["top"] is not None else -np.inf
    search = None
    if "start" in written:
        search = Search.begun(model, written["start"], tuple(written["asked"]))
    gains = Gains(top, written["stalled"])
    return replace(proposer, gains=gains, search=search, lesson=NOTHING)


def packed(array: AnyArray, dtype: str) -> str:
    """An array as text."""
    return base64.b64encode(array.astype(dtype).tobytes()).decode()


def unpacked(text: str, dtype: str) -> AnyArray:
    """The array that `packed` wrote."""
    return np.frombuffer(base64.b64decode(text), dtype=dtype)
