"""Work on chunks of many arms, on all cores, with one BLAS thread each."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="manyarms")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


@cache
def blas() -> ThreadpoolController:
    """NumPy and SciPy bring a BLAS each; their threads must not fight over the cores."""
    return ThreadpoolController()


class _OneThread:
    """A context with one BLAS thread: for matrices as small as ours more of them only wait for each other."""

    def __enter__(self) -> None:
        self._before = [(library, library.get_num_threads()) for library in blas().lib_controllers]
        for library, n in self._before:
            if n != 1:
                library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        for library, n in self._before:
            if n != 1:
                library.set_num_threads(n)


def one_thread() -> _OneThread:
    """Some microseconds, where `blas().limit` takes a dozen."""
    return _OneThread()


def in_parallel(work: Callable[[T], None], tasks: Sequence[T]) -> None:
    """Work on all tasks; several of them on all cores, with one BLAS thread each."""
    if len(tasks) <= 1:
        for task in tasks:
            work(task)
        return
    with one_thread():
        for _ in _pool().map(work, tasks):
            pass
