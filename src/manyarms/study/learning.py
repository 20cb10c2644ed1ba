"""How the model of a study learns from its log, step by step: as recorded, or anew where no one has taken a step yet."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from manyarms.arms import as_rows
from manyarms.model import GROWTH, Model, Record
from manyarms.search.parallel import blas
from manyarms.study.ledger import Ledger, Step
from manyarms.study.log import read_record, written_record

AT_ONCE = 16
"""Steps that no one has taken are taken one by one up to this many; more of them, and a refit due: as one step."""

Resume = Callable[[int], tuple[Model, int] | None]
"""Of a number of steps: a model that has taken more, and how many, where a snapshot has one."""


class Learned(NamedTuple):
    """A model, the steps it has taken, and the events to write for those that no one had taken before."""

    begun: int  # steps taken before
    done: int
    model: Model
    recorded: int  # steps up to this event had been taken by someone
    made: dict[int, tuple[str, dict[str, Any]]]  # event and its payload by step

    def agrees(self, ledger: Ledger) -> bool:
        """Whether those who took the same steps meanwhile drew and fitted the same."""
        later = [step.number for step in ledger.steps[self.begun : self.done] if self.recorded < step.number <= ledger.learned]
        return all(ledger.records.get(number) == self.made.get(number, (None, None))[1] for number in later)

    def followed_by(self, more: "Learned") -> "Learned":
        """These steps and those that were taken after them."""
        return self._replace(done=more.done, model=more.model, made={**self.made, **more.made})


def learn(ledger: Ledger, model: Model, done: int, resume: Resume, seconds: float = float("inf")) -> Learned:
    """Take the steps that are left, or those that so much time allows, one at least."""
    steps, records, begun = ledger.steps, ledger.records, done
    fits = [i for i in range(done, len(steps)) if "fit" in records.get(steps[i].number, ())]
    found = resume(max([done, *fits]))
    if found is not None:
        model, done = found
    elif fits:  # all before is superseded
        done = fits[-1]
        model = replace(model, arms=as_rows(steps[done].pool.X))
    made: dict[int, tuple[str, dict[str, Any]]] = {}
    until = time.monotonic() + seconds
    while done < len(steps):
        step = steps[done]
        if step.number > ledger.learned and len(steps) - done > AT_ONCE and _is_refit_due(model, steps[-1]):
            done, step = len(steps) - 1, steps[-1]
            model = replace(model, arms=as_rows(step.pool.X))
            with blas().limit(limits=1):
                after = model.refitted(*ledger.all_results(step))
        else:
            with blas().limit(limits=1):
                after = _taken(ledger, model, step)
        record = after.since(model)
        if step.number > ledger.learned and record:
            size = {"dimension": float(after.policy.effective_dimension)}
            payload = {"step": step.number, **size, **written_record(record)}
            made[step.number] = "refit" if record.fitted else "draw", payload
        model, done = after, done + 1
        if time.monotonic() > until:
            break
    return Learned(begun, done, model, ledger.learned, made)


def _taken(ledger: Ledger, model: Model, step: Step) -> Model:
    """The model after one more step."""
    if step.number in ledger.records:
        record: Record | None = read_record(ledger.records[step.number])
    else:
        record = Record(None, None, None) if step.number <= ledger.learned else None
    if step.stop > step.start:
        return model.told(*ledger.new_results(step), lambda: ledger.all_results(step), record)
    return model.on(step.pool.X, *ledger.all_results(step), record)


def _is_refit_due(model: Model, last: Step) -> bool:
    return model.settings.learns and last.stop >= max(1, GROWTH * model.n_fitted)
