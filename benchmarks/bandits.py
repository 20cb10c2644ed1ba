"""Bandit problems: arms, their mean rewards, the noise, and what a policy is told (kernel, λ, norm where it is known).

    python benchmarks/bandits.py [SPEC ...]

describes them. A spec is a name and, where wanted, parameters: ``rkhs``, ``rkhs:n_arms=1000,lengthscale=0.2``.

| name | arms | mean rewards |
|---|---|---|
| rkhs | uniform on [0, 1]^d | Σ a_j k(·, c_j) of known norm ‖f‖² = aᵀK_cc a, k an RBF |
| gp | uniform on [0, 1]^d | a draw from the GP: exact up to 4,096 arms, by random Fourier features beyond |
| ackley, branin, rastrigin | a grid in two dimensions, a Sobol set beyond | the function, negated, in units of the prior |
| hartmann6 | a Sobol set | the same |
| linear-fast, linear-heavy | unit vectors whose spectrum decays like 2⁻ʲ, or not at all | θᵀx, ‖θ‖ = 1 |
| misspecified | as linear-heavy | θᵀx, but one arm is far better than that (Ghosh, Chowdhury and Gopalan, AAAI 2017) |
| misspecified-rich | the same | the same, and the kernel has room for it: linear + a bump at each arm |
| tables of tables.py | configurations, architectures, molecules | in units of the prior; a reward is one replicate |

Draws depend on the seed; functions and tables do not. Functions and tables have no kernel of their own: all policies are given
the RBF whose lengthscales and noise are most probable given one reward of each of 256 random arms (`campaign.fitting`), its
lengthscales folded into the arms; molecules (aqsoldb) have a Tanimoto kernel. California housing and abalone, which the
Batch-BKB paper uses, are left out: scikit-learn and others download them. In units of the prior rewards are centred, their
standard deviation over the arms is 1 or less, and the best arm's is 3 or less. Values of tables further below the median than
twice the distance from it to the best count as just that: trainings that diverged would else be all that a kernel sees.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from scipy.stats import qmc
from spaces import encode
from tables import load

import manyarms as ma
from manyarms.campaign.fitting import Mixed, Summary, fit
from manyarms.engine.embedding import Inducing

EXACT = 4096
"""Arms up to which a draw from the GP is exact."""
FREQUENCIES = 4096
"""Random Fourier features of a draw beyond."""
LEARNED_FROM = 256
"""Arms that the kernel of a function or a table is learned from."""
KERNEL = ma.kernels.RBF(1.0)
"""Of functions and tables."""


@dataclass(frozen=True)
class Problem:
    """Arms are rows; a reward of arm i has mean `means[i]`."""

    arms: np.ndarray  # (A, d)
    means: np.ndarray  # (A,)
    noise: float  # standard deviation of Gaussian noise
    kernel: ma.kernels.Kernel
    regularization: float  # λ
    norm: float | None = None  # ‖f‖ in the RKHS of the kernel, where it is known
    replicates: np.ndarray | None = None  # (A, r) measured rewards, NaN where there is none

    def pull(self, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A reward of each of these arms."""
        noise = self.noise * rng.standard_normal(len(arms))
        if self.replicates is None:
            return self.means[arms] + noise
        measured = self.replicates[arms]
        which = (rng.random(len(arms)) * np.isfinite(measured).sum(axis=1)).astype(int)
        return measured[np.arange(len(arms)), which] + noise

    @cached_property
    def best(self) -> float:
        """The largest mean reward."""
        return float(self.means.max())

    @cached_property
    def uniform_regret(self) -> float:
        """Expected regret of one step of uniform play: max f − mean f."""
        return self.best - float(self.means.mean())

    def regret(self, arms: np.ndarray) -> np.ndarray:
        """max f − f of each of these arms."""
        return self.best - self.means[arms]


def rkhs(seed: int, n_arms=10_000, d=3, lengthscale=0.3, norm=4.0, noise=0.1, nu=None) -> Problem:
    """20 bumps of an RBF kernel, or of a Matérn one; the norm is exact."""
    rng = np.random.default_rng([seed, 1])
    kernel = ma.kernels.Matern(lengthscale, nu=nu) if nu else ma.kernels.RBF(lengthscale)
    arms, centres, a = rng.random((n_arms, d)), rng.random((20, d)), rng.standard_normal(20)
    a *= norm / np.sqrt(a @ kernel(centres, centres) @ a)
    return Problem(
        arms, _blockwise(lambda X: kernel(X, centres) @ a, arms), noise, kernel, noise**2, norm
    )


