"""GP-UCB (Srinivas, Krause, Kakade, Seeger; ICML 2010) with two posteriors: BKB, budgeted kernel
bandits, has a sketch whose inducing arms follow the posterior variance; GPUCB has the exact one."""

from dataclasses import replace
from math import nextafter
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manyarms.bandit.batches import BatchRule, GlobalRule
from manyarms.bandit.policy import Policy
from manyarms.checks import real, whole
from manyarms.engine.base import Belief, Rule
from manyarms.engine.confidence import Bayes, Constant, Promise, Radius
from manyarms.engine.exact import Exact
from manyarms.engine.frozen import Engine, Inserted
from manyarms.engine.sampled import Drawn
from manyarms.errors import ParameterError
from manyarms.kernels import RBF
from manyarms.lapack import in_one_thread
from manyarms.search import PER_ARM
from manyarms.search.scores import RowsElsewhere, UpperBound
from manyarms.search.tuning import Tuning
from manyarms.typing import ArrayLike, Indices, Seed

TRIAL = 40_000
"""Arms whose pass is timed, at most: more than are done as one chunk, so that all cores work."""


class Estimate(NamedTuple):
    """Bytes beside the table of arms, and seconds of a pass, on this machine."""

    least_bytes: float  # the smallest `memory` that works: bounds of all arms, and a list
    bytes: float  # with the embeddings of all arms kept
    seconds: float  # of a pass over all arms that computes their embeddings


