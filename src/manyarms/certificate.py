"""What can be promised of the recommended candidate now, and whether that is good enough to stop."""

from dataclasses import dataclass

from manyarms.model import Model
from manyarms.policies import BKB, GPUCB, Adaptive, AlgorithmOne, Incremental, Insertion
from manyarms.sketch.confidence import Bayes, TheoremTwo
from manyarms.sketch.dictionary import oversampling_for
from manyarms.trials import CandidateId


@dataclass(frozen=True)
class Certificate:
    """An upper bound on the regret of the recommended candidate: the best upper bound over the pool minus its lower bound."""

    id: CandidateId
    estimate: float  # posterior mean of the recommended candidate, in the user's units
    low: float  # its interval, from which the bound is made
    high: float
    rival: CandidateId  # the other candidate of largest upper bound, itself where there is no other
    regret_bound: float  # no candidate is better than the recommended one by more
    probability: float | None  # that all of this holds; None: heuristic
    reason: str  # what the probability rests on, or why there is none
    sketch_error: (
        float  # θ: the sketched posterior's precision is that of the exact one within a factor 1 + θ, on what was seen
    )
    effective_dimension: float
    n_results: int
    tolerance: float | None

    @property
    def reached(self) -> bool | None:
        """The regret bound is within the tolerance, where one was given."""
        return None if self.tolerance is None else self.regret_bound <= self.tolerance

    def __str__(self) -> str:
        lines = [
            f"Recommended: {self.id}, estimated {self.estimate:.4g} (between {self.low:.4g} and {self.high:.4g}).",
            f"No other candidate is better by more than {self.regret_bound:.4g}; the closest rival is {self.rival}.",
        ]
        if self.probability is None:
            lines.append(f"This is heuristic: {self.reason}.")
        else:
            lines.append(f"This holds with probability at least {self.probability:.3g}: {self.reason}.")
        results = "result" if self.n_results == 1 else "results"
        lines.append(
            f"From {self.n_results:,} {results}, {self.effective_dimension:.1f} effective dimensions; the sketch is "
            + ("as good as exact." if self.sketch_error < 0.01 else f"exact within a factor of {1 + self.sketch_error:.3g}.")
        )
        if self.tolerance is not None:
            verdict = "reached: one may stop" if self.reached else "not reached yet"
            lines.append(f"The tolerance of {self.tolerance:.4g} is {verdict}.")
        return "\n".join(lines)


def promise(model: Model) -> tuple[float | None, str]:
    """The probability behind the intervals and what it rests on; or None and why."""
    radius, policy = model.settings.confidence, model.policy
    if model.settings.learns:
        return None, "the kernel or the noise was learned from the same results; give both to be covered by a theorem"
    covered = isinstance(policy, GPUCB | Adaptive | AlgorithmOne) and not isinstance(policy, Incremental | Insertion)
    if not covered:
        return None, f"no theorem here covers the intervals of {type(policy).__name__}"
    if isinstance(radius, TheoremTwo):
        needed = oversampling_for(radius.epsilon, radius.delta / 2, max(1, model.n_results))
        lacking = isinstance(policy, BKB) and policy.oversampling < needed
        if radius.double or lacking:
            asks = f"Theorem 1 asks for oversampling={needed:.0f} by now, the sketch has less"
            return None, "the norm of f is guessed and doubled" if radius.double else asks
        return 1 - radius.delta, f"Theorem 2, if ‖f‖ ≤ {radius.norm:g} and the noise is {radius.noise:g}-sub-Gaussian"
    if isinstance(radius, Bayes) and not isinstance(policy, BKB):
        return 1 - radius.delta, "if f is a draw of the Gaussian process with this kernel (Srinivas et al. 2010)"
    return None, f"{radius!r} promises nothing over many candidates at once from a sketch"
