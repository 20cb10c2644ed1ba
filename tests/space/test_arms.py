"""Candidates in memory and from files."""

import numpy as np
import polars
import pytest
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.errors import ArmsError

KERNEL = ma.kernels.RBF(0.2)
POLICIES = [{"rule": ma.Sampled(5.0)}, {}, {"tuning": ma.Tuning(shortlist=8, rough=0, quick=0)}]


@pytest.fixture
def problem():
    return RKHSProblem(KERNEL, n_arms=300, d=2, noise=0.0, seed=1)


@pytest.mark.parametrize("options", POLICIES)
def test_files_give_the_same_arms_as_memory(problem, options, tmp_path):
    np.save(tmp_path / "arms.npy", problem.arms)
    polars.DataFrame(problem.arms, schema=["a", "b"]).write_parquet(tmp_path / "arms.parquet")
    expected = play(ma.BKB(problem.arms, KERNEL, **options), problem.pull, 40)
    for source in (
        tmp_path / "arms.npy",
        str(tmp_path / "arms.npy"),
        tmp_path / "arms.parquet",
        np.asfortranarray(problem.arms),
    ):
        np.testing.assert_array_equal(
            play(ma.BKB(source, KERNEL, **options), problem.pull, 40), expected
        )


def test_a_mapped_file_is_not_read_into_memory(problem, tmp_path):
    np.save(tmp_path / "arms.npy", problem.arms.astype(np.float32))
    policy = ma.BKB(tmp_path / "arms.npy", KERNEL)
    base = policy.arms
    while not isinstance(base, np.memmap):
        base = base.base
    assert policy.arms.dtype == np.float32


@pytest.mark.parametrize("kernel", [KERNEL, ma.kernels.Linear(1.0), lambda X, Y: X @ Y.T])
def test_single_precision_arms_are_computed_with_in_double(problem, kernel):
    single = problem.arms.astype(np.float32)
    for options in POLICIES:
        policies = [ma.BKB(arms, kernel, **options) for arms in (single, single.astype(np.float64))]
        played = [play(policy, problem.pull, 30) for policy in policies]
        np.testing.assert_array_equal(*played)
        np.testing.assert_allclose(
            policies[0].scores().variance, policies[1].scores().variance, rtol=1e-12
        )


def test_bad_files_are_typed_errors(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([["a", None]], dtype=object), allow_pickle=True)
    (tmp_path / "broken.npy").write_bytes(b"not an array")
    (tmp_path / "broken.parquet").write_bytes(b"not a table")
    polars.DataFrame({"a": ["x", "y"]}).write_parquet(tmp_path / "text.parquet")
    for name in (
        "objects.npy",
        "broken.npy",
        "broken.parquet",
        "text.parquet",
        "missing.npy",
        "missing.parquet",
        "arms.csv",
    ):
        with pytest.raises(ArmsError):
            ma.BKB(tmp_path / name, KERNEL)


def test_a_bad_value_far_down_is_named():
    arms = np.zeros((70_000, 2))
    arms[69_000, 1] = np.nan
    with pytest.raises(ArmsError, match="row 69000, column 1"):
        ma.BKB(arms, KERNEL)


def test_stats_tell_what_a_run_cost(problem):
    policy = ma.BKB(problem.arms, KERNEL)
    play(policy, problem.pull, 30)
    counts = policy.stats.counts
    assert counts["observations"] == 30
    assert counts["choices"] == 29  # the first arm is drawn
    assert counts["embeddings"] == 1
    assert "observations" in str(policy.stats)
