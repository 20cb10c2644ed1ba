"""The whole loop: budgets, threads, callbacks, how it ends, and what an interruption leaves."""

import io
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest

import manyarms as ma
from manyarms.errors import (
    ArmsError,
    ManyArmsError,
    ObservationError,
    ParameterError,
    UnknownArmError,
)

X = np.random.default_rng(0).random((60, 2))
ROWS = [{"name": f"r{i}", "heat": float(x), "metal": "ab"[i % 2]} for i, x in enumerate(X[:, 0])]


def height(x):
    return float(np.sin(5 * x[0]) + x[1])


def maximize(f=height, arms=X, budget=12, progress=False, **options):
    return ma.maximize(f, arms, budget=budget, progress=progress, **options)


def nth(n, error, f=height):
    """f, but its n-th call raises."""
    calls, lock = [], threading.Lock()

    def called(x):
        with lock:
            calls.append(x)
            if len(calls) == n:
                raise error
        return f(x)

    return called


# What f gets


def test_f_gets_rows_of_an_array():
    seen = []
    found = maximize(lambda x: seen.append(x) or height(x))
    for trial, x in zip(found.history, seen, strict=True):
        assert isinstance(x, np.ndarray)
        np.testing.assert_array_equal(x, X[trial.id])
        assert trial.value == height(x)


@pytest.mark.parametrize(
    "arms",
    [ROWS, pl.DataFrame(ROWS), pd.DataFrame(ROWS), ma.Pool.from_dicts(ROWS, id="name")],
    ids=["dicts", "polars", "pandas", "pool"],
)
def test_f_gets_mappings_of_a_table(arms):
    seen = []
    found = maximize(
        lambda row: seen.append(row) or row["heat"] + (row["metal"] == "b"), arms, budget=25
    )
    named = isinstance(arms, ma.Pool)
    for trial, row in zip(found.history, seen, strict=True):
        expected = dict(ROWS[int(trial.id[1:]) if named else trial.id])
        assert row == {
            key: value for key, value in expected.items() if not (named and key == "name")
        }
    assert isinstance(found.best.recommended.id, str if named else int)
    best = found.optimizer.pool.row(found.best.recommended.id)
    assert best["metal"] == "b"


def test_a_pool_of_numbers_gives_mappings_too():
    found = maximize(lambda row: row["x0"], ma.Pool.from_array(X))
    assert len(found.history) == 12


# The end


@pytest.mark.parametrize("budget", [1, 7, 30])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_the_budget_is_kept(budget, n_jobs):
    calls = []
    found = maximize(lambda x: calls.append(1) or height(x), budget=budget, n_jobs=n_jobs)
    assert len(calls) == len(found.history) == budget
    assert found.ended == "budget"
    assert found.optimizer.pending == []
    assert [t.number for t in found.history] == list(range(budget))


def test_the_result():
    found = maximize(budget=30)
    f = np.array([height(x) for x in X])
    assert f[found.best.recommended.id] > np.quantile(f, 0.9)
    assert found.best == found.optimizer.best()
    assert found.history == found.optimizer.history
    assert found.policy is found.optimizer.policy
    assert 0 < found.seconds < 60


@pytest.mark.slow
def test_it_is_ask_and_tell():
    loop = ma.Optimizer(X, seed=3)
    for _ in range(20):
        (name,) = loop.ask()
        loop.tell(name, height(X[name]))
    assert maximize(budget=20, seed=3).history == loop.history
    assert (
        maximize(budget=20, seed=np.random.default_rng(3)).history
        == maximize(budget=20, seed=np.random.default_rng(3)).history
    )


def test_minimising():
    high, low = maximize(budget=20), maximize(lambda x: -height(x), budget=20, direction="minimize")
    assert [t.id for t in low.history] == [t.id for t in high.history]
    assert low.best.recommended.id == high.best.recommended.id
    assert low.best.recommended.mean == -high.best.recommended.mean


def test_options_go_to_the_optimizer():
    kernel = ma.kernels.RBF(0.3)
    found = maximize(kernel=kernel, noise=0.1, policy=ma.GPUCB, confidence=ma.Bayes(0.1), repeats=2)
    assert isinstance(found.policy, ma.GPUCB)
    assert found.optimizer.certificate().probability == pytest.approx(0.9)


def test_a_tolerance_ends_it_early():
    found = maximize(budget=60, tolerance=1.5, repeats=2)
    assert found.ended == "tolerance"
    assert 20 < len(found.history) < 60
    assert found.optimizer.certificate(1.5).reached
    assert found.optimizer.pending == []
    early = maximize(budget=9, tolerance=1e9)
    assert (early.ended, len(early.history)) == ("budget", 9)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("repeats", ["never", 2])
def test_an_exhausted_pool(n_jobs, repeats):
    found = maximize(arms=X[:6], budget=50, repeats=repeats, n_jobs=n_jobs)
    assert found.ended == "exhausted"
    assert sorted(t.id for t in found.history) == sorted(
        list(range(6)) * (1 if repeats == "never" else 2)
    )
    assert found.optimizer.pending == []
    assert maximize(arms=X[:6], budget=6, repeats="never", n_jobs=n_jobs).ended == "budget"