def gp(seed: int, n_arms=4_096, d=2, lengthscale=0.1, noise=0.1) -> Problem:
    """f ~ GP(0, k)."""
    rng, kernel = np.random.default_rng([seed, 1]), ma.kernels.RBF(lengthscale)
    arms = rng.random((n_arms, d))
    if n_arms <= EXACT:  # f = Zg has covariance ZZᵀ = K, but for residuals below 1e-9
        W, _ = Inducing.fit(kernel, arms, np.arange(n_arms), 1e-9)
        Z, _, _ = W.features(arms, kernel.diag(arms))
        means = Z @ rng.standard_normal(Z.shape[1])
    else:
        W, phase = (
            rng.standard_normal((d, FREQUENCIES)) / lengthscale,
            rng.uniform(0, 2 * np.pi, FREQUENCIES),
        )
        weights = np.sqrt(2 / FREQUENCIES) * rng.standard_normal(FREQUENCIES)
        means = _blockwise(lambda X: np.cos(X @ W + phase) @ weights, arms)
    return Problem(arms, means, noise, kernel, noise**2)


def linear(seed: int, n_arms=4_096, d=100, ratio=1.0, noise=0.1) -> Problem:
    """Unit vectors: directions of x_j = ratio^(j/2) g_j, g Gaussian; θ uniform on the sphere."""
    rng = np.random.default_rng([seed, 1])
    arms = _unit(rng.standard_normal((n_arms, d)) * ratio ** (np.arange(d) / 2))
    return Problem(
        arms,
        arms @ _unit(rng.standard_normal((1, d)))[0],
        noise,
        ma.kernels.Linear(),
        noise**2,
        1.0,
    )


def misspecified(seed: int, n_arms=256, d=10, gap=0.5, noise=0.1, rich=False) -> Problem:
    """The arm whose linear mean is the median gets the largest mean plus a gap.

    A policy that trusts linearity learns that arm's mean from the others and leaves it: no policy of optimal regret on linear
    problems can do better (their Theorem 1).
    """
    plain = linear(seed, n_arms, d, noise=noise)
    special = int(np.argsort(plain.means)[n_arms // 2])
    means = plain.means.copy()
    means[special] = plain.best + gap
    if not rich:
        return Problem(plain.arms, means, noise, plain.kernel, noise**2)
    bump = 1e-3  # arms are far further apart: the second kernel is 1 at an arm and itself, else 0
    kernel = plain.kernel + ma.kernels.RBF(bump)
    norm = np.hypot(1.0, means[special] - plain.means[special])
    return Problem(plain.arms, means, noise, kernel, noise**2, float(norm))


def ackley(X: np.ndarray) -> np.ndarray:
    """0 at the origin, on [−32.768, 32.768]^d, to be minimised; X in [0, 1]^d, as for the others."""
    Y = 32.768 * (2 * X - 1)
    waves = np.exp(np.cos(2 * np.pi * Y).mean(axis=1))
    return 20 + np.exp(1.0) - 20 * np.exp(-0.2 * np.sqrt(np.square(Y).mean(axis=1))) - waves


def branin(X: np.ndarray) -> np.ndarray:
    """0.397887 at three points of [−5, 10] × [0, 15]."""
    x, y = 15 * X[:, 0] - 5, 15 * X[:, 1]
    parabola = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return parabola**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def rastrigin(X: np.ndarray) -> np.ndarray:
    """0 at the origin, on [−5.12, 5.12]^d."""
    Y = 5.12 * (2 * X - 1)
    return (Y**2 - 10 * np.cos(2 * np.pi * Y) + 10).sum(axis=1)


HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(X: np.ndarray) -> np.ndarray:
    """−3.32237 at (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)."""
    exponents = np.einsum("ij,nij->ni", HARTMANN_A, np.square(X[:, None, :] - HARTMANN_P))
    return -np.exp(-exponents) @ np.array([1.0, 1.2, 3.0, 3.2])


def function(
    f: Callable[[np.ndarray], np.ndarray], seed: int, n_arms=4_096, d=2, noise=0.1
) -> Problem:
    """A test function on about n_arms points of [0, 1]^d; the problem is the same for every seed."""
    if d <= 2:
        side = round(n_arms ** (1 / d))
        X = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * d, indexing="ij"), axis=-1).reshape(
            -1, d
        )
    else:
        X = qmc.Sobol(d, rng=0).random(n_arms)
    means = _blockwise(lambda X: -f(X), X)
    means = (means - means.mean()) / _scale(means)
    return _learned(Problem(X, means, noise, KERNEL, 1.0))


