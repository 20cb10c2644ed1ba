"""Linear kernels over a ball (exact) and a polytope (vertices)."""

from itertools import combinations, product

import numpy as np
import pytest

import manyarms as ma
from manyarms import kernels as k
from manyarms.bandit.convex import on_sphere
from manyarms.domains import Ball, DomainBKB, Polytope
from manyarms.errors import ArmsError, KernelError, ParameterError


def told(domain, kernel, n, seed, **options):
    rng = np.random.default_rng(seed)
    policy = DomainBKB(domain, kernel, regularization=0.1, **options)
    X = domain.sample(n, rng)
    if n:
        policy.observe(X, X @ rng.standard_normal(domain.dimension) + 0.3 * rng.standard_normal(n))
    return policy, rng


def directions(d, n, rng):
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1)[:, None]


@pytest.mark.parametrize("seed", range(6))
def test_a_quadratic_on_the_sphere(seed):
    rng = np.random.default_rng(seed)
    d, b = rng.random(3), rng.standard_normal(3) * [1, 1, seed != 3]
    d = np.sort(d) if seed == 3 else d  # b has nothing along the top eigenvector: the hard case
    d, b = (np.full(3, 0.5), b) if seed == 4 else (d, 0 * b) if seed == 5 else (d, b)
    v = on_sphere(d, b)
    assert np.linalg.norm(v) == pytest.approx(1.0)
    X = directions(3, 100_000, rng)
    assert d @ v**2 + 2 * b @ v >= (X**2 @ d + 2 * X @ b).max() - 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_the_maximum_over_a_ball(seed):
    policy, rng = told(Ball(3, 2.0), 1.5 * k.Linear(), 6, seed)
    (x,) = policy.choose()
    assert np.linalg.norm(x) == pytest.approx(2.0)
    X = 2.0 * directions(3, 100_000, rng)
    assert policy.score(x[None])[0] >= policy.score(X).max() - 1e-10


def test_the_maximum_over_a_polytope_is_at_a_vertex():
    cube = Polytope(np.vstack([np.eye(4), -np.eye(4)]), np.ones(8))
    vertices = np.array(list(product([-1.0, 1.0], repeat=4)))
    for seed in range(3):
        policy, _ = told(cube, k.Linear(0.5), 8, seed)
        (x,) = policy.choose()
        assert np.abs(np.abs(x) - 1).max() < 1e-9
        assert policy.score(x[None])[0] >= policy.score(vertices).max() - 1e-9


def brute_force(A, b):
    """Every point in which d sides meet, of those inside."""
    units = 1 / np.abs(A).max(axis=0)
    sides = A * units
    found = []
    for some in map(list, combinations(range(len(A)), A.shape[1])):
        if abs(np.linalg.det(sides[some])) > 1e-9:
            x = np.linalg.solve(sides[some], b[some])
            if (sides @ x <= b + 1e-9 * (1 + np.abs(b))).all():
                found.append(units * x)
    return np.array(found)


def random_polytope(rng, d):
    """A box cut by random sides, one of them twice; some have columns of different sizes."""
    cuts = rng.standard_normal((6, d))
    A = np.vstack([np.eye(d), -np.eye(d), cuts, cuts[:1]])
    b = np.concatenate([np.ones(2 * d), 0.3 + rng.random(6)])
    b = np.append(b, b[2 * d])
    units = 10.0 ** (rng.integers(2) * rng.integers(-3, 4, d))
    shift = rng.standard_normal(d) * units
    A = A / units
    return A, b + A @ shift


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(6))
def test_the_maximum_over_a_random_polytope_is_the_best_vertex(d, seed):
    """Against every vertex by brute force, at several states of a run."""
    rng = np.random.default_rng([seed, d])
    A, b = random_polytope(rng, d)
    polytope = Polytope(A, b)
    expected = brute_force(A, b)
    assert polytope.exact
    scale = np.abs(expected).max(axis=0)
    distances = np.abs(polytope._vertices[:, None] / scale - expected / scale).max(axis=2)
    assert distances.min(axis=0).max() < 1e-7  # every vertex is found
    assert distances.min(axis=1).max() < 1e-7  # and nothing else
    regularization = 0.1 * float(scale @ scale)
    radius = ma.Constant(3.0)
    policy = DomainBKB(polytope, k.Linear(0.5), regularization=regularization, confidence=radius)
    for _ in range(4):
        (x,) = policy.choose()
        if len(policy.rows):
            best = policy.score(expected).max()
            assert policy.score(x[None])[0] >= best - 1e-7 * abs(best)
        policy.observe(x[None], rng.standard_normal(1) * scale.max())


