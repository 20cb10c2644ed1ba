"""Shards as actors of Ray, and how Ray is reached or started."""

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic, sleep
from typing import Any, ClassVar

from manyarms.cluster.crews import Division, Fetched, Part, changed
from manyarms.cluster.sources import ArraySource
from manyarms.errors import ClusterError, ManyArmsError, MemoryBudgetError, ParameterError
from manyarms.kernels import Kernel
from manyarms.search.shards import MOST_TRIES, Lost, News, Question, Shard
from manyarms.search.work import limit_threads
from manyarms.typing import Array, Indices

REACH = 5.0
"""Seconds to reach an address."""
RAY_TOKEN = secrets.token_hex(32)
"""Of every Ray that this process starts: Ray reads it once."""
ENVIRONMENT = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED")
"""What is set while a Ray of our own runs, for it and for those who connect to it."""
RESTART_POLL = 0.05
"""Seconds between two looks at an actor that is being started again."""


class RayConnection:
    """Ray, reached or started. One that was started here ends with the last who uses it."""

    _users = 0  # of a Ray that was started here
    _before: ClassVar[dict[str, str | None]] = {}  # the environment before

    def __init__(self, address: str | None) -> None:
        if address is not None and not isinstance(address, str):
            raise ParameterError(f'address must be "auto" or "host:port", got {address!r}')
        self.ray = _imported()
        self._mine = False
        if address is None:
            self.local = RayConnection._users > 0
            if not self.ray.is_initialized():
                RayConnection._before = {name: os.environ.get(name) for name in ENVIRONMENT}
                try:
                    _start(self.ray)
                except BaseException:
                    _restore(RayConnection._before)
                    raise
                self.local = True
            if self.local:
                RayConnection._users += 1
                self._mine = True
        else:
            self.local = False
            _reach(self.ray, address)

    def close(self) -> None:
        """This user is done."""
        if self._mine:
            self._mine = False
            RayConnection._users -= 1
            if not RayConnection._users:
                self.ray.shutdown()
                _restore(RayConnection._before)


