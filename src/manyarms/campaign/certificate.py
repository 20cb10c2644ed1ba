"""What can be said of the recommended candidate now, and whether that is good enough to stop."""

from dataclasses import dataclass
from math import isclose, sqrt
from typing import Any

import numpy as np

from manyarms.bandit.maximisers import WHOLE
from manyarms.campaign.boxes import rival_rows
from manyarms.campaign.ledger import Outcomes
from manyarms.campaign.model import Campaign, Model, goes_on
from manyarms.campaign.predictions import is_exact, means_told, recommended_at
from manyarms.campaign.trials import FORECAST_WIDTH, CandidateId
from manyarms.checks import real
from manyarms.engine.confidence import Bayes, Guarantee, Promising
from manyarms.lapack import in_one_thread, special
from manyarms.typing import Array, Indices, Mask

SHARE_TRUE = 0.9
"""Share of the statements without a theorem that should be true: nine of ten, as they say."""
NEEDED = 20
"""Scored results that such a statement needs: of fewer than 19 scores not even the largest one
bounds the next with probability 95 %."""
WINDOW = 100
"""Scored results that count, the latest: what a model predicted long ago says little of it now."""
LARGEST_SCORE = 1e6
"""Largest score that counts: a bound made of it says nothing, and is still finite."""
POINTS = 10_000
"""Points that count as all others in a statement about a box, which may have infinitely many: as
many as a grid of ten levels in four dimensions."""


@dataclass(frozen=True)
class TrackRecord:
    """How the model's forecasts held: n results of candidates that it chose, the latest. While some
    candidates have no value, only the first value of each counts.

    A score is how far a result y lies above its forecast μ, in standard deviations s of results. A
    statement about candidates that were not tried fails where one of them is better than
    predicted, so only scores above 0 count for its width. With z⁺ = max((y − μ)/s, 0),

        scale² = max(1, 2·Σ(z⁺)²/n),    width = scale · t,    P(T > t) = (1 − LEVEL)/m,

    T being Student's with n degrees of freedom: were the scores Gaussian, 2(z⁺)² would have mean 1,
    and the scale itself is known from n scores only. The last one is the union bound over m others.
    """

    n: int
    n_inside: int  # inside their 95 % intervals
    scale: float

    @classmethod
    def of(cls, values: Array, forecasts: Array, sign: float) -> "TrackRecord":
        """Of values (n,) and forecasts (n, 3), in the user's units; sign is −1 to minimise."""
        values = values[-WINDOW:]
        forecasts = forecasts[-WINDOW:]
        if not len(values):
            return cls(0, 0, 1.0)
        mean, low, high = forecasts.T
        n_inside = int(((values >= low) & (values <= high)).sum())
        spread = (high - mean if sign > 0 else mean - low) / FORECAST_WIDTH
        above = sign * (values - mean) / np.maximum(spread, np.spacing(np.abs(mean)))
        scale = np.sqrt(2 * np.mean(np.square(np.clip(above, 0.0, LARGEST_SCORE))))
        return cls(len(values), n_inside, max(1.0, float(scale)))

    def width(self, n_others: int) -> float | None:
        """Standard deviations to either side; None until enough forecasts were tested."""
        if self.n < NEEDED:
            return None
        tail = (1 - SHARE_TRUE) / max(1, n_others)
        # The lower tail, turned: 1 − tail would round small tails away.
        return self.scale * -float(special.stdtrit(self.n, tail))

    def __str__(self) -> str:
        last = f"the last {self.n}" if self.n == WINDOW else str(self.n)
        results = "result" if self.n == 1 else "results"
        return f"{self.n_inside} of {last} {results} fell inside the 95 % interval predicted"


