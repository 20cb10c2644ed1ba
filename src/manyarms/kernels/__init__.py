"""Covariance functions k(X, Y): what is known about rewards before any is seen.

Combine them with ``+`` and ``*`` and scale them by a number: ``2.0 * RBF(0.3) + Linear()``. A
scikit-learn kernel object or a plain function of two blocks of rows works wherever a kernel is
asked for. Kernels of objects (strings, graphs, sets, anything that a function of two objects
compares) take sequences of objects as arms.
"""

from manyarms.kernels.bags import Graph, Jaccard, Mismatch, Spectrum, WeisfeilerLehman
from manyarms.kernels.base import (
    FromCallable,
    FromObject,
    Kernel,
    On,
    Own,
    Pairwise,
    Product,
    Scaled,
    Sum,
    as_kernel,
)
from manyarms.kernels.inner import Linear, MinMax, Polynomial, Tanimoto, Unpacked, pack, unpack
from manyarms.kernels.objects import ObjectKernel, OnObjects
from manyarms.kernels.stationary import RBF, Hamming, Matern

__all__ = [
    "RBF",
    "FromCallable",
    "FromObject",
    "Graph",
    "Hamming",
    "Jaccard",
    "Kernel",
    "Linear",
    "Matern",
    "MinMax",
    "Mismatch",
    "ObjectKernel",
    "On",
    "OnObjects",
    "Own",
    "Pairwise",
    "Polynomial",
    "Product",
    "Scaled",
    "Spectrum",
    "Sum",
    "Tanimoto",
    "Unpacked",
    "WeisfeilerLehman",
    "as_kernel",
    "pack",
    "unpack",
]
