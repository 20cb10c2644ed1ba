"""Commands whose standard streams are full or closed: what was written is no failure."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import manyarms as ma

PROGRAM = shutil.which("manyarms", path=Path(sys.executable).parent)
UNWRITTEN = "standard output could not be written: "
WRITING = {
    "add": (["more.csv"], ["add"]),
    "columns": (["--column", "x=log"], ["retype"]),
    "correct": (["1", "3"], ["correct"]),
    "failed": (["2"], ["tell"]),
    "release": (["--all"], ["release"]),
    "restore": (["5"], ["restore"]),
    "retire": (["2"], ["retire"]),
    "run": (["--budget", "4", "--", "echo", "{x}"], ["ask", "tell"]),
    "suggest": ([], ["ask"]),
    "tell": (["2", "7.5"], ["tell"]),
    "undo": ([], ["undo"]),
}
"""Commands, what stands behind the study, and the events that they write."""

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
each_loss = pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])


@pytest.fixture
def lab(folder):
    """A study with an event that each command can go on from; its path, in a folder with files."""
    path = folder / "lab.db"
    with ma.Study.create(path, [{"x": x} for x in range(1, 7)], direction="maximize") as study:
        study.tell([0, 1], [1.0, 2.0])
        study.retire([5])
        study.ask(1)
    (folder / "more.csv").write_text("x\n7\n8\n")
    return path


def ran(lab, redirection, command, *arguments):
    """The console command of a study, with its streams as the shell is told."""
    # Unless someone says otherwise output is buffered: what is left there is seen at the exit.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirection}', PROGRAM, command, lab.name, *arguments],
        capture_output=True,
        check=False,
        cwd=lab.parent,
        env=environment,
        text=True,
    )


def kinds(lab):
    with ma.Study.open(lab) as study:
        return [event.kind for event in study.events()]


def assert_warned(done):
    """It ended well, and the last line on stderr is a warning."""
    assert done.returncode == 0, done
    assert done.stderr.splitlines()[-1].startswith(f"warning: {UNWRITTEN}"), done
    assert "error" not in done.stderr, done


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITING)
def test_what_was_written_is_no_failure(lab, command):
    arguments, events = WRITING[command]
    before = kinds(lab)
    assert_warned(ran(lab, ">/dev/full", command, *arguments))
    assert [kind for kind in kinds(lab)[len(before) :] if kind != "refit"] == events


@pytest.mark.slow
def test_studies_and_files_that_were_written_are_no_failure(lab):
    new = lab.parent / "new.db"
    assert_warned(ran(new, ">/dev/full", "init", "--pool", "more.csv", "--maximize"))
    assert kinds(new) == ["create"]
    assert_warned(ran(lab, ">/dev/full", "export", "-o", "lab.json"))
    assert_warned(ran(lab.parent / "copy.db", ">/dev/full", "import", "lab.json"))
    assert kinds(lab.parent / "copy.db") == kinds(lab)
    assert_warned(ran(lab, ">/dev/full", "history", "-o", "results.csv"))
    assert (lab.parent / "results.csv").read_text().count("\n") == 3
    assert_warned(ran(lab, ">/dev/full", "suggest", "-n", "2", "-o", "next.csv"))
    assert (lab.parent / "next.csv").read_text().count("\n") == 3


@each_loss
def test_one_result_is_told_once(lab, redirection):
    done = ran(lab, redirection, "tell", "2", "7.5")
    assert_warned(done)
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("; what the command was to do is done, do not repeat it\n")
    with ma.Study.open(lab) as study:
        assert [trial.id for trial in study.history] == [0, 1, 2]


@pytest.mark.slow
def test_candidates_that_nobody_read_can_be_listed(lab):
    done = ran(lab, ">/dev/full", "suggest")
    assert_warned(done)
    assert done.stderr.endswith("manyarms suggest lab.db --pending lists them\n")
    assert len(ran(lab, "", "suggest", "--pending").stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("command", "redirection"),
    [
        (["history", "--json"], ">/dev/full"),
        (["history"], ">&-"),
        pytest.param(["suggest", "--pending"], ">/dev/full", marks=pytest.mark.slow),
        pytest.param(["columns"], ">/dev/full", marks=pytest.mark.slow),
    ],
)
def test_an_answer_that_is_lost_is_a_failure_of_a_command_that_only_reads(
    lab, command, redirection
):
    before = kinds(lab)
    done = ran(lab, redirection, *command)
    assert done.returncode == 4
    assert done.stderr.startswith(f"error: {UNWRITTEN}")
    assert done.stderr.count("\n") == 1
    assert kinds(lab) == before


@pytest.mark.slow
@each_loss
def test_help_that_is_lost_is_a_failure(lab, redirection):
    done = ran(lab, redirection, "tell", "--help")
    assert done.returncode not in (0, 120)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_failure(lab):
    for command in (("history",), ("tell", "2", "7.5")):
        done = ran(lab, "2>&1 | true", *command)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&- >&- 2>&-"])
def test_remarks_that_nobody_can_read_change_nothing(lab, redirection):
    told = ran(lab, redirection, "tell", "0", "1.5")  # a second result is remarked upon
    assert told.returncode == 0
    assert told.stdout == ("" if ">&- " in redirection else "Told 1 result; the study has 3.\n")
    wrong = ran(lab, redirection, "tell", "no-such-id", "1.5")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert kinds(lab)[-1:] == ["tell"]


def test_without_standard_input_nobody_says_yes(lab):
    done = ran(lab, "<&-", "failed", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 trial failed.\n", "")
    before = kinds(lab)
    done = ran(lab, "<&-", "failed", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("give --yes where that is meant\n")
    assert kinds(lab) == before
