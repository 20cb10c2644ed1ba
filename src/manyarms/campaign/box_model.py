"""The model of a box, and where it searches once it stalls.

A model that knows a good region has its units from there: what is much worse elsewhere passes for
equally bad and is not climbed, so that a run that ended in the second best of several basins stays
in it. So another model is made then which knows later results only, from a random start on, and
chooses until it stalls as well; the first one is told of all it finds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from manyarms.arms.array import Checked
from manyarms.beliefs.base import Record
from manyarms.campaign.model import Model, Results
from manyarms.campaign.units import Warp
from manyarms.typing import Array, Indices

NOISES = 10.0
"""Standard deviations of the noise in a unit of reward, at least, while that is less than the
standard deviation of all means: the noise is itself learned in these units, and each would raise
the other."""
STALLED = 60
"""Results asked for without one that is better by more than the noise, after which a model has
stalled."""
SHARE = 4
"""A search elsewhere waits for one in so many of all results, too: it is a falling share of a long
run."""

GROWTH, THOROUGH = 1.05, 1.2
"""A refit comes when there are so many times more results than at the last; one that looks for a
kernel everywhere, and not only near the last one, when there are so many times more than at the
last of those."""


class Progress(NamedTuple):
    """How long ago a model was told of something better."""

    top: float  # the best value, signed, but for gains less than the noise
    stalled: int  # results asked for since

    def after(self, model: Model, values: Array, n_asked: int) -> "Progress":
        """After these values (n,), of which so many were asked for."""
        highest = float(values.max())
        noise = model.noise / model.warp.slope
        return (
            Progress(highest, 0)
            if highest > self.top + noise
            else Progress(self.top, self.stalled + n_asked)
        )


NONE = Progress(-np.inf, 0)


class Search(NamedTuple):
    """A model of the results from `start` on, but for those of points `asked` for before."""

    model: Model
    start: int
    asked: tuple[int, ...]
    progress: Progress

    def of(self, results: Results, *, start: int | None = None) -> Results:
        """Those of all results, or of some from `start` on, that it knows."""
        arms, values, noise = results
        kept = ~np.isin(arms, self.asked)
        kept[: self.start if start is None else start] = False
        return arms[kept], values[kept], noise[kept]


@dataclass(frozen=True)
class BoxModel(Model):
    """A model whose policy takes arms by value."""

    progress: Progress = NONE
    search: Search | None = None
    n_thorough: int = 0  # results at the last fit that was thorough
    patience: int = STALLED

    _least_noise: ClassVar[float] = 1e-6  # near a maximum differences are small parts of a unit
    _growth: ClassVar[float] = GROWTH

    @property
    def chooser(self) -> Model:
        """The model that chooses: of a search, where there is one."""
        return self.search.model if self.search else self

    def is_stale(self, n_results: int) -> bool:
        """Not while another model chooses."""
        return self.search is None and super().is_stale(n_results)

    def refitted(self, arms: Indices, values: Array, noise: Array) -> "BoxModel":
        """Thoroughly where that is due, and after a surprise."""
        n = len(values)
        thorough = n >= THOROUGH * self.n_thorough or not self.is_stale(n)
        found, warp = self.learned(arms, values, noise, thorough=thorough)
        model = cast(BoxModel, self.refitted_as(found, warp, arms, values, noise))
        return replace(model, n_thorough=n) if thorough else model

    def searching(
        self, new: Results, n_asked: int, pending: tuple[int, ...], results: Callable[[], Results]
    ) -> "BoxModel":
        """After results that it was told of already, so many of them asked for: a search goes on,
        begins or ends.

        `results` gives all there are, as for `told`.
        """
        progress = self.progress.after(self, new[1], n_asked)
        if self.search is None:
            if progress.stalled < max(self.patience, self.n_results // SHARE):
                return replace(self, progress=progress)
            fresh = BoxModel.prior(self.settings, Checked(self.arms))
            return replace(
                self, progress=progress, search=Search(fresh, self.n_results, pending, NONE)
            )
        search, (arms, values, noise) = self.search, self.search.of(new, start=0)
        if len(arms):
            model = replace(search.model, arms=self.arms).told(
                arms, values, noise, lambda: search.of(results())
            )
            search = search._replace(
                model=model, progress=search.progress.after(model, values, n_asked)
            )
        if search.progress.stalled < self.patience:
            return replace(self, progress=progress, search=search)
        return replace(self, progress=Progress(progress.top, 0), search=None)

    def _units(self, means: Array) -> Warp:
        noise = self.noise / self.warp.slope if self.fitted else 0.0
        return Warp.half_log(means, min(NOISES * noise, float(np.std(means))))

    def _observe(
        self,
        policy: Any,
        arms: Indices,
        rewards: Array,
        noise: dict[str, Any],
        record: Record | None,
    ) -> Record | None:
        policy.observe(self.arms[arms], rewards, **noise)
        return None
