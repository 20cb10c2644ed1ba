"""What to try next: a table is searched, here; a box is climbed (`boxes`).

A batch may have to meet conditions: they say after each pick who may be picked next. Where all of a
batch must have the same level of a column, a batch is made for every level, and the one of largest
sum of upper bounds is taken, each bound with the picks before it supposed done.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from manyarms.campaign.boxes import climb, doubting
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Campaign, Model
from manyarms.campaign.trials import FORECAST_WIDTH, Forecast
from manyarms.checks import items_of, whole
from manyarms.errors import ParameterError, StateError, shortened
from manyarms.space.points import Space
from manyarms.space.pool import Pool
from manyarms.typing import Indices, Mask

LEVELS_TRIED = 200
"""Levels that are compared for `same`, each with a batch of its own. A column with more levels is
probably one of numbers that are all different."""


@dataclass(frozen=True)
class BatchConditions:
    """What a batch asked for by `ask(n, where=, same=, max_new=)` must meet, over n candidates."""

    only: Mask  # (n,) candidates that meet `where`
    same: Indices | None = None  # (n,) codes, of which all of a batch have the same
    limits: tuple[tuple[Indices, int], ...] = ()  # codes (n,), most different ones
    most_each: int | None = None  # how often a batch may contain one candidate

    def allowed(self, picked: Sequence[int]) -> Mask:
        """(n,) the candidates that may follow those picked so far."""
        allowed = self.only.copy()
        for codes, most in self.limits:
            there = np.unique(codes[list(picked)])
            if len(there) >= most:
                allowed &= np.isin(codes, there)
        if self.most_each is not None:
            numbers, counts = np.unique(np.array(picked, dtype=np.intp), return_counts=True)
            allowed[numbers[counts >= self.most_each]] = False
        return allowed

    def with_level_of(self, position: int) -> "BatchConditions":
        """These conditions, restricted to the level of one candidate if all must share a level."""
        if self.same is None:
            return self
        return replace(self, only=self.only & (self.same == self.same[position]), same=None)

    def levels(self, is_open: Mask) -> Iterator["BatchConditions"]:
        """These conditions for each level in turn, if all candidates must share a level."""
        if self.same is None:
            yield self
            return
        _, first = np.unique(np.where(self.only & is_open, self.same, -1), return_index=True)
        for position in first.tolist():
            if self.only[position] and is_open[position]:
                yield self.with_level_of(position)


def as_rule(
    candidates: Space, where: Any, same: Any, max_new: Any, most_each: int | None
) -> BatchConditions | None:
    """The checked arguments of `ask`; None if they ask for nothing."""
    if where is None and same is None and max_new is None and most_each is None:
        return None
    if candidates.box is not None:
        if where is None and same is None and max_new is None:
            whole(most_each, "most_each")
            return None  # a box asks for one of its points again where no other is left
        raise ParameterError(
            "where, same and max_new choose among the rows of a table, and a box has none; make a "
            "box of the columns that may vary"
        )
    columns = [same] if isinstance(same, str) else items_of(same)
    if same is not None and not columns:
        raise ParameterError(f"same must name a column, or several, got {shortened(same)}")
    if max_new is not None and not (isinstance(max_new, Mapping) and max_new):
        raise ParameterError(
            f"max_new must be a dict of columns and numbers, such as {{'reagent': 3}}, got "
            f"{shortened(max_new)}"
        )
    pool = candidates.table("choose from")
    return BatchConditions(
        _mask(pool, where),
        _codes(pool, columns, "same") if columns else None,
        tuple(
            (_codes(pool, [name], "max_new"), whole(most, "a number of max_new"))
            for name, most in (max_new or {}).items()
        ),
        None if most_each is None else whole(most_each, "most_each"),
    )


def _mask(pool: Pool, where: Any) -> Mask:
    """(n,) the candidates that meet a condition, given as text or as a truth for each candidate."""
    if where is None:
        return np.ones(len(pool), dtype=bool)
    if isinstance(where, str):
        return pool.where(where)
    items = items_of(where)
    if (
        items is None
        or len(items) != len(pool)
        or not all(isinstance(item, bool | np.bool_) for item in items)
    ):
        raise ParameterError(
            f"where must be a condition such as 'temperature == 80', or a truth for each of the "
            f"{len(pool):,} candidates, got {shortened(where)}"
        )
    return np.array(items, dtype=bool)


def _codes(pool: Pool, names: Sequence[Any], option: str) -> Indices:
    """(n,) a number for each combination of levels of columns."""
    for name in names:
        if not isinstance(name, str) or name not in pool.names:
            raise ParameterError(
                f"{option} must name a column of the table, one of "
                f"{', '.join(map(repr, pool.names))[:300]}, got {shortened(name)}"
            )
    tables = [table.select(names) for table in pool.parts.tables]
    columns = pl.concat(tables, how="vertical_relaxed")
    try:
        texts = columns.select(pl.all().cast(pl.String).fill_null(""))
    except pl.exceptions.PolarsError as error:
        raise ParameterError(f"{option} needs columns of numbers or text, not {names}") from error
    codes = texts.select(pl.struct(pl.all()).rank("dense")).to_series().to_numpy().astype(np.intp)
    n = int(codes.max(initial=0))
    if option == "same" and n > LEVELS_TRIED:
        raise ParameterError(
            f"same takes columns of at most {LEVELS_TRIED} levels, {', '.join(names)} has {n:,}; "
            "give the level that you want by where"
        )
    return np.asarray(codes)


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
    radius = None if box is not None else _radius_of_untried(ledger, model, n)
    picked: list[int] = []
    for _ in range(n):
        if box is None:
            allowed = None if rule is None else rule.allowed(picked)
            found = _searched(ledger, model, radius, allowed)
        else:
            row = climb(box, ledger, model)
            found = None
            if row is not None:
                ledger, positions = ledger.knowing(box.decode(row[None]))
                found = int(positions[0])
        if found is None:
            break
        picked.append(found)
        ledger = ledger.asked([found])  # pending when the next one is chosen
    forecasts = _forecasts(now.knowing(ledger), picked)
    return replace(ledger, pending=now.ledger.pending).asked(picked, forecasts=forecasts)


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


def _forecasts(now: Campaign, positions: Sequence[int]) -> list[Forecast | None]:
    """What the model predicts of the next result of each candidate; None while candidates are drawn
    at random."""
    if not positions or now.model.is_drawing:
        return [None] * len(positions)
    mean, std = now.model.predict(now.ledger.candidates.arm_of[positions])
    sd = np.hypot(std, now.model.noise)
    found = now.ledger.sign * now.model.in_values(mean, sd, FORECAST_WIDTH)
    found[1:].sort(axis=0)  # minimising turns the ends around
    return [Forecast(*each) for each in found.T.tolist()]


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


def _searched(
    ledger: Ledger, model: Model, radius: float | None, allowed: Mask | None
) -> int | None:
    """The candidate of a table that is to be tried next, one of those allowed; None if there is
    none. `radius` is that of a candidate never tried."""
    is_drawing = model.is_drawing
    is_open = ledger.is_open if allowed is None else ledger.is_open & allowed
    if not is_open.any():
        return None
    if is_drawing:
        fresh = ledger.order[(is_open & (ledger.tries == 0))[ledger.order]]
        if len(fresh):
            return _first(ledger, fresh, model.settings.schedule.start)
    waiting = ledger.waiting
    idle = is_open.copy()
    idle[waiting] = False  # a result is coming anyway
    is_open = idle if idle.any() else is_open
    closed = ledger.arms_without(is_open)
    pending = ledger.candidates.arm_of[waiting]
    if radius is not None and _is_turn(model, ledger.n_trials + len(waiting)):
        arm = _untried(ledger, model, pending, closed, radius)
    else:
        arm = int(model.policy.choose(pending=pending, exclude=closed)[0])
    if len(closed) == len(is_open):  # each candidate is an arm
        return arm
    # Candidates of one arm have equal features: the one tried least.
    members = ledger.candidates.members(arm)
    members = members[is_open[members]]
    return int(members[np.argmin(ledger.tries[members])])


def _radius_of_untried(ledger: Ledger, model: Model, n: int) -> float | None:
    """The radius by which one of the next n suggestions is chosen among candidates never tried;
    None where none of them is."""
    exploration = model.settings.exploration
    first = ledger.n_trials + len(ledger.pending)
    if exploration is None or not any(_is_turn(model, first + k) for k in range(n)):
        return None
    return exploration.radius(model.policy.evidence)


def _is_turn(model: Model, n: int) -> bool:
    """Whether the suggestion after n others is to be a candidate that was never tried: c·n^(2/3) of
    n suggestions are."""
    exploration = model.settings.exploration
    share = 0.0 if exploration is None else exploration.share
    return int(share * (n + 1) ** (2 / 3)) > int(share * n ** (2 / 3))


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


def _untried(ledger: Ledger, model: Model, pending: Indices, closed: Mask, radius: float) -> int:
    """The arm of largest upper bound among those never tried; among all if every arm was tried."""
    best = int(model.policy.choose(pending=pending, exclude=closed, beta=radius)[0])
    told = ledger.candidates.arm_of[ledger.outcomes.entries.items["position"]]
    tried = np.concatenate([told, pending])
    # As a rule the best of all is one of them, and what is excluded stays as it was: a batch then
    # goes on with the same list.
    if best not in tried:
        return best
    known = closed.copy()
    known[tried] = True
    if known.all():
        return best
    return int(model.policy.choose(pending=pending, exclude=known, beta=radius)[0])


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


def sum_of_bounds(model: Model, waiting: Indices, arms: Indices) -> float:
    """Σ μ̃ + β̃·sd over arms, in rewards, each with those before it and those waiting supposed
    observed; 0 before anything is known."""
    if not model.n_results:
        return 0.0
    policy = copy(model.policy)  # states are values: the original stays as it was
    supposed = replace(model, policy=policy)
    # A reward that is as expected leaves the means as they are: only variances fall.
    if len(waiting):
        policy.observe(waiting, supposed.predict(waiting).mean)
    total = 0.0
    for arm in arms.tolist():
        mean, std = supposed.predict(np.array([arm]))
        total += float(mean[0] + model.radius * std[0])
        policy.observe(np.array([arm]), mean)
    return total