def test_vertices_of_flat_and_small_polytopes():
    sides = np.vstack([np.ones((1, 3)), -np.ones((1, 3)), -np.eye(3)])
    simplex = Polytope(sides, [1.0, -1.0, 0.0, 0.0, 0.0])
    assert simplex.exact
    corners = np.array(sorted(simplex._vertices.round(9).tolist()))
    np.testing.assert_allclose(corners, np.eye(3)[::-1], atol=1e-9)
    interval = Polytope([[2.0], [-1.0], [1.0]], [6.0, 1.0, 10.0])
    np.testing.assert_allclose(np.sort(interval._vertices[:, 0]), [-1.0, 3.0])
    segment = Polytope([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [1.0, 1.0, 2.0, -2.0])
    ends = sorted(segment._vertices.tolist())
    np.testing.assert_allclose(ends, [[-1.0, 2.0], [1.0, 2.0]], atol=1e-9)
    point = Polytope([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [3.0, -3.0, 2.0, -2.0])
    np.testing.assert_allclose(point._vertices, [[3.0, 2.0]])


def test_a_polytope_of_too_many_vertices_says_that_it_is_not_exact():
    large = Polytope(np.vstack([np.eye(20), -np.eye(20)]), np.ones(40))
    assert not large.exact
    policy, _ = told(large, k.Linear(), 5, 0)
    (x,) = policy.choose()
    assert np.abs(np.abs(x) - 1).max() < 1e-9
    # Vertices that Qhull has missed, or that are outside, are not taken.
    square = Polytope(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4))
    assert square._confirmed(square._vertices) is not None
    for wrong in (np.array([[1.0, 1.0], [-1.0, 1.0]]), np.array([[2.0, 2.0]])):
        assert square._confirmed(wrong) is None


def test_bandits_find_the_best_row():
    rng, theta = np.random.default_rng(0), np.array([1.0, -2.0, 0.5])
    for domain, best in (
        (Ball(3), np.linalg.norm(theta)),
        (Polytope(np.vstack([np.eye(3), -np.eye(3)]), np.ones(6)), 3.5),
    ):
        policy = DomainBKB(domain, k.Linear(), regularization=0.01)
        for _ in range(15):
            x = policy.choose()
            policy.observe(x, x @ theta + 0.1 * rng.standard_normal(1))
        assert policy.best @ theta > 0.95 * best


def test_bad_domains():
    for bad in (
        lambda: Ball(0),
        lambda: Ball(2, 0.0),
        lambda: Polytope(np.eye(2), np.ones(2)),
        lambda: Polytope([[1.0], [-1.0]], [0.0, -1.0]),
        lambda: Polytope([["a", "b"]], [1]),
        lambda: Polytope([[1.0, 2.0], [3.0]], [1, 1]),
        lambda: Polytope([[1.0], [-1.0]], [1j, 1.0]),
        lambda: Polytope(np.zeros((2, 0)), [1.0, 1.0]),
    ):
        with pytest.raises(ParameterError):
            bad()
    with pytest.raises(ParameterError):
        Polytope(np.eye(2), np.ones(3))
    with pytest.raises(ArmsError):
        Ball(2).checked([[1.0, 1.0]])
    with pytest.raises(ArmsError):
        Polytope([[1.0], [-1.0]], [1.0, 1.0]).checked([[1.1]])
    for kernel in (k.RBF(0.3), k.Linear(1.0)):
        policy, _ = told(Ball(2), kernel, 3, 0)
        with pytest.raises(KernelError):
            policy.choose()


def test_polytopes_can_be_compared():
    one, other = (Polytope([[1.0], [-1.0]], [1.0, 1.0]) for _ in range(2))
    assert one == one
    assert one != other


def test_a_radius_with_a_promise():
    policy = DomainBKB(Ball(2), k.Linear(), regularization=0.01, confidence=ma.Certified(1.0, 0.1))
    assert np.linalg.norm(policy.choose()) <= 1 + 1e-9
