"""How work is done, and what it costs: chunks of many arms on all cores, counts and seconds."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter
from typing import TypeVar

from manyarms.lapack import OneThread
from manyarms.runtime.machine import cores

T = TypeVar("T")

PARTS = 16
"""Parts in which tasks are given to threads: few enough to cost nothing, enough to be even."""
_limit: list[int] = []


def limit_threads(n: int) -> None:
    """Passes of this process use n threads from now on, however many cores there are: for one of
    several processes on a machine."""
    _limit[:] = [n]
    _pool.cache_clear()


@cache
def _pool() -> ThreadPoolExecutor:
    n = min(_limit, default=cores())
    return ThreadPoolExecutor(n, thread_name_prefix="manyarms")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


def in_parallel(work: Callable[[Sequence[T]], None], tasks: Sequence[T]) -> None:
    """Do some work on all tasks, in parts on all cores, with one BLAS thread each."""
    if len(tasks) == 1:
        work(tasks)
        return
    with OneThread():
        parts = [tasks[start::PARTS] for start in range(min(PARTS, len(tasks)))]
        for _ in _pool().map(work, parts):
            pass


class Stats:
    """Counts and seconds by name. `print(policy.stats)` shows them as a table."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Something was done n times."""
        self.counts[name] = self.counts.get(name, 0) + n

    def took(self, name: str, start: float) -> None:
        """Something was done, and began at this moment of `perf_counter`."""
        self.count(name)
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

    def __str__(self) -> str:
        rows = (
            f"{name:<20}{n:>12,}{self.seconds.get(name, float('nan')):>12.3f}"
            for name, n in self.counts.items()
        )
        return "\n".join([f"{'':<20}{'times':>12}{'seconds':>12}", *rows]).replace("nan", "   ")
