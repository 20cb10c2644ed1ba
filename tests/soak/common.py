"""What the checks share."""

import multiprocessing
import os
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

import manyarms as ma

N = 200
"""Candidates."""


PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["manyarms.study", "soak.common"])


def start(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """Do it in a process of its own, forked from one that has imported all there is and run nothing: a fork of this one might
    find locks taken that no one lets go of, those of the threads that read tables."""
    child = PROCESSES.Process(target=work, args=arguments)
    child.start()
    return child


def pool() -> ma.Pool:
    """The candidates of all checks."""
    return ma.Pool.from_array(np.random.default_rng(0).random((N, 2)))


@contextmanager
def server() -> Iterator[str]:
    """The URL of a PostgreSQL of one's own, started as this user by `pgserver`; it is stopped at the end."""
    import pgserver

    with tempfile.TemporaryDirectory() as folder:
        running = pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()


@contextmanager
def tcp_server() -> Iterator[int]:
    """The port on this machine of a PostgreSQL of one's own; its user and its database are postgres."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running = pgserver.get_server(folder, cleanup_mode="stop")
        free.close()
        try:
            again = ["-w", "-o", f"-h 127.0.0.1 -p {port} -k ''", "restart"]
            pgserver.pg_ctl(again, pgdata=running.pgdata, user=running.system_user)
            yield port
        finally:
            running.cleanup()


@contextmanager
def place(kind: str) -> Iterator[str | Path]:
    """Where studies go: "disk", "memory" (a file system in memory, where there is one) or "postgresql"."""
    if kind == "postgresql":
        with server() as url:
            yield f"{url}#"
        return
    memory = "/dev/shm" if kind == "memory" and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def at(where: str | Path, name: str) -> str | Path:
    """The location of a study at a place."""
    return where / f"{name}.db" if isinstance(where, Path) else f"{where}{name}"
