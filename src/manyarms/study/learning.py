"""How the model of a study learns from its log, step by step: as recorded, or anew where no one has
taken a step yet."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from manyarms.arms import as_rows
from manyarms.campaign.model import NOTHING, Model, is_size_due
from manyarms.search.work import blas
from manyarms.study.log import read_lesson, written_lesson
from manyarms.study.replay import ModelStep, Replay

AT_ONCE = 16
"""Steps that no one has taken are taken one by one up to this many; more of them, and a refit due:
as one step."""

Resume = Callable[[int], tuple[Model, int] | None]
"""Of a number of steps: a model that has taken more, and how many, where a snapshot has one."""


class StepsTaken(NamedTuple):
    """A model, the steps it has taken, and the events to write for those that no one had taken
    before."""

    begun: int  # steps taken before
    done: int
    model: Model
    recorded: int  # steps up to this event had been taken by someone
    made: dict[int, tuple[str, dict[str, Any]]]  # event and its payload by step

    def agrees(self, replay: Replay) -> bool:
        """Whether those who took the same steps meanwhile decided the same."""
        later = [
            step.number
            for step in replay.steps[self.begun : self.done]
            if self.recorded < step.number <= replay.learned
        ]
        made = {number: payload for number, (_, payload) in self.made.items()}
        return all(
            _decided(replay.records.get(number)) == _decided(made.get(number)) for number in later
        )

    def followed_by(self, more: "StepsTaken") -> "StepsTaken":
        """These steps and those that were taken after them."""
        return self._replace(done=more.done, model=more.model, made={**self.made, **more.made})


def learn(
    replay: Replay, model: Model, done: int, resume: Resume, seconds: float = float("inf")
) -> StepsTaken:
    """Take the steps that are left, or those that so much time allows, one at least."""
    steps = replay.steps
    records = replay.records
    begun = done
    fits = [i for i in range(done, len(steps)) if "fit" in records.get(steps[i].number, ())]
    found = resume(max([done, *fits]))
    if found is not None:
        model, done = found
    elif fits:  # all before is superseded
        done = fits[-1]
        model = replace(model, arms=as_rows(steps[done].pool.X))
    made: dict[int, tuple[str, dict[str, Any]]] = {}
    n_sized = replay.n_sized
    until = time.monotonic() + seconds
    while done < len(steps):
        step = steps[done]
        is_new = step.number > replay.learned
        with blas().limit(limits=1):
            if is_new and len(steps) - done > AT_ONCE and model.is_stale(steps[-1].stop):
                done = len(steps) - 1
                step = steps[-1]
                model = replace(model, arms=as_rows(step.pool.X)).refitted(
                    *replay.all_results(step)
                )
            else:
                model = _taken(replay, model, step)
            if is_new and model.lesson:
                payload = {"step": step.number, **written_lesson(model.lesson)}
                if is_size_due(step.stop, n_sized):
                    n_sized = step.stop
                    payload["size"] = list(model.size)
                made[step.number] = "refit" if model.lesson.fitted else "insert", payload
        done += 1
        if time.monotonic() > until:
            break
    return StepsTaken(begun, done, model, replay.learned, made)


def _taken(replay: Replay, model: Model, step: ModelStep) -> Model:
    """The model after one more step; as it was decided, where someone has taken it."""
    if step.stop == step.start:
        return model.on(step.pool.X, *replay.all_results(step))
    lesson = None
    if step.number in replay.records:
        lesson = read_lesson(replay.records[step.number])
    elif step.number <= replay.learned:
        lesson = NOTHING
    return model.told(*replay.new_results(step), lambda: replay.all_results(step), lesson)


def _decided(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record without what is only looked at, which may differ by rounding."""
    return (
        None
        if record is None
        else {name: value for name, value in record.items() if name != "size"}
    )
