"""What to try next. A table is searched, here; a box is climbed (`boxes`)."""

from copy import copy
from dataclasses import replace

import numpy as np

from manyarms.campaign.batching import BatchConditions, sum_of_bounds
from manyarms.campaign.boxes import climb, doubting
from manyarms.campaign.campaign import Campaign
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model
from manyarms.campaign.settings import Exploration
from manyarms.campaign.trials import FORECAST_WIDTH, Forecast
from manyarms.errors import StateError
from manyarms.lapack import in_one_thread
from manyarms.typing import Indices, Mask


@in_one_thread
def propose(now: Campaign, n: int, rule: BatchConditions | None = None) -> Ledger:
    """The books after n candidates were asked for, or fewer where no more are left: the last ones
    of what is pending."""
    rules = [None] if rule is None else rule.levels(now.ledger.is_open)
    batches = [_batch(now, n, each) for each in rules]
    before = len(now.ledger.pending)
    most = max((len(batch.pending) for batch in batches), default=before)
    if most == before:
        raise StateError(_nothing_left(now.ledger, rule))
    largest = [batch for batch in batches if len(batch.pending) == most]
    if len(largest) == 1:
        return largest[0]
    arm_of = now.ledger.candidates.arm_of
    waiting = arm_of[now.ledger.waiting]

    def worth(batch: Ledger) -> float:
        return sum_of_bounds(now.model, waiting, arm_of[batch.waiting[before:]])

    return max(largest, key=worth)


def _batch(now: Campaign, n: int, rule: BatchConditions | None) -> Ledger:
    """The books after n candidates that the conditions allow were asked for, or fewer."""
    ledger = now.ledger
    box = ledger.candidates.box
    model = chooser(now)
    picked: list[int] = []
    for _ in range(n):
        if box is None:
            found = _searched(ledger, model, None if rule is None else rule.allowed(picked))
        else:
            row = climb(box, ledger, model)
            found = None
            if row is not None:
                ledger, positions = ledger.knowing(box.decode(row[None]))
                found = int(positions[0])
        if found is None:
            break
        picked.append(found)
        forecast = _forecast(now.knowing(ledger), found)
        ledger = ledger.asked([found], forecasts=[forecast])
    return ledger


def chooser(now: Campaign) -> Model:
    """The model that chooses: what failed has given a reward in it.

    Over a box it is that of a search elsewhere, if there is one. A model that knows a good region
    has its units from there: what is much worse elsewhere passes for equally bad and is not
    climbed, so that a run that ended in the second best of several basins stays in it. One that
    knows later results only looks elsewhere.
    """
    if now.ledger.candidates.box is not None:
        return doubting(now.ledger, now.model.elsewhere or now.model)
    # Where kernel and noise are given, no theorem would cover what is made of failures.
    return _avoiding(now.ledger, now.model) if now.model.settings.learns else now.model


def _forecast(now: Campaign, position: int) -> Forecast | None:
    """What the model predicts of the next result of a candidate; None while candidates are drawn
    at random."""
    if now.model.is_drawing:
        return None
    mean, std = now.model.predict(now.ledger.candidates.arm_of[[position]])
    of_result = now.model.in_values(mean, np.hypot(std, now.model.noise), FORECAST_WIDTH)
    middle, low, high = (now.ledger.sign * float(end[0]) for end in of_result)
    return Forecast(middle, min(low, high), max(low, high))


def _nothing_left(ledger: Ledger, rule: BatchConditions | None) -> str:
    """Why there is nothing to ask for."""
    outcomes = ledger.outcomes
    if rule is not None and ledger.is_open.any():
        n = int(rule.only.sum())
        why = "no candidate meets the condition"
        if n:
            why = (
                f"{n:,} of {len(rule.only):,} candidates meet the condition, and all of them are "
                "retired, failed, or were tried as often as `repeats` allows"
            )
    elif ledger.candidates.box is not None:
        n = int((outcomes.failed | (ledger.tries >= ledger.most)).sum())
        why = f"{n} points failed or were tried as often as `repeats` allows"
    else:
        why = (
            f"of {len(ledger.candidates)} candidates {int(outcomes.retired.sum())} are retired, "
            f"{int(outcomes.failed.sum())} failed, {len(ledger.pending)} are pending, the others "
            "were tried as often as `repeats` allows; tell what is pending, add candidates or "
            "allow repeats"
        )
    return f"nothing is left to ask for: {why}"


def _searched(ledger: Ledger, model: Model, allowed: Mask | None) -> int | None:
    """The candidate of a table that is to be tried next, one of those allowed; None if there is
    none."""
    is_open = ledger.is_open if allowed is None else ledger.is_open & allowed
    if not is_open.any():
        return None
    if model.is_drawing:
        fresh = ledger.order[(is_open & (ledger.tries == 0))[ledger.order]]
        if len(fresh):
            return _first(ledger, fresh, model.settings.schedule.start)
    waiting = ledger.waiting
    idle = is_open.copy()
    idle[waiting] = False  # a result is coming anyway
    is_open = idle if idle.any() else is_open
    closed = ledger.arms_without(is_open)
    exploration = model.settings.exploration
    if exploration and exploration.is_due(ledger.n_trials + len(waiting)):
        arm = _untried(ledger, model, closed, exploration)
    else:
        pending = ledger.candidates.arm_of[waiting]
        arm = int(model.policy.choose(pending=pending, exclude=closed)[0])
    # Candidates of one arm have equal features: the one tried least.
    members = ledger.candidates.members(arm)
    members = members[is_open[members]]
    if len(members) == 1:
        return int(members[0])
    return int(members[np.argmin(ledger.tries[members])])


def _first(ledger: Ledger, fresh: Indices, start: int) -> int:
    """The candidate to begin with, among some in a random order.

    With a prior it is the one of which most is expected, of a part of them that changes with every
    suggestion: the best of all might be neighbours.
    """
    candidates = ledger.candidates
    if candidates.expected is None:
        return int(fresh[0])
    number = (ledger.n_trials + len(ledger.pending)) % start
    part = fresh[number::start] if number < len(fresh) else fresh
    return int(part[np.argmax(candidates.expected[candidates.arm_of[part]])])


def _untried(ledger: Ledger, model: Model, closed: Mask, exploration: Exploration) -> int:
    """The arm of largest upper bound among those never tried; among all if every arm was tried."""
    arm_of = ledger.candidates.arm_of
    pending = arm_of[ledger.waiting]
    beta = exploration.radius(model.policy.evidence)
    best = int(model.policy.choose(pending=pending, exclude=closed, beta=beta)[0])
    tried = np.concatenate([arm_of[ledger.outcomes.tried.items], pending])
    # As a rule the best of all is one of them, and what is excluded stays as it was: a batch then
    # goes on with the same list.
    if best not in tried:
        return best
    known = closed.copy()
    known[tried] = True
    if known.all():
        return best
    return int(model.policy.choose(pending=pending, exclude=known, beta=beta)[0])


def _avoiding(ledger: Ledger, model: Model) -> Model:
    """The model of a table as it would be if failed candidates had given the worst possible reward.

    Nothing else is known where trials fail, so that uncertainty would lead there again and again.
    """
    failed = np.flatnonzero(ledger.outcomes.failed)
    if not len(failed) or not model.n_results:
        return model
    policy = copy(model.policy)
    arms = np.unique(ledger.candidates.arm_of[failed])
    policy.observe(arms, np.full(len(arms), model.worst))
    return replace(model, policy=policy)
