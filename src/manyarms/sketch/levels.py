"""Bounds on scores that outlive observations and appended inducing arms, and nested lists of the arms that may be best.

A pass at time τ leaves μ_τ, q_τ and r_τ. Later, the inducing arms perhaps grown, let w_t = [w, w₊] on the old coordinates and
the new, D = ‖w − w_τ‖_{V_τ}, D₊ = √λ‖w₊‖, and ρ ≥ 1 with blockdiag(V_τ, λI) ⪯ ρV_t. Then, by Cauchy–Schwarz on either
group of coordinates and ‖ζ‖² ≤ r_τ for the new ones ζ of x,

    u_t(x) ≤ μ_τ(x) + D √q_τ(x) + D₊ √(r_τ(x)/λ) + β̃_t √ρ σ̃_τ(x).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from manyarms.sketch.linalg import solve_lower
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import Pass, Store, blas
from manyarms.sketch.tracked import Tracked
from manyarms.typing import Array, Indices

LIST_LENGTH = 4096
"""Arms on the last list, about."""
SHARE = 8
"""A list has at most this fraction of the arms it was made from."""
SAMPLE = 16384
"""Arms sampled to find the threshold of a list."""
AHEAD = ((1.0, 1.0), (1.0, 0.5), (0.5, 0.5), (1.0, 0.25), (0.5, 0.25), (0.25, 0.25), (0.5, 0.1), (0.1, 0.1), (0.0, 0.0))
"""How much farther D and D₊ may move, in units of β̃, before a list expires: the first that keeps it short enough."""
LASTING = AHEAD[:5]
"""What a list from bounds that are not current must last for: rather than making it often, one passes over the arms again."""
SWEEP = 1 << 14
"""Arms whose bounds are computed at a time."""
RISE_SLACK = 1 + 1e-6
"""For rounding in ρ, and for appended arms that are left out of it because the others nearly represent them."""


class Reach(NamedTuple):
    """The factors of √q_τ, √(r_τ/λ) and σ̃_τ in the bound."""

    quad: float
    residual: float
    sigma: float

    def within(self, other: "Reach") -> bool:
        """No factor is larger than the other's."""
        return self.quad <= other.quad and self.residual <= other.residual and self.sigma <= other.sigma

    def ahead(self, quad: float, residual: float) -> "Reach":
        """Farther by these shares of β̃."""
        return Reach(self.quad + quad * self.sigma, self.residual + residual * self.sigma, self.sigma * (1 + 0.05 * quad))


def rise(C: Array, Z: Array, zeta: Array, counts: Array, regularization: float) -> float:
    """ρ: one appends coordinates ζ (u, j) of what was observed so far, on whose old coordinates Z (u, m) rests V = CCᵀ.

    On the grown coordinates V′ = [[V, v], [vᵀ, c]], and λ_max(V′⁻¹ blockdiag(V, λI)) is one over the smallest eigenvalue of
    [[I, X], [Xᵀ, c/λ]], X = C⁻¹v/√λ, or of the same with the triangular factor of X in its place.
    """
    if not zeta.shape[1]:
        return RISE_SLACK
    weighted = counts[:, None] * zeta
    X = solve_lower(C, np.array(Z.T @ weighted, order="F")) / np.sqrt(regularization)
    R = np.asarray(np.linalg.qr(X, mode="r"))
    c = np.eye(zeta.shape[1]) + zeta.T @ weighted / regularization
    smallest = np.linalg.eigvalsh(np.block([[np.eye(len(R)), R], [R.T, c]]))[0]
    return RISE_SLACK * max(1.0, 1.0 / float(smallest))


class Anchor:
    """A pass as bounds on what its arms score later."""

    def __init__(self, made: Pass) -> None:
        self.made = made
        self._to: tuple[Posterior, tuple[float, float, float] | None] = (made.posterior, (0.0, 0.0, 1.0))

    def reach(self, tracked: Tracked, beta: float) -> Reach | None:
        """How far scores may have moved, or a little more; None where the inducing arms were not just appended to.

        Up to the last factorisation f it is computed; the observations waiting since then count in V_f, and
        blockdiag(V_τ, λI) ⪯ ρV_f.
        """
        now = tracked.posterior
        if self._to[0] is not now:
            with blas().limit(limits=1):
                self._to = now, self._moved(tracked)
        moved = self._to[1]
        if moved is None:
            return None
        old, new, root_rise = moved
        if tracked.n_waiting:
            waiting = root_rise * tracked.moved
            old, new = old + waiting, new + waiting if len(now.w) > len(self.made.posterior.w) else 0.0
        return Reach(old, new, root_rise * beta)

    def _moved(self, tracked: Tracked) -> tuple[float, float, float] | None:
        """D, D₊ and √ρ at the last factorisation."""
        now, then = tracked.posterior, self.made.posterior
        if not now.embedding.extends(then.embedding):
            return None
        m = len(then.w)
        old = float(np.linalg.norm(then.C.T @ (now.w[:m] - then.w)))
        if m == len(now.w):
            return old, 0.0, 1.0
        history, lam = self.made.history, now.regularization
        Z = tracked.embedded(tracked.positions(history.pulled))
        rho = rise(then.C, Z[:, :m], Z[:, m:], history.counts, lam)
        return old, float(np.sqrt(lam) * np.linalg.norm(now.w[m:])), float(np.sqrt(rho))


