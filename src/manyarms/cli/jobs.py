"""Trials that are commands: started without a shell, watched, timed out, tried again, ended with
all their children; here, or on the machines of a Ray cluster (`Elsewhere`)."""

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from manyarms.checks import LARGEST
from manyarms.cli.app import InputError

GRACE = 3.0
"""Seconds between asking a command to end and ending it."""
TRIAL_VARIABLE = "MANYARMS_TRIAL"
"""Environment variable of a command: a mark, by which its children are found."""
LOOKS = 20
"""How often children that are left are looked for, at most: some fork faster than that."""
REMOTE_POLL = 0.05
"""Seconds between two looks at a command, on its machine."""
TAIL = 1 << 14
"""Bytes at the end of an output that are looked at for its last line."""
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
"""A name in braces; {{ and }}, which stand for braces, come first."""


class Outcome(NamedTuple):
    """What a trial gave: a value, or None and why."""

    value: float | None
    reason: str = ""


def placeholders(command: Sequence[str]) -> set[str]:
    """The names in braces."""
    return {
        found[1] for part in command for found in PLACEHOLDER.finditer(part) if found[1] is not None
    }


def filled(command: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The command with values in place of the names in braces; {{ and }} are braces."""

    def fill(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = values[found[1]]
        return "" if value is None else str(value)

    return [PLACEHOLDER.sub(fill, part) for part in command]


def check_placeholders(command: Sequence[str], known: Sequence[str]) -> None:
    """InputError where a name in braces is not known."""
    unknown = sorted(placeholders(command) - set(known))
    if unknown:
        raise InputError(
            f"no column fills {{{unknown[0]}}}; there are "
            f"{', '.join(f'{{{name}}}' for name in known)[:400]}; "
            "write {{ and }} for braces"
        )


class Terms(NamedTuple):
    """What every trial of a run is made with."""

    command: list[str]  # with names in braces
    timeout: float | None = None  # seconds
    retries: int = 0
    grace: float = GRACE  # seconds


class Job:
    """The command of one trial, in a folder of its own: it runs until `outcome` is not None."""

    def __init__(self, terms: Terms, values: Mapping[str, Any], folder: Path) -> None:
        self._terms = terms
        self._folder = folder
        self._out = folder / "out" if "out" in placeholders(terms.command) else None
        self._command = filled(terms.command, {**values, "out": self._out})
        self._tries_left = terms.retries
        self._mark = uuid.uuid4().hex
        self._start()

    def _start(self) -> None:
        if self._out is not None:
            self._out.unlink(missing_ok=True)  # a second try must not find the first one's value
        self._started = time.monotonic()
        self._process = None
        self._problem = ""
        try:
            with (
                (self._folder / "stdout").open("wb") as out,
                (self._folder / "stderr").open("wb") as err,
            ):
                # A session of its own: signals reach the command and all its children.
                self._process = subprocess.Popen(  # noqa: S603  the user's command, no shell
                    self._command,
                    # A command that asks a question finds no input, and does not wait for ever.
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    env={**os.environ, TRIAL_VARIABLE: self._mark},
                )
        except (OSError, ValueError) as error:
            # A command that cannot be started is a trial that failed, and may be tried again.
            self._problem = str(error)

    def outcome(self, *, final: bool = False) -> Outcome | None:
        """What it gave, None while it runs; a failure is tried again while there are tries left,
        unless `final`."""
        found = self._ended()
        if found is not None and found.value is None and self._tries_left > 0 and not final:
            self._tries_left -= 1
            self._start()
            return None
        return found

    def _ended(self) -> Outcome | None:
        if self._process is None:
            return Outcome(None, self._problem)
        code = self._process.poll()
        if code is None:
            timeout = self._terms.timeout
            if timeout is None or time.monotonic() - self._started < timeout:
                return None
            # With all its children, so that a second try does not run beside the first.
            stop([self], self._terms.grace)
            return Outcome(None, f"took longer than {timeout:g} s")
        if code:
            # Most programs say on stderr why they ended, and some on stdout only.
            said = _last_line(self._folder / "stderr") or _last_line(self._folder / "stdout")
            how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
            return Outcome(None, f"{how}{': ' + said[:200] if said else ''}")
        return _value_in(
            self._out or self._folder / "stdout",
            "its file {out}" if self._out else "the last line of its output",
        )

    @property
    def is_running(self) -> bool:
        """Its command has not ended."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the command and its children, those that began a session of their own
        apart."""
        if self._process is None:
            return
        # Windows has no killpg; taskkill ends a process with its children.
        if sys.platform == "win32":
            tree = ["taskkill", "/T", "/F", "/PID", str(self._process.pid)]
            subprocess.run(tree, capture_output=True, check=False)  # noqa: S603
            return
        # It may have ended by now, or have become a process of another user.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _never() -> bool:
    return False


def stop(jobs: Sequence[Job], grace: float = GRACE, hurry: Callable[[], bool] = _never) -> None:
    """End commands and their children: asked first, and made to so many seconds later, or as soon
    as `hurry` says so."""
    marks = {job._mark for job in jobs if job._process is not None}
    if not marks:
        return
    try:
        # Looked for before the first signal: a child that cleared its environment is known by its
        # parent only, and only while that one lives.
        _signal_all(jobs, strays(marks), signal.SIGTERM)
        end = time.monotonic() + grace
        while any(job.is_running for job in jobs) and time.monotonic() < end and not hurry():
            time.sleep(0.01)
    finally:
        # A second Ctrl-C ends the waiting, not the ending.
        # What was forked after one look is found by the next.
        kill = getattr(signal, "SIGKILL", signal.SIGTERM)
        _signal_all(jobs, (), kill)
        for _ in range(LOOKS):
            left = strays(marks)
            if not left:
                break
            _signal_all((), left, kill)
    # Waited for, so that no zombies are left.
    for job in jobs:
        if job._process is not None:
            job._process.wait()


def _signal_all(jobs: Sequence[Job], processes: Iterable[int], number: int) -> None:
    for job in jobs:
        job.signal(number)
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def strays(marks: set[str]) -> set[int]:
    """The processes of trials, wherever they went: those that have the mark of one in their
    environment, and the children of those (Linux; elsewhere none are found)."""
    known = {f"{TRIAL_VARIABLE}={mark}".encode() for mark in marks}
    found: set[int] = set()
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name of the program is in parentheses, and may itself hold spaces and parentheses.
            state, parent = (
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            )
            environment = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):  # it has ended, or is another user's
            continue
        # A zombie takes no signal: counted as left, it would be found at every look.
        if state == "Z":
            continue
        parents[int(folder.name)] = int(parent)
        if not known.isdisjoint(environment):
            found.add(int(folder.name))
    # Children of children, too: some have cleared their environment.
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _value_in(path: Path, where: str) -> Outcome:
    line = _last_line(path)
    if line is None:
        return Outcome(None, f"{where} is empty; print the value there")
    try:
        value = float(line)
    except ValueError:
        return Outcome(None, f"{where} must be a number, got {line[:80]!r}")
    if not math.isfinite(value) or abs(value) > LARGEST:
        return Outcome(None, f"{where} must be a finite number, got {line[:80]!r}")
    return Outcome(value)


def _last_line(path: Path) -> str | None:
    """The last line that is not empty, of the end of a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            # What is read may begin in the middle of a character.
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


class RemoteJob:
    """As `Job`, of a command that runs on a cluster."""

    def __init__(self, future: "Future[Outcome]") -> None:
        self.future = future

    def outcome(self, *, final: bool = False) -> Outcome | None:
        """What it gave, None while it runs; tries are repeated where it runs."""
        if not self.future.done():
            return None
        try:
            return self.future.result()
        except (Exception, CancelledError) as error:  # whatever became of the task
            return Outcome(None, " ".join(str(error).split())[:200] or type(error).__name__)

    @property
    def is_running(self) -> bool:
        """Its command has not ended."""
        return not self.future.done()


class Elsewhere:
    """Starts and ends commands on a Ray cluster, each as a task."""

    def __init__(self, address: str) -> None:
        from manyarms.cluster import rays  # noqa: PLC0415  few runs need it

        self._executor = rays.RayExecutor(address)
        self._between = rays.CANCEL_AGAIN_AFTER

    def start(self, terms: Terms, values: Mapping[str, Any], folder: Path) -> RemoteJob:
        """A trial; it has a folder on the machine where it runs, and this one stays empty."""
        return RemoteJob(self._executor.submit(ran, terms, dict(values)))

    def stop(
        self, jobs: Sequence[RemoteJob], grace: float, hurry: Callable[[], bool] = _never
    ) -> None:
        """End commands with their children: their tasks are interrupted, and end them."""
        for _ in range(2):
            for job in jobs:
                self._executor.cancel(job.future)
            # A command has its grace, and is then killed. Ray may miss a request that comes while
            # a task is starting: it is made again.
            end = time.monotonic() + grace + self._between
            while any(job.is_running for job in jobs) and time.monotonic() < end and not hurry():
                time.sleep(REMOTE_POLL)

    def close(self) -> None:
        """Leave the cluster."""
        self._executor.shutdown(wait=False)


def ran(terms: Terms, values: dict[str, Any]) -> Outcome:
    """Run a command here, and wait for what it gives; ended with all its children when the task
    is."""
    with tempfile.TemporaryDirectory(prefix="manyarms-", ignore_cleanup_errors=True) as folder:
        job = Job(terms, values, Path(folder))
        try:
            while (outcome := job.outcome()) is None:
                time.sleep(REMOTE_POLL)
            return outcome
        finally:
            if job.is_running:  # the task was interrupted
                stop([job], terms.grace)
