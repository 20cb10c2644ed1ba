"""Passes on a device: the same numbers as NumPy's, the same arms, typed errors. The device is the CPU's, by PyTorch."""

import os
import subprocess
import sys

import numpy as np
import pytest
from extras import needs
from problems import read_only

import manyarms as ma
from manyarms import baselines
from manyarms.cluster import Sharded
from manyarms.engine.base import Arms, Batch
from manyarms.errors import KernelError, MemoryBudgetError, ParameterError
from manyarms.kernels import RBF, Hamming, Linear, Matern, MinMax, On, Own, Polynomial, Tanimoto
from manyarms.search.dense import Dense
from manyarms.search.devices import Device, TriangleThere, device_of, tried
from manyarms.search.scores import Upper
from manyarms.search.table import Table, TableScores
from manyarms.search.work import Stats

torch = needs("torch", "torch")
needs("torch", "array_api_compat")

torch.set_num_threads(1)  # several wait for each other where cores are busy

LISTED = ma.Tuning(rough=0, quick=0, shortlist=8)
DEVICE = ma.Tuning(device="cpu")

KERNELS = {
    "rbf": RBF(0.4),
    "rbf, a lengthscale each": RBF([0.3, 0.6, 0.5, 2.0]),
    "matern 1/2": Matern(0.5, nu=0.5),
    "matern 3/2": Matern(0.5, nu=1.5),
    "matern 5/2": Matern(0.5),
    "linear": Linear(0.5),
    "polynomial": Polynomial(3, 0.5),
    "hamming": Hamming([1.0, 2.0, 3.0, 4.0]),
    "tanimoto": Tanimoto(),
    "own": 1.2 * Own(Matern(0.5), 0.1),
    "mixed": 2.0 * On(Matern(0.5), 0, 2) * On(Hamming(2.0), 2, 4) + On(Linear(), 1, 3),
}


