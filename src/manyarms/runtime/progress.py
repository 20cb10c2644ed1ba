"""A line on the terminal about work that takes seconds: how far it is, and how long it may take."""

import sys
from time import perf_counter
from typing import Any

SHOWN_AFTER = 2.0
"""Seconds of work before anything is shown: nobody wonders during a shorter wait."""


class Meter:
    """A context: ``with Meter("results", 100_000) as progress: progress.at(5_000)``.

    Nothing is shown where standard error is no terminal, or before the work has taken seconds.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._bar: Any = None  # Rich's, once it is shown
        self._start = perf_counter()

    def __enter__(self) -> "Meter":
        return self

    def at(self, done: int) -> None:
        """Say that `done` of the total are done."""
        late = perf_counter() - self._start > SHOWN_AFTER
        if self._bar is None and late and sys.stderr.isatty():
            self._bar = _bar(self._what, self._total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(what: str, total: int) -> Any:
    from rich.console import Console  # noqa: PLC0415  little work takes seconds
    from rich.progress import Progress, TimeRemainingColumn  # noqa: PLC0415

    words = f"learned {{task.completed:,.0f}} of {{task.total:,.0f}} {what}, left:"
    console = Console(stderr=True)
    bar = Progress(words, TimeRemainingColumn(), console=console, transient=True)
    bar.add_task(what, total=total)
    bar.start()
    return bar
