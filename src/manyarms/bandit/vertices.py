"""The vertices of a polytope Ax ≤ b, all of them, where that can be done in bounded time."""

from math import comb

import numpy as np
import scipy

from manyarms.lapack import linalg
from manyarms.typing import Array

MOST_VERTICES = 400_000
"""Polytopes that may have more vertices than this, by McMullen's theorem, are not enumerated.

A cube of 15 columns is below it: the bound is 341,088, it has 32,768 and takes 0.6 seconds, once.
"""
FLAT = 1e-9
"""Radius of the largest ball inside, in units of the extents, below which a polytope counts as
flat: rounding alone may leave such a ball."""
DIGITS_OF_SIDES = 14
"""Decimals that are compared to find equal sides, whose normals have length 1: all that float64
has."""
DIGITS_OF_VERTICES = 9
"""Decimals that are compared to find equal vertices of a polytope of size 1: Qhull finds one vertex
several times, rounded differently."""


def most_vertices(n_sides: int, dimension: int) -> int:
    """The largest number of vertices of a polytope of so many sides (McMullen 1970)."""
    if n_sides <= dimension:
        return 1
    low = dimension // 2
    high = (dimension + 1) // 2
    return comb(n_sides - high, low) + comb(n_sides - low - 1, high - 1)


def all_vertices(A: Array, b: Array, least: Array, largest: Array) -> Array | None:
    """All vertices (v, d) of the bounded polytope Ax ≤ b, or None where there may be too many.

    `least` and `largest` (d,) are the extents of the polytope along each column. None is also the
    answer where rounding defeats Qhull.
    """
    # In units of the extents: columns of different sizes would cost digits.
    centre = (least + largest) / 2
    half = (largest - least) / 2
    units = np.where(half > FLAT * np.abs(centre), half, 1.0)
    found = _of_unit_size(*_normalised(A * units, b - A @ centre))  # x = centre + units·y
    return None if found is None else np.asarray(centre + units * found)


def _normalised(A: Array, b: Array) -> tuple[Array, Array]:
    """The same sides with normals of length 1; those that are 0 say nothing."""
    length = np.linalg.norm(A, axis=1)
    kept = length > FLAT * length.max(initial=0.0)
    sides = np.column_stack([A, b])[kept] / length[kept, None]
    # The same side twice counts once.
    sides = np.unique(sides.round(DIGITS_OF_SIDES), axis=0)
    return sides[:, :-1], sides[:, -1]


def _of_unit_size(A: Array, b: Array) -> Array | None:
    """Vertices where normals have length 1 and the polytope has a size of about 1."""
    centre, radius = _largest_ball(A, b)
    if radius > FLAT:
        return _of_full_dimension(A, b, centre)

    # A flat polytope: sides that hold with equality everywhere span the normals of its plane.
    tight = np.array([b[i] - _least(A, b, A[i]) <= 10 * FLAT for i in range(len(A))])
    if not tight.any():
        return None
    # (d, k): an orthonormal basis of the directions that are left.
    plane = linalg.null_space(A[tight], rcond=FLAT)
    if not plane.shape[1]:
        return centre[None]
    # x = centre + plane·y, and the sides that are left bound y.
    inner_A, inner_b = _normalised(A[~tight] @ plane, (b - A @ centre)[~tight])
    inner_centre, inner_radius = _largest_ball(inner_A, inner_b)
    if inner_radius <= FLAT:
        return None
    found = _of_full_dimension(inner_A, inner_b, inner_centre)
    return None if found is None else centre + found @ plane.T


def _of_full_dimension(A: Array, b: Array, inside: Array) -> Array | None:
    """Vertices of a polytope with a ball around the point inside."""
    n_sides, d = A.shape
    if d == 1:
        # A segment, which Qhull does not take.
        ends = b / A[:, 0]
        return np.array([[ends[A[:, 0] < 0].max()], [ends[A[:, 0] > 0].min()]])
    if most_vertices(n_sides, d) > MOST_VERTICES:
        return None
    try:
        found = scipy.spatial.HalfspaceIntersection(np.column_stack([A, -b]), inside).intersections
    except scipy.spatial.QhullError:
        return None
    if not np.isfinite(found).all():
        return None
    # A vertex on more than d sides comes once for each simplex of sides around it.
    _, first = np.unique(found.round(DIGITS_OF_VERTICES), axis=0, return_index=True)
    return np.asarray(found[np.sort(first)])


def _largest_ball(A: Array, b: Array) -> tuple[Array, float]:
    """Centre and radius of the largest ball inside, normals of length 1: max r, Ax + r ≤ b."""
    d = A.shape[1]
    objective = np.append(np.zeros(d), -1.0)
    bounds = [(None, None)] * d + [(0.0, None)]
    sides = np.column_stack([A, np.ones(len(A))])
    found = scipy.optimize.linprog(objective, A_ub=sides, b_ub=b, bounds=bounds, method="highs")
    if found.status != 0:  # a flat polytope that rounding has made empty
        return np.zeros(d), 0.0
    return np.asarray(found.x[:d]), float(found.x[d])


def _least(A: Array, b: Array, direction: Array) -> float:
    """The smallest directionᵀx; −∞ where the linear program has no answer."""
    found = scipy.optimize.linprog(direction, A_ub=A, b_ub=b, bounds=(None, None), method="highs")
    return float(found.fun) if found.status == 0 else -np.inf
