"""Infinite sets of arms: boxes, balls and polytopes, and policies that need no table of arms."""

from manyarms.bandit.adabkb import AdaBKB
from manyarms.bandit.ball import Ball
from manyarms.bandit.domain import DomainBKB
from manyarms.bandit.multistart import MultiStart
from manyarms.bandit.polytope import Polytope
from manyarms.bandit.score import Score
from manyarms.bandit.sweeps import Sweeps
from manyarms.space.box import Box

__all__ = ["AdaBKB", "Ball", "Box", "DomainBKB", "MultiStart", "Polytope", "Score", "Sweeps"]