@dataclass(frozen=True)
class Certificate:
    """How much better than the recommended candidate another one may be: the best upper bound over
    the others minus its lower bound.

    Where a theorem covers that, it holds with `probability`. Elsewhere it is what the model
    expects among candidates like those tried: `level` is the share of such statements that are to
    be true, and none is made (`regret_bound` is None) before the model's forecasts were tested on
    enough results. No model can know of candidates that are unlike all those tried.
    """

    id: CandidateId
    estimate: float  # posterior mean of the recommended candidate, in the user's units
    low: float  # its interval, from which the bound is made
    high: float
    rival: CandidateId  # the other candidate of largest upper bound, itself where there is no other
    regret_bound: float | None  # no candidate is better than the recommended one by more
    probability: float | None  # that all of this holds; None: no theorem covers it
    level: float | None  # the same by the model's expectation; None: a theorem, or no statement
    reason: str  # what the probability rests on, or why there is none
    record: TrackRecord
    sketch_error: float | None  # θ: variances are exact within 1 + θ; None: not known
    effective_dimension: float
    n_results: int
    tolerance: float | None

    @property
    def reached(self) -> bool | None:
        """The regret bound is within the tolerance, where one was given; False where no statement
        is made."""
        if self.tolerance is None:
            return None
        return self.regret_bound is not None and self.regret_bound <= self.tolerance

    @property
    def _sketch(self) -> str:
        if self.sketch_error is None:
            return "how accurate the sketch is, is not known"
        if self.sketch_error < 0.01:
            return "the sketch is as good as exact"
        return f"the sketch is exact within a factor of {1 + self.sketch_error:.3g}"

    def __str__(self) -> str:
        return (
            f"Recommended: {self.id}, estimated {self.estimate:.4g} (between {self.low:.4g} and "
            f"{self.high:.4g}).\n{self.statement}\n{self.basis}"
        )

    @property
    def statement(self) -> str:
        """How much better another candidate may be, in words."""
        lines = self._rivals
        if self.tolerance is not None:
            verdict = "reached: one may stop" if self.reached else "not reached yet"
            lines.append(f"The tolerance of {self.tolerance:.4g} is {verdict}.")
        return "\n".join(lines)

    @property
    def _rivals(self) -> list[str]:
        if self.regret_bound is None:
            return [
                "The model has not been tested enough yet to say how much better another candidate "
                f"like those tried may be: {NEEDED} tested predictions of candidates without a "
                f"value are needed, there {'is' if self.record.n == 1 else 'are'} {self.record.n}.",
                *([f"{self.record}."] if self.record.n else []),
            ]
        bound = f"is better by more than {self.regret_bound:.4g}"
        rival = "" if self.rival == self.id else f"; the closest rival is {self.rival}"
        if self.probability is not None:
            return [
                f"No other candidate {bound}{rival}.",
                f"This holds with probability at least {self.probability:.3g}: {self.reason}.",
            ]
        widened = f", so its intervals are widened {self.record.scale:.3g} times"
        return [
            f"The model expects that among candidates like those tried no other {bound}{rival}.",
            "It cannot know of candidates that are unlike all of them.",
            f"Nine of ten such statements should be true. {self.record}"
            f"{widened if self.record.scale >= 1.005 else ''}.",
        ]

    @property
    def basis(self) -> str:
        """What the statement rests on, in the words of the model."""
        would = "would be" if self.regret_bound is None else "is"
        results = "result" if self.n_results == 1 else "results"
        size = f"From {self.n_results:,} {results}, {self.effective_dimension:.1f} effective "
        return "\n".join(
            [
                *([f"It {would} heuristic: {self.reason}."] if self.probability is None else []),
                f"{size}dimensions; {self._sketch}.",
            ]
        )


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
    if is_exact(campaign):
        measured = ledger.sign * means_told(campaign, np.array([best]))
        mean[:1] = low[:1] = high[:1] = measured
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


def _intervals(campaign: Campaign, arms: Indices, width: float) -> Array:
    """Middle and ends of μ̃ ± width·sd at some arms, (3, n), as signed values inside the bounds."""
    low, high = sorted(campaign.ledger.sign * end for end in campaign.model.settings.bounds)
    return np.clip(campaign.model.in_values(*campaign.model.predict(arms), width), low, high)


