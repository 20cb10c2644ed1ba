"""What to try next: among the rows of a table, or anywhere in a box."""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from manyarms.bandit.domain import DomainBKB, as_barred
from manyarms.bandit.sweeps import WHOLE, leading
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model, Tabular
from manyarms.campaign.settings import Exploration
from manyarms.engine.confidence import Constant
from manyarms.kernels import Kernel
from manyarms.lapack import OneThread
from manyarms.space.box import Box
from manyarms.space.points import Space
from manyarms.typing import Array, Indices, Mask

TABLE_START = 4
"""Results of candidates drawn at random, or by a prior, before the model of a table chooses. More
random ones cost more than they teach (docs/experiments/defaults.md)."""
BOX_START = 8
"""Results of random points before the model of a box chooses: it has no table to look at."""
CHANCE = 1e-3
"""Failures count as a region that fails where trials that fail at random would lie so with this
probability. It is small, as one mistake beside the best point keeps a search away from it."""
ENTRIES = 1 << 22
"""Entries of a kernel matrix that are held at once."""
DRAWN_INSTEAD, SMALL_BOX = 512, 1 << 14
"""If the point of largest score is pending, or ruled out by `repeats`, so many other points are
drawn at random instead; in a box of at most so many points all of them are looked at."""
POINTS = 10_000
"""Points that count as all others in a statement about a box, which may have infinitely many: as
many as a grid of ten levels in four dimensions."""


@dataclass(frozen=True)
class PoolProposer:
    """Proposes candidates of a table."""

    start: ClassVar[int] = TABLE_START  # results before a model that learns chooses
    doubt: ClassVar[str | None] = None  # why no theorem covers what is said of all candidates

    def chooser(self, ledger: Ledger, model: Model) -> Model:
        """The model that chooses. Where kernel and noise are given, no theorem would cover what
        is made of failures."""
        return avoiding(ledger, model) if model.settings.learns else model

    def next(self, ledger: Ledger, model: Model) -> tuple[Ledger, int] | None:
        """The candidate that the chooser would try, and books that know it; None if there is
        none."""
        is_open = ledger.is_open
        if not is_open.any():
            return None
        if model.settings.learns and model.n_results < self.start:
            fresh = ledger.order[(is_open & (ledger.tries == 0))[ledger.order]]
            if len(fresh):
                return ledger, _first(ledger, fresh)
        waiting = ledger.waiting
        idle = is_open.copy()
        idle[waiting] = False  # a result is coming anyway
        is_open = idle if idle.any() else is_open
        arm_of = ledger.candidates.arm_of
        closed = ~is_open
        if len(model.arms) < len(is_open):  # an arm is open while one of its candidates is
            closed = np.ones(len(model.arms), dtype=bool)
            closed[arm_of[is_open]] = False
        exploration = model.settings.exploration
        if exploration and exploration.is_due(ledger.n_trials + len(waiting)):
            arm = _untried(ledger, model, closed, exploration)
        else:
            arm = int(model.policy.choose(pending=arm_of[waiting], exclude=closed)[0])
        # Candidates of one arm have equal features: the one tried least.
        members = ledger.candidates.members(arm)
        members = members[is_open[members]]
        if len(members) == 1:
            return ledger, int(members[0])
        return ledger, int(members[np.argmin(ledger.tries[members])])

    def nothing_left(self, ledger: Ledger) -> str:
        """Why there is no candidate to try."""
        outcomes = ledger.outcomes
        out = f"{int(outcomes.retired.sum())} are retired, {int(outcomes.failed.sum())} failed"
        return (
            f"nothing is left to ask for: of {len(ledger.candidates)} candidates {out}, "
            f"{len(ledger.pending)} are pending, the others were tried as often as "
            "`repeats` allows; tell what is pending, add candidates or allow repeats"
        )

    def leading(self, ledger: Ledger, model: Model, k: int, gone: Mask) -> Indices:
        """The k arms of largest posterior mean outside the mask `gone`, best first."""
        if isinstance(model.policy, Tabular):
            return model.policy.leading(k, exclude=gone)
        return largest(model.policy.predict().mean, k, gone)

    def has_untried(self, ledger: Ledger) -> bool:
        """Whether a candidate that is available has no value."""
        outcomes = ledger.outcomes
        return bool((outcomes.counts[~outcomes.out] == 0).any())

    def n_others(self, gone: Mask) -> int:
        """How many arms a statement about all other candidates covers."""
        return int((~gone).sum())

    def with_leading(self, ledger: Ledger, model: Model, k: int) -> Ledger:
        """The books with the k candidates of largest posterior mean in them."""
        return ledger

    def with_rivals(self, ledger: Ledger, model: Model, width: float, gone: Mask) -> Ledger:
        """The ledger with the candidate of largest upper bound, μ̃ + width·sd, in it; not one of
        those that are gone."""
        return ledger

    def rival(self, ledger: Ledger, model: Model, width: float, gone: Mask) -> int:
        """The arm of largest upper bound outside the mask `gone`, however the policy chooses."""
        policy = model.policy
        if isinstance(policy, Tabular):
            return policy.highest(exclude=gone, beta=width * float(np.sqrt(model.regularization)))
        mean, std = policy.predict()
        return int(np.argmax(np.where(gone, -np.inf, mean + width * std)))


