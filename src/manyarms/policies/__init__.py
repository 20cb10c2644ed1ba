"""Policies: what to pull next. Each has `choose`, `observe`, `predict`, `scores`."""

from manyarms.policies.adaptive import Adaptive
from manyarms.policies.algorithm1 import AlgorithmOne
from manyarms.policies.bkb import BKB
from manyarms.policies.cbrap import CBRAP
from manyarms.policies.gpucb import GPUCB
from manyarms.policies.oful import OFUL
from manyarms.policies.qff import QFF
from manyarms.policies.rff import RFF
from manyarms.policies.soful import SOFUL, Sketched

__all__ = ["BKB", "CBRAP", "GPUCB", "OFUL", "QFF", "RFF", "SOFUL", "Adaptive", "AlgorithmOne", "Sketched"]
