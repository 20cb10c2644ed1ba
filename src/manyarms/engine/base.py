"""What a belief is: what is known of f, as a frozen value that knows rows and no table."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from manyarms.engine.confidence import Evidence, Posterior
from manyarms.kernels import Kernel
from manyarms.typing import Array, Indices, Mask


class Arms(NamedTuple):
    """Rows (n, d) and their k(x, x) (n,)."""

    rows: Array
    diag: Array


@dataclass(frozen=True)
class Batch:
    """Observations, checked, in the order in which they count."""

    rows: Array  # (n, d)
    diag: Array  # (n,) k(x, x)
    rewards: Array  # (n,)
    weights: Array  # (n,) ω = ξ²/ξ_s²
    keys: Indices  # (n,) the number of the arm, −1 for a row given by value
    n_observations: int  # rewards that these stand for: those of one arm are merged into one
    supposed: bool = False  # rewards are not known: each is taken for the mean, which then stays

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, some: slice | Mask) -> "Batch":
        """Some of them."""
        return Batch(
            self.rows[some],
            self.diag[some],
            self.rewards[some],
            self.weights[some],
            self.keys[some],
            0,
            self.supposed,
        )


@dataclass(frozen=True)
class Record:
    """What was decided when a batch was observed. Given back, nothing is decided again."""

    # Positions in the batch of the rows that entered W, in order; of `Sampled`, the rows of S.
    entered: Indices
    sizes: Indices  # (n,) |W_s| of each row: its feature has so many coordinates

    @classmethod
    def nothing(cls, n: int = 0) -> "Record":
        """Of n rows, about which there was nothing to decide."""
        return cls(np.zeros(0, dtype=np.intp), np.zeros(n, dtype=np.intp))


class Change(NamedTuple):
    """What an observation does to the scores of any arm, given its embedding z: with h = Gᵀz, σ̃²
    falls by ‖h‖²."""

    lowering: Array  # (m, k) G
    surprise: Array  # (k,): μ̃ rises by hᵀ(surprise)


class Step(NamedTuple):
    """From one belief to the next."""

    after: "Belief"
    record: Record
    change: Change | None = None  # None where scores are to be computed anew
    batch: Batch | None = None  # what was observed, for those who take the same step elsewhere
    base: "Step | None" = None  # where rows have own parts: the step of what is beside them


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
    def observed(self, batch: Batch, record: Record | None = None) -> Step: ...
    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]: ...


@runtime_checkable
class HasInducing(Protocol):
    """A belief that rests on inducing rows W."""

    @property
    def keys(self) -> Indices: ...  # (m,) numbers of the arms in W, −1 for rows given by value


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
