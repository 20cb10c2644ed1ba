"""Which batches may be asked for: candidates that meet a condition, one level for all, few levels.

A rule says after each pick who may be picked next. Where all of a batch must have the same level
of a column, a batch is made for every level, and the one of largest sum of upper bounds is taken,
each bound with the picks before it supposed done.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from manyarms.campaign.model import Model
from manyarms.checks import items_of, whole
from manyarms.errors import ParameterError, shortened
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
