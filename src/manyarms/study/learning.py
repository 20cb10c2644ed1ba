"""How the model of a study learns from its log, step by step: as recorded, or anew where no one has
taken a step yet."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from manyarms.arms import as_rows
from manyarms.campaign.candidates import Points
from manyarms.campaign.model import NOTHING, is_size_due
from manyarms.campaign.proposers import Learner
from manyarms.lapack import OneThread
from manyarms.study.log import read_lesson, read_progress, written_lesson, written_progress
from manyarms.study.replay import ModelStep, Replay

AT_ONCE = 16
"""Steps that no one has taken are taken one by one up to this many; more of them, and a refit due:
as one step."""

Resume = Callable[[int], tuple[Learner, int] | None]
"""Of a number of steps: what has learned from more, and from how many, where a snapshot has it."""


class StepsTaken(NamedTuple):
    """What has learned, the steps it has taken, and the events to write for those that no one had
    taken before."""

    begun: int  # steps taken before
    done: int
    learner: Learner
    recorded: int  # steps up to this event had been taken by someone
    anew: int  # the event at which the model began anew last
    made: dict[int, tuple[str, dict[str, Any]]]  # event and its payload by step

    @property
    def n_results(self) -> int:
        """Values that were learned from."""
        return self.learner.model.n_results

    def agrees(self, replay: Replay) -> bool:
        """Whether those who took the same steps meanwhile decided the same."""
        if self.anew != replay.begun:
            return False  # the steps are others now
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
        return self._replace(done=more.done, learner=more.learner, made={**self.made, **more.made})


def learn(
    replay: Replay, learner: Learner, done: int, resume: Resume, seconds: float = float("inf")
) -> StepsTaken:
    """Take the steps that are left, or those that so much time allows, one at least."""
    steps = replay.steps
    begun = done
    # A refit makes the model anew from all results: it is enough to begin at the last one.
    restarts = [i for i in range(done, len(steps)) if replay.is_restart(steps[i])]
    found = resume(max([done, *restarts]))
    if found is not None:
        learner, done = found
    elif restarts:  # all before is superseded
        done = restarts[-1]
        learner = learner.over(as_rows(steps[done].candidates.X))
    candidates = replay.ledger.candidates
    if isinstance(candidates, Points):  # those of later steps do no harm
        learner = learner.over(candidates.X)
    made: dict[int, tuple[str, dict[str, Any]]] = {}
    n_sized = replay.n_sized
    until = time.monotonic() + seconds
    while done < len(steps):
        step = steps[done]
        is_new = step.number > replay.learned
        if is_new and len(steps) - done > AT_ONCE and _is_due(learner, steps[-1]):
            # A backlog that ends in a refit: what comes before it would be thrown away.
            learner = _taken_at_once(replay, learner, steps[done:])
            done = len(steps) - 1
            step = steps[-1]
        else:
            learner = _taken(replay, learner, step)
        # What someone has recorded of a step stands, and is not written again.
        payload = _written(learner) if is_new else {}
        if payload:
            if is_size_due(step.stop, n_sized):
                n_sized = step.stop
                payload["size"] = list(learner.model.size)
            kind = "refit" if learner.model.lesson.fitted else "insert"
            made[step.number] = kind, {"step": step.number, **payload}
        done += 1
        if time.monotonic() > until:
            break
    return StepsTaken(begun, done, learner, replay.learned, replay.begun, made)


def _is_due(learner: Learner, last: ModelStep) -> bool:
    """Whether a fit to all results up to this step may take the place of the steps before."""
    return not learner.proposer.is_elsewhere and learner.model.is_stale(last.stop)


def _taken_at_once(replay: Replay, learner: Learner, steps: list[ModelStep]) -> Learner:
    """After steps that no one has taken, as one."""
    news = replay.news(steps)
    with OneThread():
        model = learner.over(as_rows(steps[-1].candidates.X)).model.refitted(*news.results())
    return Learner(model, learner.proposer.after(model, news))


def _taken(replay: Replay, learner: Learner, step: ModelStep) -> Learner:
    """After one more step; as it was decided, where someone has taken it."""
    news = replay.news([step])
    # Candidates were added; or the model begins anew, with all candidates that there are.
    if (step.stop == step.start or step.is_anew) and not isinstance(step.candidates, Points):
        with OneThread():
            model = learner.model.on(step.candidates.X, *replay.ledger.results(0, step.start))
        learner = learner._replace(model=model)
    if step.stop == step.start:
        return learner
    model, proposer = learner
    if step.number > replay.learned:
        return learner.told(news)
    record = replay.records.get(step.number, {})
    lesson = read_lesson(record)
    if "progress" in record:  # what proposes does not depend on the steps before, either
        with OneThread():
            model = model.told(*news.new, news.results, lesson)
        return Learner(model, read_progress(record["progress"], proposer, model))
    other = read_lesson(record["search"]) if "search" in record else NOTHING
    return learner.told(news, (lesson, other))


def _written(learner: Learner) -> dict[str, Any]:
    """What was decided at the last step, as JSON; nothing where nothing was."""
    model, proposer = learner
    written: dict[str, Any] = {}
    if model.lesson:
        written = written_lesson(model.lesson)
    if proposer.lesson:
        written["search"] = written_lesson(proposer.lesson)
    if model.lesson.fitted:
        written |= written_progress(proposer)
    return written


def _decided(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record without what is only looked at, which may differ by rounding."""
    return (
        None
        if record is None
        else {name: value for name, value in record.items() if name != "size"}
    )
