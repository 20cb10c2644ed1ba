"""The objective as a command: run."""

import math
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from manyarms.campaign.trials import FAILED
from manyarms.cli.app import (
    DONE,
    FAILING,
    INTERRUPTED,
    InputError,
    StudyAt,
    me,
    opened,
    printable,
)
from manyarms.cli.jobs import (
    Elsewhere,
    Job,
    Outcome,
    Terms,
    check_placeholders,
    placeholders,
    stop,
)
from manyarms.cli.knowledge import plain_best
from manyarms.cli.output import Answer, count, note, shown, told
from manyarms.cli.suggestions import seconds
from manyarms.cli.tables import id_name
from manyarms.errors import ObservationError, StateError, StudyStorageError
from manyarms.study import Study

RUN = "run by "
"""What the name of a run begins with, among those who are trying."""


PROMPT = 1.0
"""Seconds that it takes at most to give candidates back, unless the study cannot be reached."""


class Pace(NamedTuple):
    """How long a run waits for what, in seconds."""

    lease: float = 300.0  # until what a run that vanished has asked for is given back
    turn: float = 0.02  # between two looks at the commands
    patience: tuple[float, ...] = (1.0, 5.0, 30.0)  # before a refused result is told again


class Attempt(NamedTuple):
    """A trial of a run: the candidate, a token that is its own, and its command."""

    id: Any  # as people call the candidate
    token: str
    folder: Path
    job: Any  # a Job, or a RemoteJob


def run(
    study: StudyAt,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...",
            help="What to run; {column} and {id} are filled in.",
            show_default=False,
        ),
    ],
    jobs: Annotated[int, typer.Option(min=1, max=10_000, help="Commands at a time.")] = 1,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials to spend on this study, by all runs together: end when it has this many "
            "results, or will have them of what is being tried.",
            show_default="none",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Time for one command, such as 90s, 15m or 8h.",
            metavar="TIME",
            show_default="none",
        ),
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, max=1000, help="How often to repeat a command that failed.")
    ] = 0,
    value_from: Annotated[
        str | None,
        typer.Option(
            help="last-line: of what the command prints. file: the command has {out}, and writes "
            "the value to that file.",
            metavar="last-line|file",
            show_default="file if the command has {out}",
        ),
    ] = None,
    max_failures: Annotated[
        int, typer.Option(min=1, help="Stop after this many failed trials in a row.")
    ] = 10,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Run the commands on the machines of a Ray cluster: auto, or host:port.",
            metavar="ADDRESS",
            show_default="this machine",
        ),
    ] = None,
) -> Answer:
    """Run a command for one candidate after another, and tell what it prints.

    {column} stands for a value of the candidate, {id} for its id; {{ and }} for braces. No shell is
    involved. The value is the last line of the output, a number and nothing else. A command that
    ends with another exit code than 0, prints no number or takes too long has failed.

    Ctrl-C ends the commands and gives their candidates back; the same command line goes on later.
    Several runs, on several machines, may work on one study. After --max-failures failures in a row
    the run ends with exit code 5, and those candidates are given back: the command, not the
    candidates, is likely to be wrong.

    [bold]Example:[/bold]
      manyarms run lab.db --jobs 4 --budget 200 --timeout 30m -- python train.py --lr {lr} --units
      {units}
    """
    terms = Terms(command, seconds(timeout, "--timeout"), retries)
    _check_command(command, value_from, here=cluster is None)
    # The name is unique: `renew` extends the leases of this run, and of no other.
    with opened(study, f"{RUN}{me()}:{os.getpid()}:{uuid.uuid4().hex[:6]}", Pace().lease) as known:
        _check_names(command, [*known.pool.names, id_name(known.pool)])
        with (
            tempfile.TemporaryDirectory(prefix="manyarms-") as folder,
            _progress(known, budget) as show,
            _cluster(cluster) as elsewhere,
        ):
            loop = Loop(known, terms, Path(folder), max_failures, show, elsewhere=elsewhere)
            code = loop.until(jobs, budget)
        return _said(known, loop, code)


@contextmanager
def _cluster(address: str | None) -> Iterator[Elsewhere | None]:
    """A cluster while commands run there; None: they run here."""
    elsewhere = None if address is None else Elsewhere(address)
    try:
        yield elsewhere
    finally:
        if elsewhere is not None:
            elsewhere.close()


