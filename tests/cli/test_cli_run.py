"""`manyarms run`: objectives that work, fail, hang or print nonsense; Ctrl-C; going on where it ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import manyarms, said
from hypothesis import given
from hypothesis import strategies as st

import manyarms as ma
from manyarms.cli import jobs
from manyarms.cli.jobs import Outcome, Terms, filled, placeholders
from manyarms.cli.objective import Loop, Pace

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the objectives are shell scripts")


@pytest.fixture
def lab(folder):
    """Twelve candidates, to be tried once each."""
    rows = [{"name": f"n{i}", "x": i, "kind of": "ab"[i % 2]} for i in range(12)]
    path = folder / "lab.db"
    with ma.Study.create(path, ma.Pool.from_dicts(rows, id="name"), repeats="never"):
        pass
    return path


def run(lab, script, *options, code=0, arguments=("{x}",)):
    """Run a shell script as the objective; the answer in JSON."""
    return manyarms(
        "run", lab, "--json", *options, "--", "sh", "-c", script, "objective", *arguments, code=code
    )


def told(lab):
    return {trial.id: trial.value for trial in ma.Study.open(lab).history}


def test_every_candidate_is_run_once_and_its_last_line_told(lab):
    answer = run(lab, 'echo hello; echo "$1.5"; echo', "--jobs", 4)
    assert answer.data["ended"] == "nothing is left to try"
    assert answer.data["best"]["recommended"]["id"] == "n11"
    assert told(lab) == {f"n{i}": i + 0.5 for i in range(12)}
    assert answer.err.count("\n") == 12
    assert not ma.Study.open(lab).pending


def test_placeholders_are_filled_without_a_shell(lab, folder):
    words = ["{x}", "a {kind of} b", "{name}", "{id}", "{{x}}", "$HOME; exit 3", '{"x":{x}}']
    script = f'for word; do echo "$word"; done > {folder}/args.txt; echo 1'
    run(lab, script, "--budget", 1, arguments=words)
    ((name, _),) = told(lab).items()
    x = name[1:]
    expected = [x, f"a {'ab'[int(x) % 2]} b", name, name, "{x}", "$HOME; exit 3", f'{{"x":{x}}}']
    assert (folder / "args.txt").read_text().splitlines() == expected


@given(st.lists(st.text("{}ab "), max_size=4))
def test_braces_of_any_kind(words):
    values = dict.fromkeys(placeholders(words), "v")
    assert len(filled(words, values)) == len(words)


def test_the_budget_is_that_of_the_study_so_the_same_line_goes_on(lab):
    assert run(lab, "echo $1", "--budget", 5).data["told"] == 5
    again = run(lab, "echo $1", "--budget", 5).data
    assert (again["told"], again["results"], again["ended"]) == (0, 5, "budget spent")
    assert run(lab, "echo $1", "--budget", 8, "--jobs", 3).data["told"] == 3


def test_the_budget_counts_what_anybody_is_trying(lab):
    ma.Study.open(lab, worker="run by another", lease=60).ask(3)
    ma.Study.open(lab, worker="Ada").ask(2)
    answer = run(lab, "echo $1", "--budget", 7)
    assert (answer.data["told"], answer.data["results"], answer.data["pending"]) == (2, 2, 5)
    assert "Others are trying 5 candidates" in said("run", lab, "--budget", "7", "--", "true").out


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo oh no >&2; exit 3", "exit code 3: oh no"),
        ("echo 5; exit 1", "exit code 1: 5"),
        ("kill -9 $$", "ended by signal 9"),
        ("echo accuracy 5", "must be a number, got 'accuracy 5'"),
        ("echo nan", "must be a finite number"),
        ("echo 1e999", "must be a finite number"),
        ("true", "is empty"),
        ("head -c 3000000 /dev/urandom", "must be a number"),
        ("head -c 300000 /dev/zero", "must be a number"),
    ],
)
def test_a_trial_that_gives_no_number_has_failed(lab, script, reason):
    answer = run(lab, f"if [ $1 -ge 6 ]; then {script}; else echo $1; fi", "--jobs", 2)
    assert told(lab) == {f"n{i}": None if i >= 6 else float(i) for i in range(12)}
    assert answer.data["failed"] == 6
    assert reason in answer.err


@pytest.mark.slow
def test_a_hanging_trial_is_ended_with_its_children(lab, folder):
    start = time.monotonic()
    script = f"if [ $1 -ge 10 ]; then sleep 100 & echo $! > {folder}/$1.pid; wait; fi; echo $1"
    run(lab, script, "--timeout", "2s", "--jobs", 4)
    assert time.monotonic() - start < 60
    assert {name for name, value in told(lab).items() if value is None} == {"n10", "n11"}
    for name in ("10", "11"):
        assert is_gone(int((folder / f"{name}.pid").read_text()))


def is_gone(process):
    """Ended, or ended and not yet waited for by whoever inherited it."""
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        if ") Z" in Path(f"/proc/{process}/stat").read_text():
            return True
        time.sleep(0.05)
    return False


def loop(study, folder, script, timeout=None, grace=3.0, **pace):
    """The loop of a run, with a study of one's own and other waiting times."""
    terms = Terms(["sh", "-c", script, "objective", "{x}"], timeout, grace=grace)
    return Loop(study, terms, folder, 10, print, Pace(**pace))


