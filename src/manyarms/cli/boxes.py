"""Boxes on the command line: how one is typed, and its points by numbers.

To the library a point is its own id. Here the points have numbers, from 1 in the order in which
they were asked for or told, and stand beside them in tables and files.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from manyarms.campaign.insight import CrossValidated
from manyarms.campaign.predictions import Predictions
from manyarms.campaign.trials import CandidateId, Trial
from manyarms.cli.app import InputError
from manyarms.cli.output import shown
from manyarms.errors import ArmsError, UnknownArmError
from manyarms.space.box import Box
from manyarms.space.points import Points
from manyarms.space.sides import Choice, NumericLevels, Range, Side
from manyarms.study import Lease, Study
from manyarms.typing import AnyArray, Indices

RANGE_TOLERANCE = 1e-6
"""Share of a range by which a number in a file may differ from the one suggested: spreadsheets keep
fifteen digits, some of them fewer."""
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
LEVEL = rf"(?![+-]?0\d){NUMBER}"


def as_box(texts: Sequence[str]) -> Box:
    """The box of columns as they are typed: NAME=LOW:HIGH, with :log or :int or both behind, or
    NAME=LEVEL,LEVEL,…, with :choice behind where numbers are names."""
    columns: dict[str, Any] = {}
    for text in texts:
        name, is_there, values = text.partition("=")
        name = name.strip()
        if not is_there or not name:
            raise InputError(f"--box takes NAME=LOW:HIGH or NAME=LEVEL,LEVEL,…, got {text[:80]!r}")
        if name in columns:
            raise InputError(f"--box has the column {name!r} twice; give it once")
        is_range = re.fullmatch(r"[^:,]*:[^:,]*(:(log|int))*", values.strip())
        columns[name] = _range(text, values) if is_range else _levels(text, values)
    return Box(**columns)


def _range(text: str, values: str) -> tuple[Any, ...]:
    low, high, *marks = [each.strip() for each in values.split(":")]
    if not re.fullmatch(NUMBER, low) or not re.fullmatch(NUMBER, high):
        raise InputError(f"--box {text[:80]}: the ends of a range must be numbers, such as 20:120")
    ends = float(low), float(high)
    if "int" in marks:
        # 1e400 is infinite, of which int() would raise another error.
        if not all(math.isfinite(end) and end == int(end) for end in ends):
            raise InputError(f"--box {text[:80]}: the ends of :int must be whole numbers")
        ends = int(ends[0]), int(ends[1])
    return (*ends, "log") if "log" in marks else ends


def _levels(text: str, values: str) -> list[Any]:
    listed = values.strip().removesuffix(":choice")
    is_marked = listed != values.strip()
    levels = [each.strip() for each in listed.split(",")]
    # 1:2:3 and 1,5:2 are ranges that were mistyped, not levels.
    looks_like_a_range = re.fullmatch(r"[\d.,eE+-]*:[\d.,eE+:-]*(log|int|:)*", values.strip())
    if len(levels) < 2 or not all(levels) or looks_like_a_range:
        raise InputError(
            f"--box {text[:80]}: expected LOW:HIGH, with :log or :int behind where that is meant "
            "and a point in numbers, or levels with commas between, with :choice behind where "
            "numbers are names"
        )
    # 007 is a name, not a number.
    if is_marked or not all(re.fullmatch(LEVEL, level) for level in levels):
        return list(levels)
    return [int(level) if re.fullmatch(r"[+-]?\d+", level) else float(level) for level in levels]


def column_types(box: Box) -> dict[str, str]:
    """What each column is, in words."""
    return {column.name: _type(column) for column in box.columns}


def _type(column: Side) -> str:
    if isinstance(column, Choice):
        return "choice"
    if isinstance(column, NumericLevels):
        return "levels, log scale" if column.log else "levels"
    kind = "integer" if column.whole else "continuous"
    return f"{kind}, log scale" if column.log else kind


def column_extents(box: Box) -> dict[str, str]:
    """What each column may be, in words."""
    return {
        column.name: ", ".join(map(str, column.levels))
        if not isinstance(column, Range)
        else f"{shown(column.low)} to {shown(column.high)}"
        for column in box.columns
    }


class NewPoint(tuple[Any, ...]):
    """The values of a point that has no number yet, in the order of the columns."""

    __slots__ = ()

    def __str__(self) -> str:
        return "new"


class NumberedPoints:
    """The points of a box that are known, with numbers for ids; for the rest as a `Pool`."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.features = points.features

    @property
    def ids(self) -> AnyArray:
        """1, 2, …."""
        return np.arange(1, len(self.points) + 1)

    @property
    def names(self) -> list[str]:
        """The columns of the box."""
        return self.points.box.names

    @property
    def columns(self) -> dict[str, str]:
        """What each is."""
        box = self.points.box
        values = column_extents(box)
        return {name: f"{kind}: {values[name]}" for name, kind in column_types(box).items()}

    def positions(self, ids: Any) -> Indices:
        """Where points are, by their numbers; UnknownArmError where one is not there."""
        numbers = ids if isinstance(ids, list | np.ndarray) else [ids]
        n = len(self.points)
        for id in numbers:
            if not isinstance(id, int | np.integer) or not 1 <= id <= n:
                there = f"those known are 1 to {n}" if n else "none is known yet"
                raise UnknownArmError(f"there is no point {id!r}; {there}", id=id)
        return np.asarray(numbers, dtype=np.intp) - 1

    def row(self, id: int) -> dict[str, Any]:
        """The columns of a point."""
        return self.rows([id])[0]

    def rows(self, ids: Any) -> list[dict[str, Any]]:
        """The columns of points."""
        return [self._named(self.point(id)) for id in ids]

    def numbers(self, points: Sequence[Any]) -> list[int]:
        """The numbers of points that are known."""
        at = self.points.positions(points) if len(points) else np.zeros(0, dtype=np.intp)
        return [int(position) + 1 for position in at]

    def number(self, point: Any) -> "int | NewPoint":
        """The number of a point, or its values where it has none."""
        try:
            return self.numbers([point])[0]
        except UnknownArmError:
            return NewPoint(self._named(point).values())

    def label(self, point: Any) -> str:
        """A point for sentences: its number, if it has one, and its columns."""
        cells = [f"{name} {shown(value)}" for name, value in self._named(point).items()]
        number = self.number(point)
        return (
            ", ".join(cells) if isinstance(number, NewPoint) else f"{number} ({', '.join(cells)})"
        )

    def as_id(
        self, where: str, number: str | None, cells: Sequence[str | None], decimal: str
    ) -> Any:
        """Which point a row of a file is about: its number, or the values of one that is new.

        A row that has both must be of one point: what was suggested was not tried where they
        differ.
        """
        box = self.points.box
        given = [
            None if cell is None or not cell.strip() else _cell(where, column, cell, decimal)
            for column, cell in zip(box.columns, cells, strict=True)
        ]
        if number is not None and number.strip():
            plain = number.strip()
            id: Any = int(plain) if re.fullmatch(r"\d{1,18}", plain, re.ASCII) else plain
            known = self.rows([id])[0]
            for column, value in zip(box.columns, given, strict=True):
                if value is not None and not _is_same(column, value, known[column.name]):
                    raise InputError(
                        f"{where}: {column.name!r} of point {id} is {known[column.name]!r}, the "
                        f"file has {value!r}; put that back, or leave the id empty where another "
                        "point was tried"
                    )
            return id
        lacking = [name for name, value in zip(self.names, given, strict=True) if value is None]
        if lacking:
            raise InputError(
                f"{where}: neither an id nor a value of {lacking[0]!r}; a point is told by its "
                "number, or by all its columns"
            )
        (point,) = box.points([dict(zip(self.names, given, strict=True)) if box.named else given])
        return self.number(point)  # one that is told by its columns may be known

    def point(self, id: Any) -> Any:
        """The point of a number, or of the values of one that is new."""
        if isinstance(id, NewPoint):
            return dict(zip(self.names, id, strict=True)) if self.points.box.named else tuple(id)
        return self.points.ids[self.positions([id])[0]]

    def _named(self, point: Any) -> dict[str, Any]:
        return dict(point) if isinstance(point, dict) else dict(zip(self.names, point, strict=True))

    def __len__(self) -> int:
        return len(self.points)


