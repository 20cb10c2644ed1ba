"""Trials whose commands run on the machines of a Ray cluster, each as a task."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from manyarms.campaign.trials import CandidateId
from manyarms.cli.jobs import GRACE, Job, Outcome, filled, placeholders, stop
from manyarms.cluster.executor import CANCEL_AGAIN_AFTER, RayExecutor

REMOTE_POLL = 0.05
"""Seconds between two looks at a command, on its machine."""


class RemoteJob:
    """One trial, as `Job`: its command runs elsewhere until `outcome` is not None."""

    def __init__(self, id: CandidateId, token: str, folder: Path, future: "Future[Outcome]"):
        self.id = id
        self.token = token
        self.folder = folder
        self._future = future

    def outcome(self, *, final: bool = False) -> Outcome | None:
        """What it gave, None while it runs; tries are repeated where it runs."""
        if not self._future.done():
            return None
        try:
            return self._future.result()
        except (Exception, CancelledError) as error:  # whatever became of the task
            return Outcome(None, " ".join(str(error).split())[:200] or type(error).__name__)

    @property
    def is_running(self) -> bool:
        """Its command has not ended."""
        return not self._future.done()


class Elsewhere:
    """Starts and ends commands on a cluster."""

    def __init__(self, address: str) -> None:
        self._executor = RayExecutor(address)

    def start(
        self,
        id: CandidateId,
        token: str,
        command: Sequence[str],
        values: Mapping[str, Any],
        folder: Path,
        timeout: float | None,
        retries: int,
        grace: float = GRACE,
    ) -> RemoteJob:
        """A trial; a file {out} is one of the machine where it runs."""
        future = self._executor.submit(ran, list(command), dict(values), timeout, retries, grace)
        return RemoteJob(id, token, folder, future)

    def stop(self, jobs: Sequence[RemoteJob], grace: float, hurry: Callable[[], bool]) -> None:
        """End commands with their children: their tasks are interrupted, and end them."""
        for _ in range(2):
            for job in jobs:
                self._executor.cancel(job._future)
            # A command has its grace, and is then killed. Ray may miss a request that comes while
            # a task is starting: it is made again.
            end = time.monotonic() + grace + CANCEL_AGAIN_AFTER
            while any(job.is_running for job in jobs) and time.monotonic() < end and not hurry():
                time.sleep(REMOTE_POLL)

    def close(self) -> None:
        """Leave the cluster."""
        self._executor.shutdown(wait=False)


def ran(
    command: list[str],
    values: dict[str, Any],
    timeout: float | None,
    retries: int,
    grace: float,
) -> Outcome:
    """Run a command here, and wait for what it gives; ended with all its children when the task
    is."""
    with tempfile.TemporaryDirectory(prefix="manyarms-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        out = folder / "out" if "out" in placeholders(command) else None
        full = filled(command, {**values, **({"out": out} if out else {})})
        job = Job("", "", full, folder, out, timeout, retries, grace)
        try:
            while (outcome := job.outcome()) is None:
                time.sleep(REMOTE_POLL)
            return outcome
        finally:
            if job.is_running:  # the task was interrupted
                stop([job], grace)