@pytest.mark.slow
def test_one_that_will_not_end_is_made_to(lab, folder):
    script = "if [ $1 = 3 ]; then trap '' TERM; while :; do sleep 0.05; done; fi; echo $1"
    loop(ma.Study.open(lab), folder, script, timeout=0.3, grace=0.1).until(2, None)
    assert told(lab)["n3"] is None


def test_retries(lab, folder):
    script = f"echo x >> {folder}/$1.tries; [ $(wc -l < {folder}/$1.tries) -ge 3 ] && echo $1"
    assert run(lab, script, "--retries", 2, "--budget", 4).data["failed"] == 0
    assert run(lab, script, "--retries", 1, "--budget", 6).data["failed"] == 2


def test_the_value_may_come_from_a_file(lab):
    run(lab, 'echo noise; echo "$1.25" > "$2"', "--budget", 2, arguments=["{x}", "{out}"])
    run(
        lab,
        'echo 7; [ $1 -lt 0 ] && echo 3 > "$2"; true',
        "--budget",
        3,
        "--value-from",
        "file",
        arguments=["{x}", "{out}"],
    )
    assert [
        value is None or value == int(name[1:]) + 0.25 for name, value in told(lab).items()
    ] == [True] * 3
    assert list(told(lab).values())[2] is None


def test_a_command_that_is_wrong_does_not_use_up_the_candidates(lab):
    answer = run(lab, "exit 1", "--max-failures", 4, "--jobs", 2, code=5)
    assert "mend the command" in answer.data["ended"]
    assert re.match(
        "error: the last [45] trials failed", answer.err.splitlines()[-1]
    )  # two may end at once
    assert not told(lab)
    assert not ma.Study.open(lab).pending
    run(lab, "echo $1")
    assert len(told(lab)) == 12


def test_failures_are_told_once_the_command_is_known_to_work(lab):
    run(lab, "exit 1", "--budget", 3)
    assert list(told(lab).values()) == [None] * 3
    run(lab, "[ $(($1 % 2)) = 0 ] && echo $1", "--max-failures", 12)
    assert len(told(lab)) == 12


class Refusing:
    """A study whose storage refuses the first so many results, after or before they are written."""

    def __init__(self, study, times, *, written):
        self._study, self._times, self._written = study, times, written
        self.refused = []

    def __getattr__(self, name):
        return getattr(self._study, name)

    def tell(self, *arguments, **options):
        refuse = len(self.refused) < self._times
        if self._written or not refuse:
            self._study.tell(*arguments, **options)
        if refuse:
            self.refused.append(options["token"])
            raise ma.errors.StudyStorageError("the answer was lost")


def test_a_result_that_the_storage_refused_is_told_again(lab, folder):
    study = Refusing(ma.Study.open(lab), 2, written=True)
    loop(study, folder, "echo $1", patience=(0.0, 0.0)).until(1, 3)
    assert len(study.refused) == 2
    assert len(ma.Study.open(lab).history) == 3


def test_a_result_that_came_from_elsewhere_meanwhile_is_no_error(lab, folder):
    """The lease of a run ran out while it slept, and another told the result: the study takes one."""
    other = ma.Study.open(lab, worker="other")
    answer = run(lab, f"cp {folder}/lab.db {folder}/copy.db; echo $1", "--budget", 1)
    assert answer.data["told"] == 1
    (name,) = told(lab)
    with pytest.raises(ma.errors.ObservationError):
        other.tell([name], [1.0])


