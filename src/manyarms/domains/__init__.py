"""Infinite sets of arms: a box, and policies that need no table."""

from manyarms.domains.box import Box
from manyarms.domains.multistart import MultiStart
from manyarms.domains.policy import DomainBKB
from manyarms.domains.score import Score

__all__ = ["Box", "DomainBKB", "MultiStart", "Score"]