class BKB(Policy):
    """GP-UCB on a Nyström sketch: the arm of largest μ̃ + β̃σ̃, without looking at most arms.

    With ``confidence=Certified(norm, noise, delta)``, f lies within μ̃ ± β̃σ̃ for all arms and all
    steps with probability 1 − δ, and regret is that of exact GP-UCB up to constants
    (docs/theory.md). ``rule=Sampled(oversampling)`` is Algorithm 1 of the paper as printed, with
    its Theorems 1 and 2.

    Parameters
    ----------
    arms : array_like, (A, d), path, sequence of objects or None
        Finite numbers, or the path of a .npy (mapped) or .parquet file that holds them. A float64
        or float32 array is not copied, so leave it unchanged while in use. With a kernel of
        objects: a sequence of objects. Where rows are in other processes: a `cluster.Sharded`. None
        where there is no table: arms then come with every ``choose(arms=…)``, as rows of
        `n_features` numbers.
    kernel : Kernel
        Of `manyarms.kernels`, a scikit-learn kernel object or a function of two blocks of rows.
    regularization : float
        λ, a variance; the square of the noise's standard deviation unless there is a reason.
    noise : float, optional
        ξ, the standard deviation of a reward that comes without one of its own; √λ unless given.
    rule : Inserted or Sampled
        Which rows enter the inducing set W.
    confidence : Radius
        The radius β̃ of the scores.
    batches : BatchRule
        What ends a batch of no given size, ``choose(None)``.
    memory : float or str, optional
        Bytes that may be used beside the arms, such as 5e8 or "500 MB"; half of the machine's by
        default (`estimate` tells what it takes). While the embeddings of all arms fit, 8·A·m bytes,
        they are kept; beyond that there are bounds of all arms and a short list. Choices do not
        depend on it.
    tuning : Tuning
        Thresholds of the search. Choices do not depend on them.
    seed : int or numpy.random.Generator
        A generator is copied.
    n_features : int, optional
        d, only where `arms` is None.
    discount : float
        γ, at most 1, only where `arms` is None: an observation weighs γ times as much with every
        one that comes after it, so that about 1/(1 − γ) of them count. No radius with a promise
        goes with it.

    Raises
    ------
    ParameterError
        `discount` below 1 with a table, with a rule other than `Inserted`, or with a radius that
        promises something.
    MemoryBudgetError
        `memory` is too little for a few numbers an arm.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path | RowsElsewhere | None,
        kernel: Any,
        *,
        regularization: float = 0.01,
        noise: float | None = None,
        rule: Rule = Inserted(),
        confidence: Radius = Constant(2.0),
        batches: BatchRule = GlobalRule(),
        memory: float | str | None = None,
        tuning: Tuning = Tuning(),
        seed: Seed = 0,
        n_features: int | None = None,
        discount: float = 1.0,
    ) -> None:
        super().__init__(
            arms,
            kernel,
            rule=rule,
            chooser=UpperBound(),
            batches=batches,
            regularization=regularization,
            noise=noise,
            confidence=confidence,
            seed=seed,
            n_features=n_features,
            memory=memory,
            tuning=tuning,
        )
        gamma = real(discount, "discount", "above 0 and at most 1", above=0, below=nextafter(1, 2))
        belief = self._state.belief
        if gamma < 1:
            self._state = self._state._replace(belief=self._fading(belief, gamma))

    def _fading(self, belief: Belief, discount: float) -> Belief:
        """The belief before anything is observed, with a discount; refused where what is promised
        rests on observations that stay."""
        given = f"got discount={discount:g}"
        if self.n_arms:
            raise ParameterError(
                "a discount is for policies without a table, BKB(None, …, n_features=d): the "
                "search of a table rests on variances that never rise, and they do where "
                f"observations fade; {given} and {self.n_arms} arms"
            )
        if not isinstance(belief, Engine):
            raise ParameterError(f"a discount is for rule=Inserted(…), {given} and {self.rule!r}")
        if isinstance(self.confidence, Promise | Bayes):
            raise ParameterError(
                "a discount goes with a radius that promises nothing, such as Constant(2.0): "
                f"{self.confidence!r} speaks of an f that does not change; {given}"
            )
        return replace(belief, discount=discount)

    @property
    def inducing(self) -> Indices:
        """The arms of the table in W, in index order."""
        # Other beliefs rest on no arms.
        keys: Indices = getattr(self._state.belief, "keys", np.zeros(0, dtype=np.intp))
        return np.sort(keys[keys >= 0])

    @property
    def sketch_error(self) -> float:
        """e = Σ ωr/λ over what was observed: σ̃² is within 1 + θ of the exact variance, θ = (e +
        √(e² + 4e))/2."""
        return self.evidence.left_out

    @in_one_thread
    def redraw(self, oversampling: float | None = None) -> None:
        """Draw the dictionary anew, with another q̄ where one is given; for ``rule=Sampled()``.

        The paper's "Tuning q̄": to go on past the planned horizon, pass
        ``oversampling_for(epsilon, delta / 2, horizon)``.

        Parameters
        ----------
        oversampling : float, optional
            q̄ from now on.
        """
        belief = self._state.belief
        if not isinstance(belief, Drawn):
            raise ParameterError(
                "redraw() is for dictionaries that are drawn, rule=Sampled(); this is "
                f"{self.rule!r}"
            )
        self._state = self._state._replace(belief=belief.redrawn(oversampling))

    @staticmethod
    def estimate(n_arms: int, n_features: int, m: int) -> Estimate:
        """Bytes and seconds that so many arms take with m inducing ones, before anything starts.

        ``least_bytes`` is the smallest `memory` that works, ``bytes`` what is used where memory
        allows, both beside the table itself; ``seconds`` is a pass over all arms, of which a run
        needs a few, timed on this machine with an RBF kernel.

        Parameters
        ----------
        n_arms, n_features, m : int
            Rows and columns of the table, and inducing arms.

        Returns
        -------
        Estimate
            Bytes and seconds.
        """
        n_arms = whole(n_arms, "n_arms", at_most=10**15)
        n_features = whole(n_features, "n_features", at_most=10**5)
        m = whole(m, "m", at_most=10**5)
        rows = np.random.default_rng(0).random((max(m, min(n_arms, TRIAL)), n_features))
        # Tolerance 0, and a lengthscale short of the typical distance: nearly all m rows enter W.
        kernel = RBF(np.sqrt(n_features) / 4)
        policy = BKB(rows, kernel, rule=Inserted(0.0), tuning=Tuning(rough=m), memory=1e18)
        policy.observe(np.arange(m), np.zeros(m))
        spent = []
        for _ in range(2):  # the first warms up
            again = policy.resumed(policy._state)
            start = perf_counter()
            again.choose()
            spent.append(perf_counter() - start)
        least = PER_ARM * n_arms + 8 * m**2
        return Estimate(least, least + 8 * m * n_arms, min(spent) * n_arms / len(rows))


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
