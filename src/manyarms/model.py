"""Between the user's values and a policy: units, the kernel learned from what was observed, and the policy built on it.

A model is a value. Its policy sees rewards: values with the sign of the direction, warped and centred (`warp`), as learned at
the last refit. A refit builds a new policy from all that was observed.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from manyarms.arms.array import Checked, as_rows
from manyarms.hyper import LEAST_NOISE, MOST, NOISE_PRIOR, Evidence, Fit, Shape, fit
from manyarms.kernels import Kernel
from manyarms.policies.adaptive import Adaptive
from manyarms.policies.base import Policy
from manyarms.policies.bkb import BKB
from manyarms.policies.checks import as_weights
from manyarms.policies.learner import Prediction
from manyarms.policies.resuming import Kept
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, Indices
from manyarms.warp import Warp

SURPRISE = 5.0
"""A reward above all known at the last fit by this much: the units were learned from other values than now come."""
GROWTH = 1.2
"""A refit comes when there are so many times more results than at the last."""
EXACT = 1e-10
"""Least variance of a reward, of k(x, x): smaller noise, none at all included, counts as this much; rounding stays harmless."""
TINY = 1e-100
"""Standard deviation whose inverse square is finite."""
LARGE = 10_000
"""Results that a policy made anew absorbs as a table."""
LARGEST = 2048
"""Arms in the dictionary of such a table, at most: many results of a rough function have more directions than can be kept."""


Results = tuple[Indices, Array, Array]
"""Arms, signed values and standard deviations, NaN where none was told, (n,) each."""


@dataclass(frozen=True)
class Settings:
    """What does not change: how policies are made, and what is learned."""

    shape: Shape
    noise: float | None  # a standard deviation in the user's units, where it is given
    learns: bool  # False: the kernel is given in the user's units, as is the noise
    confidence: Radius
    policy: Any  # of (arms, kernel, regularization=…, confidence=…, seed=…)
    options: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Record:
    """What was drawn by chance and what was fitted when a model learned: with it the step is repeated without either."""

    drawn: Indices | None  # the dictionary
    fitted: Fit | None
    warp: Warp | None  # of the fit

    def __bool__(self) -> bool:
        return self.drawn is not None or self.fitted is not None


@dataclass(frozen=True)
class Model:
    """A policy, and the units it works in."""

    settings: Settings
    arms: Array  # (A, d), checked
    policy: Policy
    warp: Warp  # from signed values to rewards
    fitted: Fit | None
    n_fitted: int  # results at the last fit
    highest: float  # the largest reward then
    _least_noise: ClassVar[float] = LEAST_NOISE
    _growth: ClassVar[float] = GROWTH

    @classmethod
    def prior(cls, settings: Settings, arms: Array | Checked) -> "Model":
        """Nothing observed."""
        arms = as_rows(arms)
        kernel = settings.shape.kernel(settings.shape.prior[0])
        noise = np.exp(NOISE_PRIOR[0])
        if not settings.learns and settings.noise is not None:
            some = arms[:1] if len(arms) else np.zeros((1, arms.shape[1]))
            noise = max(settings.noise**2, EXACT * float(kernel.diag(some).max()))
        policy = _policy(settings, arms, kernel, noise, 0)
        return cls(settings, arms, policy, Warp.identity(), None, 0, 0.0)

    def is_stale(self, n_results: int) -> bool:
        """So many results are more than at the last fit, by enough to fit anew."""
        return self.settings.learns and n_results >= max(self.n_fitted + 1, int(self._growth * self.n_fitted))

    def is_surprised(self, values: Array) -> bool:
        """One of these values is far better than all of the last fit; far worse ones are held at the floor of the warp."""
        return self.settings.learns and float(self.warp.reward(values).max()) > self.highest + SURPRISE

    @property
    def n_results(self) -> int:
        return self.policy.evidence.n_observations

    def told(
        self, arms: Indices, values: Array, noise: Array, results: Callable[[], Results], record: Record | None = None
    ) -> "Model":
        """The model after these results, fitted anew where that is due; `results` gives all there are, these included.

        With the record of a step that was taken before, the same step is taken: nothing is drawn, fitted or decided.
        """
        if record is not None:
            if record.fitted is not None and record.warp is not None:
                return self.refitted_as(record.fitted, record.warp, *results(), record)
            return self.observed(arms, values, noise, record)
        refit, model = self.is_surprised(values) or self.is_stale(self.n_results + len(arms)), self
        if not refit or len(arms) <= self.n_results:
            model = self.observed(arms, values, noise)
        return model.refitted(*results()) if refit else model

    def since(self, earlier: "Model") -> Record:
        """The record of the one step from an earlier model to this one."""
        refitted = self.fitted is not earlier.fitted
        new, old = self.policy, earlier.policy
        drawn = new.drawn_since(old) if isinstance(new, BKB) and isinstance(old, BKB) else None
        return Record(drawn, self.fitted if refitted else None, self.warp if refitted else None)

    def observed(self, arms: Indices, values: Array, noise: Array, record: Record | None = None) -> "Model":
        """The model after these results, in the same units: nothing is fitted. `noise` is NaN where none was told."""
        policy = copy(self.policy)  # states are values: the original stays as it was
        self._observe(policy, arms, self.warp.reward(values), self._noise(policy, self.warp, noise), record)
        return replace(self, policy=policy)

    def _observe(
        self,
        policy: Policy,
        arms: Indices,
        rewards: Array,
        noise: dict[str, Any],
        record: Record | None,
        *,
        as_table: bool = False,
    ) -> None:
        absorb = partial(policy.warm_start, largest=LARGEST) if as_table and isinstance(policy, Adaptive) else policy.observe
        with policy.repeating(record.drawn) if record is not None and isinstance(policy, BKB) else nullcontext():
            absorb(arms, rewards, **noise)

    def _units(self, means: Array) -> Warp:
        """From the mean values of distinct arms to rewards."""
        return Warp.half_rank(means)

    def refitted(self, arms: Indices, values: Array, noise: Array) -> "Model":
        """Kernel, noise and units learned from all results (n,), and a policy made of them."""
        return self.refitted_as(*self.learned(arms, values, noise), arms, values, noise)

    def learned(self, arms: Indices, values: Array, noise: Array, *, thorough: bool = True) -> tuple[Fit, Warp]:
        """Kernel, noise and units for all results (n,); where not `thorough`, a kernel near the last one."""
        told = ~np.isnan(noise)
        weights = np.where(told, 1 / np.square(np.where(told, np.maximum(noise, TINY), 1.0)), 1.0)
        keys, at = np.unique(2 * arms + told, return_inverse=True)  # results with and without a noise apart
        distinct, known, total = keys // 2, keys % 2 == 1, np.bincount(at, weights).astype(np.float64)
        warp = self._units(np.bincount(at, weights * values) / total)
        rewards = warp.reward(values)
        means = np.bincount(at, weights * rewards) / total
        within = float(np.square(rewards - means[at])[~told].sum())
        evidence = Evidence(
            self.arms[distinct],
            means,
            np.where(known, np.inf, total),
            within,
            float((~told).sum() - (~known).sum()),
            np.where(known, np.maximum(warp.slope**2 / total, EXACT), 0.0),
        )
        if len(distinct) > MOST:
            weight = total * np.where(known, self.policy.regularization / warp.slope**2, 1.0)
            evidence = evidence.some(self._spread(distinct, weight))
        sd = self.settings.noise
        known_noise = None if sd is None else max((sd * warp.slope) ** 2, EXACT)
        start = self.fitted.start if self.fitted else None
        least = self._least_noise
        found = fit(self.settings.shape, evidence, noise=known_noise, start=start, least=least, thorough=thorough)
        return found, warp.shifted(found.mean)

    def refitted_as(
        self, found: Fit, warp: Warp, arms: Indices, values: Array, noise: Array, record: Record | None = None
    ) -> "Model":
        """The model with what was learned of all results (n,), and a policy made of them."""
        kernel = found.scale * self.settings.shape.kernel(found.theta)
        policy = _policy(self.settings, self.arms, kernel, found.noise, len(values))
        rewards = warp.reward(values)
        self._observe(policy, arms, rewards, self._noise(policy, warp, noise), record, as_table=len(arms) > LARGE)
        return replace(self, policy=policy, warp=warp, fitted=found, n_fitted=len(values), highest=float(rewards.max()))

    def resumed(
        self,
        arms: Array,
        fitted: tuple[Fit, Warp, int] | None,
        observed: Indices,
        values: Array,
        noise: Array,
        n_drawn: int,
        kept: Kept,
    ) -> "Model":
        """The model that `kept` was taken of, made of the prior: all results it had (n,), of which `n_drawn` came before the
        last draw, and the last fit with the number of results then."""
        model = replace(self, arms=as_rows(arms))
        kernel, variance = self.policy.kernel, self.policy.regularization
        if fitted is not None:
            found, warp, n = fitted
            highest = float(warp.reward(values[:n]).max())
            model = replace(model, fitted=found, warp=warp, n_fitted=n, highest=highest)
            kernel, variance = found.scale * self.settings.shape.kernel(found.theta), found.noise
        policy = cast(Adaptive, _policy(self.settings, model.arms, kernel, variance, model.n_fitted))
        weights = as_weights(model._noise(policy, model.warp, noise).get("noise"), len(values), policy.regularization)
        policy.resume(observed, model.warp.reward(values), weights, model.n_fitted, n_drawn, kept)
        return replace(model, policy=policy)

    @property
    def kept(self) -> Kept | None:
        """What `resumed` needs beside the results; None for policies that cannot be resumed."""
        return self.policy.kept() if type(self.policy) is Adaptive else None

    def on(self, arms: Array, observed: Indices, values: Array, noise: Array, record: Record | None = None) -> "Model":
        """The same model of a table that has grown."""
        old, arms = self.policy, as_rows(arms)
        policy = _policy(self.settings, arms, old.kernel, old.regularization, self.n_fitted)
        self._observe(policy, observed, self.warp.reward(values), self._noise(policy, self.warp, noise), record)
        return replace(self, arms=arms, policy=policy)

    def _noise(self, policy: Policy, warp: Warp, noise: Array) -> dict[str, Any]:
        """What `observe` is told of the noise of rewards: the policy's own where a result came without."""
        if np.isnan(noise).all():
            return {}
        own = float(np.sqrt(policy.regularization))
        least = float(np.sqrt(EXACT)) if self.settings.learns else 1e-4 * own
        return {"noise": np.where(np.isnan(noise), own, np.maximum(noise * warp.slope, least))}

    def predict(self, arms: Indices) -> Prediction:
        """Mean and standard deviation of the rewards of some arms."""
        return self.policy.predict(self.arms[arms])

    def interval(self, arms: Indices, width: float) -> tuple[Array, Array, Array]:
        """Middle and ends of μ̃ ± width·sd at some arms, as signed values."""
        mean, std = self.predict(arms)
        return self.warp.value(mean), self.warp.value(mean - width * std), self.warp.value(mean + width * std)

    @property
    def radius(self) -> float:
        """β̃ in standard deviations of f."""
        return self.policy.beta / float(np.sqrt(self.policy.regularization))

    def _spread(self, distinct: Indices, counts: Array) -> Indices:
        """MOST of the arms, drawn by their leverage n·σ̃² without replacement."""
        _, std = self.policy.predict(self.arms[distinct])
        rng = np.random.default_rng([self.settings.seed, len(distinct)])
        with np.errstate(divide="ignore"):
            keys = np.log(counts * np.square(std)) + rng.gumbel(size=len(distinct))
        return np.sort(np.argsort(-keys)[:MOST])


def _policy(settings: Settings, arms: Array, kernel: Kernel, regularization: float, number: int) -> Policy:
    seed = np.random.default_rng([settings.seed, number])
    options = {"regularization": regularization, "confidence": settings.confidence, "seed": seed, **settings.options}
    ours = isinstance(settings.policy, type) and issubclass(settings.policy, Policy)
    made: Policy = settings.policy(Checked(arms) if ours else arms, kernel, **options)
    return made
