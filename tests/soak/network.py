"""A study in PostgreSQL behind a network that cuts, delays and goes silent.

    python -m soak.network [--rounds 500] [--interrupts 100] [--seed 0]

A proxy stands between, TCP on both sides. In each round something happens to the connection after so many messages of one
side: it is cut, it goes silent for good (also between a commit and its answer), or a message comes late; and new
connections may meet the same for a while. A round asks and tells, and does again what was refused, as its error says. At the
end every result is there once and nothing else is pending. Then the network is silent, and Ctrl-C ends whatever waits.
"""

import argparse
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import manyarms as ma
from manyarms.errors import StudyStorageError
from manyarms.study import postgres
from soak.common import pool, tcp_server

SILENCE, IDLE, LOOKS = 1.0, 3.0, 5.0
"""Seconds, in place of those that a study in PostgreSQL has."""
CONNECT = 2
"""The least that psycopg takes."""
LIMIT = 5 * SILENCE + 2 * CONNECT + LOOKS + IDLE
"""A call begins on a connection that is silent, connects anew, is silent in a statement or in the commit, looks for so long
whether that took place, and the last look waits until the server has ended the transaction."""


class Plan(NamedTuple):
    """What is to happen: to which side's message, after how many, and for how long to new connections."""

    kind: str  # "cut", "silent", "late"
    side: str  # "client", "server"
    after: int
    seconds: float


