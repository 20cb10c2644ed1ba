"""Gradients of kernels, against finite differences."""

import numpy as np
import pytest
from extras import needs

from manyarms import kernels as k
from manyarms.domains import Box, DomainBKB
from manyarms.errors import KernelError


def differences(f, x, h=1e-6):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


class Squared(k.Kernel):
    """A kernel made elsewhere, with gradients of its own: (xᵀy)²."""

    differentiable = True

    def __call__(self, X, Y):
        return np.square(X @ Y.T)

    def diag(self, X):
        return np.square(np.square(X).sum(axis=1))

    def gradient(self, X, Y, V):
        return 2 * (V * (X @ Y.T)) @ Y

    def diag_gradient(self, X):
        return 4 * np.square(X).sum(axis=1)[:, None] * X


KERNELS = {
    "rbf": k.RBF([0.3, 0.5, 0.7]),
    "matern32": k.Matern(0.4, nu=1.5),
    "matern52": k.Matern([0.3, 0.5, 0.7]),
    "linear": k.Linear(0.5),
    "polynomial": k.Polynomial(3, 0.7),
    "scaled": 2.5 * k.RBF(0.4),
    "sum": k.RBF(0.4) + k.Linear(1.0),
    "product": k.Matern(0.4) * k.Polynomial(2),
    "scaled columns": 2.0 * k.On(k.Linear(0.5), 1, 3),
    "some columns": k.On(k.Matern([0.3, 0.5]), 0, 2) * k.On(k.Hamming(1.5), 2, 3),
    "made elsewhere": k.as_kernel(Squared()),
    "nested": 0.5 * (k.RBF(0.4) * k.Linear(1.0) + 2.0 * k.Matern(0.6, nu=1.5)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_equal_finite_differences(name):
    kernel, rng = KERNELS[name], np.random.default_rng(0)
    assert kernel.differentiable
    Y = rng.random((7, 3))
    for x in (rng.random(3), Y[2]):  # where ρ = 0 too
        moving = [0, 1] if name == "some columns" else [0, 1, 2]
        expected = np.array(
            [differences(lambda z, y=y: kernel(z[None], y[None])[0, 0], x) for y in Y]
        )
        V = np.vstack([np.eye(7), rng.standard_normal((2, 7))])
        gradient = kernel.gradient(np.repeat(x[None], len(V), axis=0), Y, V)
        np.testing.assert_allclose(gradient[:, moving], (V @ expected)[:, moving], atol=4e-6)
        diagonal = differences(lambda z: kernel.diag(z[None])[0], x)
        np.testing.assert_allclose(
            kernel.diag_gradient(np.array([x, x]))[1, moving], diagonal[moving], atol=4e-6
        )


def test_gradients_of_a_kernel_made_elsewhere_are_used_and_checked():
    assert DomainBKB(Box([[0, 1]] * 2), Squared()).score.differentiable

    class Wrong(Squared):
        def gradient(self, X, Y, V):
            return np.zeros(len(X))

        def diag_gradient(self, X):
            return np.full(X.shape, np.nan)

    kernel, X = k.as_kernel(Wrong()), np.ones((2, 3))
    for refused in (
        lambda: kernel.gradient(X, X, np.ones((2, 2))),
        lambda: kernel.diag_gradient(X),
    ):
        with pytest.raises(KernelError, match=r"shape|finite"):
            refused()
    with pytest.raises(KernelError, match="no gradient"):
        k.FromCallable(lambda X, Y: X @ Y.T).diag_gradient(X)


@pytest.mark.parametrize(
    "make",
    [
        lambda: k.Matern(0.3, nu=0.5),
        k.Tanimoto,
        lambda: k.FromCallable(lambda X, Y: X @ Y.T),
        lambda: k.as_kernel(needs("dev", "sklearn.gaussian_process.kernels").RBF()),
    ],
)
def test_a_kernel_without_gradient_says_so(make):
    kernel = make()
    assert not kernel.differentiable
    assert not (2.0 * k.On(kernel, 0, 2) * k.RBF(1.0)).differentiable
    with pytest.raises(KernelError, match="gradient"):
        kernel.gradient(np.ones((1, 2)), np.ones((3, 2)), np.ones((1, 3)))
