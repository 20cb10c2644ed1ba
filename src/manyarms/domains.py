"""Infinite sets of arms: boxes, balls and polytopes, and policies that need no table of arms."""

from manyarms.bandit.adabkb import AdaBKB
from manyarms.bandit.convex import Ball, Polytope
from manyarms.bandit.domain import DomainBKB
from manyarms.bandit.maximisers import MultiStart, Score, Sweeps
from manyarms.space.box import Box

__all__ = ["AdaBKB", "Ball", "Box", "DomainBKB", "MultiStart", "Polytope", "Score", "Sweeps"]