def rows_for(name, n, seed=0):
    """Some are equal, and some nearly."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 4))
    if name in {"hamming", "tanimoto"}:
        X = rng.integers(0, 3, (n, 4)).astype(float)
    elif name == "mixed":
        X[:, 2:] = rng.integers(0, 5, (n, 2))
    X[n // 2] = X[0]
    X[n // 2 + 1] = X[1] + (0.0 if name in {"hamming", "tanimoto", "mixed"} else 1e-9)
    return read_only(X)


def batch_of(X, kernel, arm, value=1.0):
    row = X[arm : arm + 1]
    return Batch(row, kernel.diag(row), np.array([value]), np.ones(1), np.array([arm]), 1)


def believed(X, kernel, n, regularization=0.01, **settings):
    policy = ma.BKB(X, kernel, regularization=regularization, **settings)
    policy.observe(np.arange(n), np.random.default_rng(1).standard_normal(n))
    return policy.belief


def embedded(belief, X, kernel, device=None):
    """All arms at a belief: in memory, or on a device."""
    smooth = belief.base.kernel
    made = Dense(Arms(X, smooth.diag(X.astype(float))), smooth, device)
    made.compute(belief)
    return made


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_pass_gives_the_numbers_of_numpy(name, dtype):
    kernel = KERNELS[name]
    X = read_only(rows_for(name, 500).astype(dtype))
    belief = believed(X, kernel, 150)
    here = embedded(belief, X, kernel)
    there = embedded(belief, X, kernel, device_of("cpu"))
    kappa2 = here.arms.diag.max() / belief.regularization
    assert np.abs(there.mean - here.mean).max() <= 1e-10 * max(1.0, np.abs(here.mean).max())
    assert np.abs(there.variance - here.variance).max() <= 1e-10 * kappa2
    _, exact = belief.moments(X, kernel.diag(X.astype(float)))
    assert (np.abs(there.current(belief)[1] - exact) <= there.slack).all()


class Strict(Device):
    """What uses nothing but the standard: what devices run is no matter of PyTorch."""

    def brought(self, array):
        return np.asarray(array)


@pytest.mark.parametrize("name", KERNELS)
def test_another_namespace_gives_the_same_numbers(name):
    xp = pytest.importorskip("array_api_strict", reason="nothing but the array API standard")
    kernel = KERNELS[name]
    X = rows_for(name, 300)
    belief = believed(X, kernel, 100)
    strict = Strict(xp, xp.Device("CPU_DEVICE"), "strict")
    here = embedded(belief, X, kernel)
    there = embedded(belief, X, kernel, strict)
    step = belief.observed(batch_of(X, kernel, 200))
    for made in (here, there):
        made.bring(step.after, [step.change])
    np.testing.assert_allclose(
        there.mean, here.mean, atol=1e-10 * max(1.0, np.abs(here.mean).max())
    )
    np.testing.assert_allclose(there.variance, here.variance, atol=1e-10 * here.variance.max())


@pytest.mark.parametrize("settings", [(1e-8, 1.0), (1e-6, 2.0)], ids=str)
def test_a_pass_stays_within_the_rounding_that_scores_allow_for(settings):
    """Nearly singular K_WW: corners of L whose inverses have few digits."""
    regularization, lengthscale = settings
    X = rows_for("rbf", 600)
    kernel = RBF(lengthscale)
    belief = believed(X, kernel, 400, regularization)
    there = embedded(belief, X, kernel, device_of("cpu"))
    exact = belief.moments(X, np.ones(len(X)))[1]
    assert belief.m > 64
    assert (np.abs(there.variance - exact) <= there.slack).all()


def test_a_triangle_is_solved_to_the_last_digits():
    """By inverses of corners alone the backward error would be 8e-14."""
    points = np.random.default_rng(0).random((150, 2))
    L = np.linalg.cholesky(RBF(0.5)(points, points) + 1e-10 * np.eye(150))
    B = L @ np.random.default_rng(1).standard_normal((150, 7))
    cpu = device_of("cpu")
    X = cpu.brought(TriangleThere(cpu, L).solve(cpu.sent(B)))
    assert (np.abs(L @ X - B) <= 5e-15 * (np.abs(L) @ np.abs(X) + np.abs(B))).all()


def test_scores_follow_steps_as_those_of_numpy_do():
    X = rows_for("matern 5/2", 700)
    kernel = Matern(0.4)
    belief = believed(X, kernel, 20)
    rng = np.random.default_rng(2)
    here = embedded(belief, X, kernel)
    there = embedded(belief, X, kernel, device_of("cpu"))
    for t in range(60):
        step = belief.observed(batch_of(X, kernel, 20 + 3 * t, rng.standard_normal()))
        belief = step.after
        for made in (here, there):
            made.bring(belief, [step.change])
        assert np.abs(there.mean - here.mean).max() < 1e-10
        assert np.abs(there.variance - here.variance).max() < 1e-10 * 100
    for some, z, r in there.embedded():
        np.testing.assert_allclose(np.square(z).sum(axis=0) + r, 1.0, atol=1e-10)
        Z, _ = belief.features(X[some], np.ones(len(X[some])))
        np.testing.assert_allclose(z, Z.T, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n"),
    [("rbf", 3000), ("matern 1/2", 1000), ("hamming", 200), ("mixed", 2000), ("own", 1500)],
)
def test_choices_are_those_without_a_device(name, n):
    X = rows_for(name, n)
    kernel = KERNELS[name]
    rng = np.random.default_rng(3)
    f = kernel(X, X[:20]) @ rng.standard_normal(20)
    f /= f.std()
    made = [ma.BKB(X, kernel, tuning=tuning, seed=1) for tuning in (LISTED, DEVICE)]
    for step in range(120):
        size = None if step == 60 else 4 if step % 7 == 3 else 1
        exclude = rng.integers(n, size=5) if step % 5 == 2 else ()
        pending = rng.integers(n, size=2) if step % 6 == 1 else ()
        chosen = [policy.choose(size, exclude=exclude, pending=pending) for policy in made]
        np.testing.assert_array_equal(*chosen)
        rewards = f[chosen[0]] + 0.1 * rng.standard_normal(len(chosen[0]))
        for policy in made:
            policy.observe(chosen[0], rewards)
    assert made[1].stats.counts["arms on cpu"] == n  # moved once


@pytest.mark.parametrize(
    "policy", [baselines.Thompson, baselines.SketchEI, baselines.EpsilonGreedy]
)
def test_other_choosers_work_on_a_device(policy):
    X = rows_for("rbf", 400)
    rng = np.random.default_rng(0)
    made = [policy(X, RBF(0.4), seed=1, tuning=tuning) for tuning in (LISTED, DEVICE)]
    for step in range(20):
        chosen = [each.choose(3 if step == 10 else 1) for each in made]
        np.testing.assert_array_equal(*chosen)
        y = rng.standard_normal(len(chosen[0]))
        for each in made:
            each.observe(chosen[0], y)


def test_an_optimizer_scores_on_a_device():
    rng = np.random.default_rng(0)
    pool = ma.Pool.from_array(rng.random((300, 3)))
    made = [ma.Optimizer(pool, direction="maximize", seed=0, tuning=t) for t in (LISTED, DEVICE)]
    for _ in range(12):
        asked = [opt.ask(2) for opt in made]
        assert asked[0] == asked[1]
        for opt in made:
            opt.tell(asked[0], [float(np.sin(id)) for id in asked[0]])
    made[1].ask()
    assert "arms on cpu" in str(made[1].policy.stats)


def test_shards_score_on_a_device():
    X = rows_for("rbf", 300)
    made = [
        ma.BKB(X, RBF(0.4), tuning=LISTED),
        ma.BKB(Sharded(X, shards=2, in_process=True), RBF(0.4), tuning=DEVICE),
    ]
    for _ in range(15):
        arm, same = (int(policy.choose()[0]) for policy in made)
        assert arm == same
        for policy in made:
            policy.observe(arm, X[arm, 0])


def test_a_table_that_grew_is_moved_again():
    X = rows_for("rbf", 600)
    policy = ma.BKB(X[:400], Matern(0.1), tuning=DEVICE)
    policy.observe(np.arange(300), np.random.default_rng(0).standard_normal(300))
    policy.choose()
    assert policy.stats.counts["arms on cpu"] == 400
    grown = policy.over(X)
    assert grown.choose() == ma.BKB(X, Matern(0.1)).resumed(policy._state).choose()
    assert policy.stats.counts["arms on cpu"] == 1000


class Mine(RBF):
    """Inherits, and computes something else."""

    def __call__(self, X, Y):
        return super().__call__(X, Y) ** 2


@pytest.mark.parametrize(
    "kernel",
    [
        MinMax(),
        On(MinMax(), 0, 2) + Linear(),
        Linear() + MinMax(),
        Mine(0.3),
        lambda X, Y: np.exp(X @ Y.T),
    ],
    ids=repr,
)
def test_a_kernel_that_only_numpy_computes_is_refused_at_once(kernel):
    with pytest.raises(KernelError, match=r"cannot be computed on cpu: .*\. RBF, Matern, Linear"):
        ma.BKB(rows_for("rbf", 20), kernel, tuning=DEVICE)


def test_shards_refuse_such_a_kernel_when_they_are_asked():
    X = rows_for("rbf", 20)
    policy = ma.BKB(Sharded(X, shards=2, in_process=True), MinMax(), tuning=DEVICE)
    policy.observe([3], [1.0])
    with pytest.raises(KernelError, match="cannot be computed on cpu"):
        policy.choose()


def test_packed_bits_are_refused():
    bits = np.random.default_rng(0).integers(0, 2, (20, 60))
    with pytest.raises(KernelError, match="Tanimoto of bits that are not packed"):
        ma.BKB(ma.kernels.pack(bits), Tanimoto(packed=True), tuning=DEVICE)


@pytest.mark.parametrize("name", ["cuda:99", "nonsense", "", "meta"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(ParameterError, match="device must be one that PyTorch can use here"):
        ma.BKB(rows_for("rbf", 20), RBF(0.3), tuning=ma.Tuning(device=name))


def test_a_device_is_a_name():
    with pytest.raises(ParameterError, match="device must be a name such as 'cuda', or None"):
        ma.Tuning(device=0)


def test_a_device_is_for_passes_over_a_table():
    for policy in (
        lambda: ma.BKB(None, RBF(0.3), n_features=2, tuning=DEVICE),
        lambda: ma.BKB(rows_for("rbf", 20), RBF(0.3), rule=ma.Sampled(5.0), tuning=DEVICE),
    ):
        with pytest.raises(ParameterError, match="is for passes over a table"):
            policy()


def test_a_device_without_float64_is_refused():
    import array_api_compat.torch as xp

    class Single:
        """A namespace whose device has float32 only, as Apple's."""

        float32 = xp.float32
        float64 = xp.float64

        @staticmethod
        def ones(n, dtype, device):
            if dtype == xp.float64:
                raise TypeError("cannot convert to float64 here")
            return xp.ones(n, dtype=dtype)

    with pytest.raises(ParameterError, match="device='mps' has no float64, which scores need"):
        tried(Single, "mps", "mps")


