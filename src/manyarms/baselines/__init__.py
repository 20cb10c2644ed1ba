"""Every system that the paper compares with, each on a page, with its paper and its guarantee."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyarms.baselines.estimated import EstimatedNoise
    from manyarms.baselines.fourier import QFF, RFF
    from manyarms.baselines.improvement import GPEI, GPPI, SketchEI, SketchPI
    from manyarms.baselines.incremental import Incremental, Insertion
    from manyarms.baselines.linear import CBRAP, OFUL, SOFUL
    from manyarms.baselines.local import LocalBatch
    from manyarms.baselines.minimeta import MiniMeta
    from manyarms.baselines.randomised import EpsilonGreedy, Thompson, Uniform
    from manyarms.baselines.sparse import DTC, SoR
    from manyarms.baselines.supkernel import FixedDesign, SupKernelUCB

_HOME = {
    "CBRAP": "linear",
    "DTC": "sparse",
    "GPEI": "improvement",
    "GPPI": "improvement",
    "OFUL": "linear",
    "QFF": "fourier",
    "RFF": "fourier",
    "SOFUL": "linear",
    "EpsilonGreedy": "randomised",
    "EstimatedNoise": "estimated",
    "FixedDesign": "supkernel",
    "Incremental": "incremental",
    "Insertion": "incremental",
    "LocalBatch": "local",
    "MiniMeta": "minimeta",
    "SketchEI": "improvement",
    "SketchPI": "improvement",
    "SoR": "sparse",
    "SupKernelUCB": "supkernel",
    "Thompson": "randomised",
    "Uniform": "randomised",
}
"""The module of each name. It is imported when the name is asked for."""

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'manyarms.baselines' has no attribute {name!r}")
    value = getattr(import_module(f"manyarms.baselines.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
