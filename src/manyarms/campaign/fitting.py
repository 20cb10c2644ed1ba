"""Lengthscales, scale and noise of a kernel, learned from results, and the units of rewards.

With mean rewards ȳ (u,) of u distinct arms pulled n times, within-arm sum of squares W over N
observations, S = vK + σ²N⁻¹ and the mean m profiled out, m = 1ᵀS⁻¹ȳ/1ᵀS⁻¹1, the negative log
likelihood is

    ½(ȳ − m)ᵀS⁻¹(ȳ − m) + ½ log det S + ½(N − u) log σ² + W/2σ²  + constants,

where a mean whose noise was told has its variance in place of σ²/n. It is minimised with log-normal
priors on all parameters by L-BFGS with analytic gradients: O(u³) an evaluation, so at most MOST
arms take part. Rewards are to be about standardised and numeric columns to span about [0, 1]: the
priors expect it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy

from manyarms.campaign.results import (
    LEAST_NOISE_SHARE,
    ByArm,
    Results,
    Schedule,
    Warp,
)
from manyarms.equal import equal_rows
from manyarms.kernels import RBF, Hamming, Kernel, Linear, Matern, On, Own, Tanimoto
from manyarms.lapack import in_one_thread, lapack
from manyarms.runtime.signals import load
from manyarms.typing import Array, Indices

ARMS_OF_A_FIT = 256
"""Arms that a fit uses, at most: with 256 an evaluation of the loss takes 5 milliseconds,
and a fit some thirty of them."""
SCALE_PRIOR = 0.1
"""Standard deviation of log v; its mean gives f a prior variance of 1. A scale left free makes the
model too sure of itself while most results are of a few good arms."""
NOISE_PRIOR = (-4.0, 2.0)
"""Mean and standard deviation of log σ²: noise of about an eighth of the rewards' scale, give or
take a factor of e."""
SHAPE_BOUNDS = (np.log(0.05), np.log(1e3))
"""Bounds of log lengthscales: below 0.05 no arm would say anything about another."""
OWN_PRIOR = (-3.0, 1.0)
"""Mean and standard deviation of the log variance of the part that each row has of its own. Fits to
600 rows each of ten tables, half of them among the best twentieth, found deviations of 0.03 to
0.5."""
OWN_BOUNDS = (np.log(1e-6), 0.0)
TRUST_PRIOR = (-1.0, 2.0)
"""The same of the log variance of the weight of what a prior expects, which is in rewards of its
own: a weight of about 1 where both tables are alike. It is wide, as little is known of it."""
TRUST_BOUNDS = (np.log(1e-6), np.log(10.0))
MOST_NOISE_SHARE = 10.0
"""Noise variance of a fit, at most: three units (`results.MOST_SCATTER`)."""
ROUGH = (-1.0, -6.0)
"""Log lengthscales and log σ² of one more start: short, and almost without noise. A search that
begins at the peak of the prior may end where everything counts as noise."""
FIT_ITERATIONS, TOLERANCE = 40, 1e-5
"""Iterations of L-BFGS, at most, and the relative gain at which they end."""


class Summary(NamedTuple):
    """What a fit needs of the results: means (u,), counts (u,) and rows (u, d) of distinct arms,
    and what replicates say about the noise."""

    rows: Array
    means: Array
    counts: Array
    within: float  # Σ over arms of Σ(y − ȳ)²
    replicates: float  # N − u
    known: Array | float = (
        0.0  # (u,) variance of means whose noise was told, whose count is infinite; 0 of the others
    )

    def some(self, at: Indices) -> "Summary":
        """The same with fewer arms; the noise is still told by the replicates of all."""
        known = np.broadcast_to(self.known, len(self.means))[at]
        return self._replace(
            rows=self.rows[at], means=self.means[at], counts=self.counts[at], known=known
        )


Gram = Callable[[Array], tuple[Array, Callable[[Array], Array]]]
"""Of θ: K (u, u), and for a symmetric G the gradient of Σ G∘K by θ, (p,)."""


class Shape(Protocol):
    """A family of kernels with k(x, x) = 1 and log parameters θ (p,)."""

    @property
    def prior(self) -> tuple[Array, Array]:
        """The most probable θ and its standard deviations, (p,) each."""

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The least and the largest of each of θ."""

    @property
    def n_lengthscales(self) -> int:
        """How many of θ are log lengthscales: the first ones."""

    def kernel(self, theta: Array) -> Kernel:
        """The kernel of these parameters."""

    def gram(self, X: Array) -> "Gram":
        """The kernel of all pairs of rows of X (u, d), to be evaluated at many θ."""


