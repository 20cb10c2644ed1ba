"""All commands of the program, by group. The file of a command is imported when it is called, so
the list of commands appears at once."""

import gc
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import typer

from manyarms.cli.app import AsJson, new_app, run_app
from manyarms.cli.output import Answer, give
from manyarms.runtime.signals import load


class Command(NamedTuple):
    """A command: the file that it is in, and the first line of its help."""

    file: str
    summary: str


COMMANDS = {
    "Candidates": {
        "init": Command("candidates", "Make a study of a table of candidates, or of a box."),
        "columns": Command(
            "candidates", "Show the columns of the candidates, or correct their types."
        ),
        "add": Command("candidates", "Add candidates."),
        "retire": Command("candidates", "Retire candidates."),
        "restore": Command("candidates", "Make retired candidates available again."),
    },
    "Trials": {
        "suggest": Command("suggestions", "Say which candidates to try next."),
        "tell": Command("results", "Tell results."),
        "failed": Command("results", "Tell that trials failed and gave no value."),
        "release": Command(
            "results", "Give back candidates that are pending and will not be tried now."
        ),
        "run": Command(
            "objective", "Run a command for one candidate after another, and tell what it prints."
        ),
    },
    "Mistakes": {
        "correct": Command("mistakes", "Correct a result."),
        "undo": Command("mistakes", "Take back the last call, or an event by its number."),
    },
    "Knowledge": {
        "status": Command("knowledge", "Show how a study stands."),
        "top": Command("knowledge", "List the candidates with the best estimates, tried or not."),
        "history": Command(
            "knowledge",
            "List every result, oldest first: when, of which candidate, which value, by whom.",
        ),
        "predict": Command(
            "knowledge", "Estimate the values of candidates, by their ids or in a table."
        ),
        "plot": Command("report", "Draw a study."),
        "report": Command("report", "Write all that is known about a study to one page."),
    },
    "Files": {
        "export": Command("files", "Write a study to files."),
        "import": Command(
            "files", "Make a study of an export, or take the results of a CSV file into one."
        ),
        "doctor": Command("files", "Check a study, and say what can be saved."),
    },
}

NEGATIVE_VALUES = ("tell", "correct")
"""Commands whose arguments may be negative numbers."""


def program(arguments: Sequence[str], *, is_process: bool = False) -> int:
    """Run a command; returns the exit code. An error is one line on stderr."""
    return run_app(lambda: app_for(arguments, is_process=is_process), arguments)


def app_for(arguments: Sequence[str], *, is_process: bool = False) -> typer.Typer:
    """The program with the command that is called; of the others it knows the summary."""
    called = next((word for word in arguments if not word.startswith("-")), "")  # after --help, say
    app = new_app()
    for panel, commands in COMMANDS.items():
        for name, command in commands.items():
            function: Any = _not_called
            help = command.summary
            if name == called:
                function = _printing(function_of(name, command), is_process)
                help = _help(function)
            app.command(
                name,
                help=help,
                rich_help_panel=panel,
                context_settings={
                    "ignore_unknown_options": name in NEGATIVE_VALUES
                },  # negative values
            )(function)
    return app


def function_of(name: str, command: Command) -> Any:
    """What runs a command; `import` is a word of Python, so that one is import_."""
    file = f"manyarms.cli.{command.file}"
    load(file)
    return getattr(sys.modules[file], "import_" if name == "import" else name)


def _printing(function: Callable[..., Answer], is_process: bool) -> Callable[..., int]:
    """The command with the option --json, which prints its answer and returns the exit code."""

    @wraps(function)
    def printing(*, as_json: bool, **options: Any) -> int:
        if is_process:
            # What was loaded stays to the end. The garbage collector need not search it, which
            # takes a fifth of a short command.
            gc.freeze()
            gc.enable()
        return give(function(**options), as_json)

    # Typer reads options from both.
    kind = inspect.Parameter.KEYWORD_ONLY
    option = inspect.Parameter("as_json", kind, default=False, annotation=AsJson)
    found = inspect.signature(function)
    command: Any = printing
    command.__signature__ = found.replace(parameters=[*found.parameters.values(), option])
    command.__annotations__ = {**function.__annotations__, "as_json": AsJson}
    return printing


def _help(function: Any) -> str:
    """Its docstring, with paragraphs that fit the terminal; lines of examples stay."""
    # A single break becomes a space; two end a paragraph, and an indented line is an example.
    return re.sub(r"\n(?!\n|  )(?<!\n\n)", " ", inspect.getdoc(function) or "")


def _not_called() -> None:
    """Stands for a command in the list of commands."""
