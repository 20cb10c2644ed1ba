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

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from numbers import Real
from typing import Any

import numpy as np

from manyarms.checks import MOST_AT_ONCE, as_rows, is_whole, items_of, real, whole
from manyarms.errors import ArmsError, ParameterError, shortened
from manyarms.space.columns import Feature
from manyarms.space.sides import CODE_TOLERANCE, Choice, NumericLevels, Range, Side
from manyarms.typing import Array, ArrayLike

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
            raise ArmsError(f"expected a point of {self!r}, or several, got {points!r}")
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
        return None if self.size > most else self.first(int(self.size))

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


def _ranges(bounds: ArrayLike) -> list[Side]:
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