@dataclass(frozen=True)
class Fixed:
    """A kernel that was given: only its scale is learned."""

    given: Kernel

    @property
    def prior(self) -> tuple[Array, Array]:
        return np.zeros(0), np.zeros(0)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return []

    @property
    def n_lengthscales(self) -> int:
        return 0

    def kernel(self, theta: Array) -> Kernel:
        return self.given

    def gram(self, X: Array) -> Gram:
        K = self.given(X, X)
        return lambda theta: (K, lambda G: np.zeros(0))


@dataclass(frozen=True)
class Mixed:
    """Matérn-5/2 or RBF on numeric columns × Hamming on codes × Tanimoto on bits, in this order; a
    lengthscale a column but for bits. Numeric columns that are `named` may hold numbers of names:
    they are columns of Hamming as well, whose lengthscales come before those of codes.

    Where `own`, each row has a part of its own besides, whose log variance comes next in θ: no
    product of columns is quite what a table holds, and what it misses is not noise, since it comes
    again when a candidate is tried again. Where `expected`, the first column e of a row, before all
    others, is what a prior expects of it (`prior`). A multiple of e is part of f: w·e·e′ is added,
    and log w is the last of θ.

    Numeric lengthscales are drawn to exp(√2 + ½ ln d − 3), where the dimension-scaled prior
    LogNormal(√2 + ½ ln d, √3) of Hvarfner, Hellsten and Nardi (ICML 2024) is most probable. Around
    its median, e³ times that, a rippled function would pass for a flat one. The deviation is half
    of theirs: few results say little of a lengthscale. Those of codes are drawn to d/2.
    """

    numeric: int
    codes: int
    bits: int  # columns they are packed in
    named: tuple[int, ...] = ()  # numeric columns that Hamming takes too
    rbf: bool = False
    own: bool = False
    expected: bool = False

    @property
    def bounds(self) -> list[tuple[float, float]]:
        lengthscales = [SHAPE_BOUNDS] * self.n_lengthscales
        return [*lengthscales, *[OWN_BOUNDS] * self.own, *[TRUST_BOUNDS] * self.expected]

    @property
    def n_lengthscales(self) -> int:
        return self.numeric + len(self.compared)

    @property
    def compared(self) -> list[int]:
        """The columns that Hamming takes."""
        return [*self.named, *range(self.numeric, self.numeric + self.codes)]

    @property
    def prior(self) -> tuple[Array, Array]:
        d = self.n_lengthscales
        each = [self.numeric, len(self.compared)]
        mean = np.repeat([np.sqrt(2) + 0.5 * np.log(max(1, d)) - 3, np.log(max(1, d) / 2)], each)
        sd = np.repeat([np.sqrt(3) / 2, 1.5], each)
        variances = [*[OWN_PRIOR] * self.own, *[TRUST_PRIOR] * self.expected]
        means, sds = np.reshape(variances, (-1, 2)).T
        return np.append(mean, means), np.append(sd, sds)

    def kernel(self, theta: Array) -> Kernel:
        ell, a, b = np.exp(theta), self.numeric, self.n_lengthscales
        stop = a + self.codes
        first = int(self.expected)  # the column of what is expected stands in front
        kernels: list[Kernel] = []
        if a:
            numeric = RBF(ell[:a]) if self.rbf else Matern(ell[:a])
            kernels.append(On(numeric, first, first + a))
        columns = np.array(self.compared)
        ends = np.flatnonzero(np.diff(columns) != 1) + 1  # of columns that stand together
        for run, each in zip(np.split(columns, ends), np.split(ell[a:b], ends), strict=True):
            if len(run):
                kernels.append(On(Hamming(each), first + int(run[0]), first + int(run[-1]) + 1))
        if self.bits:
            kernels.append(On(Tanimoto(packed=True), first + stop, first + stop + self.bits))
        product = kernels[0]
        for kernel in kernels[1:]:
            product = product * kernel
        if self.expected:
            product = product + float(ell[-1]) * On(Linear(), 0, 1)
        return Own(product, float(ell[b])) if self.own else product

    def gram(self, X: Array) -> Gram:
        a, b = self.numeric, self.n_lengthscales
        stop = a + self.codes
        expected = np.outer(X[:, 0], X[:, 0]) if self.expected else None
        X = X[:, int(self.expected) :]
        bits = X[:, stop:]
        shared = Tanimoto(packed=True)(bits, bits) if self.bits else np.ones((len(X), len(X)))
        differs = [np.not_equal.outer(x, x) for x in X[:, self.compared].T]
        same = equal_rows(X, X)  # x = x, and where a row has results with and without a noise

        def at(theta: Array) -> tuple[Array, Callable[[Array], Array]]:
            ell, K, slope = np.exp(theta), shared.copy(), np.zeros_like(shared)
            for differ, each in zip(differs, ell[a:b], strict=True):
                K *= np.exp(-1.0 / each * differ)
            Z = X[:, :a] / ell[:a]
            if a:
                # ‖z − z′‖² by the textbook: a fit needs fewer digits than a posterior.
                norms = np.einsum("ij,ij->i", Z, Z)
                D = np.maximum(norms[:, None] + norms - 2 * Z @ Z.T, 0.0)
                if self.rbf:
                    K = slope = K * np.exp(-0.5 * D)
                else:
                    R = np.sqrt(5 * D)
                    decay = K * np.exp(-R)
                    K, slope = decay * (1 + R + R * R / 3), 5 / 3 * decay * (1 + R)

            def gradient(G: Array) -> Array:
                # ∂k/∂log ℓ_j = slope · (z_j − z′_j)², and Σ M(z − z′)² = 2(Σ_i M_i z_i² − zᵀMz).
                M = G * slope
                numeric = 2 * (M.sum(axis=1) @ (Z * Z) - np.einsum("ij,ij->j", Z, M @ Z))
                GK = G * K  # ∂k/∂log ℓ_j = k/ℓ_j where the codes differ
                codes = [
                    float(GK[differ].sum()) / each
                    for differ, each in zip(differs, ell[a:b], strict=True)
                ]
                own = [ell[b] * float(G[same].sum())] if self.own else []
                trust = [] if expected is None else [ell[-1] * float(np.vdot(G, expected))]
                return np.concatenate([numeric, codes, own, trust])

            total = K.copy()
            if self.own:
                total[same] += ell[b]
            if expected is not None:
                total += ell[-1] * expected
            return total, gradient

        return at