def _check_command(command: list[str], value_from: str | None, *, here: bool) -> None:
    """Raise InputError where the command cannot be run so."""
    if value_from not in (None, "last-line", "file"):
        raise InputError(f"--value-from must be last-line or file, got {value_from!r}")
    if value_from is not None and (value_from == "file") != ("out" in placeholders(command)):
        raise InputError(
            "--value-from file and {out} in the command go together; give both or neither"
        )
    # A program whose name is filled in cannot be looked for yet.
    if here and "{" not in command[0] and shutil.which(command[0]) is None:
        raise InputError(f"there is no program {command[0]!r}; check the command after --")


def _check_names(command: list[str], names: list[str]) -> None:
    """Raise InputError where no column fills a name in braces; remark where there is none."""
    check_placeholders(command, list(dict.fromkeys([*names, "id", "out"])))
    if not placeholders(command) - {"out"}:
        note(
            "remark: no {column} and no {id} in the command, so it is the same for every candidate"
        )


def _said(study: Study, loop: "Loop", code: int) -> Answer:
    """Say what a run told, why it ended, and what is best now."""
    data: dict[str, Any] = {
        "told": loop.n_told,
        "failed": loop.n_failed,
        "results": study.n_results,
        "pending": len(study.pending),
        "ended": loop.ended,
        "best": None,
    }
    text = told(loop.n_told, loop.n_failed, study.n_results)
    if code != FAILING:
        text += f" Ended: {loop.ended}."
        if data["pending"]:
            text += f" Others are trying {count(data['pending'], 'candidate')}."
    if any(trial.value is not None for trial in study.history):
        best = study.best()
        data["best"] = plain_best(best, study.pool)
        recommended = data["best"]["recommended"]
        text += f" Recommended: {recommended['id']}, {shown(recommended['estimate'])}."
    if code == FAILING:
        note(f"error: {loop.ended}")
    return Answer.of(data, text, kept="the results are in the study", code=code)


