"""Between the user's values and a policy: units, the kernel learned from what was observed, and the
policy built on it.

A model is a function of the results (`learn`). Its policy sees rewards: values with the sign of the
direction, warped and centred, as learned at the last fit. The results up to a fit are observed in
one step, later ones in the order told, one `tell` at a time; where the kernel is given, all of
them. A model of the first results goes on from there, and is the same, bit by bit, as one that
learns all from nothing.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from manyarms.bandit.policy import Policy, Prediction
from manyarms.campaign.fitting import NOISE_PRIOR, Fit, Fitted, fitted
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.results import Plan, Results, Warp, elsewhere
from manyarms.campaign.settings import Settings
from manyarms.campaign.trials import as_noise, as_told
from manyarms.checks import Checked
from manyarms.engine.confidence import Promise, Radius
from manyarms.engine.own import Owned
from manyarms.kernels import Kernel
from manyarms.lapack import in_one_thread
from manyarms.search.scores import KeepsScores
from manyarms.space.points import Space
from manyarms.typing import Array, Indices, Mask

REPEATED = 8
"""Results of candidates that had one before from which noise is told apart from what a candidate
has of its own."""
LEAST_NOISE_VARIANCE = 1e-10
"""Variance of the noise of a reward, at least, as a share of k(x, x): smaller noise counts as this
much, so that rounding stays harmless."""


class Size(NamedTuple):
    """How large a sketch is."""

    n_results: int
    n_inducing: int
    effective_dimension: float


@dataclass(frozen=True)
class Model:
    """A policy, the units it works in, and the results that both are a function of."""

    settings: Settings
    arms: Array  # (A, d), checked
    policy: Any  # a Policy, or another class with its methods
    results: Results
    plan: Plan
    thorough: Fitted | None = None  # the last fit that looked everywhere
    last: Fitted | None = None  # the last fit
    elsewhere: "Model | None" = None  # of later results only: it chooses, while there is one

    @property
    def n_results(self) -> int:
        """Values it has learned from."""
        return len(self.results.values)

    @property
    def fitted(self) -> Fit | None:
        """What the last fit found, None before the first."""
        return self.last.found if self.last else None

    @property
    def warp(self) -> Warp:
        """From signed values to rewards."""
        return self.last.warp if self.last else IDENTITY

    @property
    def noise(self) -> float:
        """ξ of the policy, a standard deviation of rewards."""
        return float(getattr(self.policy, "noise", np.sqrt(self.policy.regularization)))

    @property
    def kernel(self) -> Kernel:
        """The kernel as it is known now, but for its scale."""
        shape = self.settings.shape
        return shape.kernel(self.fitted.theta if self.fitted else shape.prior[0])

    @property
    def is_drawing(self) -> bool:
        """Whether it has too few results to choose by: candidates are drawn at random."""
        settings = self.settings
        return settings.learns and len(self.results.values) < settings.schedule.start

    @property
    def worst(self) -> float:
        """The least reward there is."""
        return float(self.warp.reward(self.results.values).min())

    def begins(self, arms: Array, results: Results) -> bool:
        """Whether it is of the first of these results, at the same rows."""
        tried = self.results.arms
        return self.results.begin(results) and (
            arms is self.arms or np.array_equal(arms[tried], self.arms[tried])
        )

    def going_on(self, arms: Array) -> "Model | None":
        """The same over a table that may have grown; None where its policy is bound to its own."""
        if self.settings.box or len(arms) == len(self.arms):
            return replace(self, arms=arms)
        if not goes_on(self.policy):
            return None
        return replace(self, arms=arms, policy=self.policy.over(Checked(arms)))

    def observed(self, results: Results, ends: Sequence[int]) -> "Model":
        """After more of all results, in the same units: one step up to each of these ends."""
        if not len(ends):
            return self
        known = len(self.results.values)
        results = results.at(slice(ends[-1]))
        new = results.at(slice(known, None))
        warp = self.last.warp if self.last else IDENTITY
        rewards = warp.reward(new.values)
        arms: Any = self.arms[new.arms] if self.settings.box else new.arms
        policy = copy(self.policy)  # states are values: the original stays as it was
        start = 0
        for end in ends:
            step = slice(start, end - known)
            policy.observe(arms[step], rewards[step], **self.noises(policy, new.noise[step]))
            start = end - known
        return replace(self, policy=policy, results=results)

    def noises(self, policy: Any, noise: Array) -> dict[str, Any]:
        """What `observe` is told of the noise of rewards: the policy's own where a result came
        without."""
        if np.isnan(noise).all():
            return {}
        own = float(getattr(policy, "noise", np.sqrt(policy.regularization)))
        told = self.warp.noise(noise) if self.settings.learns else np.maximum(noise, 1e-4 * own)
        return {"noise": np.where(np.isnan(noise), own, told)}

    def noise_of(self, noise: Array) -> Array:
        """Standard deviations of rewards, of those told of values (n,); where NaN the policy's."""
        told = self.noises(self.policy, noise).get("noise")
        return np.full(len(noise), self.noise) if told is None else np.asarray(told)

    def predict(self, arms: Indices) -> Prediction:
        """Mean and standard deviation of the rewards of some arms."""
        # Rows may be predicted that are not in the table of the policy (`predict_rows`).
        if isinstance(self.policy, Policy) and len(self.policy.arms) == len(self.arms):
            return self.policy.predict(arms=arms)
        predicted: Prediction = self.policy.predict(self.arms[arms])
        return predicted

    def shared(self, arms: Indices) -> Prediction | None:
        """The same if all that neighbours do not explain is noise. None where that is known not to
        be so: noise was told, or values of candidates that came again tell it."""
        belief = getattr(self.policy, "belief", None)
        results = self.results
        is_told = self.settings.noise is not None or not np.isnan(results.noise).all()
        n_again = len(results.arms) - len(np.unique(results.arms))
        if is_told or n_again >= REPEATED or not isinstance(belief, Owned):
            return None
        rows = self.arms[arms]
        mean, variance = belief.base.moments(rows, belief.base.kernel.diag(rows))
        return Prediction(mean, np.sqrt(self.regularization * variance))

    def surest(self, arms: Indices) -> int:
        """Of some arms, the one of largest lower bound."""
        if isinstance(self.policy, Policy):
            return self.policy.surest(arms)
        mean, std = self.predict(arms)
        return int(arms[np.argmax(mean - self.radius * std)])

    def leading(self, k: int, gone: Mask) -> Indices:
        """The k arms of largest posterior mean outside the mask `gone`, best first."""
        if isinstance(self.policy, Policy):
            return self.policy.leading(k, exclude=gone)
        means = self.predict(np.arange(len(self.arms))).mean
        order = np.argsort(np.where(gone, np.inf, -means), kind="stable")
        return np.asarray(order[: min(k, int((~gone).sum()))])

    def highest(self, width: float, gone: Mask) -> int:
        """The arm of largest upper bound, μ̃ + width·sd, outside the mask `gone`, however the policy
        chooses."""
        if isinstance(self.policy, Policy):
            beta = width * float(np.sqrt(self.regularization))
            return self.policy.highest(exclude=gone, beta=beta)
        mean, std = self.predict(np.arange(len(self.arms)))
        return int(np.argmax(np.where(gone, -np.inf, mean + width * std)))

    def in_values(self, mean: Array, std: Array, *widths: float) -> Array:
        """Predicted rewards as signed values: the mean, and for each width the ends of
        μ̃ ± width·sd, (1 + 2 widths, n)."""
        steps = [0.0, *(end * width for width in widths for end in (-1.0, 1.0))]
        return self.warp.value(mean + np.multiply.outer(steps, std))

    @property
    def size(self) -> Size:
        """Of the sketch now; of a policy without one, the different arms observed are counted."""
        inducing = getattr(self.policy, "inducing", None)
        n = np.count_nonzero(self.policy.counts) if inducing is None else len(inducing)
        return Size(self.n_results, int(n), float(self.policy.effective_dimension))

    @property
    def regularization(self) -> float:
        """λ of the policy: a standard deviation of f is √λσ̃."""
        return float(self.policy.regularization)

    @property
    def radius(self) -> float:
        """β̃ in standard deviations of f."""
        return float(self.policy.beta / np.sqrt(self.regularization))


