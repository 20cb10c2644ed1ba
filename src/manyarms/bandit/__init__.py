"""Policies: what to pull next. `BKB` and `GPUCB` are the library's own; `manyarms.baselines` has
what they are compared with."""

from manyarms.bandit.bkb import BKB, GPUCB

__all__ = ["BKB", "GPUCB"]
