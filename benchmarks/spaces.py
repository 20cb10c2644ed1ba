"""The columns of a table as other tools take them: categories, levels in order and ranges, and back to rows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from tables import Table

MANY_LEVELS = 64
"""A numeric column of more distinct values than this is a range, one of fewer its levels in order."""


@dataclass(frozen=True)
class Parameter:
    """One column."""

    name: str
    kind: str  # "category", "levels" or "range"
    n: int  # of levels
    codes: np.ndarray  # (A,) of a category or levels: the number of the level; of a range: [0, 1]


def parameters(table: Table) -> list[Parameter]:
    """One a column; a string is a category whatever it says."""
    return [_parameter(column) for column in table.frame.iter_columns()]


def _parameter(column: pl.Series) -> Parameter:
    levels, codes = np.unique(column.to_numpy(), return_inverse=True)
    if column.dtype == pl.String:
        return Parameter(column.name, "category", len(levels), codes)
    if len(levels) <= MANY_LEVELS:
        return Parameter(column.name, "levels", len(levels), codes)
    values = column.to_numpy()
    share = (values - levels[0]) / (levels[-1] - levels[0])
    return Parameter(column.name, "range", len(levels), share)


@dataclass(frozen=True)
class Space:
    """A table as a product of columns; None of it applies to fingerprints."""

    parameters: list[Parameter]

    @cached_property
    def _categories(self) -> np.ndarray:
        """(A, number of categories)."""
        return _stacked([p.codes for p in self.parameters if p.kind == "category"])

    @cached_property
    def _numbers(self) -> np.ndarray:
        """In [0, 1], (A, number of other columns)."""
        return _stacked([p.codes / _width(p) for p in self.parameters if p.kind != "category"])

    def row(self, choice: dict[str, float]) -> int:
        """The row nearest to a choice; of several as near the first.

        A category that differs is as far as the two ends of a numeric column.
        """
        categories = [choice[p.name] for p in self.parameters if p.kind == "category"]
        numbers = [choice[p.name] / _width(p) for p in self.parameters if p.kind != "category"]
        distance = np.zeros(len(self.parameters[0].codes))
        if categories:
            distance += (self._categories != categories).sum(axis=1)
        if numbers:
            distance += ((self._numbers - numbers) ** 2).sum(axis=1)
        return int(distance.argmin())


def _stacked(columns: list[np.ndarray]) -> np.ndarray:
    return np.column_stack(columns) if columns else np.empty((0, 0))


def _width(parameter: Parameter) -> float:
    """Of the codes: levels are scaled to [0, 1], a range is so already."""
    return max(parameter.n - 1, 1) if parameter.kind == "levels" else 1.0


def encode(table: Table) -> np.ndarray:
    """Bits as they are, categories one-hot, levels and ranges scaled to [0, 1], (A, d)."""
    if table.columns:
        return np.hstack([table.frame[name].to_numpy() for name in table.columns]).astype(float)
    blocks = []
    for parameter in parameters(table):
        if parameter.kind == "category":
            blocks.append(np.eye(parameter.n)[parameter.codes])
        else:
            blocks.append(parameter.codes[:, None] / _width(parameter))
    return np.hstack(blocks)
