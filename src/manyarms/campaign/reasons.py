"""Why a candidate is suggested, in a few words that are checked against the model.

A candidate is chosen by its upper bound, so it is expected to be good, or little is known of it.
What is said of one is the first of these that is true.
"""

from collections.abc import Sequence

import numpy as np

from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Campaign
from manyarms.campaign.proposing import BatchConditions
from manyarms.typing import Indices

RANDOM = "random start"
"""The model has too few results to choose by."""
BY_PRIOR = "good by the prior"
"""The model has too few results to choose by, but a prior expects more of it than of most
others."""
CHECK = "check of a surprising result"
"""One of its values was outside the predicted interval."""
REPEAT = "repeat, to be surer of its value"
EXPECTED_BEST = "expected best"
"""No other candidate that may be suggested, and is not pending, has a better prediction."""
EXPECTED_NEXT = "expected best of the rest"
"""Apart from candidates of the same batch, no other has a better prediction."""
NEVER = "never tried"
"""No result has this level of a column; the name of the level follows."""
UNCERTAIN = "most uncertain among the good"
"""Its interval reaches the best prediction, and of those whose prediction is at least as good it is
the one of largest standard deviation."""
GOOD = 1.96
"""Standard deviations from the prediction to the end of an interval of 95 %."""
OPEN = "little is known of it, it may be good"
LEADING = 200
"""Candidates with the best predictions that are looked at: one behind all of them is not called
good."""


def reasons(before: Campaign, after: Ledger, rule: BatchConditions | None = None) -> list[str]:
    """Why each of the candidates that books have and those of before had not was asked for."""
    asked = after.pending[len(before.ledger.pending) :]
    start = RANDOM if after.candidates.expected is None else BY_PRIOR
    if all(each.forecast is None for each in asked):
        return [start] * len(asked)
    known = _Known(before, [each.position for each in asked], rule)
    found = []
    for each in asked:
        found.append(start if each.forecast is None else known.reason(each.position))
        known.picked.append(each.position)
    return found


class _Known:
    """What the reasons of one batch are based on."""

    def __init__(
        self, campaign: Campaign, positions: Sequence[int], rule: BatchConditions | None
    ) -> None:
        self.ledger = campaign.ledger
        self.model = campaign.model
        self.picked: list[int] = []
        # Means stay as they are while a batch is made: one look at the best of them is enough.
        self.leading: Indices = np.zeros(0, dtype=np.intp)
        if self.ledger.candidates.box is not None or not self.model.n_results:
            return
        is_open = self.ledger.is_open
        is_open[self.ledger.waiting] = False
        if rule is not None:
            is_open &= rule.with_level_of(positions[0]).only
        if is_open.any():
            gone = self.ledger.arms_without(is_open)
            k = min(LEADING + len(positions), int((~gone).sum()))
            self.leading = self.model.leading(k, gone)

    def reason(self, position: int) -> str:
        """Of the candidate that comes after those picked."""
        counts = self.ledger.outcomes.counts
        # A point of a box may be new to the books of before.
        if position < len(counts) and counts[position]:
            return CHECK if self._is_surprising(position) else REPEAT
        if not len(self.leading):
            return OPEN
        arm_of = self.ledger.candidates.arm_of
        return self._of_untried(int(arm_of[position]), arm_of[self.picked])

    def _of_untried(self, arm: int, picked: Indices) -> str:
        others = self.leading[~np.isin(self.leading, picked)]
        if len(others) and others[0] == arm:
            return EXPECTED_BEST if self.leading[0] == arm else EXPECTED_NEXT
        level = self._new_level(arm)
        if level:
            return f"{NEVER}: {level}"
        rank = np.flatnonzero(others == arm)
        if not len(rank):
            return OPEN
        mean, std = self.model.predict(others[: rank[0] + 1])
        may_be_best = mean[-1] + GOOD * std[-1] >= mean[0]
        return UNCERTAIN if may_be_best and std[-1] >= std.max() else OPEN

    def _is_surprising(self, position: int) -> bool:
        """Whether a value of it was outside of what was predicted."""
        at = self.ledger.results_of(position)
        values = self.ledger.outcomes.entries.items["value"][at]
        _, low, high = self.ledger.outcomes.entries.items["forecast"][at].T
        return bool(((values < low) | (values > high)).any())

    def _new_level(self, arm: int) -> str:
        """A level of the arm that no result has."""
        candidates = self.ledger.candidates
        tried = candidates.arm_of[self.ledger.outcomes.counts > 0]
        for feature in candidates.features:
            if feature.kind != "categorical":
                continue
            code = candidates.X[arm, feature.start]
            if not (candidates.X[tried, feature.start] == code).any():
                return f"{feature.name} {feature.levels[int(code)]}"
        return ""
