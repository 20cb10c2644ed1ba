"""Ask and tell for people."""

from manyarms.optimizer.knowledge import Candidate, Predictions
from manyarms.optimizer.optimizer import START, Optimizer
from manyarms.optimizer.settings import Direction, as_pool
from manyarms.optimizer.state import State, grown_order, size_of, start_order
from manyarms.trials import as_told

__all__ = [
    "START",
    "Candidate",
    "Direction",
    "Optimizer",
    "Predictions",
    "State",
    "as_pool",
    "as_told",
    "grown_order",
    "size_of",
    "start_order",
]
