"""Kernels against 80 digits, scikit-learn and each other."""

import tracemalloc

import numpy as np
import pytest
from extras import needs
from hypothesis import given, settings
from hypothesis import strategies as st

from manyarms.errors import ArmsError, KernelError
from manyarms.kernels import (
    RBF,
    FromCallable,
    FromObject,
    Hamming,
    Kernel,
    Linear,
    Matern,
    On,
    Own,
    Pairwise,
    Polynomial,
    Product,
    Scaled,
    Sum,
    Tanimoto,
    Unpacked,
    as_kernel,
    pack,
    unpack,
)

EPS = np.finfo(float).eps
STATIONARY = [
    (RBF, lambda hp, ell: hp.rbf(ell)),
    (lambda ell: Matern(ell, 0.5), lambda hp, ell: hp.matern(ell, 0.5)),
    (lambda ell: Matern(ell, 1.5), lambda hp, ell: hp.matern(ell, 1.5)),
    (lambda ell: Matern(ell, 2.5), lambda hp, ell: hp.matern(ell, 2.5)),
]


def as_floats(matrix):
    return np.array(matrix.tolist(), dtype=float).reshape(matrix.rows, matrix.cols)


@pytest.mark.parametrize(("kernel", "oracle"), STATIONARY)
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("spacing", [1.0, 1e-4, 1e-8, 1e-12, 0.0])
def test_stationary_kernels_are_accurate_near_and_far(kernel, oracle, offset, spacing):
    hp = needs("dev", "oracles.high_precision")
    rng = np.random.default_rng(0)
    lengthscale = np.array([0.3, 2.0, 0.7])
    X = offset + rng.random((7, 3))
    Y = np.vstack(
        [X + spacing * rng.standard_normal((7, 3)), X[:3], 5 * rng.random((4, 3)) + offset]
    )
    error = np.abs(kernel(lengthscale)(X, Y) - as_floats(hp.gram(oracle(hp, lengthscale), X, Y)))
    assert (
        error.max() < 50 * EPS
    )  # Matérn-½ by ‖x‖² + ‖y‖² − 2xᵀy would be off by 1e-8 for near-duplicates


@pytest.mark.parametrize("kernel", [RBF(0.1), Matern(0.1, 0.5)])
def test_a_row_has_covariance_one_with_itself_and_its_duplicates(kernel):
    X = np.random.default_rng(0).random((400, 5))
    K = kernel(np.vstack([X, X]), X)
    assert (K[np.arange(400), np.arange(400)] == 1).all()
    assert (K[400 + np.arange(400), np.arange(400)] == 1).all()


@settings(max_examples=30)
@given(st.integers(300, 600), st.integers(1, 400), st.integers(1, 30), st.integers(1, 299))
def test_blocks_do_not_change_the_result(n, m, d, cut):
    """A matrix of more pairs than a block holds equals one computed in parts."""
    rng = np.random.default_rng(n * m + d)
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    parts = np.vstack([RBF(1.3)(X[:cut], Y), RBF(1.3)(X[cut:], Y)])
    np.testing.assert_allclose(RBF(1.3)(X, Y), parts, rtol=1e-14, atol=1e-300)


def test_memory_never_holds_rows_times_rows_times_features():
    X, Y = np.zeros((2000, 50)), np.ones((300, 50))
    tracemalloc.start()
    RBF(1.0)(X, Y)
    RBF(1.0)(X, X[:300])  # every pair a duplicate
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2000 * 300 * 8  # an (n, m, d) array would be 50 times one matrix


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RBF(0.4), lambda sk: sk.RBF(0.4)),
        (RBF([0.4, 1.0, 2.0]), lambda sk: sk.RBF([0.4, 1.0, 2.0])),
        (Matern(0.4, 0.5), lambda sk: sk.Matern(0.4, nu=0.5)),
        (Matern([0.4, 3.0, 1.0], 1.5), lambda sk: sk.Matern([0.4, 3.0, 1.0], nu=1.5)),
        (Matern(0.4), lambda sk: sk.Matern(0.4, nu=2.5)),
        (Linear(0.25), lambda sk: sk.DotProduct(0.5)),
        (Polynomial(3, 0.25), lambda sk: sk.DotProduct(0.5) ** 3),
        (
            2.0 * RBF(0.4) + Linear() * Matern(1.0),
            lambda sk: 2.0 * sk.RBF(0.4) + sk.DotProduct(0.0) * sk.Matern(1.0, nu=2.5),
        ),
    ],
)
def test_kernels_and_their_algebra_equal_scikit_learn(ours, theirs):
    theirs = theirs(needs("dev", "sklearn.gaussian_process.kernels"))
    rng = np.random.default_rng(1)
    X, Y = rng.random((9, 3)), rng.random((5, 3))
    np.testing.assert_allclose(ours(X, Y), theirs(X, Y), rtol=1e-12)
    np.testing.assert_allclose(ours.diag(X), theirs.diag(X), rtol=1e-12)
    adapted = as_kernel(theirs)
    np.testing.assert_allclose(adapted(X, Y), theirs(X, Y), rtol=1e-15)
    np.testing.assert_allclose(adapted.diag(X), theirs.diag(X), rtol=1e-15)


