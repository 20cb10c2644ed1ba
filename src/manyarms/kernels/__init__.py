"""Covariance functions k(X, Y): what is known about rewards before any is seen.

Combine them with ``+`` and ``*`` and scale them by a number: ``2.0 * RBF(0.3) + Linear()``. A scikit-learn kernel object or a
plain function of two blocks of rows works wherever a kernel is asked for.
"""

from manyarms.kernels.adapters import FromCallable, FromObject, Pairwise, as_kernel
from manyarms.kernels.base import Kernel, Product, Scaled, Sum
from manyarms.kernels.columns import On, Unpacked
from manyarms.kernels.discrete import Hamming, Tanimoto, pack, unpack
from manyarms.kernels.linear import Linear, Polynomial
from manyarms.kernels.stationary import RBF, Matern

__all__ = [
    "RBF",
    "FromCallable",
    "FromObject",
    "Hamming",
    "Kernel",
    "Linear",
    "Matern",
    "On",
    "Pairwise",
    "Polynomial",
    "Product",
    "Scaled",
    "Sum",
    "Tanimoto",
    "Unpacked",
    "as_kernel",
    "pack",
    "unpack",
]
