"""The loops over all arms: compiled, beside the same in NumPy and beside the kernels themselves."""

import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from extras import needs
from hypothesis import given
from hypothesis import strategies as st

import manyarms as ma
from manyarms.errors import KernelError
from manyarms.kernels import (
    RBF,
    FromCallable,
    Hamming,
    Linear,
    Matern,
    MinMax,
    On,
    Own,
    Polynomial,
    Tanimoto,
    Unpacked,
    pack,
)
from manyarms.search import sweep

SOURCE = Path(ma.__file__).parent / "_sweep.c"
compiled = pytest.mark.skipif(not sweep.COMPILED, reason=f"the compiled step is {sweep.STATE}")


def close(found, expected, error=1e-14):
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)


def entries(kernel, X, W):
    """As `Columns` gives them, whatever `out` held before."""
    out = np.full((len(W), len(X)), np.nan)
    sweep.Columns(kernel).into(out, X, W)
    return out


# ---- kernel columns -------------------------------------------------------------------------------

COVERED = [
    RBF(0.7),
    RBF([0.5, 1.0, 2.0, 0.3, 4.0, 1.0]),
    Matern(0.9, nu=0.5),
    Matern(0.9, nu=1.5),
    Matern([0.5, 1.0, 2.0, 0.3, 4.0, 1.0], nu=2.5),
    Hamming(2.0),
    Hamming([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    2.5 * RBF(0.7),
    0.3 * On(Matern([0.5, 0.6]), 0, 2) * (2.0 * On(Hamming(1.5), 2, 5)),
    On(On(RBF(0.5), 1, 3), 2, 5),  # of the columns 3 and 4
    On(Matern(1.0), 0, 3)
    * On(Matern(2.0, nu=1.5), 1, 6)
    * On(Matern(3.0, nu=0.5), 2, 6)
    * RBF(2.0),
]
"""Of six columns."""


def rows(rng, n, d=6):
    """Numbers and codes: of each column a few values come again."""
    X = rng.normal(size=(n, d))
    X[:, d // 2 :] = rng.integers(0, 4, size=(n, d - d // 2))
    return X


@compiled
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", COVERED, ids=repr)
def test_columns_are_the_kernel(kernel, dtype):
    rng = np.random.default_rng(0)
    assert sweep.Columns(kernel).compiled
    for n, j in [(1, 1), (3, 2), (255, 3), (256, 1), (257, 9), (1000, 40)]:
        X = rows(rng, n).astype(dtype)
        W = rows(rng, j)
        W[0] = X[-1]
        close(entries(kernel, X, W), kernel(X, W).T)


@compiled
@given(n=st.integers(0, 600), d=st.integers(1, 40), j=st.integers(0, 6), seed=st.integers(0, 99))
def test_columns_of_any_shape(n, d, j, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    W = rng.normal(size=(j, d))
    kernel = 1.7 * RBF(np.sqrt(d) * rng.uniform(0.3, 3.0, size=d)) * Matern(np.sqrt(d))
    close(entries(kernel, X, W), kernel(X, W).T)


@compiled
def test_many_columns_make_small_blocks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3000))
    close(entries(RBF(60.0), X, X[:3]), RBF(60.0)(X, X[:3]).T)


@compiled
def test_bits_that_are_packed():
    rng = np.random.default_rng(0)
    for b in (1, 52, 53, 2100):  # of 41 words, which are more than are counted at a time
        P = pack(rng.random((300, b)) < 0.3)
        P[7] = 0
        kernel = Tanimoto(packed=True)
        assert sweep.Columns(kernel).compiled
        assert (entries(kernel, P, P[:20]) == kernel(P, P[:20]).T).all()
    mixed = On(RBF(0.5), 0, 2) * On(kernel, 2, 2 + P.shape[1])
    X = np.hstack([rng.random((300, 2)), P])
    assert sweep.Columns(mixed).compiled
    close(entries(mixed, X, X[:5]), mixed(X, X[:5]).T)


@compiled
@pytest.mark.parametrize("value", [-1.0, 0.5, 2.0**52])
@pytest.mark.parametrize("of", ["X", "W"])
def test_what_no_packed_bits_are_is_left_to_the_kernel(of, value):
    given = {"X": np.ones((300, 2)), "W": np.ones((2, 2))}
    given[of][-1, -1] = value
    kernel = Tanimoto(packed=True)
    if (of, value) == ("W", -1.0):
        with pytest.raises(KernelError, match="bits or counts"):
            entries(kernel, **given)
    elif value > 0:  # a NumPy of its own says what is to come of another
        assert (entries(kernel, **given) == kernel(given["X"], given["W"]).T).all()


@compiled
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_near_duplicates_keep_their_digits(nu):
    """Distances of 1e-9 at coordinates of 1e3, to all digits that the coordinates have."""
    W = np.full((1, 3), 1e3)
    X = W + np.linspace(0, 1e-9, 400)[:, None]
    step = (X - W).astype(np.longdouble)
    r = np.sqrt(2 * nu * (np.square(step / np.longdouble(1e-8))).sum(axis=1))
    polynomial = {0.5: 1, 1.5: 1 + r, 2.5: 1 + r + r * r / 3}[nu]
    close(entries(Matern(1e-8, nu=nu), X, W)[0], (polynomial * np.exp(-r)).astype(float), 1e-15)


@compiled
def test_equal_rows_have_one_exactly():
    X = np.random.default_rng(0).normal(size=(500, 7)) * 1e6
    for kernel in (RBF(1e-3), Matern(1e-3, nu=0.5), Matern(1e-3), Hamming(0.1)):
        assert (np.diag(entries(kernel, X, X)) == 1.0).all()


@compiled
@pytest.mark.parametrize("kernel", [RBF(1.0), Matern(1.0, nu=0.5), Matern(1.0, nu=2.5)])
def test_rows_far_away_have_zero(kernel):
    X = np.array([[0.0], [1e-300], [1.0], [1e3], [1e20], [1e149]])
    K = entries(kernel * Matern(1.0) * Matern(1.0), X, np.zeros((1, 1)))[0]
    assert (K[:2] == 1.0).all()
    assert 0.0 < K[2] < 1.0
    assert (K[3:] == 0.0).all()


@compiled
@pytest.mark.parametrize("kernel", [RBF(1.0), Matern(1.0, nu=0.5), Matern(1.0, nu=2.5)])
@pytest.mark.parametrize("j", [1, 20])
def test_coordinates_that_are_too_large_are_the_error_of_the_kernel(kernel, j):
    X = np.zeros((300, 2))
    X[-1, 1] = 1e200
    with pytest.raises(KernelError, match="finite and below"):
        entries(2.0 * kernel, X, np.zeros((j, 2)))


@compiled
@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        (RBF([1.0, 2.0]), "lengthscales"),
        (On(Hamming([1.0, 2.0]), 0, 3), "lengthscales"),
        (On(RBF(1.0), 2, 5), "needs 5 columns"),
        (On(On(RBF(1.0), 1, 4), 0, 2), "needs 4 columns"),
    ],
)
def test_columns_that_do_not_fit_are_the_error_of_the_kernel(kernel, match):
    with pytest.raises(KernelError, match=match):
        entries(kernel, np.zeros((5, 3)), np.zeros((1, 3)))


