"""All commands of the program, by group."""

import inspect
import re

from manyarms.cli.app import app, program
from manyarms.cli.candidates import add, init, retire
from manyarms.cli.files import doctor, export, import_
from manyarms.cli.knowledge import history, predict, status, top
from manyarms.cli.objective import run
from manyarms.cli.pages import plot, report
from manyarms.cli.results import failed, release, suggest, tell

__all__ = ["COMMANDS", "app", "program"]

COMMANDS = {
    "Candidates": (init, add, retire),
    "Trials": (suggest, tell, failed, release, run),
    "Knowledge": (status, top, history, predict, plot, report),
    "Files": (export, import_, doctor),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        values_may_be_negative = {"ignore_unknown_options": command is tell}
        help = re.sub(
            r"\n(?!\n|  )(?<!\n\n)", " ", inspect.getdoc(command) or ""
        )  # paragraphs fit the terminal, examples stay
        app.command(
            command.__name__.rstrip("_"),
            help=help,
            rich_help_panel=panel,
            context_settings=values_may_be_negative,
        )(command)
