"""BKB as printed: Algorithm 1 of Calandriello, Carratino, Lazaric, Valko and Rosasco (COLT 2019).

    1  Select uniformly at random x₁ and observe y₁
    2  Initialize S₁ = {x₁}
    3  for t = 1, …, T − 1
    4      Compute μ̃_t(x_i) and σ̃²_t(x_i) for all x_i ∈ A
    5      Select x̃_{t+1} = argmax ũ_t(x_i)                          (Eq. 4)
    6      for i = 1, …, t + 1
    7          Set p̃_{t+1,i} = q̄ · σ̃²_t(x̃_i)
    8          Draw q_{t+1,i} ~ Bernoulli(p̃_{t+1,i})
    9          If q_{t+1,i} = 1 include x̃_i in S_{t+1}

`Policy.choose` is lines 1 and 5, `Drawn.observed` is lines 6 to 9, `Drawn.on` and `DrawnScores` are
line 4. What the print leaves open: pulls of one arm are one row of weight n, drawn with probability
min(1, n·q̄·σ̃²), which is what the proof of Theorem 1 covers for weighted rows; an empty draw keeps
the most probable row.

Symbols: rows X_U (u, d) that were observed, with weights n and weighted reward sums s; S ⊆ U; L the
factor of K_SS; z(x) = L⁻¹k_S(x); r(x) = k(x, x) − ‖z(x)‖²; V = Σ n zzᵀ + λI = CCᵀ; w = V⁻¹ Σ s z.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from manyarms.checks import probability, real
from manyarms.engine.base import Arms, Batch, Record, Step
from manyarms.engine.confidence import Evidence, Posterior
from manyarms.engine.dictionary import (
    Chance,
    Draws,
    alpha_of,
    draw_dictionary,
    inclusion_probability,
)
from manyarms.engine.embedding import PSD_TOLERANCE, Inducing
from manyarms.engine.frozen import Frozen, Inserted
from manyarms.engine.history import History
from manyarms.engine.leftout import largest_left_out
from manyarms.engine.linalg import check_rounding, represented_below
from manyarms.kernels import Kernel
from manyarms.lapack import blas, in_one_thread
from manyarms.search.scores import AllScored
from manyarms.typing import Array, Indices, Mask

ROOM = 1 << 26
"""Numbers (512 MiB) that kept kernel columns may take. Beyond that every pass computes them."""
ARMS = 1024
"""Arms scored at a time: their coordinates stay in cache."""
LARGE = 500
"""Rows beyond which e stands for η: a larger matrix takes more than 50 ms for its eigenvalue."""


class Candidates(NamedTuple):
    """What a draw may depend on, of the u rows observed."""

    variance: Array  # (u,) σ̃²_t
    counts: Array  # (u,) n
    fresh: Array  # (u,) the weight that was observed since the last draw
    before: Array  # (u,) the probability in the last draw, 0 for new rows
    inside: Mask  # (u,) whether the row is in S_t


@dataclass(frozen=True)
class DrawRule:
    """How S is drawn: what Algorithm 1 and its variants share. For the parameters see `Sampled`."""

    oversampling: float = 5.0
    epsilon: float = 0.5
    in_theorem_one: ClassVar[bool] = False  # whether Theorem 1 speaks of such draws

    def __post_init__(self) -> None:
        real(self.oversampling, "oversampling", "a positive number, q̄ of Algorithm 1", above=0)
        probability("epsilon", self.epsilon)

    def prior(
        self,
        kernel: Kernel,
        arms: Arms,
        regularization: float,
        noise: float,
        rng: np.random.Generator,
    ) -> "Drawn":
        """The belief before anything is observed; it knows no table."""
        d = arms.rows.shape[1]
        seen = History.none(d)
        base = Frozen.prior(Inserted(), kernel, d, regularization, noise)
        nothing = (seen.keys, seen.keys, seen.sums, seen.sums, seen.sums)
        return Drawn(self, kernel, regularization, noise, base, Chance.of(rng), seen, *nothing)

    def inclusion(self, candidates: Candidates) -> Array:
        """Line 7: p̃ (u,) of rows of weight n."""
        return inclusion_probability(candidates.variance, candidates.counts, self.oversampling)

    def draws(self, candidates: Candidates, inclusion: Array) -> Array:
        """The probability (u,) with which each row is taken or kept now."""
        return inclusion


class Sampled(DrawRule):
    """The rule of Algorithm 1: a fresh dictionary at every observation, O(A m²) a step.

    With ``oversampling=oversampling_for(epsilon, delta, T)``, σ²/α ≤ σ̃² ≤ ασ² for all arms and all
    t ≤ T with probability 1 − δ (Theorem 1), α = (1 + ε)/(1 − ε); with `Theory` or `LogDet` as
    well, regret is Õ(√T·d_eff) (Theorem 2). `Resampled` is a radius that holds whatever q̄ is.

    Parameters
    ----------
    oversampling : float
        q̄. About 5 is accurate in practice.
    epsilon : float
        ε, by which ln det(K/λ + I) ≤ Σ ln(1 + ασ̃²) is bounded for the radius `LogDet`.
        `oversampling` must do for it.
    """

    in_theorem_one = True


@dataclass(frozen=True)
class Drawn:
    """What is known of f, through a dictionary S that is drawn from the rows observed."""

    rule: DrawRule
    kernel: Kernel
    regularization: float  # λ
    noise: float  # ξ
    base: Frozen  # the posterior on W = S, all rows projected on it
    chance: Chance
    seen: History  # u rows
    dictionary: Indices  # positions of S among the rows
    inducing: Indices  # S without rows that the others represent, in the order of the coordinates z
    residual: Array  # (u,) r
    variance: Array  # (u,) σ̃²
    inclusion: Array  # (u,) the probability of each row in the last draw
    information: float = 0.0  # Σ ln(1 + ασ̃²(x_s)), each variance as before x_s
    # Of every time that it was drawn anew by hand: q̄ until then, and the observations so far.
    phases: tuple[tuple[float, int], ...] = ()
    guarantee: ClassVar[Posterior] = "resampled"

    @property
    def keys(self) -> Indices:
        """The numbers of the inducing arms, (m,), −1 for rows given by value."""
        return self.base.keys

    @cached_property
    def evidence(self) -> Evidence:
        """What a radius is a function of: ℓ, e and η of the rows as they are projected now."""
        n = self.seen.counts
        lam = self.regularization
        return Evidence(
            lam,
            self.noise,
            self.guarantee,
            n_observations=self.seen.n_observations,
            trace=float(n @ self.seen.diag) / lam,
            log_det=self.base.factor.log_det,
            left_out=float(n @ self.residual) / lam,
            largest=self._eta,
            information=self.information,
            mean=self.base.mean_norm,
            dimension=lambda: float(n @ self.variance),
            draws=self._draws,
        )

    @property
    def _draws(self) -> Draws | None:
        """How S was drawn so far; None where Theorem 1 does not speak of it."""
        if not self.rule.in_theorem_one:
            return None
        now = (self.rule.oversampling, max(1, self.seen.n_observations))
        return Draws(self.rule.epsilon, (*self.phases, now))

    @in_one_thread
    def _eta(self) -> float:
        """η = λ_max of what is left out, or e where there are too many rows: O(u³)."""
        outside = np.flatnonzero(self.residual > 0)
        if len(outside) > LARGE:
            return self.evidence.left_out
        if not len(outside):
            return 0.0
        sizes = np.full(len(outside), self.base.m)
        told = (self.seen.rows[outside], sizes, self.seen.counts[outside])
        return largest_left_out(self.base.inducing, self.regularization, *told)

    # Lines 6 to 9: `observed` and `_drawn`

    def observed(self, batch: Batch) -> Step:
        """The belief after these observations, on a new dictionary.

        The record holds S as positions among all rows observed so far, in the order of their first
        observation.
        """
        told, at = self._told(batch)
        fresh = np.bincount(at, batch.weights, len(told.variance)).astype(np.float64)
        alpha = alpha_of(self.rule.epsilon)
        more = float(np.log1p(alpha * batch.weights * told.variance[at]).sum())
        after = replace(told._drawn(fresh), information=self.information + more)
        sizes = np.full(len(batch), len(after.inducing))
        return Step(after, Record(after.dictionary, sizes))

    def redrawn(self, oversampling: float | None = None) -> "Drawn":
        """The belief on another dictionary for the same observations, with another q̄ where given.

        The paper's "Tuning q̄": to go on past the horizon that was planned.
        """
        made = self
        if oversampling is not None:
            made = replace(self, rule=replace(self.rule, oversampling=oversampling))
        n = self.seen.n_observations
        if not n:
            return made
        made = replace(made, phases=(*self.phases, (self.rule.oversampling, n)))
        return made._drawn(np.zeros(len(self.variance)))

    def _drawn(self, fresh: Array) -> "Drawn":
        """On the next dictionary, `fresh` (u,) being the weight that came in since the last."""
        inside = np.isin(np.arange(len(fresh)), self.dictionary)
        rows = Candidates(self.variance, self.seen.counts, fresh, self.inclusion, inside)
        # Lines 6 and 7, for all rows at once: p̃_{t+1,i} = q̄ · σ̃²_t(x̃_i), times the row's
        # weight.
        inclusion = self.rule.inclusion(rows)
        probability = self.rule.draws(rows, inclusion)
        # Lines 8 and 9: S_{t+1} holds the rows with q_{t+1,i} = 1.
        S, chance = draw_dictionary(probability, self.chance)
        return replace(self, chance=chance, inclusion=inclusion).on(S)

    def _told(self, batch: Batch) -> tuple["Drawn", Indices]:
        """With a batch among what was observed, and its places there; S stays that of before."""
        seen, at = self.seen.added(
            batch.rows,
            batch.diag,
            batch.rewards,
            batch.weights,
            batch.keys,
            batch.n_observations,
        )
        check_rounding(self.regularization, float(seen.diag.max()) * float(seen.counts.max()))
        u = len(self.variance)
        _, more = self.moments(seen.rows[u:], seen.diag[u:])
        variance = np.concatenate([self.variance, more])
        inclusion = np.concatenate([self.inclusion, np.zeros(len(more))])
        return replace(self, seen=seen, inclusion=inclusion, variance=variance), at

    # Line 4: of the rows observed here, of all arms in `DrawnScores`

    def on(self, S: Indices) -> "Drawn":
        """The same observations on the dictionary S: positions of rows."""
        seen = self.seen
        lam = self.regularization
        # Where S holds all rows, the posterior is the exact one and is kept whole.
        tolerance = None
        if len(S) < len(seen.rows):
            kappa2 = float(seen.diag[S].max())
            tolerance = represented_below(len(S), kappa2, lam, float(seen.counts.max()))
        W, kept = Inducing.fit(self.kernel, seen.rows[S], seen.keys[S], tolerance)
        Z, r, _ = W.features(seen.rows, seen.diag)
        base = self.base.fitted(W, Z, seen.counts, seen.sums)
        return replace(
            self,
            dictionary=S,
            inducing=S[kept],
            base=base,
            residual=r,
            variance=r / lam + base.factor.half(Z.T).quad,
        )

    def moments(
        self, rows: Array, diag: Array, columns: list[Array] | None = None
    ) -> tuple[Array, Array]:
        """μ̃ = z(x)ᵀw and σ̃² = r(x)/λ + z(x)ᵀV⁻¹z(x) of rows, (n,) each: the paper's Eq. (4).

        The paper writes σ̃² = (k(x, x) − zᵀZᵀZV⁻¹z)/λ. With ZᵀZ = V − λI that is r/λ + zᵀV⁻¹z: the
        part outside the span of the dictionary, which no observation shrinks, and the part inside.
        `columns` are those of k_S, (n,) each, where they are known.
        """
        W = self.base.inducing
        if not W.L.n:
            return self.base.moments(rows, diag)
        mean = np.empty(len(rows))
        variance = np.empty(len(rows))
        for start in range(0, len(rows), ARMS):
            some = slice(start, start + ARMS)
            if columns is None:
                block = rows[some].astype(np.float64, copy=False)
                Z = np.asfortranarray(self.kernel(block, W.rows))
            else:
                Z = np.array([column[some] for column in columns]).T
            # Rows are solved for in place, z from the right: of all ways the fastest.
            blas.dtrsm(1.0, W.L.upper, Z, side=1, overwrite_b=1)  # z = L⁻¹k_S(x)
            mean[some] = Z @ self.base.w
            r = diag[some] - np.einsum("ij,ij->i", Z, Z)
            if (r < -PSD_TOLERANCE * diag[some]).any():
                self.base.features(rows[some].astype(np.float64), diag[some])  # raises KernelError
            blas.dtrsm(1.0, self.base.factor.C.upper, Z, side=1, overwrite_b=1)
            inside = np.einsum("ij,ij->i", Z, Z)  # zᵀV⁻¹z
            variance[some] = np.maximum(r, 0.0) / self.regularization + inside
        return mean, variance

    def scores(self, arms: Arms) -> "DrawnScores":
        """The scores of arms."""
        return DrawnScores(self, arms)


@dataclass(frozen=True)
class DrawnScores(AllScored):
    """Line 4: μ̃ and σ̃² of all arms for a dictionary. Kernel columns of rows that stay are
    kept."""

    belief: Drawn
    arms: Arms
    mean: Array | None = None  # of before what is supposed, which leaves means as they are
    known: dict[int, Array] = field(default_factory=dict)  # k(arms, x) (A,) of rows x by place

    @cached_property
    def columns(self) -> dict[int, Array]:
        """Kernel columns of S; none where they take too much room."""
        rows = self.arms.rows.astype(np.float64, copy=False)
        S = self.belief.inducing.tolist()
        if len(rows) * len(S) > ROOM:
            return {}
        missing = [i for i in S if i not in self.known]
        K = self.belief.kernel(rows, self.belief.seen.rows[missing]) if missing else rows
        new = {i: K[:, j].copy() for j, i in enumerate(missing)}
        return {i: self.known[i] if i in self.known else new[i] for i in S}

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        columns = list(self.columns.values()) or None
        mean, variance = self.belief.moments(*self.arms, columns)
        return mean if self.mean is None else self.mean, variance

    def current(self) -> tuple[Array, Array]:
        return self._moments

    def after(self, step: Step) -> "DrawnScores":
        if not isinstance(step.after, Drawn):
            raise TypeError(f"these scores follow a dictionary that is drawn, got {step.after!r}")
        return DrawnScores(step.after, self.arms, None, self.columns)

    def supposing(self, positions: Indices) -> "DrawnScores":
        rows = self.arms.rows[positions].astype(np.float64, copy=False)
        mean, _ = self._moments
        batch = replace(Batch.supposing(rows, self.arms.diag[positions]), rewards=mean[positions])
        told, at = self.belief._told(batch)
        belief = told.on(np.union1d(told.dictionary, at))  # what S did not represent, it does then
        return DrawnScores(belief, self.arms, mean, self.columns)
