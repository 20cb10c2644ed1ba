"""Rules other than the largest upper bound, to be mixed into a policy that has a posterior: ``class EI(Rule, Adaptive)``."""

import numpy as np

from manyarms.policies.base import Policy
from manyarms.typing import Array, Indices


class Rule(Policy):
    """`_pick` decides, with the means and variances of all arms before it: no arm is passed over lazily."""

    choose = Policy.choose
    _batch = Policy._batch
    _takes_rows = False


class Blind(Rule):
    """A rule that looks neither at scores nor at what is pending, so that they need not be computed; arms of a batch are chosen
    independently of each other. `choose(None)` still ends by Batch-BKB's rule."""

    def _means(self) -> Array:
        return np.zeros(0)

    def _lookahead(self, *, append: bool) -> "Unmoved":
        return Unmoved()


class Unmoved:
    """The lookahead of a rule that needs none."""

    variance = np.zeros(0)

    def pull(self, arms: Indices) -> None:
        """Nothing changes."""