def goes_on(policy: Any) -> bool:
    """Whether a policy goes on over a table that grew as it is: W does not depend on the table, but
    some beliefs do."""
    return isinstance(policy, Policy) and not isinstance(policy.belief, KeepsScores)


NO_RESULTS = Results.at_once(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))
IDENTITY = Warp.identity()


@in_one_thread
def learn(settings: Settings, arms: Array, results: Results, before: Model | None = None) -> Model:
    """The model of these results over a table (A, d), or over the points known of a box.

    A model of before only saves work.
    """
    if before is not None and not (before.settings is settings and before.begins(arms, results)):
        before = None
    plan = Plan()
    if settings.learns:
        plan = (before.plan if before else plan).after(results, settings.schedule)
    ends = results.ends
    model = None
    if before is not None and before.plan.fitted == plan.fitted:
        model = before.going_on(arms)
    if model is None:
        model = _begun(settings, arms, results, plan, before)
    model = model.observed(results, ends[ends > len(model.results.values)].tolist())
    other = None
    if plan.elsewhere is not None:
        other = before.elsewhere if before else None
        there = replace(settings, schedule=replace(settings.schedule, patience=None))
        later = elsewhere(results, plan.elsewhere)
        other = learn(other.settings if other else there, arms, later, other)
    return replace(model, plan=plan, elsewhere=other)


