"""Functions that run as tasks of Ray."""

from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Executor, Future
from typing import Any

from manyarms.cluster.rays import RayConnection
from manyarms.errors import ClusterError

CANCEL_AGAIN_AFTER = 2.0
"""Seconds after which a task that was cancelled, and still runs, is cancelled again."""


class RayExecutor(Executor):
    """An executor of `concurrent.futures` whose functions run on a Ray cluster.

    ``maximize(f, arms, executor=RayExecutor("auto"), n_jobs=64)`` evaluates f there.

    Parameters
    ----------
    address : str, optional
        "auto" for the Ray that `ray start` started here, or "host:port". Without one, Ray is
        started on this machine, and ends with `shutdown`.
    cpus : float
        Cores that a task takes.

    Raises
    ------
    ClusterError
        The address cannot be reached, or runs another version of Ray.
    """

    def __init__(self, address: str | None = None, *, cpus: float = 1) -> None:
        self._connection: RayConnection | None = RayConnection(address)
        self._running: dict[Future[Any], Any] = {}  # with their tasks
        self._run = self._connection.ray.remote(num_cpus=cpus)(_run)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task.

        Parameters
        ----------
        fn : callable
            What runs there.
        *args
            Its arguments.
        **kwargs
            The same, by name.

        Returns
        -------
        Future
            Of what it returns.
        """
        if self._connection is None:
            raise ClusterError("the executor was shut down; make another one")
        task = self._run.remote(fn, args, kwargs)
        future: Future[Any] = task.future()
        self._running[future] = task
        future.add_done_callback(self._running.pop)
        return future

    def cancel(self, future: Future[Any]) -> None:
        """Interrupt a task: it sees a KeyboardInterrupt. One that has ended stays as it is.

        Parameters
        ----------
        future : Future
            What `submit` returned.
        """
        task = self._running.get(future)
        if task is not None and self._connection is not None:
            self._connection.ray.cancel(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End Ray where it was started for this executor; what runs there ends with it.

        Parameters
        ----------
        wait : bool
            Wait for what runs.
        cancel_futures : bool
            End what runs, instead.
        """
        if self._connection is None:
            return
        while self._running and (wait or cancel_futures):
            running = list(self._running)
            if cancel_futures:
                for future in running:
                    self.cancel(future)
                if not wait:
                    break
            # Ray may miss a request that comes while a task is starting: it is made again.
            futures.wait(running, timeout=CANCEL_AGAIN_AFTER)
        self._connection.close()
        self._connection = None


def _run(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)