def _restore(environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _imported() -> Any:
    try:
        import ray  # noqa: PLC0415  an extra
    except ImportError as error:
        raise ClusterError(
            "shards in other processes need Ray: pip install 'manyarms[cluster]', or give "
            "in_process=True"
        ) from error
    return ray


def _start(ray: Any) -> None:
    """Start Ray on this machine. Only who has its token can use it: a fresh one, in the environment
    of this process and of those that it starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_TOKEN"] = RAY_TOKEN
    # Unset, Ray turns tokens on for what it starts, also where it was imported before; what is set
    # it only reads when it is imported.
    os.environ.pop("RAY_AUTH_MODE", None)
    try:
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=40)
    except Exception as error:  # Ray raises what comes
        ray.shutdown()
        raise ClusterError(f"Ray does not start here: {_said(error)}") from error
    if os.environ.get("RAY_AUTH_MODE") != "token":
        ray.shutdown()
        raise ClusterError(
            f"Ray {ray.__version__} starts without tokens, so that anyone on the network could "
            "use it; install a newer one: pip install 'manyarms[cluster]'"
        )


def _reach(ray: Any, address: str) -> None:
    """Connect to a Ray that runs."""
    host, _, port = address.rpartition(":")
    if address != "auto":
        if "://" in address or not (host and port.isdigit()):
            raise ClusterError(f'a cluster\'s address is "auto" or "host:port", got {address!r}')
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
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
        raise ClusterError(f"cannot use the Ray at {address}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())[:400] or type(error).__name__


@dataclass(frozen=True)
class Sent:
    """The rows of one part of an array, which are sent to its actor."""

    shape: tuple[int, int]
    rows: Array | None = None  # until they are there
    row_bytes: int = 0  # Ray's object store has them

    def read(self, start: int, stop: int) -> Array:
        """All of them: the part says where they stand in the table."""
        if self.rows is None:
            raise ClusterError("the rows of a shard were not sent")
        return self.rows


class Failed:
    """An error, as an answer."""

    def __init__(self, error: ManyArmsError) -> None:
        self.error = error


class Host:
    """What an actor runs: a shard, made from its part when it is first asked."""

    def __init__(self, part: Part, neighbours: int, threads: int) -> None:
        limit_threads(threads)
        self._part = part
        self._neighbours = neighbours
        self._shard: Shard | None = None

    def take(self, rows: Array) -> None:
        """The rows of the part, where they are sent."""
        self._part = replace(self._part, source=Sent(rows.shape, rows))

    def call(self, digest: str | None, method: str, *arguments: Any) -> Any:
        """What a method of the shard returns; its rows must have this digest."""
        source = self._part.source
        if isinstance(source, Sent) and source.rows is None:
            return Lost("it was made again, and its rows were not sent yet")
        try:
            if self._shard is None:
                shard = self._part.shard(self._neighbours)
                if digest is not None and digest != shard.digest:
                    raise changed(self._part)
                self._shard = shard
            return getattr(self._shard, method)(*arguments)
        except ManyArmsError as error:
            return Failed(error)
        except MemoryError as error:
            self._shard = None
            return Failed(MemoryBudgetError(f"a shard ran out of memory: {_said(error)}"))

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()


class RayCrew:
    """Shards that are actors of Ray: each is made again by its constructor when it dies."""

    def __init__(self, parts: Division, address: str | None, cpus: int, timeout: float) -> None:
        self.bounds = parts.bounds
        self.known: list[int | None] = [None] * len(parts)
        self._connection = RayConnection(address)
        self._ray = self._connection.ray
        self._timeout = timeout
        self._digests: list[str | None] = [None] * len(parts)
        self._actors: list[Any] = []
        self._rows: list[
            Any
        ] = []  # where the table is an array: those of each part, in Ray's store
        self._fetched = Fetched(self.bounds, self._fetch)
        self.learned = self._fetched.learned
        self.rows = self._fetched.rows
        try:
            self._make = self._maker(parts, cpus)
            self._actors = [self._make(i) for i in range(len(parts))]
            for i in range(len(parts)):
                self._send_rows(i)
            self._digests = self._all("known_by")
        except BaseException:
            self.close()
            raise

    def _maker(self, parts: Division, cpus: int) -> Callable[[int], Any]:
        """What makes the actor of a part."""
        ray = self._ray
        nodes = [node for node in ray.nodes() if node["Alive"]]
        neighbours = -(-len(parts) // max(1, len(nodes)))
        # A Ray of our own has as many actors as we like; on another one they take their cores.
        taken = 0 if self._connection.local else cpus
        there = int(ray.cluster_resources().get("CPU", 0))
        if taken * len(parts) > there:
            raise ClusterError(
                f"{len(parts)} shards of {cpus} cores need {cpus * len(parts)} cores, the cluster "
                f"has {there}; divide the table among fewer shards, or add machines"
            )
        host = ray.remote(num_cpus=taken, max_restarts=-1, max_task_retries=0)(Host)
        source = parts.source
        if isinstance(source, ArraySource):
            slices = [source.rows[a:b] for a, b in pairwise(self.bounds)]
            self._rows = [ray.put(rows) for rows in slices]
            source = Sent(source.shape)
        return lambda i: host.remote(parts.part(i, source), neighbours, cpus)

    def ask(self, asked: dict[int, tuple[News, Question]]) -> dict[int, Any]:
        """The answers of some shards; of one that died, `Lost`."""
        return self._call("ask", asked)

    def check(self, kernel: Kernel, regularization: float) -> None:
        """Raise KernelError or NumericalError where k(x, x) of a row cannot be used."""
        self._all("check", kernel, regularization)

    def close(self) -> None:
        """End all shards, and Ray where it was started for them."""
        if self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)
        self._actors = []
        self._connection.close()

    def _fetch(self, i: int, numbers: Indices) -> Array:
        rows: Array = self._some({i: (numbers,)}, "some")[i]
        return rows

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all shards, which need to know nothing for it."""
        answers = self._some(dict.fromkeys(range(len(self._actors)), arguments), method)
        return [answers[i] for i in range(len(self._actors))]

    def _some(self, asked: dict[int, tuple[Any, ...]], method: str) -> dict[int, Any]:
        left = dict(asked)
        answers: dict[int, Any] = {}
        for _ in range(MOST_TRIES):
            answers |= self._call(method, left)
            left = {i: asked[i] for i in left if isinstance(answers[i], Lost)}
            if not left:
                return answers
        raise answers[min(left)].error(min(left))

    def _call(self, method: str, asked: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """One call of some shards, all at the same time."""
        if not self._actors:
            raise ClusterError("the shards were ended by close(); divide the table anew")
        by = monotonic() + self._timeout
        refs = {
            i: self._actors[i].call.remote(self._digests[i], method, *arguments)
            for i, arguments in asked.items()
        }
        answers = {i: self._answer(i, ref, by) for i, ref in refs.items()}
        for answer in answers.values():
            if isinstance(answer, Failed):
                raise answer.error
        return answers

    def _answer(self, i: int, ref: Any, by: float) -> Any:
        """The answer of a shard. One that died is waited for until it has been made again."""
        ray = self._ray
        try:
            answer = ray.get(ref, timeout=max(0.0, by - monotonic()))
            if isinstance(answer, Lost):
                self._send_rows(i)
            return answer
        except ray.exceptions.GetTimeoutError as error:
            # A process that hangs may take long to end: another actor takes its place at once.
            ray.kill(self._actors[i])
            self._actors[i] = self._make(i)
            why = _said(error)
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            why = _said(error)
        return Lost(f"{why} {self._brought_back(i)}")

    def _send_rows(self, i: int) -> None:
        """To an actor that is new, where it cannot read them itself; its calls come in order."""
        if self._rows:
            self._actors[i].take.remote(self._rows[i])

    def _brought_back(self, i: int) -> str:
        """Wait for an actor that is being made again; says what went wrong."""
        ray = self._ray
        why = ""
        by = monotonic() + self._timeout
        while monotonic() < by:
            try:
                ray.get(self._actors[i].process.remote(), timeout=self._timeout)
                self._send_rows(i)
                return why
            except ray.exceptions.ActorUnavailableError:
                sleep(RESTART_POLL)
            except ray.exceptions.RayActorError as error:  # Ray makes it no more: we do
                why = _said(error)
                self._actors[i] = self._make(i)
                sleep(RESTART_POLL)
            except ray.exceptions.GetTimeoutError as error:
                why = _said(error)
        return why