def test_failures_count_and_are_avoided():
    found = maximize(lambda x: ma.FAILED if x[0] < 0.3 else height(x), budget=40)
    failed = [t.id for t in found.history if t.failed]
    assert len(found.history) == 40
    assert failed
    assert len(set(failed)) == len(failed)
    assert X[found.best.recommended.id, 0] >= 0.3


def test_all_may_fail():
    found = maximize(lambda x: ma.FAILED, arms=X[:5], budget=20, tolerance=0.1)
    assert found.best is None
    assert found.ended == "exhausted"
    assert all(t.failed for t in found.history)
    assert len(found.history) == 5
    assert maximize(lambda x: ma.FAILED, budget=12, tolerance=0.1).ended == "budget"


# Threads


def test_several_at_a_time():
    lock, now, most, names = threading.Lock(), [0], [0], set()

    def f(x):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            names.add(threading.current_thread().name)
        time.sleep(0.004 if x[0] > 0.5 else 0.03)
        with lock:
            now[0] -= 1
        return height(x)

    start = time.perf_counter()
    found = maximize(f, budget=21, n_jobs=3, repeats="never")
    spent = time.perf_counter() - start
    assert most[0] == 3
    assert len(names) == 3
    assert len(found.history) == len({t.id for t in found.history}) == 21
    assert all(t.value == height(X[t.id]) for t in found.history)
    assert found.optimizer.pending == []
    assert spent < 10


def test_results_are_told_as_they_come():
    slow = threading.Event()
    first = []

    def f(x):
        if not first:
            first.append(tuple(x))
            slow.wait(20)
        return height(x)

    def callback(optimizer):
        if len(optimizer.history) == 8:
            assert len(optimizer.pending) == 1
            slow.set()

    found = maximize(f, budget=10, n_jobs=2, callbacks=[callback])
    assert slow.is_set()
    assert tuple(X[found.history[0].id]) != first[0]
    assert len(found.history) == 10


# Callbacks


def test_callbacks_follow_every_result():
    seen, best = [], []
    found = maximize(
        callbacks=(
            each
            for each in (lambda o: seen.append(len(o.history)), lambda o: best.append(o.best()))
        )
    )
    assert seen == list(range(1, 13))
    assert best[-1] == found.best


def test_an_error_of_a_callback_is_raised():
    def callback(optimizer):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        maximize(callbacks=[callback], n_jobs=2)


def test_a_callback_may_add_candidates():
    def callback(optimizer):
        if len(optimizer.history) == 5:
            optimizer.add(X[:5] + 1.0)

    found = maximize(lambda x: float(x[0] + x[1]), callbacks=[callback], budget=30)
    assert max(t.id for t in found.history) >= 60


def test_a_callback_may_retire_candidates():
    found = maximize(
        budget=15,
        n_jobs=3,
        callbacks=[lambda o: o.retire(range(30)) if len(o.history) == 4 else None],
    )
    assert all(t.id >= 30 for t in found.history[7:])


# Ctrl-C and errors


@pytest.mark.parametrize("n_jobs", [1])
def test_an_interruption_inside_f_leaves_nothing_pending(n_jobs):
    found = maximize(nth(9, KeyboardInterrupt), budget=30, n_jobs=n_jobs)
    assert found.optimizer.pending == []


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_interruption_inside_f_returns_what_is_known(n_jobs):
    found = maximize(nth(9, KeyboardInterrupt), budget=30, n_jobs=n_jobs)
    assert found.ended == "interrupted"
    assert 6 <= len(found.history) <= 10
    assert found.best == found.optimizer.best()
    found.optimizer.tell(found.optimizer.ask(), [0.5])


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_interruption_between_evaluations(n_jobs):
    def callback(optimizer):
        if len(optimizer.history) == 5:
            raise KeyboardInterrupt

    found = maximize(budget=30, n_jobs=n_jobs, callbacks=[callback])
    assert found.ended == "interrupted"
    assert 5 <= len(found.history) < 5 + n_jobs, "what had ended meanwhile is kept"
    assert found.optimizer.pending == []


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_interruption_while_it_learns(n_jobs, monkeypatch):
    tell, calls = ma.Optimizer.tell, []

    def interrupted(self, *args, **options):
        calls.append(args)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return tell(self, *args, **options)

    monkeypatch.setattr(ma.Optimizer, "tell", interrupted)
    found = maximize(budget=30, n_jobs=n_jobs)
    assert found.ended == "interrupted"
    assert 6 <= len(found.history) < 6 + n_jobs, "the result that was being learned is not lost"


def test_an_interruption_before_any_result():
    found = maximize(nth(1, KeyboardInterrupt), budget=30)
    assert (found.ended, found.best, found.history) == ("interrupted", None, [])


