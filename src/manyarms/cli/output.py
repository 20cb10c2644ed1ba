"""What commands print: a table for people, or JSON; and files that appear whole or not at all."""

import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from manyarms.cli.app import DONE, InputError, check_written, printable, write
from manyarms.errors import StudyStorageError
from manyarms.runtime.files import in_place_of

EARLIEST, LATEST = 86_400.0, 253_402_000_000.0
"""The second day of 1970 and one of the last of the year 9999: a clock of any zone has a date."""
COLUMN_GAP = 2
"""Blanks between columns."""
ALREADY_DONE = "what the command was to do is done, do not repeat it"
"""What a warning says where the answer of a command that has written is lost."""


class Answer(NamedTuple):
    """What a command says, as JSON and to people, and its exit code."""

    data: dict[str, Any]
    shown: tuple[str, ...]
    kept: str  # what a warning says where this cannot be written, of a command that has written
    code: int

    @classmethod
    def of(cls, data: dict[str, Any], *shown: str, kept: str = "", code: int = DONE) -> "Answer":
        """Data, and lines for people."""
        return cls(data, shown, kept, code)


def give(answer: Answer, as_json: bool) -> int:
    """Print the answer of a command; returns the exit code.

    Where it cannot be written that is an error, unless the command has `kept` something, a result
    or a file: a script that takes an error for a failure would do so twice.
    """
    text = (
        json.dumps(_plain(answer.data), ensure_ascii=False, indent=2, default=str)
        if as_json
        else "\n".join(answer.shown)
    )
    problem = write(sys.stdout, text)
    if not answer.kept:
        check_written(problem)
    elif problem:
        note(f"warning: standard output could not be written: {problem}; {answer.kept}")
    return answer.code


def note(text: str) -> None:
    """A remark, beside the answer; where it cannot be written it is left out."""
    write(sys.stderr, text)


def confirm(fact: str, yes: bool) -> None:
    """Ask whether to go on; InputError where the answer is no, or nobody is there to give one."""
    if yes:
        return
    said = asked(f"{fact}. Go on? [y/N]")
    if said is None:
        raise InputError(f"{fact}; give --yes where that is meant")
    if said not in ("y", "yes"):
        raise InputError("nothing was written, as the answer was not yes")


def asked(question: str) -> str | None:
    """What somebody at the terminal answers, in small letters; None where nobody is there."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{printable(question)} ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower()


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows for people, numbers at the right; where the terminal is too narrow, a block a row."""
    names = [printable(name) for name in header]
    cells = [list(row) for row in rows]
    texts = [[shown(cell) for cell in row] for row in cells]
    widths = [max(map(_width, column)) for column in zip(names, *texts, strict=True)]
    if (
        sys.stdout.isatty()
        and sum(widths) + COLUMN_GAP * len(widths) > shutil.get_terminal_size().columns
    ):
        return "\n\n".join(_block(names, row) for row in texts)
    at_right = [bool(cells) and all(map(_is_number, column)) for column in zip(*cells, strict=True)]
    at_right = at_right or [False] * len(names)
    return "\n".join(
        (" " * COLUMN_GAP).join(map(_padded, row, widths, at_right)).rstrip()
        for row in [names, *texts]
    )


def _block(names: list[str], row: list[str]) -> str:
    """A row as lines, the first column as its title."""
    others = zip(names[1:], row[1:], strict=True)
    return "\n".join([row[0], *(f"  {name}: {text}" for name, text in others if text)])


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) or cell is None


def _padded(text: str, width: int, at_right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if at_right else text + space


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: ideographs have two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def shown(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value is None else printable(str(value))


def told(n: int, n_failed: int, total: int) -> str:
    """How many results were told, and how many there are."""
    failed = f", {n_failed:,} of them failed" if n_failed else ""
    return f"Told {count(n, 'result')}{failed}; the study has {total:,}."


def percent(level: float) -> str:
    """ "95%", "99.5%"."""
    return f"{100 * level:.10g}%"


def moment(time: float | None) -> str | None:
    """Seconds since 1970 as a local time with its distance to UTC, for files and JSON."""
    if time is None:
        return None
    there_is_a_date = min(max(time, EARLIEST), LATEST)
    return datetime.fromtimestamp(there_is_a_date).astimezone().isoformat(" ", "seconds")


def clock(moment: str | None) -> str:
    """A `moment` as it stands on the screen: to the minute."""
    return "no end" if moment is None else moment[: len("2026-12-31 23:59")]


def count(number: int, noun: str) -> str:
    """ "1 result", "2 results"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _plain(value: Any) -> Any:
    """JSON has no infinities."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[Path]:
    """A file to write, which only its owner may read and which takes its place once written; what
    is there is written over only by `force`. A link in that place is replaced, not followed."""
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"{path} is not a file; give the name of one")
    if path.exists() and not force:
        raise InputError(
            f"there is a file {path} already; give another name, or --force to write over it"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no directory {path.absolute().parent}; make it first")
    try:
        with in_place_of(path) as draft:
            yield draft
    except OSError as error:
        what = error.strerror or str(error)
        raise StudyStorageError(
            f"{path} could not be written: {what}; nothing was, repair that and repeat the command"
        ) from error