@compiled
def test_rows_of_different_length_are_the_error_of_the_kernel():
    with pytest.raises(KernelError, match="as many columns"):
        entries(RBF(1.0), np.zeros((5, 3)), np.zeros((1, 2)))


class Wider(RBF):
    """Another formula than that of its parent."""

    def __call__(self, X, Y):
        return super().__call__(X, Y) + 1.0


OTHERS = [
    Wider(1.0),
    RBF(1.0) + Linear(),
    Polynomial(2),
    Tanimoto(),
    MinMax(),
    Own(RBF(1.0), 0.5),
    On(Linear(), 0, 2) * RBF(1.0),
    Unpacked(RBF(1.0), (52,)),
    FromCallable(lambda X, Y: X @ Y.T),
    1e200 * (1e200 * RBF(1e-3)),
]


@pytest.mark.parametrize("kernel", OTHERS, ids=repr)
def test_other_kernels_say_their_columns_themselves(kernel):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(30, 3)).astype(np.float32)
    W = X[:4].astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(entries(kernel, X, W), kernel(X.astype(float), W).T)


@compiled
def test_a_lengthscale_without_an_inverse_is_left_to_the_kernel():
    X = np.arange(5.0)[:, None] * 1e-310
    close(entries(RBF(1e-310), X, X), RBF(1.0)(X / 1e-310, X / 1e-310))


