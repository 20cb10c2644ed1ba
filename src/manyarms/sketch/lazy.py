"""The arg max of the scores without scoring every arm, provably the same arm.

A pass at time τ leaves μ_τ, q_τ and r/λ of every arm. Later, on the same inducing arms, with D = ‖w_t − w_τ‖_{V_τ},

    u_t(x) ≤ μ_τ(x) + D √q_τ(x) + β̃_t σ̃_τ(x).

Three tiers: *tracked* arms, whose scores are current; a *short list*, whose bounds are swept at every step and which has a τ of
its own; and the rest, below a threshold θ while D and β̃ stay below what θ was computed for. Arms whose bound beats the best
score are scored, best bound first, until none is left; when that is too many, the list or all arms get a new τ.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple, overload

import numpy as np

from manyarms.sketch.choice import TIE
from manyarms.sketch.history import History
from manyarms.sketch.linalg import pivoted_cholesky, solve_lower
from manyarms.sketch.observations import Observations
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import Moments, Store
from manyarms.sketch.tracked import WAITING, Tracked
from manyarms.typing import Array, Indices

LIST_LENGTH = 4096
"""Arms on a short list, about; a longer one is made only when fewer cannot hold all that may be best."""
SAMPLE = 16384
"""Arms sampled to find the threshold of a list."""
AHEAD = 0.25
"""D may grow by this share of β̃ before a list expires."""
FEW_PULLED = 16
"""Arms pulled since the last pass up to which the next one starts from it."""
RISE_SLACK = 1 + 1e-6
"""For appended arms that are left out of ρ because the others nearly represent them."""
HOT = 1024
"""Arms tracked beside the pulled ones before the list gets a new anchor."""


class Anchor:
    """The time τ of a pass: w_τ and V_τ = CCᵀ."""

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._to: tuple[Posterior, float] = (posterior, 0.0)

    def distance(self, tracked: Tracked) -> float:
        """D = ‖w_t − w_τ‖_{V_τ}, or a little more.

        Up to the last factorisation f it is computed; the observations waiting since then count in V_f ⪰ V_τ.
        """
        now = tracked.posterior
        if self._to[0] is not now:
            self._to = now, float(np.linalg.norm(self._posterior.C.T @ (now.w - self._posterior.w)))
        return self._to[1] + (float(np.linalg.norm(tracked.v - now.v)) if tracked.n_waiting else 0.0)


@dataclass(frozen=True)
class Bounds:
    """μ_τ, √q_τ and σ̃_τ of some arms."""

    mean: Array
    root_quad: Array
    sigma: Array
    anchor: Anchor

    @classmethod
    def of(cls, moments: Moments, anchor: Anchor) -> "Bounds":
        """The bounds that a pass leaves."""
        quad = np.maximum(moments.quad, 0.0)
        return cls(moments.mean, np.sqrt(quad), np.sqrt(np.maximum(quad + moments.residual, 0.0)), anchor)

    def upper(self, distance: float, beta: float) -> Array:
        """μ_τ + D √q_τ + β σ̃_τ."""
        upper = self.root_quad * distance
        upper += self.sigma * beta
        upper += self.mean
        return upper

    def take(self, arms: Indices) -> "Bounds":
        return Bounds(self.mean[arms], self.root_quad[arms], self.sigma[arms], self.anchor)


@dataclass(frozen=True)
class ShortList:
    """The arms that may be best, and the level below which all others stay."""

    arms: Indices
    bounds: Bounds
    theta: float  # no other arm's score exceeds it …
    distance: float  # … while D is at most this
    beta: float  # … and β̃ at most this


def shortlist(bounds: Bounds, best: float, distance: float, beta: float, limit: int) -> ShortList | None:
    """A list of at most about `limit` arms that holds all that may score `best` or more now, or None where there are more.

    It is made to last: for D and β̃ somewhat larger than now, if that keeps it short enough.
    """
    n = len(bounds.mean)
    if n <= LIST_LENGTH:
        return ShortList(np.arange(n), bounds, -np.inf, np.inf, np.inf)
    for ahead_distance, ahead_beta in ((distance + AHEAD * beta, 1.05 * beta), (distance, beta)):
        upper = bounds.upper(ahead_distance, ahead_beta)
        sample = upper[:: max(1, n // SAMPLE)]
        place = max(1, round(len(sample) * LIST_LENGTH / n))
        theta = min(best, float(np.partition(sample, len(sample) - place)[len(sample) - place]))
        arms = np.flatnonzero(upper >= theta)
        if len(arms) <= limit:
            return ShortList(arms, bounds.take(arms), theta, ahead_distance, ahead_beta)
    return None


def climb(best: float, upper: Array, margin: float, score: Callable[[Indices], float]) -> float:
    """Score the positions whose bound reaches the best score, best bound first, in growing blocks, until none is left.

    `score` scores positions and returns their largest score. Returns the best score.
    """
    scored, block = 0, 16
    reach = np.flatnonzero(upper >= best - margin)
    if len(reach):
        reach = reach[np.argsort(-upper[reach], kind="stable")]
    while scored < len(reach) and upper[reach[scored]] >= best - margin:
        positions = reach[scored : scored + block]
        best = max(best, score(positions))
        scored += len(positions)
        block *= 4
    return best


class Pass(NamedTuple):
    """What a pass over all arms left, and when."""

    posterior: Posterior
    history: History
    moments: Moments


class Frontier:
    """Scores that are current, and bounds on the rest. `arg_max` improves what is held here; no answer depends on it."""

    def __init__(self, store: Store, tracked: Tracked, history: History) -> None:
        self._store, self._history, self.tracked = store, history, tracked
        self._held: Pass | None = None  # the last pass over all arms …
        self._bounds: Bounds | None = None  # … as bounds, where it was on these inducing arms
        self._list: ShortList | None = None
        self._listed = np.zeros(0, dtype=bool)  # which arms of the list are tracked

    def track(self, arms: Indices) -> None:
        """Keep the scores of these arms current."""
        new = arms[self.tracked.positions(arms) < 0]
        if len(new):
            self.tracked = self.tracked.add(new, *self._store.embed(self.tracked.posterior, new))
            self._listed = np.zeros(0, dtype=bool)

    def observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> "Frontier":
        """The frontier after observations of tracked arms, which `history` includes."""
        tracked = self.tracked
        if tracked.n_waiting + len(arms) > WAITING:
            tracked = tracked.restarted(history, np.arange(tracked.n_arms))
        else:
            for at, reward, weight in zip(tracked.positions(arms), rewards, weights, strict=True):
                tracked = tracked.pull(int(at), float(reward), float(weight))
        return self._with(tracked, history)

    def refitted(self, tracked: Tracked, history: History) -> "Frontier":
        """The frontier after the posterior was fitted anew, perhaps on other inducing arms."""
        frontier = self._with(tracked, history)
        frontier._listed = np.zeros(0, dtype=bool)
        if tracked.posterior.embedding is not self.tracked.posterior.embedding:
            frontier._bounds = frontier._list = None
        return frontier

    def arg_max(self, beta: float, accuracy: float) -> int:
        """The arm that full scoring would pick; scores have this relative accuracy."""
        if self.tracked.n_arms - len(self._history.pulled) > HOT:
            self._anchor_list()
        bounds = self._bounds or self._pass()
        best, margin = self._best(beta, accuracy)
        held = self._list_reaching(bounds, best - margin, beta)
        if held is None:
            bounds = self._refresh()
            self.track(np.array([int(np.argmax(bounds.upper(0.0, beta)))]))
            best, margin = self._best(beta, accuracy)
            held = self._listing(bounds, best - margin, beta)
        self._climb(held, best, margin, beta)
        return _lowest_of_ties(self.tracked.arms, self.tracked.mean, self._ucb(beta))

    def arg_max_supposing(self, posterior: Posterior, rise: float, beta: float, accuracy: float) -> int:
        """The arm of largest μ̃ + β̃σ̃′, the means as they are and σ̃′ of this posterior, for which σ̃′² ≤ rise·σ̃²."""
        wide, bounds = beta * np.sqrt(rise), self._bounds or self._pass()
        arms: list[Indices] = []
        means: list[Array] = []
        scores: list[Array] = []

        def score(at: Indices) -> float:
            """Score tracked arms, by position."""
            arms.append(self.tracked.arms[at])
            means.append(self.tracked.mean[at])
            scores.append(means[-1] + beta * np.sqrt(self._store.variance(posterior, arms[-1])))
            return float(scores[-1].max())

        upper = self._ucb(wide)
        margin = accuracy * float(np.abs(upper).max())
        best = climb(-np.inf, upper, margin, score)
        held = self._list_reaching(bounds, best - margin, wide) or self._listing(self._refresh(), best - margin, wide)
        self._climb(held, best, margin, wide, score)
        return _lowest_of_ties(np.concatenate(arms), np.concatenate(means), np.concatenate(scores))

    def rise(self, new: Indices, observed: Observations) -> float:
        """ρ with σ̃′² ≤ ρσ̃² for all arms when these are appended to the inducing ones.

        On the grown coordinates V′ = [[V, v], [vᵀ, c]], and ρ = λ_max(V′⁻¹ blockdiag(V, λI)) is one over the smallest
        eigenvalue of [[I, X], [Xᵀ, c/λ]], X = C⁻¹v/√λ, or of the same with the triangular factor of X in its place.
        """
        self._factor()
        posterior = self.tracked.posterior
        rows = self._store.rows(new)
        K = posterior.embedding.kernel(rows, rows)
        Zp, _ = posterior.embedding(rows, np.diag(K))
        L, kept, _ = pivoted_cholesky(K - Zp @ Zp.T, 1e-10 * float(np.diag(K).max()))
        if not len(kept):
            return RISE_SLACK
        Z = self.tracked.embedded(self.tracked.positions(self._history.pulled))
        cross = posterior.embedding.kernel(observed.rows, rows[kept]) - Z @ Zp[kept].T
        zeta = solve_lower(L, np.array(cross.T, order="F"))
        weighted = zeta * observed.counts
        X = solve_lower(posterior.C, np.array(Z.T @ weighted.T, order="F")) / np.sqrt(posterior.regularization)
        R = np.asarray(np.linalg.qr(X, mode="r"))
        C = np.eye(len(kept)) + weighted @ zeta.T / posterior.regularization
        smallest = np.linalg.eigvalsh(np.block([[np.eye(len(R)), R], [R.T, C]]))[0]
        return RISE_SLACK * max(1.0, 1.0 / float(smallest))

    def _with(self, tracked: Tracked, history: History) -> "Frontier":
        frontier = copy(self)
        frontier.tracked, frontier._history, frontier._listed = tracked, history, self._listed.copy()
        return frontier

    def _ucb(self, beta: float) -> Array:
        return self.tracked.mean + beta * np.sqrt(self.tracked.variance)

    def _best(self, beta: float, accuracy: float) -> tuple[float, float]:
        """The largest score among the tracked arms, and what rounding may add to one."""
        ucb = self._ucb(beta)
        top = int(np.argmax(ucb))
        mean = float(self.tracked.mean[top])
        return float(ucb[top]), accuracy * (abs(mean) + float(ucb[top]) - mean)

    def _list_reaching(self, bounds: Bounds, level: float, beta: float) -> ShortList | None:
        """A list of all arms that may score `level`: the one there is, a new one, or None where it would be long."""
        held, distance = self._list, bounds.anchor.distance(self.tracked)
        if held and distance <= held.distance and beta <= held.beta and level >= held.theta:
            return held
        return self._listing(bounds, level, beta, max(4 * LIST_LENGTH, len(bounds.mean) // 8))

    @overload
    def _listing(self, bounds: Bounds, level: float, beta: float) -> ShortList: ...
    @overload
    def _listing(self, bounds: Bounds, level: float, beta: float, limit: int) -> ShortList | None: ...
    def _listing(self, bounds: Bounds, level: float, beta: float, limit: int | None = None) -> ShortList | None:
        """A new list of all arms that may score `level`; None where they are more than the limit."""
        with self._store.stats.timed("sweeps"):
            made = shortlist(bounds, level, bounds.anchor.distance(self.tracked), beta, limit or len(bounds.mean))
        if made:
            self._list, self._listed = made, np.zeros(0, dtype=bool)
        return made

    def _climb(
        self,
        held: ShortList,
        best: float,
        margin: float,
        beta: float,
        score: Callable[[Indices], float] | None = None,
    ) -> None:
        """Track the arms of the list whose bound reaches the best score, best bound first, until none is left.

        `score` scores tracked arms by position; by default with what is tracked of them.
        """
        if len(self._listed) != len(held.arms):
            self._listed = self.tracked.positions(held.arms) >= 0
        listed = self._listed
        upper = held.bounds.upper(held.bounds.anchor.distance(self.tracked), beta)
        upper[listed] = -np.inf

        def tracked_score(positions: Indices) -> float:
            arms, before = held.arms[positions], self.tracked.n_arms
            self.tracked = self.tracked.add(arms, *self._store.embed(self.tracked.posterior, arms))
            listed[positions] = True
            return score(np.arange(before, self.tracked.n_arms)) if score else float(self._ucb(beta)[before:].max())

        climb(best, upper, margin, tracked_score)

    def _pass(self) -> Bounds:
        """Moments of all arms on the present inducing arms, from those of the last pass where few arms were pulled since."""
        held, embedding = self._held, self.tracked.posterior.embedding
        if held and embedding.extends(held.posterior.embedding):
            gained = self._history.counts.copy()
            gained[np.searchsorted(self._history.pulled, held.history.pulled)] -= held.history.counts
            since = np.flatnonzero(gained > 0)
            if len(since) <= FEW_PULLED:
                self._factor()
                Z = self.tracked.embedded(self.tracked.positions(self._history.pulled[since]))
                Y = np.sqrt(gained[since])[:, None] * Z[:, : len(held.posterior.w)]
                return self._hold(self._store.append(self.tracked.posterior, held.posterior, Y, held.moments))
        return self._refresh()

    def _refresh(self) -> Bounds:
        """Exact moments of all arms now."""
        self._factor()
        return self._hold(self._store.refresh(self.tracked.posterior))

    def _factor(self) -> None:
        if self.tracked.n_waiting:
            self.tracked = self.tracked.restarted(self._history, np.arange(self.tracked.n_arms))

    def _hold(self, moments: Moments) -> Bounds:
        posterior = self.tracked.posterior
        self._held = Pass(posterior, self._history, moments)
        self._bounds, self._list = Bounds.of(moments, Anchor(posterior)), None
        return self._bounds

    def _anchor_list(self) -> None:
        """Track the pulled arms only, and bound those of the list by what they are now."""
        self._store.stats.count("lists anchored")
        self.tracked = self.tracked.restarted(self._history, self.tracked.positions(self._history.pulled))
        posterior = self.tracked.posterior
        if self._list:
            bounds = Bounds.of(self._store.moments(posterior, self._list.arms), Anchor(posterior))
            self._list = replace(self._list, bounds=bounds)
        self._listed = np.zeros(0, dtype=bool)


def _lowest_of_ties(arms: Indices, mean: Array, ucb: Array) -> int:
    """The arm of largest score, the lowest index among ties, as `choice.arg_max` decides them."""
    top = int(np.argmax(ucb))
    tolerance = TIE * (abs(mean[top]) + (ucb[top] - mean[top]))
    return int(arms[ucb >= ucb[top] - tolerance].min())