def _cell(where: str, column: Side, cell: str, decimal: str) -> Any:
    """A value of a column as it stands in a file."""
    text: Any = cell.strip()
    if isinstance(column, Choice):
        for level in column.levels:
            if text in (str(level), "" if level is None else None):
                return level
    else:
        plain = text.replace(",", ".") if decimal == "," else text
        if re.fullmatch(NUMBER, plain):
            number = float(plain)
            if isinstance(column, NumericLevels):
                text = _level(column, number)
            else:
                # A spreadsheet may write 5 as 5.0.
                text = int(number) if column.whole and number == round(number) else number
    try:
        return column.check(text)
    except ArmsError as error:
        raise InputError(f"{where}: {error}") from None


def _level(column: NumericLevels, number: float) -> float:
    """The level that a number is up to its last digits, which a file may lack; else the number."""
    nearest = min(column.levels, key=lambda level: abs(level - number))
    return nearest if math.isclose(nearest, number, rel_tol=RANGE_TOLERANCE) else number


def _is_same(column: Side, value: Any, known: Any) -> bool:
    if isinstance(column, Choice):
        return bool(value == known)
    # On the scale of the column, of logarithms too: SAME is a share of the range.
    one, other = column.encode([value, known])
    return bool(abs(one - other) <= RANGE_TOLERANCE)


