"""The columns of a box: ranges of numbers, numbers that are listed, and choices among names.

Each is encoded as one number of a row: numbers as [0, 1], or the same of their logarithms, names as
codes 0, 1, ….
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manyarms.checks import are_geometric, is_whole, real
from manyarms.errors import ArmsError, ParameterError
from manyarms.space.columns import Feature
from manyarms.typing import Array

CODE_TOLERANCE = 1e-9
"""How far outside [0, 1], or off a step, an encoded number may be by rounding. An encoding rounds
by ε·|low|/(high − low): ranges may lie a million times farther from 0 than they are wide."""


@dataclass(frozen=True)
class Range:
    """Numbers from low to high."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ParameterError(
                f"{self.name!r} must have a low end below its high end, got {self.low} and "
                f"{self.high}"
            )
        if self.log and self.low <= 0:
            raise ParameterError(
                f"{self.name!r} is on a log scale and must be above 0, got {self.low}"
            )
        if not np.isfinite(self.high - self.low):
            raise ParameterError(
                f"{self.name!r} must be narrower than float64's range, got {self.low} to "
                f"{self.high}"
            )

    def _scaled(self, values: Any) -> Any:
        """Numbers, or their logarithms."""
        return np.log(values) if self.log else values

    def _codes(self, values: Array) -> Array:
        low = self._scaled(self.low)
        codes = (self._scaled(values) - low) / (self._scaled(self.high) - low)
        return np.asarray(np.clip(codes, 0.0, 1.0))  # rounding may leave the range by an ε

    def _values(self, codes: Array) -> Array:
        low = self._scaled(self.low)
        scaled = low + codes * (self._scaled(self.high) - low)
        # exp(ln(high)) may exceed high: clipped before it is rounded.
        values = np.clip(np.exp(scaled) if self.log else scaled, self.low, self.high)
        return np.asarray(np.rint(values) if self.whole else values)

    def check(self, value: Any) -> float | int:
        """The value, a float or an int; ArmsError where it is not of this column."""
        kind = "a whole number" if self.whole else "a number"
        expected = f"{kind} from {self.low:g} to {self.high:g}"
        number = real(value, repr(self.name), expected, error=ArmsError)
        if not self.low <= number <= self.high or (self.whole and number != round(number)):
            raise ArmsError(f"{self.name!r} must be {expected}, got {value!r}")
        return value if type(value) is int else number

    def encode(self, values: Sequence[Any]) -> Array:
        """The codes (n,) of values that were checked."""
        return self._codes(np.array(values, dtype=np.float64))

    def decode(self, code: float) -> float | int:
        """The value of a code."""
        value = float(self._values(np.array([code]))[0])
        return int(value) if self.whole else value

    def snap(self, codes: Array) -> Array:
        """The nearest codes that stand for values."""
        codes = np.clip(codes, 0.0, 1.0)
        # A whole number is where its value encodes to, so that equal points have equal rows.
        return self._codes(self._values(codes)) if self.whole else codes

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Codes drawn uniformly, (n,)."""
        if not self.whole:
            return rng.random(n)
        # Rounded, each whole number needs the half before and behind it: the ends too.
        low = self._scaled(self.low - 0.5)  # above 0 on a log scale too: low is 1 at least
        drawn = low + rng.random(n) * (self._scaled(self.high + 0.5) - low)
        values = np.rint(np.exp(drawn) if self.log else drawn)
        return self._codes(np.clip(values, self.low, self.high))

    @property
    def size(self) -> float:
        """How many values there are."""
        return int(self.high) - int(self.low) + 1 if self.whole else np.inf

    @property
    def grid(self) -> Array:
        """The codes of all values, of whole numbers."""
        return self._codes(np.arange(self.low, self.high + 1, dtype=np.float64))

    def beside(self, code: float) -> Array:
        """The codes one step up and down, of whole numbers; other numbers have no steps."""
        value = self.decode(code)
        steps = [value - 1, value + 1] if self.whole else []
        return self.encode([each for each in steps if self.low <= each <= self.high])

    def feature(self, at: int) -> Feature:
        """What stands in the encoded column `at`."""
        kind = "log" if self.log else "integer" if self.whole else "continuous"
        return _numeric(self.name, at, kind, self.low, self.high)

    @property
    def given(self) -> tuple[Any, ...]:
        """What `Box` makes this column of."""
        return (self.low, self.high, "log") if self.log else (self.low, self.high)


@dataclass(frozen=True)
class Levels(ABC):
    """One of some levels."""

    name: str
    levels: tuple[Any, ...]

    def __post_init__(self) -> None:
        try:
            n_different = len(set(self.levels))
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"{self.name!r} must have levels that can be hashed, a tuple for a list: {error}"
            ) from error
        if n_different < max(2, len(self.levels)):
            raise ParameterError(
                f"{self.name!r} must have two or more different levels, got {list(self.levels)}"
            )

    @property
    def ordered(self) -> Sequence[Any]:
        """The levels in the order of their codes."""
        return self.levels

    @cached_property
    @abstractmethod
    def grid(self) -> Array:
        """The codes of all levels, the least first."""

    @cached_property
    def _at(self) -> dict[Any, int]:
        return {level: at for at, level in enumerate(self.ordered)}

    def _nearest(self, codes: Any) -> Any:
        """Which level has the nearest code, of one code or (n,)."""
        return np.searchsorted((self.grid[1:] + self.grid[:-1]) / 2, codes)

    def check(self, value: Any) -> Any:
        """The level as the box has it, 60 for 60.0; ArmsError where there is no such level."""
        try:
            return self.ordered[self._at[value]]
        except (KeyError, TypeError) as error:
            raise ArmsError(
                f"{self.name!r} must be one of {list(self.levels)}, got {value!r}"
            ) from error

    def encode(self, values: Sequence[Any]) -> Array:
        """The codes (n,) of levels."""
        return np.asarray(self.grid[[self._at[value] for value in values]])

    def decode(self, code: float) -> Any:
        """The level of a code."""
        return self.ordered[self._nearest(code)]

    def snap(self, codes: Array) -> Array:
        """The nearest codes that stand for levels."""
        return np.asarray(self.grid[self._nearest(codes)])

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Codes drawn uniformly, (n,)."""
        return np.asarray(self.grid[rng.integers(len(self.levels), size=n)])

    @property
    def size(self) -> int:
        """How many levels there are."""
        return len(self.levels)

    @property
    def given(self) -> list[Any]:
        """What `Box` makes this column of."""
        return list(self.levels)


