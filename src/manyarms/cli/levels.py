"""Factors and their levels as they are typed, or as a file lists them."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyarms.cli.app import InputError
from manyarms.cli.boxes import LEVEL, NUMBER
from manyarms.sheets.reading import read_sheet

MOST_STEPS = 100_000
"""Levels of one range: more is a typing error."""


def as_levels(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The levels of factors, typed as NAME=LEVEL,LEVEL,… or NAME=LOW:HIGH:STEP; or in a file, a
    column a factor."""
    levels: dict[str, list[Any]] = {}
    for text in texts:
        name, is_there, values = text.partition("=")
        if not is_there:
            found = _in_file(text)
        elif not name.strip() or not values.strip():
            raise InputError(f"--levels takes NAME=LEVEL,LEVEL,…, got {text[:80]!r}")
        else:
            found = {name.strip(): _typed(text, values.strip())}
        twice = [each for each in found if each in levels]
        if twice:
            raise InputError(f"--levels has {twice[0]!r} twice; give it once")
        levels |= found
    return levels


def _in_file(text: str) -> dict[str, list[Any]]:
    path = Path(text)
    if not path.is_file():
        raise InputError(
            "--levels takes NAME=LEVEL,LEVEL,… or NAME=LOW:HIGH:STEP, or a file with a column of "
            f"levels for each factor; got {text[:80]!r}"
        )
    frame = read_sheet(path, None, set(), set()).frame
    return {
        column.name: column.drop_nulls().unique(maintain_order=True).to_list() for column in frame
    }


def _typed(text: str, values: str) -> list[Any]:
    if re.fullmatch(r"[^:,]*:[^:,]*:[^:,]*", values):
        return _steps(text, values.split(":"))
    levels = [each.strip() for each in values.split(",")]
    if not all(levels):
        raise InputError(f"--levels {text[:80]}: a level is empty; leave the comma out")
    if re.fullmatch(rf"{NUMBER}:{NUMBER}", values):
        raise InputError(
            f"--levels {text[:80]}: a range needs a step, LOW:HIGH:STEP; --box takes one without"
        )
    # 007 is a name, not a number.
    if not all(re.fullmatch(LEVEL, level) for level in levels):
        return list(levels)
    return [int(level) if re.fullmatch(r"[+-]?\d+", level) else float(level) for level in levels]


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