@dataclass(frozen=True)
class Fit:
    """What a fit learned."""

    theta: Array  # log parameters of the shape
    scale: float  # v
    noise: float  # σ², a variance
    mean: float  # m
    loss: float  # negative log posterior density

    @property
    def start(self) -> Array:
        """All log parameters, to start the next fit from."""
        return np.concatenate([self.theta, [np.log(self.scale), np.log(self.noise)]])


class Fitted(NamedTuple):
    """A kernel, its noise and its units, as results made them."""

    found: Fit
    warp: Warp  # from signed values to rewards, centred


def fitted(
    shape: Shape,
    arms: Array,
    results: Results,
    *,
    noise: float | None,
    schedule: Schedule,
    seed: int,
    near: Fitted | None = None,
) -> Fitted:
    """Kernel, noise and units of all these results over a table (A, d); `noise` is the standard
    deviation of values where it is known. With a fit of before, a kernel near it."""
    groups = results.by_arm
    best = float(results.values.max())
    start = None if near is None else near.found.start

    def found_in(warp: Warp, start: Array | None) -> Fit:
        summary = _summary(arms, results, groups, warp)
        if len(groups.arms) > ARMS_OF_A_FIT:
            rng = np.random.default_rng([seed, len(groups.arms)])
            at = np.sort(rng.choice(len(groups.arms), ARMS_OF_A_FIT, replace=False))
            summary = summary.some(at)
        variance = None if noise is None else float(warp.noise(noise)) ** 2
        return fit(shape, summary, noise=variance, start=start, least=schedule.least_noise)

    warp = Warp.half_log(groups.means, best, results.spread if schedule.spread else 0.0)
    found = found_in(warp, start)
    sd = np.sqrt(found.noise) / warp.slope
    least = min(schedule.noises * sd, float(np.std(groups.means)))
    if least * warp.slope > 1:  # such a unit is too small: the same again in larger ones
        warp = Warp.half_log(groups.means, best, least)
        found = found_in(warp, found.start)
    return Fitted(found, warp.shifted(found.mean))


