"""A search at one moment: the books, what was learned from them, and what chooses next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.campaign.batching import BatchConditions, sum_of_bounds
from manyarms.campaign.corrections import as_corrections
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model, learn
from manyarms.campaign.proposers import Proposer, proposer_of
from manyarms.campaign.settings import Settings
from manyarms.campaign.trials import FORECAST_WIDTH, CandidateId, Forecast, as_noise, as_told
from manyarms.errors import StateError
from manyarms.lapack import in_one_thread
from manyarms.space.points import Space


@dataclass(frozen=True)
class Campaign:
    """A search at one moment, as a value: everything that happens makes another one."""

    ledger: Ledger
    model: Model

    @property
    def proposer(self) -> Proposer:
        """What chooses next."""
        return proposer_of(self.ledger.candidates)

    @classmethod
    def begun(cls, space: Space, settings: Settings) -> "Campaign":
        """A search in which nothing was asked for yet."""
        ledger = Ledger.begun(space, settings.seed, settings.sign, settings.most)
        return cls(ledger, learn(settings, space.X, ledger.results))

    def knowing(self, ledger: Ledger) -> "Campaign":
        """The same search with these books. Over a box they may name more points."""
        if ledger.candidates is self.ledger.candidates:
            return replace(self, ledger=ledger)
        return Campaign(ledger, replace(self.model, arms=ledger.candidates.X))

    def learned(self, ledger: Ledger) -> "Campaign":
        """The search with these books, from which the model has learned."""
        model = self.model
        return Campaign(ledger, learn(model.settings, ledger.candidates.X, ledger.results, model))

    @in_one_thread
    def asked(
        self,
        n: int,
        rule: BatchConditions | None = None,
    ) -> tuple["Campaign", list[CandidateId]]:
        """The search after n candidates were asked for (or fewer, if no more are left), and their
        ids."""
        rules = [None] if rule is None else rule.levels(self.ledger.is_open)
        batches = [self._batch(n, each) for each in rules]
        found, positions = self._best_of(batches) if len(batches) != 1 else batches[0]
        if not positions:
            raise StateError(self._nothing_left(rule))
        return found, found.ledger.names(positions)

    def _batch(self, n: int, rule: BatchConditions | None) -> tuple["Campaign", list[int]]:
        """The search after n candidates that the conditions allow were asked for (or fewer), and
        their positions."""
        found = self
        positions: list[int] = []
        chooser = self.proposer.chooser(self.ledger, self.model)
        for _ in range(n):
            ledger = found.ledger
            if rule is not None:
                ledger = replace(ledger, only=rule.allowed(positions))
            chosen = found.proposer.next(ledger, chooser)
            if chosen is None:
                break
            ledger, position = chosen
            positions.append(position)
            found = found.knowing(ledger if rule is None else replace(ledger, only=None))
            forecasts = [found.forecast(position)]
            found = replace(found, ledger=found.ledger.asked([position], forecasts=forecasts))
        return found, positions

    def _best_of(
        self, batches: Sequence[tuple["Campaign", list[int]]]
    ) -> tuple["Campaign", list[int]]:
        """The batch with the most candidates; among equally large ones, that with the largest sum
        of upper bounds."""
        if not batches:
            return self, []
        full = max(len(positions) for _, positions in batches)
        arm_of = self.ledger.candidates.arm_of
        waiting = arm_of[self.ledger.waiting]
        return max(
            (batch for batch in batches if len(batch[1]) == full),
            key=lambda batch: sum_of_bounds(self.model, waiting, arm_of[batch[1]]),
        )

    def _nothing_left(self, rule: BatchConditions | None) -> str:
        """Why there is nothing to ask for."""
        if rule is None or not self.ledger.is_open.any():
            return self.proposer.nothing_left(self.ledger)
        n = int(rule.only.sum())
        if not n:
            return "nothing is left to ask for: no candidate meets the condition"
        return (
            f"nothing is left to ask for: {n:,} of {len(rule.only):,} candidates meet the "
            "condition, and all of them are retired, failed, or were tried as often as `repeats` "
            "allows"
        )

    def forecast(self, position: int) -> Forecast | None:
        """What the model predicts of the next result of a candidate; None while candidates are
        drawn at random."""
        model = self.model
        if model.settings.learns and model.n_results < self.proposer.start:
            return None
        mean, std = model.predict(self.ledger.candidates.arm_of[[position]])
        of_result = model.in_values(mean, np.hypot(std, model.noise), FORECAST_WIDTH)
        middle, low, high = (self.ledger.sign * float(end[0]) for end in of_result)
        return Forecast(middle, min(low, high), max(low, high))

    @in_one_thread
    def told(self, ids: Any, values: Any, failed: Any, noise: Any) -> "Campaign":
        """The search after these results, given as for `Optimizer.tell`."""
        # Any point of a box may be told: one that is new joins the points known.
        known, positions = self.ledger.knowing(ids)
        before = self.knowing(known)
        told = as_told(values, failed, len(positions))
        deviations = as_noise(noise, len(positions))
        before.ledger.check_once(positions, told)
        ledger = before.ledger.told(positions, told, deviations)
        if ledger.n_values == self.ledger.n_values:
            return replace(before, ledger=ledger)  # failures count when the next is chosen
        return before.learned(ledger)

    def corrected(self, which: Any, values: Any, noise: Any) -> "Campaign":
        """The search after some results were corrected."""
        return self.learned(as_corrections(self.ledger, which, values, noise).applied(self.ledger))

    @in_one_thread
    def added(self, table: Any, ids: Any) -> "Campaign":
        """The search with more candidates."""
        pool = self.ledger.candidates.table("add to").add(table, ids=ids)
        return self.learned(self.ledger.added(pool))

    def retired(self, ids: Any) -> "Campaign":
        """The search without these candidates."""
        pool = self.ledger.candidates.table("retire from")
        return replace(self, ledger=self.ledger.retired(pool.positions(ids)))

    def restored(self, ids: Any) -> "Campaign":
        """The search with these candidates, which were retired."""
        positions = self.ledger.candidates.table("restore to").positions(ids)
        self.ledger.check_retired(positions)
        return replace(self, ledger=self.ledger.restored(positions))


def with_results(campaign: Campaign, n_known: int = 0) -> Campaign:
    """The search after the results in the tables of candidates; the first `n_known` are known
    already."""
    results = campaign.ledger.candidates.results[n_known:]
    if not results:
        return campaign
    ids = [each.id for each in results]
    values = [each.value for each in results]
    return campaign.told(ids, values, [value is None for value in values], None)
