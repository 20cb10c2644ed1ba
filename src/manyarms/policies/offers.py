"""Rows that are offered once: bounds on all of them, exact scores of the few that may be best.

Scores of such rows are thrown away after the choice, so nothing is kept for later steps. Many rows
are bounded from above first, by products in float32 (`upper_bounds`). Then those of largest bound
are scored by `Frozen.moments`, until no bound is left above the best score. Pulls that are only
supposed leave the means as they are and lower the variances. So an old score is a bound on the
score of now, and the next arm of a batch rescores those only whose bound may still win.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from manyarms.beliefs.base import Arms, Step
from manyarms.beliefs.frozen import Frozen
from manyarms.kernels.base import HALF_ULP
from manyarms.search.scores import Acquisition, Upper, best_of
from manyarms.sketch.linalg import EPS
from manyarms.typing import Array, Indices, Mask

MANY = 2048
"""Rows above which bounds come first. They take some 5 ms, as do the scores of 1,000 rows."""
BLOCK = 2048
"""Rows bounded at a time: their kernel with 200 inducing rows takes 1.6 MB in float32."""
SAMPLE = 64
"""Rows from which the directions of `upper_bounds` are taken."""
DIRECTIONS = 16
"""How many they are. A product with 16 takes less than the kernel's exp, and more hardly prune
better."""
FIRST = 16
"""Rows of largest bound that are scored first. Then as many again as were scored."""
RANGE = 1e20
"""k(x, x) between 1/RANGE and RANGE fits float32, squares included."""


class Front(NamedTuple):
    """The rows of largest bound, and a bound on the values of all others: old bounds hold while
    more is supposed."""

    beta: float  # β̃
    positions: Indices  # in index order
    theta: float


@dataclass
class Offered:
    """Scores of rows, for one choice by upper bounds. `arg_max` sharpens the bounds."""

    belief: Frozen  # with what is supposed
    arms: Arms
    mean: Array  # (n,) bounds on μ̃ from above; infinite where nothing is known yet
    variance: Array  # (n,) on σ̃², of this belief and of all that suppose more
    front: Front | None = None

    @classmethod
    def at(cls, belief: Frozen, arms: Arms) -> "Offered":
        """Of rows at a belief."""
        n = len(arms.rows)
        kappa2 = arms.diag.max(initial=0.0)
        if n > MANY and belief.m and 1 / RANGE < kappa2 < RANGE:
            return cls(belief, arms, *upper_bounds(belief, arms))
        return cls(belief, arms, np.full(n, np.inf), np.zeros(n))

    def after(self, step: Step) -> "Offered":
        """Rows that are offered once follow no step: they are bounded anew."""
        belief: Frozen = step.after  # type: ignore[assignment]
        return Offered.at(belief, self.arms)

    def supposing(self, positions: Indices) -> "Offered":
        """If these rows were pulled once more each: the bounds hold all the more."""
        rows = self.arms.rows[positions]
        step = self.belief.supposing(rows, self.arms.diag[positions])
        belief: Frozen = step.after  # type: ignore[assignment]
        return Offered(belief, self.arms, self.mean.copy(), self.variance.copy(), self.front)

    def arg_max(self, acquisition: Acquisition, barred: Mask | None) -> int:
        """The row of largest value, scored; of those that tie with it, the lowest index."""
        if not isinstance(acquisition, Upper):
            mean, variance = self.moments()
            return best_of(*acquisition(mean, np.sqrt(variance)), barred)
        everyone = np.arange(len(self.mean))
        if len(everyone) > MANY:
            front = self.front
            if front is None or front.beta != acquisition.beta:
                front = self._foremost(acquisition)
            arm, least = self._best_of(front.positions, acquisition, barred)
            if least <= front.theta:
                # What is supposed, or barred, has used the front up.
                front = self._foremost(acquisition)
                arm, least = self._best_of(front.positions, acquisition, barred)
            self.front = front
            if least > front.theta:
                return arm
        return self._best_of(everyone, acquisition, barred)[0]

    def _foremost(self, acquisition: Upper) -> Front:
        """The front by the bounds of now."""
        bound, _ = acquisition(self.mean, np.sqrt(self.variance))
        positions = _largest(bound, np.arange(len(bound)), MANY // 2)
        bound[positions] = -np.inf
        return Front(acquisition.beta, positions, float(bound.max()))

    def _best_of(
        self, among: Indices, acquisition: Upper, barred: Mask | None
    ) -> tuple[int, float]:
        """The best of some rows, and what others must reach to tie with it."""
        bound, _ = acquisition(self.mean[among], np.sqrt(self.variance[among]))
        if barred is not None:
            bound[barred[among]] = -np.inf
        values = np.full(len(bound), -np.inf)
        tolerance = np.zeros(len(bound))
        some = np.flatnonzero(bound == np.inf)
        if not len(some):
            some = _largest(bound, np.flatnonzero(bound > -np.inf), FIRST)
        n_scored = 0
        least = -np.inf
        while len(some):
            at = among[some]
            mean, variance = self.moments(at)
            self.mean[at] = mean
            self.variance[at] = variance + self._slack(variance)
            values[some], tolerance[some] = acquisition(mean, np.sqrt(variance))
            bound[some] = -np.inf
            n_scored += len(some)
            best = int(np.argmax(values))
            least = float(values[best] - tolerance[best])
            some = _largest(bound, np.flatnonzero(bound >= least), n_scored)
        return int(among[best_of(values, tolerance)]), least

    def _slack(self, variance: Array) -> Array:
        """How far rounding may put a variance above one that was computed before: see
        `Table.slack`."""
        belief = self.belief
        residual = 32 * belief.rounding_seen / belief.regularization
        return np.asarray(8 * EPS * (1 + belief.m) * variance + residual)

    def current(self) -> tuple[Array, Array]:
        """μ̃ and σ̃² of all rows."""
        return self.moments()

    def moments(self, positions: Indices | None = None) -> tuple[Array, Array]:
        """μ̃ and σ̃² of some rows, or of all."""
        some: Indices | slice = slice(None) if positions is None else positions
        return self.belief.moments(self.arms.rows[some], self.arms.diag[some])


def _largest(bound: Array, positions: Indices, n: int) -> Indices:
    """Of some positions the n of largest bound, in index order; all where there are no more."""
    if len(positions) <= n:
        return positions
    return np.sort(positions[np.argpartition(bound[positions], -n)[-n:]])


def upper_bounds(belief: Frozen, arms: Arms) -> tuple[Array, Array]:
    """Bounds on μ̃ and σ̃² of rows from above, (n,) each, by products in float32.

    With k = k_W(x), α = L⁻ᵀw and H = I − λV⁻¹,

        μ̃ = αᵀk,    λσ̃² = k(x, x) − zᵀHz ≤ k(x, x) − ‖Fᵀk‖²,    F = L⁻ᵀHG(GᵀHG)^{−½}

    for any directions G (m, p), as Cauchy's inequality in the norm of H says. An entry of k that
    is off by δ puts a product fᵀk off by δ‖f‖₁, and rounding in a sum of m terms by another
    (m + 3)·2⁻²⁴·κ²‖f‖₁.
    """
    lam = belief.regularization
    n = len(arms.rows)
    m = belief.m
    F = np.column_stack([belief.L.solve_transposed(belief.w), _directions(belief, arms)])
    sizes = np.abs(F).sum(axis=0)
    largest = float(np.sqrt(arms.diag.max() * belief.kernel.diag(belief.W).max()))  # of |k|
    rough = F.astype(np.float32)
    kept = 1 - (F.shape[1] + 4) * HALF_ULP  # of a sum of squares in float32
    mean = np.empty(n)
    explained = np.empty(n)
    for start in range(0, n, BLOCK):
        block = slice(start, start + BLOCK)
        K, error = belief.kernel.rough(arms.rows[block], belief.W)
        off = (error + (m + 3) * HALF_ULP * (largest + error)) * sizes
        products = K @ rough
        mean[block] = products[:, 0]
        mean[block] += off[0]
        inside = products[:, 1:]
        norm = np.sqrt(np.einsum("ij,ij->i", inside, inside)) * kept - np.linalg.norm(off[1:])
        explained[block] = np.square(np.maximum(norm, 0.0))
    variance = np.maximum(arms.diag - explained, 0.0) / lam
    # What float64 puts exact scores off by is far less than the margins above, but for r.
    variance += 32 * belief.rounding_seen / lam
    return mean, variance


def _directions(belief: Frozen, arms: Arms) -> Array:
    """F (m, p) of `upper_bounds`, for the directions that explain most of a sample of the rows.

    With Z (s, m) of the sample and ZHZᵀ = EΛEᵀ, G = ZᵀE has GᵀHG = Λ.
    """
    lam = belief.regularization
    some = np.linspace(0, len(arms.rows) - 1, SAMPLE).astype(np.intp)
    Z, _ = belief.features(arms.rows[some], arms.diag[some])
    half = belief.factor.half(Z.T)
    explained = Z @ Z.T - lam * half.gram
    p = min(DIRECTIONS, SAMPLE)
    values, E = eigh(explained, subset_by_index=[SAMPLE - p, SAMPLE - 1])
    sound = values > 1e-6 * values[-1]  # others are of rounding
    HZ = Z.T - lam * belief.factor.C.solve_transposed(half.c)
    return belief.L.solve_transposed(HZ @ (E[:, sound] / np.sqrt(values[sound])))
