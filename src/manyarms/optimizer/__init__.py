"""Ask and tell for people."""

from manyarms.optimizer.knowledge import Candidate, Predictions
from manyarms.optimizer.optimizer import START, Optimizer
from manyarms.optimizer.settings import Direction, as_pool
from manyarms.optimizer.state import Size, State, grown_order, is_size_due, size_of, start_order
from manyarms.trials import as_told

__all__ = [
    "START",
    "Candidate",
    "Direction",
    "Optimizer",
    "Predictions",
    "Size",
    "State",
    "as_pool",
    "as_told",
    "grown_order",
    "is_size_due",
    "size_of",
    "start_order",
]
