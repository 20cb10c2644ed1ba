"""Numbers a caller gives: checked once, with a typed error that says what was expected and what
came."""

from numbers import Integral, Real
from typing import Any

import numpy as np

from manyarms.errors import ManyArmsError, ParameterError


def real(
    value: Any,
    name: str,
    meaning: str,
    *,
    above: float = -np.inf,
    at_least: float = -np.inf,
    below: float = np.inf,
    error: type[ManyArmsError] = ParameterError,
) -> float:
    """A finite real number within bounds; `meaning` completes the sentence "name must be …"."""
    if isinstance(value, Real | np.number) and not isinstance(value, bool | np.complexfloating):
        try:
            number = float(value)
        except OverflowError:
            number = np.inf
        if np.isfinite(number) and above < number < below and number >= at_least:
            return number
    raise error(f"{name} must be {meaning}, got {value!r}")


def whole(
    value: Any, name: str, *, at_least: int = 1, error: type[ManyArmsError] = ParameterError
) -> int:
    """A whole number from `at_least`."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= at_least:
        return int(value)
    raise error(f"{name} must be a whole number from {at_least}, got {value!r}")


def check_probability(name: str, value: float) -> None:
    """Raise ParameterError unless 0 < value < 1."""
    real(value, name, "strictly between 0 and 1", above=0, below=1)
