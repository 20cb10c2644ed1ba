"""docs/tutorial.md as a reader types it, with nothing that the plain install does not bring."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import manyarms as ma

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
import contextlib, io, json, runpy, sys
from importlib.machinery import PathFinder

hidden, steps = json.load(sys.stdin)

class PlainInstall(PathFinder):
    @classmethod
    def find_spec(cls, name, *arguments):
        return None if name.split(".")[0] in hidden else super().find_spec(name, *arguments)

sys.meta_path = [PlainInstall if each is PathFinder else each for each in sys.meta_path]
from manyarms.cli import main

said = []
for program, *arguments in steps:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if program == "manyarms":
            code = main(arguments)
        else:
            sys.argv = arguments
            code = runpy.run_path(arguments[0]) and 0
    said.append([code, out.getvalue()])
print(json.dumps(said))
"""
"""Runs commands one after another where some packages cannot be imported."""


def plain_install():
    """The distributions that `pip install manyarms` brings, by pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    waiting = re.findall(
        r'"([^"]+)"', re.search(r"^dependencies = \[(.*?)\]", text, re.M | re.S)[1]
    )
    found = {"manyarms"}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = plain(requirement.name)
        marker = requirement.marker
        if name in found or (marker and not marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:  # a marker that does not hold here
            continue
    return found


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def hidden():
    """Top-level modules that are installed here, but would not be there."""
    brought = plain_install()
    assert {"plotly", "jinja2", "polars", "numpy"} <= brought
    assert not {"fastexcel", "xlsxwriter", "rdkit", "torch", "pytest"} & brought
    return [
        module
        for module, distributions in packages_distributions().items()
        if not brought & set(map(plain, distributions)) and module != "manyarms"
    ]


def fragments():
    """Kind, file name and text of every fragment of the page."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    return re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_tutorial_runs_on_a_plain_install(folder, hidden):
    shutil.copy(ROOT / "docs" / "sheet.csv", folder)
    commands = []
    outputs = {}
    for kind, name, text in fragments():
        if kind == "output":
            outputs[len(commands) - 1] = text
        elif name:
            (folder / name).write_text(text)
        elif kind == "sh":
            commands += [shlex.split(line) for line in text.strip().splitlines()]
    assert len(commands) == 16
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([hidden, commands]),
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    said = json.loads(done.stdout)
    assert [code for code, _ in said] == [0] * len(commands)
    for number, text in outputs.items():
        assert said[number][1] == text
    check(folder)


def check(folder):
    """What the page says came out."""
    assert (folder / "report.html").stat().st_size > 1e6
    lines = (folder / "best.csv").read_text(encoding="utf-8-sig").splitlines()
    assert lines[0].startswith("experiment;estimate;")
    assert re.match(r"R-\d+;\d+,\d+;", lines[1])
    assert len(lines) == 21
    with ma.Study.open(folder / "lab.db") as study:
        assert study.n_results == 34
        assert next(trial.value for trial in study.history if trial.id == "R-047") == 68.0
        heats = {study.pool.row(trial.id)["temperature"] for trial in study.history[-5:]}
        # SPhos with Cs2CO3 in dioxane is the best there is, at 80 or 100 °C.
        assert len(heats) == 1
        best = study.pool.row(study.best().recommended.id)
    assert (best["ligand"], best["solvent"]) == ("SPhos", "dioxane")


def test_the_sheet_is_as_the_page_says():
    lines = (ROOT / "docs" / "sheet.csv").read_text().splitlines()
    cells = [line.split(";") for line in lines[1:]]
    assert len(cells) == 108
    assert [len({row[i] for row in cells}) for i in range(1, 5)] == [4, 3, 3, 3]
    assert sum(row[-1] != "" for row in cells) == 24
    assert sum(row[-1] == "failed" for row in cells) == 1
    kind, _, shown = fragments()[0]
    assert kind == "text"
    assert set(shown.splitlines()) <= set(lines)
