"""What can be promised of the recommended candidate now, and whether that is good enough to
stop."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from manyarms.campaign.model import Model
from manyarms.campaign.trials import CandidateId
from manyarms.sketch.confidence import Bayes, Guarantee, Promise, Radius, TheoremTwo
from manyarms.sketch.dictionary import oversampling_for


@dataclass(frozen=True)
class Certificate:
    """An upper bound on the regret of the recommended candidate: the best upper bound over the pool
    minus its lower bound."""

    id: CandidateId
    estimate: float  # posterior mean of the recommended candidate, in the user's units
    low: float  # its interval, from which the bound is made
    high: float
    rival: CandidateId  # the other candidate of largest upper bound, itself where there is no other
    regret_bound: float  # no candidate is better than the recommended one by more
    probability: float | None  # that all of this holds; None: heuristic
    reason: str  # what the probability rests on, or why there is none
    sketch_error: float | None  # θ: variances are exact within 1 + θ; None: not known
    effective_dimension: float
    n_results: int
    tolerance: float | None

    @property
    def reached(self) -> bool | None:
        """The regret bound is within the tolerance, where one was given."""
        return None if self.tolerance is None else self.regret_bound <= self.tolerance

    @property
    def _sketch(self) -> str:
        if self.sketch_error is None:
            return "how accurate the sketch is, is not known"
        if self.sketch_error < 0.01:
            return "the sketch is as good as exact"
        return f"the sketch is exact within a factor of {1 + self.sketch_error:.3g}"

    def __str__(self) -> str:
        lines = [
            f"Recommended: {self.id}, estimated {self.estimate:.4g} (between {self.low:.4g} and "
            f"{self.high:.4g}).",
            f"No other candidate is better by more than {self.regret_bound:.4g}; the closest "
            f"rival is {self.rival}.",
        ]
        if self.probability is None:
            lines.append(f"This is heuristic: {self.reason}.")
        else:
            lines.append(
                f"This holds with probability at least {self.probability:.3g}: {self.reason}."
            )
        results = "result" if self.n_results == 1 else "results"
        lines.append(
            f"From {self.n_results:,} {results}, {self.effective_dimension:.1f} effective "
            f"dimensions; {self._sketch}."
        )
        if self.tolerance is not None:
            verdict = "reached: one may stop" if self.reached else "not reached yet"
            lines.append(f"The tolerance of {self.tolerance:.4g} is {verdict}.")
        return "\n".join(lines)


PROOFS: dict[Guarantee, str] = {
    "exact": "the posterior is exact, and its confidence bound holds at all steps at once",
    "certified": "features are frozen when seen, so the confidence bound of the sketch holds",
    "theorem 1": "all results are seen through one dictionary, and the radius pays for the rest",
}
"""Why a radius holds, by what is known of the posterior."""


def accuracy(policy: Any) -> float | None:
    """θ = (η + √(η² + 4η))/2: every variance is exact within a factor 1 + θ (docs/theory.md).

    None for a sketch of which nothing is known.
    """
    if guarantee_of(policy) == "none":
        return None
    eta = float(policy.evidence.eta)  # statement 1 of docs/theory.md
    return (eta + sqrt(eta**2 + 4 * eta)) / 2


def guarantee_of(policy: Any) -> Guarantee:
    """What may be claimed of a posterior; nothing where the policy does not say."""
    guarantee: Guarantee = getattr(policy, "guarantee", "none")
    return guarantee


def promise(model: Model) -> tuple[float | None, str]:
    """The probability behind the intervals and what it rests on; or None and why."""
    radius = model.settings.confidence
    policy = model.policy
    guarantee = guarantee_of(policy)
    doubt = _doubt(model, radius, guarantee)
    if doubt is not None or not isinstance(radius, Bayes | Promise):
        return None, doubt or f"{radius!r} promises nothing over many candidates at once"
    if isinstance(radius, Bayes):
        draw = "if f is a draw of the Gaussian process with this kernel (Srinivas et al. 2010)"
        return 1 - radius.delta, draw
    conditions = f"if ‖f‖ ≤ {radius.norm:g} and the noise is {radius.noise:g}-sub-Gaussian"
    if isinstance(radius, TheoremTwo) and guarantee == "theorem 1":
        return _theorem_two(radius, policy.rule.oversampling, model.n_results, conditions)
    return 1 - radius.delta, f"{PROOFS[guarantee]}, {conditions}"


def _doubt(model: Model, radius: Radius, guarantee: Guarantee) -> str | None:
    """Why no theorem covers the intervals, None where one may."""
    if model.settings.learns:
        same = "the kernel or the noise was learned from the same results"
        return f"{same}; give both to be covered by a theorem"
    if guarantee == "none":
        return f"no theorem here covers the intervals of {type(model.policy).__name__}"
    if isinstance(radius, Bayes) and guarantee != "exact":
        return "Bayes is proved for the exact posterior, and this one is a sketch"
    if isinstance(radius, Promise) and radius.double:
        return "the norm of f is a guess, and one that was never refuted may still be too small"
    return None


def _theorem_two(
    radius: TheoremTwo, oversampling: float, n_results: int, conditions: str
) -> tuple[float | None, str]:
    """What the paper's Theorem 2 says of a dictionary that was sampled with this q̄."""
    needed = oversampling_for(radius.epsilon, radius.delta / 2, max(1, n_results))
    if oversampling < needed:
        return (
            None,
            f"Theorem 1 asks for oversampling={needed:.0f} by now, the sketch has "
            f"{oversampling:.3g}",
        )
    return 1 - radius.delta, f"Theorem 2 of the paper, {conditions}"