def _member(campaign: Campaign, arm: int) -> int:
    """The first candidate of an arm that may be better than the recommended one."""
    members = campaign.ledger.candidates.members(arm)
    return int(members[~_out(campaign)[members]][0])


def _out(campaign: Campaign) -> Mask:
    """Candidates that cannot be better than the recommended one: retired and failed ones, and tried
    ones if values are exact."""
    outcomes = campaign.ledger.outcomes
    return outcomes.out | (outcomes.counts > 0) if is_exact(campaign) else outcomes.out


def _no_rivals(campaign: Campaign, best: int) -> Mask:
    """(A,) arms that hold no candidate that may be better than the recommended one."""
    gone = campaign.ledger.arms_without(~_out(campaign))
    if not is_exact(campaign):
        gone[campaign.ledger.candidates.arm_of[best]] = True
    return gone


def accuracy(policy: Any) -> float | None:
    """θ = (η + √(η² + 4η))/2: every variance is exact within a factor 1 + θ (docs/theory.md).

    None for a sketch of which nothing is known.
    """
    if guarantee_of(policy) == "none":
        return None
    eta = float(policy.evidence.eta)  # statement 1 of docs/theory.md
    return (eta + sqrt(eta**2 + 4 * eta)) / 2


def guarantee_of(policy: Any) -> Guarantee:
    """What may be claimed of a posterior; "none" if the policy does not say."""
    guarantee: Guarantee = getattr(policy, "guarantee", "none")
    return guarantee


def _promise(campaign: Campaign, n_others: int) -> tuple[float | None, str]:
    """The probability that a statement about so many others holds, and what it rests on; or None,
    and why there is none."""
    if not n_others:
        return 1.0, "there is no other one left to try"
    model = campaign.model
    radius = model.settings.confidence
    why = _uncovered(model)
    if not isinstance(radius, Promising):
        return None, why or f"{radius!r} promises nothing over many candidates at once"
    why = why or _withdrawn(model, campaign.ledger.outcomes)
    if why:
        return None, why
    probability, reason = radius.promised(model.policy.evidence)
    box = campaign.ledger.candidates.box
    if probability is None:
        return None, reason
    if box is not None and box.size > WHOLE:
        why = "over a box the rival comes from a search that may miss the largest upper bound"
        return None, why
    if _is_told_together(campaign.ledger.outcomes):
        reason += ", and if what was told in one call was chosen before any of its values was seen"
    return probability, reason


def _uncovered(model: Model) -> str:
    """Why no theorem covers the intervals of a model, nothing where one does."""
    if model.settings.learns:
        same = "the kernel or the noise was learned from the same results"
        return f"{same}; give both to be covered by a theorem"
    if guarantee_of(model.policy) == "none":
        return f"no theorem here covers the intervals of {type(model.policy).__name__}"
    return ""


def _is_told_together(outcomes: Outcomes) -> bool:
    """Whether a call brought several results, and nobody had asked for one of them: it may have
    been chosen by the values of the others."""
    told = outcomes.entries.items[outcomes.with_value]
    _, call, sizes = np.unique(told["tell"], return_inverse=True, return_counts=True)
    return bool((told["known"][sizes[call] > 1] < 0).any())


def _withdrawn(model: Model, outcomes: Outcomes) -> str:
    """Why what happened, or the noise that was given, leaves no promise; nothing where they do."""
    if outcomes.is_changed:
        return "results, or types of columns, were changed or taken back when values were known"
    policy = model.policy
    if outcomes.has_grown and not goes_on(policy) and guarantee_of(policy) == "certified":
        return "the features were chosen anew when candidates were added to known results"
    noise, radius = model.settings.noise, model.settings.confidence
    # A noise that is too small to count is taken for a larger one.
    if isinstance(radius, Bayes) and not isclose(noise or 0.0, model.noise, rel_tol=1e-6):
        gaussian = "Bayes is proved for Gaussian noise of the standard deviation that the posterior"
        return f"{gaussian} assumes, which is {model.noise:g}, and that of the values is less"
    return ""
