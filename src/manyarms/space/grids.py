"""All combinations of the levels of some factors, but for those left out by conditions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from manyarms.checks import items_of
from manyarms.errors import ArmsError, ParameterError
from manyarms.space.conditions import rows_where
from manyarms.space.reading import as_series

MOST_COMBINED = 100_000_000
"""Combinations that are tested against conditions, at most: this takes about half a minute."""
MOST_ROWS = 5_000_000
"""Candidates that are listed, at most. Search more of them as a box, which lists none."""
COMBINATIONS_AT_ONCE = 1 << 20
"""Combinations that are made at a time: they take some tens of megabytes."""


def combined(
    levels: Mapping[str, Sequence[Any]], where: str | None = None, exclude: str | None = None
) -> pl.DataFrame:
    """The table of combinations, the levels of the last factor changing fastest."""
    columns = _columns(levels)
    sizes = [len(column) for column in columns.values()]
    n = math.prod(sizes)
    if n > MOST_COMBINED:
        raise ParameterError(
            f"levels must have at most {MOST_COMBINED:,} combinations, got {n:,}; use a Box, which "
            "lists none of them"
        )
    blocks: list[pl.DataFrame] = []
    n_rows = 0
    for start in range(0, n, COMBINATIONS_AT_ONCE):
        # The number of a combination has a digit for each factor.
        digits = np.unravel_index(np.arange(start, min(start + COMBINATIONS_AT_ONCE, n)), sizes)
        block = pl.DataFrame(
            [column.gather(at) for column, at in zip(columns.values(), digits, strict=True)]
        )
        kept = np.ones(len(block), dtype=bool)
        if where is not None:
            kept &= rows_where(block, where, columns)
        if exclude is not None:
            kept &= ~rows_where(block, exclude, columns)
        blocks.append(block.filter(kept))
        n_rows += len(blocks[-1])
        if n_rows > MOST_ROWS:
            raise ParameterError(
                f"at most {MOST_ROWS:,} combinations can be listed, got more; leave more of them "
                "out, or use a Box, which lists none"
            )
    if not n_rows:
        raise ArmsError(
            f"no combination of {n:,} is left; check the conditions: all of them exclude it"
        )
    return pl.concat(blocks)


def _columns(levels: Any) -> dict[str, pl.Series]:
    if not isinstance(levels, Mapping) or not levels:
        raise ParameterError(
            "levels must map names to levels, such as {'base': ['K2CO3', 'CsOAc']}, got "
            f"{levels!r:.80}"
        )
    columns = {}
    for name, given in levels.items():
        listed = None if isinstance(given, str) else items_of(given)
        if not isinstance(name, str) or not listed:
            raise ParameterError(
                "levels of {column!r} must be a list of at least one, got {got}",
                column=str(name),
                got=given,
            )
        series = as_series(name, listed)
        twice = series.filter(series.is_duplicated())
        if len(twice) or series.null_count():
            raise ParameterError(
                "levels of {column!r} must be different and none empty, got {got} twice or empty",
                column=name,
                got=twice[0] if len(twice) else None,
            )
        columns[name] = series
    return columns
