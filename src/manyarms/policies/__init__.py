"""Policies: what to pull next. `BKB` and `GPUCB` are the library's own; `manyarms.baselines` has
what they are compared with.

Names of baselines are found here too, and are imported when they are asked for.
"""

from typing import Any

from manyarms.policies.bkb import BKB
from manyarms.policies.gpucb import GPUCB

__all__ = ["BKB", "GPUCB"]


def __getattr__(name: str) -> Any:
    from manyarms import baselines  # noqa: PLC0415  baselines are made of policies

    if name.startswith("_") or name not in baselines.__all__:
        raise AttributeError(f"module 'manyarms.policies' has no attribute {name!r}")
    return getattr(baselines, name)
