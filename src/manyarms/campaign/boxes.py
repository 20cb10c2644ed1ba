"""What to try next in a box, and which of its points may be good: it is climbed, not looked at
whole, unless it has few points."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from manyarms.bandit.domain import DomainBKB, as_barred
from manyarms.bandit.maximisers import WHOLE, leading
from manyarms.campaign.ledger import Ledger
from manyarms.campaign.model import Model
from manyarms.engine.confidence import Constant
from manyarms.kernels import Kernel
from manyarms.lapack import OneThread, in_one_thread
from manyarms.space.box import Box
from manyarms.typing import Array, Mask

CHANCE = 1e-3
"""Failures count as a region that fails where trials that fail at random would lie so with this
probability. It is small, as one mistake beside the best point keeps a search away from it."""
ENTRIES = 1 << 22
"""Entries of a kernel matrix that are held at once."""
DRAWN_INSTEAD = 512
"""If the point of largest score is pending, or ruled out by `repeats`, so many other points are
drawn at random instead."""
SMALL_BOX = 1 << 14
"""In a box of at most so many points all of them are looked at instead."""


def climb(box: Box, ledger: Ledger, model: Model) -> Array | None:
    """The row to ask for next; None if there is none."""
    X = ledger.candidates.X
    rng = np.random.default_rng([model.settings.seed, 1, len(X)])
    shut = as_barred(X[ledger.outcomes.failed | (ledger.tries >= ledger.most)])
    pending = X[ledger.waiting]
    barred = shut | as_barred(pending)
    if model.is_drawing:
        drawn = _some(box, rng)
    elif _is_product(box, model.policy):
        return _best_combination(box, model.policy, pending, shut, barred)
    else:
        policy = model.policy
        drawn = policy.choose(pending=pending)
        if box.encode(box.decode(drawn))[0].tobytes() in barred:
            others = _some(box, rng)
            policy = copy(policy)
            policy.observe(pending, policy.predict(pending).mean)
            drawn = others[np.argsort(-policy.score(others), kind="stable")]
    # The best that is open; one that is pending only where no other is.
    awaited = None
    for code in drawn:
        row = np.asarray(box.encode(box.decode(code[None]))[0])
        if row.tobytes() not in barred:
            return row
        if awaited is None and row.tobytes() not in shut:
            awaited = row
    return awaited  # a result is coming anyway, but nothing else is to be had


def _is_product(box: Box, policy: Any) -> bool:
    """Whether the policy searches a product of levels, and can leave out some of its points."""
    return box.levels is not None and isinstance(policy, DomainBKB)


def _best_combination(
    box: Box, policy: Any, pending: Array, shut: frozenset[bytes], barred: frozenset[bytes]
) -> Array | None:
    """The same of a product of levels, whose search leaves out what may not be asked for."""
    for out in (barred, shut):
        if len(out) < box.size:
            rows = [np.frombuffer(row) for row in sorted(out)]
            return np.asarray(policy.choose(pending=pending, exclude=rows)[0])
    return None


def _some(box: Box, rng: np.random.Generator) -> Array:
    """All rows, in a random order, of a box that has few; else some drawn from it."""
    grid = box.grid(SMALL_BOX)
    return box.sample(DRAWN_INSTEAD, rng) if grid is None else rng.permutation(grid)


@in_one_thread
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
    mean, std = policy.predict(failed)
    least = np.minimum(mean, np.maximum(mean - model.radius * std, model.worst))
    worked = X[(outcomes.counts > 0) & ~outcomes.failed]
    policy.observe(failed, np.where(_together(model.kernel, failed, worked), model.worst, least))
    return replace(model, policy=policy)


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


def best_rows(box: Box, ledger: Ledger, model: Model, k: int) -> Array:
    """Rows of largest posterior mean that a product of levels has around those known; none of
    another box."""
    if not _is_product(box, model.policy):
        return np.zeros((0, box.dimension))
    out = ledger.candidates.X[ledger.outcomes.out]
    with OneThread():
        mean = replace(model.policy.score, beta=0.0, barred=as_barred(out))
        return np.asarray(leading(mean, box, ledger.candidates.X, k))


def rival_rows(box: Box, policy: Any, width: float, gone: Array) -> Array:
    """The row of largest upper bound, μ̃ + width·sd, that is not one of those gone, (1, d): of many,
    one that a search finds. None, (0, d), where all are gone."""
    with OneThread():  # the same point, however many threads there are
        every = box.grid(WHOLE)
        if every is not None:
            barred = as_barred(gone)
            left = every[[row.tobytes() not in barred for row in every]]
            if not len(left):
                return left
            mean, std = policy.predict(left)
            return left[np.argsort(-mean - width * std, kind="stable")[:1]]
        policy = copy(policy)
        policy.confidence = Constant(width)
        found = policy.choose(exclude=gone) if _is_product(box, policy) else policy.choose()
        return np.asarray(found)
