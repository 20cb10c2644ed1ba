"""Between the user's values and a policy: units, the kernel learned from what was observed, and the
policy built on it.

A model is a value. Its policy sees rewards: values with the sign of the direction, warped and
centred (`warp`), as learned at the last refit. A refit builds a new policy from all that was
observed, in one step. Between refits, and where the kernel is given, the belief only ever goes on:
a table that grows changes nothing of it.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from manyarms.arms.array import Checked, as_rows
from manyarms.campaign.exploring import Exploration
from manyarms.campaign.fitting import (
    ARMS_OF_A_FIT,
    LEAST_NOISE_SHARE,
    NOISE_PRIOR,
    Fit,
    Shape,
    Summary,
    fit,
)
from manyarms.campaign.trials import Results
from manyarms.campaign.units import Warp
from manyarms.domains.policy import DomainBKB
from manyarms.engine.base import Record
from manyarms.engine.confidence import Promise, Radius
from manyarms.engine.frozen import Engine
from manyarms.engine.history import by_arm
from manyarms.engine.log import Log
from manyarms.engine.packing import Arrays, packed, unpacked
from manyarms.kernels import Kernel
from manyarms.policies.bkb import BKB
from manyarms.policies.checks import as_weights
from manyarms.policies.policy import Policy, Prediction, State
from manyarms.search.scores import KeepsScores
from manyarms.typing import Array, Indices, Mask

SURPRISE = 5.0
"""Refit at once when a reward beats the best one known at the last fit by this much: the scaling is
out of date."""
LEAST_NOISE_VARIANCE = 1e-10
"""Variance of the noise of a reward, at least, as a share of k(x, x): smaller noise counts as this
much, so that rounding stays harmless."""
LEAST_DEVIATION = 1e-100
"""Standard deviation of a noise that was told, at least: its inverse square is finite."""
SIZE_GROWTH = 1.05
"""A size is taken when there are so many times more results than at the last: the effective
dimension costs O(m³)."""


@dataclass(frozen=True)
class Schedule:
    """When a model is fitted anew, and in which units."""

    growth: float  # a refit comes when there are so many times more results than at the last
    thorough: float  # the same of refits that look for a kernel everywhere, not near the last one
    least_noise: float = LEAST_NOISE_SHARE  # variance of rewards
    noises: float = 0.0  # standard deviations of the noise in a unit, at least
    by_value: bool = False  # the policy takes arms as rows, not as numbers


TABLE = Schedule(growth=1.2, thorough=1.0)
"""Of a table: every refit looks everywhere."""
BOX = Schedule(growth=1.05, thorough=1.2, least_noise=1e-6, noises=10.0, by_value=True)
"""Of a box. Near a maximum differences are small parts of a unit, so the noise may be smaller. A
unit has ten standard deviations of it at least, while that is less than the standard deviation of
all means: the noise is itself learned in these units, and each would raise the other."""


@dataclass(frozen=True)
class Settings:
    """What does not change: how policies are made, and what is learned."""

    shape: Shape
    noise: float | None  # a standard deviation in the user's units; None: learned
    learns: bool  # False: the kernel is given in the user's units, as is the noise
    confidence: Radius
    policy: Any  # of (arms, kernel, regularization=…, confidence=…, seed=…)
    options: dict[str, Any]
    seed: int
    schedule: Schedule = TABLE
    bounds: tuple[float, float] = (-np.inf, np.inf)  # of true values, in the user's units
    exploration: Exploration | None = None


@dataclass(frozen=True)
class Lesson:
    """What was decided when a model learned. Given back, the same step is taken and nothing is
    decided."""

    record: Record | None = None  # which arms entered W; None where the policy does not say
    fitted: Fit | None = None
    warp: Warp | None = None  # of the fit
    n_thorough: int = 0  # results at the last fit that looked everywhere, that one included

    def __bool__(self) -> bool:
        entered = self.record is not None and len(self.record.entered) > 0
        return entered or self.fitted is not None


NOTHING = Lesson(Record.nothing())
"""A step in which no arm entered W and nothing was fitted."""


class Size(NamedTuple):
    """How large a sketch was."""

    n_results: int
    n_inducing: int
    effective_dimension: float


class Fitted(NamedTuple):
    """A fit of some time ago."""

    found: Fit
    warp: Warp
    n_results: int  # then
    n_thorough: int  # results at the last fit that looked everywhere, then


class Past(NamedTuple):
    """All results up to some step, and what the log says of the steps since the last fit, that one
    included."""

    results: Results  # (n,) each
    steps: Indices  # (n,) the number of the step that brought each, never falling
    entered: dict[int, Indices]  # by that number, positions among the different arms of the step


@runtime_checkable
class Recording(Protocol):
    """A policy that says what it decides."""

    @property
    def belief(self) -> Any:
        """What is known of f."""

    def observe(
        self, arms: Any, rewards: Array, *, noise: Any = None, record: Record | None = None
    ) -> Record:
        """Learn rewards; returns which arms entered W, or takes that as it was decided before."""


@runtime_checkable
class Tabular(Protocol):
    """A policy over a table that says what it decides, and can go on over a table that grew."""

    @property
    def belief(self) -> Any:
        """What is known of f."""

    @property
    def arms(self) -> Any:
        """The rows of the table."""

    def observe(
        self, arms: Indices, rewards: Array, *, noise: Any = None, record: Record | None = None
    ) -> Record:
        """Learn rewards; returns which arms entered W, or takes that as it was decided before."""

    def predict(self, *, arms: Indices) -> Prediction:
        """Posterior mean and standard deviation of f at some arms."""

    def highest(self, *, exclude: Mask, beta: float) -> int:
        """The arm of largest upper bound with this radius that is not excluded."""

    def leading(self, k: int, *, exclude: Mask) -> Indices:
        """The k arms of largest posterior mean that are not excluded, best first."""

    def surest(self, arms: Indices) -> int:
        """Of some arms, the one of largest lower bound."""

    def over(self, arms: Checked) -> "Tabular":
        """The same policy over another table."""


@dataclass(frozen=True)
class Model:
    """A policy, and the units it works in."""

    settings: Settings
    arms: Array  # (A, d), checked
    policy: Any  # a Policy, or another class with its methods
    warp: Warp  # from signed values to rewards
    fitted: Fit | None
    n_results: int = 0  # values it has seen
    n_fitted: int = 0  # results at the last fit
    n_thorough: int = 0  # results at the last fit that looked everywhere
    highest: float = 0.0  # the largest reward at the last fit
    lesson: Lesson = NOTHING  # of the last step
    is_remade: bool = False  # the policy was made when some of its results were known

    @classmethod
    def prior(cls, settings: Settings, arms: Array | Checked) -> "Model":
        """Nothing observed."""
        arms = as_rows(arms)
        kernel = settings.shape.kernel(settings.shape.prior[0])
        noise = np.exp(NOISE_PRIOR[0])
        if not settings.learns and settings.noise is not None:
            some = arms[:1] if len(arms) else np.zeros((1, arms.shape[1]))
            noise = max(settings.noise**2, LEAST_NOISE_VARIANCE * float(kernel.diag(some).max()))
        policy = _policy(settings, arms, kernel, noise, 0)
        return cls(settings, arms, policy, Warp.identity(), None)

    def is_stale(self, n_results: int) -> bool:
        """So many results are more than at the last fit, by enough to fit anew."""
        grown = int(self.settings.schedule.growth * self.n_fitted)
        return self.settings.learns and n_results >= max(self.n_fitted + 1, grown)

    def is_surprised(self, values: Array) -> bool:
        """One of these values is far better than all of the last fit; far worse ones are held at
        the floor of the warp."""
        return (
            self.settings.learns and float(self.warp.reward(values).max()) > self.highest + SURPRISE
        )

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
    def _variance(self) -> float:
        """ξ² of the policy; λ is another number only where the user gave one."""
        return (
            self.noise**2
            if "regularization" in self.settings.options
            else float(self.policy.regularization)
        )

    def told(
        self,
        arms: Indices,
        values: Array,
        noise: Array,
        results: Callable[[], Results],
        lesson: Lesson | None = None,
        *,
        may_wait: bool = False,
    ) -> "Model":
        """The model after these results, fitted anew where that is due; `results` gives all there
        are, these included.

        With the lesson of a step that was taken before, the same step is taken: nothing is fitted
        or decided. With `may_wait` only a surprise has it fitted anew.
        """
        if lesson is not None:
            if lesson.fitted is not None and lesson.warp is not None:
                return self.refitted_as(
                    lesson.fitted, lesson.warp, lesson.n_thorough, *results(), lesson.record
                )
            return self.observed(arms, values, noise, lesson.record)
        # Fit anew, or go on: what was fitted keeps its units until the next fit.
        n = self.n_results + len(arms)
        is_due = not may_wait and self.is_stale(n)
        if not is_due and not self.is_surprised(values):
            return self.observed(arms, values, noise)
        thorough = not is_due or n >= self.settings.schedule.thorough * self.n_thorough
        model = self if len(arms) > self.n_results else self.observed(arms, values, noise)
        return model.refitted(*results(), thorough=thorough)

    def observed(
        self, arms: Indices, values: Array, noise: Array, record: Record | None = None
    ) -> "Model":
        """The model after these results, in the same units: nothing is fitted. `noise` is NaN where
        none was told."""
        policy = copy(self.policy)  # states are values: the original stays as it was
        decided = self._observe(
            policy, arms, self.warp.reward(values), self._noise(policy, self.warp, noise), record
        )
        n_results = self.n_results + len(arms)
        return replace(self, policy=policy, n_results=n_results, lesson=Lesson(decided))

    def _observe(
        self,
        policy: Any,
        arms: Indices,
        rewards: Array,
        noise: dict[str, Any],
        record: Record | None,
    ) -> Record | None:
        """Let the policy observe; returns what it decided, where it says so."""
        by_value = self.settings.schedule.by_value
        given: Any = self.arms[arms] if by_value else arms
        if not isinstance(policy, Recording if by_value else Tabular):
            policy.observe(given, rewards, **noise)
            return None
        return policy.observe(given, rewards, record=record, **noise)

    def _units(self, means: Array, best: float) -> Warp:
        """From the mean values of distinct arms to rewards; `best` is the best single value."""
        noises = self.settings.schedule.noises
        noise = self.noise / self.warp.slope if self.fitted else 0.0
        return Warp.half_log(means, best, min(noises * noise, float(np.std(means))))

    def refitted(
        self, arms: Indices, values: Array, noise: Array, *, thorough: bool = True
    ) -> "Model":
        """Kernel, noise and units learned from all results (n,), and a policy made of them."""
        found, warp = self.learned(arms, values, noise, thorough=thorough)
        n_thorough = len(values) if thorough else self.n_thorough
        return self.refitted_as(found, warp, n_thorough, arms, values, noise)

    def learned(
        self, arms: Indices, values: Array, noise: Array, *, thorough: bool = True
    ) -> tuple[Fit, Warp]:
        """Kernel, noise and units for all results (n,); where not `thorough`, a kernel near the
        last one."""
        told = ~np.isnan(noise)
        weights = np.where(
            told, 1 / np.square(np.where(told, np.maximum(noise, LEAST_DEVIATION), 1.0)), 1.0
        )
        keys, at = np.unique(
            2 * arms + told, return_inverse=True
        )  # results with and without a noise apart
        distinct, known, total = (
            keys // 2,
            keys % 2 == 1,
            np.bincount(at, weights).astype(np.float64),
        )
        warp = self._units(np.bincount(at, weights * values) / total, float(values.max()))
        rewards = warp.reward(values)
        means = np.bincount(at, weights * rewards) / total
        within = float(np.square(rewards - means[at])[~told].sum())
        evidence = Summary(
            self.arms[distinct],
            means,
            np.where(known, np.inf, total),
            within,
            float((~told).sum() - (~known).sum()),
            np.where(known, np.square(warp.noise(1 / np.sqrt(total))), 0.0),
        )
        if len(distinct) > ARMS_OF_A_FIT:
            weight = total * np.where(known, self.noise**2 / warp.slope**2, 1.0)
            evidence = evidence.some(self._spread(distinct, weight))
        sd = self.settings.noise
        known_noise = None if sd is None else float(warp.noise(sd)) ** 2
        start = None
        if self.fitted and len(self.fitted.theta) == len(self.settings.shape.bounds):
            start = self.fitted.start  # a study may hold fits of another family of kernels
        least = self.settings.schedule.least_noise
        found = fit(
            self.settings.shape,
            evidence,
            noise=known_noise,
            start=start,
            least=least,
            thorough=thorough,
        )
        return found, warp.shifted(found.mean)

    def refitted_as(
        self,
        found: Fit,
        warp: Warp,
        n_thorough: int,
        arms: Indices,
        values: Array,
        noise: Array,
        record: Record | None = None,
    ) -> "Model":
        """The model with what was learned of all results (n,), and a policy made of them."""
        kernel = found.scale * self.settings.shape.kernel(found.theta)
        policy = _policy(self.settings, self.arms, kernel, found.noise, len(values))
        rewards = warp.reward(values)
        decided = self._observe(policy, arms, rewards, self._noise(policy, warp, noise), record)
        return replace(
            self,
            policy=policy,
            warp=warp,
            fitted=found,
            n_results=len(values),
            n_fitted=len(values),
            n_thorough=n_thorough,
            highest=float(rewards.max()),
            lesson=Lesson(decided, found, warp, n_thorough),
        )

    def on(self, arms: Array, observed: Indices, values: Array, noise: Array) -> "Model":
        """The same model of a table that has grown; the results are needed where a belief is bound
        to its table."""
        rows = as_rows(arms)
        old = self.policy
        # W does not depend on the table: the belief goes on over another one as it is.
        if isinstance(old, Tabular) and not isinstance(old.belief, KeepsScores):
            return replace(self, arms=rows, policy=old.over(Checked(rows)), lesson=NOTHING)
        policy = _policy(self.settings, rows, old.kernel, self._variance, self.n_fitted)
        if len(values):
            self._observe(
                policy,
                observed,
                self.warp.reward(values),
                self._noise(policy, self.warp, noise),
                None,
            )
        remade = self.is_remade or len(values) > 0
        return replace(self, arms=rows, policy=policy, lesson=NOTHING, is_remade=remade)

    # Snapshots

    def packed(self) -> tuple[Arrays, float | None] | None:
        """The belief as arrays, and the guess of the norm; None for policies of which `resumed`
        makes nothing."""
        policy = self.policy
        if type(policy) is DomainBKB:
            # Points are not told apart by rounding, as those of a table are: nothing is rounded.
            arrays = packed(policy.belief, folded=False)
            numbers = {row.tobytes(): i for i, row in enumerate(policy.as_told(self.arms))}
            keys = [numbers[row.tobytes()] for row in policy.belief.W]
            return {**arrays, "keys": np.array(keys, dtype=np.intp)}, policy.evidence.norm
        if type(policy) is not BKB or not isinstance(policy.belief, Engine):
            return None
        return packed(policy.belief), policy.evidence.norm

    def resumed(
        self, arms: Array, fitted: Fitted | None, past: Past, arrays: Arrays, norm: float | None
    ) -> "Model":
        """The model that `packed` was taken of, made of the prior; no result is observed again."""
        told, values, _ = past.results
        model = replace(self, arms=as_rows(arms), n_results=len(values))
        kernel = self.policy.kernel
        variance = self._variance
        if fitted is not None:
            found, warp, n, n_thorough = fitted
            highest = float(warp.reward(values[:n]).max())
            model = replace(
                model,
                fitted=found,
                warp=warp,
                n_fitted=n,
                n_thorough=n_thorough,
                highest=highest,
            )
            kernel = found.scale * self.settings.shape.kernel(found.theta)
            variance = found.noise
        policy = _policy(self.settings, model.arms, kernel, variance, model.n_fitted)
        rows = model.arms[arrays["keys"]].astype(np.float64, copy=False)
        prior = policy.belief
        if not isinstance(prior, Engine):
            raise ValueError(f"it is of frozen features, the policy has {type(prior).__name__}")
        if type(policy) is DomainBKB:
            by_value = {**arrays, "keys": np.full(len(rows), -1)}
            belief = unpacked(prior, by_value, policy.as_told(rows))
            rewards = model.warp.reward(values)
            noise = model._noise(policy, model.warp, past.results[2])
            return replace(
                model, policy=policy.resumed(belief, norm, model.arms[told], rewards, **noise)
            )
        belief = unpacked(prior, arrays, rows)
        return replace(
            model, policy=policy.resumed(State(belief, model._log(policy, past), len(values), norm))
        )

    def _log(self, policy: Policy, past: Past) -> Log:
        """What a policy had observed: the results of each step by arm, and |W| at each."""
        arms, values, noise = past.results
        told = self._noise(policy, self.warp, noise).get("noise")
        weights = as_weights(told, len(values), policy.noise**2)
        n_arms = policy.n_arms
        keys, rewards, totals = by_arm(
            past.steps * n_arms + arms, self.warp.reward(values), weights
        )
        starts = np.searchsorted(keys // n_arms, np.arange(past.steps[-1] + 1))
        has_entered = np.zeros(len(keys), dtype=np.intp)
        for step, positions in past.entered.items():
            has_entered[starts[step] + positions] = 1
        return Log().added(keys % n_arms, np.cumsum(has_entered), totals, rewards)

    def _noise(self, policy: Any, warp: Warp, noise: Array) -> dict[str, Any]:
        """What `observe` is told of the noise of rewards: the policy's own where a result came
        without."""
        if np.isnan(noise).all():
            return {}
        own = float(getattr(policy, "noise", np.sqrt(policy.regularization)))
        told = warp.noise(noise) if self.settings.learns else np.maximum(noise, 1e-4 * own)
        return {"noise": np.where(np.isnan(noise), own, told)}

    def noise_of(self, noise: Array) -> Array:
        """Standard deviations of rewards, of those told of values (n,); where NaN the policy's."""
        told = self._noise(self.policy, self.warp, noise).get("noise")
        return np.full(len(noise), self.noise) if told is None else np.asarray(told)

    def predict(self, arms: Indices) -> Prediction:
        """Mean and standard deviation of the rewards of some arms."""
        # Rows may be predicted that are not in the table of the policy (`predict_rows`).
        if isinstance(self.policy, Tabular) and len(self.policy.arms) == len(self.arms):
            return self.policy.predict(arms=arms)
        predicted: Prediction = self.policy.predict(self.arms[arms])
        return predicted

    def surest(self, arms: Indices) -> int:
        """Of some arms, the one of largest lower bound."""
        if isinstance(self.policy, Tabular):
            return self.policy.surest(arms)
        mean, std = self.predict(arms)
        return int(arms[np.argmax(mean - self.radius * std)])

    def interval(self, arms: Indices, width: float) -> tuple[Array, Array, Array]:
        """Middle and ends of μ̃ ± width·sd at some arms, as signed values."""
        return self.in_values(*self.predict(arms), width)

    def in_values(self, mean: Array, std: Array, width: float) -> tuple[Array, Array, Array]:
        """The same of predicted rewards."""
        value = self.warp.value
        return value(mean), value(mean - width * std), value(mean + width * std)

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

    def _spread(self, distinct: Indices, counts: Array) -> Indices:
        """MOST of the arms, drawn by their leverage n·σ̃² without replacement."""
        _, std = self.policy.predict(self.arms[distinct])
        rng = np.random.default_rng([self.settings.seed, len(distinct)])
        # The k largest of ln p + Gumbel noise are a draw without replacement by p (Efraimidis and
        # Spirakis 2006).
        with np.errstate(divide="ignore"):
            keys = np.log(counts * np.square(std)) + rng.gumbel(size=len(distinct))
        return np.sort(np.argsort(-keys)[:ARMS_OF_A_FIT])


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
    takes_checked = isinstance(settings.policy, type) and hasattr(settings.policy, "over")
    return settings.policy(Checked(arms) if takes_checked else arms, kernel, **options)


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


def is_size_due(n_results: int, last: int) -> bool:
    """Whether to look at the size after so many results, `last` being those of the last time."""
    return n_results >= max(last + 1, SIZE_GROWTH * last)


def with_now(sizes: Sequence[Size], model: Model) -> list[Size]:
    """The sizes that were taken, and that of now."""
    if model.n_results and (not sizes or sizes[-1].n_results < model.n_results):
        return [*sizes, model.size]
    return list(sizes)
