"""The command line over studies: `manyarms`. A file for each group of commands; docs/cli.md lists
them all."""

import gc
import sys
from collections.abc import Sequence

import manyarms

__all__ = ["main"]

RARELY = 100_000
"""New objects before Python looks for cycles, in a process that is a command: while modules are
loaded there are none, and to look for them took a twentieth of its time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code. An error is one line on stderr."""
    if arguments is None:
        arguments = sys.argv[1:]
        gc.set_threshold(RARELY)
    if arguments == ["--version"]:  # answered before anything is loaded
        print(manyarms.__version__)
        return 0
    from manyarms.cli.commands import program  # noqa: PLC0415

    return program(arguments)
