"""The program: what its commands share, and how errors become one line and an exit code."""

import getpass
import io
import json
import os
import re
import shlex
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

import manyarms
from manyarms.errors import ManyArmsError, StudyDamagedError, StudyStorageError
from manyarms.runtime.signals import ENDED

if TYPE_CHECKING:
    from manyarms.study import Study

# Exit codes, as in docs/cli.md.
DONE = 0
UNEXPECTED = 1
BAD_INPUT = 2
DAMAGED = 3
STORAGE = 4
FAILING = 5
INTERRUPTED = 130
CODE_OF = {StudyDamagedError: DAMAGED, StudyStorageError: STORAGE}
"""Of errors of the library; of all others BAD_INPUT."""
WORDS = {
    "Pool.from_frame": None,
    "Study.create": "`manyarms init`",
    "Study.open": "`manyarms status`",
    "columns": "--column",
    "correct()": "`manyarms correct`",
    "decimal": "--decimal",
    "id": "--id",
    "kernel": "--kernel",
    "lease": "--lease",
    "level": "--level",
    "manyarms.FAILED": "`failed`",
    "manyarms.kernels": None,
    "exclude": "--exclude",
    "missing": "--missing",
    "noise": "--noise",
    "goal": "--goal",
    "repeats": "--repeats",
    "seed": "--seed",
    "target": "--target",
    "tell()": "`manyarms tell`",
    "tolerance": "--tolerance",
    "where": "--where",
    "worker": "--worker",
}
"""Options and calls of the library, and what does the same here."""
TRACEBACK = "MANYARMS_TRACEBACK"
"""Environment variable: set, an unexpected error shows where it came from."""

USAGE: type[Exception] = typer.BadParameter.__mro__[2]
"""The root of what Typer raises for arguments it does not take, whatever its release."""

StudyAt = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Path of a study, or postgresql://user@host/database#name.",
        show_default=False,
    ),
]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of candidates.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print the answer as JSON.")]
Decimal = Annotated[
    str | None,
    typer.Option(
        help='Mark before the fraction of numbers in CSV files, "." or ",".',
        metavar="MARK",
        show_default="that of the table of candidates",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help='Between columns of the file written; "," or, with --decimal ",", ";".', metavar="MARK"
    ),
]
Force = Annotated[
    bool, typer.Option("--force", metavar="", help="Write over a file that is there.")
]
Worker = Annotated[
    str | None,
    typer.Option(
        help="Who is trying, kept with what is pending.",
        show_default="user@host",
        envvar="MANYARMS_WORKER",
    ),
]
Note = Annotated[
    str | None, typer.Option(help="Why, kept in the history.", metavar="TEXT", show_default=False)
]
Yes = Annotated[
    bool, typer.Option("--yes", metavar="", help="Answer yes to what is asked, for scripts.")
]


class InputError(ManyArmsError):
    """The arguments or a file are not what the command takes."""


def opened(location: str, worker: str | None = None, lease: float | None = None) -> "Study":
    """The study at a location."""
    return manyarms.Study.open(location, worker=me() if worker is None else worker, lease=lease)


