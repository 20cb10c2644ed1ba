"""What must never happen, tried a few times; `make soak` tries it thousands of times (docs/reliability.md)."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from extras import needs
from soak import budget, damage, drift, kills, power, together, writers
from soak.common import at, pool

import manyarms as ma
from manyarms.errors import StudyDamagedError, StudyError, StudyStorageError
from manyarms.study.salvage import salvage
from manyarms.study.store import store_at

HERE = Path(__file__).parent.parent
HAS_SHIMS = shutil.which("cc") is not None and sys.platform.startswith("linux")


@pytest.fixture(params=["file", pytest.param("postgresql", marks=pytest.mark.postgres)])
def where(request, folder):
    return folder if request.param == "file" else f"{request.getfixturevalue('server')}#"


@pytest.mark.soak
def test_a_kill_loses_nothing(where):
    number = 50 if isinstance(where, Path) else 15
    found = kills.kills(where, number, longest=0.1)
    assert found.kills == number
    assert found.acknowledged > number
    assert found.slowest_cpu < 1


@pytest.mark.soak
def test_a_crowd_of_writers(where):
    writers.writers(where, 16, 200 if isinstance(where, Path) else 20)


@pytest.mark.soak
def test_runs_at_once_spend_one_budget_together(where):
    assert budget.kept(where, 3) == 3


@pytest.mark.parametrize(
    ("processes", "steps"),
    [(2, 30), *(pytest.param(n, 500, marks=pytest.mark.slow) for n in (2, 8))],
)
def test_processes_that_ask_and_tell_have_one_model(where, processes, steps):
    """Bit by bit that of a process that reads the log afterwards."""
    assert together.together(where, processes, steps) >= steps


@pytest.mark.soak
def test_a_writer_that_dies_with_the_lock(where):
    assert writers.dies_with_lock(where) < 1


@pytest.mark.soak
def test_a_file_cut_off_is_noticed(path):
    found = damage.cuts(path, 200)
    assert sum(found) == 200
    assert found.right < 50  # cuts in the last page, where that is one of the snapshot


@pytest.mark.soak
def test_a_bit_flipped_is_noticed_or_changes_nothing(path):
    found = damage.flips(path, 200)
    assert sum(found) == 200
    assert min(found) > 10


@pytest.mark.soak
@pytest.mark.skipif(not HAS_SHIMS, reason="needs a C compiler and Linux")
def test_a_disk_that_is_full_or_fails():
    done = subprocess.run(
        [sys.executable, "-m", "soak.disk", "--quick"],
        cwd=HERE,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "faults" in done.stdout


@pytest.mark.soak
@pytest.mark.skipif(not HAS_SHIMS, reason="needs a C compiler and Linux")
def test_a_power_cut_loses_nothing_that_was_acknowledged():
    found = power.cuts(60)
    assert found.cuts == 60
    assert found.acknowledged > 60
    assert found.rolled_back > 20


@pytest.mark.soak
@pytest.mark.skipif(not HAS_SHIMS, reason="needs a C compiler and Linux")
@pytest.mark.parametrize(("careless", "lost"), [("studies", "lab.db"), ("files", "is gone")])
def test_power_cuts_find_what_is_not_synced(careless, lost):
    with pytest.raises(AssertionError, match=lost):
        power.cuts(200, careless=careless)


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "over an empty file"])
def test_a_study_is_in_its_place_when_it_is_whole(path, is_there):
    """Nobody sees a part of it; nothing is left of one that is refused; of two who create at once one is refused."""
    if is_there:
        path.touch()
    store = store_at(path)
    seen = []

    def look(transaction):
        transaction.append("create", {"direction": "maximize", "seed": 0, "options": {}})
        seen.append(path.stat().st_size if path.exists() else None)

    def refuse(transaction):
        look(transaction)
        raise StudyError("it makes no sense")

    def slow(transaction):
        look(transaction)
        ma.Study.create(path, pool()).tell(0, [1.0])

    with pytest.raises(StudyError, match="no sense"):
        store.create(refuse)
    assert [each.name for each in path.parent.iterdir()] == [path.name] * is_there
    with pytest.raises(StudyError, match="already"):
        store.create(slow)
    assert seen == [0 if is_there else None] * 2
    assert len(ma.Study.open(path).history) == 1
    assert {each.name for each in path.parent.iterdir()} == {path.name, f"{path.name}-journal"}


@pytest.mark.parametrize("took_place", [True, False])
def test_the_commit_of_a_new_study_whose_answer_is_lost(where, monkeypatch, took_place):
    """A file that is not known to be whole is not put in its place."""
    location, is_file = at(where, f"new_{took_place}".lower()), isinstance(where, Path)
    store = type(store_at(location))
    commit = store.commit

    def lost(store):
        if took_place:
            commit(store)
        if not is_file:
            raise needs("postgres", "psycopg").OperationalError("the answer is lost")
        error = sqlite3.OperationalError("the answer is lost")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    monkeypatch.setattr(store, "commit", lost)
    what = "nothing was written" if is_file else "whether the study was made is not known"
    with pytest.raises(StudyStorageError, match=what):
        ma.Study.create(location, pool())
    monkeypatch.undo()
    if is_file or not took_place:
        ma.Study.create(location, pool())
    assert ma.Study.open(location).history == []


@pytest.mark.parametrize("took_place", [True, False])
def test_a_commit_whose_answer_is_lost(where, monkeypatch, took_place):
    study = ma.Study.create(at(where, f"answer_{took_place}".lower()), pool())
    connection = study._store
    commit = connection.commit
    if isinstance(where, Path):
        connection_lost = sqlite3.OperationalError("the answer is lost")
        connection_lost.sqlite_errorcode = sqlite3.SQLITE_IOERR
    else:
        psycopg = needs("postgres", "psycopg")
        connection_lost = psycopg.OperationalError("the answer is lost")

    def lost():
        monkeypatch.setattr(connection, "commit", commit)
        if took_place:
            commit()
        raise connection_lost

    monkeypatch.setattr(connection, "commit", lost)
    with (
        nullcontext()
        if took_place
        else pytest.raises(StudyStorageError, match="nothing was written")
    ):
        study.tell(0, [1.0])
    assert len(study.history) == took_place
    study.tell(1, [2.0])
    assert study.verify() == 2 + took_place


def test_a_study_survives_a_fork(path):
    study = ma.Study.create(path, pool(), worker="parent")
    study.tell(0, [5.0])
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            study.tell(1, [10.0])
            os.write(writer, str(len(study.history)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"2"
    study.tell(2, [7.0])
    assert [trial.value for trial in study.history] == [5.0, 10.0, 7.0]
    assert study.verify() == 4


def of_child(script):
    """What a forked child says; "hangs" after 20 seconds. The parent has read tables and started threads of its own."""
    code = f"""
