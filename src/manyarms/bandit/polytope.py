"""A polytope with a linear kernel, where u is largest at a vertex.

The score u(x) = θᵀx + β̃√(xᵀMx) is the largest θ′ᵀx over an ellipsoid of θ′ (`bandit/ball.py`), and
so convex, with a bias in the kernel too.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import scipy

from manyarms.bandit.ball import OUTSIDE, linear_parts
from manyarms.bandit.score import Score
from manyarms.errors import ArmsError, ParameterError
from manyarms.lapack import in_one_thread
from manyarms.space.box import finite_rows
from manyarms.typing import Array, ArrayLike

MOST_VERTICES = 400_000
"""Polytopes that may have more vertices than this, by McMullen's theorem, are not enumerated.

A cube of 15 columns is below it: the bound is 341,088, it has 32,768 and takes 0.6 seconds, once.
"""
FLAT = 1e-9
"""Width, in units of the extents, below which a polytope counts as flat in a direction: linear
programs and rounding may leave as much."""
DIGITS_OF_SIDES = 14
"""Decimals that are compared to find equal sides, whose normals have length 1: all that float64
has."""
DIGITS_OF_VERTICES = 9
"""Decimals that are compared to find equal vertices of a polytope of size 1: Qhull finds one vertex
several times, rounded differently."""
VERTEX_DIRECTIONS = 20
"""Random directions in which a vertex is found, once: to start climbs from, and to check Qhull."""
STARTS = 20
"""Vertices, those of largest u, that a climb starts from where not all vertices are known.

On 90 random polytopes of 3 to 5 columns climbs from 4 starts ended in a local maximum 15 times (at
worst 16 % low), from 20 starts 10 times (6 % low). A start costs a few linear programs.
"""
VERTEX_GAIN = 1e-12
"""Relative gain below which a step from vertex to vertex is rounding."""


@dataclass(frozen=True, eq=False)
class Polytope:
    """Ax ≤ b, bounded, with a linear kernel.

    u is convex, so that its maximum over the polytope is at a vertex. Where `exact` is true all
    vertices are known, and `maximise` returns the best of them: the maximum, up to rounding. They
    are enumerated once, where their number is bounded well enough (`MOST_VERTICES`).

    Otherwise to maximise a convex function over a polytope is NP-hard. `maximise` then climbs from
    vertex to vertex, from several starts: the vertex y that maximises ∇u(x)ᵀy has u(y) ≥ u(x). It
    returns a vertex that no such step improves, which may be a local maximum.

    Parameters
    ----------
    A : array_like, (m, d)
        Normals of the sides.
    b : array_like, (m,)
        Their offsets.
    """

    A: Array
    b: Array

    @in_one_thread
    def __post_init__(self) -> None:
        try:
            A = np.array(self.A, dtype=np.float64)
            b = np.array(self.b, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ParameterError(
                f"a polytope takes numbers, A (m, d) and b (m,): {error}"
            ) from error
        if (
            A.ndim != 2
            or 0 in A.shape
            or b.shape != (len(A),)
            or not (np.isfinite(A).all() and np.isfinite(b).all())
        ):
            raise ParameterError(
                f"a polytope takes finite A (m, d) and b (m,), got shapes {A.shape} and {b.shape}"
            )
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "b", b)
        _ = self._extents  # which raises where the polytope is empty or not bounded

    @property
    def dimension(self) -> int:
        """Columns of a row."""
        return int(self.A.shape[1])

    @in_one_thread
    def checked(self, rows: ArrayLike) -> Array:
        """Rows (n, d), all inside, or ArmsError."""
        X = finite_rows(rows, self.dimension)
        excess = X @ self.A.T - self.b
        # Of the size of the terms that Ax − b is made of.
        size = np.abs(X).max(initial=0.0) * np.abs(self.A).sum(axis=1)
        slack = OUTSIDE * (1 + np.abs(self.b) + size)
        if (excess > slack).any():
            row, side = np.argwhere(excess > slack)[0]
            raise ArmsError(
                f"row {X[row]} is outside the polytope: side {side} is exceeded by "
                f"{excess[row, side]}"
            )
        return X

    @in_one_thread
    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Rows drawn at random, (n, d): mixtures of vertices, not uniform."""
        corners = np.unique(self._found[1], axis=0)
        return rng.dirichlet(np.ones(len(corners)), n) @ corners

    @in_one_thread
    def maximise(self, score: Score, _: "Polytope", rng: np.random.Generator) -> Array:
        """The vertex of largest u where this is `exact`, else one that no climb improves."""
        linear_parts(score.kernel)
        if self._vertices is not None:
            return np.asarray(score.top(self._vertices, 1)[0])
        starts = score.top(np.unique(self._found[1], axis=0), STARTS)
        climbed = np.array([self._climbed(score, corner) for corner in starts])
        return np.asarray(score.top(climbed, 1)[0])

    def _climbed(self, score: Score, x: Array) -> Array:
        value = float(score(x[None])[0])
        while True:
            # u is convex: u(y) ≥ u(x) + ∇u(x)ᵀ(y − x), and y maximises the right side.
            y = self._farthest(score.gradient(x[None])[0])
            better = float(score(y[None])[0])
            if not better > value + VERTEX_GAIN * abs(value):
                return x
            x = y
            value = better

    # Vertices

    def _farthest(self, direction: Array) -> Array:
        """The vertex farthest in a direction."""
        found = scipy.optimize.linprog(
            -direction, A_ub=self.A, b_ub=self.b, bounds=(None, None), method="highs-ds"
        )
        if found.status == 2:
            raise ParameterError("the polytope is empty: no x has Ax ≤ b")
        if found.status != 0:
            raise ParameterError(
                f"the polytope must be bounded, it is not along {direction}: {found.message}"
            )
        return np.asarray(found.x)

    @cached_property
    def _extents(self) -> tuple[Array, Array]:
        """The least and the largest value of each column, (d,) and (d,)."""
        axes = np.eye(self.dimension)
        largest = np.array([self._farthest(axis) @ axis for axis in axes])
        least = np.array([self._farthest(-axis) @ axis for axis in axes])
        return least, largest

    @cached_property
    def _found(self) -> tuple[Array, Array]:
        """Random directions (n, d), and the vertex that is farthest in each of them, (n, d)."""
        directions = np.random.default_rng(0).standard_normal((VERTEX_DIRECTIONS, self.dimension))
        return directions, np.array([self._farthest(direction) for direction in directions])

    @property
    @in_one_thread
    def exact(self) -> bool:
        """All vertices are known: `maximise` returns the maximum of u, and not a local one."""
        return self._vertices is not None

    @cached_property
    def _vertices(self) -> Array | None:
        """All vertices (v, d), or None where there may be too many, or where rounding defeats
        Qhull."""
        # In units of the extents: columns of different sizes would cost digits.
        least, largest = self._extents
        half = (largest - least) / 2
        units = np.where(half > FLAT * np.abs(least + largest) / 2, half, 1.0)
        inside, plane = self._hull(units)
        # x = inside + units·(plane·y), and y = 0 is inside of all sides.
        found = _enumerated((self.A * units) @ plane, self.b - self.A @ inside)
        return None if found is None else self._confirmed(inside + units * (found @ plane.T))

    def _hull(self, units: Array) -> tuple[Array, Array]:
        """A point inside, (d,), and an orthonormal basis (d, k) of the directions in which the
        polytope is not flat."""
        ends = []
        basis = []
        rest = np.eye(self.dimension)  # the projection on directions that were not looked at
        for _ in range(self.dimension):
            direction = rest[int(np.argmax(rest.diagonal()))]
            direction = direction / np.linalg.norm(direction)
            pair = [self._farthest(sign * direction / units) for sign in (1.0, -1.0)]
            across = (pair[0] - pair[1]) / units
            ends += pair
            if direction @ across > FLAT:
                direction = rest @ across
                direction /= np.linalg.norm(direction)
                basis.append(direction)
            rest = rest - np.outer(direction, direction)
        plane = np.array(basis).reshape(-1, self.dimension).T
        return np.mean(ends, axis=0), plane

    def _confirmed(self, found: Array) -> Array | None:
        """Vertices (v, d) that Qhull has found, or None where it has missed some or is wrong.

        Qhull works in floating point. Its answer is taken if all vertices are inside and if none of
        the corners that linear programs find lies beyond them, along its own direction.
        """
        try:
            found = self.checked(found)
        except ArmsError:
            return None
        directions, corners = self._found
        farthest = (found @ directions.T).max(axis=0)
        expected = (corners * directions).sum(axis=1)
        size = np.abs(found).max() * np.abs(directions).sum(axis=1)
        return found if (farthest >= expected - OUTSIDE * (1 + size)).all() else None


