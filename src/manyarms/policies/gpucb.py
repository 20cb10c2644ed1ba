"""GP-UCB (Srinivas, Krause, Kakade, Seeger; ICML 2010) with the exact posterior."""

from pathlib import Path
from typing import Any

from manyarms.beliefs.exact import Exact
from manyarms.policies.batches import BatchRule, GlobalRule
from manyarms.policies.policy import Policy
from manyarms.search.scores import UpperBound
from manyarms.sketch.confidence import Constant, Radius
from manyarms.typing import ArrayLike, Seed


class GPUCB(Policy):
    """Exact GP-UCB: the strong baseline, and what BKB is compared with in tests.

    Memory and a step are O(A·u), u the distinct arms observed.

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that
        holds one. A float64 or float32 array is not copied, so leave it unchanged while in use.
        With a kernel of objects: a sequence of objects. None where there is no table: arms then
        come with every ``choose(arms=…)``, as rows of `n_features` numbers, and A is the number of
        different rows observed.
    kernel : a `manyarms.kernels` kernel, a scikit-learn kernel object or a function of two blocks
        of rows.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a
        reason.
    noise : ξ, the standard deviation of a reward that comes without one of its own; √λ unless
        given.
    confidence : the radius β of the scores.
    batches : what ends a batch of no given size, ``choose(None)``.
    seed : an integer or a numpy Generator, for the first arm.
    n_features : d, only where `arms` is None.
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