@dataclass(frozen=True)
class Promise:
    """No arm left out of a list scores more than θ while the reach of the anchor it was made with stays within a limit."""

    anchor: Anchor
    theta: float
    limit: Reach

    def holds(self, tracked: Tracked, beta: float, level: float) -> bool:
        """No arm left out scores `level` now."""
        if level < self.theta:
            return False
        reach = self.anchor.reach(tracked, beta)
        return reach is not None and reach.within(self.limit)


@dataclass(frozen=True)
class Bounds:
    """Upper bounds on the scores of some arms, from the pass of an anchor."""

    anchor: Anchor
    made: Pass  # what it left of these arms

    @cached_property
    def _roots(self) -> tuple[Array, Array, Array]:
        return _roots(self.made.quad, self.made.residual)

    def upper(self, reach: Reach) -> Array:
        """For all arms; made for lists that are swept again and again."""
        return _upper(self.made.mean, *self._roots, reach)

    def some(self, reach: Reach, part: slice) -> Array:
        """For a part of the arms, nothing kept."""
        made = self.made
        return _upper(made.mean[part], *_roots(made.quad[part], made.residual[part]), reach)

    def top(self, reach: Reach) -> int:
        """Position of the largest."""
        best, top = -np.inf, 0
        for part in _parts(len(self.made.mean)):
            upper = self.some(reach, part)
            at = int(np.argmax(upper))
            if upper[at] > best:
                best, top = float(upper[at]), part.start + at
        return top

    def shortlist(self, reach: Reach, level: float, limit: int, *, lasting: bool) -> "Shortlist | None":
        """All arms that may score `level`, and more while there is room. None where they are more than about `limit`, or where
        the list is to be lasting and would be too long for that."""
        n = len(self.made.mean)
        every = slice(0, n, max(1, n // SAMPLE))
        for share in LASTING if lasting else AHEAD:
            ahead = reach.ahead(*share)
            sample = self.some(ahead, every)
            place = max(1, int(0.75 * limit * len(sample) / n))
            if np.count_nonzero(sample >= level) > place:
                continue
            theta = min(level, float(np.partition(sample, len(sample) - place)[len(sample) - place]))
            found = [part.start + np.flatnonzero(self.some(ahead, part) >= theta) for part in _parts(n)]
            positions = np.concatenate(found)
            if len(positions) <= 1.25 * limit:
                return Shortlist(positions, Promise(self.anchor, theta, ahead))
        return None

    def take(self, positions: Indices) -> "Bounds":
        """Of fewer arms."""
        return Bounds(self.anchor, self.made.take(positions))


class Shortlist(NamedTuple):
    """Positions of arms on a list, and what is promised of the others."""

    positions: Indices
    promise: Promise


@dataclass(frozen=True)
class Level:
    """A list of arms on which all are that may be best, if those of the levels above and its promise hold."""

    arms: Indices | None  # None: all
    n_arms: int
    bounds: Bounds  # from the last pass over them, or over the list they are from
    promised: Shortlist | None  # None: these are all arms
    store: Store | None  # None until a pass over these arms is needed

    def arms_at(self, positions: Indices) -> Indices:
        """The arms at these positions."""
        return positions if self.arms is None else self.arms[positions]

    def holds(self, tracked: Tracked, beta: float, level: float) -> bool:
        """No arm of the level above that is not here scores `level` now."""
        return self.promised is None or self.promised.promise.holds(tracked, beta, level)

    def reach(self, tracked: Tracked, beta: float) -> Reach | None:
        """What `bounds` are to be taken at now."""
        return self.bounds.anchor.reach(tracked, beta)

    def released(self) -> "Level":
        """The same without what was kept to sweep it fast."""
        return replace(self, bounds=Bounds(self.bounds.anchor, self.bounds.made))

    def list(self, found: Shortlist) -> "Level":
        """The level below."""
        return Level(self.arms_at(found.positions), len(found.positions), self.bounds.take(found.positions), found, None)


def _parts(n: int) -> list[slice]:
    return [slice(start, min(start + SWEEP, n)) for start in range(0, n, SWEEP)]


def _roots(quad: Array, residual: Array) -> tuple[Array, Array, Array]:
    """√q, √(r/λ) and σ̃."""
    return np.sqrt(quad), np.sqrt(residual), np.sqrt(quad + residual)


def _upper(mean: Array, root_quad: Array, root_residual: Array, sigma: Array, reach: Reach) -> Array:
    upper = sigma * reach.sigma
    upper += mean
    if reach.quad:
        upper += root_quad * reach.quad
    if reach.residual:
        upper += root_residual * reach.residual
    return upper
