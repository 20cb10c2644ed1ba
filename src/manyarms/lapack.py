"""BLAS, LAPACK and special functions, as SciPy has them, each loaded at its first use.

`scipy.linalg` takes twice as long to load as NumPy, and a command that only tells a result, or
lists what was told, needs none of it.
"""

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

from manyarms.runtime.signals import load

P = ParamSpec("P")
T = TypeVar("T")


class Routines:
    """The functions of a module, each found at its first use."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        load(self._module)
        routine = getattr(sys.modules[self._module], name)
        setattr(self, name, routine)  # found at once the next time
        return routine


linalg = Routines("scipy.linalg")
blas = Routines("scipy.linalg.blas")
lapack = Routines("scipy.linalg.lapack")
special = Routines("scipy.special")


@cache
def controller() -> ThreadpoolController:
    """NumPy and SciPy bring a BLAS each; their threads must not fight over the cores."""
    load("scipy.linalg")  # only what is loaded is found
    return ThreadpoolController()


class OneThread:
    """A context with one BLAS thread: for matrices as small as ours more only wait for each other.

    It takes some microseconds, where ``threadpool_limits`` takes a dozen and more.
    """

    def __enter__(self) -> None:
        # Only those that have more are set to one, and set back.
        threads = [(library, library.get_num_threads()) for library in controller().lib_controllers]
        self._before = [(library, n) for library, n in threads if n != 1]
        for library, _ in self._before:
            library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        for library, n in self._before:
            library.set_num_threads(n)


def in_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function with one BLAS thread."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with OneThread():
            return function(*args, **kwargs)

    return limited
