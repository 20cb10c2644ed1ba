"""The command line over studies: `manyarms`. A file for each group of commands; docs/cli.md lists
them all."""

import gc
import signal
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
    try:
        from manyarms.runtime.signals import deferred, raise_to_end  # noqa: PLC0415

        if is_process:
            raise_to_end()
        with deferred():  # an import that is broken off prints tracebacks of its own
            from manyarms.cli.commands import program  # noqa: PLC0415

        return program(arguments, is_process=is_process)
    except KeyboardInterrupt:  # before the program can answer it, or a second one meanwhile
        print("error: interrupted", file=sys.stderr)
        return 130
    finally:
        if is_process:  # all is said: at the exit an interrupt would only print a traceback
            signal.signal(signal.SIGINT, signal.SIG_IGN)