def program(lab, *options):
    """The program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "manyarms.cli", "run", lab, "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Under nohup, SIGHUP is ignored by all that is started, and the program leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
    )


each_signal = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda n: n.name
)


@pytest.mark.slow
@each_signal
def test_ctrl_c_ends_children_gives_candidates_back_and_the_same_line_goes_on(lab, folder, number):
    hang = f"sleep 100 & echo $! > {folder}/$$.pid; wait"
    script = f"if [ $(ls {folder} | grep -c done) -ge 2 ]; then {hang}; fi; touch {folder}/$$.done; echo $1"
    options = ["--jobs", "2", "--budget", "12", "--", "sh", "-c", script, "objective", "{x}"]
    running = program(lab, *options)
    waited = time.monotonic()
    while len(list(folder.glob("*.pid"))) < 2 and time.monotonic() - waited < 60:
        time.sleep(0.05)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    answer = json.loads(out)
    assert answer["ended"].startswith("interrupted")
    assert answer["told"] == len(told(lab)) >= 2
    assert not ma.Study.open(lab).pending
    assert all(is_gone(int(path.read_text())) for path in folder.glob("*.pid"))
    assert run(lab, "echo $1", "--budget", 12).data["results"] == 12


def waited_for(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@pytest.mark.slow
@each_signal
@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
def test_children_in_sessions_of_their_own_are_ended_too(lab, folder, number):
    """Also one whose parent has ended, and one whose environment was emptied."""
    began = f"echo $$ > {folder}/$0.pid; exec sleep 100"
    script = (
        f"setsid sh -c '{began}' one & (setsid sh -c '{began}' two &); "
        f"env -i setsid sh -c '{began}' three & wait"
    )
    running = program(lab, "--", "sh", "-c", script, "objective", "{x}")
    waited_for(lambda: len([file for file in folder.glob("*.pid") if file.read_text()]) == 3)
    running.send_signal(number)
    if number == signal.SIGHUP:
        running.send_signal(number)  # a shell and the terminal both send one
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert all(is_gone(int(path.read_text())) for path in folder.glob("*.pid"))
    assert not ma.Study.open(lab).pending


@pytest.mark.slow
def test_a_run_that_ignores_a_closed_terminal_goes_on(lab, folder):
    command = ["sh", "-c", f"touch {folder}/started; sleep 1; echo $0", "{x}"]
    running = subprocess.Popen(
        [
            "nohup",
            sys.executable,
            "-m",
            "manyarms.cli",
            "run",
            lab,
            "--budget",
            "1",
            "--",
            *command,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    waited_for((folder / "started").exists)
    running.send_signal(signal.SIGHUP)
    assert running.wait(timeout=60) == 0
    assert len(told(lab)) == 1


@pytest.mark.slow
def test_a_run_that_was_killed_gives_its_candidates_back_by_lease(lab, folder):
    running = program(lab, "--", "sh", "-c", f"touch {folder}/started; sleep 30")
    waited = time.monotonic()
    while not (folder / "started").exists() and time.monotonic() - waited < 60:
        time.sleep(0.05)
    running.kill()
    running.communicate()
    (lease,) = ma.Study.open(lab).leases
    assert 0 < lease.until - time.time() <= Pace().lease


def test_leases_are_renewed(lab, folder):
    study = ma.Study.open(lab, worker="run by me", lease=0.3)
    loop(study, folder, "sleep 0.8; echo $1", lease=0.3).until(1, 1)
    kinds = [event.kind for event in ma.Study.open(lab).events()]
    assert kinds.count("renew") >= 2
    assert "expire" not in kinds


def test_children_are_ended_when_the_storage_gives_up(lab, folder):
    study = Refusing(ma.Study.open(lab), np.inf, written=False)
    wait = f"while [ ! -e {folder}/pid ]; do sleep 0.05; done; echo 1"
    hang = f"if mkdir {folder}/first 2> /dev/null; then echo $$ > {folder}/pid; exec sleep 100; else {wait}; fi"
    with pytest.raises(ma.errors.StudyStorageError):
        loop(study, folder, hang, patience=()).until(2, None)
    assert is_gone(int((folder / "pid").read_text()))


def test_a_command_that_is_the_same_for_all_is_remarked_upon(lab):
    assert "same for every candidate" in manyarms("run", lab, "--budget", 1, "--", "echo", "1").err
    assert (
        "same for every candidate"
        not in manyarms("run", lab, "--budget", 2, "--", "echo", "1", "{id}").err
    )


def test_output_is_read_from_its_end(tmp_path):
    file = tmp_path / "out"
    file.write_text("x\n" * 100_000 + " 4.5 \n\n")
    assert jobs._value_in(file, "it") == Outcome(4.5)


def test_help_is_given_where_the_two_dashes_are_forgotten(lab):
    assert "put -- before the command" in said("run", lab, "sh", "--norc").err