def me() -> str:
    """Who is at the keyboard."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may run under a number without a name; the worker is a label only.
        user = "someone"
    # A worker's name has at most 200 characters, and `run` puts more around this one.
    return f"{user}@{socket.gethostname()}"[:150]


def printable(text: str) -> str:
    """Text without what a terminal would obey: that is escaped as in JSON."""
    if text.replace("\n", "").isprintable():
        return text
    # Escape sequences in an id or a file name could move the cursor, or worse.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def write(stream: TextIO, *lines: str) -> str:
    """Write to standard output or standard error, with what waits in a buffer before; returns why
    that could not be, or ""."""
    try:
        for line in lines:
            print(printable(line), file=stream)
        stream.flush()
    except OSError as error:
        _let_go(stream)
        # Who reads no more has what he wants: `manyarms history lab.db | head`.
        return "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    return ""


def _let_go(stream: TextIO) -> None:
    """What a stream still holds goes nowhere: at the exit it would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_streams() -> None:
    """Put something in the place of streams that were closed, as by `manyarms tell … >&-`. A file
    that is opened later would have their numbers."""
    # To write into what is only read is an error.
    for name, mode in (("stdin", "r"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  open until the exit


def check_written(problem: str) -> None:
    """StudyStorageError where there was a problem with standard output."""
    if problem:
        raise StudyStorageError(
            f"standard output could not be written: {problem}; repair that and repeat the command"
        )


def new_app() -> typer.Typer:
    """The program, without its commands."""
    app = typer.Typer(
        name="manyarms",
        help="Suggests which candidates of a table to try next, and keeps what came out in a "
        "study: a file, or PostgreSQL.",
        epilog="Begin with: manyarms init lab.db --pool candidates.csv --id name --maximize",
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_program)
    return app


def _program(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version.")
    ] = False,
) -> None:
    if show_version:
        print(manyarms.__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


def run_app(made: Callable[[], typer.Typer], arguments: Sequence[str]) -> int:
    """Make the program and run it; returns the exit code. An error is one line on stderr."""
    _open_streams()
    # A terminal that cannot show a letter shows its number, and no error.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        # Stray bytes arrive as lone surrogates, which can be neither stored nor printed.
        if any("\0" in text or re.search("[\ud800-\udfff]", text) for text in arguments):
            raise InputError("arguments must be text in UTF-8; check them for stray bytes")
        # Otherwise Typer would print errors and exit by itself, in its own way.
        command = typer.main.get_command(made())
        _take_text(command)
        code = command.main(list(arguments), prog_name="manyarms", standalone_mode=False)
        # Help and the like may wait in a buffer; at the exit nothing could catch an error.
        check_written(write(sys.stdout))
        return code if isinstance(code, int) else DONE
    except (BrokenPipeError, SystemExit) as error:
        # `manyarms --help | head`; Typer and Rich make it an exit.
        _let_go(sys.stdout)
        code = getattr(error, "code", DONE)
        return code if isinstance(code, int) and code > ENDED else DONE
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(TRACEBACK):
            write(sys.stderr, traceback.format_exc())
        message, code = _described(error)
        # Words in a wrong order may be a URL in the place of a command.
        message = re.sub(r"(://[^\s:@/]*:)\S*@", r"\1***@", message)
        # One line, even where a message of another library has several.
        write(sys.stderr, f"error: {' '.join(message.split())}")
        # What was printed before the error goes out now, or nowhere.
        write(sys.stdout)
        return code


def _take_text(command: Any) -> None:
    """Have a command, and those in it, take text and defaults as they are. Typer would load
    pydantic for them, which is a quarter of what a short command costs."""
    for each in getattr(command, "commands", {}).values():
        _take_text(each)
    usual = command.get_params  # with --help, which is made when somebody asks
    command.get_params = lambda context: list(map(_taking_text, usual(context)))


def _taking_text(parameter: Any) -> Any:
    usual = getattr(parameter, "get_runtime_param", None)  # Typer of before has none
    if usual is not None and not isinstance(usual, partial):
        parameter.get_runtime_param = partial(_AsTyped, usual)
    return parameter


class _AsTyped:
    """Takes what was typed for a parameter; `usual` gives what Typer has for that."""

    def __init__(self, usual: Callable[[], Any]) -> None:
        self._usual = usual

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the type that the parameter has."""
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is kind:
            return value
        if kind == list[str]:
            return list(value)
        if kind is Path:
            return Path(value)
        return self._usual().coerce(value, param=param, ctx=ctx)


def _described(error: BaseException) -> tuple[str, int]:
    """An error as a message and an exit code."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, ManyArmsError):
        code = next((code for kind, code in CODE_OF.items() if isinstance(error, kind)), BAD_INPUT)
        return error.said(on_the_command_line), code
    if isinstance(error, OSError):
        return str(error), BAD_INPUT
    if isinstance(error, USAGE):
        return _usage(error), BAD_INPUT
    return (
        f"unexpected {type(error).__name__}: {error}; {TRACEBACK}=1 shows where, please report it",
        UNEXPECTED,
    )


def _usage(error: Any) -> str:
    path = error.ctx.command_path if getattr(error, "ctx", None) else "manyarms"
    advice = "put -- before the command that it runs, or " if path == "manyarms run" else ""
    return f"{error.format_message().strip().rstrip('.')}; {advice}see `{path} --help`"


def on_the_command_line(option: str, value: Any) -> str | None:
    """What does here what an option or a call of the library does; None where nothing does."""
    name = WORDS.get(option, option)
    if value is None or name is None:
        return name
    # A type for a column of a table: --column NAME=TYPE says the same here.
    if isinstance(value, dict):
        ((column, kind),) = value.items()
        value = f"{column}={kind if isinstance(kind, str) else ','.join(map(str, kind))}"
    return f"{name} {shlex.quote(str(value))}"
