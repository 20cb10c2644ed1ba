"""manyarms: no-regret Bayesian optimisation over millions of candidates."""

from manyarms import diagnostics, domains, errors, kernels, plots, policies
from manyarms.arms.contexts import joined
from manyarms.arms.pool import Pool
from manyarms.box_optimizer import BoxOptimizer
from manyarms.certificate import Certificate
from manyarms.domains.box import Box
from manyarms.maximize import Result, maximize
from manyarms.optimizer import Candidate, Optimizer, Predictions
from manyarms.policies import BKB
from manyarms.policies.gpucb import GPUCB
from manyarms.policies.learner import Prediction
from manyarms.sketch.choice import Scores
from manyarms.sketch.confidence import Bayes, Constant, Evidence, Growing, LogDet, Theory
from manyarms.sketch.dictionary import oversampling_for
from manyarms.study import Study
from manyarms.trials import FAILED, Trial

__version__ = "0.1.0"

__all__ = [
    "BKB",
    "FAILED",
    "GPUCB",
    "Bayes",
    "Box",
    "BoxOptimizer",
    "Candidate",
    "Certificate",
    "Constant",
    "Evidence",
    "Growing",
    "LogDet",
    "Optimizer",
    "Pool",
    "Prediction",
    "Predictions",
    "Result",
    "Scores",
    "Study",
    "Theory",
    "Trial",
    "diagnostics",
    "domains",
    "errors",
    "joined",
    "kernels",
    "maximize",
    "oversampling_for",
    "plots",
    "policies",
]