class Loop:
    """Ask, run, tell."""

    def __init__(
        self,
        study: Study,
        terms: Terms,
        folder: Path,
        max_failures: int,
        show: Callable[[str], None],
        pace: Pace = Pace(),
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._study = study
        self._terms = terms
        self._folder = folder
        self._max_failures = max_failures
        self._shown_by = show
        self._pace = pace
        self._start: Callable[..., Any] = elsewhere.start if elsewhere else Job
        self._stop: Callable[..., None] = elsewhere.stop if elsewhere else stop
        self._running: list[Attempt] = []
        # Since the last value: told once the command is known to work.
        self._failures: list[Attempt] = []
        self._renewed = time.monotonic()
        self.n_told = self.n_failed = 0
        self.ended = ""

    def until(self, n_jobs: int, budget: int | None) -> int:
        """Run until the budget is spent, nothing is left, too many fail, or Ctrl-C; the exit
        code."""
        with _interrupts() as interrupts:
            try:
                while not self.ended:
                    idle = self._submit(n_jobs, budget)
                    self._collect()
                    self._renew()
                    if interrupts.came:
                        self.ended = "interrupted, run it again to go on"
                    elif idle and not self._running:
                        self.ended = self.ended or idle
                    else:
                        time.sleep(self._pace.turn)
                if interrupts.came:
                    return INTERRUPTED
                if len(self._failures) >= self._max_failures:
                    return FAILING
                self._tell_failures()
                return DONE
            finally:
                # From here on an interrupt only hurries: candidates must still be given back.
                interrupts.raises_from = math.inf
                self._clean_up(interrupts)

    def _show(self, text: str) -> None:
        """A terminal that was closed is no reason to stop."""
        with suppress(OSError):
            self._shown_by(text)

    def _submit(self, n_jobs: int, budget: int | None) -> str:
        """Keep so many commands running; says why, where there is nothing more to run."""
        free = n_jobs - len(self._running)
        if not free:
            return ""
        try:
            asked = self._study.ask(free, at_most=budget)
        except StateError:
            return "nothing is left to try"
        if not asked:
            return "budget spent"
        pool = self._study.pool
        for id, row in zip(pool.labels(asked), pool.rows(asked), strict=True):
            # One a trial: a result that is told again after an error counts once.
            token = f"run {uuid.uuid4().hex}"
            folder = self._folder / token[4:]
            folder.mkdir()
            values = {**row, id_name(pool): id, "id": id}
            job = self._start(self._terms, values, folder)
            self._running.append(Attempt(id, token, folder, job))
        return ""

    def _collect(self) -> None:
        for attempt in list(self._running):
            outcome = attempt.job.outcome()
            if outcome is not None:
                self._settle(attempt, outcome)
                self._running.remove(attempt)
                shutil.rmtree(attempt.folder, ignore_errors=True)

    def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        if outcome.value is None:
            self._failures.append(attempt)
            self._show(f"{attempt.id}: failed, {outcome.reason}")
            if len(self._failures) >= self._max_failures:
                self.ended = (
                    f"the last {len(self._failures)} trials failed, their candidates were given "
                    "back; mend the command"
                )
            return
        self._tell(attempt, outcome.value)
        # A value shows that the command works, so that those failures were the candidates' own.
        self._tell_failures()
        self._show(f"{attempt.id}: {shown(outcome.value)}")

    def _tell_failures(self) -> None:
        for attempt in self._failures:
            self._tell(attempt, None)
        self._failures = []

    def _tell(self, attempt: Attempt, value: float | None) -> None:
        """Told with a token, so that it may be said again where it is not known whether it was
        written."""
        told = FAILED if value is None else value
        # No wait follows the last try: its error is raised.
        for wait in (*self._pace.patience, None):
            try:
                self._study.tell(self._study.pool.ids_of([attempt.id]), [told], token=attempt.token)
                break
            except StudyStorageError:
                if wait is None:
                    raise
                time.sleep(wait)
            except ObservationError as error:  # someone else told it meanwhile, and once is enough
                self._show(f"{attempt.id}: not told, {error}")
                return
        self.n_told += 1
        self.n_failed += value is None

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > self._pace.lease / 3:  # two may fail
            self._study.renew()
            self._renewed = time.monotonic()

    def _clean_up(self, interrupts: "Interrupts") -> None:
        """End what is running, and give back what was asked for."""
        # Who had ended by itself before the interrupt may have a value: it is told.
        running = [each for each in self._running if each.job.is_running]
        ended = [each for each in self._running if each not in running]
        jobs = [each.job for each in running]
        self._stop(jobs, self._terms.grace, lambda: len(interrupts.came) > 1)
        interrupts.raises_from = time.monotonic() + PROMPT
        for attempt in ended:
            outcome = attempt.job.outcome(final=True)
            if outcome is not None and outcome.value is not None:
                self._settle(attempt, outcome)
        # Trials that failed and were not told are among these: they can be tried again.
        mine = [each.id for each in self._study.leases if each.worker == self._study.worker]
        if mine:
            self._study.release(mine)


class Interrupts:
    """The requests to end that came. The second one interrupts what takes long; those that follow,
    and those that come while the run ends, only make it end its commands sooner, unless the study
    cannot be reached then."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.raises_from = 0.0  # by `time.monotonic`

    def note(self, number: int, _: FrameType | None) -> None:
        """The handler of such signals."""
        self.came.append(number)
        if len(self.came) > 1 and time.monotonic() > self.raises_from:
            self.raises_from = math.inf
            raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[Interrupts]:
    """Ctrl-C, a request to end, and a terminal that is closed are noted, unless they are ignored
    (nohup)."""
    interrupts = Interrupts()
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK")
    there = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in there}
    noted = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in noted:
        signal.signal(number, interrupts.note)
    try:
        yield interrupts
    finally:
        for number in noted:
            signal.signal(number, before[number])


@contextmanager
def _progress(study: Study, budget: int | None) -> Iterator[Callable[[str], None]]:
    """A bar with a time estimate on a terminal, a line for each result elsewhere; both on
    stderr."""
    # Ids and messages are shown as they are: brackets in them are no markup.
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        yield note
        return
    best = TextColumn("best {task.fields[best]}", markup=False)
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(BarColumn(), MofNCompleteColumn(), *times, best, console=console) as bar:
        task = bar.add_task("run", total=budget, completed=study.n_results, best="?")

        def show(text: str) -> None:
            values = [trial.value for trial in study.history if trial.value is not None]
            best = (max if study.direction == "maximize" else min)(values, default=None)
            bar.update(task, completed=study.n_results, best=shown(best))
            console.print(printable(text))

        yield show
