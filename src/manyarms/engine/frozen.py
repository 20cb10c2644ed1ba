"""The engine: features frozen when they are seen.

An observation of x enters with ψ = Pφ(x), P the projection on the span of the inducing rows W at
that moment, and is never projected again. W only grows. With λ = `regularization` and weights ω,

    Ã = λI + Σ ω ψψᵀ,  w̃ = Ã⁻¹ Σ ω ψy,   μ̃(x) = zᵀw,  σ̃²(x) = r(x)/λ + zᵀV⁻¹z,

z(x) = L⁻¹k_W(x) the coordinates of Pφ(x), r(x) = k(x, x) − ‖z(x)‖², V = λI + Σ ω zzᵀ in these
coordinates.

A row enters W first iff ωr/λ > ρ·ln(1 + ωq), q = zᵀV⁻¹z. A row that is left out pays from its own
information, hence

    e = Σ ωr/λ over the rows left out ≤ ρ·ln det(V/λ)

surely. An append changes no score: V becomes blockdiag(V, λ), and what r loses q gains.

The estimator, and insertion by a threshold, are those of kernel recursive least squares (Engel,
Mannor and Meir 2004) and of sparse online Gaussian processes (Csató and Opper 2002). docs/theory.md
has the statements and their proofs.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, log1p, sqrt
from typing import ClassVar

import numpy as np

from manyarms.checks import real, whole
from manyarms.engine.base import Arms, Batch, Change, Record, Step, observed_fading
from manyarms.engine.bulk import SMALLEST, observed_many
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.embedding import FEW, Inducing
from manyarms.engine.growing import Factor, longer
from manyarms.engine.leftout import LeftOut, largest_left_out
from manyarms.engine.linalg import EPS, TINY, check_finite, check_rounding, cholesky, chunks
from manyarms.engine.own import Owned
from manyarms.kernels import Kernel
from manyarms.kernels.base import without_own
from manyarms.lapack import in_one_thread
from manyarms.typing import Array, Indices

NONE = np.zeros(0, dtype=np.intp)
FIRST = np.zeros(1, dtype=np.intp)
"""Positions of the rows that entered W: of one row these two."""


@dataclass(frozen=True)
class Inserted:
    """The rule of the default engine: a row enters W when ωr/λ > ρ·ln(1 + ωq).

    Parameters
    ----------
    tolerance : float
        ρ. What is left out is at most ρ·ln det(V/λ), so that the sketched posterior is within 1 + θ
        of the exact one, θ = (e + √(e² + 4e))/2. A smaller tolerance makes W larger.
    most : int, optional
        Inducing rows at most. Beyond that none enters, and e, hence the radius `Certified`, grows
        instead.
    """

    tolerance: float = 0.01
    most: int | None = None

    def __post_init__(self) -> None:
        real(self.tolerance, "tolerance", "a non-negative number, ρ of the rule", at_least=0)
        if self.most is not None:
            whole(self.most, "most")

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> "Frozen | Owned":
        """The belief before anything is observed; it knows no table. Own parts are beside W."""
        smooth, own_variance = without_own(kernel)
        base = Frozen.prior(self, smooth, arms.rows.shape[1], regularization, noise)
        return Owned.prior(kernel, base, own_variance) if own_variance else base

    def pays(self, left_out: float, explained: float) -> bool:
        """Whether a row that leaves out ωr/λ, and of which ωq was not known, may be left out."""
        return left_out <= self.tolerance * log1p(explained)

    def has_room(self, m: int) -> bool:
        """Whether W may have more than m rows."""
        return self.most is None or m < self.most


@dataclass(eq=False)
class Frozen:
    """What is known of f: a value. Successive ones share buffers: an observation costs O(m²) and
    copies O(m)."""

    rule: Inserted
    regularization: float  # λ
    noise: float  # ξ
    inducing: Inducing  # W
    factor: Factor  # V
    w: Array  # (m,)
    left_out: LeftOut
    n_observations: int = 0
    trace: float = 0.0  # Σ ω k(x, x)/λ
    kappa2: float = 0.0  # the largest k(x, x) seen
    rounding_seen: float = 0.0  # the largest u of a row observed
    discount: float = 1.0  # γ: a weight is γω once another observation came
    own_variance: ClassVar[float] = 0.0  # what a row has of its own: nothing
    tried: ClassVar[None] = None  # rows whose own parts are known

    def __post_init__(self) -> None:
        self.kernel = self.inducing.kernel
        self.m = len(self.w)  # |W|
        self.W = self.inducing.rows  # (m, d), in the order in which they entered
        self.L = self.inducing.L  # the factor of K_WW
        self.keys = self.inducing.keys  # numbers of the arms in W, (m,), −1 for rows by value
        # Statements 1 and 2 of docs/theory.md; nothing where observations fade.
        self.guarantee: Posterior = "certified" if self.discount == 1.0 else "none"

    @classmethod
    def prior(
        cls, rule: Inserted, kernel: Kernel, d: int, regularization: float, noise: float
    ) -> "Frozen":
        """Before anything is observed."""
        factor = Factor.of(regularization, np.zeros((0, 0)))
        nothing = LeftOut.nothing(d)
        W = Inducing.none(kernel, d)
        return cls(rule, regularization, noise, W, factor, np.zeros(0), nothing)

    def fitted(self, inducing: Inducing, Z: Array, counts: Array, sums: Array) -> "Frozen":
        """The posterior with another W, given the embeddings (u, m) of all rows observed, their
        weights n and their sums of rewards s, (u,) each."""
        V = (Z * counts[:, None]).T @ Z  # Σ nzzᵀ, and λI
        V[np.diag_indices_from(V)] += self.regularization
        factor = Factor.of(self.regularization, cholesky(V))
        w = factor.C.solve_transposed(factor.C.solve(Z.T @ sums))
        check_finite(w)
        return replace(self, inducing=inducing, factor=factor, w=w)

    @property
    def base(self) -> "Frozen":
        """Itself: there is nothing beside it, as own parts are beside that of an `Owned`."""
        return self

    def corrected(self, mean: Array, variance: Array, places: Indices) -> tuple[Array, Array]:
        """μ̃ and σ̃² of those of the base: the same."""
        return mean, variance

    @property
    def evidence(self) -> Evidence:
        """What a radius is a function of."""
        log_det = self.factor.log_det
        total = self.left_out.total
        return Evidence(
            self.regularization,
            self.noise,
            self.guarantee,
            n_observations=self.n_observations,
            trace=self.trace,
            log_det=log_det,
            left_out=total,
            largest=self.left_out.bound,
            information=(log_det**0.5 + total**0.5) ** 2,  # |√ℓ − √ℓ_K| ≤ √e
            mean=self.mean_norm,
            dimension=self._dimension,
        )

    def _dimension(self) -> float:
        """Σ ω σ̃²(x_s) = m − λ Tr V⁻¹ + e, for rows as they were seen."""
        if not self.m:
            return 0.0
        return self.m - self.regularization * self.factor.trace_of_inverse + self.left_out.total

    @in_one_thread
    def mean_norm(self) -> tuple[float, float]:
        """‖μ̃‖ = ‖w‖, and σ̃ of ⟨f, μ̃/‖μ̃‖⟩ = √(wᵀV⁻¹w)/‖w‖."""
        norm = float(np.linalg.norm(self.w))
        return norm, float(np.sqrt(self.factor.half(self.w).quad)) / max(norm, TINY)

    # Reading

    def features(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """z (n, m) and r ≥ 0 (n,) of rows."""
        Z, r, _ = self.inducing.features(rows, diag)
        return Z, r

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² (leverage units) of rows, (n,) each: the one function that scores."""
        if len(rows) == 1:
            row = rows[0].astype(np.float64, copy=False)
            one = self.inducing.feature(row, float(diag[0]))
            quad = self.factor.half(one.z).quad
            return np.array([one.z @ self.w]), np.array([one.r / self.regularization + quad])
        mean = np.empty(len(rows))
        variance = np.empty(len(rows))
        for some in chunks(len(rows), max(1, self.m)) if len(rows) > FEW else (slice(None),):
            Z, r = self.features(rows[some].astype(np.float64, copy=False), diag[some])
            mean[some] = Z @ self.w
            variance[some] = r / self.regularization + self.factor.half(Z.T).quad
        return mean, variance

    # Observing

    def observed(self, batch: Batch, record: Record | None = None) -> Step:
        """The belief after these observations; with a record, as was decided then."""
        if self.discount < 1.0 and len(batch.rows) and not batch.supposed:
            return observed_fading(self, batch)
        if len(batch.rows) == 1:
            return self.observed_one(batch, None if record is None else len(record.entered) > 0)
        with np.errstate(over="ignore"):
            most = float((batch.weights * batch.diag).max(initial=0.0))
        check_rounding(self.regularization, most)
        return observed_many(self, batch, record)

    def faded_weights(self, weights: Array, gamma: float | Array) -> Array:
        """What counts for γ times as much as these weights."""
        return weights * gamma

    def faded(self, gamma: float) -> "Frozen":
        """The belief if all observations weighed γ times as much: Σ ωψψᵀ and Σ ωψy times γ.

        V′ = γV + (1 − γ)λI and V′w′ = γVw, so that w′ = w − (1 − γ)λV′⁻¹w. O(m³).
        """
        factor = self.factor.faded(gamma)
        away = (1 - gamma) * self.regularization
        w = self.w - away * factor.C.solve_transposed(factor.C.solve(self.w))
        left_out = self.left_out.faded(gamma)
        return replace(self, factor=factor, w=w, left_out=left_out, trace=gamma * self.trace)

    def supposing(self, rows: Array, diag: Array) -> Step:
        """If each of these rows were pulled once more, and gave its mean: means stay, variances
        fall."""
        return self.observed(Batch.supposing(rows, diag))

    def observed_one(self, batch: Batch, told: bool | None) -> Step:
        """After one observation. `told` says whether its row enters, where that was decided
        before."""
        lam = self.regularization
        inducing = self.inducing
        factor = self.factor
        left_out = self.left_out
        w = self.w
        diag = float(batch.diag[0])
        weight = float(batch.weights[0])
        if lam <= EPS * (weight * diag):
            check_rounding(lam, weight * diag)
        kappa2 = max(self.kappa2, diag)

        z, r, spread, in_W = inducing.feature(batch.rows[0], diag)
        u = 0.0 if in_W else EPS * kappa2 * (1 + spread) ** 2  # r is right within 4u
        b, t, y, c = factor.half(z)
        q = float(c.dot(c)) + float(y.dot(y))  # zᵀV⁻¹z
        enters = told
        if enters is None:
            # A supposed pull of a row that is left out would leave r as it is, and the same row
            # would be chosen again and again: as many again as `most` may enter for a while.
            m = len(w) // 2 if batch.supposed else len(w)
            can = r > max(SMALLEST * diag, 100 * u) and self.rule.has_room(m)
            enters = can and not self.rule.pays(weight * r / lam, weight * q)
        if enters:
            # A new coordinate √r, in which V is λ: no score changes.
            more = sqrt(max(r, TINY))
            z = longer(z, more)
            b = longer(b, more / sqrt(lam))
            c = longer(c, more / sqrt(lam))
            q += r / lam
            w = longer(w, 0.0)
            inducing = inducing.appended(batch.rows, batch.keys, z, supposed=batch.supposed)
            factor = factor.grown()
        elif not in_W:
            share = weight / lam
            largest = partial(largest_left_out, inducing, lam)
            left_out = left_out.with_rows(
                batch.rows, len(w), weight, share * r, share * 4 * u, largest
            )

        # V gains ωzzᵀ; with g = V⁻¹z and a = 1 + ωq: w += ωg(y − zᵀw)/a, and σ̃² falls by
        # ω(gᵀz(x))²/a.
        root = sqrt(weight)
        pivot = sqrt(1.0 + weight * q)
        lowering = factor.C.solve_transposed(c) * (root / pivot)
        surprise = 0.0
        if not batch.supposed:
            surprise = root * (float(batch.rewards[0]) - float(z.dot(w))) / pivot
            if not isfinite(surprise):  # the test takes a tenth of what the check does
                check_finite(surprise)
            w = w + surprise * lowering
        if weight != 1.0:
            z, b, t = root * z, root * b, root * t
        after = Frozen(
            self.rule,
            lam,
            self.noise,
            inducing,
            factor.observed_one(z, b, t, pivot),
            w,
            left_out,
            self.n_observations + batch.n_observations,
            self.trace + weight * diag / lam,
            kappa2,
            max(self.rounding_seen, u),
            self.discount,
        )
        record = Record(FIRST if enters else NONE, np.array([len(w)]))
        change = Change(lowering[None], np.array([surprise]))
        return Step(after, record, change, batch)


Engine = Frozen | Owned
"""What the rule `Inserted` makes."""