def test_whether_columns_are_compiled_is_said():
    assert sweep.Columns(RBF(1.0)).compiled is sweep.COMPILED
    assert not sweep.Columns(Wider(1.0)).compiled
    assert not sweep.Columns(2.0 * (RBF(1.0) * Linear())).compiled


@compiled
def test_rows_may_be_mapped_read_only_or_in_another_order(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = entries(RBF(1.0), np.ascontiguousarray(mapped), X[:3])
    for same in (mapped, np.asfortranarray(mapped), np.repeat(mapped, 2, axis=0)[::2]):
        assert (entries(RBF(1.0), same, X[:3]) == expected).all()


@compiled
@given(start=st.integers(0, 700), length=st.integers(1, 300))
def test_an_entry_depends_on_its_rows_alone(start, length):
    """Not on where in a block, and in what call, they come: equal rows are equal."""
    X = rows(np.random.default_rng(0), 1000)
    some = slice(start, start + length)
    for kernel in (COVERED[4], COVERED[8]):
        whole = entries(kernel, X, X[:7])
        assert (entries(kernel, X[some].copy(), X[2:5].copy()) == whole[2:5, some]).all()


@compiled
def test_columns_can_be_a_part_of_longer_ones():
    X = np.random.default_rng(0).normal(size=(600, 3))
    table = np.full((5, 600), -1.0)
    sweep.Columns(RBF(1.0)).into(table[1:4, 100:400], X[100:400], X[:3])
    assert (table[1:4, 100:400] == entries(RBF(1.0), X, X[:3])[:, 100:400]).all()
    assert (np.delete(table, slice(1, 4), axis=0) == -1.0).all()
    assert (table[:, :100] == -1.0).all()
    assert (table[:, 400:] == -1.0).all()


# ---- exp ------------------------------------------------------------------------------------------


def exp(x):
    """As the compiled step has it: ρ = √x² is |x|, and the kernel of ν = ½ is exp(−ρ)."""
    return entries(Matern(1.0, nu=0.5), -np.asarray(x)[:, None], np.zeros((1, 1)))[0]


@compiled
def test_exp_is_right_to_two_units_of_the_last_place():
    rng = np.random.default_rng(0)
    ln2 = np.log(2.0)
    x = -np.concatenate(
        [rng.uniform(0, 745.2, 3000), 10 ** rng.uniform(-18, 0, 500), (np.arange(2000) / 2) * ln2]
    )
    x = np.concatenate([x, np.nextafter(x, 0), [-745.1332191019411, -708.3964185322641]])
    found = exp(x)
    mpmath = needs("dev", "mpmath")
    with mpmath.workdps(40):
        for y, e in zip(x, found, strict=True):
            exact = mpmath.exp(mpmath.mpf(float(y)))
            assert abs(mpmath.mpf(float(e)) - exact) <= 2 * mpmath.mpf(float(np.spacing(e))), y


@compiled
def test_exp_at_the_ends():
    assert (exp([0.0, -1e-320, -1e-17]) == 1.0).all()
    assert (exp([-745.2, -750.0, -1e4, -1e100, -1e149]) == 0.0).all()
    assert exp([-745.1])[0] == 5e-324
    grid = -np.linspace(0, 745, 200_001)
    assert (np.diff(exp(grid)) <= 0).all()  # it falls
    np.testing.assert_allclose(exp(grid), np.exp(grid), rtol=5e-16, atol=1e-323)


# ---- step -----------------------------------------------------------------------------------------


def problem(n, p, m, k, capacity, seed=0):
    rng = np.random.default_rng(seed)
    r = m - p
    return {
        "Z": rng.normal(size=(capacity, n)),
        "p": p,
        "m": m,
        "ahead": rng.normal(size=(r, p)),
        "corner": np.tril(rng.normal(size=(r, r)), -1) + np.diag(rng.uniform(0.5, 2.0, r)),
        "G": rng.normal(size=(k, m)) / np.sqrt(max(m, 1)),
        "surprise": rng.normal(size=k),
        "mean": rng.normal(size=n),
        "variance": rng.uniform(0, 4, size=n),
    }


def stepped(step, problem):
    given = {name: np.copy(x) if np.ndim(x) else x for name, x in problem.items()}
    step(*given.values())
    return given["Z"], given["mean"], given["variance"]


@compiled
@given(
    n=st.integers(0, 2100),
    p=st.integers(0, 13),
    r=st.integers(0, 4),
    k=st.integers(0, 3),
    spare=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_a_step_is_that_of_numpy(n, p, r, k, spare, seed):
    given = problem(n, p, p + r, k, p + r + spare, seed)
    ours = stepped(sweep.step, given)
    theirs = stepped(sweep.step_in_numpy, given)
    for found, expected in zip(ours, theirs, strict=True):
        scale = 1 + np.abs(expected).max(initial=0.0)
        close(found, expected, 1e-13 * scale)
    assert (ours[0][:p] == given["Z"][:p]).all()
    assert (ours[0][p + r :] == given["Z"][p + r :]).all()


@pytest.mark.parametrize("step", [sweep.step, sweep.step_in_numpy])
def test_a_step_is_the_formula(step):
    given = problem(50, 3, 5, 2, 6)
    Z, mean, variance = stepped(step, given)
    old = given["Z"]
    new = np.linalg.solve(given["corner"], old[3:5] - given["ahead"] @ old[:3])
    H = given["G"] @ np.vstack([old[:3], new])
    close(Z, np.vstack([old[:3], new, old[5:]]), 1e-12)
    close(mean, given["mean"] + given["surprise"] @ H, 1e-12)
    close(variance, np.maximum(given["variance"] - (H * H).sum(axis=0), 0.0), 1e-12)
    assert (variance == 0).any()
    assert (variance > 0).any()


@compiled
@given(start=st.integers(0, 3000), length=st.integers(1, 1500))
def test_a_step_of_some_arms_is_the_same(start, length):
    """In threads, say, whose parts of Z have rows far from one another."""
    given = problem(3200, 6, 7, 1, 8)
    whole = stepped(sweep.step, given)
    Z, mean, variance = (given[name].copy() for name in ("Z", "mean", "variance"))
    some = slice(start, start + length)
    arguments = {**given, "Z": Z[:, some], "mean": mean[some], "variance": variance[some]}
    sweep.step(*arguments.values())
    assert (Z[:, some] == whole[0][:, some]).all()
    assert (mean[some] == whole[1][some]).all()
    assert (variance[some] == whole[2][some]).all()
    assert (np.delete(Z, np.r_[some], axis=1) == np.delete(given["Z"], np.r_[some], axis=1)).all()


@compiled
def test_steps_in_threads_are_the_same():
    given = problem(200_000, 8, 9, 1, 9)  # so large that the interpreter is left to others
    whole = stepped(sweep.step, given)
    Z, mean, variance = (given[name].copy() for name in ("Z", "mean", "variance"))

    def work(start):
        part = slice(start, start + 25_000)
        arguments = {**given, "Z": Z[:, part], "mean": mean[part], "variance": variance[part]}
        sweep.step(*arguments.values())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 200_000, 25_000)))
    for found, expected in zip((Z, mean, variance), whole, strict=True):
        assert (found == expected).all()


