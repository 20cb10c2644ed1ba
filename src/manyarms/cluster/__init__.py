"""Tables that are divided among processes or machines, and evaluations on a Ray cluster."""

from manyarms.cluster.rays import RayExecutor
from manyarms.cluster.table import OnShards, Sharded

__all__ = ["OnShards", "RayExecutor", "Sharded"]
