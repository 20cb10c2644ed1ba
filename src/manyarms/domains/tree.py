"""Ada-BKB: no maximiser, but a tree of cells that is refined where f may be largest.

Rando, Carratino, Villa and Rosasco, "Ada-BKB: Scalable Gaussian process optimization on continuous
domains by adaptive discretization" (AISTATS 2022). With ‖f‖ ≤ F, |f(x) − f(y)| ≤ F·d_k(x, y),
d_k(x, y)² = k(x, x) + k(y, y) − 2k(x, y). A cell with centre c has V = F·max d_k(c, x) over its x,
and the index

    I = min(u(c), u(parent) + V_parent) + V ≥ f(x) for all x in the cell,  u = μ̃ + β̃σ̃, the least
    of u at all times so far.

The leaf of largest index is split where β̃σ̃(c) ≤ V, that is where f(c) is known better than what
the cell hides, and else its centre is pulled. Leaves whose index is below the largest lower bound
μ̃ − β̃σ̃ of a row pulled are dropped.

Indices only fall. So one that was computed earlier is a bound, and only the leaves on top are
scored anew.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.beliefs.base import Batch, Record
from manyarms.beliefs.frozen import Frozen, Inserted
from manyarms.domains.box import Box, Range
from manyarms.domains.policy import DomainBKB, Learned, supposing
from manyarms.errors import KernelError, NormWarning, ParameterError
from manyarms.kernels import Kernel, On, Product, Scaled, Sum
from manyarms.kernels.stationary import Stationary
from manyarms.numbers import real, whole
from manyarms.sketch.confidence import Promise, Radius, updated_norm
from manyarms.typing import AnyArray, Array, ArrayLike, Indices, Mask, Seed

AT_ONCE = 16
"""Leaves that are scored together, those of largest index first."""
SPARE = 64
"""Leaves that there is room for at first."""
GROWTH = 1.1
"""All leaves are scored anew, and dropped, when there are so many times more observations."""


@dataclass(frozen=True)
class Leaves:
    """Cells [low, high]. Those of one depth have the same sides, as they are cut in turn."""

    low: Array  # (n, d)
    high: Array  # (n, d)
    depth: Indices  # (n,)
    cap: Array  # (n,) bounds f at the centre: u(parent) + V_parent, and u(centre) at earlier times
    width: Array  # (n,) β̃σ̃ at the centre; NaN where it is not that of now

    @property
    def centre(self) -> Array:
        """(n, d)."""
        return (self.low + self.high) / 2

    def __len__(self) -> int:
        return len(self.low)

    def part(self, some: Any) -> "Leaves":
        """Some of them."""
        return Leaves(*(each[some] for each in self._arrays))

    def with_room(self) -> "Leaves":
        """A copy in which as many more, and some, have room behind these."""
        rooms = (
            np.zeros((SPARE + 2 * len(self), *each.shape[1:]), dtype=each.dtype)
            for each in self._arrays
        )
        roomy = Leaves(*rooms)
        roomy.put(np.arange(len(self)), self)
        return roomy

    def put(self, places: Indices, others: "Leaves") -> None:
        """Write others over what is at some places: for a copy that no one else has."""
        for mine, theirs in zip(self._arrays, others._arrays, strict=True):
            mine[places] = theirs

    @property
    def _arrays(self) -> tuple[AnyArray, ...]:
        return (self.low, self.high, self.depth, self.cap, self.width)

    def cover(self, row: Array) -> Mask:
        """Which of them hold a row (d,)."""
        return np.asarray(((self.low <= row) & (row <= self.high)).all(axis=1))


@dataclass(frozen=True)
class Tree:
    """The leaves that cover what was not dropped."""

    leaves: Leaves
    norm: float  # F
    n_cells: int = 1  # leaves ever made
    n_dropped: int = 0
    lowest: float = -np.inf  # the largest lower bound seen: the maximum of f is not below it
    top: Array | None = None  # (d,) the row that has it
    n_swept: int = 0  # observations when all leaves were scored last
    refuted: bool = False  # F is too small


@dataclass(frozen=True)
class Grown(Learned):
    """What was told, and the tree after it."""

    tree: Tree


class AdaBKB(DomainBKB):
    """Ada-BKB over a box of numbers.

    The kernel falls with every distance |x_j − y_j|: RBF, Matérn, their sums and products.

    With a radius that holds (`Certified`, `LogDet`, `Theory`) for a true bound on the norm, every
    cell that holds a maximum of f is kept, and regret is bounded as in the paper, with probability
    1 − δ. No maximiser is trusted.

    norm : F in V; that of `confidence` where it has one. F is refuted where ‖μ̃‖ is too large for
        it, or where no leaf is left that may hold the best row. The tree then starts over, as what
        was dropped rested on F. With a radius that has ``double=True``, F is doubled, and what is
        promised of such a radius still is. Else a `NormWarning` says so; from then on the leaf of
        largest u(c) + V of now is taken and none is dropped: a search without a promise. A true
        bound may ask for far more pulls than there are: cells of size V < β̃σ̃ are pulled one by one.
    children : parts that a side of a cell is cut in, one side after the other; of an odd number the
        middle one keeps the centre.
    depth : splits from the box down to the smallest cells, which are never split; 8 for each column
        by default.
    domain, kernel, regularization, noise, rule, confidence, seed : as for `DomainBKB`. Several
        choices a time come without the theorem: centres pending are supposed to give their mean.
    """

    _state: Grown

    def __init__(
        self,
        domain: Box,
        kernel: Any,
        *,
        regularization: float = 0.01,
        noise: float | None = None,
        rule: Inserted = Inserted(),
        confidence: Radius,
        norm: float | None = None,
        children: int = 3,
        depth: int | None = None,
        seed: Seed = 0,
    ) -> None:
        if not isinstance(domain, Box) or not all(_is_continuous(side) for side in domain.columns):
            raise ParameterError(
                f"AdaBKB takes a box of numbers, neither whole ones nor choices, got {domain!r}"
            )
        super().__init__(
            domain,
            kernel,
            regularization=regularization,
            noise=noise,
            rule=rule,
            confidence=confidence,
            seed=seed,
        )
        if not _falls(self.kernel):
            raise KernelError(
                f"AdaBKB takes RBF and Matern kernels, their multiples, sums and products, "
                f"got {self.kernel!r}"
            )
        if norm is None and isinstance(confidence, Promise):
            norm = confidence.norm
        if norm is None:
            raise ParameterError(f"{confidence!r} has no bound on the norm of f: give norm=")
        norm = real(norm, "norm", "a positive bound on the RKHS norm of f", above=0)
        self.children = whole(children, "children", at_least=2)
        self.depth = 8 * domain.dimension if depth is None else whole(depth, "depth")
        self._reach = self._distances()
        told = self._state
        self._state = Grown(
            told.belief, told.rows, told.weights, told.rewards, told.norm, Tree(self._root(), norm)
        )
        self._split_cache: tuple[Grown, Tree, int] | None = None

    @property
    def norm(self) -> float:
        """F now."""
        return self._state.tree.norm

    @property
    def tree(self) -> Tree:
        """The leaves now."""
        return self._state.tree

    def choose(self, n: int = 1, *, pending: ArrayLike = ()) -> Array:
        """The n centres to pull next, (n, d). Pure."""
        n = whole(n, "n")
        beta = self.beta
        waiting = self.domain.checked(pending)
        chosen: list[Array] = []
        with self.stats.timed("choices"):
            tree, at = self._split()
            if len(waiting):
                tree, at = self._supposing(tree, waiting, beta)
            while True:
                chosen.append(tree.leaves.centre[at])
                if len(chosen) == n:
                    return np.array(chosen)
                tree, at = self._supposing(tree, np.vstack([waiting, *chosen]), beta)

    def _supposing(self, tree: Tree, rows: Array, beta: float) -> tuple[Tree, int]:
        """The next leaf if each of these rows (n, d) had given its mean, and the tree with it."""
        belief = supposing(self._state.belief, rows)
        unknown = replace(tree.leaves, width=np.full(len(tree.leaves), np.nan))
        return self._grown(belief, replace(tree, leaves=unknown), beta)

    def _learned(
        self, state: Learned, batch: Batch, record: Record | None
    ) -> tuple[Learned, Record]:
        """The state after these observations, its tree pruned, and what was decided."""
        tree, _ = self._split()
        told, record = super()._learned(state, batch, record)
        rows = batch.rows if tree.top is None else np.vstack([batch.rows, tree.top])
        while True:
            norm = tree.norm if told.norm is None else max(tree.norm, told.norm)
            if norm > tree.norm:
                tree = Tree(self._root(), norm)
                rows = told.distinct()[0]
            pruned = self._pruned(told.belief, tree, rows, self._radius(told))
            if pruned is not None:
                break
            if told.norm is not None:
                told = replace(told, norm=2 * norm)
                continue
            warnings.warn(
                f"the data refute norm={norm:g}: cells that were dropped may hold the maximum. "
                "The tree starts over, "
                "drops none and promises nothing; give a larger norm, or a radius with double=True",
                NormWarning,
                stacklevel=4,
            )
            tree = Tree(self._root(), norm, refuted=True)
        return Grown(told.belief, told.rows, told.weights, told.rewards, told.norm, pruned), record

    def _split(self) -> tuple[Tree, int]:
        """The tree, split until the leaf of largest index is to be pulled, and that leaf: a cache."""
        state = self._state
        cached = self._split_cache
        if cached is None or cached[0] is not state:
            cached = self._split_cache = (state, *self._grown(state.belief, state.tree, self.beta))
        return cached[1], cached[2]

    def _grown(self, belief: Frozen, tree: Tree, beta: float) -> tuple[Tree, int]:
        """Split the leaf of largest index until one is to be pulled: the tree, and that leaf."""
        inside = tree.norm * self._reach
        room = tree.leaves.with_room()
        index = room.cap + inside[room.depth]
        n = len(tree.leaves)
        n_cells = tree.n_cells
        while True:
            at = int(np.argmax(index[:n]))
            if np.isnan(room.width[at]):
                stale = np.flatnonzero(np.isnan(room.width[:n]))
                some = stale[_largest(index[stale], AT_ONCE)]
                room.cap[some], room.width[some] = self._bounds(
                    belief, room.part(some), beta, tree.refuted
                )
                index[some] = room.cap[some] + inside[room.depth[some]]
                continue
            if room.width[at] > inside[room.depth[at]] or room.depth[at] >= self.depth:
                return replace(tree, leaves=room.part(slice(n)), n_cells=n_cells), at
            # One child takes the place of the leaf, the others come behind all.
            parts = self._parts(room, at, float(index[at]))
            if n + self.children > len(room):
                room = room.part(slice(n)).with_room()
                index = np.concatenate([index[:n], np.zeros(len(room) - n)])
            places = np.array([at, *range(n, n + self.children - 1)])
            room.put(places, parts)
            index[places] = parts.cap + inside[parts.depth]
            n += self.children - 1
            n_cells += self.children

    def _bounds(
        self, belief: Frozen, leaves: Leaves, beta: float, refuted: bool
    ) -> tuple[Array, Array]:
        """`cap` and `width` of leaves, now."""
        centre = leaves.centre
        mean, variance = belief.moments(centre, self.kernel.diag(centre))
        width = beta * np.sqrt(variance)
        upper = mean + width
        return (
            upper if refuted else np.minimum(leaves.cap, upper)
        ), width  # bounds of all times hold together

    def _pruned(self, belief: Frozen, tree: Tree, rows: Array, beta: float) -> Tree | None:
        """The tree without leaves that cannot hold the maximum; None where F is refuted.

        It is where μ̃ is too large for it, or the bound of every leaf that holds the best row is
        below the value there. Once it is, a bound does not outlive a later one and no leaf is
        dropped.
        """
        mean, variance = belief.moments(rows, self.kernel.diag(rows))
        lower = mean - beta * np.sqrt(variance)
        at = int(np.argmax(lower))
        lowest = tree.lowest
        top = tree.top
        if top is None or lower[at] > lowest:
            lowest = float(lower[at])
            top = rows[at]
        leaves = replace(tree.leaves, width=np.full(len(tree.leaves), np.nan))
        n_swept = tree.n_swept
        if belief.n_observations >= GROWTH * n_swept:
            n_swept = belief.n_observations
            cap, width = self._bounds(belief, leaves, beta, tree.refuted)
            leaves = replace(leaves, cap=cap, width=width)
        tree = replace(tree, lowest=lowest, top=top, n_swept=n_swept, leaves=leaves)
        if tree.refuted:
            return tree
        keep = leaves.cap + tree.norm * self._reach[leaves.depth] >= lowest
        if self._is_too_large(belief, tree.norm) or not keep[leaves.cover(top)].any():
            return None
        return replace(
            tree, leaves=leaves.part(keep), n_dropped=tree.n_dropped + int((~keep).sum())
        )

    def _is_too_large(self, belief: Frozen, norm: float) -> bool:
        """μ̃ is, for ‖f‖ ≤ F, by a radius with a promise."""
        if not isinstance(self.confidence, Promise):
            return False
        updated = updated_norm(self.confidence, belief.evidence.of(np.inf, norm))
        return updated is not None and updated > norm

    # Cells

    def _root(self) -> Leaves:
        d = self.domain.dimension
        depth = np.zeros(1, dtype=np.intp)
        return Leaves(
            np.zeros((1, d)), np.ones((1, d)), depth, np.full(1, np.inf), np.full(1, np.nan)
        )

    def _parts(self, leaves: Leaves, at: int, cap: float) -> Leaves:
        """The children of a leaf."""
        n = self.children
        low = np.repeat(leaves.low[at][None], n, axis=0)
        high = np.repeat(leaves.high[at][None], n, axis=0)
        side = int(leaves.depth[at]) % self.domain.dimension
        cuts = np.linspace(low[0, side], high[0, side], n + 1)
        low[:, side] = cuts[:-1]
        high[:, side] = cuts[1:]
        return Leaves(
            low, high, np.full(n, leaves.depth[at] + 1), np.full(n, cap), np.full(n, np.nan)
        )

    def _distances(self) -> Array:
        """d_k(centre, corner) in a cell of each depth, (depth + 1,): no point of the cell is farther."""
        d = self.domain.dimension
        cut = (
            np.arange(self.depth + 1)[:, None] + d - 1 - np.arange(d)
        ) // d  # how often each side was
        corner: Array = 0.5 * np.power(1.0 / self.children, cut)
        origin = np.zeros((1, d))
        squared = 2 * (float(self.kernel.diag(origin)[0]) - self.kernel(corner, origin)[:, 0])
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def _largest(values: Array, n: int) -> Indices:
    """Where the n largest are."""
    return np.argpartition(-values, n)[:n] if len(values) > n else np.arange(len(values))


def _is_continuous(side: Any) -> bool:
    return isinstance(side, Range) and not side.whole


def _falls(kernel: Kernel) -> bool:
    """k is a function of x − y that falls with every |x_j − y_j|: a corner is farthest."""
    if isinstance(kernel, Sum | Product):
        return _falls(kernel.first) and _falls(kernel.second)
    return isinstance(kernel, Stationary) or (
        isinstance(kernel, Scaled | On) and _falls(kernel.kernel)
    )