# ---- peak and reach -------------------------------------------------------------------------------

numbers = st.floats(-3, 3).map(lambda x: round(4 * x) / 4)  # many ties


@st.composite
def scored(draw):
    n = draw(st.integers(0, 40)) * draw(st.sampled_from([1, 7, 64]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mean = rng.integers(-4, 5, size=n) / 2.0
    variance = rng.integers(0, 9, size=n) / 4.0
    dtype = draw(st.sampled_from([np.bool_, np.uint8]))
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    shut = draw(st.sampled_from([None, (rng.random(n) < share).astype(dtype)]))
    return mean, variance, shut


@compiled
@given(arms=scored(), beta=st.sampled_from([0.0, 0.5, 2.0]), offset=numbers)
def test_the_peak_is_that_of_numpy(arms, beta, offset):
    arguments = (*arms, beta, offset)
    assert sweep.peak(*arguments) == sweep.peak_in_numpy(*arguments)


@pytest.mark.parametrize("peak", [sweep.peak, sweep.peak_in_numpy])
def test_the_peak_is_the_lowest_of_the_largest(peak):
    mean = np.zeros(1000)
    variance = np.full(1000, 4.0)
    mean[[300, 700]] = 1.0
    shut = np.zeros(1000, dtype=bool)
    assert peak(mean, variance, None, 2.0, 0.0) == (300, 5.0, 5.0)
    shut[300] = True
    assert peak(mean, variance, shut, 2.0, 12.0) == (700, 9.0, 8.0)
    assert peak(mean, variance, shut, 2.0, -9.0) == (700, 1.0, 0.0)
    shut[:] = True
    assert peak(mean, variance, shut, 2.0, 0.0) == (-1, -np.inf, -np.inf)
    assert peak(mean[:0], variance[:0], None, 2.0, 0.0) == (-1, -np.inf, -np.inf)


needed_means = st.lists(
    st.one_of(numbers, st.sampled_from([-np.inf, np.inf])), min_size=1, max_size=9
)


@compiled
@given(arms=scored(), need=needed_means, scale=st.sampled_from([0.0, 0.7, 4.0, 1e300]))
def test_who_reaches_is_as_by_numpy(arms, need, scale):
    arguments = (*arms, np.array(need), scale)
    found = sweep.reach(*arguments)
    expected = sweep.reach_in_numpy(*arguments)
    assert found.dtype == np.intp
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("reach", [sweep.reach, sweep.reach_in_numpy])
def test_who_reaches_is_the_formula(reach):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=2000)
    variance = rng.uniform(0, 2, size=2000)
    shut = rng.random(2000) < 0.2
    need = np.array([np.inf, 1.0, 0.5, 0.0])
    expected = [
        i for i in range(2000) if not shut[i] and mean[i] >= need[min(int(variance[i] * 3), 3)]
    ]
    assert reach(mean, variance, shut, need, 3.0).tolist() == expected


# ---- buffers that do not fit ----------------------------------------------------------------------


def refused(function, arguments, **changes):
    """Raised before anything is written."""
    given = {**arguments, **changes}
    before = {name: np.copy(x) for name, x in given.items()}
    with pytest.raises((TypeError, ValueError, OverflowError)):
        function(*given.values())
    for name, x in given.items():
        np.testing.assert_array_equal(np.copy(x), before[name])


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


def unaligned(shape):
    raw = np.zeros(8 * int(np.prod(shape)) + 1, dtype=np.uint8)
    return raw[1:].view(np.float64).reshape(shape)


STEP = problem(20, 3, 5, 2, 6)


@compiled
@pytest.mark.parametrize(
    "changes",
    [
        {"Z": STEP["Z"].astype(np.float32)},
        {"Z": STEP["Z"].astype(">f8")},
        {"Z": STEP["Z"].T.copy().T},
        {"Z": STEP["Z"][:4].copy()},
        {"Z": STEP["Z"].ravel()},
        {"Z": read_only(STEP["Z"])},
        {"Z": unaligned((6, 20))},
        {"Z": np.zeros((6, 40))[:, ::2]},
        {"Z": STEP["Z"].tolist()},
        {"p": -1},
        {"p": 6},
        {"m": 7},
        {"m": 10**20},
        {"p": "3"},
        {"ahead": STEP["ahead"][:, :2].copy()},
        {"ahead": np.zeros((2, 6))[:, ::2]},
        {"corner": np.eye(3)},
        {"G": np.zeros((2, 4))},
        {"G": np.zeros(5)},
        {"surprise": np.zeros(3)},
        {"surprise": np.zeros(4)[::2]},
        {"mean": np.zeros(19)},
        {"mean": np.zeros(40)[::2]},
        {"mean": np.zeros((1, 20))},
        {"variance": np.zeros(21)},
        {"variance": read_only(np.zeros(20))},
        {"variance": np.zeros(20, dtype=complex)},
    ],
)
def test_a_step_refuses_what_does_not_fit(changes):
    refused(sweep.step, STEP, **changes)


ARMS = {"mean": np.zeros(9), "variance": np.ones(9), "shut": np.zeros(9, dtype=bool)}


@compiled
@pytest.mark.parametrize(
    "changes",
    [
        {"mean": np.zeros(8)},
        {"mean": np.zeros(18)[::2]},
        {"mean": np.zeros(9, dtype=int)},
        {"variance": np.zeros((9, 1))},
        {"shut": np.zeros(8, dtype=bool)},
        {"shut": np.zeros(9)},
        {"shut": np.zeros(18, dtype=bool)[::2]},
    ],
)
def test_peak_and_reach_refuse_what_does_not_fit(changes):
    refused(sweep.peak, {**ARMS, "beta": 2.0, "offset": 0.0}, **changes)
    refused(sweep.reach, {**ARMS, "need": np.zeros(3), "scale": 1.0}, **changes)


@compiled
def test_other_arguments_that_do_not_fit():
    refused(sweep.peak, {**ARMS, "beta": "2", "offset": 0.0})
    refused(sweep.peak, {**ARMS, "beta": 2.0})
    refused(sweep.reach, {**ARMS, "need": np.zeros(0), "scale": 1.0})
    refused(sweep.reach, {**ARMS, "need": np.zeros(3, dtype=int), "scale": 1.0})


COLUMNS = {
    "out": np.zeros((2, 9)),
    "X": np.zeros((9, 3)),
    "W": np.zeros((2, 3)),
    "parts": np.array([[0, 0, 3]], dtype=np.intp),
    "weights": np.ones(3),
    "constant": 1.0,
}


@compiled
@pytest.mark.parametrize(
    "changes",
    [
        {"out": np.zeros((2, 8))},
        {"out": np.zeros((9, 2)).T},
        {"out": np.zeros((2, 9), dtype=np.float32)},
        {"X": np.zeros((9, 3), dtype=int)},
        {"X": np.zeros((3, 9)).T},
        {"X": np.zeros((9, 4))},
        {"W": np.zeros((2, 3), dtype=np.float32)},
        {"W": np.zeros((3, 3))},
        {"parts": np.array([[0, 0, 4]])},
        {"parts": np.array([[0, 2, 1]])},
        {"parts": np.array([[0, -1, 2]])},
        {"parts": np.array([[6, 0, 3]])},
        {"parts": np.array([[-1, 0, 3]])},
        {"parts": np.array([[0, 0, 3]], dtype=np.int32)},
        {"parts": np.array([0, 0, 3])},
        {"weights": np.ones(2)},
        {"weights": np.ones(4)},
        {"constant": None},
    ],
)
def test_columns_refuse_what_does_not_fit(changes):
    from manyarms import _sweep

    assert _sweep.columns(*COLUMNS.values())
    refused(_sweep.columns, COLUMNS, **changes)


# ---- which of the two -----------------------------------------------------------------------------


def says(code="pass", **variables):
    code = (
        f"import sys; {code}; from manyarms.search import sweep; print(sweep.COMPILED, sweep.STATE)"
    )
    folder = str(Path(ma.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": folder, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_environment_chooses_numpy():
    assert says(MANYARMS_NO_SWEEP="1").startswith("False switched off")


def test_what_was_not_built_is_done_by_numpy():
    absent = "sys.modules['manyarms._sweep'] = None"
    assert says(absent, MANYARMS_NO_SWEEP="0").startswith("False not built")


@compiled
def test_what_was_built_is_used():
    assert says(MANYARMS_NO_SWEEP="") == "True used"


def test_versions_say_what_is_used(capsys):
    ma.show_versions()
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert printed["manyarms"] == version("manyarms")
    assert printed["numpy"] == np.__version__
    assert printed["compiled"] == f"step {sweep.STATE}"


# ---- the same bits on every machine ---------------------------------------------------------------


def built(folder, *options):
    """The module, compiled for one length of vectors."""
    folder.mkdir()
    target = folder / "_sweep.so"
    flags = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-DONE_CLONE"]
    include = f"-I{sysconfig.get_path('include')}"
    command = ["cc", *flags, *options, "-shared", "-fPIC", include, str(SOURCE), "-o", str(target)]
    done = subprocess.run([*command, "-lm"], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be compiled here: {done.stderr[-200:]}")
    loader = importlib.machinery.ExtensionFileLoader("_sweep", str(target))
    spec = importlib.util.spec_from_file_location("_sweep", target, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def results(module):
    """Of every function, as bytes."""
    rng = np.random.default_rng(0)
    X = rows(rng, 1003, 9)
    X[:, 8] = np.floor(rng.random(1003) * 2**52)
    parts = [(0, 0, 3), (1, 1, 4), (2, 0, 2), (3, 0, 5), (4, 4, 8), (5, 8, 9)]
    weights = rng.uniform(0.1, 0.5, sum(stop - start for _, start, stop in parts))
    out = np.empty((5, 1003))
    assert module.columns(out, X, X[:5].copy(), np.array(parts), weights, 1.3)
    far = np.empty((1, 100_000))  # exp down to its end
    line = np.linspace(0, 800, 100_000)[:, None]
    assert module.columns(far, line, np.zeros((1, 1)), np.array([(1, 0, 1)]), np.ones(1), 1.0)
    given = problem(5003, 9, 11, 2, 11)
    Z, mean, variance = stepped(module.step, given)
    upper = module.peak(mean, variance, None, 2.0, 0.1)
    places = np.zeros(5003, dtype=np.intp)
    found = module.reach(mean, variance, None, np.array([1.0, 0.5]), 1.0, places)
    return [x.tobytes() for x in (out, far, Z, mean, variance, places)] + [upper, found]


@compiled
@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="vectors of several lengths are compiled for Linux on x86-64 only",
)
def test_vectors_of_any_length_give_the_same_bits(tmp_path):
    from manyarms import _sweep

    expected = results(_sweep)
    has = Path("/proc/cpuinfo").read_text().split()
    for length in (None, "avx2", "avx512f"):
        if length is None or length in has:
            options = [f"-m{length}"] if length else ["-O1"]  # of -O1 none is a vector at all
            assert results(built(tmp_path / str(length), *options)) == expected, length