import os, signal, sys
import manyarms as ma, numpy as np
from manyarms.search.work import in_parallel
from manyarms.errors import ArmsError
in_parallel(len, [" "] * 8)
X = np.random.default_rng(0).random((300, 2))
study = ma.Study.create("study.db", ma.Pool.from_array(X), noise=0.1)
study.tell(study.ask(3), [1.0, 2.0, 3.0])
if not os.fork():
    signal.alarm(20)
    {script}
    os._exit(0)
print("ended", os.waitstatus_to_exitcode(os.wait()[1]))
"""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_a_forked_child_goes_on_with_what_its_parent_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = of_child(
        "in_parallel(len, [''] * 8); ids = study.ask(2); study.tell(ids, [5, 6]); print(len(study.pool.rows(ids)), flush=1)"
    )
    assert said.split() == ["2", "ended", "0"]
    assert len(ma.Study.open("study.db").history) == 5


@pytest.mark.slow
def test_a_forked_child_that_needs_tables_is_told_so(tmp_path, monkeypatch):
    """And nothing is written, not even an empty file."""
    monkeypatch.chdir(tmp_path)
    Path("candidates.csv").write_text("a,b\n2,3\n")
    tries = [
        'ma.Study.open("study.db")',
        'ma.Study.create("other.db", study.pool)',
        'ma.Pool.from_csv("candidates.csv")',
        "ma.Pool.from_array(X)",
        "study.add(X + 1)",
    ]
    said = of_child(f"""
    for attempt in {tries}:
        try:
            eval(attempt)
        except ArmsError as error:
            print("refused" if "fork" in str(error) else error, flush=True)
    """)
    assert said.split() == ["refused"] * len(tries) + ["ended", "0"]
    assert not Path("other.db").exists()
    assert len(ma.Study.open("study.db").pool) == 300


def test_wal_is_not_used(path):
    """Some versions of SQLite may damage a file in WAL mode; a study that someone switched to it is switched back."""
    study = ma.Study.create(path, pool())
    study.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    study.tell(0, [1.0])
    assert study._store.execute("PRAGMA journal_mode").fetchone() == ("truncate",)


# Memory


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read in /proc")
def test_memory_of_many_tells_and_of_a_table_on_disk():
    assert drift.policy_tells(2000).bytes_each < 1000
    assert drift.study_tells(1000).milliseconds > 0
    # Nearly all of it is Python and what it has imported; the table has 64 MB.
    assert drift.from_disk(500_000, 32, 3, 5e7) < drift.own_memory() + 6e7


# Salvage


def a_study(path):
    study = ma.Study.create(
        path, ma.Pool.from_array(np.random.default_rng(0).random((40, 2))), worker="w"
    )
    for id in range(30):
        study.tell(id, [float(id)])
    study.add(np.array([[3.0, 3.0]]))
    study.tell(40, [100.0])
    study.ask()
    study.close()
    return study


def damaged_by(path, statement):
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def test_whole_events_behind_a_damaged_one_are_saved(folder):
    study = a_study(folder / "a.db")
    n = study.n_events
    study.close()
    damaged_by(
        folder / "a.db",
        "UPDATE events SET record = replace(record, '12.0', '13.0') WHERE number = 14",
    )
    with pytest.raises(StudyDamagedError):
        ma.Study.open(folder / "a.db")
    saved = salvage(folder / "a.db", folder / "b.db")
    assert (saved.events, saved.results, saved.lost) == (n - 1, 30, 1)
    again = ma.Study.open(folder / "b.db")
    assert [trial.value for trial in again.history] == [
        float(id) for id in range(30) if id != 12
    ] + [100.0]
    assert len(again.leases) == 1
    assert again.best().recommended.id == 40
    with pytest.raises(StudyError, match="already"):
        salvage(folder / "a.db", folder / "b.db")


def test_what_is_lost_with_its_predecessor_and_its_candidates(folder):
    a_study(folder / "a.db")
    damaged_by(folder / "a.db", "DELETE FROM events WHERE number = 14")
    assert (
        salvage(folder / "a.db", folder / "b.db").lost == 2
    )  # the next one's digest cannot be checked
    damaged_by(folder / "a.db", "DELETE FROM events WHERE kind = 'add'")
    saved = salvage(folder / "a.db", folder / "c.db")
    assert len(ma.Study.open(folder / "c.db").history) == saved.results == 28
    damaged_by(folder / "a.db", "DELETE FROM blobs")
    with pytest.raises(StudyDamagedError, match="candidates"):
        salvage(folder / "a.db", folder / "d.db")
    assert not (folder / "d.db").exists()
    damaged_by(folder / "a.db", "DELETE FROM events WHERE number = 1")
    with pytest.raises(StudyDamagedError, match="settings"):
        salvage(folder / "a.db", folder / "d.db")
    with pytest.raises(StudyError, match="no file"):
        salvage(folder / "none.db", folder / "d.db")


def test_of_a_file_cut_off_what_is_there_is_saved(folder):
    study = a_study(folder / "a.db")
    history = study.history
    study.close()
    whole = (folder / "a.db").read_bytes()
    counts = []
    for i, share in enumerate((0.5, 0.8, 0.95)):
        (folder / "cut.db").write_bytes(whole[: int(share * len(whole))])
        try:
            saved = salvage(folder / "cut.db", folder / f"{i}.db")
        except StudyDamagedError:
            counts.append(0)
            continue
        found = ma.Study.open(folder / f"{i}.db").history
        assert len(found) == saved.results
        assert {(trial.id, trial.value) for trial in found} <= {
            (trial.id, trial.value) for trial in history
        }
        counts.append(len(found))
    assert counts[-1] > 0