class Choice(Levels):
    """One of some names, which are equal or not: codes 0, 1, …."""

    @cached_property
    def grid(self) -> Array:
        return np.arange(len(self.levels), dtype=np.float64)

    def beside(self, code: float) -> Array:
        """The codes of the other levels."""
        return np.asarray(self.grid[self.grid != code])

    def feature(self, at: int) -> Feature:
        """What stands in the encoded column `at`."""
        return Feature(self.name, "categorical", at, at + 1, "categorical", levels=self.levels)


@dataclass(frozen=True)
class NumericLevels(Levels):
    """One of some numbers. They are compared by their distance, as those of a range are."""

    log: bool = False

    @classmethod
    def of(cls, name: str, levels: Sequence[Any]) -> "NumericLevels":
        """Of numbers; on a log scale where that spaces them more evenly."""
        checked = [real(level, f"a level of {name!r}", "a finite number") for level in levels]
        # Points are ids too: NumPy's numbers would be written otherwise than Python's.
        plain = [
            int(level) if is_whole(level) else number
            for level, number in zip(levels, checked, strict=True)
        ]
        return cls(name, tuple(plain), log=are_geometric(np.array(checked)))

    def __post_init__(self) -> None:
        super().__post_init__()
        is_finite = np.isfinite(max(self.levels) - min(self.levels))
        if not is_finite or np.diff(self.grid).min() <= 2 * CODE_TOLERANCE:
            raise ParameterError(
                f"{self.name!r} must have levels that are more than {CODE_TOLERANCE:g} of their "
                f"range apart, got {list(self.levels)}; write them as text where they are names"
            )

    @cached_property
    def ordered(self) -> Sequence[Any]:
        return sorted(self.levels)

    @cached_property
    def grid(self) -> Array:
        values = np.array(self.ordered, dtype=np.float64)
        scaled = np.log(values) if self.log else values
        return np.asarray((scaled - scaled[0]) / (scaled[-1] - scaled[0]))

    def check(self, value: Any) -> Any:
        # True is no number here, though it equals 1.
        expected = f"one of {list(self.levels)}"
        return super().check(real(value, repr(self.name), expected, error=ArmsError))

    def beside(self, code: float) -> Array:
        """The codes of the levels next to one."""
        at = self._nearest(code)
        return self.grid[[each for each in (at - 1, at + 1) if 0 <= each < len(self.grid)]]

    def feature(self, at: int) -> Feature:
        """What stands in the encoded column `at`."""
        are_whole = all(isinstance(level, int) for level in self.levels)
        kind = "log" if self.log else "integer" if are_whole else "continuous"
        return _numeric(self.name, at, kind, self.ordered[0], self.ordered[-1])


def _numeric(name: str, at: int, kind: str, low: float, high: float) -> Feature:
    """Numbers in the encoded column `at`."""
    return Feature(name, "numeric", at, at + 1, kind, low=float(low), high=float(high))


Side = Range | NumericLevels | Choice
"""A column of a box."""
