"""What candidates are, as it is typed: boxes, levels to be combined, and types of columns."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms.cli.app import InputError
from manyarms.sheets.reading import read_sheet
from manyarms.space.box import Box
from manyarms.space.columns import TYPES

MOST_STEPS = 100_000
"""Levels of one range: more is a typing error."""
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
LEVEL = rf"(?![+-]?0\d){NUMBER}"
"""A number that is no name, such as 007."""

ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        help=f"NAME=TYPE overrules the type found: {', '.join(TYPES)}; number:RT=25 where a "
        "word stands for a number; categorical:merge where levels that differ by case or "
        "blanks are one; or NAME=low,high, levels in order. Repeatable.",
        metavar="NAME=TYPE",
    ),
]


def as_types(texts: Sequence[str]) -> dict[str, Any]:
    """NAME=TYPE, or NAME=levels with commas between."""
    types: dict[str, Any] = {}
    for text in texts:
        # A type with words behind it has = in it; of others the last = divides, as the name of a
        # column may have one itself.
        with_words = re.fullmatch(r"(.+?)=((?:number|continuous|log|integer):.*)", text, re.DOTALL)
        name, is_there, kind = (
            (with_words[1], "=", with_words[2]) if with_words else text.rpartition("=")
        )
        if not is_there or not name:
            raise InputError(f"--column takes NAME=TYPE, got {text!r}")
        types[name] = _ordered(kind.split(",")) if "," in kind and not with_words else kind
    return types


def _ordered(levels: list[str]) -> list[Any]:
    try:
        return [
            int(text) if text.strip().lstrip("-").isdecimal() else float(text) for text in levels
        ]
    except ValueError:
        return list(levels)


def as_box(texts: Sequence[str]) -> Box:
    """The box of columns as they are typed: NAME=LOW:HIGH, with :log or :int or both behind, or
    NAME=LEVEL,LEVEL,…, with :choice behind where numbers are names."""
    columns: dict[str, Any] = {}
    for text in texts:
        name, is_there, values = (part.strip() for part in text.partition("="))
        if not is_there or not name:
            raise InputError(f"--box takes NAME=LOW:HIGH or NAME=LEVEL,LEVEL,…, got {text[:80]!r}")
        if name in columns:
            raise InputError(f"--box has the column {name!r} twice; give it once")
        is_range = re.fullmatch(r"[^:,]*:[^:,]*(:(log|int))*", values)
        columns[name] = _range(text, values) if is_range else _side_levels(text, values)
    return Box(**columns)


def _range(text: str, values: str) -> tuple[Any, ...]:
    low, high, *marks = (each.strip() for each in values.split(":"))
    if not re.fullmatch(NUMBER, low) or not re.fullmatch(NUMBER, high):
        raise InputError(f"--box {text[:80]}: the ends of a range must be numbers, such as 20:120")
    ends: tuple[float, float] = float(low), float(high)
    if "int" in marks:
        # 1e400 is infinite, and no whole number.
        if not all(end.is_integer() for end in ends):
            raise InputError(f"--box {text[:80]}: the ends of :int must be whole numbers")
        ends = int(ends[0]), int(ends[1])
    return (*ends, "log") if "log" in marks else ends


def _side_levels(text: str, values: str) -> list[Any]:
    listed = values.removesuffix(":choice")
    levels = [each.strip() for each in listed.split(",")]
    # 1:2:3 and 1,5:2 are ranges that were mistyped, not levels.
    looks_like_a_range = re.fullmatch(r"[\d.,eE+-]*:[\d.,eE+:-]*(log|int|:)*", values)
    if len(levels) < 2 or not all(levels) or looks_like_a_range:
        raise InputError(
            f"--box {text[:80]}: expected LOW:HIGH, with :log or :int behind where that is meant "
            "and a point in numbers, or levels with commas between, with :choice behind where "
            "numbers are names"
        )
    return _numbers_or_names(levels) if listed == values else levels


def as_levels(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The levels of factors, typed as NAME=LEVEL,LEVEL,… or NAME=LOW:HIGH:STEP; or in a file, a
    column a factor."""
    levels: dict[str, list[Any]] = {}
    for text in texts:
        name, is_there, values = (part.strip() for part in text.partition("="))
        if is_there and not (name and values):
            raise InputError(f"--levels takes NAME=LEVEL,LEVEL,…, got {text[:80]!r}")
        found = {name: _factor_levels(text, values)} if is_there else _levels_in_file(Path(text))
        twice = [each for each in found if each in levels]
        if twice:
            raise InputError(f"--levels has {twice[0]!r} twice; give it once")
        levels |= found
    return levels


def _levels_in_file(path: Path) -> dict[str, list[Any]]:
    if not path.is_file():
        raise InputError(
            "--levels takes NAME=LEVEL,LEVEL,… or NAME=LOW:HIGH:STEP, or a file with a column of "
            f"levels for each factor; got {str(path)[:80]!r}"
        )
    frame = read_sheet(path, None, set(), set()).frame
    return {
        column.name: column.drop_nulls().unique(maintain_order=True).to_list() for column in frame
    }


def _factor_levels(text: str, values: str) -> list[Any]:
    if re.fullmatch(r"[^:,]*:[^:,]*:[^:,]*", values):
        return _steps(text, values.split(":"))
    levels = [each.strip() for each in values.split(",")]
    if not all(levels):
        raise InputError(f"--levels {text[:80]}: a level is empty; leave the comma out")
    if re.fullmatch(rf"{NUMBER}:{NUMBER}", values):
        raise InputError(
            f"--levels {text[:80]}: a range needs a step, LOW:HIGH:STEP; --box takes one without"
        )
    return _numbers_or_names(levels)


def _steps(text: str, parts: list[str]) -> list[Any]:
    """LOW, LOW + STEP, …, up to HIGH."""
    if not all(re.fullmatch(NUMBER, part.strip()) for part in parts):
        raise InputError(f"--levels {text[:80]}: LOW:HIGH:STEP must be numbers, such as 60:120:20")
    low, high, step = map(float, parts)
    if not all(map(math.isfinite, (low, high, step))) or step <= 0 or high < low:
        raise InputError(
            f"--levels {text[:80]}: LOW:HIGH:STEP must go up by a step above 0, such as 60:120:20"
        )
    n = math.floor((high - low) / step * (1 + 1e-12) + 1e-9)
    if n > MOST_STEPS:
        raise InputError(f"--levels {text[:80]}: {n + 1:,} levels are too many; take a larger step")
    # Twelve digits: 0.1 + 2 · 0.1 is 0.3, as it was typed.
    levels = [float(f"{low + i * step:.12g}") for i in range(n + 1)]
    return [int(level) for level in levels] if all(x.is_integer() for x in levels) else levels


def _numbers_or_names(levels: list[str]) -> list[Any]:
    """Levels as numbers, where all of them are; 007 is a name."""
    if not all(re.fullmatch(LEVEL, level) for level in levels):
        return levels
    return [int(level) if re.fullmatch(r"[+-]?\d+", level) else float(level) for level in levels]
