"""Numbers a caller gives: checked once, with a typed error that says what was expected and what
came."""

from numbers import Integral, Real
from typing import Any

import numpy as np

from manyarms.errors import ManyArmsError, ParameterError

LARGEST = 1e100
"""Values, rewards and their noise in size, at most: squares and sums of so many then fit float64,
whose largest number is 1.8e308."""
MOST_AT_ONCE = 1_000_000
"""Arms that may be asked for in one call: more cannot be meant."""
LARGEST_SEED = 2**128 - 1
"""As many bits as NumPy's own seeds have."""
_NO_NUMBERS = (bool, np.complexfloating, np.timedelta64)
"""Types that pass for numbers by their base classes."""


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
    if isinstance(value, Real | np.number) and not isinstance(value, _NO_NUMBERS):
        try:
            number = float(value)
        except OverflowError:
            number = np.inf  # a whole number beyond float64 is refused below
        if np.isfinite(number) and above < number < below and number >= at_least:
            return number
    raise error("{option} must be {expected}, got {got}", option=name, expected=meaning, got=value)


def whole(
    value: Any,
    name: str,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    error: type[ManyArmsError] = ParameterError,
) -> int:
    """A whole number from `at_least`, to `at_most` where that is given."""
    if isinstance(value, Integral) and not isinstance(value, _NO_NUMBERS):
        number = int(value)
        if number >= at_least and (at_most is None or number <= at_most):
            return number
    end = "" if at_most is None else f" to {at_most:,}"
    wanted = f"a whole number from {at_least}{end}"
    raise error("{option} must be {expected}, got {got}", option=name, expected=wanted, got=value)


def check_probability(name: str, value: float) -> None:
    """Raise ParameterError unless 0 < value < 1."""
    real(value, name, "strictly between 0 and 1", above=0, below=1)
