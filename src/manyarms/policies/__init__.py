"""Policies: what to pull next. Each has `choose`, `observe`, `predict`, `scores`.

`BKB` and `GPUCB` are the library's own; the others are what they are compared with, each with its paper and its guarantee, or
lack of one, in its docstring.
"""

from manyarms.policies.adaptive import Adaptive
from manyarms.policies.algorithm1 import AlgorithmOne
from manyarms.policies.bkb import BKB
from manyarms.policies.cbrap import CBRAP
from manyarms.policies.estimated import EstimatedNoise
from manyarms.policies.gpucb import GPUCB
from manyarms.policies.improvement import GPEI, GPPI, SketchEI, SketchPI
from manyarms.policies.incremental import Incremental, Insertion
from manyarms.policies.local import LocalBatch
from manyarms.policies.minimeta import MiniMeta
from manyarms.policies.oful import OFUL
from manyarms.policies.qff import QFF
from manyarms.policies.rff import RFF
from manyarms.policies.simple import EpsilonGreedy, Uniform
from manyarms.policies.soful import SOFUL, Sketched
from manyarms.policies.sparse import DTC, SoR
from manyarms.policies.supkernel import FixedDesign, SupKernelUCB
from manyarms.policies.thompson import Thompson

__all__ = [
    "BKB",
    "CBRAP",
    "DTC",
    "GPEI",
    "GPPI",
    "GPUCB",
    "OFUL",
    "QFF",
    "RFF",
    "SOFUL",
    "Adaptive",
    "AlgorithmOne",
    "EpsilonGreedy",
    "EstimatedNoise",
    "FixedDesign",
    "Incremental",
    "Insertion",
    "LocalBatch",
    "MiniMeta",
    "SketchEI",
    "SketchPI",
    "Sketched",
    "SoR",
    "SupKernelUCB",
    "Thompson",
    "Uniform",
]
