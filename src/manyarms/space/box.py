"""A box: ranges of numbers, on a log scale or whole where asked, and lists of numbers or names.

| column | written | encoded as |
|---|---|---|
| numbers | ``(low, high)``, not both of them whole | [0, 1] |
| whole numbers | ``(low, high)`` of two ints | [0, 1], in steps |
| either, on a log scale | ``(low, high, "log")`` | the same, of the logarithm |
| some numbers | a list of numbers | [0, 1], of the logarithm where they are geometric |
| a choice | a list of levels, not all of them numbers | codes 0, 1, … |

Encoded rows have the numbers first, in the order given, then the choices.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from numbers import Real
from typing import Any

import numpy as np

from manyarms.checks import MOST_AT_ONCE, are_geometric, as_rows, is_whole, items_of, real, whole
from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.space.columns import Feature
from manyarms.typing import Array, ArrayLike

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
            raise ArmsError(f"{self.name!r} must be {expected}, got {shortened(value)}")
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
            repr(self.levels)  # Python writes no number of 4,301 digits
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"{self.name!r} must have levels that can be hashed and written, a tuple for a "
                f"list: {error}"
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
                f"{self.name!r} must be one of {list(self.levels)}, got {shortened(value)}"
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


Point = dict[str, Any] | tuple[Any, ...]
"""Columns by name, or, of a box without names, in order."""
LARGEST_WHOLE = 2**53
"""Whole numbers up to this size are exact in float64."""
MOST_LEVELS = 4096
"""Levels of all columns together, at most, that are tried one by one: each is a row to be scored in
every round of a search."""


class Box:
    """Ranges, levels and choices.

    ``Box(lr=(1e-4, 1e-1, "log"), units=(8, 512), act=["relu", "tanh"])``, or ``Box([[0, 1], [-5,
    5]])``. A box of lists only is a product of levels: ``Box(temperature=[60, 80, 100],
    solvent=["water", "ethanol"])``. It is never written out, however many combinations it has.
    Kernels, policies and maximisers see encoded rows: numbers scaled to [0, 1], then codes of
    choices. A box never changes.

    Parameters
    ----------
    bounds : array_like, (d, 2), optional
        Lowest and highest number of every column; a point is then a tuple of numbers.
    **columns
        By name, a range ``(low, high)`` or ``(low, high, "log")`` or a list of levels; a point is
        then a dict. A range between two ints is of whole numbers; write ``(0.0, 1.0)`` for all
        between. Levels that are numbers are taken as numbers, on a log scale where that spaces
        them more evenly; write numbers that are names as text.
    """

    def __init__(self, bounds: ArrayLike | None = None, /, **columns: Any) -> None:
        if (bounds is None) == (not columns):
            raise ParameterError(
                "a box takes either an array of bounds (d, 2) or columns by name: Box(x=(0.0, "
                "1.0), …)"
            )
        self.named = bounds is None
        given = (
            _ranges(bounds)
            if bounds is not None
            else [_column(name, value) for name, value in columns.items()]
        )
        self.columns: tuple[Side, ...] = tuple(given)
        # Numbers first, then choices, each in the order given: False sorts before True.
        order = sorted(range(len(given)), key=lambda i: isinstance(given[i], Choice))
        self._order = np.array(order, dtype=np.intp)  # where each encoded column stood
        self._encoded = tuple(given[i] for i in order)

    @property
    def names(self) -> list[str]:
        """Of the columns, in the order given; "x0", "x1", … where they have none."""
        return [column.name for column in self.columns]

    @property
    def dimension(self) -> int:
        """Encoded columns."""
        return len(self.columns)

    @cached_property
    def n_numeric(self) -> int:
        """How many of them are numbers; the others are codes."""
        return sum(not isinstance(column, Choice) for column in self.columns)

    @cached_property
    def size(self) -> float:
        """How many points there are: a whole number, or ∞."""
        sizes = [column.size for column in self.columns]
        return np.inf if np.inf in sizes else prod(sizes)

    @cached_property
    def levels(self) -> list[Array] | None:
        """The codes of every encoded column, where all have few enough to be tried one by one."""
        n_levels = sum(column.size for column in self._encoded)
        return None if n_levels > MOST_LEVELS else [column.grid for column in self._encoded]

    @property
    def features(self) -> list[Feature]:
        """The encoded columns, as those of a `Pool`."""
        return [column.feature(at) for at, column in enumerate(self._encoded)]

    def points(self, points: Any) -> list[Point]:
        """One point or several as a list, each checked.

        Points are dicts, or tuples where the box has no names.
        """
        if isinstance(points, Mapping):
            return [self._point(points)]
        if not _is_sequence(points):
            raise ArmsError(f"expected a point of {self!r}, or several, got {shortened(points)}")
        # A tuple of numbers is one point of a box without names; of sequences, several.
        one = not self.named and len(points) and not isinstance(points[0], Sequence | np.ndarray)
        return [self._point(point) for point in ([points] if one else points)]

    def _point(self, point: Any) -> Point:
        # Points are ids too: NumPy's numbers would be written otherwise than Python's.
        values = [
            value.item() if isinstance(value, np.generic) else value for value in self.values(point)
        ]
        checked = [column.check(value) for column, value in zip(self.columns, values, strict=True)]
        return self.point(checked)

    def point(self, values: Sequence[Any]) -> Point:
        """The point of values that were checked, in the order of the columns."""
        return dict(zip(self.names, values, strict=True)) if self.named else tuple(values)

    def values(self, point: Any) -> list[Any]:
        """The values of a point, in the order of the columns; ArmsError where some lack."""
        if self.named:
            if not isinstance(point, Mapping) or set(point) != set(self.names):
                raise ArmsError(
                    f"a point of this box is a dict of the columns {self.names}, got "
                    f"{shortened(point)}"
                )
            return [point[name] for name in self.names]
        if not _is_sequence(point) or len(point) != len(self.columns):
            raise ArmsError(
                f"a point of this box has {len(self.columns)} numbers, got {shortened(point)}"
            )
        return list(point)

    def encode(self, points: Any) -> Array:
        """Rows of one point or several.

        Parameters
        ----------
        points : dict, tuple or sequence of such
            Points of the box.

        Returns
        -------
        ndarray, (n, d)
            Numbers scaled to [0, 1] first, codes of choices after them.

        Raises
        ------
        ArmsError
            A point is not of this box.
        """
        return self.rows([self.values(point) for point in self.points(points)])

    def rows(self, values: Sequence[Sequence[Any]]) -> Array:
        """Rows (n, d) of points that were checked, each as its values in the order of the
        columns."""
        if not values:
            return np.zeros((0, self.dimension))
        columns = zip(self.columns, zip(*values, strict=True), strict=True)
        return np.column_stack([column.encode(each) for column, each in columns])[:, self._order]

    def decode(self, rows: ArrayLike) -> list[Point]:
        """The points of rows.

        Parameters
        ----------
        rows : array_like, (n, d)
            Encoded rows.

        Returns
        -------
        list of dict or tuple
            A point for each row.

        Raises
        ------
        ArmsError
            A row is outside the box.
        """
        back = np.argsort(self._order)  # to the order given
        decoded: list[Point] = []
        for row in self.checked(rows).tolist():
            values = [column.decode(code) for column, code in zip(self._encoded, row, strict=True)]
            decoded.append(self.point([values[i] for i in back]))
        return decoded

    def checked(self, rows: ArrayLike) -> Array:
        """Encoded rows (n, d), each of them inside the box, or ArmsError."""
        X = finite_rows(rows, self.dimension)
        snapped = self.snap(X)
        outside = np.argwhere(np.abs(X - snapped) > CODE_TOLERANCE)
        if len(outside):
            row, j = outside[0]
            column = self._encoded[j]
            kinds = (
                "the codes of its levels"
                if not isinstance(column, Range)
                else "[0, 1], in steps where it is of whole numbers"
            )
            raise ArmsError(
                f"row {X[row]} is outside the box: {column.name!r} must be in {kinds}, got "
                f"{X[row, j]}"
            )
        return snapped

    def snap(self, rows: Array) -> Array:
        """The nearest rows inside the box."""
        return np.column_stack(
            [column.snap(codes) for column, codes in zip(self._encoded, rows.T, strict=True)]
        )

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Rows drawn uniformly.

        Parameters
        ----------
        n : int
            How many.
        rng : numpy.random.Generator
            What they are drawn with.

        Returns
        -------
        ndarray, (n, d)
            Encoded rows.
        """
        n = whole(n, "n", at_least=0, at_most=MOST_AT_ONCE)
        if not isinstance(rng, np.random.Generator):
            raise ParameterError(f"rng must be a numpy Generator, got {shortened(rng)}")
        return np.column_stack([column.sample(n, rng) for column in self._encoded])

    def grid(self, most: int) -> Array | None:
        """All rows, where there are at most so many.

        Parameters
        ----------
        most : int
            How many at most.

        Returns
        -------
        ndarray, (n, d), or None
            None where there are more, or infinitely many.
        """
        return None if self.size > whole(most, "most") else self.first(int(self.size))

    def first(self, n: int) -> Array:
        """The first n rows of a box that has so many, (n, d): the last column changes fastest."""
        rows = np.empty((n, self.dimension))
        left = np.arange(n)
        for j, column in reversed(list(enumerate(self._encoded))):
            left, at = np.divmod(left, int(column.size))
            rows[:, j] = column.grid[at]
        return rows

    def neighbours(self, row: Array) -> Array:
        """Rows that differ in one choice, or by one step of a whole number or a level, (k, d)."""
        moved = []
        for j, column in enumerate(self._encoded):
            for code in column.beside(row[j]):
                moved.append(row.copy())
                moved[-1][j] = code
        return np.array(moved).reshape(-1, self.dimension)

    def __repr__(self) -> str:
        return f"Box({', '.join(f'{column.name}={column.given}' for column in self.columns)})"


