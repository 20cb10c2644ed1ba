"""Every system that the paper compares with, with its paper and its guarantee."""

from manyarms.baselines.estimated import EstimatedNoise
from manyarms.baselines.fourier import QFF, RFF
from manyarms.baselines.improvement import GPEI, GPPI, SketchEI, SketchPI
from manyarms.baselines.linear import CBRAP, OFUL, SOFUL
from manyarms.baselines.minimeta import MiniMeta
from manyarms.baselines.randomised import EpsilonGreedy, Thompson, Uniform
from manyarms.baselines.sparse import DTC, SoR
from manyarms.baselines.supkernel import FixedDesign, SupKernelUCB
from manyarms.baselines.variants import Incremental, Insertion, LocalBatch

__all__ = [
    "CBRAP",
    "DTC",
    "GPEI",
    "GPPI",
    "OFUL",
    "QFF",
    "RFF",
    "SOFUL",
    "EpsilonGreedy",
    "EstimatedNoise",
    "FixedDesign",
    "Incremental",
    "Insertion",
    "LocalBatch",
    "MiniMeta",
    "SketchEI",
    "SketchPI",
    "SoR",
    "SupKernelUCB",
    "Thompson",
    "Uniform",
]
