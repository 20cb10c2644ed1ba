"""How Ray is reached or started, and functions that run as tasks there."""

import os
import secrets
import socket
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Executor, Future
from typing import Any, ClassVar

from manyarms.checks import needed
from manyarms.errors import ClusterError, ParameterError, shortened

RAY_TOKEN = secrets.token_hex(32)
"""Of every Ray that this process starts: Ray reads it once."""
ENVIRONMENT = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED")
"""What is set while a Ray of our own runs, for it and for those who connect to it."""
CANCEL_AGAIN_AFTER = 2.0
"""Seconds after which a task that was cancelled, and still runs, is cancelled again."""


class RayConnection:
    """Ray, reached or started. One that was started here ends with the last who uses it."""

    _users: ClassVar[set["RayConnection"]] = set()  # of a Ray that was started here
    _before: ClassVar[dict[str, str | None]] = {}  # the environment before it was

    def __init__(self, address: str | None) -> None:
        if address is not None and not isinstance(address, str):
            raise ParameterError(f'address must be "auto" or "host:port", got {shortened(address)}')
        ray = self.ray = needed(
            "ray",
            "shards in other processes need Ray: pip install 'manyarms[cluster]', or give "
            "in_process=True",
            ClusterError,
        )
        if address is not None:
            _reach(ray, address)
        elif not ray.is_initialized():
            self._start()
        elif self._users:
            self._users.add(self)

    @property
    def local(self) -> bool:
        """Ray was started here."""
        return self in self._users

    def close(self) -> None:
        """This user is done."""
        if self.local:
            self._users.remove(self)
            if not self._users:
                self._end()

    def _start(self) -> None:
        """Start Ray on this machine. Only who has its token can use it: a fresh one, in the
        environment of this process and of those that it starts."""
        RayConnection._before = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_AUTH_TOKEN"] = RAY_TOKEN
        # Unset, Ray turns tokens on for what it starts, also where it was imported before; what is
        # set it only reads when it is imported.
        os.environ.pop("RAY_AUTH_MODE", None)
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": 40}
        try:
            self.ray.init(address="local", **options)
            if os.environ.get("RAY_AUTH_MODE") != "token":
                raise RuntimeError(
                    f"Ray {self.ray.__version__} has no tokens, so that anyone on the network "
                    "could use it; install a newer one: pip install 'manyarms[cluster]'"
                )
        except BaseException as error:
            self._end()
            if not isinstance(error, Exception):
                raise  # Ctrl-C
            raise ClusterError(f"Ray does not start here: {said(error)}") from error
        self._users.add(self)

    def _end(self) -> None:
        """End a Ray that was started here, and put the environment back."""
        self.ray.shutdown()
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _reach(ray: Any, address: str) -> None:
    """Connect to a Ray that runs."""
    host, _, port = address.rpartition(":")
    if address != "auto":
        if "://" in address or not (host and port.isdigit()):
            raise ClusterError(
                f'a cluster\'s address is "auto" or "host:port", got {shortened(address)}'
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        except (OSError, OverflowError) as error:
            raise ClusterError(
                f"there is no Ray at {address}: {error}; is `ray start --head` running there, and "
                "the port open?"
            ) from error
    if ray.is_initialized():
        now = ray.get_runtime_context().gcs_address
        if address not in ("auto", now):
            raise ClusterError(
                f"this process uses the Ray at {now} already, got {address}; call ray.shutdown() "
                "first"
            )
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level=40)
    except Exception as error:  # Ray raises what comes
        ray.shutdown()
        raise ClusterError(f"cannot use the Ray at {address}: {said(error)}") from error


def said(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())[:400] or type(error).__name__


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
