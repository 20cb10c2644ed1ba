"""Numbers a caller gives: checked once, with a typed error that says what was expected and what
came."""

from numbers import Integral, Real
from typing import Any

import numpy as np

from manyarms.errors import ManyArmsError, ParameterError
from manyarms.typing import Array

LARGEST = 1e100
"""Values, rewards and standard deviations of their noise, at most: the square of a sum of many of
them fits float64, whose largest number is 1.8e308."""
MOST_AT_ONCE = 1_000_000
"""Arms that may be asked for in one call: more cannot be meant."""
LONGEST_BATCH = 1000
"""Arms of a batch of no given size, at most: where variances are tiny no rule would end it."""
LARGEST_SEED = 2**128 - 1
"""As many bits as NumPy's own seeds have."""
NO_ARRAY = (TypeError, ValueError, OverflowError, np.ma.MAError)
"""What NumPy raises at something of which it cannot make an array."""
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
    if is_whole(value):
        number = int(value)
        if number >= at_least and (at_most is None or number <= at_most):
            return number
    end = "" if at_most is None else f" to {at_most:,}"
    wanted = f"a whole number from {at_least}{end}"
    raise error("{option} must be {expected}, got {got}", option=name, expected=wanted, got=value)


def store(thing: object, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is made: numbers of other types become plain."""
    for name, value in values.items():
        object.__setattr__(thing, name, value)


def is_whole(value: Any) -> bool:
    """A whole number, of Python or NumPy; truths and spans of time are none."""
    return isinstance(value, Integral) and not isinstance(value, _NO_NUMBERS)


def items_of(values: Any) -> list[Any] | None:
    """What is in a sequence, an array, a series or another iterable; None where it is none, or is
    text."""
    if isinstance(values, str | bytes):
        return None
    try:
        return list(values)
    except TypeError:  # an array of no dimension says that it is iterable, and is not
        return None


def probability(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    return real(value, name, "strictly between 0 and 1", above=0, below=1)


def are_geometric(levels: Array) -> bool:
    """Whether logarithms space numbers more evenly than they are spaced themselves."""
    if len(levels) < 3 or levels.min() <= 0:
        return False
    return _unevenness(np.log(levels)) < _unevenness(levels)


def _unevenness(levels: Array) -> float:
    """Standard deviation over mean of the steps from one level to the next."""
    steps = np.diff(np.sort(levels))
    return float(np.std(steps) / np.mean(steps))
