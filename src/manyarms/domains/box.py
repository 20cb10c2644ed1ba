"""A box: ranges of numbers, on a log scale or whole where asked, and choices among categories.

| column | written | encoded as |
|---|---|---|
| numbers | ``(low, high)``, not both of them whole | [0, 1] |
| whole numbers | ``(low, high)`` of two ints | [0, 1], in steps |
| either, on a log scale | ``(low, high, "log")`` | the same, of the logarithm |
| a choice | a list of levels | codes 0, 1, … |

Encoded rows have the numbers first, in the order given, then the choices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from manyarms.arms.array import as_rows
from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.numbers import MOST_AT_ONCE, is_whole, items_of, real, whole
from manyarms.pool.columns import Feature
from manyarms.typing import Array, ArrayLike

Point = dict[str, Any] | tuple[Any, ...]
"""Columns by name, or, of a box without names, in order."""
LARGEST_WHOLE = 2**53
"""Whole numbers up to this size are exact in float64."""
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
        return self.high - self.low + 1 if self.whole else np.inf

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
    def size(self) -> float:
        """How many values there are."""
        return len(self.levels)

    def grid(self) -> Array:
        """The codes of all values."""
        return np.arange(len(self.levels), dtype=np.float64)

    def beside(self, code: float) -> list[float]:
        """The other levels."""
        return [float(i) for i in range(len(self.levels)) if i != code]


class Box:
    """Ranges and choices.

    ``Box(lr=(1e-4, 1e-1, "log"), units=(8, 512), act=["relu", "tanh"])``, or ``Box([[0, 1], [-5,
    5]])``. Kernels, policies and maximisers see encoded rows: numbers scaled to [0, 1], then codes
    of choices. A box never changes.

    Parameters
    ----------
    bounds : array_like, (d, 2), optional
        Lowest and highest number of every column; a point is then a tuple of numbers.
    **columns
        By name, a range ``(low, high)`` or ``(low, high, "log")`` or a list of levels; a point is
        then a dict. A range between two ints is of whole numbers; write ``(0.0, 1.0)`` for all
        between.
    """

    kernel: ClassVar[None] = None  # that of a pool of objects, which this is not

    def __init__(self, bounds: ArrayLike | None = None, /, **columns: Any) -> None:
        if (bounds is None) == (not columns):
            raise ParameterError(
                "a box takes either an array of bounds (d, 2) or columns by name: Box(x=(0.0, "
                "1.0), …)"
            )
        self.named = bounds is None
        given = (
            [_column(name, value) for name, value in columns.items()]
            if bounds is None
            else _ranges(bounds)
        )
        self.columns: tuple[Range | Choice, ...] = tuple(given)
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
        return sum(isinstance(column, Range) for column in self.columns)

    @property
    def features(self) -> list[Feature]:
        """The encoded columns, as those of a `Pool`."""
        return [_feature(i, column) for i, column in enumerate(self._encoded)]

    def points(self, points: Any) -> list[Point]:
        """One point or several as a list, each checked.

        Points are dicts, or tuples where the box has no names.
        """
        if isinstance(points, Mapping):
            return [self._point(points)]
        if not _is_sequence(points):
            raise ArmsError(f"expected a point of {self!r}, or several, got {points!r}")
        # A tuple of numbers is one point of a box without names; of sequences, several.
        one = not self.named and len(points) and not isinstance(points[0], Sequence | np.ndarray)
        return [self._point(point) for point in ([points] if one else points)]

    def _point(self, point: Any) -> Point:
        values = self._values(point)
        # Points are ids too: NumPy's numbers would be written otherwise than Python's.
        plain = [value.item() if isinstance(value, np.generic) else value for value in values]
        checked = [column.check(value) for column, value in zip(self.columns, plain, strict=True)]
        return dict(zip(self.names, checked, strict=True)) if self.named else tuple(checked)

    def _values(self, point: Any) -> list[Any]:
        if self.named:
            if not isinstance(point, Mapping) or set(point) != set(self.names):
                raise ArmsError(
                    f"a point of this box is a dict of the columns {self.names}, got {point!r}"
                )
            return [point[name] for name in self.names]
        if not _is_sequence(point) or len(point) != len(self.columns):
            raise ArmsError(f"a point of this box has {len(self.columns)} numbers, got {point!r}")
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
        return self.rows([self._values(point) for point in self.points(points)])

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
        decoded: list[Point] = []
        for row in self.checked(rows).tolist():
            values = [column.decode(code) for column, code in zip(self._encoded, row, strict=True)]
            in_order = [values[i] for i in np.argsort(self._order)]  # back to the order given
            decoded.append(
                dict(zip(self.names, in_order, strict=True)) if self.named else tuple(in_order)
            )
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
                if isinstance(column, Choice)
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
        if np.prod([column.size for column in self._encoded]) > most:
            return None  # a range of numbers has size ∞
        axes = np.meshgrid(*(column.grid() for column in self._encoded), indexing="ij")
        return np.column_stack([axis.ravel() for axis in axes])

    def neighbours(self, row: Array) -> Array:
        """Rows that differ in one choice, or by one step of a whole number, (k, d)."""
        moved = []
        for j, column in enumerate(self._encoded):
            if isinstance(column, Choice) or column.whole:
                for code in column.beside(float(row[j])):
                    moved.append(row.copy())
                    moved[-1][j] = code
        return np.array(moved).reshape(-1, self.dimension)

    def __repr__(self) -> str:
        def shown(column: Range | Choice) -> str:
            if isinstance(column, Choice):
                return f"{column.name}={list(column.levels)}"
            ends = (column.low, column.high, "log") if column.log else (column.low, column.high)
            return f"{column.name}={ends}"

        return f"Box({', '.join(map(shown, self.columns))})"


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


def _column(name: str, value: Any) -> Range | Choice:
    if isinstance(value, list):
        return Choice(name, tuple(value))
    if (
        not isinstance(value, tuple)
        or len(value) not in (2, 3)
        or not all(isinstance(scale, str) and scale == "log" for scale in value[2:])
    ):
        raise ParameterError(
            f'{name!r} must be (low, high), (low, high, "log") or a list of levels, got {value!r}'
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


def _ranges(bounds: ArrayLike) -> list[Range | Choice]:
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"bounds must be numbers of shape (d, 2), got {bounds!r}") from error
    if array.ndim != 2 or array.shape[1] != 2 or not len(array) or not np.isfinite(array).all():
        raise ParameterError(
            "bounds must be finite and of shape (d, 2), lowest and highest of every column, "
            f"got {bounds!r}"
        )
    return [Range(f"x{i}", low, high) for i, (low, high) in enumerate(array.tolist())]


def _feature(i: int, column: Range | Choice) -> Feature:
    if isinstance(column, Choice):
        return Feature(column.name, "categorical", i, i + 1, "categorical", levels=column.levels)
    kind = "log" if column.log else "integer" if column.whole else "continuous"
    return Feature(
        column.name, "numeric", i, i + 1, kind, low=float(column.low), high=float(column.high)
    )
