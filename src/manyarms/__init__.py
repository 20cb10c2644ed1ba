"""manyarms: no-regret Bayesian optimisation over millions of candidates."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# For type checkers and editors, which do not run `__getattr__`.
if TYPE_CHECKING:
    from manyarms import bandit, baselines, cluster, diagnostics, domains, errors, kernels, plots
    from manyarms.bandit.batches import GlobalRule
    from manyarms.bandit.bkb import BKB, GPUCB
    from manyarms.bandit.policy import Prediction
    from manyarms.bandit.stream import Stream
    from manyarms.campaign.certificate import Certificate, TrackRecord
    from manyarms.campaign.predictions import Best, Candidate, Predictions
    from manyarms.campaign.trials import FAILED, Forecast, Trial
    from manyarms.checks import joined
    from manyarms.engine.confidence import (
        Bayes,
        Certified,
        Constant,
        Evidence,
        Growing,
        LogDet,
        Resampled,
        Theory,
    )
    from manyarms.engine.dictionary import oversampling_for
    from manyarms.engine.frozen import Inserted
    from manyarms.engine.sampled import Sampled
    from manyarms.loop import Result, maximize
    from manyarms.optimizer import Optimizer
    from manyarms.search.scores import Scores
    from manyarms.search.tuning import Tuning
    from manyarms.space.box import Box
    from manyarms.space.pool import Pool
    from manyarms.study import Study
    from manyarms.versions import show_versions

__version__ = "0.2.0.dev0"

_HOME = {
    "BKB": "bandit.bkb",
    "FAILED": "campaign.trials",
    "GPUCB": "bandit.bkb",
    "Bayes": "engine.confidence",
    "Best": "campaign.predictions",
    "Box": "space.box",
    "Candidate": "campaign.predictions",
    "Certificate": "campaign.certificate",
    "Certified": "engine.confidence",
    "Constant": "engine.confidence",
    "Evidence": "engine.confidence",
    "Forecast": "campaign.trials",
    "GlobalRule": "bandit.batches",
    "Growing": "engine.confidence",
    "Inserted": "engine.frozen",
    "LogDet": "engine.confidence",
    "Optimizer": "optimizer",
    "Pool": "space.pool",
    "Prediction": "bandit.policy",
    "Predictions": "campaign.predictions",
    "Resampled": "engine.confidence",
    "Result": "loop",
    "Sampled": "engine.sampled",
    "Scores": "search.scores",
    "Stream": "bandit.stream",
    "Study": "study",
    "Theory": "engine.confidence",
    "TrackRecord": "campaign.certificate",
    "Trial": "campaign.trials",
    "Tuning": "search.tuning",
    "joined": "checks",
    "maximize": "loop",
    "oversampling_for": "engine.dictionary",
    "show_versions": "versions",
}
"""Where each public name is defined. It is imported when it is asked for: a bare BKB loads NumPy
and SciPy only."""
_MODULES = (
    "bandit",
    "baselines",
    "cluster",
    "diagnostics",
    "domains",
    "errors",
    "kernels",
    "plots",
)

__all__ = [
    "BKB",
    "FAILED",
    "GPUCB",
    "Bayes",
    "Best",
    "Box",
    "Candidate",
    "Certificate",
    "Certified",
    "Constant",
    "Evidence",
    "Forecast",
    "GlobalRule",
    "Growing",
    "Inserted",
    "LogDet",
    "Optimizer",
    "Pool",
    "Prediction",
    "Predictions",
    "Resampled",
    "Result",
    "Sampled",
    "Scores",
    "Stream",
    "Study",
    "Theory",
    "TrackRecord",
    "Trial",
    "Tuning",
    "bandit",
    "baselines",
    "cluster",
    "diagnostics",
    "domains",
    "errors",
    "joined",
    "kernels",
    "maximize",
    "oversampling_for",
    "plots",
    "show_versions",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"manyarms.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'manyarms' has no attribute {name!r}")
    value = getattr(import_module(f"manyarms.{_HOME[name]}"), name)
    globals()[name] = value  # found at once the next time: PEP 562 asks only for what is missing
    return value


def __dir__() -> list[str]:
    return __all__
