"""What an optimizer chooses among: the rows of a `Pool`, or the points of a `Box` known so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.errors import UnknownArmError
from manyarms.space.box import Box, Point
from manyarms.space.columns import Feature
from manyarms.space.pool import Pool
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class Points:
    """The points of a box that were asked for or told. Each point is an arm of its own, and its own
    id."""

    box: Box
    ids: tuple[Point, ...]
    X: Array  # (n, d)
    _at: dict[tuple[Any, ...], int]  # shared by all that grew from one, so checked when read

    @classmethod
    def none(cls, box: Box) -> "Points":
        """No point yet."""
        return cls(box, (), np.zeros((0, box.dimension)), {})

    def with_points(self, points: Any) -> "Points":
        """These points and more, given as one point or several; ArmsError if one is not in the
        box."""
        new: dict[tuple[Any, ...], Point] = {}
        for point in self.box.points(points):
            if self._position(_key(point)) is None:
                new.setdefault(_key(point), point)
        return self._grown(new)

    def taken_in(self, points: Sequence[Any]) -> tuple["Points", Indices]:
        """These points and more, which were checked before (those of a log), and the positions (n,)
        of the latter."""
        names = self.box.names
        keys = [
            tuple(point[name] for name in names) if self.box.named else tuple(point)
            for point in points
        ]
        new: dict[tuple[Any, ...], Point] = {}
        for key in keys:
            if self._position(key) is None:
                new[key] = dict(zip(names, key, strict=True)) if self.box.named else key
        grown = self._grown(new)
        return grown, np.array([grown._at[key] for key in keys], dtype=np.intp)

    def _grown(self, new: dict[tuple[Any, ...], Point]) -> "Points":
        """These and new ones, by key."""
        if not new:
            return self
        at = self._at
        if len(at) != len(self.ids):  # another table grew from this one
            at = {_key(point): i for i, point in enumerate(self.ids)}
        for i, key in enumerate(new):
            at[key] = len(self.ids) + i
        rows = self.box.rows(list(new))
        return Points(self.box, (*self.ids, *new.values()), np.vstack([self.X, rows]), at)

    def positions(self, points: Any) -> Indices:
        """Where these points are, (n,)."""
        found = []
        for point in self.box.points(points):
            position = self._position(_key(point))
            if position is None:
                raise UnknownArmError(f"{point!r} was neither asked for nor told")
            found.append(position)
        return np.array(found, dtype=np.intp)

    def _position(self, key: tuple[Any, ...]) -> int | None:
        at = self._at.get(key)
        return at if at is not None and at < len(self.ids) and _key(self.ids[at]) == key else None

    @property
    def features(self) -> Sequence[Feature]:
        """The encoded columns."""
        return self.box.features

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


CandidateTable = Pool | Points
"""A table, or the known points of a box: only ids, X, arm_of, features, positions and members are
used, which both have."""


def _key(point: Point) -> tuple[Any, ...]:
    return tuple(point.values()) if isinstance(point, dict) else point
