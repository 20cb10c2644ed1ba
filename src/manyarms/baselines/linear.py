"""Linear bandits: OFUL, CBRAP on a random projection, SOFUL on frequent directions.

Each has two ways to choose, as have the bandits on Fourier features. ``choice="ucb"`` takes the
largest μ + β̃σ, ``choice="thompson"`` the largest φ(x)ᵀθ, θ ~ N(w, β̃²V⁻¹). As sd(f) = √λσ, the
radius `Constant(1.0)` draws θ from the posterior itself. The draw is a function of the seed, of how
much was observed and of how many arms are supposed pulled. So `choose` answers the same when it is
asked twice, and a batch is a sequence of pending choices.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from manyarms.bandit.policy import Policy
from manyarms.baselines.features import FeatureMap, LinearScores, OnFeatures, SketchedRidge
from manyarms.checks import whole
from manyarms.engine.base import Arms
from manyarms.engine.confidence import Constant, Evidence, Promise, Proofs, Radius
from manyarms.errors import ParameterError, shortened
from manyarms.kernels import Kernel, Linear
from manyarms.search.scores import TIE, Chooser, UpperBound, View, best_of
from manyarms.typing import Seed, TableLike


@dataclass(frozen=True)
class DrawnWeights:
    """The best arm for weights drawn from the posterior, the arms before it supposed pulled."""

    looks: ClassVar[bool] = True

    def pick(self, view: View) -> int:
        if not isinstance(view.scores, LinearScores):
            raise ParameterError(
                f"{type(view.scores).__name__} cannot be drawn from: choose by upper bounds"
            )
        # By step and place in the batch: asked twice, the same weights are drawn.
        dice = view.chance.at(view.n_observations, view.number)
        values = view.scores.drawn(view.beta, dice)
        return best_of(values, TIE * np.abs(values), view.barred)


CHOICES: dict[str, tuple[Chooser, Radius]] = {
    "ucb": (UpperBound(), Constant(2.0)),
    "thompson": (DrawnWeights(), Constant(1.0)),
}
"""The choosers, and the radius that each has unless one is given."""


def by_choice(
    *,
    choice: str = "ucb",
    confidence: Radius | None = None,
    regularization: float = 0.01,
    noise: float | None = None,
    seed: Seed = 0,
) -> dict[str, Any]:
    """The options of `Policy` that those of `OFUL` stand for."""
    if choice not in CHOICES:
        raise ParameterError(f"choice must be one of {sorted(CHOICES)}, got {shortened(choice)}")
    chooser, radius = CHOICES[choice]
    return {
        "chooser": chooser,
        "confidence": radius if confidence is None else confidence,
        "regularization": regularization,
        "noise": noise,
        "seed": seed,
    }


class OFUL(Policy):
    """The linear bandit f(x) = xᵀθ with V = λI + Σxxᵀ exactly, O(A·d + d²) a step.

    Abbasi-Yadkori, Pál, Szepesvári (NeurIPS 2011); LinUCB (Li et al. 2010) is its form with a
    constant radius.

    Guarantee: with ``confidence=Certified(norm, noise)``, an ellipsoid in θ, regret Õ(d√T) for ‖θ‖
    ≤ norm. `LogDet` is the ellipsoid of their Theorem 2, ξ√(log det(V/λ) + 2 ln 1/δ) + √λ‖θ‖. There
    is no guarantee where f is not linear in the columns: one misspecified arm suffices for linear
    regret (Ghosh, Chowdhury, Gopalan 2017). There is no intercept unless a column is constant.
    Thompson sampling has regret Õ(d^{3/2}√T) with a radius larger by about √d (Agrawal and Goyal
    2013).

    Parameters
    ----------
    arms : array_like, (A, d), or path
        Finite numbers, or a .npy (mapped) or .parquet file that holds them.
    **options
        `regularization`: λ, a variance; the square of the noise's standard deviation unless there
        is a reason. `noise`: ξ, the standard deviation of a reward that comes without one of its
        own; √λ unless given. `confidence`: the radius β̃; by default `Constant(2.0)`, for Thompson
        sampling `Constant(1.0)`. `choice`: "ucb" or "thompson". `seed`: an integer or a numpy
        Generator, which is copied.
    """

    def __init__(self, arms: TableLike, **options: Any) -> None:
        rule = OnFeatures(columns, guarantee="exact")
        super().__init__(arms, Linear(), rule=rule, **by_choice(**options))


def columns(
    kernel: Kernel, arms: Arms, regularization: float, rng: np.random.Generator
) -> FeatureMap:
    """φ(x) = x, which leaves nothing out."""
    return lambda X, diag: (np.asarray(X, dtype=np.float64), np.zeros(len(X)))


class CBRAP(Policy):
    """The linear bandit on φ(x) = Mx, M (m, d) with entries N(0, 1/m): O(A·m + m²) a step.

    OFUL after a random Gaussian projection of the columns (Yu, Lyu, King; AAAI 2017).
    E φ(x)ᵀφ(y) = xᵀy, within O(√(ln A/m)) for all pairs of arms. Guarantee: none of no regret. f(x)
    = xᵀθ is not linear in φ(x) when m < d: the part of it that no weights represent costs regret
    linear in T, as in the authors' own bound.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        As for `OFUL`.
    dimension : int
        m, columns after the projection.
    **options
        Those of `OFUL`.
    """

    def __init__(self, arms: TableLike, *, dimension: int, **options: Any) -> None:
        rule = OnFeatures(partial(projection, whole(dimension, "dimension", at_most=10_000)))
        super().__init__(arms, Linear(), rule=rule, **by_choice(**options))


def projection(
    m: int, kernel: Kernel, arms: Arms, regularization: float, rng: np.random.Generator
) -> FeatureMap:
    """φ(x) = Mx, M drawn."""
    M = rng.standard_normal((m, arms.rows.shape[1])) / np.sqrt(m)  # E MᵀM = I
    return lambda X, diag: (np.asarray(X, dtype=np.float64) @ M.T, np.zeros(len(X)))


class Sketched(Promise):
    """ξ√((1 + ρ̄/λ)(log det(V/λ) + 2 ln 1/δ)) + max(1, ρ̄/λ − 1)√λF; ρ̄/λ is `Evidence.eta`.

    It contains f(x) = xᵀθ for all arms and all steps with probability 1 − δ when ‖θ‖ ≤ F = ``norm``
    and the noise is ξ-sub-Gaussian, ξ = ``noise``. It is linear in ρ̄, which grows with t where the
    spectrum has a tail beyond the sketch.
    """

    proofs: ClassVar[Proofs] = {
        "sketched": "the sketch bounds V on both sides, and the radius pays for what lies between"
    }

    def __call__(self, evidence: Evidence) -> float:
        self.check(evidence, "it is for SOFUL only, use Certified or LogDet with other policies")
        # Ṽ⁻¹ ⪯ (1 + ρ̄/λ)V⁻¹ for the noise, and ‖V − Ṽ − λI‖ ≤ max(λ, ρ̄ − λ) for θ.
        deviation = np.sqrt(1 + evidence.eta) * self.deviation(evidence.log_det, self.delta)
        bias = max(1.0, evidence.eta - 1) * np.sqrt(evidence.regularization)
        return float(deviation + bias * self.norm_in(evidence))


class SOFUL(Policy):
    """OFUL on a sketch of fixed size m: O(m²d) an observation, O(A·m·d) to score all arms.

    Linear bandits on frequent directions (Kuzborskij, Cella, Cesa-Bianchi; AISTATS 2019):
    Ṽ = λI + BᵀB of the sketch takes the place of V, in w̃ = Ṽ⁻¹Σ ω y x and in σ̃² = xᵀṼ⁻¹x. As
    V − ρ̄I ⪯ Ṽ ⪯ V, for f(x) = xᵀθ

        w̃ − θ = Ṽ⁻¹(V − Ṽ − λI)θ + Ṽ⁻¹Σ(noise)x,

    ‖V − Ṽ − λI‖ ≤ max(λ, ρ̄ − λ) and Ṽ⁻¹ ⪯ (1 + ρ̄/λ)V⁻¹, from which the radius `Sketched` follows:
    the paper's, with what the sketch knows of log det V in place of a bound in m, d and T.

    Guarantee: with ``confidence=Sketched(norm, noise)``, regret Õ((1 + ρ̄/λ)^{3/2} d√T). Where all
    arms lie in m dimensions ρ̄ = 0 and it is OFUL. Where the spectrum is heavy beyond m, ρ̄ grows
    like T and the bound is void: regret may be linear. Thompson sampling has Õ(((1 +
    ρ̄/λ)d)^{3/2}√T). `Theory` and `LogDet` promise nothing here.

    Parameters
    ----------
    arms : array_like, (A, d), or path
        As for `OFUL`.
    size : int
        m, directions kept (a sketch of m + 1 rows, as the paper counts).
    **options
        Those of `OFUL`.
    """

    def __init__(self, arms: TableLike, *, size: int, **options: Any) -> None:
        regression = partial(SketchedRidge.prior, whole(size, "size"))
        rule = OnFeatures(columns, regression, guarantee="sketched")
        super().__init__(arms, Linear(), rule=rule, **by_choice(**options))
