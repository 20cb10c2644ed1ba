"""Noise of unknown scale: a policy whose λ follows an estimate.

Of N observations of u arms, W the sum of squares around the means ȳ of the arms, RSS = W + Σn(ȳ − μ̃)² that around the posterior
mean and d̃ the effective dimension,

    E W = ξ²(N − u),   E RSS ≥ ξ² tr(I − H)² ≥ ξ²(N − 2d̃),   H = K(K + λI)⁻¹.

The second holds whatever f is: what the mean misses only adds. Each sum over the δ-quantile of the χ² law of its degrees of
freedom is an upper bound on ξ² (with probability about 1 − δ for Gaussian noise and arms chosen beforehand); the smaller one
is taken.

Where some observations come with a noise of their own, both sums, N and u are over the others, and d̃ is their share of the
trace of H: with P the projection on them, E RSS ≥ ξ² tr(P(I − H)P)² ≥ ξ²(N − 2 tr PHP) all the same.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from manyarms.arms.seen import Seen
from manyarms.errors import ParameterError
from manyarms.numbers import real
from manyarms.policies.base import Policy
from manyarms.policies.checks import as_rewards, as_weights
from manyarms.sketch.history import History, by_arm
from manyarms.typing import Array, ArrayLike, Indices

MOVED = float(np.sqrt(2))
"""An estimate that has moved by this factor has the policy made anew."""
GROWTH = 1.2
"""The noise is estimated when there are so many times more observations than at the last time."""
DELTA = 0.05
"""Of the upper bounds."""
LEAST = 1e-10
"""Variance of the noise, of k(x, x), below which it counts as this much."""


@dataclass(frozen=True)
class EstimatedState:
    """Everything that `observe` changes."""

    policy: Policy  # one that is never changed: another takes its place
    noise: float  # that it was made for
    within: float  # W
    n_estimated: int  # observations at the last estimate
    plain: History = field(default_factory=History)  # observations whose noise is to be estimated
    told: History = field(default_factory=History)  # those whose noise was told, of weight 1/noise²


class EstimatedNoise:
    """A policy made anew whenever the estimate of the noise has moved by √2: a logarithmic number of times.

    ``EstimatedNoise(lambda noise: BKB(arms, kernel, regularization=noise**2), noise=1.0)``. The estimate is an upper bound: it
    starts high and comes down as evidence grows, so that the first guess had better be too large. It is the standard deviation,
    which is the scale of sub-Gaussian noise where that is Gaussian; noise that is bounded by ±b may need b. No theorem covers a
    radius with an estimated noise. Arms may change: a policy made without any takes `choose(arms=X)` and `observe(X[i], y)`.

    make : from a standard deviation to a policy that has observed nothing.
    noise : the first guess.
    """

    def __init__(self, make: Callable[[float], Policy], noise: float) -> None:
        first = real(noise, "noise", "a positive standard deviation, rather too large than too small", above=0)
        policy = make(first) if callable(make) else None
        if not isinstance(policy, Policy) or policy.evidence.n_observations:
            raise ParameterError(f"make must return a policy that has observed nothing, got {policy!r}")
        self._make = make
        self._state = EstimatedState(policy, first, 0.0, 0)

    @property
    def policy(self) -> Policy:
        """The policy at work: `predict`, `scores`, `best`. Observe here, not there."""
        return self._state.policy

    @property
    def noise(self) -> float:
        """The standard deviation that the policy was made for."""
        return self._state.noise

    def choose(self, n: int | None = 1, **options: Any) -> Indices:
        """As `BKB.choose`."""
        return self._state.policy.choose(n, **options)

    def observe(self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Learn the rewards (n,) of arms (n,), by number or by value, as rows (n, d). On an error nothing has changed.

        `noise` is the standard deviation of these rewards where it is known, one number or one each: they weigh accordingly,
        whatever the estimate, which is of the others' noise.
        """
        old, policy = self._state, copy(self._state.policy)
        policy.observe(arms, rewards, noise=noise)
        _, indices = policy._numbered(arms, policy._state.history)
        if not len(indices):
            return
        values = as_rewards(rewards, len(indices))
        evidence = (*by_arm(indices, values, as_weights(noise, len(indices), 1.0)), len(indices))
        plain, told, within = old.plain, old.told, old.within
        if noise is None:
            plain, within = plain.add(*evidence), within + _within(plain, indices, values)
        else:
            told = told.add(*evidence)
        n = policy.evidence.n_observations
        sd, n_estimated = old.noise, old.n_estimated
        if n >= max(n_estimated + 1, int(GROWTH * n_estimated)):
            estimate, n_estimated = estimated_noise(policy, plain, within), n
            if estimate is not None and max(estimate / sd, sd / estimate) > MOVED:
                policy, sd = self._made_anew(estimate, plain, told, policy._state.history.seen), estimate
        self._state = EstimatedState(policy, sd, within, n_estimated, plain, told)

    def _made_anew(self, noise: float, plain: History, told: History, seen: Seen) -> Policy:
        policy, history = self._make(noise), plain
        if len(told.pulled):
            weights = policy.regularization * told.counts
            history = plain.add(told.pulled, told.sums / told.counts, weights, told.n_observations)
        history = replace(history, seen=seen)
        policy._check_rounding(history)
        policy._state = policy._observed(history, history.pulled, history.sums / history.counts, history.counts)
        return policy


def estimated_noise(policy: Policy, history: History, within: float) -> float | None:
    """An upper bound on the standard deviation of the noise of what the history holds, part of all that the policy observed,
    `within` being its W; None where there is too little evidence."""
    pulled, counts = history.pulled, history.counts
    if not len(pulled):
        return None
    known = policy._state.history  # which has the rows that were observed by value
    diag = policy._diags(known, pulled)
    mean, variance = policy._moments_at(policy._rows(known, pulled), diag)
    around = within + float(counts @ np.square(history.sums / counts - mean))
    sums = np.array([within, around])
    freedom = counts.sum() - np.array([len(pulled), 2 * float(counts @ variance)])
    usable = freedom >= 1
    if not usable.any():
        return None
    bound = float((sums[usable] / (2 * gammaincinv(freedom[usable] / 2, DELTA))).min())
    return float(np.sqrt(max(bound, LEAST * float(diag.max()))))


def _within(history: History, arms: Indices, rewards: Array) -> float:
    """What these rewards add to W."""
    if not len(arms):
        return 0.0
    distinct, means, counts = by_arm(arms, rewards, np.ones(len(arms)))
    among = float(np.square(rewards - means[np.searchsorted(distinct, arms)]).sum())
    at = history.positions(distinct)
    seen, at = at >= 0, at[at >= 0]
    before = history.sums[at] / history.counts[at]
    shared = history.counts[at] * counts[seen] / (history.counts[at] + counts[seen])
    return among + float(shared @ np.square(means[seen] - before))
