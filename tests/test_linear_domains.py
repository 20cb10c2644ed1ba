"""Linear kernels over a ball (exact) and a polytope (vertices)."""

from itertools import product

import numpy as np
import pytest

import manyarms as ma
from manyarms import kernels as k
from manyarms.domains import Ball, DomainBKB, Polytope
from manyarms.domains.linear import on_sphere
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
    policy, rng = told(Ball(3, 2.0), 1.5 * k.Linear(), 6, seed, oversampling=None if seed % 2 else 1.0)
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


def test_bandits_find_the_best_row():
    rng, theta = np.random.default_rng(0), np.array([1.0, -2.0, 0.5])
    for domain, best in ((Ball(3), np.linalg.norm(theta)), (Polytope(np.vstack([np.eye(3), -np.eye(3)]), np.ones(6)), 3.5)):
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
    policy = DomainBKB(Ball(2), k.Linear(), regularization=0.01, confidence=ma.LogDet(1.0, 0.1, horizon=10), oversampling=None)
    assert np.linalg.norm(policy.choose()) <= 1 + 1e-9
