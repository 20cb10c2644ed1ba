"""What the results say of the columns, and how well the model predicts results it has not seen.

The posterior is written out densely over the u arms that were tried. With their mean rewards ȳ (u,)
of variances N⁻¹ and S = K + N⁻¹,

    without arm i:   ȳ_i has mean ȳ_i − [S⁻¹ȳ]_i/[S⁻¹]_ii and variance 1/[S⁻¹]_ii

(Rasmussen and Williams 2006, Eqs. 5.10 to 5.12); kernel and noise stay those learned of all
results. A sum Σ a_j f(z_j) over rows Z has the variance aᵀ(K_ZZ − K_ZX S⁻¹ K_XZ)a. Values are a map
of rewards that is not straight, so a sum of values has a variance only about: a_j then holds the
slope of the map between one standard deviation below and above the mean of row j.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy

from manyarms.campaign.model import Campaign
from manyarms.campaign.predictions import Predictions, in_units, quantile, recommended_at
from manyarms.errors import Advice, ParameterError, StateError, shortened
from manyarms.lapack import in_one_thread
from manyarms.runtime.signals import load
from manyarms.space.columns import Feature
from manyarms.space.pool import EXPECTED
from manyarms.typing import Array, Indices

MOST_ARMS = 2000
"""Tried arms that are used, at most, the latest ones: S⁻¹ of so many takes half a second."""
MOST_ROWS, LEAST_ROWS = 2048, 32
"""Rows that effects are averaged over, those of all levels together, at most: K_ZZ has 32 MB. Those
of one level, at least."""
LEVELS_SHOWN = 64
"""Levels of a column that are shown, at most: those with most results. More fit on no page."""
VALUES_SHOWN = 9
"""Values of a column with more different numbers at which it is shown, spread evenly among those
numbers."""


class CrossValidated(NamedTuple):
    """Every tried arm, predicted from the results of all others."""

    predicted: Predictions  # of the mean of its values, noise included
    measured: Array  # (n,) that mean
    n_results: Indices  # (n,) values told

    @property
    def n_inside(self) -> int:
        """How many means lie inside their intervals."""
        low, high = self.predicted.low, self.predicted.high
        return int(((low <= self.measured) & (self.measured <= high)).sum())


class Effect(NamedTuple):
    """What a level of a column does: the average value that candidates would have if all of them
    had this level and kept everything else, minus the mean of these averages over all levels."""

    level: Any
    mean: float
    low: float
    high: float
    n_results: int  # values told of candidates that have it


class Slice(NamedTuple):
    """Posterior means over the levels of two columns, all else being as the recommended candidate
    has it."""

    x: str
    y: str
    x_levels: list[Any]
    y_levels: list[Any]
    mean: Array  # (y, x)
    at: tuple[int, int]  # numbers of the levels that the recommended candidate has


class _Tried(NamedTuple):
    """The arms that were tried, and S."""

    arms: Indices  # (u,)
    rewards: Array  # (u,) means
    values: Array  # (u,) means, signed
    n_results: Indices  # (u,)
    factor: Array  # of S, lower

    @classmethod
    def of(cls, campaign: Campaign) -> "_Tried":
        model = campaign.model
        arms, values, noise, *_ = campaign.ledger.results
        if not len(arms):
            raise StateError("no value was told yet", Advice("call {} first", "tell()"))
        weights = np.square(1 / model.noise_of(noise))
        distinct, at = np.unique(arms, return_inverse=True)
        last = np.zeros(len(distinct), dtype=np.intp)
        last[at] = np.arange(len(arms))  # of several the last one stays
        total = np.bincount(at, weights)
        rewards = np.bincount(at, weights * model.warp.reward(values)) / total
        means = np.bincount(at, weights * values) / total
        kept = np.sort(np.argsort(-last)[:MOST_ARMS])
        S = model.policy.kernel(model.arms[distinct[kept]], model.arms[distinct[kept]])
        S.flat[:: len(S) + 1] += 1 / total[kept]
        counts = np.bincount(at)[kept]
        load("scipy.linalg")
        factor = scipy.linalg.cholesky(S, lower=True)
        return cls(distinct[kept], rewards[kept], means[kept], counts, factor)

    def solved(self, right: Array) -> Array:
        """S⁻¹ times a matrix (u, k)."""
        found: Array = scipy.linalg.cho_solve((self.factor, True), right)
        return found


@in_one_thread
def left_out(campaign: Campaign, level: float) -> CrossValidated:
    """Each of the latest MOST_ARMS tried arms, predicted from the results of all others."""
    tried = _Tried.of(campaign)
    inverse = tried.solved(np.eye(len(tried.arms)))
    variance = 1 / np.diag(inverse)
    mean = tried.rewards - variance * (inverse @ tried.rewards)
    ledger = campaign.ledger
    # An arm may be several candidates with equal features: the last one tried stands for it.
    outcomes = ledger.outcomes
    told = outcomes.entries.items["position"][outcomes.with_value]
    name_of = dict(zip(ledger.candidates.arm_of[told].tolist(), told.tolist(), strict=True))
    names = ledger.names([name_of[arm] for arm in tried.arms.tolist()])
    predicted = in_units(campaign, names, mean, np.sqrt(variance), level)
    return CrossValidated(predicted, ledger.sign * tried.values, tried.n_results)


def importance(campaign: Campaign) -> dict[str, float]:
    """One over the learned lengthscale of every column, largest first."""
    fitted = campaign.model.fitted
    n = campaign.model.settings.shape.n_lengthscales
    if fitted is None or not n:
        raise StateError(
            "no lengthscales were learned: tell more results, and leave `kernel` to be learned"
        )
    features = campaign.ledger.candidates.features
    by_kind = {
        kind: [
            each.name
            for each in features
            if (each.named if kind == "named" else each.kind == kind) and each.type != EXPECTED
        ]
        for kind in ("numeric", "named", "categorical")
    }
    columns = [name for names in by_kind.values() for name in names]
    pairs = zip(columns, np.exp(-fitted.theta[:n]).tolist(), strict=True)
    found: dict[str, float] = {}
    for name, each in pairs:  # one that is named has two
        found[name] = max(each, found.get(name, 0.0))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


@in_one_thread
def effects(campaign: Campaign, level: float) -> dict[str, list[Effect]]:
    """What the levels of every column do, with the most important column first."""
    tried = _Tried.of(campaign)
    width = quantile(level)
    found = {
        feature.name: _effects(campaign, tried, feature, width) for feature in _levelled(campaign)
    }
    return dict(sorted(found.items(), key=lambda item: -_spread(item[1])))


def _effects(campaign: Campaign, tried: _Tried, feature: Feature, width: float) -> list[Effect]:
    """What the levels of one column do."""
    model, sign = campaign.model, campaign.ledger.sign
    column = feature.start
    codes = _codes(campaign, feature)
    n = int(np.clip(MOST_ROWS // len(codes), LEAST_ROWS, 256))
    others = _some_rows(campaign, n)
    n = len(others)
    rows = np.tile(others, (len(codes), 1))
    rows[:, column] = np.repeat(codes, n)
    rows = campaign.ledger.candidates.completed(rows)
    mean, std = model.policy.predict(rows)
    values, less, more = model.in_values(mean, std, 1.0)
    slopes = (more - less) / (2 * std)
    averages = sign * values.reshape(-1, n).mean(axis=1)
    # A, (levels, rows): each level's average less the mean of all of them.
    contrast = np.eye(len(codes)) - 1 / len(codes)
    A = np.repeat(contrast, n, axis=1) * slopes / n
    kernel = model.policy.kernel
    cross = kernel(model.arms[tried.arms], rows) @ A.T
    variance = np.einsum("ij,jk,ik->i", A, kernel(rows, rows), A, optimize=True)
    variance -= (cross * tried.solved(cross)).sum(axis=0)
    half = width * np.sqrt(np.maximum(variance, 0.0))
    told = model.arms[tried.arms, column]
    return [
        Effect(level, float(each), float(each - h), float(each + h), int(n_results))
        for level, each, h, n_results in zip(
            _levels(campaign, feature, codes),
            averages - averages.mean(),
            half,
            [tried.n_results[told == code].sum() for code in codes],
            strict=True,
        )
    ]


def _spread(effects: list[Effect]) -> float:
    means = [each.mean for each in effects]
    return max(means) - min(means)


@in_one_thread
def across(campaign: Campaign, x: str, y: str) -> Slice:
    """Posterior means over the levels of two columns, through the recommended candidate."""
    by_name = {feature.name: feature for feature in _levelled(campaign)}
    for name in (x, y):
        if not isinstance(name, str) or name not in by_name:
            raise ParameterError(
                f"a slice is over columns that have levels, {', '.join(map(repr, by_name))}, "
                f"got {shortened(name)}"
            )
    if x == y:
        raise ParameterError(f"a slice is over two columns, got {shortened(x)} twice")
    one, other = by_name[x], by_name[y]
    at = recommended_at(campaign)
    row = np.array(campaign.model.arms[campaign.ledger.candidates.arm_of[at]], dtype=np.float64)
    x_codes, y_codes = _codes(campaign, one, row), _codes(campaign, other, row)
    rows = np.tile(row, (len(x_codes) * len(y_codes), 1))
    rows[:, one.start] = np.tile(x_codes, len(y_codes))
    rows[:, other.start] = np.repeat(y_codes, len(x_codes))
    rows = campaign.ledger.candidates.completed(rows)
    mean, std = campaign.model.policy.predict(rows)
    (values,) = campaign.model.in_values(mean, std)
    values = np.clip(campaign.ledger.sign * values, *campaign.model.settings.bounds)
    return Slice(
        x,
        y,
        _levels(campaign, one, x_codes),
        _levels(campaign, other, y_codes),
        values.reshape(len(y_codes), len(x_codes)),
        (
            int(np.searchsorted(x_codes, row[one.start])),
            int(np.searchsorted(y_codes, row[other.start])),
        ),
    )


def _levelled(campaign: Campaign) -> list[Feature]:
    """The features that stand for one column with more than one value."""
    X = campaign.model.arms
    return [
        feature
        for feature in campaign.ledger.candidates.features
        if feature.kind in ("numeric", "categorical")
        and feature.type != EXPECTED
        and np.ptp(X[:, feature.start]) > 0
    ]


def _codes(campaign: Campaign, feature: Feature, row: Array | None = None) -> Array:
    """The encoded values at which a column is shown, in increasing order; with the value of
    `row`."""
    X = campaign.model.arms
    codes = np.unique(np.asarray(X[:, feature.start], dtype=np.float64))
    wanted = None if row is None else float(row[feature.start])
    if feature.kind == "categorical" and len(codes) > LEVELS_SHOWN:
        arms = campaign.ledger.results.arms
        tried = np.asarray(X[arms, feature.start])
        counts = np.array([(tried == code).sum() + (code == wanted) * len(X) for code in codes])
        codes = np.sort(codes[np.argsort(-counts, kind="stable")[:LEVELS_SHOWN]])
    elif feature.kind == "numeric" and len(codes) > VALUES_SHOWN:
        even = np.linspace(0, len(codes) - 1, VALUES_SHOWN).round().astype(np.intp)
        chosen = codes[even]
        codes = np.unique(chosen if wanted is None else np.append(chosen, wanted))
    return codes


def _some_rows(campaign: Campaign, n: int) -> Array:
    """Encoded rows of n candidates drawn at random, or of all if there are fewer."""
    X = campaign.model.arms
    arm_of = campaign.ledger.candidates.arm_of
    if len(arm_of) > n:
        arm_of = np.random.default_rng(0).choice(arm_of, n, replace=False)
    return np.array(X[np.sort(arm_of)], dtype=np.float64)


def _levels(campaign: Campaign, feature: Feature, codes: Array) -> list[Any]:
    """Encoded values as they stand in the table."""
    candidates = campaign.ledger.candidates
    column = np.asarray(campaign.model.arms[:, feature.start])
    members = [candidates.members(int(np.argmax(column == code)))[0] for code in codes]
    return [row[feature.name] for row in candidates.rows(campaign.ledger.names(members))]
