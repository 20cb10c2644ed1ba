"""What is known of the candidates: the best ones, predictions, a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from manyarms.bandit.maximisers import WHOLE
from manyarms.campaign.boxes import best_rows, rival_rows
from manyarms.campaign.certificate import SHARE_TRUE, Certificate, TrackRecord, accuracy, promise
from manyarms.campaign.model import Campaign
from manyarms.campaign.trials import CandidateId
from manyarms.checks import real, whole
from manyarms.errors import Advice, StateError
from manyarms.lapack import in_one_thread
from manyarms.space.pool import EXPECTED
from manyarms.typing import Array, Indices, Mask

POINTS = 10_000
"""Points that count as all others in a statement about a box, which may have infinitely many: as
many as a grid of ten levels in four dimensions."""


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
    positions = [_measured(campaign), recommended_at(campaign)]
    measured, recommended = _candidates(campaign, positions, level)
    if _is_exact(campaign):
        (value,) = _means(campaign, np.array(positions[:1])).tolist()
        known = replace(measured, mean=value, low=value, high=value)
        exact = "values are exact"
        if campaign.model.settings.noise is None:
            exact = "candidates that were tried again gave the same value, so values count as exact"
        return Best(known, known, f"{exact}, and the best one measured is the best one known")
    if _may_be_exact(campaign):
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


@in_one_thread
def certificate(campaign: Campaign, tolerance: float | None) -> Certificate:
    """How much better another candidate may be than the recommended one."""
    if tolerance is not None:
        expected = "a non-negative regret, in the units of the values"
        tolerance = real(tolerance, "tolerance", expected, at_least=0)
    best = recommended_at(campaign)
    ledger = campaign.ledger
    box = ledger.candidates.box
    # While some candidates have no value, another value of one that has says nothing of them.
    outcomes = ledger.outcomes
    n_known = int((outcomes.out | (outcomes.counts > 0)).sum())
    record = TrackRecord.of(*ledger.scored(first=n_known < ledger.candidates.size), ledger.sign)
    gone = _no_rivals(campaign, best)
    n_others = int((~gone).sum() if box is None else min(POINTS, box.size - int(gone.sum())))
    probability, reason = _promise(campaign, n_others)
    earned = record.width(n_others) if probability is None else campaign.model.radius
    width = campaign.model.radius if earned is None else earned

    found = campaign
    if box is not None:  # the rival may be a point that was not known before
        rows = rival_rows(box, campaign.model.policy, width, ledger.candidates.X[gone])
        found = campaign.with_points(box.decode(rows))
        gone = _no_rivals(found, best)
    arm = int(found.ledger.candidates.arm_of[best])
    rival = arm if gone.all() else found.model.highest(width, gone)
    # No candidate is above the rival's upper bound, nor the recommended one below its lower bound.
    mean, low, high = _intervals(found, np.array([arm, rival]), width)
    if _is_exact(campaign):
        mean[0] = low[0] = high[0] = campaign.ledger.sign * _means(campaign, np.array([best]))[0]
    bound = max(0.0, float(high[1] - low[0])) if n_others else 0.0

    sign = campaign.ledger.sign
    # Minimising turns the ends around.
    least, most = sorted((sign * float(low[0]), sign * float(high[0])))
    names = found.ledger.names([best, best if gone.all() else _member(found, rival)])
    return Certificate(
        names[0],
        sign * float(mean[0]),
        least,
        most,
        names[1],
        None if earned is None else bound,
        probability,
        None if earned is None or probability is not None else SHARE_TRUE,
        reason,
        record,
        accuracy(found.model.policy),
        float(found.model.policy.effective_dimension),
        found.model.n_results,
        tolerance,
    )


def _promise(campaign: Campaign, n_others: int) -> tuple[float | None, str]:
    """The probability that a statement about so many others holds, and what it rests on; or None,
    and why there is none."""
    if not n_others:
        return 1.0, "there is no other one left to try"
    probability, reason = promise(campaign.model, campaign.ledger.outcomes)
    box = campaign.ledger.candidates.box
    if probability is not None and box is not None and box.size > WHOLE:
        why = "over a box the rival comes from a search that may miss the largest upper bound"
        return None, why
    return probability, reason


def _intervals(campaign: Campaign, arms: Indices, width: float) -> tuple[Array, Array, Array]:
    """Middle and ends of μ̃ ± width·sd at some arms, as signed values, inside the bounds."""
    sign = campaign.ledger.sign
    least, largest = sorted(sign * end for end in campaign.model.settings.bounds)
    mean, low, high = campaign.model.interval(arms, width)
    return (
        np.clip(mean, least, largest),
        np.clip(low, least, largest),
        np.clip(high, least, largest),
    )


def _member(campaign: Campaign, arm: int) -> int:
    """The first candidate of an arm that may be better than the recommended one."""
    members = campaign.ledger.candidates.members(arm)
    return int(members[~_out(campaign)[members]][0])


def importance(campaign: Campaign) -> dict[str, float]:
    """One over the learned lengthscale of every column, largest first."""
    fitted = campaign.model.fitted
    n = campaign.model.settings.shape.n_lengthscales
    if fitted is None or not n:
        raise StateError(
            "no lengthscales were learned: tell more results, and leave `kernel` to be learned"
        )
    features = campaign.ledger.candidates.features
    columns = [
        feature.name for feature in features if feature.kind != "bits" and feature.type != EXPECTED
    ]
    pairs = zip(columns, np.exp(-fitted.theta[:n]).tolist(), strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def noise(campaign: Campaign) -> float:
    """Standard deviation of the noise at one good candidate, given or learned."""
    return campaign.model.noise / campaign.model.warp.slope


def _check_told(campaign: Campaign) -> None:
    if not campaign.model.n_results:
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


def _is_exact(campaign: Campaign) -> bool:
    """Whether values have no noise: the user said so, or repeated candidates show it."""
    if (campaign.ledger.outcomes.entries.items["noise"] > 0).any():
        return False
    noise = campaign.model.settings.noise
    return noise == 0 or (noise is None and campaign.ledger.outcomes.repeat_exactly)


def _means(campaign: Campaign, positions: Indices) -> Array:
    """Mean of the values told of candidates, NaN where there are none."""
    outcomes = campaign.ledger.outcomes
    told = outcomes.entries.items[outcomes.with_value]
    sums = np.bincount(told["position"], told["value"], outcomes.n)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[positions] / outcomes.counts[positions])


def _measured(campaign: Campaign) -> int:
    """Position of the candidate with the best mean of its values."""
    positions = _tried(campaign)
    return int(positions[np.argmax(campaign.ledger.sign * _means(campaign, positions))])


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
    if _is_exact(campaign) or _may_be_exact(campaign):
        return _measured(campaign)
    positions = _tried(campaign)
    arms = campaign.ledger.candidates.arm_of[positions]
    return int(positions[np.argmax(arms == campaign.model.surest(arms))])


def _out(campaign: Campaign) -> Mask:
    """Candidates that cannot be better than the recommended one: retired and failed ones, and tried
    ones if values are exact."""
    outcomes = campaign.ledger.outcomes
    return outcomes.out | (outcomes.counts > 0) if _is_exact(campaign) else outcomes.out


def _no_rivals(campaign: Campaign, best: int) -> Mask:
    """(A,) arms that hold no candidate that may be better than the recommended one."""
    gone = campaign.ledger.arms_without(~_out(campaign))
    if not _is_exact(campaign):
        gone[campaign.ledger.candidates.arm_of[best]] = True
    return gone


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
    found = model.in_values(*predicted, quantile(level))
    mean, *ends = (np.clip(sign * each, *model.settings.bounds) for each in found)
    return Predictions(names, mean, (more - less) / 2, *(ends if sign > 0 else ends[::-1]))


def _candidates(campaign: Campaign, positions: Sequence[int], level: float) -> list[Candidate]:
    at = np.asarray(positions, dtype=np.intp)
    found = _predicted(campaign, at, level)
    counts = campaign.ledger.outcomes.counts[at]
    values = [None if np.isnan(mean) else mean for mean in _means(campaign, at).tolist()]
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