class NumberedStudy:
    """A study of a box with numbers for ids; whatever else it is asked for is that of the study."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @property
    def pool(self) -> NumberedPoints:
        """The points known so far."""
        # Made anew at each call, so that points that others asked for have numbers, too.
        return NumberedPoints(self.study.pool)

    def ask(self, n: int = 1, **options: Any) -> list[int]:
        """The numbers of n points to try."""
        asked = self.study.ask(n, **options)
        # After the asking: points that are new have no numbers before it.
        return self.pool.numbers(asked)

    @property
    def pending(self) -> list[int]:
        """The numbers of points that are being tried."""
        return self.pool.numbers(self.study.pending)

    @property
    def leases(self) -> list[Lease]:
        """Who is trying what."""
        leases = self.study.leases
        numbers = self.pool.numbers([lease.id for lease in leases])
        return [replace(lease, id=id) for lease, id in zip(leases, numbers, strict=True)]

    def tell(self, ids: Sequence[Any], values: Any = None, **options: Any) -> None:
        """Learn the values of points, by their numbers or, where they are new, their values."""
        self.study.tell(self._points(ids), values, **options)

    def correct(self, trials: Sequence[Trial], values: Any, **options: Any) -> None:
        """Results have other values."""
        self.study.correct(self._of_points(trials), values, **options)

    def revise(
        self,
        told: dict[str, Any] | None,
        corrected: dict[str, Any] | None,
        noted: Sequence[tuple[Trial, str]],
    ) -> None:
        """All as one."""
        trials = self._of_points([trial for trial, _ in noted])
        self.study.revise(
            told and {**told, "ids": self._points(told["ids"])},
            corrected and {**corrected, "ids": self._of_points(corrected["ids"])},
            [(trial, text) for trial, (_, text) in zip(trials, noted, strict=True)],
        )

    def release(self, ids: Sequence[int]) -> None:
        """These points are not being tried after all."""
        self.study.release(self._points(ids))

    def predict(self, ids: Sequence[Any], level: float = 0.95) -> Predictions:
        """What is predicted of points."""
        found = self.study.predict(self._points(ids), level)
        return found._replace(ids=list(ids))

    def left_out(self, level: float = 0.95) -> CrossValidated:
        """The points that were tried, each predicted from all others."""
        found = self.study.left_out(level)
        numbers: list[CandidateId] = [*self.pool.numbers(found.predicted.ids)]
        return found._replace(predicted=found.predicted._replace(ids=numbers))

    def best(self, level: float = 0.95) -> Any:
        """The best point."""
        return self._numbered(self.study.best(level))

    def top(self, k: int = 10, level: float = 0.95) -> list[Any]:
        """The points of best posterior mean: those known, and of a product of levels others."""
        return [self._numbered(each) for each in self.study.top(k, level)]

    def certificate(self, tolerance: float | None = None) -> Any:
        """How much better another point may be."""
        found = self.study.certificate(tolerance)
        pool = self.pool
        return replace(found, id=pool.label(found.id), rival=pool.label(found.rival))

    @property
    def history(self) -> list[Any]:
        """Every result told, oldest first."""
        trials = self.study.history
        numbers = self.pool.numbers([trial.id for trial in trials])
        return [replace(trial, id=id) for trial, id in zip(trials, numbers, strict=True)]

    def _of_points(self, trials: Sequence[Trial]) -> list[Trial]:
        """Results with points for numbers."""
        points = self._points([trial.id for trial in trials])
        return [replace(trial, id=id) for trial, id in zip(trials, points, strict=True)]

    def _points(self, ids: Sequence[Any]) -> list[CandidateId]:
        pool = self.pool
        return [pool.point(id) for id in ids]

    def _numbered(self, answer: Any) -> Any:
        """An answer, and those in it, with numbers for points."""
        changed = {}
        for field in fields(answer):
            value = getattr(answer, field.name)
            if field.name == "id":
                changed["id"] = self.pool.number(value)
            elif is_dataclass(value):
                changed[field.name] = self._numbered(value)
        return replace(answer, **changed)

    def __enter__(self) -> "NumberedStudy":
        return self

    def __exit__(self, *_: object) -> None:
        self.study.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.study, name)


def numbered(study: Study) -> Any:
    """The study; of a box, with numbers for ids."""
    return NumberedStudy(study) if isinstance(study.pool, Points) else study


def refuse_box(study: Any, what: str) -> None:
    """InputError where a study is of a box, which has no list of candidates."""
    if isinstance(study, NumberedStudy):
        raise InputError(
            f"a box has no list of candidates to {what}; `manyarms tell` takes any point of it, "
            "and one that failed is not suggested again"
        )