class Small(Device):
    """A device with a thousand bytes."""

    free = 1000.0


def test_what_does_not_fit_the_device_is_refused_before_it_is_taken():
    small = Small(device_of("cpu").xp, "cpu", "small")
    with pytest.raises(
        MemoryBudgetError, match=r"100 rows of 4 columns take 4e\+03 bytes on small"
    ):
        small.room(Arms(rows_for("rbf", 100), np.ones(100)))
    assert small.room(Arms(rows_for("rbf", 10), np.ones(10))) == 300.0


def test_embeddings_that_do_not_fit_are_left_out():
    X = rows_for("rbf", 500)
    belief = believed(X, RBF(0.3), 100)
    stats = Stats()
    arms = Arms(X, np.ones(500))
    table = Table(arms, 1e9, DEVICE, stats)
    table.room = 1000.0
    scores = TableScores(table, belief)
    here = TableScores(Table(arms, 1e9, ma.Tuning(), Stats()), belief)
    assert scores.arg_max(Upper(2.0), None) == here.arg_max(Upper(2.0), None)
    assert set(stats.counts) == {"bounds"}


def test_rows_too_large_for_the_lengthscale_are_refused():
    X = np.vstack([rows_for("rbf", 20), np.full((1, 4), 1e160)])
    belief = believed(X[:20], RBF(0.3), 10)
    with pytest.raises(KernelError, match="must be finite and below"):
        embedded(belief, X, RBF(0.3), device_of("cpu"))


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import manyarms as ma
try:
    ma.BKB([[0.0], [1.0]], ma.kernels.RBF(0.3), tuning=ma.Tuning(device="cuda"))
except ma.errors.ParameterError as error:
    print(error)
"""


def test_without_pytorch_the_extra_is_named():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        capture_output=True,
        check=True,
        text=True,
        env=environment,
    )
    assert (
        "device='cuda' needs PyTorch and array-api-compat: pip install 'manyarms[torch]'"
        in done.stdout
    ), done.stderr
