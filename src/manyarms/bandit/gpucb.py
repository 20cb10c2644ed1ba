"""GP-UCB (Srinivas, Krause, Kakade, Seeger; ICML 2010) with the exact posterior."""

from pathlib import Path
from typing import Any

from manyarms.bandit.batches import BatchRule, GlobalRule
from manyarms.bandit.policy import Policy
from manyarms.engine.confidence import Constant, Radius
from manyarms.engine.exact import Exact
from manyarms.search.scores import UpperBound
from manyarms.typing import ArrayLike, Seed


class GPUCB(Policy):
    """Exact GP-UCB: the strong baseline, and what BKB is compared with in tests.

    Memory and a step are O(A·u), u the distinct arms observed.

    Parameters
    ----------
    arms : array_like, (A, d), path, sequence of objects or None
        As for `BKB`. Where there is no table, A is the number of different rows observed.
    kernel : Kernel
        As for `BKB`.
    regularization : float
        λ, a variance; the square of the noise's standard deviation unless there is a reason.
    noise : float, optional
        ξ, the standard deviation of a reward that comes without one of its own; √λ unless given.
    confidence : Radius
        The radius β of the scores.
    batches : BatchRule
        What ends a batch of no given size, ``choose(None)``.
    seed : int or numpy.random.Generator
        For the first arm.
    n_features : int, optional
        d, only where `arms` is None.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path | None,
        kernel: Any,
        *,
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius = Constant(2.0),
        batches: BatchRule = GlobalRule(),
        seed: Seed = 0,
        n_features: int | None = None,
    ) -> None:
        super().__init__(
            arms,
            kernel,
            rule=Exact(),
            chooser=UpperBound(),
            batches=batches,
            regularization=regularization,
            noise=noise,
            confidence=confidence,
            seed=seed,
            n_features=n_features,
        )
