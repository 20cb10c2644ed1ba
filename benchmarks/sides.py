"""manyarms and the authors' code behind the same two methods, for authors.py: a problem, a run."""

from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from peers import Clock

import manyarms as ma

NOISE = 0.1  # standard deviation
LAMBDA = NOISE**2
DELTA = 0.1
OVERSAMPLING = 5.0  # q̄ of Algorithm 1
THRESHOLD = 2.0  # C, which ends a batch: the default of both sides
STARTS = 2  # random first arms: with one, the authors' batches raise an error
LENGTHSCALES = {2: 0.25, 6: 0.75}


@dataclass(frozen=True)
class Run:
    """What is to be run."""

    system: str
    radius: str
    arms: int
    d: int
    steps: int
    seed: int


@dataclass(frozen=True)
class Problem:
    """Rows in the unit cube, and f: a sum of 60 kernel centres, scaled to standard deviation 1."""

    rows: np.ndarray  # (A, d)
    f: np.ndarray  # (A,)
    norm: float  # of f, in the RKHS
    lengthscale: float

    @classmethod
    def draw(cls, run: Run) -> "Problem":
        rng = np.random.default_rng(run.seed)
        kernel = ma.kernels.RBF(LENGTHSCALES[run.d])
        rows = rng.random((run.arms, run.d))
        centres = rows[rng.choice(run.arms, 60, replace=False)]
        weights = rng.normal(size=60)
        f = kernel(rows, centres) @ weights
        norm = np.sqrt(weights @ kernel(centres, centres) @ weights)
        return cls(rows, f / f.std(), float(norm / f.std()), LENGTHSCALES[run.d])


@dataclass(frozen=True)
class Coded:
    """The authors' radius, a function of our evidence: √λF + ξ√(L + ln 1/δ).

    One arm at a time, L = ln t · Σ n_i σ̃²_i. In batches, L = C · (L₀ + Σ ln(1 + σ̃²(x_s))), with
    the variances of when the batch of x_s began. The two first arms are not in that sum: L₀ is
    the other L after them, about 2 ln 2/(1 + λ).
    """

    norm: float
    batches: bool

    def __call__(self, evidence: "ma.Evidence") -> float:
        if self.batches:
            first = STARTS * np.log(STARTS) / (1 + LAMBDA)
            later = evidence.log_det - STARTS * np.log1p(1 / LAMBDA)
            L = THRESHOLD * (first + max(0.0, later))
        else:
            L = evidence.effective_dimension * np.log(max(1, evidence.n_observations))
        return float(np.sqrt(LAMBDA) * self.norm + NOISE * np.sqrt(L - np.log(DELTA)))


class Ours:
    """A policy of manyarms."""

    def __init__(self, run: Run, problem: Problem) -> None:
        self._n = None if run.system == "ours, batches" else 1
        confidence: Any = {
            "coded": lambda: Coded(problem.norm, batches=self._n is None),
            "constant": lambda: ma.Constant(2.0),
            "certified": lambda: ma.Certified(norm=problem.norm, noise=NOISE, delta=DELTA),
        }[run.radius]()
        self.policy = ma.BKB(
            problem.rows,
            ma.kernels.RBF(problem.lengthscale),
            regularization=LAMBDA,
            confidence=confidence,
            seed=run.seed,
            rule=ma.Sampled(OVERSAMPLING) if run.system == "ours, printed" else ma.Inserted(),
        )

    def choose(self) -> np.ndarray:
        return self.policy.choose(self._n)

    def observe(self, arms: np.ndarray, rewards: np.ndarray) -> None:
        self.policy.observe(arms, rewards)

    @property
    def size(self) -> int:
        return len(self.policy.inducing)

    @property
    def beta(self) -> float:
        return self.policy.beta


def their_modules():
    """The authors' two files and scikit-learn's kernels; imported before the clock starts."""
    import bkb_lib  # noqa: PLC0415
    import utils  # noqa: PLC0415
    from sklearn.gaussian_process import kernels  # noqa: PLC0415

    return bkb_lib, utils, kernels


class Theirs:
    """The authors' BKB or Batch_BKB. The constant radius is set from outside, after each update."""

    def __init__(self, run: Run, problem: Problem) -> None:
        bkb_lib, utils, kernels = their_modules()
        scale = problem.lengthscale
        pairwise = kernels.PairwiseKernel(gamma=1 / (2 * scale**2), metric="rbf")
        options = {
            "lam": LAMBDA,
            "dot": utils.FastMixinKernel(kernels.RBF(scale), pairwise),
            "fnorm": problem.norm,
            "noise_variance": NOISE**2,
            "delta": DELTA,
            "qbar": OVERSAMPLING,
        }
        if run.system == "theirs, batches":
            self.policy = bkb_lib.Batch_BKB(ratio_threshold=THRESHOLD, **options)
        else:
            self.policy = bkb_lib.BKB(**options)
        self._rows, self._started, self._radius = problem.rows, False, run.radius
        self._random = np.random.RandomState(run.seed)

    def choose(self) -> np.ndarray:
        return np.asarray(self.policy.predict()[0])

    def observe(self, arms: np.ndarray, rewards: np.ndarray) -> None:
        if self._started:
            self.policy.update(arms, rewards, self._random)
        else:
            self.policy.initialize(self._rows, arms, rewards)
            self._started = True
        if self._radius == "constant":
            self.policy.beta = 2 * np.sqrt(LAMBDA)

    @property
    def size(self) -> int:
        return int(self.policy.dict_size_unique)

    @property
    def beta(self) -> float:
        return float(self.policy.beta)


def play(run: Run, limit: float, curve: list) -> str:
    """Fill the curve, a point after each batch: (t, regret, CPU seconds, m, batches, radius)."""
    side = Ours if run.system.startswith("ours") else Theirs
    # Neither side's imports are timed.
    if side is Theirs:
        their_modules()
    else:
        Ours(run, Problem(np.zeros((2, run.d)), np.zeros(2), 1.0, 1.0))
    problem = Problem.draw(run)
    gaps = problem.f.max() - problem.f
    rng = np.random.default_rng([run.seed, 2])
    clock = Clock(process_time)
    with clock:
        player = side(run, problem)
    arms = rng.choice(run.arms, STARTS, replace=False)
    t, regret = 0, 0.0
    while True:
        rewards = problem.f[arms] + NOISE * rng.standard_normal(len(arms))
        with clock:
            player.observe(arms, rewards)
        t += len(arms)
        regret += float(gaps[arms].sum())
        curve.append((t, regret, clock.seconds, player.size, len(curve) + 1, player.beta))
        if t >= run.steps or clock.seconds > limit:
            return "steps" if t >= run.steps else "limit"
        with clock:
            arms = player.choose()[: run.steps - t]
