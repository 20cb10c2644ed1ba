"""What is known of the candidates: the best ones, predictions, a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from manyarms.campaign.campaign import Campaign, table_of
from manyarms.campaign.certificate import Certificate, accuracy, promise
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.trials import CandidateId
from manyarms.errors import Advice, StateError
from manyarms.numbers import real, whole
from manyarms.typing import Array, Indices, Mask


@dataclass(frozen=True)
class Candidate:
    """A candidate and what is known of it, in the user's units.

    Attributes
    ----------
    id : str, int, dict or tuple
        Of the candidate; the point, of a box.
    mean, low, high : float
        Posterior mean and interval of its true value.
    n_results : int
        Values told of it.
    """

    id: CandidateId
    mean: float
    low: float
    high: float
    n_results: int


class Predictions(NamedTuple):
    """Of some candidates: posterior mean, standard deviation and interval of the true value, each
    (n,), in the user's units."""

    ids: list[CandidateId]
    mean: Array
    std: Array
    low: Array
    high: Array


def best(campaign: Campaign, level: float) -> Candidate:
    """The tried candidate of largest lower confidence bound."""
    return _candidates(campaign, [_best(campaign)], level)[0]


def top(campaign: Campaign, k: int, level: float) -> list[Candidate]:
    """The k candidates, tried or not, of best posterior mean."""
    k = whole(k, "k")
    _check_told(campaign)
    ledger = campaign.ledger
    gone = _gone(ledger)
    if gone.all():
        return []
    arms = campaign.proposer.leading(ledger, campaign.model, k, gone)
    # An arm may stand for several candidates: k arms have k candidates at least.
    found: list[int] = []
    for arm in arms.tolist():
        members = ledger.candidates.members(arm)
        found.extend(members[~ledger.outcomes.out[members]].tolist())
    return _candidates(campaign, found[:k], level)


def _gone(ledger: Ledger) -> Mask:
    """(A,) arms all of whose candidates are retired or failed."""
    gone = np.ones(len(ledger.candidates.X), dtype=bool)
    gone[ledger.candidates.arm_of[~ledger.outcomes.out]] = False
    return gone


def predict(campaign: Campaign, ids: Any, level: float) -> Predictions:
    """Posterior mean, standard deviation and interval of the true values of candidates."""
    found = campaign.knowing(campaign.proposer.knowing(campaign.ledger, ids))
    return _predicted(found, found.ledger.candidates.positions(ids), level)


def predict_rows(campaign: Campaign, table: Any, ids: Any, level: float) -> Predictions:
    """The same of candidates that are not in the pool."""
    before = table_of(campaign.ledger, "predict rows of")
    pool = before.add(table, ids=ids)
    found = campaign.knowing(campaign.ledger.added(pool))
    return _predicted(found, np.arange(len(before), len(pool)), level)


def certificate(campaign: Campaign, tolerance: float | None) -> Certificate:
    """How much better than the recommended candidate another one may be."""
    if tolerance is not None:
        expected = "a non-negative regret, in the units of the values"
        tolerance = real(tolerance, "tolerance", expected, at_least=0)
    best = _best(campaign)
    found = campaign.knowing(campaign.proposer.with_rivals(campaign.ledger, campaign.model))
    ledger = found.ledger
    model = found.model
    arm = int(ledger.candidates.arm_of[best])
    gone = _gone(ledger)
    gone[arm] = True  # the rival is another arm
    is_alone = bool(gone.all())
    rival = arm if is_alone else found.proposer.rival(ledger, model, gone)
    # No candidate is above the rival's upper bound, nor the recommended one below its lower bound.
    mean, low, high = model.interval(np.array([arm, rival]), model.radius)
    bound = 0.0 if is_alone else max(0.0, float(high[1] - low[0]))
    probability, reason = promise(model)
    if probability is not None and found.proposer.doubt is not None:
        probability, reason = None, found.proposer.doubt
    ends = sorted((ledger.sign * low[0], ledger.sign * high[0]))  # minimising turns them around
    rivals = ledger.candidates.members(rival)
    names = ledger.names([best, rivals[~ledger.outcomes.out[rivals]][0]])
    return Certificate(
        names[0],
        float(ledger.sign * mean[0]),
        float(ends[0]),
        float(ends[1]),
        names[1],
        float(bound),
        probability,
        reason,
        accuracy(model.policy),
        float(model.policy.effective_dimension),
        model.n_results,
        tolerance,
    )


def importance(campaign: Campaign) -> dict[str, float]:
    """One over the lengthscale of every column the kernel learns one for, largest first."""
    fitted = campaign.model.fitted
    if fitted is None or not len(fitted.theta):
        raise StateError(
            "no lengthscales were learned: tell more results, and leave `kernel` to be learned"
        )
    features = campaign.ledger.candidates.features
    columns = [feature.name for feature in features if feature.kind != "bits"]
    pairs = zip(columns, np.exp(-fitted.theta).tolist(), strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def noise(campaign: Campaign) -> float:
    """Standard deviation of the values of one good candidate, given or learned."""
    return campaign.model.noise / campaign.model.warp.slope


def _check_told(campaign: Campaign) -> None:
    if not campaign.model.n_results:
        raise StateError("no value was told yet", Advice("call {} first", "tell()"))


def _best(campaign: Campaign) -> int:
    """Position of the recommended candidate."""
    _check_told(campaign)
    outcomes = campaign.ledger.outcomes
    model = campaign.model
    positions = np.flatnonzero(outcomes.counts)
    positions = positions[~outcomes.out[positions]]
    if not len(positions):
        raise StateError(
            "all candidates with a value are retired or failed: tell results of others"
        )
    mean, std = model.predict(campaign.ledger.candidates.arm_of[positions])
    return int(positions[np.argmax(mean - model.radius * std)])


def _predicted(campaign: Campaign, positions: Indices, level: float) -> Predictions:
    """Of candidates by their positions."""
    model = campaign.model
    if model.settings.learns:
        _check_told(campaign)
    names = campaign.ledger.names(positions)
    if not names:
        return Predictions([], *(np.zeros(0) for _ in range(4)))
    sign = campaign.ledger.sign
    arms = campaign.ledger.candidates.arm_of[positions]
    predicted = model.predict(arms)
    # The map from rewards to values is not straight: one deviation either way, halved.
    _, less, more = model.in_values(*predicted, 1.0)
    mean, *ends = (sign * end for end in model.in_values(*predicted, _quantile(level)))
    return Predictions(names, mean, (more - less) / 2, *(ends if sign > 0 else ends[::-1]))


def _candidates(campaign: Campaign, positions: Sequence[int], level: float) -> list[Candidate]:
    at = np.asarray(positions, dtype=np.intp)
    found = _predicted(campaign, at, level)
    counts = campaign.ledger.outcomes.counts[at]
    columns = (found.mean, found.low, found.high, counts)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Candidate(name, *row) for name, row in zip(found.ids, rows, strict=True)]


def _quantile(level: float) -> float:
    level = real(level, "level", "a probability between 0 and 1", above=0, below=1)
    return float(scipy.special.ndtri(0.5 + level / 2))
