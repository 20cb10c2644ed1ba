"""BLAS and LAPACK, as SciPy has them, loaded when a matrix is first worked on.

`scipy.linalg` takes twice as long to load as NumPy, and a command that only tells a result, or
lists what was told, needs none of it.
"""

import sys
from typing import Any

from manyarms.signals import load


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
