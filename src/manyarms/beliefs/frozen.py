"""The engine: features frozen when they are seen.

An observation of x enters with ψ = Pφ(x), P the projection on the span of the inducing rows W at that moment, and is never
projected again. W only grows. With λ = `regularization` and weights ω,

    Ã = λI + Σ ω ψψᵀ,  w̃ = Ã⁻¹ Σ ω ψy,   μ̃(x) = zᵀw,  σ̃²(x) = r(x)/λ + zᵀV⁻¹z,

z(x) = L⁻¹k_W(x) the coordinates of Pφ(x), r(x) = k(x, x) − ‖z(x)‖², V = λI + Σ ω zzᵀ in these coordinates.

A row enters W first iff ωr/λ > ρ·ln(1 + ωq), q = zᵀV⁻¹z. A row that is left out pays from its own information, hence

    e = Σ ωr/λ over the rows left out ≤ ρ·ln det(V/λ)

surely. An append changes no score: V becomes blockdiag(V, λ), and what r loses q gains.

The estimator, and insertion by a threshold, are those of kernel recursive least squares (Engel, Mannor and Meir 2004) and of
sparse online Gaussian processes (Csató and Opper 2002). docs/theory.md has the statements and their proofs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.beliefs.base import Arms, Batch, Record, Step
from manyarms.beliefs.leftout import LeftOut, largest_eigenvalue
from manyarms.errors import KernelError, NumericalError
from manyarms.kernels import Kernel
from manyarms.kernels.objects import shown
from manyarms.numbers import real, whole
from manyarms.sketch.evidence import Evidence, Guarantee
from manyarms.sketch.factor import WAITING, Factor, Half
from manyarms.sketch.growing import Stack, Triangle
from manyarms.sketch.linalg import EPS, TINY, cholesky, chunks, solve_lower, solve_transposed, solver
from manyarms.typing import Array, Indices, Mask

BLOCK = 128
"""Rows absorbed at a time: one update of the factor of V, and decisions on a matrix that stays in cache."""
FEW = 8
"""Rows up to which a kernel of W and the rows is cheaper than one of the rows and W: see `kernels/distances.py`."""
SMALLEST = 1e-10
"""A row enters W only where r exceeds this part of k(x, x): L is factored in the order of arrival, without pivoting."""
NEGATIVE = 1e-6
"""A residual below minus this part of κ² is no rounding: the kernel is not positive semi-definite."""


@dataclass(frozen=True)
class Inserted:
    """The rule of the default engine: a row enters W when ωr/λ > ρ·ln(1 + ωq).

    tolerance : ρ. What is left out is at most ρ·ln det(V/λ), so that the sketched posterior is within 1 + θ of the exact one,
        θ = (e + √(e² + 4e))/2. A smaller tolerance makes W larger.
    most : inducing rows at most. Beyond that none enters, and e, hence the radius `Certified`, grows instead.
    """

    tolerance: float = 0.01
    most: int | None = None

    def __post_init__(self) -> None:
        real(self.tolerance, "tolerance", "a non-negative number, ρ of the rule", at_least=0)
        if self.most is not None:
            whole(self.most, "most")

    def prior(
        self, kernel: Kernel, arms: Arms, regularization: float, noise: float, rng: np.random.Generator
    ) -> "Frozen":
        """The belief before anything is observed; it knows no table."""
        return Frozen(self, kernel, regularization, noise, Stack(np.zeros((0, arms.rows.shape[1]))))


def _no_numbers() -> Stack:
    return Stack(np.zeros(0, dtype=np.intp))


@dataclass(frozen=True)
class Frozen:
    """What is known of f. Successive values share buffers: an observation costs O(m²) and copies O(m)."""

    rule: Inserted
    kernel: Kernel
    regularization: float  # λ
    noise: float  # ξ
    _W: Stack  # (m, d)
    _keys: Stack = None  # type: ignore[assignment]  # (m,) numbers of the arms in W, −1 for rows given by value
    L: Triangle = None  # type: ignore[assignment]
    factor: Factor = None  # type: ignore[assignment]
    w: Array = None  # type: ignore[assignment]  # (m,)
    left_out: LeftOut = LeftOut()
    n_observations: int = 0
    trace: float = 0.0  # Σ ω k(x, x)/λ
    kappa2: float = 0.0  # the largest k(x, x) seen
    rounding_seen: float = 0.0  # the largest u of a row observed
    places: dict[bytes, int] = None  # type: ignore[assignment]  # of rows in W, shared by all values, so checked when read

    def __post_init__(self) -> None:
        if self.L is None:
            start: dict[str, Any] = {
                "_keys": _no_numbers(),
                "L": Triangle.empty(),
                "factor": Factor.prior(self.regularization),
                "w": np.zeros(0),
                "places": {},
            }
            for name, value in start.items():
                object.__setattr__(self, name, value)

    @property
    def guarantee(self) -> Guarantee:
        """What may be claimed: statements 1 and 2 of docs/theory.md."""
        return "certified"

    @property
    def m(self) -> int:
        """|W|."""
        return self.L.n

    @property
    def W(self) -> Array:
        """The inducing rows, (m, d), in the order in which they entered."""
        return self._W.items

    @property
    def keys(self) -> Indices:
        """The numbers of the arms in W, (m,), −1 for rows given by value."""
        return self._keys.items

    @property
    def evidence(self) -> Evidence:
        """What a radius is a function of."""
        log_det = self.factor.log_det
        total = self.left_out.total
        return Evidence(
            self.regularization,
            self.noise,
            "certified",
            n_observations=self.n_observations,
            trace=self.trace,
            log_det=log_det,
            left_out=total,
            eta=self.left_out.eta,
            information=float(np.square(np.sqrt(log_det) + np.sqrt(total))),  # |√ℓ − √ℓ_K| ≤ √e
            mean_norm=float(np.linalg.norm(self.w)),
            spread=self._spread,
            dimension=self._dimension,
        )

    def _dimension(self) -> float:
        """Σ ω σ̃²(x_s) = m − λ Tr V⁻¹ + e, for rows as they were seen."""
        if not self.m:
            return 0.0
        return self.m - self.regularization * self.factor.trace_of_inverse + self.left_out.total

    def _spread(self) -> float:
        """σ̃ of ⟨f, μ̃/‖μ̃‖⟩: √(wᵀV⁻¹w)/‖w‖."""
        norm = max(float(np.linalg.norm(self.w)), TINY)
        return float(np.sqrt(self.factor.half(self.w[:, None]).quad[0])) / norm

    # Reading

    def features(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """z (n, m) and r ≥ 0 (n,) of rows; of rows in W as L has them, with r = 0 exactly."""
        Z, r, _ = self._features(rows, diag)
        return Z, r

    def _features(self, rows: Array, diag: Array) -> tuple[Array, Array, Mask]:
        """The same, and which of the rows are in W."""
        in_W = np.zeros(len(rows), dtype=bool)
        if not self.m:
            return np.zeros((len(rows), 0)), diag.copy(), in_W
        K = self.kernel(self.W, rows) if len(rows) <= FEW else self.kernel(rows, self.W).T
        Z = self.L.solve(K).T
        r = diag - np.square(Z).sum(axis=1)
        for i, row in enumerate(rows):
            place = self.places.get(row.tobytes(), self.m)
            if place < self.m and np.array_equal(self.W[place], row):
                in_W[i] = True
                Z[i] = 0.0
                Z[i, : place + 1] = self.L.row(place)
        r[in_W] = 0.0
        self._check(rows, diag, Z, r)
        return Z, np.maximum(r, 0.0), in_W

    def moments(self, rows: Array, diag: Array) -> tuple[Array, Array]:
        """μ̃ and σ̃² (leverage units) of rows, (n,) each: the one function that scores."""
        mean = np.empty(len(rows))
        variance = np.empty(len(rows))
        for some in chunks(len(rows), max(1, self.m)):
            Z, r = self.features(rows[some], diag[some])
            mean[some] = Z @ self.w
            variance[some] = r / self.regularization + self.factor.half(Z.T).quad
        return mean, variance

    def solvers(self) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
        """The functions K ↦ L⁻¹K and Z ↦ C⁻¹Z of many columns, V = CCᵀ, for use by several threads."""
        lower = (np.asfortranarray(each.upper.T) for each in (self.L, self.factor.folded.C))
        solve_L, solve_C = (solver(each) for each in lower)
        return solve_L, solve_C

    def rounding(self, Z: Array) -> Array:
        """u (n,): the r of rows with embeddings Z (n, m) is right within 4u, u = ε κ²(1 + ‖L⁻ᵀz‖₁)²."""
        alpha = self.L.solve_transposed(Z.T)
        return np.asarray(EPS * self.kappa2 * np.square(1 + np.abs(alpha).sum(axis=0)))

    def _check(self, rows: Array, diag: Array, Z: Array, r: Array) -> None:
        """Raise KernelError where a residual is negative beyond rounding."""
        worst = int(r.argmin()) if len(r) else -1
        kappa2 = max(self.kappa2, float(diag.max(initial=0.0)))
        if worst < 0 or r[worst] >= -NEGATIVE * kappa2:
            return
        if r[worst] < -NEGATIVE * kappa2 - 100 * float(self.rounding(Z[worst : worst + 1])[0]):
            near = int(np.abs(self.kernel(self.W, rows[worst : worst + 1])[:, 0]).argmax())
            raise KernelError(
                "the kernel is not positive semi-definite: given the inducing rows, "
                f"x = {shown(self.kernel, rows[worst])} has the negative variance {r[worst]:.3g}, most of it against "
                f"y = {shown(self.kernel, self.W[near])}; use a kernel that is a covariance"
            )

    # Observing

    def observed(self, batch: Batch, record: Record | None = None) -> Step:
        """The belief after these observations, absorbed in blocks; with a record, as was decided then."""
        if batch.n_observations == 0:
            return Step(self, Record.nothing(), np.zeros((self.m, 0)), np.zeros(0))
        self._check_rounding(batch)
        forced = None
        if record is not None:
            forced = np.zeros(len(batch), dtype=bool)
            forced[record.entered] = True
        belief = replace(
            self,
            n_observations=self.n_observations + batch.n_observations,
            trace=self.trace + float(batch.weights @ batch.diag) / self.regularization,
            kappa2=max(self.kappa2, float(batch.diag.max())),
        )
        entered = np.zeros(len(batch), dtype=bool)
        sizes = np.zeros(len(batch), dtype=np.intp)
        lowering = surprise = None
        for start in range(0, len(batch), BLOCK):
            some = slice(start, start + BLOCK)
            told = None if forced is None else forced[some]
            belief, decided, lowering, surprise = belief._absorbed(batch.part(some), told)
            entered[some], sizes[some] = decided
        if not np.isfinite(belief.w).all():
            raise NumericalError("the posterior mean is not finite in float64; rescale the rewards")
        record = Record(np.flatnonzero(entered), sizes)
        return Step(belief, record, lowering, surprise) if len(batch) <= BLOCK else Step(belief, record, None, None)

    def _check_rounding(self, batch: Batch) -> None:
        """Raise NumericalError where the evidence ωk(x, x)/λ of a row leaves float64 no digits."""
        with np.errstate(over="ignore"):
            most = float((batch.weights * batch.diag).max())
        if self.regularization <= EPS * most:
            raise NumericalError(
                f"λ = {self.regularization:.3g} is below the rounding of k(x, x) times the weight of an arm, {most:.3g}: "
                "raise `regularization`, or give a larger `noise`"
            )

    def _absorbed(
        self, block: Batch, forced: Mask | None
    ) -> tuple["Frozen", tuple[Mask, Indices], Array | None, Array | None]:
        """After a block of rows: the belief, which of them entered and |W| of each, lowering and surprise of a `Step`."""
        roots = np.sqrt(block.weights)
        Z, r, in_W = self._features(block.rows, block.diag)
        rounding = self.rounding(Z)
        half = self.factor.half(Z.T).scaled(roots)
        smallest = np.maximum(SMALLEST * block.diag, 100 * rounding)
        entered, zeta, outside = self._decided(block, Z, r, half.gram, smallest, forced)
        grown = self._with_inducing(block, Z, zeta, entered)
        sizes = self.m + np.cumsum(entered)

        # What the others leave out counts in e, with the rounding of r. Rows that are in W leave out nothing.
        out = ~(entered | in_W)
        left_out = grown._leaving_out(block, sizes, outside, rounding, out) if out.any() else self.left_out

        # V gains Σ ω ψψᵀ, ψ with zeros in the coordinates that came after it.
        Y = roots[:, None] * np.hstack([Z, zeta.T])
        half = half.extended(roots * zeta, self.regularization)
        N = cholesky(np.eye(len(Y)) + half.gram)
        factor = grown.factor.observed(Y, half, N)

        # w′ = w + V′⁻¹Σ ω ψ(y − ψᵀw) = w + G·N⁻¹√Ω(y − Ψw), G = V⁻¹Ψᵀ√Ω N⁻ᵀ.
        with np.errstate(over="ignore", invalid="ignore"):
            surprise = solve_lower(N, roots * block.rewards - Y @ grown.w)
            lowering = None
            if len(Y) <= WAITING:
                lowering = grown.factor.solved(solve_lower(N, half.c.T.copy(order="F")).T)
                w = grown.w + lowering @ surprise
            else:
                w = grown.w + grown.factor.solved((half.c @ solve_transposed(N, surprise))[:, None])[:, 0]
        rounding_seen = max(self.rounding_seen, float(rounding.max()))
        after = replace(grown, factor=factor, w=w, left_out=left_out, rounding_seen=rounding_seen)
        return after, (entered, sizes), lowering, surprise

    def _decided(
        self, block: Batch, Z: Array, r: Array, S: Array, smallest: Array, forced: Mask | None
    ) -> tuple[Mask, Array, Array]:
        """Which rows of a block enter W, one after the other; their coordinates ζ (j, k) in it; r (k,) as they were seen.

        S = √Ω ZV⁻¹Zᵀ√Ω and G = K − ZZᵀ, both (k, k), follow what happens: when row i enters, ζ = G_i/√G_ii,
        G −= ζζᵀ and S += √Ωζ(√Ωζ)ᵀ/λ; when it is observed, S −= S_iS_iᵀ/(1 + S_ii).
        """
        k = len(block)
        lam = self.regularization
        most = np.inf if self.rule.most is None else self.rule.most
        entered = np.zeros(k, dtype=bool)
        if forced is not None:
            wanted = forced
        elif self.m >= most:
            wanted = entered
        else:
            # What a row explains once the whole block is observed, ωq/(1 + ωq) or less: none enters that would not by this.
            inverse = solve_lower(cholesky(np.eye(k) + S), np.eye(k, order="F"))
            explained = 1.0 - np.square(inverse).sum(axis=0)
            wanted = (r > smallest) & (block.weights * r / lam > self.rule.tolerance * explained)
        if not wanted.any():
            return entered, np.zeros((0, k)), r

        G = self.kernel(block.rows, block.rows) - Z @ Z.T if k > 1 else np.zeros((1, 1))
        G[np.diag_indices(k)] = r
        S = S.copy()
        roots = np.sqrt(block.weights)
        zetas: list[Array] = []
        outside = r.copy()
        for i in range(k):
            residual = max(float(G[i, i]), 0.0)
            outside[i] = residual
            if forced is not None:
                enters = bool(forced[i])
            else:
                information = np.log1p(max(float(S[i, i]), 0.0))
                pays = block.weights[i] * residual / lam > self.rule.tolerance * information
                enters = bool(wanted[i] and pays and residual > smallest[i] and self.m + len(zetas) < most)
            if enters:
                zeta = np.zeros(k)
                zeta[i] = np.sqrt(max(residual, TINY))
                zeta[i + 1 :] = G[i + 1 :, i] / zeta[i]
                G[i:, i:] -= np.outer(zeta[i:], zeta[i:])
                weighted = roots[i:] * zeta[i:]
                S[i:, i:] += np.outer(weighted, weighted) / lam
                entered[i] = True
                outside[i] = 0.0
                zetas.append(zeta)
            column = S[i:, i].copy()
            S[i:, i:] -= np.outer(column, column) / (1.0 + column[0])
        return entered, np.array(zetas).reshape(-1, k), outside

    def _with_inducing(self, block: Batch, Z: Array, zeta: Array, entered: Mask) -> "Frozen":
        """The belief with the rows that entered appended to W: no score changes."""
        at = np.flatnonzero(entered)
        if not len(at):
            return self
        L = self.L
        factor = self.factor
        for number, i in enumerate(at):
            self.places[block.rows[i].tobytes()] = self.m + number
            L = L.appended(np.concatenate([Z[i], zeta[: number + 1, i]]))
            factor = factor.grown()
        return replace(
            self,
            _W=self._W.appended(block.rows[at]),
            _keys=self._keys.appended(block.keys[at]),
            L=L,
            factor=factor,
            w=np.concatenate([self.w, np.zeros(len(at))]),
        )

    def _leaving_out(
        self, block: Batch, sizes: Indices, outside: Array, rounding: Array, out: Mask
    ) -> LeftOut:
        """What is left out once these rows of a block are."""
        weights = block.weights[out]
        share = weights / self.regularization
        return self.left_out.with_rows(
            block.rows[out],
            sizes[out],
            weights,
            share * outside[out],
            share * 4 * rounding[out],
            self._largest_left_out,
        )

    def _largest_left_out(self, rows: Array, sizes: Indices, weights: Array) -> float:
        """λ_max(RRᵀ)/λ of rows left out."""
        Z = self.L.solve(self.kernel(rows, self.W).T).T
        return largest_eigenvalue(self.kernel(rows, rows), Z, sizes, np.sqrt(weights)) / self.regularization
