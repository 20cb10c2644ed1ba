"""The command line over studies: `manyarms`. A file for each group of commands; docs/cli.md lists
them all."""

import gc
import sys
from collections.abc import Sequence

import manyarms

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code. An error is one line on stderr."""
    is_process = arguments is None  # and no caller has it run within its own
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:  # answered before anything is loaded
        print(manyarms.__version__)
        return 0
    if is_process:
        gc.disable()  # until the command begins
    from manyarms.cli.commands import program  # noqa: PLC0415

    return program(arguments, is_process=is_process)