class Proxy:
    """Passes on what a client and a server say, until a plan is carried out."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        self._until = 0.0  # new connections meet `_kind`
        self._kind = ""
        self._sockets = [socket.create_server(("127.0.0.1", 0), backlog=64)]
        self.port = self._sockets[0].getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def expect(self, plan: Plan | None) -> None:
        """What is to happen next; None: nothing, and new connections work."""
        with self._lock:
            self._plan, self._until = plan, 0.0

    def close(self) -> None:
        """Let go of everything."""
        for each in self._sockets:
            with suppress(OSError):  # others have ended it
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._sockets[0].accept()
            except OSError:  # closed
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            state = {"kind": self._kind if time.monotonic() < self._until else ""}
            for side, source, sink in (("client", client, server), ("server", server, client)):
                threading.Thread(
                    target=self._pass, args=(side, source, sink, state), daemon=True
                ).start()

    def _pass(self, side: str, source: socket.socket, sink: socket.socket, state: Any) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                late = self._happens(side, state)
                if state["kind"] == "cut":
                    break
                if state["kind"] == "silent":
                    continue
                time.sleep(late)
                sink.sendall(data)
        if state["kind"] != "silent":
            for each in (source, sink):
                with suppress(OSError):
                    if state["kind"] == "cut":  # a reset, and no orderly end
                        each.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                    each.shutdown(socket.SHUT_RDWR)
                    each.close()

    def _happens(self, side: str, state: Any) -> float:
        with self._lock:
            plan = self._plan
            if plan is None or plan.side != side or state["kind"]:
                return 0.0
            self._plan = plan._replace(after=plan.after - 1)
            if plan.after:
                return 0.0
            self._plan = None
            if plan.kind == "late":
                return plan.seconds
            state["kind"] = self._kind = plan.kind
            self._until = time.monotonic() + plan.seconds
            return 0.0


class Found(NamedTuple):
    """What came of the rounds."""

    refused: int  # calls that had to be made again
    unknown: int  # of which it was not known whether they were written
    looked: (
        int  # commits whose answer was lost, after which the study looked whether they took place
    )
    written: int  # of which it found that they had
    longest: float  # call, in seconds


@contextmanager
def behind(target: int, schema: str, **constants: float) -> Iterator[tuple[str, Proxy, list[bool]]]:
    """The URL of a study behind a proxy, with other timeouts; and what was found of commits whose answer was lost."""
    own = {"CONNECT_TIMEOUT": CONNECT, **constants}
    before = {name: getattr(postgres, name) for name in own}
    looks, is_committed = postgres.PostgresStore.looks, postgres.PostgresStore._is_committed
    postgres.PostgresStore.looks = LOOKS
    answers: list[bool] = []

    def noted(*arguments: Any) -> bool:
        answers.append(is_committed(*arguments))
        return answers[-1]

    postgres.PostgresStore._is_committed = noted
    for name, value in own.items():
        setattr(postgres, name, value)
    proxy = Proxy(target)
    try:
        yield f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres#{schema}", proxy, answers
    finally:
        postgres.PostgresStore.looks = looks
        postgres.PostgresStore._is_committed = is_committed
        for name, value in before.items():
            setattr(postgres, name, value)
        proxy.close()


def rounds(target: int, number: int, seed: int = 0) -> Found:
    """AssertionError where a result is lost or doubled, or a call takes too long."""
    rng = np.random.default_rng(seed)
    refused = unknown = 0
    longest = 0.0

    def repeated(call: Callable[[], Any], is_written: Callable[[], bool]) -> Any:
        nonlocal refused, unknown, longest
        while True:
            begun = time.monotonic()
            try:
                return call()
            except StudyStorageError as error:
                refused += 1
                if "not known" in str(error):
                    unknown += 1
                    proxy.expect(None)
                    if is_written():
                        return None
                elif "nothing was written" not in str(error):
                    raise
                time.sleep(0.05)
            finally:
                longest = max(longest, time.monotonic() - begun)

    with behind(target, f"rounds_{seed}", SILENCE=SILENCE, IDLE=IDLE) as (url, proxy, answers):
        study = ma.Study.create(url, pool(), seed=seed)
        with study:
            for i in range(number):
                kind = ("cut", "silent", "late")[rng.integers(3)]
                seconds = rng.choice([0.0, 0.5, 2.5] if kind != "late" else [0.2, 0.7, 1.5])
                proxy.expect(
                    Plan(kind, ("client", "server")[rng.integers(2)], rng.integers(40), seconds)
                )
                asked = repeated(study.ask, lambda: bool(study.pending))
                (id,) = asked or study.pending
                repeated(partial(study.tell, id, [float(i)]), partial(_has, study, float(i)))
                proxy.expect(None)
            values = [trial.value for trial in study.history]
            assert values == list(range(number)), "a result is lost or doubled"
            assert not study.pending, "candidates were asked for twice"
            assert study.verify() == 1 + 2 * number
    assert longest < LIMIT, f"a call took {longest:.1f} s"
    return Found(refused, unknown, len(answers), sum(answers), longest)


def _has(study: ma.Study, value: float) -> bool:
    return value in [trial.value for trial in study.history]


def interrupted(target: int, number: int, seed: int = 0) -> tuple[int, float]:
    """How many calls Ctrl-C ended while they waited for a silent network, and the longest that one took to end then."""
    rng = np.random.default_rng(seed)
    n, slowest = 0, 0.0
    with behind(target, f"interrupted_{seed}", SILENCE=60.0, IDLE=IDLE) as (url, proxy, _):
        study = ma.Study.create(url, pool(), seed=seed)
        for i in range(number):
            with suppress(StudyStorageError):
                study.tell(0, [-1.0])
            if rng.random() < 0.3:
                study.close()  # the next one waits for a connection
            side = ("client", "server")[rng.integers(2)]
            proxy.expect(Plan("silent", side, rng.integers(10), 1e9))
            sent: list[float] = []
            timer = threading.Timer(rng.uniform(0.2, 1.0), _interrupt, [sent])
            timer.start()
            try:
                if rng.random() < 0.5:
                    study.ask()
                else:
                    study.tell(1, [float(i)])
                timer.join()
                time.sleep(1)
            except KeyboardInterrupt:
                slowest = max(slowest, time.monotonic() - sent[0])
                n += 1
            timer.join()
            proxy.expect(None)
        values = [trial.value for trial in study.history if trial.value != -1.0]
        assert len(values) == len(set(values)), "a result is doubled"
        study.close()
    return n, slowest


def _interrupt(sent: list[float]) -> None:
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--interrupts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tcp_server() as port:
        found = rounds(port, given.rounds, given.seed)
        print(
            f"{given.rounds} rounds: none lost, none doubled; of {found.looked} commits the answer was lost, {found.written} "
            f"had taken place, of {found.unknown} that was not known; {found.refused} calls were made again; the longest call took {found.longest:.1f} s of {LIMIT:g} s",
            flush=True,
        )
        n, slowest = interrupted(port, given.interrupts, given.seed)
        print(f"Ctrl-C ended {n} of {given.interrupts} calls, the slowest {slowest:.2f} s later")