def _first(ledger: Ledger, fresh: Indices) -> int:
    """The candidate to begin with, among some in a random order.

    With a prior it is the one of which most is expected, of a part of them that changes with every
    suggestion: the best of all might be neighbours.
    """
    candidates = ledger.candidates
    expected = candidates.expected
    if expected is None:
        return int(fresh[0])
    number = (ledger.n_trials + len(ledger.pending)) % TABLE_START
    part = fresh[number::TABLE_START] if number < len(fresh) else fresh
    return int(part[np.argmax(expected[candidates.arm_of[part]])])


def _untried(ledger: Ledger, model: Model, closed: Mask, exploration: Exploration) -> int:
    """The arm of largest upper bound among those never tried; among all if every arm was tried."""
    arm_of = ledger.candidates.arm_of
    pending = arm_of[ledger.waiting]
    beta = exploration.radius(model.policy.evidence)
    best = int(model.policy.choose(pending=pending, exclude=closed, beta=beta)[0])
    tried = np.concatenate([arm_of[ledger.outcomes.tried.items], pending])
    # As a rule the best of all is one of them, and what is excluded stays as it was: a batch then
    # goes on with the same list.
    if best not in tried:
        return best
    known = closed.copy()
    known[tried] = True
    if known.all():
        return best
    return int(model.policy.choose(pending=pending, exclude=known, beta=beta)[0])


def avoiding(ledger: Ledger, model: Model) -> Model:
    """The model of a table as it would be if failed candidates had given the worst possible reward.

    Nothing else is known where trials fail, so that uncertainty would lead there again and again.
    """
    failed = np.flatnonzero(ledger.outcomes.failed)
    if not len(failed) or not model.n_results:
        return model
    policy = copy(model.policy)
    arms = np.unique(ledger.candidates.arm_of[failed])
    policy.observe(arms, np.full(len(arms), _worst(ledger, model)))
    return replace(model, policy=policy)


def doubting(ledger: Ledger, model: Model) -> Model:
    """The model of a box as if failed points had given the least that it expects of them.

    The least is the lower bound, but no worse than the worst reward there is. Beside points with
    values the model is sure: it expects the same as before, and looks next to the failure. Far from
    them the bound is low, as uncertainty would lead there again and again. Failures that come
    together count as the worst reward: of a region that fails the model may be sure, and be wrong.
    """
    X, outcomes = ledger.candidates.X, ledger.outcomes
    failed = X[outcomes.failed]
    if not len(failed) or not model.n_results:
        return model
    policy = copy(model.policy)
    worst = _worst(ledger, model)
    mean, std = policy.predict(failed)
    least = np.minimum(mean, np.maximum(mean - model.radius * std, worst))
    worked = X[(outcomes.counts > 0) & ~outcomes.failed]
    policy.observe(failed, np.where(_together(model.kernel, failed, worked), worst, least))
    return replace(model, policy=policy)


