"""Snapshots: what of a model does not follow from the log, so that it need not be learned again when a study is opened.

A snapshot holds the last step the model has taken, the digest of that event, the dictionary, the working set in its order, the
state of the generator and the evidence: some kilobytes of JSON, arrays as base64, kept by their SHA-256. Results, units and
kernel come from the log, which is read and checked whole in any case. A snapshot may be thrown away at any time.
"""

import json
from bisect import bisect_right
from dataclasses import asdict

import numpy as np

from manyarms.errors import StudyDamagedError
from manyarms.model import Model
from manyarms.policies.resuming import Kept
from manyarms.sketch.confidence import Evidence
from manyarms.study.learning import Learned
from manyarms.study.ledger import Ledger
from manyarms.study.log import packed, read_record, unpacked
from manyarms.study.storage import Transaction

EVERY = 64
"""Steps from one snapshot to the next, at most; a refit has one of its own."""


def take(transaction: Transaction, ledger: Ledger, found: Learned) -> None:
    """Keep a model that has learned, if its policy can be resumed."""
    kept, number = found.model.kept, ledger.steps[found.done - 1].number
    if kept is None:
        return
    held = {
        "step": number,
        "event": transaction.digest_of(number),
        "records": len(found.made.keys() | _records(ledger, number)),
        "dictionary": packed(kept.dictionary, "<i8"),
        "inducing": packed(kept.inducing, "<i8"),
        "chance": kept.chance,
        "evidence": asdict(kept.evidence),
        "exact": kept.exact,
        "table": packed(kept.table, "<i8"),
        "oversampling": kept.oversampling,
    }
    transaction.put_snapshot(number, json.dumps(held, allow_nan=False).encode())


def resume(transaction: Transaction, ledger: Ledger, prior: Model, after: int) -> tuple[Model, int] | None:
    """The model that was kept, and the steps it has taken; None where there is none or it has not taken more than `after`.

    StudyDamagedError for a snapshot that is not as it was written, or of another log.
    """
    data = transaction.snapshot()
    if data is None:
        return None
    try:
        held = json.loads(data)
        numbers = [step.number for step in ledger.steps]
        done = bisect_right(numbers, held["step"])
        if done <= after or len(_records(ledger, held["step"])) != held["records"]:  # others went on otherwise
            return None
        if numbers[done - 1] != held["step"] or transaction.digest_of(held["step"]) != held["event"]:
            raise StudyDamagedError("it is of another log")
        arms = [unpacked(held[name], "<i8").astype(np.intp) for name in ("dictionary", "inducing", "table")]
        evidence, oversampling = Evidence(**held["evidence"]), float(held["oversampling"])
        kept = Kept(arms[0], arms[1], held["chance"], evidence, held["exact"], arms[2], oversampling)
    except (KeyError, TypeError, ValueError) as error:
        raise StudyDamagedError(f"it cannot be understood: {error!r}") from error
    last = ledger.steps[done - 1]
    recorded = [step for step in ledger.steps[:done] if step.number in ledger.records]
    fits = [step for step in recorded if "fit" in ledger.records[step.number]]
    fitted = None
    if fits:
        record = read_record(ledger.records[fits[-1].number])
        if record.fitted is not None and record.warp is not None:
            fitted = record.fitted, record.warp, fits[-1].stop
    drawn = next((step.stop for step in reversed(recorded) if "drawn" in ledger.records[step.number]), 0)
    return prior.resumed(last.pool.X, fitted, *ledger.all_results(last), drawn, kept), done


def _records(ledger: Ledger, number: int) -> set[int]:
    """The steps up to an event at which someone drew or fitted."""
    return {step for step in ledger.records if step <= number}
