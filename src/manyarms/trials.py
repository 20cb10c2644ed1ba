"""What was asked and what came back: one entry for every result, in the order told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from manyarms.errors import ObservationError

CandidateId = int | str


class _Failed:
    """A trial that gave no value."""

    _only: "_Failed | None" = None

    def __new__(cls) -> "_Failed":
        cls._only = cls._only or super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()
"""Told in place of a value: the trial failed. The candidate is not asked for again, and the model learns nothing from it."""


@dataclass(frozen=True)
class Trial:
    """One result: its candidate, and its value in the user's units, None where it failed."""

    number: int
    id: CandidateId
    value: float | None

    @property
    def failed(self) -> bool:
        """It gave no value."""
        return self.value is None


def as_values(values: Any, n: int) -> list[float | None]:
    """One finite number for each of n candidates, None where FAILED was told."""
    if values is FAILED or np.ndim(values) == 0:
        values = [values]
    items: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(items) != n:
        raise ObservationError(f"tell() takes one value for each of the {n} ids, got {len(items)}")
    return [None if item is FAILED else _number(item) for item in items]


def _number(item: Any) -> float:
    if isinstance(item, str | bytes | bool | np.bool_) or item is None:
        raise ObservationError(f"a value must be a number, got {item!r}; tell manyarms.FAILED for a trial that gave none")
    try:
        number = float(item)
    except (TypeError, ValueError) as error:
        raise ObservationError(f"a value must be a number, got {item!r}") from error
    if not np.isfinite(number):
        raise ObservationError(f"a value must be finite, got {item!r}; tell manyarms.FAILED for a trial that gave none")
    return number
