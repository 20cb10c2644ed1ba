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


def in_parallel(work: Callable[[T], None], tasks: Sequence[T]) -> None:
    """Work on all tasks; several of them on all cores, with one BLAS thread each."""
    if len(tasks) <= 1:
        for task in tasks:
            work(task)
        return
    with blas().limit(limits=1):
        for _ in _pool().map(work, tasks):
            pass
