"""Commands that are interrupted, or told to end: one line, no traceback, and no draft of a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import manyarms

import manyarms as ma

PROGRAM = """
import atexit, builtins, os, signal, sys
{before}
from manyarms.cli import main
sys.argv = ["manyarms", *{arguments!r}]
sys.exit(main())
"""
WHILE_LOADING = """
imported = builtins.__import__
def hit(name, *rest):
    if name == {module!r}:
        builtins.__import__ = imported
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *rest)
builtins.__import__ = hit
"""
AT_THE_EXIT = "atexit.register(os.kill, os.getpid(), signal.SIGINT)"
WHILE_WRITING = """
import manyarms.cli.{file}
def hit(*_, **__):
    os.kill(os.getpid(), signal.{name})
manyarms.cli.{file}.{function}
"""


@pytest.fixture
def lab(folder):
    with ma.Study.create(folder / "lab.db", ma.Pool.from_array([[0.0], [0.5], [1.0]])) as study:
        study.tell([0, 1], [1.0, 2.0])
    return folder / "lab.db"


def ended(arguments, before):
    """How a process of the program ended that does something before."""
    program = PROGRAM.format(before=before, arguments=[str(each) for each in arguments])
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("module", ["typer", "numpy", "manyarms.study", "manyarms.errors"])
def test_an_interrupt_while_modules_are_loaded_is_one_line(lab, module):
    done = ended(["status", lab], WHILE_LOADING.format(module=module))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_an_interrupt_at_the_exit_is_too_late(lab):
    done = ended(["status", lab], AT_THE_EXIT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Best measured" in done.stdout


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
@pytest.mark.parametrize(
    ("arguments", "file", "function"),
    [
        (["report", "-o", "page.html"], "report", "page = hit"),
        (["plot", "-o", "plot.html"], "report", "FIGURES = {'best': hit}"),
        (["suggest", "-o", "next.csv"], "suggestions", "write_table = hit"),
        (["export", "-o", "all.json"], "files", "exported = hit"),
    ],
)
def test_a_command_that_is_told_to_end_leaves_no_draft(lab, arguments, file, function, name, code):
    command, *options = arguments
    before = WHILE_WRITING.format(file=file, function=function, name=name)
    output = [options[0], lab.parent / options[1]]
    done = ended([command, lab, *output], before)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert not set(os.listdir(lab.parent)) - {"lab.db", "lab.db-journal"}
    assert not manyarms("status", lab, "--json").data["pending"]


def test_a_file_is_on_disk_before_it_takes_its_name(lab, monkeypatch):
    """What was not synced may be gone after a power cut, and what was there before with it."""
    steps = []
    sync, replace = os.fsync, Path.replace

    def synced(handle):
        steps.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    def renamed(draft, target):
        steps.append("renamed")
        return replace(draft, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    folder = lab.parent
    manyarms("export", lab, "-o", folder / "all.json")
    draft, *rest = steps
    assert draft.startswith(str(folder / ".all.json"))
    assert rest == ["renamed", str(folder)]
