"""The arg max of the scores without scoring every arm, provably the same arm.

*Tracked* arms have current scores. The others are on nested lists (`levels`): all arms, an eighth of them that may be best for
some time to come, an eighth of those … down to one that is swept at every step. Arms whose bound beats the best score are
scored, best bound first, until none is left. A list whose promise is broken is made anew from the one above; where too many
arms of a list may be best, a pass over that list makes its bounds current first.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from manyarms.errors import MemoryBudgetError
from manyarms.sketch.choice import TIE
from manyarms.sketch.history import History
from manyarms.sketch.levels import LIST_LENGTH, SHARE, Anchor, Bounds, Level, Reach, Shortlist, rise
from manyarms.sketch.linalg import pivoted_cholesky, solve_lower
from manyarms.sketch.observations import Observations
from manyarms.sketch.posterior import Posterior
from manyarms.sketch.store import Gain, Pass, Store, blas
from manyarms.sketch.tracked import WAITING, Tracked
from manyarms.stats import Stats
from manyarms.typing import Array, Indices, Mask

PATIENCE = 80
"""Arms of the last list scored in a step before a pass over it makes its bounds current."""
SWEPT = 1 << 15
"""Arms that may be swept at every step, where no shorter list would last."""
HOT = 512
"""Arms tracked beside the pulled ones before only those are."""
NUMBERS = 10
"""Of an arm, in float64, beside a position: k(x, x), three from a pass and three from the next or their roots, three for lists
and bounds."""
LISTED = 1 / (0.8 * SHARE - 1)
"""Arms on all lists but the first, over all arms: 1.25/SHARE, that of that, and so on."""


@dataclass
class Search:
    """What is looked for: the largest score, for which the bounds with radius `beta` hold."""

    beta: float
    accuracy: float  # relative, of scores
    barred: Mask | None  # (A,), or longer by arms that are in no table: arms that must not be chosen
    score: Callable[[Indices], tuple[Array, Array]]  # means and scores of the tracked arms at these positions; −∞ if barred
    best: float = -np.inf
    scale: float = 0.0  # |μ̃| + β̃σ̃, the largest seen

    @property
    def level(self) -> float:
        """Arms that score less are out."""
        return self.best - self.accuracy * self.scale

    def scored(self, positions: Indices) -> None:
        """Score tracked arms."""
        mean, ucb = self.score(positions)
        self.best = max(self.best, float(ucb.max(initial=-np.inf)))
        self.scale = max(self.scale, float((np.abs(mean) + (ucb - mean)).max(initial=0.0)))


class Frontier:
    """Scores that are current, and bounds on the rest. `arg_max` improves what is held here; no answer depends on it."""

    def __init__(self, arms: Array, diag: Array, memory: float, stats: Stats, tracked: Tracked) -> None:
        self._history, self.tracked = History(), tracked
        least = bytes_beside(*arms.shape)
        self._memory = memory - least  # for embeddings
        if self._memory < 0:
            raise MemoryBudgetError(
                f"{len(arms)} arms need {least:.3g} bytes beside their features, "
                f"memory={memory:.3g} allows less: raise it, or use fewer arms"
            )
        self._all = Store(arms, diag, stats)
        nothing = np.zeros(len(arms))
        prior = Pass(tracked.posterior, History(), nothing, nothing, diag / tracked.posterior.regularization)
        self._levels = [Level(None, len(arms), Bounds(Anchor(prior), prior), None, self._all)]
        self._listed = np.zeros(0, dtype=bool)  # which arms of the last list are tracked; empty where that is not known
        self._tried: Posterior | None = None  # when more arms might have been best than fit a short list

    def track(self, arms: Indices) -> None:
        """Keep the scores of these arms current."""
        new = arms[self.tracked.positions(arms) < 0]
        if len(new):
            self.tracked = self.tracked.add(new, *self._all.embed(self.tracked.posterior, new))
            self._listed = np.zeros(0, dtype=bool)

    def tracking(self, arms: Indices, rows: Array, diag: Array) -> "Frontier":
        """The frontier with the scores of more arms, not of its table, kept current; `diag` holds their k(x, x)."""
        if not len(arms):
            return self
        Z, r = self.tracked.posterior.embedding(rows, diag)
        return self._with(self.tracked.add(arms, Z, r / self.tracked.posterior.regularization), self._history)

    def observed(self, history: History, arms: Indices, rewards: Array, weights: Array) -> "Frontier":
        """The frontier after observations of tracked arms, which `history` includes."""
        tracked = self.tracked
        if len(arms) > WAITING:
            with blas().limit(limits=1):
                tracked = tracked.restarted(history, np.arange(tracked.n_arms))
        else:
            if tracked.n_waiting + len(arms) > WAITING:
                with blas().limit(limits=1):
                    tracked = tracked.folded(self._history)
            for at, reward, weight in zip(tracked.positions(arms), rewards, weights, strict=True):
                tracked = tracked.pull(int(at), float(reward), float(weight))
        return self._with(tracked, history)

    def refitted(self, tracked: Tracked, history: History) -> "Frontier":
        """The frontier after the posterior was fitted anew, perhaps on other inducing arms."""
        frontier = self._with(tracked, history)
        frontier._listed = np.zeros(0, dtype=bool)
        return frontier

    def arg_max(self, beta: float, accuracy: float, barred: Mask | None = None) -> int:
        """The arm that full scoring would pick; scores have this relative accuracy."""
        if self.tracked.n_arms - len(self._history.pulled) > HOT:
            self._cool()

        def score(at: Indices) -> tuple[Array, Array]:
            return self.tracked.mean[at], _masked(self._ucb(beta)[at], self.tracked.arms[at], barred)

        search = Search(beta, accuracy, barred, score)
        search.scored(np.arange(self.tracked.n_arms))
        self._settle(search)
        return _lowest_of_ties(self.tracked.arms, *score(np.arange(self.tracked.n_arms)))

    def arg_max_supposing(
        self, posterior: Posterior, root_rise: float, beta: float, accuracy: float, barred: Mask | None
    ) -> int:
        """The arm of largest μ̃ + β̃σ̃′, the means as they are and σ̃′ of this posterior, for which σ̃′ ≤ root_rise·σ̃."""
        arms: list[Indices] = []
        means: list[Array] = []
        scores: list[Array] = []

        def score(at: Indices) -> tuple[Array, Array]:
            arms.append(self.tracked.arms[at])
            means.append(self.tracked.mean[at])
            ucb = means[-1] + beta * np.sqrt(self._all.variance(posterior, arms[-1]))
            scores.append(_masked(ucb, arms[-1], barred))
            return means[-1], scores[-1]

        wide = beta * root_rise
        search = Search(wide, accuracy, barred, score)
        climb(search, _masked(self._ucb(wide), self.tracked.arms, barred), search.scored, self.tracked.n_arms)
        self._settle(search)
        return _lowest_of_ties(np.concatenate(arms), np.concatenate(means), np.concatenate(scores))

    def posterior(self) -> Posterior:
        """The sketched posterior now, with nothing waiting: O(m) an arm tracked, O(m²) in all, for each that waited."""
        self._factor()
        return self.tracked.posterior

    def rise(self, new: Indices, observed: Observations) -> float:
        """√ρ: how much σ̃ may rise when these arms are appended to the inducing ones."""
        self._factor()
        posterior = self.tracked.posterior
        rows = self._all.rows[new]
        K = posterior.embedding.kernel(rows, rows)
        Zp, _ = posterior.embedding(rows, np.diag(K))
        L, kept, _ = pivoted_cholesky(K - Zp @ Zp.T, 1e-10 * float(np.diag(K).max()))
        Z = self.tracked.embedded(self.tracked.positions(self._history.pulled))
        cross = posterior.embedding.kernel(observed.rows, rows[kept]) - Z @ Zp[kept].T
        zeta = solve_lower(L, np.array(cross.T, order="F")).T
        return float(np.sqrt(rise(posterior.C, Z, zeta, observed.counts, posterior.regularization)))

    def _with(self, tracked: Tracked, history: History) -> "Frontier":
        frontier = copy(self)
        frontier.tracked, frontier._history = tracked, history
        frontier._levels, frontier._listed = self._levels.copy(), self._listed.copy()
        return frontier

    def _ucb(self, beta: float) -> Array:
        return self.tracked.mean + beta * np.sqrt(self.tracked.variance)

    def _settle(self, search: Search) -> None:
        """Track arms until no other may have the largest score."""
        patience = PATIENCE
        while True:
            finished = self._climb(search, patience)
            if not self._promised(search):
                self._descend(search)
            elif finished:
                return
            else:
                if not self._is_current(self._levels[-1]):
                    self._bring(len(self._levels) - 1, search)
                    self._descend(search)
                patience = self._levels[-1].n_arms

    def _climb(self, search: Search, patience: int) -> bool:
        """Track arms of the last list, best bound first, until none may score more; False where more than patience would be."""
        last = self._levels[-1]
        reach = last.reach(self.tracked, search.beta)
        if reach is None:
            return False
        if len(self._listed) != last.n_arms:
            self._listed = self.tracked.positions(last.arms_at(np.arange(last.n_arms))) >= 0
        listed = self._listed
        upper = last.bounds.upper(reach)
        upper[listed] = -np.inf
        if search.barred is not None:
            upper[search.barred[: last.n_arms] if last.arms is None else search.barred[last.arms]] = -np.inf

        def track(positions: Indices) -> None:
            arms, before = last.arms_at(positions), self.tracked.n_arms
            with blas().limit(limits=1):
                self.tracked = self.tracked.add(arms, *self._all.embed(self.tracked.posterior, arms))
            listed[positions] = True
            search.scored(np.arange(before, self.tracked.n_arms))

        return climb(search, upper, track, patience)

    def _promised(self, search: Search) -> bool:
        """All arms that may be best are on the last list, it is short unless that was tried, and its bounds can be used."""
        last = self._levels[-1]
        if last.n_arms > SWEPT and self._tried is not self.tracked.posterior:
            return False
        kept = (level.holds(self.tracked, search.beta, search.level) for level in self._levels)
        return all(kept) and last.reach(self.tracked, search.beta) is not None

    def _descend(self, search: Search) -> None:
        """Lists, the last one short, on which are all arms that may be best."""
        levels = self._levels
        holding = [level.holds(self.tracked, search.beta, search.level) for level in levels]
        del levels[(*holding, False).index(False) :]
        self._listed = np.zeros(0, dtype=bool)
        while True:
            last, reach = levels[-1], levels[-1].reach(self.tracked, search.beta)
            current = self._is_current(last)
            if reach is None:
                self._bring(len(levels) - 1, search)
            elif last.n_arms <= 2 * LIST_LENGTH:
                return
            elif found := self._shortlist(last, reach, search.level, lasting=not current or last.n_arms <= SWEPT):
                levels.append(last.list(found))
            elif last.n_arms <= SWEPT:
                return
            elif current:
                self._tried = self.tracked.posterior
                return
            else:
                self._bring(len(levels) - 1, search)

    def _shortlist(self, level: Level, reach: Reach, score: float, *, lasting: bool) -> Shortlist | None:
        with self._all.stats.timed("lists"):
            return level.bounds.shortlist(reach, score, max(LIST_LENGTH, level.n_arms // SHARE), lasting=lasting)

    def _is_current(self, level: Level) -> bool:
        return not self.tracked.n_waiting and level.bounds.made.posterior is self.tracked.posterior

    def _bring(self, depth: int, search: Search) -> None:
        """A pass over a list. The arm it finds best is tracked."""
        self._factor()
        level, posterior = self._levels[depth].released(), self.tracked.posterior
        self._levels[depth] = level
        room = self._memory - sum(other.store.bytes for other in self._levels if other.store and other is not level)
        store = level.store or self._part(depth, room)
        with blas().limit(limits=1):
            made = store.bring(posterior, self._history, self._gain(level.bounds.made), room)
        bounds = Bounds(Anchor(made), made)
        self._levels[depth] = replace(level, bounds=bounds, store=store)
        known = self.tracked.n_arms
        self.track(level.arms_at(np.array([bounds.top(Reach(0.0, 0.0, search.beta))])))
        if self.tracked.n_arms > known:
            search.scored(np.arange(known, self.tracked.n_arms))

    def _gain(self, before: Pass) -> Gain | None:
        """What V gained since a pass, if inducing arms were at most appended."""
        if not self.tracked.posterior.embedding.extends(before.posterior.embedding):
            return None
        gained = self._history.counts.copy()
        gained[np.searchsorted(self._history.pulled, before.history.pulled)] -= before.history.counts
        since = np.flatnonzero(gained > 0)
        Z = self.tracked.embedded(self.tracked.positions(self._history.pulled[since]))
        return Gain(before, np.sqrt(gained[since])[:, None] * Z[:, : len(before.posterior.w)])

    def _part(self, depth: int, room: float) -> Store:
        """A store of the arms on a list, cut from that of the list it was made from, or from all arms."""
        level, above = self._levels[depth], self._levels[depth - 1].store
        if above and level.promised:
            return above.part(level.promised.positions, room)
        return self._all.part(level.arms_at(np.arange(level.n_arms)), room)

    def _factor(self) -> None:
        if self.tracked.n_waiting:
            with blas().limit(limits=1):
                self.tracked = self.tracked.folded(self._history)

    def _cool(self) -> None:
        """Track the pulled arms only."""
        self._factor()
        self.tracked = self.tracked.only(self.tracked.positions(self._history.pulled))
        self._listed = np.zeros(0, dtype=bool)


def bytes_beside(n_arms: int, n_features: int) -> float:
    """What a frontier holds at least: numbers and a position of every arm, and copies of the rows that are on lists."""
    return (8 * NUMBERS + 4 + 8 * n_features * LISTED) * n_arms


def climb(search: Search, upper: Array, score: Callable[[Indices], None], patience: int) -> bool:
    """Score positions whose bound reaches the best score, best bound first, in growing blocks, until none is left (True) or
    patience is at its end (False)."""
    scored, block = 0, 16
    reach = np.flatnonzero((upper >= search.level) & (upper > -np.inf))
    if len(reach):
        reach = reach[np.argsort(-upper[reach], kind="stable")]
    while scored < len(reach) and upper[reach[scored]] >= search.level:
        if scored >= patience:
            return False
        positions = reach[scored : scored + block]
        score(positions)
        scored += len(positions)
        block *= 4
    return True


def _masked(ucb: Array, arms: Indices, barred: Mask | None) -> Array:
    """The scores of these arms, −∞ for those that must not be chosen; changed in place."""
    if barred is not None:
        ucb[barred[arms]] = -np.inf
    return ucb


def _lowest_of_ties(arms: Indices, mean: Array, ucb: Array) -> int:
    """The arm of largest score, the lowest index among ties, as `choice.arg_max` decides them."""
    top = int(np.argmax(ucb))
    tolerance = TIE * (abs(mean[top]) + (ucb[top] - mean[top]))
    return int(arms[ucb >= ucb[top] - tolerance].min())
