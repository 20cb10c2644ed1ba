"""The largest mean of the arms pulled so far, without scoring all of them at every step.

An observation changes the mean of an arm by hᵀ(surprise) and lowers its variance by ‖h‖²
(`beliefs/base.py`, `Change`). So ‖h‖ ≤ σ̃, and over several steps a mean moves by no more than

    |μ̃_t(x) − μ̃_τ(x)| ≤ σ̃_τ(x) Σ_s ‖surprise_s‖.

Most arms that matter are on the last list of the search, which has their means. Of the others the
one of largest bound is scored, and again the one that is largest then, until that is a score.
"""

from collections.abc import Callable
from copy import copy

import numpy as np

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.typing import Array, Indices, Mask

FEW = 8
"""New arms that are looked for among those known one by one."""


class Leaders:
    """Arms with bounds on their means, (u,) each. It follows the steps of one belief."""

    def __init__(self) -> None:
        self._n_taken = 0  # with repeats
        self._positions: Indices = np.zeros(0, dtype=np.intp)
        self._mean: Array = np.zeros(0)  # a score, or a bound where it is not exact
        self._width: Array = np.zeros(0)  # σ̃ then, or more
        self._since: Array = np.zeros(0)  # how far the way was then
        self._exact: Mask = np.zeros(0, dtype=bool)
        self._found: tuple[Indices | None, Indices, Indices] | None = None  # on the last list
        self._way = 0.0  # Σ ‖surprise‖ so far

    def after(self, step: Step) -> "Leaders":
        """After one more step; nothing is known where it tells nothing about means."""
        if step.change is None:
            return Leaders()
        made = copy(self)
        made._way += float(np.linalg.norm(step.change.surprise))
        return made

    def add(self, arms: Indices, bounds: Callable[[Indices], tuple[Array, Array]]) -> None:
        """Take these arms, which begin with those that were taken before. Of those that are new,
        it is asked what their means and deviations cannot exceed."""
        new = arms[self._n_taken :]
        self._n_taken = len(arms)
        if not len(new):
            return
        if len(new) > FEW:
            new = np.unique(new)
            fresh = ~np.isin(new, self._positions)
        else:
            fresh = np.array([not (self._positions == arm).any() for arm in new])
        new = new[fresh]
        if len(new):
            self._found = None
            mean, width = bounds(new)
            self._positions = np.append(self._positions, new)
            self._mean = np.append(self._mean, mean)
            self._width = np.append(self._width, width)
            self._since = np.append(self._since, np.full(len(new), self._way))
            self._exact = np.append(self._exact, np.zeros(len(new), dtype=bool))

    def largest(self, belief: Frozen, arms: Arms, listed: Indices | None, mean: Array) -> float:
        """The largest mean at a belief, where those of the arms on a list, or of all, are known."""
        bound = self._mean + (self._way - self._since) * self._width
        known = self._exact & (self._since == self._way)
        mine, places = self._on_list(listed)
        bound[mine] = mean[places]
        known[mine] = True
        best = int(bound.argmax())
        if not known[best]:
            # Other values share these arrays: they are replaced, not written to.
            self._mean = self._mean.copy()
            self._width = self._width.copy()
            self._since = self._since.copy()
            self._exact = self._exact.copy()
        n = 1
        while not known[best]:
            some = np.array([best])
            if n > FEW:
                left = np.where(known, -np.inf, bound)
                some = np.argpartition(left, -min(n, len(left)))[-n:]
                some = some[~known[some]]
            self._score(some, belief, arms)
            bound[some] = self._mean[some]
            known[some] = True
            best = int(bound.argmax())
            n *= 2
        return float(bound[best])

    def _on_list(self, listed: Indices | None) -> tuple[Indices, Indices]:
        """Which of these arms are on a list, and where."""
        if self._found is None or self._found[0] is not listed:
            mine = np.arange(len(self._positions))
            places = self._positions
            if listed is not None:
                at = np.searchsorted(listed, self._positions)
                inside = np.flatnonzero(at < len(listed))
                mine = inside[listed[at[inside]] == self._positions[inside]]
                places = at[mine]
            self._found = (listed, mine, places)
        return self._found[1:]

    def _score(self, some: Indices, belief: Frozen, arms: Arms) -> None:
        """Means of now, and deviations of those whose mean was never computed."""
        at = self._positions[some]
        if len(some) == 1 and self._exact[some[0]]:
            row = arms.rows[at[0]].astype(np.float64, copy=False)
            # The embedding of an arm that leads again and again is remembered.
            self._mean[some] = belief.inducing.feature(row, float(arms.diag[at[0]])).z @ belief.w
        else:
            mean, variance = belief.moments(arms.rows[at], arms.diag[at])
            self._mean[some] = mean
            self._width[some] = np.sqrt(variance)
        self._since[some] = self._way
        self._exact[some] = True