def finite_rows(rows: ArrayLike, dimension: int) -> Array:
    """A copy (n, d) of rows that are given, n = 0 where there are none."""
    if items_of(rows) == []:
        return np.zeros((0, dimension))
    return np.array(as_rows(rows, dimension), dtype=np.float64)


def _is_sequence(value: Any) -> bool:
    """Several values: neither a string nor an array of one number."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(level: Any) -> bool:
    """Something with a distance to others: neither a truth nor ∞, which stands for "no limit"."""
    is_real = isinstance(level, Real) and not isinstance(level, bool | np.timedelta64)
    return is_real and -np.inf < level < np.inf


def _column(name: str, value: Any) -> Side:
    if isinstance(value, list):
        are_numbers = all(map(_is_number, value))
        return NumericLevels.of(name, value) if are_numbers else Choice(name, tuple(value))
    if (
        not isinstance(value, tuple)
        or len(value) not in (2, 3)
        or not all(isinstance(scale, str) and scale == "log" for scale in value[2:])
    ):
        raise ParameterError(
            f'{name!r} must be (low, high), (low, high, "log") or a list of levels, got '
            f"{shortened(value)}"
        )
    low, high = (real(end, f"an end of {name!r}", "a finite number") for end in value[:2])
    are_whole = all(map(is_whole, value[:2]))
    if are_whole and max(abs(low), abs(high)) > LARGEST_WHOLE:
        raise ParameterError(
            f"{name!r} is of whole numbers, which must be at most 2⁵³ in size, got "
            f"{shortened(value)}; write {low:.3g} and {high:.3g} for all numbers between"
        )
    return Range(
        name,
        int(low) if are_whole else low,
        int(high) if are_whole else high,
        log=len(value) == 3,
        whole=are_whole,
    )


def _ranges(bounds: ArrayLike) -> list[Side]:
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(
            f"bounds must be numbers of shape (d, 2), got {shortened(bounds)}"
        ) from error
    if array.ndim != 2 or array.shape[1] != 2 or not len(array) or not np.isfinite(array).all():
        raise ParameterError(
            "bounds must be finite and of shape (d, 2), lowest and highest of every column, "
            f"got {shortened(bounds)}"
        )
    return [Range(f"x{i}", low, high) for i, (low, high) in enumerate(array.tolist())]
