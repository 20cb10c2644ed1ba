"""The columns of a box: ranges of numbers, numbers that are listed, and choices among names.

Each is encoded as one number of a row: numbers as [0, 1], or the same of their logarithms, names as
codes 0, 1, ….
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manyarms.checks import are_geometric, is_whole, real
from manyarms.errors import ArmsError, ParameterError
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
        """The encoded values (n,), of such as were checked."""
        return self._codes(np.array(values, dtype=np.float64))

    def decode(self, code: float) -> float | int:
        """The value."""
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

    def grid(self) -> Array:
        """The codes of all values, of whole numbers."""
        return self._codes(np.arange(self.low, self.high + 1, dtype=np.float64))

    def beside(self, code: float) -> list[float]:
        """The steps next to one, of whole numbers."""
        value = self.decode(code)
        others = [value - 1, value + 1]
        codes = self.encode([each for each in others if self.low <= each <= self.high])
        return [float(code) for code in codes]


@dataclass(frozen=True)
class Choice:
    """One of some levels."""

    name: str
    levels: tuple[Any, ...]

    def __post_init__(self) -> None:
        try:
            different = len(self._codes)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"{self.name!r} must have levels that can be hashed, a tuple for a list: {error}"
            ) from error
        if len(self.levels) < 2 or different < len(self.levels):
            raise ParameterError(
                f"{self.name!r} must have two or more different levels, got {list(self.levels)}"
            )

    @cached_property
    def _codes(self) -> dict[Any, int]:
        return {level: code for code, level in enumerate(self.levels)}

    def check(self, value: Any) -> Any:
        """The level; ArmsError where the value is not of this column."""
        try:
            return self.levels[self._codes[value]]
        except (KeyError, TypeError) as error:
            raise ArmsError(
                f"{self.name!r} must be one of {list(self.levels)}, got {value!r}"
            ) from error

    def encode(self, values: Sequence[Any]) -> Array:
        """The codes (n,), of levels."""
        return np.array([self._codes[value] for value in values], dtype=np.float64)

    def decode(self, code: float) -> Any:
        """The value."""
        return self.levels[int(code)]

    def snap(self, codes: Array) -> Array:
        """The nearest codes that stand for values."""
        return np.clip(np.rint(codes), 0, len(self.levels) - 1)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Codes drawn uniformly, (n,)."""
        return rng.integers(len(self.levels), size=n).astype(np.float64)

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.levels)

    def grid(self) -> Array:
        """The codes of all values."""
        return np.arange(len(self.levels), dtype=np.float64)

    def beside(self, code: float) -> list[float]:
        """The other levels."""
        return [float(i) for i in range(len(self.levels)) if i != code]


@dataclass(frozen=True)
class NumericLevels:
    """One of some numbers. They are compared by their distance, as those of a range are."""

    name: str
    levels: tuple[float | int, ...]
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
        if len(set(self.levels)) < max(2, len(self.levels)):
            raise ParameterError(
                f"{self.name!r} must have two or more different levels, got {list(self.levels)}"
            )
        if not np.isfinite(max(self.levels) - min(self.levels)) or not self._are_apart:
            raise ParameterError(
                f"{self.name!r} must have levels that are more than {CODE_TOLERANCE:g} of their "
                f"range apart, got {list(self.levels)}; write them as text where they are names"
            )

    @cached_property
    def _by_code(self) -> tuple[Array, list[float | int]]:
        """The codes of all levels, and the levels, from the least to the largest."""
        levels = sorted(self.levels)
        values = np.array(levels, dtype=np.float64)
        scaled = np.log(values) if self.log else values
        return (scaled - scaled[0]) / (scaled[-1] - scaled[0]), levels

    @property
    def _are_apart(self) -> bool:
        return bool((np.diff(self._by_code[0]) > 2 * CODE_TOLERANCE).all())

    @cached_property
    def _at(self) -> dict[float | int, int]:
        """Where each level is among them."""
        return {level: i for i, level in enumerate(self._by_code[1])}

    def _nearest(self, codes: Array) -> Array:
        """Which level is nearest to each code, (n,)."""
        known = self._by_code[0]
        return np.asarray(np.searchsorted((known[1:] + known[:-1]) / 2, codes))

    def check(self, value: Any) -> float | int:
        """The level; ArmsError where the value is not of this column."""
        number = real(value, repr(self.name), f"one of {list(self.levels)}", error=ArmsError)
        if number not in self._at:
            raise ArmsError(f"{self.name!r} must be one of {list(self.levels)}, got {value!r}")
        return self._by_code[1][self._at[number]]  # as the box has it: 60 for 60.0

    def encode(self, values: Sequence[Any]) -> Array:
        """The encoded values (n,), of such as were checked."""
        return np.asarray(self._by_code[0][[self._at[value] for value in values]])

    def decode(self, code: float) -> float | int:
        """The value."""
        return self._by_code[1][int(self._nearest(np.array([code]))[0])]

    def snap(self, codes: Array) -> Array:
        """The nearest codes that stand for values."""
        return np.asarray(self._by_code[0][self._nearest(codes)])

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Codes drawn uniformly, (n,)."""
        return np.asarray(self._by_code[0][rng.integers(len(self.levels), size=n)])

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.levels)

    def grid(self) -> Array:
        """The codes of all values."""
        return self._by_code[0].copy()

    def beside(self, code: float) -> list[float]:
        """The levels next to one."""
        codes = self._by_code[0]
        at = int(self._nearest(np.array([code]))[0])
        return [float(codes[i]) for i in (at - 1, at + 1) if 0 <= i < len(codes)]


Side = Range | NumericLevels | Choice
"""A column of a box."""
