"""Corrections: which results have other values than were told."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.ledger import Ledger
from manyarms.campaign.trials import FAILED, Trial, as_items, as_noise, as_values
from manyarms.errors import ObservationError, StateError
from manyarms.typing import Indices

SHOWN = 5
"""Values of a candidate that a message lists."""


class Corrections(NamedTuple):
    """New values for some results, one entry each."""

    trials: Indices  # their numbers
    values: list[float | None]  # None: it failed
    noise: list[float | None]  # None: as it was
    removed: list[bool]  # it was not told at all: the value does not count

    def applied(self, ledger: Ledger) -> Ledger:
        """The books with these corrections in them."""
        changed = ledger.corrected(self.trials, self.values, self.noise)
        return changed.without(self.trials[np.array(self.removed, dtype=bool)])


def as_corrections(ledger: Ledger, which: Any, values: Any, noise: Any) -> Corrections:
    """The arguments of `correct`: ids or results, and for each its new value, FAILED, or None for a
    result that is taken back."""
    trials = _trials(ledger, which)
    n = len(trials)
    if len(set(trials)) < n:
        raise ObservationError("a result was given twice; correct each once")
    items = as_items(values)
    removed = [item is None for item in items]
    told = as_values([FAILED if item is None else item for item in items], n)
    found = Corrections(np.array(trials, dtype=np.intp), told, as_noise(noise, n), removed)
    found.applied(ledger).check_counts()
    return found


def _trials(ledger: Ledger, which: Any) -> list[int]:
    """The numbers of the results that are meant: those given, or the only result of each candidate
    given."""
    if isinstance(which, Trial):
        return [as_known(ledger, which)]
    if isinstance(which, Sequence) and any(isinstance(each, Trial) for each in which):
        return [number for each in which for number in _trials(ledger, each)]
    positions = ledger.candidates.positions(which)
    return [_only(ledger, position) for position in positions.tolist()]


def _only(ledger: Ledger, position: int) -> int:
    """The number of the only result of a candidate."""
    found = ledger.results_of(position)
    if len(found) == 1:
        return int(found[0])
    (name,) = ledger.names([position])
    if not len(found):
        raise StateError(f"{name!r} has no result that could be corrected; tell() takes a new one")
    values = ledger.outcomes.values.items[found].tolist()
    listed = ", ".join("failed" if np.isnan(value) else f"{value!r}" for value in values[-SHOWN:])
    raise ObservationError(
        f"{name!r} has {len(found)} results, the last ones {listed}; give the Trial of `history` "
        "that is meant in place of the id"
    )


def as_known(ledger: Ledger, trial: Trial) -> int:
    """The number of a result in the books; StateError if it is no longer there."""
    outcomes = ledger.outcomes
    if 0 <= trial.number < ledger.n_trials:
        (name,) = ledger.names(outcomes.tried.items[[trial.number]])
        value = float(outcomes.values.items[trial.number])
        is_same = trial.failed if np.isnan(value) else trial.value == value
        if name == trial.id and is_same:
            return trial.number
    raise StateError(f"{trial} is not a result any more; read `history` again")
