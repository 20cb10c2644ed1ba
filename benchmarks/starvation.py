"""Experiment 1, variance starvation: the setting of the paper's Figure 1, by distance to the data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pictures
from bandits import Problem, gp
from publishing import Options, publish
from systems import SYSTEMS, MissingSystemError, kernelised
from variational import inducing_inputs

import manyarms as ma
from manyarms.baselines.features import Ridge
from manyarms.engine.embedding import Inducing

COMPARED = ("bkb", "algorithm1", "qff-ucb")
FIXED = {
    "sor": lambda S: kernelised("SoR", inducing=S),
    "dtc": lambda S: kernelised("DTC", inducing=S),
    "rff": lambda S: kernelised("RFF", frequencies=max(1, len(S) // 2)),  # a cosine and a sine each
}
"""Of fixed size, here that of the dictionary S of Algorithm 1: SoR and DTC differ from it by the variance alone."""
DISTANCES = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0)
"""Lengthscales from the nearest observation at which the table looks."""
BIN = 0.25
"""Width of the bins of the picture, in lengthscales."""
INDUCING = 20
"""Of the variational posterior."""
TEXT = """\
[0, 1], k = exp(−100 (x − x′)²), {t} evaluations uniform in [0, ½], {seeds} seeds. The variance that each system
believes in, over the exact one, against the distance to the nearest observation in lengthscales: medians, and bands
from the 10th to the 90th percentile. SoR and DTC have the dictionary of Algorithm 1, RFF as many features. A ratio near 0 is a
system that is sure of what it has never seen. `variational` is Titsias' posterior on the {inducing} inducing inputs of
largest bound.{absent}"""


def experiment(options: Options) -> None:
    """σ̃²/σ² against distance."""
    n_arms = options.scale(101, 1001)
    t, seeds = options.size((40, 2), (215, 10))
    distances, ratios, missing = [], dict[str, list[np.ndarray]](), set[str]()
    for seed in range(seeds):
        bandit, pulled, rewards = half_seen(seed, n_arms, t)
        kernel: Any = bandit.kernel
        x = bandit.arms[:, 0]
        distances.append(
            np.abs(x[:, None] - x[np.unique(pulled)]).min(axis=1) / float(kernel.lengthscale)
        )
        exact = ma.GPUCB(bandit.arms, bandit.kernel, regularization=bandit.regularization)
        exact.observe(pulled, rewards)
        for name, variance in believed(bandit, pulled, rewards, seed, missing).items():
            ratios.setdefault(name, []).append(variance / np.square(exact.predict().std))
    distance = np.concatenate(distances)
    pooled = {name: np.concatenate(found) for name, found in ratios.items()}
    rows = [{"system": name, **by_distance(ratio, distance)} for name, ratio in pooled.items()]

    def draw(axes):
        (ax,) = axes
        bins = (distance / BIN).astype(int)
        filled = np.unique(bins)
        for number, (name, ratio) in enumerate(pooled.items()):
            shown = [
                np.quantile(np.maximum(ratio[bins == b], 1e-6), [0.5, 0.1, 0.9]) for b in filled
            ]
            pictures.band(ax, (filled + 0.5) * BIN, shown, name, number)
        ax.axhspan(1 / 3, 3, color="#e6e6e6", zorder=0, label="Theorem 1, ε = ½")
        ax.set(
            yscale="log",
            ylim=(1e-6, 30),
            xlabel="distance to the nearest observation / lengthscale",
            ylabel="σ̃² / σ²",
        )
        ax.legend(fontsize=8, loc="lower left")

    pictures.panels(1, 1, options.output / "starvation.png", draw, (6.5, 4.2))
    absent = f" Not in this installation: {', '.join(sorted(missing))}." if missing else ""
    text = TEXT.format(t=t, seeds=seeds, inducing=INDUCING, absent=absent)
    publish(
        options,
        "starvation",
        "Variance starvation",
        text,
        {"Median σ̃²/σ² by distance": rows},
        ["starvation.png"],
    )


def half_seen(seed: int, n_arms: int, t: int) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A draw from the GP on [0, 1], t arms in [0, ½], and a reward of each."""
    rng, bandit = np.random.default_rng([seed, 3]), gp(seed, n_arms, 1, 1 / np.sqrt(200))
    pulled = rng.choice(np.flatnonzero(bandit.arms[:, 0] <= 0.5), size=t)
    return bandit, pulled, bandit.pull(pulled, rng)


def believed(
    bandit: Problem, pulled: np.ndarray, rewards: np.ndarray, seed: int, missing: set[str]
) -> dict[str, np.ndarray]:
    """The variance of f at every arm that each system believes in, after these rewards came one at a time."""
    learned: dict[str, Any] = {}

    def learn(name: str, make: Callable[[Problem, int, int], Any]) -> None:
        try:
            policy = make(bandit, seed, len(pulled))
        except MissingSystemError:
            missing.add(name)
            return
        for arm, reward in zip(pulled, rewards, strict=True):
            policy.observe(arm, reward)
        learned[name] = policy

    for name in COMPARED:
        learn(name, SYSTEMS[name].make)
    for name, sized in FIXED.items():
        learn(name, sized(learned["algorithm1"].inducing))
    variances = {name: np.square(policy.predict().std) for name, policy in learned.items()}
    return {**variances, "variational": variational(bandit, pulled, rewards)}


def variational(bandit: Problem, pulled: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """The variance of the variational posterior at every arm."""
    X = bandit.arms[pulled]
    S = inducing_inputs(bandit.kernel, X, rewards, bandit.regularization, INDUCING)
    W, _ = Inducing.fit(bandit.kernel, X[S], S, 1e-10)
    Z, _, _ = W.features(X, bandit.kernel.diag(X))
    prior = Ridge.prior(bandit.regularization, Z.shape[1])
    ridge = prior.observed(Z, rewards, np.ones(len(X)))
    Z, r, _ = W.features(bandit.arms, bandit.kernel.diag(bandit.arms))
    return r + bandit.regularization * ridge.leverage(Z)


def by_distance(ratio: np.ndarray, distance: np.ndarray) -> dict[str, float]:
    """Medians near each of DISTANCES, and the extremes."""
    near = {f"{d:g} ℓ": float(np.median(ratio[np.abs(distance - d) <= BIN / 2])) for d in DISTANCES}
    return {**near, "smallest": float(ratio.min()), "largest": float(ratio.max())}
