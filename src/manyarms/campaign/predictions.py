"""What is known of the candidates: the best ones, the recommended one, predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from manyarms.campaign.boxes import best_rows
from manyarms.campaign.model import Campaign
from manyarms.campaign.trials import CandidateId
from manyarms.checks import real, whole
from manyarms.errors import Advice, StateError
from manyarms.lapack import in_one_thread
from manyarms.typing import Array, Indices


@dataclass(frozen=True)
class Candidate:
    """A candidate and what is known about it, in the units of the user.

    Attributes
    ----------
    id : str, int, dict or tuple
        Of the candidate; the point, of a box.
    mean, low, high : float
        Posterior mean and interval of its true value.
    n_results : int
        Values told of it.
    value : float or None
        Their mean, None where there are none.
    """

    id: CandidateId
    mean: float
    low: float
    high: float
    n_results: int
    value: float | None


@dataclass(frozen=True)
class Best:
    """The best tried candidate as measured, and the one that is recommended. They are the same if
    values are exact, or if no result of a table has shown yet that values have noise.

    Their intervals hold at once for all candidates that may be the best of those tried: these two
    were chosen among them, often for values that luck has raised.

    Attributes
    ----------
    measured : Candidate
        The best mean of its values.
    recommended : Candidate
        The largest lower bound, the lowest upper bound when minimising.
    why : str
        Why they are the same candidate, or why they differ.
    """

    measured: Candidate
    recommended: Candidate
    why: str


class Predictions(NamedTuple):
    """What the model predicts of some candidates: posterior mean, standard deviation and interval
    of the true value, each (n,), in the units of the user."""

    ids: list[CandidateId]
    mean: Array
    std: Array
    low: Array
    high: Array


@in_one_thread
def best(campaign: Campaign, level: float) -> Best:
    """The candidate with the best measured value, and the recommended one."""
    measured_at = _measured(campaign)
    are_exact = is_exact(campaign)
    may_be_exact = not are_exact and _may_be_exact(campaign)
    positions = [measured_at, measured_at if are_exact or may_be_exact else _surest(campaign)]
    measured, recommended = _candidates(campaign, positions, _of_all(campaign, positions, level))
    value = measured.value
    if are_exact and value is not None:
        known = replace(measured, mean=value, low=value, high=value)
        exact = "values are exact"
        if campaign.model.settings.noise is None:
            exact = "candidates that were tried again gave the same value, so values count as exact"
        return Best(known, known, f"{exact}, and the best one measured is the best one known")
    if may_be_exact:
        why = "it is the best one measured, and no result says yet that values have noise"
        return Best(measured, measured, why)
    if measured == recommended:
        return Best(measured, measured, "it is the best one measured, and the model agrees")
    results = "1 result" if measured.n_results == 1 else f"{measured.n_results} results"
    return Best(
        measured,
        recommended,
        f"the best one measured has {measured.value:.4g} from {results}, but some of that is taken "
        f"for noise: the model expects {measured.mean:.4g} of it, and is surer of the one it "
        "recommends",
    )


@in_one_thread
def top(campaign: Campaign, k: int, level: float) -> list[Candidate]:
    """The k candidates with the best posterior mean, tried or not."""
    k = whole(k, "k")
    _check_told(campaign)
    box = campaign.ledger.candidates.box
    if box is not None:  # the best ones may be points that were not known before
        rows = best_rows(box, campaign.ledger, campaign.model, k)
        campaign = campaign.with_points(box.decode(rows))
    ledger = campaign.ledger
    available = ~ledger.outcomes.out
    if not available.any():
        return []
    # An arm may stand for several candidates: k arms have k candidates at least.
    found: list[int] = []
    for arm in campaign.model.leading(k, ledger.arms_without(available)).tolist():
        members = ledger.candidates.members(arm)
        found.extend(members[available[members]].tolist())
    return _candidates(campaign, found[:k], level)


@in_one_thread
def predict(campaign: Campaign, ids: Any, level: float) -> Predictions:
    """Posterior mean, standard deviation and interval of the true values of candidates."""
    ledger, positions = campaign.ledger.knowing(ids)
    return _predicted(campaign.knowing(ledger), positions, level)


@in_one_thread
def predict_rows(campaign: Campaign, table: Any, ids: Any, level: float) -> Predictions:
    """Posterior mean, standard deviation and interval for rows that are not in the pool."""
    before = campaign.ledger.candidates.table("predict rows of")
    pool = before.add(table, ids=ids)
    found = campaign.knowing(campaign.ledger.added(pool))
    return _predicted(found, np.arange(len(before), len(pool)), level)


def _check_told(campaign: Campaign) -> None:
    if not len(campaign.model.results.values):
        raise StateError("no value was told yet", Advice("call {} first", "tell()"))


def _tried(campaign: Campaign) -> Indices:
    """Positions of the candidates that have a value and are still available."""
    _check_told(campaign)
    outcomes = campaign.ledger.outcomes
    positions = np.flatnonzero(outcomes.counts)
    positions = positions[~outcomes.out[positions]]
    if not len(positions):
        raise StateError(
            "all candidates with a value are retired or failed: tell results of others"
        )
    return positions


def is_exact(campaign: Campaign) -> bool:
    """Whether values have no noise: the user said so, or repeated candidates show it."""
    if (campaign.ledger.outcomes.entries.items["noise"] > 0).any():
        return False
    noise = campaign.model.settings.noise
    return noise == 0 or (noise is None and campaign.ledger.outcomes.repeat_exactly)


def means_told(campaign: Campaign, positions: Indices) -> Array:
    """Mean of the values told of candidates, NaN where there are none."""
    outcomes = campaign.ledger.outcomes
    told = outcomes.entries.items[outcomes.with_value]
    sums = np.bincount(told["position"], told["value"], outcomes.n)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[positions] / outcomes.counts[positions])


def _measured(campaign: Campaign) -> int:
    """Position of the candidate with the best mean of its values."""
    positions = _tried(campaign)
    return int(positions[np.argmax(campaign.ledger.sign * means_told(campaign, positions))])


def _may_be_exact(campaign: Campaign) -> bool:
    """Whether values may be without noise: the user said nothing about it, and no result of a table
    shows any. Never over a box, where no point is repeated and nothing would show it."""
    outcomes = campaign.ledger.outcomes
    said = campaign.model.settings.noise is not None or (outcomes.entries.items["noise"] > 0).any()
    is_table = campaign.ledger.candidates.box is None
    return is_table and not said and outcomes.may_be_exact


def recommended_at(campaign: Campaign) -> int:
    """Position of the candidate of largest lower confidence bound; the best one measured where
    values are exact, or may be."""
    if is_exact(campaign) or _may_be_exact(campaign):
        return _measured(campaign)
    return _surest(campaign)


def _surest(campaign: Campaign) -> int:
    """Position of the tried candidate of largest lower confidence bound."""
    positions = _tried(campaign)
    arms = campaign.ledger.candidates.arm_of[positions]
    return int(positions[np.argmax(arms == campaign.model.surest(arms))])


def _of_all(campaign: Campaign, positions: Sequence[int], level: float) -> float:
    """The level of an interval of one of these, where those of all tried candidates that may be
    better are to hold at once."""
    quantile(level)  # raises where it is no probability
    tried = _predicted(campaign, _tried(campaign), level)
    known = _predicted(campaign, np.asarray(positions), level)
    is_better = campaign.ledger.sign > 0
    rivals = tried.high >= known.low.min() if is_better else tried.low <= known.high.max()
    return 1 - (1 - level) / max(1, int(rivals.sum()))


def _predicted(campaign: Campaign, positions: Indices, level: float) -> Predictions:
    """Of candidates by their positions."""
    model = campaign.model
    if model.settings.learns:
        _check_told(campaign)
    names = campaign.ledger.names(positions)
    if not names:
        return Predictions([], *(np.zeros(0) for _ in range(4)))
    arms = campaign.ledger.candidates.arm_of[positions]
    found = in_units(campaign, names, *model.predict(arms), level)
    shared = model.shared(arms)
    if shared is None:
        return found
    other = in_units(campaign, names, *shared, level)
    low, high = np.minimum(found.low, other.low), np.maximum(found.high, other.high)
    return found._replace(low=low, high=high)


def in_units(
    campaign: Campaign, names: list[CandidateId], mean: Array, std: Array, level: float
) -> Predictions:
    """Predicted rewards in the units of the user, inside the bounds."""
    sign = campaign.ledger.sign
    model = campaign.model
    # The map from rewards to values is not straight: one deviation either way, halved.
    middle, less, more, low, high = model.in_values(mean, std, 1.0, quantile(level))
    ends = (low, high) if sign > 0 else (high, low)
    found = (np.clip(sign * each, *model.settings.bounds) for each in (middle, *ends))
    mean, low, high = found
    return Predictions(names, mean, (more - less) / 2, low, high)


def _candidates(campaign: Campaign, positions: Sequence[int], level: float) -> list[Candidate]:
    at = np.asarray(positions, dtype=np.intp)
    found = _predicted(campaign, at, level)
    counts = campaign.ledger.outcomes.counts[at]
    values = [None if np.isnan(mean) else mean for mean in means_told(campaign, at).tolist()]
    columns = (
        found.mean.tolist(),
        found.low.tolist(),
        found.high.tolist(),
        counts.tolist(),
        values,
    )
    return [Candidate(*row) for row in zip(found.ids, *columns, strict=True)]


def quantile(level: float) -> float:
    level = real(level, "level", "a probability between 0 and 1", above=0, below=1)
    return NormalDist().inv_cdf(0.5 + level / 2)
