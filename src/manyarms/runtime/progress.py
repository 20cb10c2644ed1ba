"""A line on the terminal about work that takes seconds: how far it is, and how long it may take."""

import sys
from time import perf_counter
from types import TracebackType

SHOWN_AFTER = 2.0
"""Seconds of work before anything is shown: nobody wonders during a shorter wait."""
BETWEEN = 0.2
"""Seconds between two updates of the line: often enough to be seen to move, and too seldom to cost
time."""
WIDTH = 70
"""Columns of the line: it fits a terminal of 80, and as many blanks wipe it out."""


class Meter:
    """A context: ``with Meter("results", 100_000) as progress: progress.at(5_000)``.

    Nothing is shown where standard error is no terminal, or before the work has taken seconds.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._shown = False

    def __enter__(self) -> "Meter":
        self._start = perf_counter()
        # As if a line had been written so that the next is due after SHOWN_AFTER seconds.
        self._last = self._start + SHOWN_AFTER - BETWEEN
        return self

    def at(self, done: int) -> None:
        """Say that `done` of the total are done; the line is written if one is due."""
        now = perf_counter()
        if now - self._last < BETWEEN or not sys.stderr.isatty():
            return
        left = (now - self._start) * (self._total - done) / max(1, done)  # at the pace so far
        text = f"learned {done:,} of {self._total:,} {self._what}, about {left:.0f} s left"
        sys.stderr.write(f"\r{text:<{WIDTH}}")
        sys.stderr.flush()
        self._shown = True
        self._last = now

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            sys.stderr.write(f"\r{'':<{WIDTH}}\r")
            sys.stderr.flush()
