"""Between the user's values and a policy: units, the kernel learned from what was observed, and the policy built on it.

A model is a value. Its policy sees rewards: values with the sign of the direction, warped and centred (`warp`), as learned at
the last refit. A refit builds a new policy from all that was observed.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from manyarms.arms.array import Checked, as_rows
from manyarms.hyper import MOST, NOISE_PRIOR, Evidence, Fit, Shape, fit
from manyarms.kernels import Kernel
from manyarms.policies.adaptive import Adaptive, Kept
from manyarms.policies.base import Policy, Prediction
from manyarms.policies.bkb import BKB
from manyarms.sketch.confidence import Radius
from manyarms.sketch.history import History, by_arm
from manyarms.typing import Array, Indices
from manyarms.warp import Warp

SURPRISE = 5.0
"""A reward above all known at the last fit by this much: the units were learned from other values than now come."""
GROWTH = 1.2
"""A refit comes when there are so many times more results than at the last."""


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

    @classmethod
    def prior(cls, settings: Settings, arms: Array) -> "Model":
        """Nothing observed."""
        arms = as_rows(arms)
        noise = np.exp(NOISE_PRIOR[0]) if settings.learns or settings.noise is None else settings.noise**2
        policy = _policy(settings, arms, settings.shape.kernel(settings.shape.prior[0]), noise, 0)
        return cls(settings, arms, policy, Warp.identity(), None, 0, 0.0)

    @property
    def is_stale(self) -> bool:
        """More is known than at the last fit, by enough to fit anew."""
        return self.settings.learns and self.n_results >= max(self.n_fitted + 1, int(GROWTH * self.n_fitted))

    def is_surprised(self, values: Array) -> bool:
        """One of these values is far better than all of the last fit; far worse ones are held at the floor of the warp."""
        return self.settings.learns and float(self.warp.reward(values).max()) > self.highest + SURPRISE

    @property
    def n_results(self) -> int:
        return self.policy.evidence.n_observations

    def told(
        self, arms: Indices, values: Array, results: Callable[[], tuple[Indices, Array]], record: Record | None = None
    ) -> "Model":
        """The model after these results, fitted anew where that is due; `results` gives all there are, these included.

        With the record of a step that was taken before, the same step is taken: nothing is drawn, fitted or decided.
        """
        if record is not None:
            if record.fitted is not None and record.warp is not None:
                return self.refitted_as(record.fitted, record.warp, *results(), record)
            return self.observed(arms, values, record)
        surprised = self.is_surprised(values)
        model = self.observed(arms, values)
        return model.refitted(*results()) if surprised or model.is_stale else model

    def since(self, earlier: "Model") -> Record:
        """The record of the one step from an earlier model to this one."""
        refitted = self.fitted is not earlier.fitted
        new, old = self.policy, earlier.policy
        drawn = new.drawn_since(old) if isinstance(new, BKB) and isinstance(old, BKB) else None
        return Record(drawn, self.fitted if refitted else None, self.warp if refitted else None)

    def observed(self, arms: Indices, values: Array, record: Record | None = None) -> "Model":
        """The model after these results, in the same units: nothing is fitted."""
        policy = copy(self.policy)  # states are values: the original stays as it was
        _observe(policy, arms, self.warp.reward(values), record)
        return replace(self, policy=policy)

    def refitted(self, arms: Indices, values: Array) -> "Model":
        """Kernel, noise and units learned from all results (n,), and a policy made of them."""
        return self.refitted_as(*self.learned(arms, values), arms, values)

    def learned(self, arms: Indices, values: Array) -> tuple[Fit, Warp]:
        """Kernel, noise and units for all results (n,)."""
        distinct, at = np.unique(arms, return_inverse=True)
        counts, n = np.bincount(at).astype(np.float64), len(values)
        warp = Warp.half_rank(np.bincount(at, values) / counts)
        rewards = warp.reward(values)
        means = np.bincount(at, rewards) / counts
        within = float(np.square(rewards - means[at]).sum())
        evidence = Evidence(self.arms[distinct], means, counts, within, float(n - len(distinct)))
        if len(distinct) > MOST:
            evidence = evidence.some(self._spread(distinct, counts))
        noise = None if self.settings.noise is None else (self.settings.noise * warp.slope) ** 2
        found = fit(self.settings.shape, evidence, noise=noise, start=self.fitted.start if self.fitted else None)
        return found, warp.shifted(found.mean)

    def refitted_as(self, found: Fit, warp: Warp, arms: Indices, values: Array, record: Record | None = None) -> "Model":
        """The model with what was learned of all results (n,), and a policy made of them."""
        kernel = found.scale * self.settings.shape.kernel(found.theta)
        policy = _policy(self.settings, self.arms, kernel, found.noise, len(values))
        rewards = warp.reward(values)
        _observe(policy, arms, rewards, record)
        return replace(self, policy=policy, warp=warp, fitted=found, n_fitted=len(values), highest=float(rewards.max()))

    def resumed(
        self, arms: Array, fitted: tuple[Fit, Warp, int] | None, observed: Indices, values: Array, n_drawn: int, kept: Kept
    ) -> "Model":
        """The model that `kept` was taken of, made of the prior: all results it had (n,), of which `n_drawn` came before the
        last draw, and the last fit with the number of results then."""
        model = replace(self, arms=as_rows(arms))
        if fitted is not None:
            found, warp, n = fitted
            highest = float(warp.reward(values[:n]).max())
            model = replace(model, fitted=found, warp=warp, n_fitted=n, highest=highest)
        kernel, noise = self.policy.kernel, self.policy.regularization
        if fitted is not None:
            kernel, noise = found.scale * self.settings.shape.kernel(found.theta), found.noise
        policy = cast(Adaptive, _policy(self.settings, model.arms, kernel, noise, model.n_fitted))
        rewards = model.warp.reward(values)
        policy.resume(_history(observed, rewards), _history(observed[:n_drawn], rewards[:n_drawn]), kept)
        return replace(model, policy=policy)

    @property
    def kept(self) -> Kept | None:
        """What `resumed` needs beside the results; None for policies that cannot be resumed."""
        return self.policy.kept() if type(self.policy) is Adaptive else None

    def on(self, arms: Array, observed: Indices, values: Array, record: Record | None = None) -> "Model":
        """The same model of a table that has grown."""
        old, arms = self.policy, as_rows(arms)
        policy = _policy(self.settings, arms, old.kernel, old.regularization, self.n_fitted)
        _observe(policy, observed, self.warp.reward(values), record)
        return replace(self, arms=arms, policy=policy)

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


def _history(arms: Indices, rewards: Array) -> History:
    return History().add(*by_arm(arms, rewards, np.ones(len(arms))), len(arms))


def _observe(policy: Policy, arms: Indices, rewards: Array, record: Record | None) -> None:
    if record is not None and isinstance(policy, BKB):
        policy.repeat(arms, rewards, record.drawn)
    else:
        policy.observe(arms, rewards)


def _policy(settings: Settings, arms: Array, kernel: Kernel, regularization: float, number: int) -> Policy:
    seed = np.random.default_rng([settings.seed, number])
    options = {"regularization": regularization, "confidence": settings.confidence, "seed": seed, **settings.options}
    ours = isinstance(settings.policy, type) and issubclass(settings.policy, Policy)
    made: Policy = settings.policy(Checked(arms) if ours else arms, kernel, **options)
    return made
