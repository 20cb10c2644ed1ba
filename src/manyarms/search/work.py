"""How work is done, and what it costs: chunks of many arms on all cores, counts and seconds."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter
from typing import TypeVar

from manyarms.lapack import OneThread
from manyarms.runtime.machine import cores

T = TypeVar("T")


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


def in_parallel(work: Callable[[T], None], tasks: Iterable[T]) -> None:
    """Work on all tasks on all cores, with one BLAS thread each."""
    with OneThread():
        for _ in _pool().map(work, tasks):
            pass


class Stats:
    """Counts and seconds by name. `print(policy.stats)` shows them as a table."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Something was done n times."""
        self.counts[name] = self.counts.get(name, 0) + n

    def timed(self, name: str) -> "_Timed":
        """A context that counts once and adds its seconds."""
        return _Timed(self, name)

    def __str__(self) -> str:
        rows = (
            f"{name:<20}{n:>12,}{self.seconds.get(name, float('nan')):>12.3f}"
            for name, n in self.counts.items()
        )
        return "\n".join([f"{'':<20}{'times':>12}{'seconds':>12}", *rows]).replace("nan", "   ")


class _Timed:
    def __init__(self, stats: Stats, name: str) -> None:
        self._stats = stats
        self._name = name

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = perf_counter() - self._start
        self._stats.count(self._name)
        self._stats.seconds[self._name] = self._stats.seconds.get(self._name, 0.0) + spent
