"""Noise of unknown scale: a policy whose λ follows an estimate.

Of N observations of u arms, W is the sum of squares around the means ȳ of the arms,
RSS = W + Σn(ȳ − μ̃)² that around the posterior mean, and d̃ the effective dimension. For Gaussian
noise of variance ξ², whatever f is, each of them is in distribution at least ξ² times a sum
Σw_iχ²_1 of independent terms with weights w_i ≤ 1, which add up to at least

    ν = Σ(c − 1) + Σ n/(n + c)  for W,
    ν = tr(I − H)² ≥ N − 2d̃     for RSS,  H = K(K + λI)⁻¹.

- W grows call by call. The c rewards of one arm in one call add their sum of squares around their
  own mean, c − 1 terms of weight 1. Where the arm had n rewards before, the squared difference of
  the two means adds one term. Given the past the old mean is a number, not a draw, so that the term
  has at least the weight n/(n + c), however the arm was chosen.
- RSS = ‖(I − H)(f + ε)‖² has the weights (1 − h)², h the eigenvalues of H. What the mean misses of
  f only adds.

As ln(1 + 2sw) ≥ w ln(1 + 2s) for w ≤ 1, Chernoff's bound for χ² with ν degrees of freedom holds for
such sums too:

    P(Σw_iχ²_1 ≤ xν) ≤ exp(−ν(x − 1 − ln x)/2)  for x ≤ 1.

With x such that the right side is δ′, each sum divided by xν is an upper bound on ξ² with
probability 1 − δ′. The smaller of the two is taken, and there are many estimates in a run, each of
which may fail: the k-th has δ′ = δ/(2k(k + 1)) for each of its two bounds. These add up to δ over
both bounds and over all k.

Where some observations come with a noise of their own, both sums, N and u are over the others, and
d̃ is their share of the trace of H: with P the projection on them,
tr(P(I − H)P)² ≥ N − 2 tr PHP all the same.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from manyarms.bandit.checks import as_arms, as_rewards, as_weights, is_rows
from manyarms.bandit.policy import Policy
from manyarms.checks import real
from manyarms.engine.base import Batch
from manyarms.engine.history import History, by_arm
from manyarms.engine.linalg import TINY
from manyarms.errors import ParameterError, shortened
from manyarms.lapack import in_one_thread
from manyarms.typing import Array, ArrayLike, Indices

GROWTH = 1.2
"""The noise is estimated when there are so many times more observations than at the last time. An
estimate predicts all rows observed; all those of a run cost 1/(1 − 1/1.2) = 6 times the last."""
DELTA = 0.05
"""δ: the probability that some bound of a run is below the truth, where `EstimatedNoise` holds."""


@dataclass(frozen=True)
class Replicates:
    """What was observed: equal rows are replicates of one arm."""

    plain: History  # observations whose noise is to be estimated
    weighted: History  # whose noise was told: weight 1/noise²
    within: float = 0.0  # W
    freedom: float = 0.0  # ν of W

    def with_more(
        self, policy: Policy, arms: ArrayLike, rewards: ArrayLike, noise: ArrayLike | None
    ) -> "Replicates":
        """With the observations of one call, which the policy has checked."""
        rows = policy.rows_of(arms)
        n = len(rows)
        keys = np.full(n, -1) if is_rows(arms) else as_arms(arms, policy.n_arms)
        values = as_rewards(rewards, n)
        told = (rows, policy.kernel.diag(rows), values, as_weights(noise, n, 1.0), keys, n)
        if noise is not None:
            # They say nothing of the noise that is to be estimated.
            return replace(self, weighted=self.weighted.added(*told)[0])
        plain, at = self.plain.added(*told)
        within, freedom = _within(self.plain, at, values)
        return Replicates(plain, self.weighted, self.within + within, self.freedom + freedom)

    def for_noise(self, variance: float) -> History:
        """All observations, weighed for noise of this variance."""
        known = self.weighted
        means = known.sums / known.counts
        weights = variance * known.counts  # ω = ξ²/ξ_s²
        return self.plain.added(
            known.rows, known.diag, means, weights, known.keys, known.n_observations
        )[0]


@dataclass(frozen=True)
class EstimatedState:
    """Everything that `observe` changes."""

    policy: Policy  # one that is never changed: another takes its place
    noise: float  # that it was made for
    told: Replicates
    n_estimated: int = 0  # observations at the last estimate
    n_estimates: int = 0  # how many estimates were made, k


class EstimatedNoise:
    """A policy that is made anew whenever the estimate of the noise has moved by √2.

    ``EstimatedNoise(lambda noise: BKB(arms, kernel, regularization=noise**2), noise=1.0)``. The
    estimate is an upper bound. It starts high and comes down as evidence grows, so give a first
    guess that is rather too large. It is the standard deviation, which is the scale of sub-Gaussian
    noise where that is Gaussian; noise that is bounded by ±b may need b. Arms may change: a policy
    made without any takes `choose(arms=X)` and `observe(X[i], y)`.

    What is covered: for Gaussian noise of one scale, and a first guess that is not below it, all
    values of `noise` in a run are at least the standard deviation with probability 95 %, where

    - the arms and their order were chosen beforehand, and
    - the effective dimension, where a sketch estimates it, is not too small.

    What is not covered: the bound by replicates (W) holds for arms chosen by looking at rewards
    too, as long as the number of rewards in one call was not chosen so. The bound by residuals
    (RSS) does not: it takes arms, and the λ of the policy, as if they did not depend on the
    rewards. In 120 runs of GP-UCB (tests/baselines/test_noise.py) it held all the same. Noise of
    heavier tails than Gaussian, noise that differs between arms and confidence radii that use the
    estimate are not covered.

    Parameters
    ----------
    make : callable
        From a standard deviation to a policy that has observed nothing.
    noise : float
        The first guess, a standard deviation.
    """

    def __init__(self, make: Callable[[float], Policy], noise: float) -> None:
        wanted = "a positive standard deviation, rather too large than too small"
        first = real(noise, "noise", wanted, above=0)
        policy = make(first) if callable(make) else None
        if not hasattr(policy, "learn") or policy.evidence.n_observations:
            raise ParameterError(
                f"make must return a policy that has observed nothing, got {shortened(policy)}"
            )
        self._make = make
        nothing = History.none(policy.n_features)
        self._state = EstimatedState(policy, first, Replicates(nothing, nothing))

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

    @in_one_thread
    def observe(
        self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None
    ) -> None:
        """Learn the rewards (n,) of arms (n,), by number or by value, as rows (n, d).

        On an error nothing has changed.
        `noise` is the standard deviation of these rewards where it is known, one number or one
        each: they weigh accordingly, whatever the estimate, which is of the others' noise.
        """
        old = self._state
        policy = copy(old.policy)
        policy.observe(arms, rewards, noise=noise)
        if policy.evidence.n_observations == old.policy.evidence.n_observations:
            return  # an empty call
        told = old.told.with_more(policy, arms, rewards, noise)
        new = replace(old, policy=policy, told=told)
        n = policy.evidence.n_observations
        if n >= max(old.n_estimated + 1, int(GROWTH * old.n_estimated)):
            k = old.n_estimates + 1
            delta = DELTA / (k * (k + 1))  # which add up to DELTA
            new = replace(new, n_estimated=n, n_estimates=k)
            estimate = estimated_noise(policy, told, delta)
            factor = 1.0 if estimate is None else max(estimate / old.noise, old.noise / estimate)
            # λ, a variance, is wrong by a factor of two then.
            if estimate is not None and factor > np.sqrt(2):
                new = replace(new, policy=self._made_anew(estimate, told), noise=estimate)
        self._state = new  # the only assignment: an error above has changed nothing

    def _made_anew(self, noise: float, told: Replicates) -> Policy:
        """A policy for this noise that has observed everything."""
        policy = self._make(noise)
        history = told.for_noise(policy.noise_variance)
        means = history.sums / history.counts
        batch = Batch(history.rows, history.diag, means, history.counts, history.keys, 0)
        inside = history.keys >= 0
        # How many rewards each arm had is not kept: one each, and the first batch has the others.
        others = history.n_observations - len(means)
        for own in (inside, ~inside):
            if own.any():
                n = int(own.sum()) + others
                policy.learn(replace(batch.part(own), n_observations=n))
                others = 0
        return policy


def estimated_noise(policy: Policy, told: Replicates, delta: float) -> float | None:
    """An upper bound, with probability 1 − δ, on the standard deviation of noise that was not told.

    The policy has observed all of it. None where there is too little evidence.
    """
    history = told.plain
    counts = history.counts
    if not len(counts):
        return None
    mean, variance = policy.belief.moments(history.rows, history.diag)
    around = told.within + float(counts @ np.square(history.sums / counts - mean))  # RSS
    sums = np.array([told.within, around])
    # ν of W, and N − 2d̃ of RSS with d̃ = Σnσ̃² (Eq. 5).
    freedoms = np.array([told.freedom, counts.sum() - 2 * float(counts @ variance)])
    usable = freedoms >= 1
    if not usable.any():
        return None
    # The smaller of two bounds fails where either does: each has half of δ.
    bounds = sums[usable] / lower_quantile(freedoms[usable], delta / 2)
    # In units of k(x, x), as for `Optimizer` (docs/theory.md, "Numerics").
    least = 1e-10 * float(history.diag.max())
    return float(np.sqrt(max(float(bounds.min()), least)))


def lower_quantile(freedom: Array, delta: float) -> Array:
    """xν, below which Σw_iχ²_1 with Σw_i = ν and w_i ≤ 1 falls with probability at most δ.

    x ≤ 1 solves ν(x − 1 − ln x)/2 = ln 1/δ: x = −W(−exp(−1 − 2 ln(1/δ)/ν)), W Lambert's function.
    """
    x = -scipy.special.lambertw(-np.exp(-1 + 2 * np.log(delta) / freedom)).real
    # Where the exponential is too small for float64, so is x. Any smaller number is as valid.
    return np.asarray(freedom * np.maximum(x, TINY))


def _within(history: History, at: Indices, rewards: Array) -> tuple[float, float]:
    """What the rewards of one call, of arms at these places, add to W, and to its ν."""
    distinct, means, counts = by_arm(at, rewards, np.ones(len(at)))
    # The rewards of each arm around their own mean: c − 1 terms of weight 1.
    among = float(np.square(rewards - means[np.searchsorted(distinct, at)]).sum())
    # Of arms that had n rewards before: nc/(n + c) times the squared difference of the means,
    # which is what W grows by when two groups become one. Its weight is n/(n + c).
    known = distinct < len(history.counts)
    places = distinct[known]
    old = history.counts[places]
    new = counts[known]
    before = history.sums[places] / old
    shared = old * new / (old + new)
    within = among + float(shared @ np.square(means[known] - before))
    freedom = len(at) - len(distinct) + float((old / (old + new)).sum())
    return within, freedom
