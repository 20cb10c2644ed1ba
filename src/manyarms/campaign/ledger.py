"""The books: what was asked, what came back, what is no longer available.

A ledger is a value. `Optimizer` holds one; `Study` folds the same functions over its events.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.results import Results
from manyarms.campaign.settings import as_most, as_sign
from manyarms.campaign.trials import (
    FAILED,
    CandidateId,
    Forecast,
    Trial,
    as_items,
    as_noise,
    as_values,
)
from manyarms.checks import is_whole
from manyarms.engine.growing import Stack
from manyarms.errors import Advice, ObservationError, StateError, shortened
from manyarms.space.ids import plain
from manyarms.space.points import Space
from manyarms.typing import Array, Indices, Mask

REPEATS = 3
"""Different values that must have been repeated, each exactly, before values count as exact."""
UNREPEATED = 64
"""Results, none of them repeated, up to which values are taken as they are and the best one
measured is recommended: with so few the model recommends no better
(docs/experiments/defaults.md)."""
ENTRY = np.dtype(
    [
        ("position", np.intp),  # of the candidate
        ("value", np.float64),  # NaN where the trial failed
        ("noise", np.float64),  # a standard deviation, NaN where none was told
        ("forecast", np.float64, 3),  # mean, low and high, NaN where there was none
        ("tell", np.intp),  # the number of the `tell` that brought it, never falling
        ("known", np.intp),  # results there were when it was asked for, −1 where nobody asked
    ]
)
"""One result."""
SHOWN = 5
"""Values of a candidate that a message lists."""

Forecasts = Sequence[Forecast | None]


class Pending(NamedTuple):
    """A candidate that is being tried."""

    position: int
    worker: str = ""
    until: float | None = None  # seconds since 1970; None: without end
    forecast: Forecast | None = None
    reason: str = ""  # why it was suggested, where somebody wanted to know
    event: int = 0  # of a study, the number of the event that asked for it
    known: int = 0  # results told before, failures included


class Corrections(NamedTuple):
    """New values for some results, one entry each."""

    trials: Indices  # their numbers
    values: list[float | None]  # None: it failed
    noise: list[float | None]  # None: as it was
    removed: list[bool]  # it was not told at all: the value does not count


@dataclass(frozen=True)
class Outcomes:
    """What became of n candidates: every result, in the order told, and the retired candidates."""

    n: int
    entries: Stack  # (t,) of type ENTRY
    taken: Stack  # positions of retired candidates
    is_changed: bool = False  # results, or the features of their candidates, are not as they were
    has_grown: bool = False  # candidates were added to known results

    @classmethod
    def none(cls, n: int) -> "Outcomes":
        """The outcomes before anything was tried."""
        return cls(n, Stack(np.zeros(0, dtype=ENTRY)), Stack(np.zeros(0, dtype=np.intp)))

    @cached_property
    def has_value(self) -> Mask:
        """(t,) whether each result has a value."""
        return np.asarray(~np.isnan(self.entries.items["value"]))

    @cached_property
    def with_value(self) -> Indices:
        """The numbers of the results that have a value."""
        return np.flatnonzero(self.has_value)

    @cached_property
    def counts(self) -> Indices:
        """(n,) how many values each candidate has."""
        return np.bincount(self.entries.items["position"][self.has_value], minlength=self.n)

    @cached_property
    def again(self) -> Array:
        """Repeated values, one a candidate, each value once; with NaN if the repeats of any
        candidate disagree."""
        told = self.entries.items[self.with_value]
        tried = told["position"]
        values = told["value"]
        candidates, first, counts = np.unique(tried, return_index=True, return_counts=True)
        firsts = np.full(self.n, np.nan)
        firsts[candidates] = values[first]
        differ = values != firsts[tried]
        firsts[tried[differ]] = np.nan
        return np.unique(firsts[candidates[counts > 1]])

    @property
    def repeat_exactly(self) -> bool:
        """Whether results are exact, as far as repeats show it: the repeats of every candidate
        agree, and candidates with REPEATS different values were repeated. Fewer different values
        may agree by chance: 0 and 1, or the end of a scale."""
        return len(self.again) >= REPEATS and not np.isnan(self.again).any()

    @property
    def may_be_exact(self) -> bool:
        """Whether nothing says that values have noise: no repeats disagree, and either a value
        was repeated or there are few results."""
        n_values = len(self.with_value)
        return not np.isnan(self.again).any() and (len(self.again) > 0 or n_values <= UNREPEATED)

    @cached_property
    def failed(self) -> Mask:
        """(n,) whether the last result of the candidate was a failure: a later value lifts it."""
        mask = np.zeros(self.n, dtype=bool)
        mask[
            self.entries.items["position"]
        ] = ~self.has_value  # of several results the last one is kept
        return mask

    @cached_property
    def retired(self) -> Mask:
        """(n,) whether the candidate was retired."""
        mask = np.zeros(self.n, dtype=bool)
        mask[self.taken.items] = True
        return mask

    @cached_property
    def out(self) -> Mask:
        """(n,) whether the candidate was retired or failed."""
        return self.retired | self.failed

    def changed(
        self, trials: Indices, values: Sequence[float | None], noise: Sequence[float | None]
    ) -> "Outcomes":
        """These outcomes with other values for some results. A result keeps its noise unless
        another is given."""
        entries = self.entries.items.copy()
        entries["value"][trials] = np.array(values, dtype=np.float64)
        given = np.array(noise, dtype=np.float64)
        entries["noise"][trials] = np.where(np.isnan(given), entries["noise"][trials], given)
        return replace(self, entries=Stack(entries), is_changed=True)

    def without(self, trials: Indices) -> "Outcomes":
        """These outcomes without some results."""
        kept = np.ones(self.entries.n, dtype=bool)
        kept[trials] = False
        # How many of the first k results are left, for each k; −1 stays −1.
        left = np.concatenate([[0], np.cumsum(kept), [-1]])
        entries = self.entries.items[kept]
        entries["known"] = left[entries["known"]]
        return replace(self, entries=Stack(entries), is_changed=True)


@dataclass(frozen=True)
class Ledger:
    """The candidates, the results told of each, and which are being tried."""

    candidates: Space
    outcomes: Outcomes
    order: Indices  # positions, in the order of the random start
    seed: int
    sign: float  # of the values: 1 to maximise, −1 to minimise
    most: float  # values of a candidate, at most
    pending: tuple[Pending, ...] = ()

    @classmethod
    def begun(cls, candidates: Space, given: Mapping[str, Any]) -> "Ledger":
        """Books in which nothing was asked for yet, of a search with these settings."""
        seed = given["seed"]
        sign = as_sign(given["direction"])
        n = len(candidates)
        order = np.random.default_rng([seed, 1]).permutation(n)  # 1: not what policies draw from
        return cls(candidates, Outcomes.none(n), order, seed, sign, as_most(given["repeats"]))

    # What happens

    def asked(
        self,
        positions: Sequence[int],
        worker: str = "",
        until: float | None = None,
        forecasts: Forecasts | None = None,
        reasons: Sequence[str] | None = None,
        event: int = 0,
        known: int | None = None,
    ) -> "Ledger":
        """These candidates are being tried, and this was predicted of their results; `known` says
        how many results there were, where the books do not have all of them yet."""
        predicted = forecasts or [None] * len(positions)
        why = reasons or [""] * len(positions)
        n = self.n_trials if known is None else known
        more = [
            Pending(position, worker, until, forecast, reason, event, n)
            for position, forecast, reason in zip(positions, predicted, why, strict=True)
        ]
        return self._with_pending((*self.pending, *more))

    def told(
        self,
        positions: Indices,
        values: Sequence[float | None],
        noise: Sequence[float | None],
        worker: str = "",
    ) -> "Ledger":
        """Record results of candidates, asked for or not; the value None says that the trial
        failed."""
        ledger, ended = self.ended(positions, worker)
        entries = self.outcomes.entries.items
        number = int(entries["tell"][-1]) + 1 if len(entries) else 0
        return ledger.noted(positions, values, noise, ended, np.full(len(positions), number))

    def noted(
        self,
        positions: Indices,
        values: Sequence[float | None],
        noise: Sequence[float | None],
        ended: Sequence[Pending | None],
        tells: Indices,
    ) -> "Ledger":
        """Record results of trials that have ended, with the number of the `tell` of each; leave
        what is pending as it is."""
        outcomes = self.outcomes
        none = (np.nan,) * 3
        new = np.empty(len(positions), dtype=ENTRY)
        new["position"] = positions
        new["value"] = np.array(values, dtype=np.float64)  # None becomes NaN
        new["noise"] = np.array(noise, dtype=np.float64)
        forecasts = [each.forecast or none if each else none for each in ended]
        new["forecast"] = np.reshape(forecasts, (-1, 3))
        new["tell"] = tells
        new["known"] = [each.known if each else -1 for each in ended]
        return replace(self, outcomes=replace(outcomes, entries=outcomes.entries.appended(new)))

    def released(self, positions: Indices, worker: str = "") -> "Ledger":
        """These candidates are not being tried any more."""
        return self.ended(positions, worker)[0]

    def ended(self, positions: Indices, worker: str) -> tuple["Ledger", list[Pending | None]]:
        """End these trials: for each candidate the trial of this worker, or else the one that was
        asked for first. Returns also what was pending, None of one that was not asked for."""
        if not self.pending:
            return self, [None] * len(positions)
        left = list(self.pending)
        ended: list[Pending | None] = []
        for position in positions.tolist():
            held = [each for each in left if each.position == position]
            mine = [each for each in held if each.worker == worker]
            found = next(iter(mine or held), None)
            ended.append(found)
            if found:
                left.remove(found)
        return self._with_pending(tuple(left)), ended

    def expired(self, now: float) -> "Ledger":
        """Without the trials whose time has run out."""
        left = tuple(each for each in self.pending if each.until is None or each.until > now)
        return self._with_pending(left)

    def renewed(self, worker: str, until: float | None) -> "Ledger":
        """Everything that this worker is trying now has time until then."""
        pending = (
            each._replace(until=until) if each.worker == worker else each for each in self.pending
        )
        return self._with_pending(tuple(pending))

    def _with_pending(self, pending: tuple[Pending, ...]) -> "Ledger":
        """The same books with other pending trials: made directly, since every event of a log does
        so."""
        return Ledger(
            self.candidates,
            self.outcomes,
            self.order,
            self.seed,
            self.sign,
            self.most,
            pending,
        )

    def retired(self, positions: Indices) -> "Ledger":
        """These candidates are no longer available."""
        outcomes = replace(self.outcomes, taken=self.outcomes.taken.appended(positions))
        gone = set(positions.tolist())
        pending = tuple(each for each in self.pending if each.position not in gone)
        return replace(self, outcomes=outcomes, pending=pending)

    def restored(self, positions: Indices) -> "Ledger":
        """These candidates are available again."""
        taken = self.outcomes.taken.items
        left = Stack(taken[~np.isin(taken, positions)])
        return replace(self, outcomes=replace(self.outcomes, taken=left))

    def corrected(self, corrections: Corrections) -> "Ledger":
        """The books with other values for some results, or without them."""
        gone = corrections.trials[np.array(corrections.removed, dtype=bool)]
        changed = self.outcomes.changed(
            corrections.trials, corrections.values, corrections.noise
        ).without(gone)
        pending = tuple(
            each._replace(known=each.known - int((gone < each.known).sum()))
            for each in self.pending
        )
        return replace(self, outcomes=changed, pending=pending)

    def added(self, candidates: Space) -> "Ledger":
        """The books of a table that has grown; nothing is known about the new candidates."""
        n = len(candidates)
        n_new = n - len(self.candidates)
        # Behind the others: who was to come next still is.
        more = np.random.default_rng([self.seed, n]).permutation(n_new)
        order = np.concatenate([self.order, n - n_new + more])
        is_table = candidates.box is None
        has_grown = self.outcomes.has_grown or (is_table and self.n_trials > 0)
        outcomes = replace(self.outcomes, n=n, has_grown=has_grown)
        return replace(self, candidates=candidates, outcomes=outcomes, order=order)

    def knowing(self, ids: Any, *, checked: bool = False) -> tuple["Ledger", Indices]:
        """The books with these candidates in them, and their positions: of a box any point may be
        told."""
        candidates, positions = self.candidates.known(ids, checked=checked)
        return self if candidates is self.candidates else self.added(candidates), positions

    # What follows from it

    def check_pending(self, positions: Indices) -> None:
        """Raise StateError if one of these candidates is not being tried."""
        waiting = Counter(self.waiting.tolist())
        for position in positions.tolist():
            if not waiting[position]:
                others = self.names(self.waiting) or "nothing"
                raise StateError(f"{self.names([position])[0]!r} is not pending; {others} is")
            waiting[position] -= 1

    def check_once(self, positions: Indices, values: Sequence[float | None]) -> None:
        """Raise ObservationError if a candidate would get a second value and may have only one."""
        if self.most != 1:
            return
        has_value = self.outcomes.counts > 0
        for position, value in zip(positions.tolist(), values, strict=True):
            if value is not None and has_value[position]:
                (name,) = self.names([position])
                raise ObservationError(
                    f"{name!r} has a value already, and repeats is 'never' or 1",
                    Advice("change the value with {}", "correct()"),
                    "allow repeats to tell replicates",
                )
            has_value[position] |= value is not None

    def check_counts(self) -> None:
        """Raise ObservationError if a candidate has more than one value and may have only one."""
        several = np.flatnonzero(self.outcomes.counts > self.most) if self.most == 1 else ()
        if len(several):
            (name,) = self.names(several[:1])
            raise ObservationError(
                f"{name!r} would have two values, and repeats is 'never' or 1; take one of them "
                "back first"
            )

    def check_retired(self, positions: Indices) -> None:
        """Raise StateError if one of these candidates is not retired."""
        others = positions[~self.outcomes.retired[positions]]
        if len(others):
            raise StateError(f"{self.names(others[:1])[0]!r} is not retired")

    def results_of(self, position: int) -> Indices:
        """The numbers of the results of a candidate."""
        return np.flatnonzero(self.outcomes.entries.items["position"] == position)

    @property
    def waiting(self) -> Indices:
        """Positions of the candidates that are being tried."""
        return np.array([each.position for each in self.pending], dtype=np.intp)

    @property
    def tries(self) -> Indices:
        """(n,) how many values of each candidate were told or are awaited."""
        tries = self.outcomes.counts.copy()
        np.add.at(tries, self.waiting, 1)
        return tries

    @property
    def is_open(self) -> Mask:
        """(n,) whether a candidate may be tried now, for the first time or again."""
        is_open = ~self.outcomes.out
        return is_open if np.isinf(self.most) else is_open & (self.tries < self.most)

    def arms_without(self, candidates: Mask) -> Mask:
        """(A,) the arms that hold none of these candidates, a mask (n,)."""
        space = self.candidates
        if len(space.X) == self.outcomes.n:  # each candidate is an arm
            return ~candidates
        without = np.ones(len(space.X), dtype=bool)
        without[space.arm_of[candidates]] = False
        return without

    @property
    def n_trials(self) -> int:
        """How many results were told, failed trials included."""
        return self.outcomes.entries.n

    @property
    def n_values(self) -> int:
        """How many results have a value."""
        return len(self.outcomes.with_value)

    @cached_property
    def results(self) -> Results:
        """What a model learns from: the results with a value."""
        outcomes = self.outcomes
        told = outcomes.entries.items[outcomes.with_value]
        values_of = np.concatenate([[0], np.cumsum(outcomes.has_value), [-1]])
        return Results(
            self.candidates.arm_of[told["position"]],
            self.sign * told["value"],
            told["noise"].copy(),
            told["tell"].copy(),
            values_of[told["known"]],
        )

    @property
    def history(self) -> list[Trial]:
        """Every result told, oldest first."""
        return self.trials(np.arange(self.n_trials))

    def trials(self, numbers: Indices) -> list[Trial]:
        """The results of these numbers."""
        entries = self.outcomes.entries.items[numbers]
        names = self.names(entries["position"].tolist())
        columns = [entries[name].tolist() for name in ("value", "noise", "forecast")]
        return [
            Trial(
                i,
                name,
                _or_none(value),
                _or_none(noise),
                None if isnan(forecast[0]) else Forecast(*forecast),
            )
            for i, name, value, noise, forecast in zip(
                numbers.tolist(), names, *columns, strict=True
            )
        ]

    def scored(self, *, first: bool) -> tuple[Array, Array]:
        """Results of candidates that the model chose, of each the first one only or all: values
        (k,), and what was predicted of them, (k, 3); in the user's units and in the order told."""
        told = self.outcomes.entries.items[self.outcomes.with_value]
        if first:
            _, places = np.unique(told["position"], return_index=True)
            told = told[np.sort(places)]
        told = told[~np.isnan(told["forecast"][:, 0])]
        return told["value"], told["forecast"]

    def names(self, positions: Iterable[int]) -> list[CandidateId]:
        """The ids of candidates, as Python ints and strings; of a box, points that may be changed
        without harm."""
        ids = self.candidates.ids
        if isinstance(ids, np.ndarray) and ids.dtype.kind == "i":
            whole: list[CandidateId] = ids[np.fromiter(positions, dtype=np.intp)].tolist()
            return whole
        return [copy(plain(ids[position])) for position in positions]


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
    ledger.corrected(found).check_counts()
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
    values = ledger.outcomes.entries.items["value"][found].tolist()
    listed = ", ".join("failed" if np.isnan(value) else f"{value!r}" for value in values[-SHOWN:])
    raise ObservationError(
        f"{name!r} has {len(found)} results, the last ones {listed}; give the Trial of `history` "
        "that is meant in place of the id"
    )


def as_known(ledger: Ledger, trial: Trial) -> int:
    """The number of a result in the books; StateError if it is no longer there."""
    outcomes = ledger.outcomes
    if not isinstance(trial, Trial) or not is_whole(trial.number):
        raise ObservationError(f"a Trial of `history` is needed, got {shortened(trial)}")
    if 0 <= trial.number < ledger.n_trials:
        entry = outcomes.entries.items[trial.number]
        (name,) = ledger.names([entry["position"]])
        value = float(entry["value"])
        is_same = trial.failed if np.isnan(value) else trial.value == value
        if name == trial.id and is_same:
            return trial.number
    raise StateError(f"{trial} is not a result any more; read `history` again")


def _or_none(number: float) -> float | None:
    return None if isnan(number) else number
