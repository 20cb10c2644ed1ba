"""OFUL (Abbasi-Yadkori, Pál, Szepesvári; NeurIPS 2011).

LinUCB (Li et al. 2010) is its form with a constant radius.
"""

from pathlib import Path

import numpy as np

from manyarms.baselines.features import chosen_by
from manyarms.beliefs.base import Arms
from manyarms.beliefs.linear import FeatureMap, OnFeatures
from manyarms.kernels import Kernel, Linear
from manyarms.policies.policy import Policy
from manyarms.sketch.confidence import Radius
from manyarms.typing import Array, ArrayLike, Seed


class OFUL(Policy):
    """The linear bandit f(x) = xᵀθ with V = λI + Σxxᵀ exactly, O(A·d + d²) a step.

    Guarantee: with ``confidence=Certified(norm, noise)``, an ellipsoid in θ, regret Õ(d√T) for ‖θ‖
    ≤ norm. `LogDet` is the ellipsoid of their Theorem 2, ξ√(log det(V/λ) + 2 ln 1/δ) + √λ‖θ‖. There
    is no guarantee where f is not linear in the columns: one misspecified arm suffices for linear
    regret (Ghosh, Chowdhury, Gopalan 2017). There is no intercept unless a column is constant.
    Thompson sampling has regret Õ(d^{3/2}√T) with a radius larger by about √d (Agrawal and Goyal
    2013).

    arms : (A, d) array of finite numbers, or the path of a .npy (mapped) or .parquet file that
        holds one.
    regularization : λ, a variance; the square of the noise's standard deviation unless there is a
        reason.
    noise : ξ, the standard deviation of a reward that comes without one of its own; √λ unless
        given.
    confidence : the radius β̃; by default `Constant(2.0)`, for Thompson sampling `Constant(1.0)`.
    choice : "ucb" or "thompson".
    seed : an integer or a numpy Generator, which is copied.
    """

    def __init__(
        self,
        arms: ArrayLike | str | Path,
        *,
        regularization: float = 0.01,
        noise: float | None = None,
        confidence: Radius | None = None,
        choice: str = "ucb",
        seed: Seed = 0,
    ) -> None:
        super().__init__(
            arms,
            Linear(),
            rule=OnFeatures(columns, guarantee="exact"),
            regularization=regularization,
            noise=noise,
            seed=seed,
            **chosen_by(choice, confidence),
        )


def columns(kernel: Kernel, arms: Arms, rng: np.random.Generator) -> FeatureMap:
    """φ(x) = x."""
    return as_features


def as_features(X: Array, diag: Array) -> tuple[Array, Array]:
    """φ(x) = x, which leaves nothing out."""
    return np.asarray(X, dtype=np.float64), np.zeros(len(X))