def _begun(
    settings: Settings, arms: Array, results: Results, plan: Plan, before: Model | None
) -> Model:
    """The model at its last fit; before any, one that has observed nothing."""
    n = plan.fitted
    if not n:
        return made(settings, arms, plan)
    fitted_to = partial(
        fitted,
        settings.shape,
        arms,
        noise=settings.noise,
        schedule=settings.schedule,
        seed=settings.seed,
    )
    if before is not None and before.plan.thorough == plan.thorough:
        thorough = before.thorough
    else:
        thorough = fitted_to(results.at(slice(plan.thorough)))
    last = thorough if n == plan.thorough else fitted_to(results.at(slice(n)), near=thorough)
    return made(settings, arms, plan, last, thorough).observed(results, [n])


def made(
    settings: Settings,
    arms: Array,
    plan: Plan,
    last: Fitted | None = None,
    thorough: Fitted | None = None,
) -> Model:
    """A model with these fits, which has observed nothing."""
    if last is not None:
        kernel = last.found.scale * settings.shape.kernel(last.found.theta)
        noise = last.found.noise
    else:
        kernel = settings.shape.kernel(settings.shape.prior[0])
        noise = np.exp(NOISE_PRIOR[0])
        if not settings.learns and settings.noise is not None:
            some = arms[:1] if len(arms) else np.zeros((1, arms.shape[1]))
            noise = max(settings.noise**2, LEAST_NOISE_VARIANCE * float(kernel.diag(some).max()))
    policy = _policy(settings, arms, kernel, noise, plan.fitted)
    return Model(settings, arms, policy, NO_RESULTS, plan, thorough, last)


def _policy(
    settings: Settings, arms: Array, kernel: Kernel, regularization: float, number: int
) -> Any:
    options = {
        "regularization": regularization,
        "confidence": _radius(settings, regularization),
        "seed": np.random.default_rng([settings.seed, number]),
        **settings.options,
    }
    if not settings.learns and "regularization" in settings.options:
        options["noise"] = float(
            np.sqrt(regularization)
        )  # λ is the user's, ξ is that of the values all the same
    make = settings.policy
    takes_checked = isinstance(make, type) and issubclass(make, Policy)
    where = settings.box or (Checked(arms) if takes_checked else arms)
    return make(where, kernel, **options)


def _radius(settings: Settings, variance: float) -> Radius:
    """The radius, for noise of the rewards' variance: where units are learned, or where the noise
    told is too small to count.

    Noise that is less than a radius is made for is covered by it.
    """
    radius = settings.confidence
    noise = float(np.sqrt(variance))
    if isinstance(radius, Promise) and (settings.learns or radius.noise == settings.noise):
        return replace(radius, noise=noise)
    return radius


@dataclass(frozen=True)
class Campaign:
    """A search at one moment, as a value: everything that happens makes another one."""

    ledger: Ledger
    model: Model

    @classmethod
    def begun(cls, space: Space, settings: Settings) -> "Campaign":
        """A search in which nothing was asked for yet."""
        ledger = Ledger.begun(space, settings.given)
        return cls(ledger, learn(settings, space.X, ledger.results))

    def knowing(self, ledger: Ledger) -> "Campaign":
        """The same search with these books. They may name more candidates."""
        if ledger.candidates is self.ledger.candidates:
            return replace(self, ledger=ledger)
        return Campaign(ledger, replace(self.model, arms=ledger.candidates.X))

    def with_points(self, points: Any) -> "Campaign":
        """The same search over a box, of which these points are known too."""
        return self.knowing(self.ledger.knowing(points)[0])

    def learned(self, ledger: Ledger) -> "Campaign":
        """The search with these books, from which the model has learned."""
        model = self.model
        return Campaign(ledger, learn(model.settings, ledger.candidates.X, ledger.results, model))

    def told(self, ids: Any, values: Any, failed: Any, noise: Any) -> "Campaign":
        """The search after these results, given as for `Optimizer.tell`."""
        known, positions = self.ledger.knowing(ids)
        told = as_told(values, failed, len(positions))
        deviations = as_noise(noise, len(positions))
        known.check_once(positions, told)
        ledger = known.told(positions, told, deviations)
        if all(value is None for value in told):
            return self.knowing(ledger)  # failures count when the next is chosen
        return self.learned(ledger)

    def with_results(self, n_known: int = 0) -> "Campaign":
        """The search after the results in the tables of candidates; the first `n_known` are known
        already."""
        results = self.ledger.candidates.results[n_known:]
        if not results:
            return self
        values = [each.value for each in results]
        failed = [value is None for value in values]
        return self.told([each.id for each in results], values, failed, None)
