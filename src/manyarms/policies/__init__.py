"""Policies: what to pull next. Each has `choose`, `observe`, `predict`, `scores`."""

from manyarms.policies.adaptive import Adaptive
from manyarms.policies.algorithm1 import AlgorithmOne
from manyarms.policies.bkb import BKB
from manyarms.policies.gpucb import GPUCB

__all__ = ["BKB", "GPUCB", "Adaptive", "AlgorithmOne"]
