"""Infinite sets of arms: boxes, balls and polytopes, and policies that need no table of arms."""

from manyarms.domains.box import Box
from manyarms.domains.linear import Ball, Polytope
from manyarms.domains.multistart import MultiStart
from manyarms.domains.policy import DomainBKB
from manyarms.domains.score import Score
from manyarms.domains.sweeps import Sweeps
from manyarms.domains.tree import AdaBKB

__all__ = ["AdaBKB", "Ball", "Box", "DomainBKB", "MultiStart", "Polytope", "Score", "Sweeps"]
