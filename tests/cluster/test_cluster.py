"""Tables that are divided: the same arms with any number of shards, whatever dies; bad input by its name.

The tests of Ray share one Ray of this machine; they are skipped where it is not installed.
"""

import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from command_line import manyarms, said
from extras import needs
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import read_only
from soak import shards

import manyarms as ma
from manyarms.cli.jobs import Elsewhere, Terms
from manyarms.cluster import OnShards, RayExecutor, Sharded
from manyarms.cluster.rays import RayConnection
from manyarms.errors import (
    ArmsError,
    ClusterError,
    KernelError,
    MemoryBudgetError,
    ParameterError,
    UnknownArmError,
)
from manyarms.kernels import RBF, Linear, Matern, Own
from manyarms.search.shards import MOST_NEWS, Lost, packed_mask, unpacked_mask

DENSE = ma.Tuning(rough=10**9)
LISTED = ma.Tuning(rough=0, quick=0, shortlist=8)


def table(n, d, seed, duplicates=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    X[rng.integers(n, size=duplicates)] = X[rng.integers(n, size=duplicates)]
    return read_only(X)


def height(X):
    return np.sin(7 * X[:, 0]) + np.cos(5 * X[:, -1])


def steps(policies, X, n_steps, seed, between=lambda step: None):
    """Batches, pending and excluded arms, several observations at once: the same arms at every step."""
    rng = np.random.default_rng(seed)
    n = len(X)
    for step in range(n_steps):
        between(step)
        size = (1, 1, 3, 7)[rng.integers(4)]
        pending = rng.integers(n, size=rng.integers(4)) if step % 3 == 1 else ()
        exclude = rng.integers(n, size=rng.integers(1, n // 2)) if step % 4 == 2 else ()
        if step % 9 == 4:  # one shard has no arm left
            exclude = np.arange(n // 8 + 2)
        chosen = [
            policy.choose(size, pending=pending, exclude=exclude).tolist() for policy in policies
        ]
        assert all(each == chosen[0] for each in chosen), f"step {step}: {chosen}"
        if step % 5 == 3:
            more = policies[0].choose(2, pending=chosen[0]).tolist()
            for policy in policies:
                assert policy.choose(2, pending=chosen[0]).tolist() == more
        for policy in policies:
            policy.observe(chosen[0], height(X[chosen[0]]))
            if step % 7 == 2:  # no choice between two observations
                policy.observe([step % n], [0.1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "tuning"),
    [
        (RBF(0.2), LISTED),
        (Matern(0.3, nu=1.5), DENSE),
        (Linear(), LISTED),
        (Own(Matern(0.3), 0.1), DENSE),
        (2.0 * Own(RBF(0.2), 0.3), LISTED),
    ],
)
def test_one_two_three_and_eight_shards_choose_the_arms_of_one_table(kernel, tuning):
    X = table(240, 2, 1, duplicates=80)
    tables = [X, *(Sharded(X, n, in_process=True) for n in (1, 2, 3, 8))]
    policies = [ma.BKB(arms, kernel, tuning=tuning, seed=2) for arms in tables]
    steps(policies, X, 40, 3)
    first = policies[0]
    for policy in policies[1:]:
        assert policy.best == first.best
        np.testing.assert_array_equal(policy.leading(7), first.leading(7))
        np.testing.assert_allclose(policy.scores().ucb, first.scores().ucb, rtol=1e-12)
        np.testing.assert_allclose(
            policy.predict(arms=[5, 200]).std, first.predict(arms=[5, 200]).std
        )
        np.testing.assert_array_equal(policy.choose(None), first.choose(None))
        assert policy.highest(exclude=[3]) == first.highest(exclude=[3])


@given(
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.sampled_from([DENSE, LISTED]),
    st.sampled_from([RBF(0.3), Own(RBF(0.3), 0.1)]),
)
@settings(max_examples=12)
def test_any_number_of_shards_chooses_the_same(seed, n, tuning, kernel):
    X = table(60, 2, seed, duplicates=30)
    policies = [
        ma.BKB(arms, kernel, tuning=tuning, confidence=ma.Constant(3.0), seed=seed)
        for arms in (X, Sharded(X, n, in_process=True))
    ]
    steps(policies, X, 12, seed)


def test_a_shard_that_missed_much_is_told_everything():
    X = table(100, 2, 0)
    policies = [ma.BKB(arms, RBF(0.3), seed=1) for arms in (X, Sharded(X, 3, in_process=True))]
    for policy in policies:
        policy.observe([1], [0.5])
        policy.choose()
        for i in range(MOST_NEWS + 3):
            policy.observe([i % 100], [float(height(X[[i % 100]])[0])])
    steps(policies, X, 3, 1)


@pytest.mark.parametrize("kernel", [Matern(0.2), Own(Matern(0.2), 0.1)], ids=["plain", "own"])
def test_a_belief_that_is_sent_is_small_and_goes_on_alike(kernel):
    X = table(400, 3, 0)
    policy = ma.BKB(X, kernel)
    policy.observe(np.arange(150), height(X[:150]))
    for i in range(30):
        policy.observe([i], [0.1])
        policy.choose()
    sent = pickle.dumps(policy.belief)
    there = ma.BKB(X, kernel).resumed(policy._state._replace(belief=pickle.loads(sent)))
    m = policy.belief.m
    assert len(sent) < 8 * 5 * m**2 + 1000 * m
    np.testing.assert_array_equal(there.scores().ucb, policy.scores().ucb)
    for each in (there, policy):
        each.observe([250, 3], [0.3, 0.2])
    np.testing.assert_array_equal(there.scores().ucb, policy.scores().ucb)


def test_several_policies_may_share_a_table():
    X = table(90, 2, 0)
    arms = Sharded(X, 3, in_process=True)
    pairs = [(ma.BKB(arms, k, seed=1), ma.BKB(X, k, seed=1)) for k in (RBF(0.2), Matern(0.4))]
    for _ in range(8):
        for sharded, whole in pairs:
            chosen = whole.choose(2)
            np.testing.assert_array_equal(sharded.choose(2), chosen)
            sharded.observe(chosen, height(X[chosen]))
            whole.observe(chosen, height(X[chosen]))


@given(st.integers(1, 300), st.floats(0, 1), st.integers(0, 99))
def test_barred_arms_are_sent_as_they_are(n, share, seed):
    mask = np.random.default_rng(seed).random(n) < share
    sent = packed_mask(mask)
    assert (sent is None) is not mask.any()
    if sent is not None:
        np.testing.assert_array_equal(unpacked_mask(sent, n), mask)


def test_rows_that_are_not_there():
    arms = Sharded(table(20, 2, 0), 3, in_process=True)
    assert len(list(arms)) == 20
    for number in (-1, 20, np.array([3, 20])):
        with pytest.raises(UnknownArmError, match="0 to 19"):
            arms[number]


def test_an_optimizer_asks_for_the_same_candidates():
    X = table(400, 3, 2)
    policy = OnShards(3, in_process=True)
    optimizers = [ma.Optimizer(X, seed=1), ma.Optimizer(X, seed=1, policy=policy)]
    rng = np.random.default_rng(0)
    for step in range(12):
        asked = [optimizer.ask(1 + step % 3) for optimizer in optimizers]
        assert asked[0] == asked[1]
        values = height(X[asked[0]]) + 0.1 * rng.standard_normal(len(asked[0]))
        for optimizer in optimizers:
            optimizer.tell(asked[0], values)
    # Fitted several times: the kernel is another one, and the table still the same.
    assert [each.id for each in optimizers[1].top(5)] == [each.id for each in optimizers[0].top(5)]
    more = table(20, 3, 5)
    for optimizer in optimizers:
        optimizer.add(more)
    assert optimizers[0].ask(3) == optimizers[1].ask(3)
    assert optimizers[1].best() == optimizers[0].best()
    policy.close()


def same_study(folder, policy, steps):
    """A study on shards and one without, told the same; the file is opened anew in between."""
    X = table(400, 3, 2)
    options = {"seed": 1, "worker": "w"}
    studies = [
        ma.Study.create(folder / "one.db", ma.Pool.from_array(X), **options),
        ma.Study.create(folder / "shards.db", ma.Pool.from_array(X), policy=policy, **options),
    ]
    rng = np.random.default_rng(0)
    for step in range(steps):
        asked = [study.ask(1 + step % 3) for study in studies]
        assert asked[0] == asked[1]
        values = height(X[asked[0]]) + 0.1 * rng.standard_normal(len(asked[0]))
        for study in studies:
            study.tell(asked[0], values)
        if step == steps // 2:
            studies[1].close()
            studies[1] = ma.Study.open(folder / "shards.db", policy=policy, worker="w")
    assert studies[1].best() == studies[0].best()
    # Whoever opens it without shards goes on as before.
    plain = ma.Study.open(folder / "shards.db", worker="w")
    assert plain.settings["policy"] == "BKB"
    assert plain.ask(2) == studies[0].ask(2)


def test_a_study_asks_for_the_same_candidates(folder):
    with closing(OnShards(3, in_process=True)) as policy:
        same_study(folder, policy, 10)


def test_a_snapshot_is_taken_and_resumed_on_shards(folder):
    X = table(400, 3, 2)
    with closing(OnShards(2, in_process=True)) as policy:
        study = ma.Study.create(folder / "s.db", ma.Pool.from_array(X), policy=policy)
        study.tell(list(range(250)), height(X[:250]))
        best = study.best()
        assert study.snapshot_bytes
        study.close()
        (folder / "copy.db").write_bytes((folder / "s.db").read_bytes())
        again = ma.Study.open(folder / "s.db", policy=policy)
        assert again.best() == best
        assert again.ask(2) == ma.Study.open(folder / "copy.db").ask(2)


def test_a_study_refuses_a_policy_of_another_kind(folder):
    ma.Study.create(folder / "s.db", table(40, 3, 2), policy=ma.GPUCB).close()
    for policy in [OnShards(2), ma.BKB, "BKB", 3, object()]:
        with pytest.raises(ParameterError, match="GPUCB"):
            ma.Study.open(folder / "s.db", policy=policy)
    assert ma.Study.open(folder / "s.db", policy=ma.GPUCB).ask()
    with pytest.raises(ParameterError):
        ma.Study.create(folder / "box.db", ma.Box(x=(0, 1)), policy=OnShards(2))
    assert not (folder / "box.db").exists()


# Files


def write(folder, X, cuts, kind="parquet", names=("a", "b", "c")):
    for i, part in enumerate(np.split(X, cuts)):
        if kind == "npy":
            np.save(folder / f"part{i}.npy", part)
        else:
            pl.DataFrame(dict(zip(names, part.T, strict=False))).write_parquet(
                folder / f"part{i}.parquet"
            )


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_rows_come_from_files(folder, kind):
    X = table(100, 3, 0)
    write(folder, X, [30, 31], kind)
    arms = Sharded(f"{folder}/part*.{kind}", 2, in_process=True)
    assert (arms.shape, len(arms)) == ((100, 3), 100)
    np.testing.assert_array_equal(arms[np.array([99, 0, 30, 31, 0])], X[[99, 0, 30, 31, 0]])
    np.testing.assert_array_equal(arms[50], X[50])
    assert Sharded(folder, 1, in_process=True).shape == (100, 3)
    steps([ma.BKB(X, RBF(0.4)), ma.BKB(arms, RBF(0.4))], X, 10, 0)


def test_one_mapped_file_is_not_copied(folder):
    np.save(folder / "x.npy", table(50, 3, 0))
    arms = Sharded(folder / "x.npy", 2, in_process=True)
    for shard in arms._crew._shards:
        owner = shard.rows
        while isinstance(owner, np.ndarray):
            owner = owner.base
        assert isinstance(owner, mmap.mmap)


def test_rows_come_from_urls(folder):
    fsspec = needs("dev", "fsspec")
    X = table(60, 3, 0)
    memory = fsspec.filesystem("memory")
    for kind in ("parquet", "npy"):
        write(folder, X, [25], kind)
        for file in folder.glob(f"*.{kind}"):
            memory.put_file(str(file), f"/rows/{file.name}")
        arms = Sharded(f"memory://rows/part*.{kind}", 2, in_process=True)
        np.testing.assert_array_equal(arms[np.arange(60)], X)
    with pytest.raises(ArmsError, match=r"memory://rows/none\.npy"):
        Sharded("memory://rows/none.npy", in_process=True)
    with pytest.raises(ArmsError, match="nosuchscheme"):
        Sharded("nosuchscheme://rows/none.npy", in_process=True)


def test_files_that_cannot_be_used_are_named(folder):
    X = table(20, 3, 0)
    with pytest.raises(ArmsError, match="there is no file"):
        Sharded(f"{folder}/*.parquet", in_process=True)
    write(folder, X, [10])
    pl.DataFrame({"a": [1.0], "b": [2.0], "d": [3.0]}).write_parquet(folder / "part2.parquet")
    with pytest.raises(
        ArmsError, match=r"part0.parquet and .*part2.parquet.*'c' is Float64 and missing"
    ):
        Sharded(f"{folder}/*.parquet", in_process=True)
    pl.DataFrame({"a": [1], "b": [2.0], "c": [3.0]}).write_parquet(folder / "part2.parquet")
    with pytest.raises(ArmsError, match="'a' is Float64 and Int64"):
        Sharded(f"{folder}/*.parquet", in_process=True)
    pl.DataFrame({"b": [1.0], "a": [2.0], "c": [3.0]}).write_parquet(folder / "part2.parquet")
    with pytest.raises(ArmsError, match="another order"):
        Sharded(f"{folder}/*.parquet", in_process=True)
    (folder / "part2.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ArmsError, match=r"part2.parquet.*no Parquet file"):
        Sharded(f"{folder}/*.parquet", in_process=True)
    pl.DataFrame(
        {"a": [1.0], "b": [None], "c": [3.0]}, schema=dict.fromkeys("abc", pl.Float64)
    ).write_parquet(folder / "part2.parquet")
    with pytest.raises(ArmsError, match="must be finite"):
        Sharded(f"{folder}/*.parquet", in_process=True)
    pl.DataFrame({"a": ["x"]}).write_parquet(folder / "text.parquet")
    with pytest.raises(ArmsError, match="real numbers"):
        Sharded(folder / "text.parquet", 1, in_process=True)
    (folder / "x.csv").write_text("1,2")
    with pytest.raises(ArmsError, match=r"\.npy or \.parquet"):
        Sharded(folder / "x.csv", in_process=True)
    np.save(folder / "flat.npy", np.zeros(5))
    with pytest.raises(ArmsError, match="table"):
        Sharded(folder / "flat.npy", in_process=True)
    np.save(folder / "objects.npy", np.array([object()]))
    with pytest.raises(ArmsError, match=r"no \.npy file of numbers"):
        Sharded(folder / "objects.npy", in_process=True)


def test_what_does_not_fit_is_said():
    X = table(1000, 3, 0)
    with pytest.raises(MemoryBudgetError, match="rows 0 to 499 take"):
        Sharded(X, 2, in_process=True, memory="1 kB")
    with pytest.raises(ParameterError, match="got 'much'"):
        Sharded(X, 2, in_process=True, memory="much")
    with pytest.raises(ParameterError, match="at most the 1000 rows"):
        Sharded(X, 1001, in_process=True)
    with pytest.raises(ParameterError, match="give one of them"):
        Sharded(X, 2, in_process=True, address="auto")
    with pytest.raises(ParameterError, match="address must be"):
        Sharded(X, 2, address=5)
    arms = Sharded(X, 2, in_process=True)
    with pytest.raises(ParameterError, match="rule=Inserted"):
        ma.BKB(arms, RBF(1.0), rule=ma.Sampled())
    with pytest.raises(ParameterError, match="rule=Inserted"):
        ma.GPUCB(arms, RBF(1.0))
    with pytest.raises(KernelError, match="finite"):
        ma.BKB(arms, lambda A, B: np.full((len(A), len(B)), np.nan))
    assert "1,000 rows of 3 columns in 2 shards" in repr(arms)


class Forgetful:
    """A crew whose shards lose everything now and then, as if made again."""

    def __init__(self, crew, chance, seed):
        self._crew = crew
        self._chance = chance
        self._rng = np.random.default_rng(seed)
        self.n_lost = 0

    def __getattr__(self, name):
        return getattr(self._crew, name)

    def ask(self, asked):
        answers = {}
        for i, message in asked.items():
            if self._rng.random() < self._chance:
                self.n_lost += 1
                self._crew._shards[i]._real = None
                answers[i] = Lost("it forgot")
            else:
                answers[i] = self._crew._shards[i].ask(*message)
        return answers


@pytest.mark.parametrize("tuning", [DENSE, LISTED], ids=["dense", "listed"])
def test_shards_that_forget_answer_the_same(tuning):
    X = table(150, 2, 4, duplicates=50)
    arms = Sharded(X, 3, in_process=True)
    arms._crew = Forgetful(arms._crew, 0.2, 0)
    policies = [ma.BKB(each, Own(RBF(0.2), 0.1), tuning=tuning, seed=2) for each in (X, arms)]
    steps(policies, X, 40, 5)
    assert arms._crew.n_lost > 50


def test_a_shard_that_is_lost_again_and_again_is_an_error_and_changes_nothing():
    X = table(50, 2, 0)
    arms = Sharded(X, 2, in_process=True)
    policy = ma.BKB(arms, RBF(0.3))
    policy.observe([3], [0.0])
    expected = policy.choose()
    arms._crew, crew = Forgetful(arms._crew, 1.0, 0), arms._crew
    broken = policy.over(arms)
    with pytest.raises(ClusterError, match="shard 0 was lost 5 times in one round: it forgot"):
        broken.choose()
    arms._crew = crew
    np.testing.assert_array_equal(broken.over(arms).choose(), expected)


# Ray


@pytest.fixture(scope="session")
def ray():
    """One Ray for all tests of a process, as a table without an address starts it."""
    module = needs("cluster", "ray")
    keeper = RayExecutor()
    yield module
    keeper.shutdown()


@pytest.mark.soak
def test_shards_on_ray_choose_the_arms_of_one_table_while_their_processes_are_killed(ray):
    assert shards.kills(5, rows=20_000).n == 5


@pytest.mark.slow
def test_shards_on_ray_read_their_rows_and_choose_the_same(ray, folder):
    X = table(8_000, 3, 1, duplicates=200)
    write(folder, X, [3_000])
    with Sharded(f"{folder}/*.parquet", 3) as arms:
        policies = [ma.BKB(each, RBF(0.3), tuning=ma.Tuning(quick=0), seed=2) for each in (X, arms)]
        steps(policies, X, 10, 3)
        assert policies[1].best == policies[0].best


@pytest.mark.slow
def test_a_study_on_ray_asks_for_the_same_candidates(ray, folder):
    with closing(OnShards(2)) as policy:
        same_study(folder, policy, 6)


def killed(ray, crew, i):
    """End the process of a shard."""
    os.kill(ray.get(crew._actors[i].process.remote()), signal.SIGKILL)


def test_a_file_that_changes_or_goes_is_noticed_when_its_shard_is_made_again(ray, folder):
    X = table(500, 3, 1)
    np.save(folder / "x.npy", X)
    with Sharded(folder / "x.npy", 2) as arms:
        policy = ma.BKB(arms, RBF(0.3), seed=2)
        policy.observe([1], [0.0])
        expected = policy.choose().tolist()
        Y = X.copy()
        Y[400, 1] += 1e-9
        np.save(folder / "x.npy", Y)
        killed(ray, arms._crew, 1)
        with pytest.raises(ArmsError, match="rows 250 to 499 have changed"):
            policy.choose()
        (folder / "x.npy").unlink()
        with pytest.raises(ArmsError, match=r"cannot read .*x\.npy: No such file"):
            policy.choose()
        np.save(folder / "x.npy", X)
        assert policy.choose().tolist() == expected
    with pytest.raises(ClusterError, match="ended by close"):
        policy.choose(exclude=expected)


def test_what_a_shard_cannot_take_is_said_and_leaves_nothing_running(ray):
    X = table(1000, 3, 0)
    before = len(ray.util.list_named_actors(all_namespaces=True))
    with pytest.raises(MemoryBudgetError, match="take"):
        Sharded(X, 2, memory=1000.0)
    with Sharded(X, 2) as arms, pytest.raises(KernelError, match="finite"):
        ma.BKB(arms, lambda A, B: np.full((len(A), len(B)), np.nan))
    assert len(ray.util.list_named_actors(all_namespaces=True)) == before


def test_a_shard_that_hangs_is_ended_and_made_again(ray):
    X = table(300, 2, 0)
    with Sharded(X, 2, timeout=10.0) as arms:
        policies = [ma.BKB(each, RBF(0.3), seed=1) for each in (X, arms)]
        steps(policies, X, 2, 0)
        pid = ray.get(arms._crew._actors[1].process.remote())
        os.kill(pid, signal.SIGSTOP)
        steps(policies, X, 1, 1)


def test_addresses_that_cannot_be_used(ray):
    X = table(10, 2, 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"no Ray at 127.0.0.1:{port}"):
            Sharded(X, 2, address=f"127.0.0.1:{port}")
    for address in ("ray://x:1", "nonsense", ""):
        with pytest.raises(ClusterError, match="host:port"):
            Sharded(X, 2, address=address)
    now = ray.get_runtime_context().gcs_address
    with Sharded(X, 1, address=now) as arms:
        assert len(arms) == 10
    with pytest.raises(ClusterError, match="the cluster has"):
        Sharded(X, 10, address="auto", cpus=1000)


def test_only_who_has_the_token_can_use_a_ray_started_here(ray, tmp_path):
    assert os.environ["RAY_AUTH_MODE"] == "token"
    environment = {k: v for k, v in os.environ.items() if k != "RAY_AUTH_TOKEN"}
    environment["HOME"] = str(tmp_path)  # no token in a file there
    code = f"import ray; ray.init(address={ray.get_runtime_context().gcs_address!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True
    )
    assert done.returncode
    assert "token" in done.stderr


def test_a_ray_that_does_not_start_leaves_the_environment_as_it_was(monkeypatch):
    def fails(**options):
        raise OSError("no room")

    asked = SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None, __version__="2.0")
    asked.init = fails
    monkeypatch.setitem(sys.modules, "ray", asked)
    monkeypatch.setattr(RayConnection, "_users", set())
    monkeypatch.setattr(RayConnection, "_before", {})
    before = dict(os.environ)
    with pytest.raises(ClusterError, match="does not start here: no room"):
        RayExecutor()
    asked.init = lambda **options: None  # it starts, and turns no tokens on
    with pytest.raises(ClusterError, match=r"Ray 2\.0 has no tokens.*install a newer one"):
        RayExecutor()
    assert dict(os.environ) == before


def test_functions_run_as_tasks_of_ray(ray):
    X = table(60, 2, 0)
    with RayExecutor() as executor:
        found = ma.maximize(
            lambda x: float(x @ [1, 2]), X, budget=9, progress=False, executor=executor
        )
        alone = ma.maximize(lambda x: float(x @ [1, 2]), X, budget=9, progress=False)
        assert found.history == alone.history
        with pytest.raises(ZeroDivisionError):
            ma.maximize(lambda x: 1 / 0, X, budget=9, progress=False, executor=executor)
        slow = executor.submit(time.sleep, 60)
        executor.shutdown(cancel_futures=True)
        assert slow.done()
    with pytest.raises(ClusterError, match="shut down"):
        executor.submit(int)


@pytest.fixture
def lab(path):
    pool = ma.Pool.from_dicts([{"name": f"n{i}", "x": i} for i in range(6)], id="name")
    ma.Study.create(path, pool, repeats="never").close()
    return path


def test_commands_run_as_tasks_of_ray(ray, lab):
    script = '[ $1 -lt 5 ] || exit 3; echo "$1.5" > "$2"'
    command = ["sh", "-c", script, "objective", "{x}", "{out}"]
    address = ray.get_runtime_context().gcs_address
    answer = manyarms("run", lab, "--json", "--jobs", 2, "--cluster", address, "--", *command)
    assert (answer.data["told"], answer.data["failed"]) == (6, 1)
    found = {trial.id: trial.value for trial in ma.Study.open(lab).history}
    assert found == {**{f"n{i}": i + 0.5 for i in range(5)}, "n5": None}


def test_commands_elsewhere_are_ended_with_their_children(ray, lab, folder):
    elsewhere = Elsewhere(ray.get_runtime_context().gcs_address)
    script = f"sleep 60 & echo $! > {folder}/child; echo $$ > {folder}/parent; wait"
    job = elsewhere.start(Terms(["sh", "-c", script]), {}, folder)
    for name in ("child", "parent"):
        while not (folder / name).exists() or not (folder / name).read_text().strip():
            time.sleep(0.02)
    elsewhere.stop([job], 1.0, lambda: False)
    elsewhere.close()
    assert job.outcome().value is None
    for name in ("child", "parent"):
        stat = Path(f"/proc/{(folder / name).read_text().strip()}/stat")
        waited = time.monotonic()
        while not _has_ended(stat) and time.monotonic() - waited < 30:
            time.sleep(0.05)  # the task there ends them, and may get its turn later
        assert _has_ended(stat)


def _has_ended(stat):
    try:
        return ") Z" in stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_cluster_that_is_not_there_is_one_line(ray, lab):
    answer = said("run", lab, "--cluster", "127.0.0.1:1", "--", "true", "{x}")
    assert answer.code
    assert "no Ray at 127.0.0.1:1" in answer.err
    assert not ma.Study.open(lab).pending


def test_a_cluster_of_another_version_is_refused(ray):
    code = f"""
import numpy as np, ray
ray.__version__ = "1.0"
from manyarms.cluster import Sharded
from manyarms.errors import ClusterError
try:
    Sharded(np.zeros((4, 1)), 1, address={ray.get_runtime_context().gcs_address!r})
except ClusterError as error:
    print(error)
print(ray.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "ersion mismatch" in done.stdout, done
    assert done.stdout.splitlines()[-1] == "False"
