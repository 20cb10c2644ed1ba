"""The command line over studies: `manyarms`. A file for each group of commands; docs/cli.md lists
them all."""

import sys
from collections.abc import Sequence

import manyarms

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code. An error is one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:  # answered before anything is loaded
        print(manyarms.__version__)
        return 0
    from manyarms.cli.commands import program  # noqa: PLC0415

    return program(arguments)