def _summary(arms: Array, results: Results, groups: ByArm, warp: Warp) -> Summary:
    """What a fit needs of results, in the units of a map."""
    distinct, known, total, _, at = groups
    told = ~np.isnan(results.noise)
    rewards = warp.reward(results.values)
    means = np.bincount(at, results.weights * rewards) / total
    within = float(np.square(rewards - means[at])[~told].sum())
    return Summary(
        arms[distinct],
        means,
        np.where(known, np.inf, total),
        within,
        float((~told).sum() - (~known).sum()),
        np.where(known, np.square(warp.noise(1 / np.sqrt(total))), 0.0),
    )


@in_one_thread
def fit(
    shape: Shape,
    evidence: Summary,
    *,
    noise: float | None = None,
    start: Array | None = None,
    least: float = LEAST_NOISE_SHARE,
) -> Fit:
    """The most probable parameters; `noise` is a variance where it is known, at least `least`
    elsewhere. With a `start` those near it, else the best that is found from two starts."""
    load("scipy.optimize")
    mean, sd = shape.prior
    gram = shape.gram(evidence.rows)
    size = -np.log(np.diag(gram(mean)[0]).mean())  # log v for which v·k(x, x) is 1 on average
    mean, sd = np.append(mean, [size, NOISE_PRIOR[0]]), np.append(sd, [SCALE_PRIOR, NOISE_PRIOR[1]])
    if noise is not None:
        mean[-1] = np.log(noise)
    noises = (np.log(least), np.log(MOST_NOISE_SHARE)) if noise is None else (mean[-1], mean[-1])
    bounds = [*shape.bounds, (size - 3, size + 3), noises]

    def loss(x: Array) -> tuple[float, Array]:
        # Minus the log of likelihood times Gaussian priors on the log parameters.
        value, gradient, _ = likelihood(gram, evidence, x)
        away = (x - mean) / sd
        return value + 0.5 * float(away @ away), gradient + away / sd

    def search(x: Array) -> Any:
        x = np.clip(x, *np.transpose(bounds))
        return scipy.optimize.minimize(
            loss,
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": FIT_ITERATIONS, "ftol": TOLERANCE},
        )

    rough = mean.copy()
    rough[: shape.n_lengthscales] = ROUGH[0]
    rough[-1] = ROUGH[1]
    starts = [mean, rough] if start is None else [start]
    best = min(map(search, starts), key=lambda found: float(found.fun))
    x = np.asarray(best.x)
    return Fit(
        x[:-2],
        float(np.exp(x[-2])),
        float(np.exp(x[-1])),
        likelihood(gram, evidence, x)[2],
        float(best.fun),
    )


def likelihood(gram: Gram, evidence: Summary, x: Array) -> tuple[float, Array, float]:
    """The negative log likelihood at x = (θ, log v, log σ²), its gradient, and the mean m; ∞ where
    S is singular."""
    v, noise = np.exp(x[-2:])
    K, backward = gram(x[:-2])
    # S = vK + σ²N⁻¹, with the variance that was told in place of σ²/n.
    S = v * K
    S.flat[:: len(S) + 1] += noise / evidence.counts + evidence.known
    C, info = lapack.dpotrf(S, lower=1, clean=1)
    if info:
        return np.inf, np.zeros(len(x)), 0.0
    inverse = lapack.dpotri(C, lower=1)[0]  # its lower half; the upper one is zero, as in C
    inverse = inverse + inverse.T
    inverse.flat[:: len(S) + 1] /= 2
    # m = 1ᵀS⁻¹ȳ/1ᵀS⁻¹1. It minimises the loss, so gradients need not go through it.
    ones = inverse.sum(axis=1)
    m = float(ones @ evidence.means / ones.sum())
    weights = inverse @ (evidence.means - m)
    value = 0.5 * float((evidence.means - m) @ weights) + float(np.log(np.diag(C)).sum())
    value += 0.5 * evidence.replicates * float(x[-1]) + 0.5 * evidence.within / noise
    # ∂loss/∂S = ½(S⁻¹ − aaᵀ) with a = S⁻¹(ȳ − m) (Rasmussen and Williams 2006, Eq. 5.9).
    G = 0.5 * (inverse - np.outer(weights, weights))
    by_scale = v * float(np.einsum("ij,ij->", G, K))
    by_noise = (
        noise * float(np.diag(G) @ (1 / evidence.counts))
        + 0.5 * evidence.replicates
        - 0.5 * evidence.within / noise
    )
    return value, np.concatenate([v * backward(G), [by_scale, by_noise]]), m
