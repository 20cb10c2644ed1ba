"""manyarms: no-regret Bayesian optimisation over millions of candidates."""

from manyarms import diagnostics, errors, kernels
from manyarms.policies import BKB
from manyarms.policies.base import Prediction
from manyarms.policies.gpucb import GPUCB
from manyarms.sketch.choice import Scores
from manyarms.sketch.confidence import Bayes, Constant, Evidence, LogDet, Theory
from manyarms.sketch.dictionary import oversampling_for

__version__ = "0.1.0"

__all__ = [
    "BKB",
    "GPUCB",
    "Bayes",
    "Constant",
    "Evidence",
    "LogDet",
    "Prediction",
    "Scores",
    "Theory",
    "diagnostics",
    "errors",
    "kernels",
    "oversampling_for",
]