def test_an_interruption_after_pending_candidates_were_retired():
    def callback(optimizer):
        if len(optimizer.history) == 5:
            optimizer.retire(optimizer.pending)
            raise KeyboardInterrupt

    assert maximize(budget=30, n_jobs=3, callbacks=[callback]).ended == "interrupted"


@pytest.mark.slow
def test_a_real_signal():
    """SIGINT while f sleeps: the main thread waits for the evaluation and returns."""
    code = (
        "import os, signal, threading, time\nimport numpy as np\nimport manyarms as ma\n"
        "calls = []\n"
        "def f(x):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 6:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.2)\n"
        "    return float(x[0])\n"
        "found = ma.maximize(f, np.random.default_rng(0).random((40, 2)), budget=30, progress=False)\n"
        "print(found.ended, len(found.history), found.optimizer.pending)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["interrupted", "5", "[]"], done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), ValueError("no"), SystemExit(3)])
def test_an_error_of_f_is_raised(error, n_jobs):
    with pytest.raises(type(error)) as caught:
        maximize(nth(5, error), budget=30, n_jobs=n_jobs)
    assert caught.value is error


@pytest.mark.parametrize("value", [None, np.nan, np.inf, "1.0", True, [1.0, 2.0], 1j])
def test_what_is_no_number_is_an_error(value):
    with pytest.raises(ObservationError):
        maximize(lambda x: value, budget=5)


@pytest.mark.parametrize("value", [1, np.float32(1.0), np.int64(1), np.array(1.0), np.array([1.0])])
def test_what_is_a_number(value):
    assert [t.value for t in maximize(lambda x: value, budget=3).history] == [1.0] * 3


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"budget": 0}, ParameterError),
        ({"budget": -1}, ParameterError),
        ({"budget": 2.5}, ParameterError),
        ({"budget": None}, ParameterError),
        ({"budget": True}, ParameterError),
        ({"n_jobs": 0}, ParameterError),
        ({"n_jobs": -1}, ParameterError),
        ({"n_jobs": 1.5}, ParameterError),
        ({"tolerance": -1.0}, ParameterError),
        ({"tolerance": np.nan}, ParameterError),
        ({"tolerance": "small"}, ParameterError),
        ({"direction": "up"}, ParameterError),
        ({"seed": None}, ParameterError),
        ({"repeats": 0}, ParameterError),
        ({"f": 3}, ParameterError),
        ({"f": None}, ParameterError),
        ({"arms": np.zeros((0, 2))}, ArmsError),
        ({"arms": []}, ArmsError),
        ({"arms": None}, ArmsError),
        ({"arms": "table.csv"}, ArmsError),
        ({"arms": [[1.0], [2.0]]}, ArmsError),
        ({"callbacks": [3]}, ParameterError),
    ],
)
def test_wrong_settings_are_typed_errors_before_f_is_called(options, error):
    calls = []
    with pytest.raises(error) as caught:
        maximize(**{"f": lambda x: calls.append(1) or 1.0, **options})
    assert isinstance(caught.value, ManyArmsError)
    assert not calls


def test_the_optimizer_goes_on():
    found = maximize(budget=10)
    more = found.optimizer
    with pytest.raises(UnknownArmError):
        more.tell(99, 1.0)
    more.tell(more.ask(), [0.3])
    assert len(found.history) == 10
    assert len(more.history) == 11


# Progress


def test_no_progress_prints_nothing(capfd):
    maximize(progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("f", [height, lambda x: ma.FAILED])
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_progress_off_a_terminal_is_plain(capsys, f, direction):
    found = maximize(f, progress=True, direction=direction)
    out, err = capsys.readouterr()
    assert out == ""
    assert all(character.isprintable() or character == "\n" for character in err)
    assert err.count("\n") <= 2
    if err:
        assert "12/12" in err
        values = [t.value for t in found.history if not t.failed]
        best = (max if direction == "maximize" else min)(values) if values else None
        assert ("best ?" if best is None else f"best {best:.5g}") in err


def test_progress_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with pytest.raises(ZeroDivisionError):
        maximize(nth(3, ZeroDivisionError()), progress=True)
    assert len(maximize(progress=True).history) == 12, "no bar is left open"


def test_an_executor_evaluates_f_with_its_argument():
    with ThreadPoolExecutor(2) as executor:
        found = maximize(budget=12, n_jobs=2, executor=executor)
        assert executor.submit(int, "3").result() == 3  # it is left open
    assert len(found.history) == 12
    alone = maximize(budget=12, n_jobs=1, executor=ThreadPoolExecutor(1))
    assert alone.history == maximize(budget=12).history


class Client:
    """As Dask's: its own futures are of another kind; its executor has the usual ones."""

    def submit(self, f, x):
        raise AssertionError("these futures cannot be waited for here")

    def get_executor(self):
        return ThreadPoolExecutor(1)


def test_a_client_of_dask_gives_its_executor():
    assert maximize(budget=9, executor=Client()).history == maximize(budget=9).history


def test_what_is_no_executor_is_refused():
    with pytest.raises(ParameterError, match="submit"):
        maximize(executor="auto")
