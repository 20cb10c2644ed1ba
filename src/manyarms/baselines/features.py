"""Beliefs that are linear in features φ(x) fixed beforehand: a regression, and what it cannot see.

    μ(x) = φ(x)ᵀw,    σ²(x) = o(x) + φ(x)ᵀV⁻¹φ(x),    V = λI + Σ ω φφᵀ

The part o(x) = r(x)/λ is zero where φ(x)ᵀφ(y) is the kernel itself. Where φ(x) = z(x) are
coordinates of a projection Pφ(x) on rows that never change, r(x) = ‖(I − P)φ(x)‖² is what the
projection leaves out.

An observation costs O(m²) for V = CCᵀ, and O(A·m) for the variances of A arms. Those are lowered
from what they were: with Y the rows √ω φ just observed,

    (V + YᵀY)⁻¹ = V⁻¹ − V⁻¹Yᵀ (I + YV⁻¹Yᵀ)⁻¹ YV⁻¹.

No variance shrinks by more than det V_t/det V_τ since a time τ (Abbasi-Yadkori et al. 2011, Lemma
12). So they are computed anew, O(A·m²), whenever that ratio exceeds `SHRUNK`. That happens at most
log det(V/λ)/ln SHRUNK times, and subtracting never costs digits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.history import by_arm
from manyarms.engine.linalg import (
    PANEL,
    TINY,
    check_finite,
    check_rounding,
    cholesky,
    chunks,
    solve_lower,
    solve_transposed,
)
from manyarms.kernels import Kernel
from manyarms.lapack import in_one_thread, lapack, linalg
from manyarms.search.scores import AllScored
from manyarms.typing import Array, Indices

SHRUNK = 16.0
"""Growth of det V after which variances are computed anew: they lose little more than a digit."""

FeatureMap = Callable[[Array, Array], tuple[Array, Array]]
"""Of rows (n, d) and their k(x, x) (n,): features φ (n, m) and o (n,), float64."""
MakesMap = Callable[[Kernel, Arms, float, np.random.Generator], FeatureMap]
"""φ for a kernel, a table of arms and λ, drawn where it is random."""


@dataclass(frozen=True)
class Ridge:
    """The regression after some observations. Another observation gives another value."""

    regularization: float
    C: Array  # (m, m)
    c: Array  # (m,) C⁻¹ Σ ω y φ
    last: tuple[Array, Array] | None = None  # C before the last observation, and its rows Y (k, m)

    @classmethod
    def prior(cls, regularization: float, m: int) -> "Ridge":
        """Nothing observed: V = λI."""
        C = np.asfortranarray(np.sqrt(regularization) * np.eye(m))
        return cls(regularization, C, np.zeros(m))

    def observed(self, features: Array, rewards: Array, weights: Array) -> "Ridge":
        """The regression with these observations, (k, m) and (k,)."""
        roots = np.sqrt(weights)
        Y = roots[:, None] * features
        # Σ ω y φ = Cc, so that C′⁻¹ of it and of what is new is c′.
        C, rotated = updated_cholesky(self.C, Y, self.c[:, None])
        with np.errstate(over="ignore", invalid="ignore"):
            c = rotated[:, 0] + solve_lower(C, Y.T @ (roots * rewards))
        check_finite(C)
        check_finite(c)
        return Ridge(self.regularization, C, c, (self.C, Y))

    def lowered(self, features: Array, variance: Array, settled: float) -> tuple[Array, float]:
        """σ² of rows (n, m) now, given those before the last observation.

        `settled` is log det(V/λ) when they were computed anew last; the second result is what it is
        now.
        """
        if self.last is None:
            return variance, settled
        C, Y = self.last
        if len(Y) >= len(C) or self.log_det - settled > np.log(SHRUNK):
            return self.leverage(features), self.log_det
        # NNᵀ = I + YV⁻¹Yᵀ, and φᵀV⁻¹Yᵀ(NNᵀ)⁻¹YV⁻¹φ = ‖N⁻¹YV⁻¹φ‖² is what σ² falls by.
        G = solve_lower(C, Y.T.copy())
        N = cholesky(np.eye(len(Y)) + G.T @ G)
        H = solve_lower(N, (features @ solve_transposed(C, G)).T)
        return np.asarray(np.maximum(variance - np.einsum("ij,ij->j", H, H), 0.0)), settled

    @cached_property
    def w(self) -> Array:
        """V⁻¹ Σ ω y φ, (m,)."""
        return solve_transposed(self.C, self.c.copy())

    @cached_property
    def log_det(self) -> float:
        """log det(V/λ)."""
        return float(2 * np.log(np.diag(self.C) / np.sqrt(self.regularization)).sum())

    @property
    def error(self) -> float:
        """V is exact."""
        return 0.0

    @property
    def dimension(self) -> float:
        """Σ ω σ²(x_s) over what was observed: m − λ Tr V⁻¹."""
        if not len(self.C):  # LAPACK takes no empty matrix, and says so on the terminal
            return 0.0
        inverse, _ = lapack.dtrtri(self.C, lower=1)  # Tr V⁻¹ = ‖C⁻¹‖²
        return float(len(self.C) - self.regularization * np.square(np.tril(inverse)).sum())

    def drawn(self, normal: Array) -> Array:
        """V^{−½}g of g (m,) standard normal: its covariance is V⁻¹."""
        return solve_transposed(self.C, normal.copy())

    def leverage(self, features: Array) -> Array:
        """σ² = ‖C⁻¹φ‖² of rows (n, m)."""
        variance = np.empty(len(features))
        for rows in chunks(len(features), len(self.C)):
            B = solve_lower(self.C, np.array(features[rows].T, order="F"))
            variance[rows] = np.einsum("ij,ij->j", B, B)
        return variance


@dataclass(frozen=True)
class SketchedRidge:
    """The same with Ṽ = λI + BᵀB in place of V, B of m rows: frequent directions.

    (Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016.)
    Rows of A, the √ω φ, are added to the sketch B; where more than m remain after a singular value
    decomposition, all squared singular values are lowered by the (m + 1)-th, ρ, and the m largest
    are kept. With ρ̄ the sum of the ρ so far,

        0 ⪯ AᵀA − BᵀB ⪯ ρ̄I,   ρ̄ ≤ ‖A − A_k‖²_F/(m + 1 − k) for every k ≤ m,

    A_k the best approximation of rank k: every shrink takes at least (m + 1)ρ from ‖B‖²_F, and at
    most kρ of that in the top k directions of A. Papers that count the row just added call this a
    sketch of m + 1 rows.
    """

    size: int  # m
    regularization: float
    values: Array  # (k,) v, not negative, largest first, k ≤ m: BᵀB = Σ_i v_i d_i d_iᵀ
    directions: Array  # (k, d) d_i, orthonormal
    lost: float  # ρ̄
    b: Array  # (d,) Σ ω y φ

    @classmethod
    def prior(cls, size: int, regularization: float, d: int) -> "SketchedRidge":
        """Nothing observed."""
        return cls(size, regularization, np.zeros(0), np.zeros((0, d)), 0.0, np.zeros(d))

    def observed(self, features: Array, rewards: Array, weights: Array) -> "SketchedRidge":
        """The regression with these observations, (k, d) and (k,); the sketch shrinks at most
        once."""
        m = self.size
        with np.errstate(over="ignore", invalid="ignore"):
            b = self.b + features.T @ (weights * rewards)
        rows = np.sqrt(weights)[:, None] * features
        B = np.vstack([np.sqrt(self.values)[:, None] * self.directions, rows])
        _, roots, directions = np.linalg.svd(B, full_matrices=False)
        values = np.square(roots)
        # Liberty's shrink: ρ, the (m + 1)-th squared singular value, is taken from all.
        shrink = float(values[m]) if len(values) > m else 0.0
        return replace(
            self,
            values=np.maximum(values[:m] - shrink, 0.0),
            directions=directions[:m],
            lost=self.lost + shrink,
            b=b,
        )

    def lowered(self, features: Array, variance: Array, settled: float) -> tuple[Array, float]:
        """σ̃² of rows (n, d), anew: a sketch that shrinks can raise them."""
        return self.leverage(features), settled

    @property
    def complete(self) -> bool:
        """The directions span all of the space."""
        return len(self.directions) == len(self.b)

    def power(self, x: Array, exponent: float) -> Array:
        """Ṽ^exponent x, (d,): the parts inside and outside the directions."""
        z = self.directions @ x
        inside = self.directions.T @ ((self.values + self.regularization) ** exponent * z)
        if self.complete:
            return np.asarray(inside)
        return np.asarray(inside + self.regularization**exponent * (x - self.directions.T @ z))

    def leverage(self, features: Array) -> Array:
        """σ̃² = φᵀṼ⁻¹φ of rows (n, d)."""
        Z = np.square(features @ self.directions.T)
        inside = np.asarray(Z @ (1 / (self.values + self.regularization)))
        if self.complete:
            return inside
        outside = np.einsum("ij,ij->i", features, features) - Z.sum(axis=1)
        return np.asarray(np.maximum(outside, 0.0) / self.regularization + inside)

    @cached_property
    def w(self) -> Array:
        """w̃ = Ṽ⁻¹b, (d,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.power(self.b, -1)

    @property
    def log_det(self) -> float:
        """A bound on log det(V/λ), by AᵀA ⪯ BᵀB + ρ̄I."""
        eigenvalues = np.zeros(len(self.b))  # of BᵀB, 0 outside its directions
        eigenvalues[: len(self.values)] = self.values
        return float(np.log1p((eigenvalues + self.lost) / self.regularization).sum())

    @property
    def error(self) -> float:
        """ρ̄/λ: no direction has lost more of V/λ."""
        return self.lost / self.regularization

    @property
    def dimension(self) -> float:
        """Tr BᵀB(λI + BᵀB)⁻¹, of the rows that the sketch stands for."""
        return float((self.values / (self.values + self.regularization)).sum())

    def drawn(self, normal: Array) -> Array:
        """Ṽ^{−½}g of g (d,) standard normal."""
        return self.power(normal, -0.5)


Regression = Ridge | SketchedRidge


@in_one_thread
def mean_norm(regression: Regression) -> tuple[float, float]:
    """‖w‖, and σ of ⟨θ, w/‖w‖⟩: what is known of the direction of the mean."""
    length = float(linalg.norm(regression.w))
    direction = regression.w / max(length, TINY)
    return length, float(np.sqrt(regression.leverage(direction[None])[0]))


def updated_cholesky(C: Array, Y: Array, B: Array) -> tuple[Array, Array]:
    """The factor C′ of CCᵀ + YᵀY, Y (k, m), and C′⁻¹Cb for the columns b of B (m, n), in O(km(m +
    n)) and stably.

    [Cᵀ; Y] = Q [C′ᵀ; 0], so that Cb = [C, Yᵀ] [b; 0] = C′ times the first m rows of Qᵀ [b; 0].
    """
    if not len(C):
        return C, B
    R, V, T, _ = lapack.dtpqrt(0, min(len(C), PANEL), np.asfortranarray(C.T), np.asfortranarray(Y))
    rest = np.zeros((len(Y), B.shape[1]), order="F")
    rotated, _, _ = lapack.dtpmqrt(0, V, T, np.asfortranarray(B), rest, trans="T")
    # QR leaves the signs of R's rows open; a Cholesky factor has a positive diagonal.
    signs = np.where(np.diag(R) < 0, -1.0, 1.0)
    return np.asfortranarray((signs[:, None] * R).T), signs[:, None] * rotated


@dataclass(frozen=True)
class OnFeatures:
    """The rule that makes a linear belief.

    makes_map : gives φ.
    regression : gives the regression before anything is observed, of λ and m.
    guarantee : what is known of the posterior as one of the kernel's functions.
    """

    makes_map: MakesMap
    regression: Callable[[float, int], Regression] = Ridge.prior
    guarantee: Posterior = "none"

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> "LinearBelief":
        """The belief before anything is observed."""
        feature_map = self.makes_map(kernel, arms, regularization, rng)
        features, _ = feature_map(arms.rows[:1].astype(np.float64), arms.diag[:1])
        regression = self.regression(regularization, features.shape[1])
        return LinearBelief(self, kernel, regularization, noise, feature_map, regression)


@dataclass(frozen=True)
class LinearBelief:
    """What is known of f. It keeps nothing of a row but its part in V and w."""

    rule: OnFeatures
    kernel: Kernel
    regularization: float  # λ
    noise: float  # ξ
    feature_map: FeatureMap
    regression: Regression
    n_observations: int = 0
    trace: float = 0.0  # Σ ω φᵀφ/λ: φᵀφ is the kernel here
    left_out: float = 0.0  # e = Σ ω o(x)

    @property
    def guarantee(self) -> Posterior:
        """What is known of the posterior."""
        return self.rule.guarantee

    @cached_property
    def evidence(self) -> Evidence:
        """What a radius is a function of."""
        regression = self.regression
        return Evidence(
            self.regularization,
            self.noise,
            self.guarantee,
            n_observations=self.n_observations,
            trace=self.trace,
            log_det=regression.log_det,
            left_out=self.left_out,
            largest=lambda: self.left_out + regression.error,
            information=float(np.square(np.sqrt(regression.log_det) + np.sqrt(self.left_out))),
            mean=lambda: mean_norm(regression),
            dimension=lambda: regression.dimension + self.left_out,
        )

    def features(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """φ (n, m) and o (n,) of rows."""
        if len(rows) != 1:
            return self.feature_map(rows, diag)
        # A product with one row rounds otherwise than one with many. The features of an arm are to
        # be the same in both.
        features, outside = self.feature_map(np.repeat(rows, 2, axis=0), np.repeat(diag, 2))
        return features[:1], outside[:1]

    def observed(self, batch: Batch) -> Step:
        """The belief after these observations. There is nothing to decide."""
        features, outside = self.features(batch.rows, batch.diag)
        squares = np.einsum("ij,ij->i", features, features)
        check_rounding(self.regularization, float(squares.max()) * float(batch.weights.max()))
        regression = self.regression.observed(features, batch.rewards, batch.weights)
        check_finite(regression.w)
        after = replace(
            self,
            regression=regression,
            n_observations=self.n_observations + batch.n_observations,
            trace=self.trace + float(batch.weights @ squares) / self.regularization,
            left_out=self.left_out + float(batch.weights @ outside),
        )
        return Step(after, Record.nothing(len(batch)))

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ and σ² of rows, (n,) each."""
        features, outside = self.features(rows, diag)
        return _product(features, self.regression.w), outside + self.regression.leverage(features)

    def scores(self, arms: Arms) -> "LinearScores":
        """The scores of arms, whose features are kept: 8·A·m bytes."""
        features, outside = self.features(arms.rows, arms.diag)
        regression = self.regression
        mean = _product(features, regression.w)
        inside = regression.leverage(features)
        return LinearScores(features, outside, regression, mean, inside, regression.log_det)


@dataclass(frozen=True)
class LinearScores(AllScored):
    """Scores of arms, brought forward at every observation: O(A·m)."""

    features: Array  # (A, m)
    outside: Array  # (A,) o
    regression: Regression  # with what is supposed
    mean: Array  # (A,) μ, without what is supposed
    inside: Array  # (A,) φᵀV⁻¹φ
    settled: float  # log det(V/λ) when the variances were computed anew last

    def after(self, step: Step) -> "LinearScores":
        if not isinstance(step.after, LinearBelief):
            raise TypeError(f"these scores follow a linear belief, got {step.after!r}")
        regression = step.after.regression
        return self._brought(regression, _product(self.features, regression.w))

    def supposing(self, positions: Indices) -> "LinearScores":
        n = len(positions)
        arms, rewards, weights = by_arm(positions, np.zeros(n), np.ones(n))
        supposed = self.regression.observed(self.features[arms], rewards, weights)
        return self._brought(supposed, self.mean)

    def _brought(self, regression: Regression, mean: Array) -> "LinearScores":
        inside, settled = regression.lowered(self.features, self.inside, self.settled)
        return LinearScores(self.features, self.outside, regression, mean, inside, settled)

    def current(self) -> tuple[Array, Array]:
        return self.mean, self.outside + self.inside

    def drawn(self, beta: float, dice: np.random.Generator) -> Array:
        """φᵀθ of all arms, θ ~ N(w, β²V⁻¹), V with what is supposed, (A,)."""
        normal = dice.standard_normal(len(self.regression.w))
        return np.asarray(self.mean + beta * (self.features @ self.regression.drawn(normal)))


def _product(features: Array, w: Array) -> Array:
    """Φw; not finite, and no warning, where rewards are beyond float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(features @ w)
