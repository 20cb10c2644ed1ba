"""Ada-BKB: no maximiser, but a tree of cells that is refined where f may be largest.

Rando, Carratino, Villa and Rosasco, "Ada-BKB: Scalable Gaussian process optimization on continuous domains by adaptive
discretization" (AISTATS 2022). With ‖f‖ ≤ F, |f(x) − f(y)| ≤ F·d_k(x, y), d_k(x, y)² = k(x, x) + k(y, y) − 2k(x, y). A cell
with centre c has V = F·max d_k(c, x) over its x, and the index

    I = min(u(c), u(parent) + V_parent) + V ≥ f(x) for all x in the cell,  u = μ̃ + β̃σ̃, the least of u at all times so far.

The leaf of largest index is split where β̃σ̃(c) ≤ V, that is where f(c) is known better than what the cell hides, and else its
centre is pulled. Leaves whose index is below the largest lower bound μ̃ − β̃σ̃ of a row pulled are dropped.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manyarms.domains.box import Box, Range
from manyarms.domains.policy import DomainBKB
from manyarms.domains.pulled import Pulled
from manyarms.errors import KernelError, ParameterError
from manyarms.kernels import Kernel, On, Product, Scaled, Sum
from manyarms.kernels.stationary import Stationary
from manyarms.numbers import real, whole
from manyarms.sketch.confidence import Radius, TheoremTwo
from manyarms.typing import Array, ArrayLike, Mask, Seed

PER_LEAF = ("low", "high", "depth", "cap", "inside")


@dataclass(frozen=True)
class Tree:
    """The leaves: cells [low, high] that cover what was not dropped."""

    low: Array  # (n, d)
    high: Array  # (n, d)
    depth: Array  # (n,)
    cap: Array  # (n,) bounds f at the centre: u(parent) + V_parent, and u(centre) at earlier times
    inside: Array  # (n,) V
    n_cells: int  # leaves ever made
    n_dropped: int
    lowest: float  # the largest lower bound seen: the maximum of f is not below it

    @property
    def centre(self) -> Array:
        """(n, d)."""
        return (self.low + self.high) / 2

    def kept(self, keep: Mask) -> "Tree":
        """Without the other leaves, which are not counted as dropped."""
        parts: dict[str, Any] = {name: getattr(self, name)[keep] for name in PER_LEAF}
        return replace(self, **parts)


@dataclass(frozen=True)
class Grown(Pulled):
    """What was pulled, and the tree after it."""

    tree: Tree


class AdaBKB(DomainBKB):
    """Ada-BKB over a box of numbers, with a kernel that falls with every distance |x_j − y_j| (RBF, Matérn, sums, products, …).

    With `LogDet` or `Theory`, the norm and the noise they ask for and ``oversampling=None`` or that of Theorem 1, every cell
    that holds a maximum of f is kept, and regret is bounded as in the paper, with probability 1 − δ. No maximiser is trusted.

    norm : F in V; that of `confidence` where it has one. A guess that `confidence` doubles starts the tree over whenever it is
        doubled: what was dropped rested on a norm that is refuted.
    children : parts that the longest side of a cell is cut in; of an odd number the middle one keeps the centre.
    depth : splits from the box down to the smallest cells, which are never split; 8 for each column by default.
    domain, kernel, regularization, oversampling, confidence, seed : as for `DomainBKB`. Several choices a time come without the
    theorem: centres pending are supposed to give their mean.
    """

    _state: Grown

    def __init__(
        self,
        domain: Box,
        kernel: Any,
        *,
        regularization: float = 0.01,
        oversampling: float | None = 5.0,
        confidence: Radius,
        norm: float | None = None,
        children: int = 3,
        depth: int | None = None,
        seed: Seed = 0,
    ) -> None:
        if not isinstance(domain, Box) or not all(isinstance(side, Range) and not side.whole for side in domain.columns):
            raise ParameterError(f"AdaBKB takes a box of numbers, neither whole ones nor choices, got {domain!r}")
        super().__init__(
            domain, kernel, regularization=regularization, oversampling=oversampling, confidence=confidence, seed=seed
        )
        if not _falls(self.kernel):
            raise KernelError(f"AdaBKB takes RBF and Matern kernels, their multiples, sums and products, got {self.kernel!r}")
        if norm is None and not isinstance(confidence, TheoremTwo):
            raise ParameterError(f"{confidence!r} has no bound on the norm of f: give norm=")
        given = norm if norm is not None or not isinstance(confidence, TheoremTwo) else confidence.norm
        self._norm = real(given, "norm", "a positive bound on the RKHS norm of f", above=0)
        self.children = whole(children, "children", at_least=2)
        self.depth = 8 * domain.dimension if depth is None else whole(depth, "depth")
        parts = {name: getattr(self._state, name) for name in Pulled.__dataclass_fields__}
        self._state = Grown(**parts, tree=self._root())

    def _root(self) -> Tree:
        ends = np.zeros((1, self.domain.dimension)), np.ones((1, self.domain.dimension))
        return Tree(*ends, np.zeros(1), np.full(1, np.inf), self._inside(*ends), 1, 0, -np.inf)

    @property
    def norm(self) -> float:
        """F now."""
        return max(self._norm, self._state.evidence.norm or 0.0)

    @property
    def tree(self) -> Tree:
        """The leaves now."""
        return self._state.tree

    def choose(self, n: int = 1, *, pending: ArrayLike = ()) -> Array:
        """The n centres to pull next, (n, d). Pure."""
        n, beta = whole(n, "n"), self.beta
        with self.stats.timed("choices"):
            pulled, chosen = self._state.supposing(self.domain.checked(pending)), list[Array]()
            tree = self._state.tree
            for _ in range(n):
                tree, at = self._split(pulled, tree, beta)
                chosen.append(tree.centre[at])
                if len(chosen) < n:
                    pulled = pulled.supposing(chosen[-1][None])
        return np.array(chosen)

    def observe(self, arms: ArrayLike, rewards: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Learn the rewards (n,) of rows (n, d), and drop the leaves that cannot hold the maximum."""
        before = self._state
        tree, _ = self._split(before, before.tree, self.beta)
        super().observe(arms, rewards, noise=noise)
        try:
            if self._state is not before:
                if self._state.evidence.norm != before.evidence.norm:
                    tree = self._root()
                self._state = replace(self._state, tree=self._pruned(self._state, tree, self.beta))
        except BaseException:
            self._state = before
            raise

    def _split(self, pulled: Pulled, tree: Tree, beta: float) -> tuple[Tree, int]:
        """Split the leaf of largest index until one is found whose centre is to be pulled: the tree, and that leaf."""
        upper, width = self._bounds(pulled, tree, beta)
        while True:
            at = int(np.argmax(np.minimum(upper, tree.cap) + tree.inside))
            if width[at] > tree.inside[at] or tree.depth[at] >= self.depth:
                return tree, at
            parts = self._parts(tree, at, float(min(upper[at], tree.cap[at]) + tree.inside[at]))
            others = np.arange(len(upper)) != at
            more = self._bounds(pulled, parts, beta)
            upper, width = np.concatenate([upper[others], more[0]]), np.concatenate([width[others], more[1]])
            tree = _joined(tree.kept(others), parts)

    def _bounds(self, pulled: Pulled, tree: Tree, beta: float) -> tuple[Array, Array]:
        """u and β̃σ̃ at the centres."""
        mean, variance = pulled.moments(tree.centre)
        width = beta * np.sqrt(variance)
        return mean + width, width

    def _pruned(self, pulled: Pulled, tree: Tree, beta: float) -> Tree:
        mean, variance = pulled.moments(pulled.rows)
        lowest = max(tree.lowest, float((mean - beta * np.sqrt(variance)).max()))
        cap = np.minimum(self._bounds(pulled, tree, beta)[0], tree.cap)  # bounds of all times hold together
        index = cap + tree.inside
        keep = index >= lowest
        if not keep.any():  # the radius is refuted: keep the best leaf rather than none
            keep[int(np.argmax(index))] = True
        tree = replace(tree, cap=cap)
        return replace(tree.kept(keep), n_dropped=tree.n_dropped + int((~keep).sum()), lowest=lowest)

    def _parts(self, tree: Tree, at: int, cap: float) -> Tree:
        """The children of a leaf."""
        low, high = tree.low[at], tree.high[at]
        side, n = int(np.argmax(high - low)), self.children
        cuts = np.linspace(low[side], high[side], n + 1)
        lows, highs = np.repeat(low[None], n, axis=0), np.repeat(high[None], n, axis=0)
        lows[:, side], highs[:, side] = cuts[:-1], cuts[1:]
        depth = np.full(n, tree.depth[at] + 1)
        return Tree(lows, highs, depth, np.full(n, cap), self._inside(lows, highs), n, 0, -np.inf)

    def _inside(self, low: Array, high: Array) -> Array:
        """V = F·d_k(centre, corner): no point of the cell is farther."""
        centre = (low + high) / 2
        across = np.array([self.kernel(c[None], e[None])[0, 0] for c, e in zip(centre, high, strict=True)])
        squared = self.kernel.diag(centre) + self.kernel.diag(high) - 2 * across
        return np.asarray(self.norm * np.sqrt(np.maximum(squared, 0.0)))


def _joined(tree: Tree, more: Tree) -> Tree:
    parts: dict[str, Any] = {name: np.concatenate([getattr(tree, name), getattr(more, name)]) for name in PER_LEAF}
    return replace(tree, **parts, n_cells=tree.n_cells + more.n_cells)


def _falls(kernel: Kernel) -> bool:
    """k(x, y) is positive and falls with every |x_j − y_j|: the farthest point of a cell is a corner."""
    if isinstance(kernel, Sum | Product):
        return _falls(kernel.first) and _falls(kernel.second)
    return isinstance(kernel, Stationary) or (isinstance(kernel, Scaled | On) and _falls(kernel.kernel))