def most_vertices(n_sides: int, dimension: int) -> int:
    """The largest number of vertices of a polytope of so many sides (McMullen 1970)."""
    low = dimension // 2
    high = (dimension + 1) // 2
    return comb(n_sides - high, low) + comb(n_sides - low - 1, high - 1)


def _enumerated(A: Array, b: Array) -> Array | None:
    """The vertices (v, k) of Ay ≤ b, which has y = 0 inside and a size of about 1."""
    length = np.linalg.norm(A, axis=1)
    kept = length > FLAT * length.max(initial=0.0)  # a normal of 0 says nothing
    sides = np.column_stack([A, -b])[kept] / length[kept, None]
    # The same side twice counts once.
    sides = np.unique(sides.round(DIGITS_OF_SIDES), axis=0)
    k = A.shape[1]
    if k == 0:
        return np.zeros((1, 0))  # a point
    if k == 1:
        # A segment, which Qhull does not take.
        ends = -sides[:, 1] / sides[:, 0]
        return np.array([[ends[ends < 0].max()], [ends[ends > 0].min()]])
    if most_vertices(len(sides), k) > MOST_VERTICES:
        return None
    try:
        found = scipy.spatial.HalfspaceIntersection(sides, np.zeros(k)).intersections
    except scipy.spatial.QhullError:
        return None
    if not np.isfinite(found).all():
        return None
    # A vertex on more than k sides comes once for each simplex of sides around it.
    _, first = np.unique(found.round(DIGITS_OF_VERTICES), axis=0, return_index=True)
    return np.asarray(found[np.sort(first)])
