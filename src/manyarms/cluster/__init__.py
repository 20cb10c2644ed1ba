"""Tables that are divided among processes or machines, and evaluations on a Ray cluster."""

from manyarms.cluster.executor import RayExecutor
from manyarms.cluster.policy import OnShards
from manyarms.cluster.table import Sharded

__all__ = ["OnShards", "RayExecutor", "Sharded"]
