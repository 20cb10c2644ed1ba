"""What is chosen among: the rows of a table, or the points of a box that are known so far."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Never

import numpy as np

from manyarms.errors import Advice, ParameterError, UnknownArmError
from manyarms.kernels.base import Kernel
from manyarms.kernels.objects import encoder_of
from manyarms.runtime.foreign import is_parquet
from manyarms.space.box import Box, Point
from manyarms.space.columns import Feature
from manyarms.space.pool import Pool
from manyarms.typing import Array, Indices


class NewPoint(tuple[Any, ...]):
    """The values of a point that has no number yet, in the order of the columns."""

    __slots__ = ()

    def __str__(self) -> str:
        return "new"


@dataclass(frozen=True)
class Points:
    """The points of a box that were asked for or told. Each point is an arm of its own, and its own
    id. What only tables have is None or empty."""

    box: Box
    ids: tuple[Point, ...]
    X: Array  # (n, d)
    _at: dict[tuple[Any, ...], int]  # shared by all that grew from one, so checked when read

    id_column: ClassVar[None] = None
    kernel: ClassVar[None] = None
    expected: ClassVar[None] = None
    target: ClassVar[None] = None
    remarks: ClassVar[None] = None
    results: ClassVar[tuple[()]] = ()
    units: ClassVar[Mapping[str, str]] = {}
    unused: ClassVar[Mapping[str, str]] = {}
    words: ClassVar[Mapping[str, Mapping[str, float]]] = {}
    decimal: ClassVar[str] = "."

    @classmethod
    def none(cls, box: Box) -> "Points":
        """No point yet."""
        return cls(box, (), np.zeros((0, box.dimension)), {})

    def known(self, points: Any, *, checked: bool = False) -> tuple["Points", Indices]:
        """These points and more, given as one point or several, and the positions (n,) of the
        latter; ArmsError if one is not in the box. Points of a log were checked before."""
        keys = self._keys(points if checked else self.box.points(points))
        new = list(dict.fromkeys(key for key in keys if self._position(key) is None))
        if not new:
            return self, np.array([self._at[key] for key in keys], dtype=np.intp)
        at = self._at
        if len(at) != len(self.ids):  # another table grew from this one
            at = {key: i for i, key in enumerate(self._keys(self.ids))}
        for i, key in enumerate(new):
            at[key] = len(self.ids) + i
        more = [self.box.point(key) for key in new]
        X = np.vstack([self.X, self.box.rows(new)])
        grown = Points(self.box, (*self.ids, *more), X, at)
        return grown, np.array([at[key] for key in keys], dtype=np.intp)

    def positions(self, points: Any) -> Indices:
        """Where these points are, (n,)."""
        found = []
        for key in self._keys(self.box.points(points)):
            position = self._position(key)
            if position is None:
                raise UnknownArmError(f"{self.box.point(key)!r} was neither asked for nor told")
            found.append(position)
        return np.array(found, dtype=np.intp)

    def labels(self, points: Sequence[Any]) -> list[Any]:
        """What people call these points: by numbers from 1, in the order in which they became
        known; a `NewPoint` where one is not known."""
        keys = self._keys(self.box.points(points))
        at = [self._position(key) for key in keys]
        return [
            NewPoint(key) if position is None else position + 1
            for key, position in zip(keys, at, strict=True)
        ]

    def ids_of(self, labels: Sequence[Any]) -> list[Point]:
        """The points that people call so; UnknownArmError where there is no such number."""
        found = []
        for label in labels:
            if isinstance(label, NewPoint):
                found.append(self.box.point(label))
                continue
            text = str(label).strip()
            number = int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else 0
            if not 1 <= number <= len(self):
                there = f"those known are 1 to {len(self)}" if len(self) else "none is known yet"
                raise UnknownArmError(f"there is no point {label!r}; {there}", id=label)
            found.append(self.ids[number - 1])
        return found

    def _keys(self, points: Any) -> list[tuple[Any, ...]]:
        """The values of points, in the order of the columns."""
        if self.box.named:
            return [tuple(point[name] for name in self.names) for point in points]
        return [tuple(point) for point in points]

    def _position(self, key: tuple[Any, ...]) -> int | None:
        at = self._at.get(key)
        is_known = at is not None and at < len(self.ids) and self._keys([self.ids[at]]) == [key]
        return at if is_known else None

    def table(self, what: str) -> Never:
        """A box has no table: ParameterError."""
        raise ParameterError(
            f"a box has no list of candidates to {what}",
            Advice(
                "{} takes any point of it, and one that failed is not asked for again", "tell()"
            ),
        )

    def completed(self, rows: Array) -> Array:
        """Encoded rows as they are: no column follows from the others."""
        return rows

    def rows(self, points: Any) -> list[dict[str, Any]]:
        """The values of points by column."""
        keys = self._keys(self.box.points(points))
        return [dict(zip(self.names, key, strict=True)) for key in keys]

    @property
    def names(self) -> list[str]:
        """The columns of the box."""
        return self.box.names

    @property
    def columns(self) -> dict[str, str]:
        """The type of each."""
        types = {feature.name: feature.type for feature in self.features}
        return {name: types[name] for name in self.names}

    @property
    def features(self) -> list[Feature]:
        """The encoded columns."""
        return self.box.features

    @property
    def size(self) -> float:
        """How many points there are, known or not: a whole number, or ∞."""
        return self.box.size

    @property
    def arm_of(self) -> Indices:
        """Every point is an arm of its own, (n,)."""
        return np.arange(len(self.ids))

    def members(self, arm: int) -> Indices:
        """The points of an arm."""
        return np.array([arm])

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return repr(self.box)


Space = Pool | Points
"""A table, or the known points of a box. Both have the same attributes; `box` is None of a table,
so nobody needs to ask for the class."""


def as_space(space: Any, kernel: Any = None) -> Space:
    """What is chosen among, made from what a user gave: a pool, a table, its path, a box, or
    objects if the kernel is one of objects."""
    if isinstance(space, Pool | Points):
        return space
    if isinstance(space, Box):
        return Points.none(space)
    if isinstance(kernel, Kernel) and encoder_of(kernel) is not None:
        return Pool.from_objects(space, kernel)
    if isinstance(space, str | Path):
        return Pool.from_parquet(space) if is_parquet(Path(space)) else Pool.from_csv(space)
    if isinstance(space, np.ndarray):
        return Pool.from_array(space)
    are_dicts = isinstance(space, list) and space and isinstance(space[0], dict)
    return Pool.from_dicts(space) if are_dicts else Pool.from_frame(space)
