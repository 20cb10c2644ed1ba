"""What a policy has observed of the arms of its table, one entry an observation: an immutable value that only grows."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from manyarms.sketch.growing import Stack
from manyarms.typing import Array, Indices


def _indices() -> Stack:
    return Stack(np.zeros(0, dtype=np.intp))


def _numbers() -> Stack:
    return Stack(np.zeros(0))


@dataclass(frozen=True)
class Log:
    """Arms by number with weight ω, mean reward, and |W_s|: with the rows of W, all that a belief of frozen features is."""

    _arms: Stack = field(default_factory=_indices)
    _sizes: Stack = field(default_factory=_indices)
    _weights: Stack = field(default_factory=_numbers)
    _rewards: Stack = field(default_factory=_numbers)

    def added(self, arms: Indices, sizes: Indices, weights: Array, rewards: Array) -> "Log":
        """The log with more entries, (n,) each."""
        new = (arms, sizes, weights, rewards)
        old = (self._arms, self._sizes, self._weights, self._rewards)
        return Log(*(stack.appended(more) for stack, more in zip(old, new, strict=True)))

    def __len__(self) -> int:
        return self._arms.n

    @property
    def arms(self) -> Indices:
        """(n,), oldest first."""
        return self._arms.items

    @property
    def sizes(self) -> Indices:
        """(n,) how many inducing rows the feature of each has."""
        return self._sizes.items

    @property
    def weights(self) -> Array:
        """(n,) ω."""
        return self._weights.items

    @property
    def rewards(self) -> Array:
        """(n,)."""
        return self._rewards.items

    @cached_property
    def pulled(self) -> Indices:
        """The different arms, in index order, (u,)."""
        return np.unique(self.arms)
