"""What a belief is: what is known of f, as a frozen value that knows rows and no table."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.linalg import TINY
from manyarms.kernels import Kernel
from manyarms.typing import Array, Indices, Mask


class Arms(NamedTuple):
    """Rows (n, d) and their k(x, x) (n,)."""

    rows: Array
    diag: Array


@dataclass(eq=False)
class Batch:
    """A value: observations, checked, in the order in which they count."""

    rows: Array  # (n, d)
    diag: Array  # (n,) k(x, x)
    rewards: Array  # (n,)
    weights: Array  # (n,) ω = ξ²/ξ_s²
    keys: Indices  # (n,) the number of the arm, −1 for a row given by value
    n_observations: int  # rewards that these stand for: those of one arm are merged into one
    supposed: bool = False  # rewards are not known: each is taken for the mean, which then stays

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def supposing(cls, rows: Array, diag: Array) -> "Batch":
        """One more pull of each of these rows, which is supposed to give its mean."""
        n = len(rows)
        return cls(rows, diag, np.zeros(n), np.ones(n), np.full(n, -1), n, True)

    def part(self, some: slice | Mask) -> "Batch":
        """Some of them."""
        return replace(
            self,
            rows=self.rows[some],
            diag=self.diag[some],
            rewards=self.rewards[some],
            weights=self.weights[some],
            keys=self.keys[some],
            n_observations=0,
        )


class Record(NamedTuple):
    """What was decided when a batch was observed. Given back, nothing is decided again."""

    # Positions in the batch of the rows that entered W, in order; of `Sampled`, the rows of S.
    entered: Indices
    sizes: Indices  # (n,) |W_s| of each row: its feature has so many coordinates

    @classmethod
    def nothing(cls, n: int = 0) -> "Record":
        """Of n rows, about which there was nothing to decide."""
        return cls(np.zeros(0, dtype=np.intp), np.zeros(n, dtype=np.intp))


class Change(NamedTuple):
    """What an observation does to the scores of any arm, given its embedding z: with h = Gz, σ̃²
    falls by ‖h‖²."""

    G: Array  # (k, m)
    surprise: Array  # (k,): μ̃ rises by hᵀ(surprise)


class Step(NamedTuple):
    """From one belief to the next."""

    after: "Belief"
    record: Record
    change: Change | None = None  # None where scores are to be computed anew
    batch: Batch | None = None  # what was observed, for those who take the same step elsewhere


class Belief(Protocol):
    """What is known of f. `observed` gives another value; this one stays as it is."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def regularization(self) -> float: ...
    @property
    def guarantee(self) -> Posterior: ...
    @property
    def evidence(self) -> Evidence: ...
    def observed(self, batch: Batch) -> Step: ...
    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]: ...


class Rule(Protocol):
    """How a belief is made."""

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> Belief:
        """The belief before anything is observed; the generator is its own."""


def observed_fading(belief: Any, batch: Batch) -> Step:
    """After observations by a belief with a discount γ: the last one weighs ω, the one before it
    γω, and so on; those of before have faded γ once for each."""
    gamma = belief.discount
    n = len(batch)
    weights = belief.faded_weights(batch.weights, gamma ** np.arange(n - 1, -1, -1.0))
    faded = replace(belief.faded(gamma**n), discount=1.0)
    step: Step = faded.observed(replace(batch, weights=np.maximum(weights, TINY)))
    after: Any = step.after
    return Step(replace(after, discount=gamma), step.record)
