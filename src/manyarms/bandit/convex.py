"""A ball and a polytope with a linear kernel, where the maximum of u is known, or found.

With k(x, y) = c·xᵀy the score is u(x) = θᵀx + β̃√(xᵀMx), the largest θ′ᵀx over the ellipsoid θ′ = θ
+ β̃M^½v, ‖v‖ ≤ 1 (Abbasi-Yadkori, Pál and Szepesvári 2011). So it is convex, with a bias in the
kernel too, and over a polytope it is largest at a vertex.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import scipy

from manyarms.bandit.maximisers import Score
from manyarms.checks import real, store, whole
from manyarms.errors import ArmsError, KernelError, ParameterError, shortened
from manyarms.kernels import Kernel, Linear, Scaled
from manyarms.lapack import in_one_thread
from manyarms.space.box import finite_rows
from manyarms.typing import Array, ArrayLike

OUTSIDE = 1e-8
"""How far outside, relative to the size of the domain, a row may be by rounding: about √ε, half of
float64's digits."""
SINGULAR = 1e-13
"""Relative distance from the top eigenvalue at which ν − d counts as 0: some 500 ε."""


@dataclass(frozen=True)
class Ball:
    """‖x‖ ≤ radius in some dimension, with a linear kernel without bias: `maximise` is exact.

    Parameters
    ----------
    dimension : int
        Columns of a row.
    radius : float
        Above 0.
    """

    dimension: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        store(
            self,
            dimension=whole(self.dimension, "dimension", at_most=10**6),
            radius=real(self.radius, "radius", "a positive number", above=0),
        )

    def checked(self, rows: ArrayLike) -> Array:
        """Rows (n, d), all inside, or ArmsError."""
        X = finite_rows(rows, self.dimension)
        norms = np.linalg.norm(X, axis=1)
        if norms.max(initial=0.0) > self.radius * (1 + OUTSIDE):
            raise ArmsError(
                f"row {X[int(np.argmax(norms))]} is outside the ball: its norm {norms.max()} "
                f"exceeds {self.radius}"
            )
        return X

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Rows drawn uniformly, (n, d)."""
        directions = rng.standard_normal((n, self.dimension))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        # A ball of radius s has s^d of the volume.
        return np.asarray(self.radius * rng.random((n, 1)) ** (1 / self.dimension) * directions)

    @in_one_thread
    def maximise(self, score: Score, _: "Ball", rng: np.random.Generator) -> Array:
        """The maximum of u: max_x max_θ′ θ′ᵀx = radius·max ‖θ′‖ over the ellipsoid, at x along the
        longest θ′.

        ‖θ + β̃M^½v‖² over ‖v‖ = 1 is a quadratic on a sphere, whose maximum solves a secular
        equation.
        """
        constant, bias = linear_parts(score.kernel)
        if bias:
            raise KernelError(
                f"over a ball the kernel is Linear() without a bias, got {shortened(score.kernel)}"
            )
        belief = score.belief.base
        B = constant * belief.W  # k_W(x) = Bx and z = L⁻¹Bx
        theta = B.T @ score.alpha
        Z = belief.L.solve(B)
        # xᵀMx = σ̃²(x) = r(x)/λ + zᵀV⁻¹z, with r(x) = xᵀ(cI − ZᵀZ)x.
        left_out = constant * np.eye(self.dimension) - Z.T @ Z
        M = left_out / belief.regularization + belief.factor.half(Z).gram
        # In the basis of eigenvectors, β̃M^½ is diagonal: `half`.
        eigenvalues, E = np.linalg.eigh((M + M.T) / 2)
        half = score.beta * np.sqrt(np.maximum(eigenvalues, 0.0))
        longest = theta + E @ (half * on_sphere(half * half, half * (E.T @ theta)))
        length = float(np.linalg.norm(longest))
        return np.asarray(self.radius / length * longest) if length else self.radius * E[:, -1]


def on_sphere(d: Array, b: Array) -> Array:
    """The maximum of Σ d_j v_j² + 2bᵀv over ‖v‖ = 1: v = b/(ν − d), ν ≥ max d such that ‖v‖ = 1
    (the secular equation)."""
    top = float(d.max())
    size = float(np.linalg.norm(b))

    def excess(nu: float) -> float:
        return float(np.linalg.norm(b / (nu - d))) - 1.0

    # ‖v‖ falls with ν; at ν = max d + ‖b‖ it is at most 1.
    margin = SINGULAR * (top + size)
    low = top + margin
    high = top + size
    if size == 0 or excess(low) <= 0:
        # The hard case: no ν > max d has ‖v‖ = 1. What is missing lies along a top eigenvector.
        rest = d < top - margin
        v = np.where(rest, b / np.where(rest, top - d, 1.0), 0.0)
        v[int(np.argmax(d))] += np.sqrt(max(0.0, 1.0 - float(v @ v)))
    else:
        nu = high
        if excess(high) < 0:
            nu = scipy.optimize.brentq(excess, low, high, xtol=1e-15 * high)
        v = b / (nu - d)
    return np.asarray(v / np.linalg.norm(v))


def linear_parts(kernel: Kernel) -> tuple[float, float]:
    """c and the bias of the kernel c·(xᵀy + bias); KernelError for others."""
    if isinstance(kernel, Scaled):
        constant, bias = linear_parts(kernel.kernel)
        return kernel.constant * constant, bias
    if isinstance(kernel, Linear):
        return 1.0, kernel.bias
    raise KernelError(
        f"a ball or a polytope takes a linear kernel, got "
        f"{shortened(kernel)}; use a Box and its maximiser"
    )


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
