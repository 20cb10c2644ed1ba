"""Ada-BKB: no maximiser, but a tree of cells that is refined where f may be largest.

Rando, Carratino, Villa and Rosasco, "Ada-BKB: Scalable Gaussian process optimization on continuous
domains by adaptive discretization" (AISTATS 2022). With ‖f‖ ≤ F, |f(x) − f(y)| ≤ F·d_k(x, y),
d_k(x, y)² = k(x, x) + k(y, y) − 2k(x, y). A cell with centre c has V = F·max d_k(c, x) over its x,
and the index

    I = min(u(c), u(parent) + V_parent) + V ≥ f(x) for all x in the cell,  u = μ̃ + β̃σ̃, the least
    of u at all times so far.

The leaf of largest index is split where β̃σ̃(c) ≤ V, that is where f(c) is known better than what
the cell hides, and else its centre is pulled. Leaves whose index is below the largest lower bound
μ̃ − β̃σ̃ of a row pulled are dropped. Which leaves are split is free: no cell with the maximum is
dropped, whatever is split.

Where the data refute F, nothing bounds f over a cell. A basin in a large cell whose centre is low
is then never seen: V is too small for the cell to come to the top. So the index is u(c) + F′·d_k
of now, for guesses F′ in turn: ‖μ̃‖, a half of it, …, and 0, which looks for the largest u alone.
(Jones, Perttunen and Stuckman, "Lipschitzian optimization without the Lipschitz constant", 1993,
take all F′ at once.) A leaf is split where f(c) is known better than by one pull, σ̃(c) ≤ 1.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from manyarms.bandit.domain import DomainBKB, entries_of
from manyarms.bandit.policy import State
from manyarms.checks import real, whole
from manyarms.engine.base import Batch, Step
from manyarms.engine.confidence import Certified, Promise, Radius, updated_norm
from manyarms.engine.frozen import Engine, Inserted
from manyarms.errors import KernelError, NormWarning, ParameterError, shortened
from manyarms.kernels import Kernel, On, Product, Scaled, Sum
from manyarms.kernels.stationary import Stationary
from manyarms.space.box import Box, Range
from manyarms.typing import AnyArray, Array, Mask, Seed

SPLITS = 100
"""Cells split for one choice, at most; then the best is pulled. A norm that is far too large for
the number of pulls asks for millions of cells before the first pull. With 30, a doubled norm took
3.4 s in place of 14 on Hartmann-3, and regrets were larger: .14 in place of .05 there, .11 in place
of .03 on Hartmann-6 told F = 10."""
CHILDREN = 3
"""Parts that a side of a cell is cut in, one side after the other; of an odd number the middle one
keeps the centre."""
GUESSES = 6
"""Guesses F′ that take turns where F is refuted. With 4, 6 and 8 of them the regret after 200 pulls
was .008, .002 and .001 on Hartmann-3, .05, .03 and .01 on Hartmann-6, 2.5, 2.5 and 2.9 on Ackley-5
(F = 1, medians over 5 seeds, the setting of benchmarks/cells.py)."""


@dataclass(frozen=True)
class Tree:
    """The leaves that cover what was not dropped: records as of `whole_box`."""

    leaves: AnyArray  # (n,)
    norm: float  # F
    n_cells: int = 1  # leaves ever made
    n_dropped: int = 0
    lowest: float = -np.inf  # the largest lower bound seen: the maximum of f is not below it
    top: Array | None = None  # (d,) the row that has it
    refuted: bool = False  # F is too small


def whole_box(d: int) -> AnyArray:
    """The first cell, as an array of one record. Cells of one depth have equal sides, because sides
    are cut in turn."""
    record = [
        ("low", np.float64, (d,)),
        ("high", np.float64, (d,)),
        ("depth", np.intp),
        # Bounds f at the centre: u(parent) + V_parent, and u(centre) at earlier times.
        ("cap", np.float64),
        # β̃σ̃ at the centre.
        ("width", np.float64),
    ]
    return np.array([(np.zeros(d), np.ones(d), 0, np.inf, np.inf)], dtype=record)


def centres(cells: AnyArray) -> Array:
    """Of cells, (n, d)."""
    return np.asarray((cells["low"] + cells["high"]) / 2)


def holding(cells: AnyArray, row: Array) -> Mask:
    """Which of the cells hold a row (d,)."""
    return np.asarray(((cells["low"] <= row) & (row <= cells["high"])).all(axis=1))


class AdaBKB(DomainBKB):
    """Ada-BKB over a box of numbers.

    The kernel falls with every distance |x_j − y_j|: RBF, Matérn, their sums and products.

    With a radius that holds (`Certified`, `LogDet`, `Theory`) for a true bound on the norm, every
    cell that holds a maximum of f is kept, and regret is bounded as in the paper, with probability
    1 − δ. No maximiser is trusted.

    Several choices a time come without the theorem: centres pending are supposed to give their
    mean.

    Parameters
    ----------
    domain : Box
        Of numbers; neither whole ones nor choices.
    kernel : Kernel
        `RBF` or `Matern`, their multiples, sums and products.
    regularization, noise : float
        λ and ξ, as for `DomainBKB`.
    rule : Inserted
        Which rows enter the inducing set W.
    confidence : Radius
        As for `DomainBKB`; it has no default here, for the guarantee rests on it.
    norm : float, optional
        F in V; that of `confidence` where it has one. F is refuted where ‖μ̃‖ is too large for it,
        or where no leaf is left that may hold the best row. The tree then starts over, as what was
        dropped rested on F. With a radius that has ``double=True``, F is doubled, and what is
        promised of such a radius still is. Else a `NormWarning` says so, once; from then on no leaf
        is dropped, guesses of F take turns, and nothing is promised: benchmarks/cells.py has
        figures. A true bound may ask for far more pulls than there are: cells of size V < β̃σ̃ are
        pulled one by one. A `NormWarning` also says when only one of the smallest cells is left.
    depth : int, optional
        Splits from the box down to the smallest cells, which are never split; 8 for each column by
        default.
    seed : int or numpy.random.Generator
        As for `DomainBKB`.
    """

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
        depth: int | None = None,
        seed: Seed = 0,
    ) -> None:
        sides = getattr(domain, "columns", [None])
        if not all(isinstance(side, Range) and not side.whole for side in sides):
            raise ParameterError(
                f"AdaBKB takes a box of numbers, neither whole ones nor choices, got "
                f"{shortened(domain)}"
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
                f"got {shortened(self.kernel)}"
            )
        if norm is None and isinstance(confidence, Promise):
            norm = confidence.norm
        if norm is None:
            raise ParameterError(f"{confidence!r} has no bound on the norm of f: give norm=")
        norm = real(norm, "norm", "a positive bound on the RKHS norm of f", above=0)
        self.depth = 8 * domain.dimension if depth is None else whole(depth, "depth")
        self._reach = self._distances()
        tree = Tree(whole_box(self.domain.dimension), norm)
        self._state = self._state._replace(told=self._state.told._replace(tree=tree))
        self._split_cache: tuple[State, Tree, int] | None = None

    @property
    def norm(self) -> float:
        """F now."""
        return self.tree.norm

    @property
    def tree(self) -> Tree:
        """The leaves now."""
        tree: Tree = self._state.told.tree
        return tree

    @property
    def _guess(self) -> float | None:
        """The guess of ‖f‖ that the cells allow, where the radius doubles it."""
        norm = self._state.norm
        return None if norm is None or self._state.told.tree is None else max(norm, self.tree.norm)

    def _next(self, belief: Engine, number: int, barred: frozenset[bytes]) -> Array:
        """The centre (d,) to pull next by this belief, in which pulls may be supposed."""
        if barred:
            raise ParameterError(
                "AdaBKB chooses among the centres of cells and excludes none; use DomainBKB"
            )
        tree, at = self._split()
        # Where pulls are supposed, deviations have shrunk, and another leaf may be on top.
        if number:
            leaves = self._bounded(belief, tree.leaves, self.beta, tree.refuted)
            tree, at = self._grown(belief, replace(tree, leaves=leaves), self.beta)
        return np.asarray(centres(tree.leaves)[at])

    def _follow(self, after: State, step: Step, batch: Batch) -> None:
        """Replace the state, its tree pruned."""
        tree, _ = self._split()
        told = after.told._replace(entries=after.told.entries.appended(entries_of(batch)))
        belief = cast(Engine, after.belief)
        rows = batch.rows
        # The best row so far competes again, with its lower bound of now.
        if tree.top is not None:
            rows = np.vstack([rows, tree.top])
        norm = None if after.norm is None else max(after.norm, tree.norm)
        # Until a norm is found that the data do not refute, or F is given up.
        while True:
            if norm is not None and norm > tree.norm:
                tree = Tree(whole_box(self.domain.dimension), norm)
                # The new tree has no lower bound yet: all rows observed compete for it.
                rows = told.distinct()[0]
            beta = self._radius(belief.evidence.of(np.inf, norm))
            pruned = self._pruned(belief, tree, rows, beta)
            if pruned is not None:
                break
            if norm is not None:
                norm = 2 * norm
                continue
            _warn(
                f"the data refute norm={tree.norm:g}: cells that were dropped may hold the "
                "maximum. "
                "The tree starts over, drops none and promises nothing; "
                "give a larger norm, or a radius with double=True"
            )
            tree = Tree(whole_box(self.domain.dimension), tree.norm, refuted=True)
        # Said once: when it becomes so.
        if self._is_one(pruned) and not self._is_one(tree):
            _warn(
                "one cell is left, and it is too small to be split: the maximum of f is in it if "
                f"norm={tree.norm:g} bounds ‖f‖; give a larger norm, or a radius with double=True, "
                "where that is not sure, and more depth where it is"
            )
        self._state = after._replace(told=told._replace(tree=pruned))

    def _is_one(self, tree: Tree) -> bool:
        """Whether all but one of the smallest cells were dropped."""
        return len(tree.leaves) == 1 and bool(tree.leaves["depth"][0] == self.depth)

    def _split(self) -> tuple[Tree, int]:
        """The tree, split until the leaf of largest index is to be pulled, and that leaf: a
        cache."""
        state = self._state
        cached = self._split_cache
        if cached is None or cached[0] is not state:
            cached = self._split_cache = (state, *self._grown(self.belief, self.tree, self.beta))
        return cached[1], cached[2]

    def _grown(self, belief: Engine, tree: Tree, beta: float) -> tuple[Tree, int]:
        """Split the leaf of largest index until one is to be pulled: the tree, and that leaf."""
        if tree.refuted:
            inside = _guess(belief) * self._reach
            enough = np.full(len(inside), beta)  # σ̃ ≤ 1
            limit = CHILDREN * self.domain.dimension  # a cell, and its sides cut in turn
        else:
            inside = enough = tree.norm * self._reach
            limit = SPLITS
        # Room for all cells that may come, so that a split copies nothing.
        n = len(tree.leaves)
        room = np.empty(n + limit * (CHILDREN - 1), dtype=tree.leaves.dtype)
        room[:n] = tree.leaves
        index = np.full(len(room), -np.inf)
        index[:n] = room["cap"][:n] + inside[room["depth"][:n]]
        n_split = 0
        while True:
            at = int(np.argmax(index))
            leaf = room[at]
            depth = leaf["depth"]
            # Pull where β̃σ̃(c) > V: f(c) is known less well than what the cell hides. Else split.
            if n_split == limit or leaf["width"] > enough[depth] or depth >= self.depth:
                n_cells = tree.n_cells + n_split * CHILDREN
                return replace(tree, leaves=room[:n].copy(), n_cells=n_cells), at
            # One child takes the place of the leaf, the others come behind all.
            places = np.array([at, *range(n, n + CHILDREN - 1)])
            parts = self._parts(leaf, float(index[at]))
            room[places] = self._bounded(belief, parts, beta, tree.refuted)
            index[places] = room["cap"][places] + inside[depth + 1]
            n += CHILDREN - 1
            n_split += 1

    def _bounded(self, belief: Engine, leaves: AnyArray, beta: float, refuted: bool) -> AnyArray:
        """Leaves with the `cap` and `width` of now."""
        rows = centres(leaves)
        mean, variance = belief.moments(rows, self.kernel.diag(rows))
        bounded = leaves.copy()
        bounded["width"] = beta * np.sqrt(variance)
        upper = mean + bounded["width"]
        # Bounds of all times hold together, unless F was refuted.
        bounded["cap"] = upper if refuted else np.minimum(leaves["cap"], upper)
        return bounded

    def _pruned(self, belief: Engine, tree: Tree, rows: Array, beta: float) -> Tree | None:
        """The tree without leaves that cannot hold the maximum; None where F is refuted.

        It is where μ̃ is too large for it, or the bound of every leaf that holds the best row is
        below the value there. Once it is, a bound does not outlive a later one and no leaf is
        dropped.
        """
        leaves = self._bounded(belief, tree.leaves, beta, tree.refuted)
        if tree.refuted:
            return replace(tree, leaves=leaves)
        mean, variance = belief.moments(rows, self.kernel.diag(rows))
        lower = mean - beta * np.sqrt(variance)
        at = int(np.argmax(lower))
        lowest = tree.lowest
        top = tree.top
        if top is None or lower[at] > lowest:
            lowest = float(lower[at])
            top = rows[at]
        # The index cap + V bounds f over the cell: below the best lower bound, it has no maximum.
        keep = leaves["cap"] + tree.norm * self._reach[leaves["depth"]] >= lowest
        if self._is_too_large(belief, tree.norm) or not keep[holding(leaves, top)].any():
            return None
        n_dropped = tree.n_dropped + int((~keep).sum())
        return replace(tree, leaves=leaves[keep], n_dropped=n_dropped, lowest=lowest, top=top)

    def _is_too_large(self, belief: Engine, norm: float) -> bool:
        """μ̃ is, for ‖f‖ ≤ F: by the radius where it has a promise, else by `Certified`."""
        radius = self.confidence
        if not isinstance(radius, Promise):
            radius = Certified(norm, self.noise)
        updated = updated_norm(radius, belief.evidence.of(np.inf, norm))
        return updated is not None and updated > norm

    # Cells

    def _parts(self, leaf: Any, cap: float) -> AnyArray:
        """The children of a leaf, whose bound is `cap`."""
        parts = np.repeat(np.array([leaf]), CHILDREN)
        # Sides are cut in turn, so that all cells of a depth are of one size.
        side = int(leaf["depth"]) % self.domain.dimension
        cuts = np.linspace(leaf["low"][side], leaf["high"][side], CHILDREN + 1)
        parts["low"][:, side] = cuts[:-1]
        parts["high"][:, side] = cuts[1:]
        parts["depth"] += 1
        parts["cap"] = cap
        return parts

    def _distances(self) -> Array:
        """d_k(centre, corner) in a cell of each depth, (depth + 1,): no point of the cell is
        farther."""
        d = self.domain.dimension
        # How often each side was cut at each depth, as sides are cut in turn: (depth + 1, d).
        cut = (np.arange(self.depth + 1)[:, None] + d - 1 - np.arange(d)) // d
        corner: Array = 0.5 * np.power(1.0 / CHILDREN, cut)
        # d_k² = k(c, c) + k(x, x) − 2k(c, x), and the kernel depends on x − c only.
        origin = np.zeros((1, d))
        squared = 2 * (float(self.kernel.diag(origin)[0]) - self.kernel(corner, origin)[:, 0])
        # Rounding may leave −ε where the cell is tiny.
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def _guess(belief: Engine) -> float:
    """F′ of now, where F is refuted."""
    turn = belief.n_observations % GUESSES  # ‖μ̃‖, ‖μ̃‖/2, …, and 0 in the last turn
    return 0.0 if turn == GUESSES - 1 else belief.evidence.mean()[0] / 2**turn


def _warn(message: str) -> None:
    """Say so where `observe` was called."""
    warnings.warn(message, NormWarning, stacklevel=6)


def _falls(kernel: Kernel) -> bool:
    """k is a function of x − y that falls with every |x_j − y_j|: a corner is farthest."""
    if isinstance(kernel, Sum | Product):
        return _falls(kernel.first) and _falls(kernel.second)
    return isinstance(kernel, Stationary) or (
        isinstance(kernel, Scaled | On) and _falls(kernel.kernel)
    )
