"""The whole loop in one call: ask, evaluate, tell, until the budget is spent or the certificate
says that it is enough."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from manyarms.campaign.predictions import Best
from manyarms.campaign.trials import CandidateId, Trial, as_values
from manyarms.checks import items_of, real, truth, whole
from manyarms.errors import ObservationError, ParameterError, StateError, shortened
from manyarms.optimizer import Optimizer
from manyarms.space.points import as_space
from manyarms.space.pool import OBJECT

POLL = 0.1
"""Seconds between two looks at what is running: Ctrl-C may be answered so much later."""
CHECK_EVERY = 10
"""Results between two looks at the certificate, each of which scores all candidates."""


@dataclass(frozen=True)
class Result:
    """What a run found.

    Attributes
    ----------
    best : Candidate or None
        The tried candidate of largest lower bound; None where no trial gave a value.
    history : list of Trial
        Every result, oldest first.
    optimizer : Optimizer
        It can be asked further.
    seconds : float
        What the run took, evaluations included.
    ended : str
        By what: "budget", "tolerance", "exhausted" or "interrupted".
    """

    best: Best | None
    history: list[Trial]
    optimizer: Optimizer
    seconds: float
    ended: str

    @property
    def policy(self) -> Any:
        """The policy at the end."""
        return self.optimizer.policy


def maximize(
    f: Callable[[Any], Any],
    arms: Any,
    *,
    budget: int,
    tolerance: float | None = None,
    n_jobs: int = 1,
    executor: Executor | None = None,
    callbacks: Callable[[Optimizer], None] | Iterable[Callable[[Optimizer], None]] = (),
    progress: bool = True,
    **options: Any,
) -> Result:
    """Find the candidate for which f is largest (or smallest) with at most `budget` evaluations.

    Ctrl-C ends the run and returns what is known; evaluations that are running go on in their
    threads until they end.

    Parameters
    ----------
    f : callable
        Called with a row of an array, the columns of a candidate as a mapping, a point of a box, or
        an object. It returns a number, or `FAILED`; an exception ends the run and is raised.
    arms : array_like (A, d), Pool, table or Box
        The candidates; with a kernel of objects (``kernel=``) a sequence of objects.
    budget : int
        Evaluations at most.
    tolerance : float, optional
        Stop once `certificate` says that no other candidate is better by more than this; without
        a theorem it says so of candidates like those tried.
    n_jobs : int
        Evaluations at a time, in threads unless `executor` says where.
    executor : concurrent.futures.Executor, optional
        Where f runs, such as a ``ProcessPoolExecutor``, a `cluster.RayExecutor`, or a Dask
        ``Client``. It gets f and its argument, and is left open.
    callbacks : callable or iterable of such
        Called with the optimizer after every result.
    progress : bool
        Show a bar on standard error.
    **options
        Of `Optimizer`: direction ("maximize" or "minimize"), kernel, noise, repeats, seed, …

    Returns
    -------
    Result
        The best candidate, every result, and the optimizer.

    Raises
    ------
    ParameterError
        A setting is out of its range.
    ObservationError
        f returned something that is no finite number.
    """
    budget = whole(budget, "budget")
    n_jobs = whole(n_jobs, "n_jobs")
    if not callable(f):
        raise ParameterError(f"f must be a function of one candidate, got {shortened(f)}")
    several = [callbacks] if callable(callbacks) else items_of(callbacks)
    if several is None or not all(map(callable, several)):
        raise ParameterError(
            f"callbacks must be functions of the optimizer, got {shortened(callbacks)}"
        )
    if tolerance is not None:
        real(tolerance, "tolerance", "a non-negative regret", at_least=0)
    if executor is not None and not hasattr(executor, "submit"):
        raise ParameterError(
            "executor must have a method submit(f, x), as those of concurrent.futures, got "
            f"{shortened(executor)}"
        )
    progress = truth(progress, "progress")
    space = as_space(arms, options.get("kernel"))
    optimizer = Optimizer(space, **options)
    evaluations = _Evaluations(f, _argument(arms, optimizer), n_jobs, executor)
    start = perf_counter()
    silent = nullcontext(lambda value: None)
    with _bar(budget, optimizer.direction) if progress else silent as show:
        ended = _search(optimizer, evaluations, budget, tolerance, show, several)
    optimizer.release(optimizer.pending)  # what was interrupted may be asked for again
    history = optimizer.history
    best = optimizer.best() if any(not trial.failed for trial in history) else None
    return Result(best, history, optimizer, perf_counter() - start, ended)


def _argument(arms: Any, optimizer: Optimizer) -> Callable[[Any], Any]:
    """What f is called with, of an id."""
    # f gets the rows of an array as they came, not as they are encoded.
    by_row = hasattr(arms, "__array_interface__")
    box = optimizer.pool.box

    def argument(name: Any) -> Any:
        if box is not None:
            return dict(name) if box.named else np.array(name)
        if optimizer.pool.kernel is not None:
            return optimizer.pool.row(name)[OBJECT]
        if by_row and name < len(arms):
            return arms[name]
        row = optimizer.pool.row(name)
        # Rows that a callback has added are not in the array.
        return np.array(list(row.values())) if by_row else row

    return argument


class _Evaluations:
    """Evaluations of f, each of a candidate asked for: in threads, or where an executor has
    them."""

    def __init__(
        self,
        f: Callable[[Any], Any],
        argument: Callable[[Any], Any],
        n_jobs: int,
        executor: Any,
    ) -> None:
        self._f = f
        self._argument = argument
        self._n_jobs = n_jobs
        self._threads = None
        if executor is None:
            executor = self._threads = ThreadPoolExecutor(n_jobs, thread_name_prefix="evaluate")
        # A Dask client has futures of its own kind, and an executor whose are the usual ones.
        self._executor = executor.get_executor() if hasattr(executor, "get_executor") else executor
        self.running: dict[Future[Any], CandidateId] = {}

    def start(self, optimizer: Optimizer, most: int) -> bool:
        """Keep as many running as there are jobs, at most `most`; whether there were candidates
        enough."""
        # Those that run will be results, and count against the budget.
        while len(self.running) < min(self._n_jobs, most):
            try:
                (name,) = optimizer.ask()
            except StateError:
                return False  # every candidate is tried, pending or retired
            self.running[self._executor.submit(self._f, self._argument(name))] = name
        return True

    def wait(self) -> set[Future[Any]]:
        """Those that ended, at least one. Waits in short turns: libraries may keep Ctrl-C from
        ending a long one."""
        while True:
            done = wait(self.running, timeout=POLL, return_when=FIRST_COMPLETED).done
            if done:
                return done

    def stop(self) -> None:
        """Start no more; those that run go on."""
        for future in self.running:
            future.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _search(
    optimizer: Optimizer,
    evaluations: _Evaluations,
    budget: int,
    tolerance: float | None,
    show: Callable[[Any], None],
    callbacks: list[Callable[[Optimizer], None]],
) -> str:
    """Ask, evaluate and tell; says what ended it."""
    running = evaluations.running
    ended = "budget"
    n_told = 0
    try:
        while n_told < budget:
            ended = "budget" if evaluations.start(optimizer, budget - n_told) else "exhausted"
            if not running:
                break
            for done in evaluations.wait():
                value = _value(done, running[done], optimizer)
                optimizer.tell(running[done], value)
                del running[done]
                n_told += 1
                show(value)
                for callback in callbacks:
                    callback(optimizer)
                looks = tolerance is not None and n_told % CHECK_EVERY == 0
                if looks and _is_reached(optimizer, tolerance):
                    ended = "tolerance"
                    budget = n_told  # nothing more is started
    except KeyboardInterrupt:
        ended = "interrupted"
        # What has ended in the meantime was paid for: it is told too.
        for future, name in list(running.items()):
            if future.done() and not future.cancelled() and not future.exception():
                optimizer.tell(name, future.result())
    finally:
        evaluations.stop()
    return ended


def _value(done: Future[Any], name: CandidateId, optimizer: Optimizer) -> Any:
    """What f returned."""
    try:
        value = done.result()
    except Exception as error:
        # The user's own exception goes on, with where it came from.
        error.add_note(
            f"f failed for candidate {name!r}, after {len(optimizer.history)} results; a callback "
            "can keep those"
        )
        raise
    if value is None:
        raise ObservationError(
            "f returned None; return a number, or manyarms.FAILED where there is none"
        )
    return value


def _is_reached(optimizer: Optimizer, tolerance: float | None) -> bool:
    # Without a value nothing is recommended, and there is no certificate.
    if all(trial.failed for trial in optimizer.history):
        return False
    return bool(optimizer.certificate(tolerance).reached)


@contextmanager
def _bar(budget: int, direction: str) -> Iterator[Callable[[Any], None]]:
    """A progress bar with the best value so far and a time estimate; a function that takes one more
    value, or FAILED."""
    pick = max if direction == "maximize" else min
    best: float | None = None
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("best {task.fields[best]}"),
    )
    # On standard error: what a program prints stays its own.
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("search", total=budget, best="?")

        def show(value: Any) -> None:
            nonlocal best
            (number,) = as_values(value, 1)
            if number is not None:
                best = number if best is None else pick(best, number)
                bar.update(task, best=f"{best:.5g}")
            bar.advance(task)

        yield show