def rbf_kernel(X, Y):
    """As scikit-learn has it: 1/d for the one parameter that is left out."""
    return np.exp(-((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2) / X.shape[1])


def test_functions_of_blocks_and_of_rows_are_kernels():
    rng = np.random.default_rng(2)
    X, Y = rng.random((70, 3)), rng.random((5, 3))
    blocks, pairs = as_kernel(rbf_kernel), Pairwise(lambda x, y: np.exp(-np.sum((x - y) ** 2) / 3))
    for kernel in (blocks, pairs):
        np.testing.assert_allclose(kernel(X, Y), rbf_kernel(X, Y), rtol=1e-12)
        np.testing.assert_allclose(kernel.diag(X), np.ones(70))
    assert as_kernel(blocks) is blocks


def test_kernels_of_scikit_learn_are_kernels():
    sk = needs("dev", "sklearn.gaussian_process.kernels")
    pairwise = needs("dev", "sklearn.metrics.pairwise")
    X = np.random.default_rng(2).random((7, 3))
    np.testing.assert_allclose(as_kernel(pairwise.rbf_kernel)(X, X), rbf_kernel(X, X), rtol=1e-12)
    assert isinstance(as_kernel(sk.RBF()), FromObject)
    with pytest.raises(KernelError):
        RBF(1.0) + sk.RBF(1.0)
    some = On(sk.RBF(0.7), 1, 3)
    np.testing.assert_allclose(some(X, X), sk.RBF(0.7)(X[:, 1:], X[:, 1:]))
    np.testing.assert_allclose(some.diag(X), np.ones(7))


def test_kernels_take_lists_and_empty_blocks():
    assert RBF(1.0)([[0.0]], [[0.0], [0.0]]).tolist() == [[1.0, 1.0]]
    assert RBF(1.0)(np.ones((3, 2)), np.ones((0, 2))).shape == (3, 0)
    assert Polynomial(np.int64(2))([[1.0]], [[1.0]]) == 4.0


def test_algebra_reads_as_written():
    kernel = 2.0 * RBF(0.3) + Linear() * Matern(1.0)
    assert isinstance(kernel, Sum)
    assert isinstance(kernel.first, Scaled)
    assert isinstance(kernel.second, Product)
    assert repr(RBF([1, 2])) == "RBF([1.0, 2.0])"
    assert repr(Matern(1, 0.5)) == "Matern(1.0, nu=0.5)"
    assert repr(FromCallable(rbf_kernel)) == "FromCallable(rbf_kernel)"


@pytest.mark.parametrize(
    "build",
    [
        lambda: RBF(0.0),
        lambda: RBF(-1.0),
        lambda: RBF(float("nan")),
        lambda: RBF([]),
        lambda: RBF([[1.0]]),
        lambda: Matern(1.0, nu=2.0),
        lambda: Linear(-1.0),
        lambda: Polynomial(0),
        lambda: Polynomial(1.5),
        lambda: 0.0 * RBF(1.0),
        lambda: On(RBF(1.0), 0, 2.0),
        lambda: On(RBF(1.0), "a", 2),
        lambda: On(RBF(1.0), -1, 2),
        lambda: On(RBF(1.0), 2, 2),
        lambda: On(3, 0, 2),
        lambda: RBF(1.0) * "x",
        lambda: as_kernel("rbf"),
        lambda: RBF("a"),
        lambda: RBF([[1.0], [1.0, 2.0]]),
        lambda: Matern(1.0, nu=np.array([0.5, 1.5])),
        lambda: Linear("x"),
        lambda: Polynomial(True),
        lambda: RBF(1.0)(np.ones((2, 3)), np.ones((2, 2))),
        lambda: RBF(1.0)(np.ones(3), np.ones((2, 2))),
        lambda: Linear()(np.ones((2, 3)), np.ones((2, 2))),
        lambda: RBF(1.0)(np.full((1, 3), np.nan), np.ones((2, 3))),
        lambda: Pairwise(lambda x, y: 1 / 0)(np.ones((2, 3)), np.ones((2, 3))),
        lambda: (lambda X, Y: X) + RBF(1.0),
        lambda: as_kernel(RBF),
        lambda: RBF([1.0, 2.0])(np.ones((2, 3)), np.ones((2, 3))),
        lambda: RBF(1e-200)(np.full((2, 1), 1e200), np.zeros((2, 1))),
        lambda: RBF(1e-200)(np.full((2, 1), 1e200), np.zeros((3, 1))),
        lambda: as_kernel(lambda X, Y: X[:, 0])(np.ones((3, 2)), np.ones((2, 2))),
        lambda: as_kernel(lambda X, Y: X @ Y)(np.ones((3, 2)), np.ones((4, 2))),
        lambda: as_kernel(lambda X, Y: 1j * X @ Y.T)(np.ones((3, 2)), np.ones((4, 2))),
        lambda: as_kernel(lambda X, Y: np.nan * X @ Y.T)(np.ones((3, 2)), np.ones((4, 2))),
        lambda: Pairwise(lambda x, y: x)(np.ones((3, 2)), np.ones((4, 2))),
    ],
)
def test_what_cannot_be_a_kernel_is_a_typed_error(build):
    with pytest.raises(KernelError):
        build()


def test_a_kernel_with_a_gradient_of_its_own_is_differentiable():
    class Squared(Kernel):
        def __call__(self, X, Y):
            return np.square(X @ Y.T)

        def diag(self, X):
            return np.square(np.square(X).sum(axis=1))

    class Differentiable(Squared):
        def gradient(self, X, Y, V):
            return 2 * (V * (X @ Y.T)) @ Y

    for made in (lambda k: k, as_kernel, lambda k: 2.0 * k, lambda k: Own(k, 1.0) + RBF(1.0)):
        assert made(Differentiable()).differentiable
        assert not made(Squared()).differentiable
    X = np.random.default_rng(0).random((4, 3))
    expected = 4 * np.square(X).sum(axis=1)[:, None] * X
    np.testing.assert_allclose((3.0 * Differentiable()).diag_gradient(X), 3 * expected)


def test_some_columns_of_a_function():
    X = np.random.default_rng(0).random((6, 3))
    some = On(rbf_kernel, 1, 3)
    np.testing.assert_allclose(some(X, X), rbf_kernel(X[:, 1:], X[:, 1:]))
    np.testing.assert_allclose(some.diag(X), np.ones(6))


def test_hamming_counts_the_columns_that_differ():
    rng = np.random.default_rng(0)
    X, Y = rng.integers(4, size=(30, 3)).astype(float), rng.integers(4, size=(9, 3)).astype(float)
    lengthscale = np.array([0.5, 2.0, 7.0])
    expected = [[np.exp(-np.sum((x != y) / lengthscale)) for y in Y] for x in X]
    np.testing.assert_allclose(Hamming(lengthscale)(X, Y), expected)
    np.testing.assert_allclose(Hamming(2.0)(X, Y), Hamming([2.0, 2.0, 2.0])(X, Y))
    np.testing.assert_array_equal(Hamming(2.0).diag(X), np.ones(30))


def test_tanimoto_is_shared_bits_over_bits_in_either():
    rng = np.random.default_rng(0)
    X = (rng.random((40, 16)) < 0.3).astype(float)
    X[:2] = 0.0
    sets = [set(np.flatnonzero(x)) for x in X]
    expected = [[len(a & b) / len(a | b) if a | b else 1.0 for b in sets] for a in sets]
    K = Tanimoto()(X, X)
    np.testing.assert_allclose(K, expected)
    assert np.linalg.eigvalsh(K).min() > -1e-12
    np.testing.assert_array_equal(Tanimoto().diag(X), np.diag(K))
    for refused in (lambda: Tanimoto()(X, -X - 1), lambda: Tanimoto().diag(-X - 1)):
        with pytest.raises(KernelError, match="bits or counts"):
            refused()


@pytest.mark.parametrize(
    "bits",
    [
        [0, 1],
        np.array([0, 1]),
        [[0, 1], [1]],
        [[]],
        [["0", "1"]],
        [[0, 2]],
        [[0.5, 1]],
        [[-1, 1]],
        [[np.nan, 1]],
        np.ma.array([[0, 1]], mask=[[0, 1]]),
    ],
    ids=str,
)
def test_what_is_no_rows_of_bits_is_a_typed_error(bits):
    with pytest.raises(ArmsError, match="bits must"):
        pack(bits)


def test_bits_of_lists_and_booleans_are_packed():
    assert pack([[0, 1, 1]]).tolist() == pack([[False, True, True]]).tolist() == [[6.0]]


@pytest.mark.parametrize("n_bits", [1, 51, 52, 53, 300])
def test_packed_bits_are_the_same_bits(n_bits):
    rng = np.random.default_rng(n_bits)
    X = (rng.random((40, n_bits)) < 0.3).astype(np.uint8)
    X[:2], X[2] = 0, 1
    packed = pack(X)
    assert packed.shape == (40, -(-n_bits // 52))
    np.testing.assert_array_equal(unpack(packed, n_bits), X)
    np.testing.assert_allclose(
        Tanimoto(packed=True)(packed, packed[:7]), Tanimoto()(X, X[:7]), atol=1e-15
    )
    np.testing.assert_array_equal(Tanimoto(packed=True).diag(packed), np.ones(40))
    both = np.hstack([rng.random((40, 2)), packed, packed])
    seen = np.hstack([both[:, :2], X, X])
    kernel = Unpacked(RBF(2.0), (n_bits, n_bits))
    np.testing.assert_array_equal(kernel(both, both[:5]), RBF(2.0)(seen, seen[:5]))
    np.testing.assert_array_equal(kernel.diag(both), np.ones(40))
    assert repr(Tanimoto(packed=True)) == "Tanimoto(packed=True)"


def test_a_kernel_of_some_columns():
    rng = np.random.default_rng(0)
    X = rng.random((20, 5))
    product = On(RBF([0.3, 0.4]), 0, 2) * On(Hamming(1.0), 2, 5)
    np.testing.assert_allclose(
        product(X, X[:3]), RBF([0.3, 0.4])(X[:, :2], X[:3, :2]) * Hamming(1.0)(X[:, 2:], X[:3, 2:])
    )
    np.testing.assert_array_equal(product.diag(X), np.ones(20))
    for build in (
        lambda: On(RBF(1.0), 2, 2),
        lambda: On(RBF(1.0), -1, 2),
        lambda: On(RBF(1.0), 3, 6)(X, X),
    ):
        with pytest.raises(KernelError):
            build()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_a_part_of_its_own_is_added_where_rows_are_equal(seed, d, levels, as_float32):
    rng = np.random.default_rng(seed)
    X, Y = (rng.integers(0, levels, (n, d)) / 3 for n in (30, 20))
    if as_float32:
        X, Y = X.astype(np.float32), Y.astype(np.float32)
    equal = (X[:, None] == Y).all(axis=2)
    kernel = Own(RBF(0.4), 0.3)
    np.testing.assert_array_equal(kernel(X, Y), RBF(0.4)(X, Y) + 0.3 * equal)
    np.testing.assert_array_equal(kernel.diag(X), np.full(30, 1.3))
    assert np.linalg.eigvalsh(kernel(X, X)).min() > -1e-12


@pytest.mark.parametrize("variance", [-1.0, np.nan, "much", None])
def test_a_part_of_its_own_has_a_variance(variance):
    with pytest.raises(KernelError, match="variance"):
        Own(RBF(1.0), variance)
    with pytest.raises(KernelError, match="takes kernels"):
        Own("rbf", 1.0)


@pytest.mark.parametrize("levels", [4, 1000])  # by a product of matrices, and column by column
def test_equal_codes_are_exactly_alike(levels):
    rng = np.random.default_rng(0)
    X = rng.integers(0, levels, (500, 7)).astype(float)
    kernel = Hamming(rng.random(7) * 10 + 1e-3)
    K = kernel(X, X)
    np.testing.assert_array_equal(np.diag(K), np.ones(500))
    np.testing.assert_array_equal(K, K.T)
    different = (X[:, None] != X) / kernel.lengthscale
    np.testing.assert_allclose(K, np.exp(-different.sum(axis=2)), rtol=1e-9, atol=1e-300)