def _worst(ledger: Ledger, model: Model) -> float:
    """The least reward there is."""
    return float(model.warp.reward(ledger.results.values).min())


def _together(kernel: Kernel, failed: Array, worked: Array) -> Mask:
    """Of rows that failed, whether more of them are around each than trials that fail at random
    would have there.

    Of such trials a share q fails whatever is near them, so that r failures are nearer to one than
    any value is with probability q^r. The failures whose nearest trial has a value are q(1 − q) of
    all trials, the values 1 − q: their ratio is q, and those deep in a region hardly change it.
    """
    if not len(worked):
        return np.zeros(len(failed), dtype=bool)
    nearer = np.zeros(len(failed), dtype=np.intp)
    step = max(1, ENTRIES // (len(failed) + len(worked)))
    for start in range(0, len(failed), step):
        some = failed[start : start + step]
        # k(y, y) − 2k(x, y) is the squared distance of x and y in the kernel's space less k(x, x).
        bad = kernel.diag(failed) - 2 * kernel(some, failed)
        bad[np.arange(len(some)), start + np.arange(len(some))] = np.inf
        good = kernel.diag(worked) - 2 * kernel(some, worked)
        nearer[start : start + step] = (bad < good.min(axis=1)[:, None]).sum(axis=1)
    share = ((nearer == 0).sum() + 1) / (len(worked) + 1)  # of few trials rather more
    return np.asarray(nearer * np.log(share) < np.log(CHANCE))


def largest(means: Array, k: int, gone: Mask) -> Indices:
    """Positions of the k largest means outside the mask `gone`, largest first."""
    order = np.argsort(np.where(gone, np.inf, -means), kind="stable")
    return np.asarray(order[: min(k, int((~gone).sum()))])


@dataclass(frozen=True)
class BoxProposer:
    """Proposes points of a box."""

    start: ClassVar[int] = BOX_START
    box: Box

    @property
    def doubt(self) -> str | None:
        if self.box.size <= WHOLE:
            return None  # all points are looked at
        return "over a box the rival comes from a search that may miss the largest upper bound"

    def chooser(self, ledger: Ledger, model: Model) -> Model:
        """The model that chooses: that of a search elsewhere, if there is one.

        A model that knows a good region has its units from there: what is much worse elsewhere
        passes for equally bad and is not climbed, so that a run that ended in the second best of
        several basins stays in it. One that knows later results only looks elsewhere.
        """
        return doubting(ledger, model.elsewhere or model)

    def next(self, ledger: Ledger, model: Model) -> tuple[Ledger, int] | None:
        row = self._next_row(ledger, model)
        if row is None:
            return None
        ledger, positions = ledger.knowing(self.box.decode(row[None]))
        return ledger, int(positions[0])

    def nothing_left(self, ledger: Ledger) -> str:
        out = int((ledger.outcomes.failed | (ledger.tries >= ledger.most)).sum())
        return (
            f"nothing is left to ask for: {out} points failed or were tried as often as `repeats` "
            "allows"
        )

    def leading(self, ledger: Ledger, model: Model, k: int, gone: Mask) -> Indices:
        return largest(model.predict(ledger.candidates.arm_of).mean, k, gone)

    def has_untried(self, ledger: Ledger) -> bool:
        outcomes = ledger.outcomes
        return int((outcomes.out | (outcomes.counts > 0)).sum()) < self.box.size

    def n_others(self, gone: Mask) -> int:
        return int(min(POINTS, self.box.size - int(gone.sum())))

    def with_leading(self, ledger: Ledger, model: Model, k: int) -> Ledger:
        """Of a product of levels, untried ones too; of another box those that are known."""
        policy = model.policy
        if self.box.levels is None or not isinstance(policy, DomainBKB):
            return ledger
        out = ledger.candidates.X[ledger.outcomes.out]
        with OneThread():
            mean = replace(policy.score, beta=0.0, barred=as_barred(out))
            rows = leading(mean, self.box, ledger.candidates.X, k)
        return ledger.knowing(self.box.decode(rows))[0]

    def with_rivals(self, ledger: Ledger, model: Model, width: float, gone: Mask) -> Ledger:
        with OneThread():  # the same point, however many threads there are
            rows = self._rivals(model.policy, width, ledger.candidates.X[gone])
        return ledger.knowing(self.box.decode(rows))[0]

    def _rivals(self, policy: Any, width: float, gone: Array) -> Array:
        """The row of largest upper bound that is not one of these, (1, d); of many, one that a
        search finds. None, (0, d), where all are gone."""
        every = self.box.grid(WHOLE)
        if every is not None:
            barred = as_barred(gone)
            left = every[[row.tobytes() not in barred for row in every]]
            if not len(left):
                return left
            mean, std = policy.predict(left)
            return left[np.argsort(-mean - width * std, kind="stable")[:1]]
        policy = copy(policy)
        policy.confidence = Constant(width)
        is_product = self.box.levels is not None and isinstance(policy, DomainBKB)
        return np.asarray(policy.choose(exclude=gone) if is_product else policy.choose())

    def rival(self, ledger: Ledger, model: Model, width: float, gone: Mask) -> int:
        mean, std = model.policy.predict(ledger.candidates.X)
        return int(np.argmax(np.where(gone, -np.inf, mean + width * std)))

    def _next_row(self, ledger: Ledger, model: Model) -> Array | None:
        """The row to ask for next; None if there is none."""
        outcomes = ledger.outcomes
        X = ledger.candidates.X
        rng = np.random.default_rng([model.settings.seed, 1, len(X)])
        shut = as_barred(X[outcomes.failed | (ledger.tries >= ledger.most)])
        pending = X[ledger.waiting]
        waiting = as_barred(pending)
        if model.settings.learns and model.n_results < self.start:
            drawn = self._some(rng)
        else:
            policy = model.policy
            if self.box.levels is not None and isinstance(policy, DomainBKB):
                return self._next_combination(policy, pending, shut, waiting)
            drawn = policy.choose(pending=pending)
            if self.box.encode(self.box.decode(drawn))[0].tobytes() in shut | waiting:
                others = self._some(rng)
                policy = copy(policy)
                policy.observe(pending, policy.predict(pending).mean)
                drawn = others[np.argsort(-policy.score(others), kind="stable")]
        # The best that is open; one that is pending only where no other is.
        awaited = None
        for code in drawn:
            row = np.asarray(self.box.encode(self.box.decode(code[None]))[0])
            if row.tobytes() not in shut | waiting:
                return row
            awaited = row if awaited is None and row.tobytes() not in shut else awaited
        return awaited  # a result is coming anyway, but nothing else is to be had

    def _next_combination(
        self, policy: DomainBKB, pending: Array, shut: frozenset[bytes], waiting: frozenset[bytes]
    ) -> Array | None:
        """The same of a product of levels, whose search leaves out what may not be asked for."""
        for barred in (shut | waiting, shut):
            if len(barred) < self.box.size:
                rows = [np.frombuffer(row) for row in sorted(barred)]
                return np.asarray(policy.choose(pending=pending, exclude=rows)[0])
        return None

    def _some(self, rng: np.random.Generator) -> Array:
        """All rows, in a random order, of a box that has few; else some drawn from it."""
        grid = self.box.grid(SMALL_BOX)
        return self.box.sample(DRAWN_INSTEAD, rng) if grid is None else rng.permutation(grid)


Proposer = PoolProposer | BoxProposer
"""All differences between a table and a box are here, behind the same methods."""


def proposer_of(candidates: Space) -> Proposer:
    """What proposes candidates of a table, or points of a box."""
    return PoolProposer() if candidates.box is None else BoxProposer(candidates.box)