def table(name: str, seed: int) -> Problem:
    """A real table, its worst values held at a floor; the problem is the same for every seed."""
    found = load(name)
    values = np.maximum(found.values, np.median(found.means) - 2 * found.unit)
    means = np.nanmean(values, axis=1)
    centre, scale = means.mean(), _scale(means)
    order = np.argsort(~np.isfinite(values), axis=1, kind="stable")  # missing replicates last
    replicates = (np.take_along_axis(values, order, axis=1) - centre) / scale
    X, means, noise = encode(found), (means - centre) / scale, found.noise / scale
    if "bits" in found.columns.values():
        return Problem(X, means, noise, ma.kernels.Tanimoto(), noise**2, replicates=replicates)
    return _learned(Problem(X, means, noise, KERNEL, 1.0, replicates=replicates))


def _scale(means: np.ndarray) -> float:
    """Their standard deviation, or a third of the best one above the mean: a prior of variance 1 must have room for it."""
    return max(float(means.std()), float(means.max() - means.mean()) / 3)


def _learned(given: Problem) -> Problem:
    """The problem with an RBF kernel learned from one reward each of some random arms, lengthscales folded into the arms."""
    rng, X = np.random.default_rng(0), given.arms
    some = rng.choice(len(X), size=min(LEARNED_FROM, len(X)), replace=False)
    rewards = given.pull(some, rng)
    unit = rewards.std()  # the fit expects standardised rewards
    found = fit(
        Mixed(X.shape[1], 0, 0, rbf=True),
        Summary(X[some], rewards / unit, np.ones(len(some)), 0.0, 0.0),
    )
    return replace(given, arms=X / np.exp(found.theta), regularization=found.noise * unit**2)


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def _blockwise(
    f: Callable[[np.ndarray], np.ndarray], X: np.ndarray, rows: int = 8192
) -> np.ndarray:
    return np.concatenate([f(X[start : start + rows]) for start in range(0, len(X), rows)])


TABLES = (
    "protein_structure",
    "slice_localization",
    "car",
    "phoneme",
    "nasbench201",
    "aqsoldb",
)
"""The tables of tables.py that are problems here."""
PROBLEMS: dict[str, Callable[..., Problem]] = {
    "rkhs": rkhs,
    "matern": partial(rkhs, nu=2.5),
    "gp": gp,
    "ackley": partial(function, ackley),
    "branin": partial(function, branin),
    "rastrigin": partial(function, rastrigin),
    "hartmann6": partial(function, hartmann6, n_arms=16_384, d=6),
    "linear-fast": partial(linear, ratio=0.5),
    "linear-heavy": linear,
    "misspecified": misspecified,
    "misspecified-rich": partial(misspecified, rich=True),
    **{name: partial(table, name) for name in TABLES},
}
"""By name, each a function of the seed and of its parameters."""


@lru_cache(maxsize=2)
def problem(spec: str, seed: int) -> Problem:
    """The problem of a spec such as ``rkhs:n_arms=1000,d=2``."""
    name, _, settings = spec.partition(":")
    if name not in PROBLEMS:
        raise ValueError(f"no problem {name!r}: there are {', '.join(PROBLEMS)}")
    pairs = (setting.split("=") for setting in settings.split(",") if setting)
    return PROBLEMS[name](
        seed,
        **{
            key: float(value) if "." in value or "e" in value else int(value)
            for key, value in pairs
        },
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", metavar="SPEC", help=", ".join(PROBLEMS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for spec in options.specs or PROBLEMS:
        p = problem(spec, options.seed)
        told = f"λ {p.regularization:.3g}, norm {p.norm if p.norm is None else round(p.norm, 3)}, {p.kernel!r}"
        size = f"A {len(p.arms):,}, d {p.arms.shape[1]}"
        print(
            f"{spec}: {size} | best {p.best:.4g}, uniform play loses {p.uniform_regret:.4g} a step | {told}",
            flush=True,
        )


if __name__ == "__main__":
    main()
