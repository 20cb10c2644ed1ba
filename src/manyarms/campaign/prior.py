"""Results of another, similar table as a prior.

A model of those results expects a reward of every candidate. What it expects more than of a median
one, 0 for the worse half, is one more feature e, which stands in front of the others. A multiple of
it, b·e with b ~ N(0, w), is part of f, and w is learned with the kernel (`fitting.Mixed`): where e
says nothing of what comes out, w falls. The variance we² is largest where most is expected and 0
in the worse half, so upper bounds begin with what the prior calls good, although they do not take
it for granted. Were e far below 0 for bad candidates, they would be tried for their variance.

Of a prior that is mere noise little is left from the start: its own model takes most of it for
noise, and expects about the same of all.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from manyarms.campaign.answers import Answers
from manyarms.campaign.model import learn
from manyarms.campaign.results import Results
from manyarms.campaign.settings import Settings, as_given, as_sign
from manyarms.campaign.trials import as_items, as_values
from manyarms.errors import ParameterError, shortened
from manyarms.lapack import OneThread
from manyarms.space.frames import read_dicts
from manyarms.space.ids import Ids
from manyarms.space.points import Space
from manyarms.space.pool import Pool, frame_of
from manyarms.space.tables import more_parts
from manyarms.typing import Array


class PriorResults(NamedTuple):
    """Rows of another table, and their values."""

    frame: pl.DataFrame
    values: Array  # (n,) larger is better


def as_prior(prior: Any, space: Space, direction: Any) -> PriorResults:
    """The results that a user gave as a prior of some candidates."""
    if space.box is not None or space.kernel is not None:
        raise ParameterError(
            f"prior must be left out for a box and for objects, got one for {space!r}; it says "
            "what to expect of the rows of a table"
        )
    if space.expected is not None:
        raise ParameterError(
            f"prior must be left out for a pool that has one already, got one for {space!r}; make "
            "a pool of its table, and give both results as one prior"
        )
    if isinstance(prior, Answers):
        sign = as_sign(prior.direction)
        frame, values = _of_search(prior)
    else:
        sign = as_sign(direction)
        frame, values = _of_table(prior, space)
    kept = [value is not None for value in values]  # failures say nothing of values
    if not any(kept):
        raise ParameterError("prior must have results to learn from, got none that has a value")
    numbers = np.array([value for value in values if value is not None], dtype=np.float64)
    # Ids and outcomes of the table are no features.
    origin = space.parts.origin
    frame = frame.drop([name for name in (origin.id, origin.target) if name], strict=False)
    return PriorResults(frame.filter(pl.Series(kept)), sign * numbers)


def _of_search(prior: Answers) -> tuple[pl.DataFrame, list[float | None]]:
    """Rows and values of an `Optimizer` or a `Study`."""
    if prior.pool.box is not None or prior.pool.kernel is not None:
        raise ParameterError(
            f"prior must have results of the rows of a table, got "
            f"{shortened(prior)}, which has none"
        )
    history = prior.history
    rows = prior.pool.rows([trial.id for trial in history]) if history else []
    return read_dicts(rows) if rows else pl.DataFrame(), [trial.value for trial in history]


def _of_table(prior: Any, pool: Pool) -> tuple[pl.DataFrame, list[float | None]]:
    """Rows and values of a table and its values."""
    if not isinstance(prior, tuple) or len(prior) != 2:
        raise ParameterError(
            "prior must be an Optimizer, a Study, or a tuple of a table and its values, got "
            f"{type(prior).__name__}"
        )
    frame = frame_of(pool, prior[0])
    values = as_items(prior[1])
    if len(values) != len(frame):
        raise ParameterError(
            f"prior must have one value for each of the {len(frame)} rows of its table, got "
            f"{len(values)}"
        )
    return frame, as_values(values, len(frame))


def with_prior(space: Space, prior: PriorResults, kernel: Any) -> Pool:
    """The pool with what a prior makes one expect of each row."""
    pool = space.table("expect something of")
    parts = pool.parts
    # The rows of the prior, encoded as those of the pool; numbered, as their ids do not matter.
    origin = replace(parts.origin, id=None, target=None, numbered=True)
    numbered = replace(parts, origin=origin, ids=Ids(np.arange(len(pool))), next_row=len(pool))
    both = more_parts(numbered, prior.frame, None)
    values = prior.values[both.ids.array[len(pool) :] - len(pool)]  # `missing` may drop some
    arms, told = np.unique(both.arm_of[len(pool) :], return_inverse=True)
    settings = Settings.of(pool, as_given({"kernel": kernel}))
    results = Results.at_once(told, values, np.full(len(values), np.nan))
    policy = learn(settings, both.X[arms], results).policy
    with OneThread():
        means = policy.predict(parts.X).mean
    middle = float(np.median(means))

    def expected(rows: Array) -> Array:
        with OneThread():
            return np.asarray(np.maximum(policy.predict(rows).mean - middle, 0.0))

    X = np.column_stack([np.maximum(means - middle, 0.0), parts.X])
    # Levels that only the prior has keep their codes, should candidates with them be added.
    return Pool(replace(parts, columns=both.columns, expected=expected, X=X))
