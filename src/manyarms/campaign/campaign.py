"""A search at one moment: the books, and what was learned from them."""

from dataclasses import dataclass, replace
from typing import Any

from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model, learn
from manyarms.campaign.settings import Settings
from manyarms.campaign.trials import as_noise, as_told
from manyarms.lapack import in_one_thread
from manyarms.space.points import Space


@dataclass(frozen=True)
class Campaign:
    """A search at one moment, as a value: everything that happens makes another one."""

    ledger: Ledger
    model: Model

    @classmethod
    def begun(cls, space: Space, settings: Settings) -> "Campaign":
        """A search in which nothing was asked for yet."""
        ledger = Ledger.begun(space, settings.seed, settings.sign, settings.most)
        return cls(ledger, learn(settings, space.X, ledger.results))

    def knowing(self, ledger: Ledger) -> "Campaign":
        """The same search with these books. They may name more candidates."""
        if ledger.candidates is self.ledger.candidates:
            return replace(self, ledger=ledger)
        return Campaign(ledger, replace(self.model, arms=ledger.candidates.X))

    def with_points(self, points: Any) -> "Campaign":
        """The same search over a box, of which these points are known too."""
        return self.knowing(self.ledger.knowing(points)[0])

    @in_one_thread
    def learned(self, ledger: Ledger) -> "Campaign":
        """The search with these books, from which the model has learned."""
        model = self.model
        return Campaign(ledger, learn(model.settings, ledger.candidates.X, ledger.results, model))

    @in_one_thread
    def told(self, ids: Any, values: Any, failed: Any, noise: Any) -> "Campaign":
        """The search after these results, given as for `Optimizer.tell`."""
        known, positions = self.ledger.knowing(ids)
        told = as_told(values, failed, len(positions))
        deviations = as_noise(noise, len(positions))
        known.check_once(positions, told)
        ledger = known.told(positions, told, deviations)
        if ledger.n_values == self.ledger.n_values:
            return self.knowing(ledger)  # failures count when the next is chosen
        return self.learned(ledger)

    def with_results(self, n_known: int = 0) -> "Campaign":
        """The search after the results in the tables of candidates; the first `n_known` are known
        already."""
        results = self.ledger.candidates.results[n_known:]
        if not results:
            return self
        values = [each.value for each in results]
        failed = [value is None for value in values]
        return self.told([each.id for each in results], values, failed, None)
