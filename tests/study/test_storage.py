"""A study's file and its database: locks, interrupts, places, rights, leases."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import manyarms, said
from extras import needs
from soak import interrupts, writers
from soak.common import N, at, pool

import manyarms as ma
from manyarms.errors import ParameterError, StudyError, StudyStorageError
from manyarms.study.location import as_location
from manyarms.testing import CHECKS

HERE = Path(__file__).parent.parent
posix = pytest.mark.skipif(os.name == "nt", reason="signals and rights of POSIX")


@pytest.fixture(params=["file", pytest.param("postgresql", marks=pytest.mark.postgres)])
def where(request, folder):
    return folder if request.param == "file" else f"{request.getfixturevalue('server')}#"


# Places of any kind


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_place_for_studies(check, where):
    check(at(where, check.__name__))


# Interrupts


@posix
@pytest.mark.soak
def test_interrupts_leave_no_lock_and_lose_nothing(where):
    found = interrupts.interrupts(where, 100, 2)
    assert found.hangs == 0
    assert found.raised > 3  # on a busy machine many of them come in one transaction
    assert found.acknowledged > 2


@posix
def test_an_interrupt_waits_for_the_end_of_a_transaction(path):
    """Also one that comes again and again, and whatever its handler raises."""
    study = ma.Study.create(path, pool())
    before = signal.signal(signal.SIGALRM, _overslept)
    try:
        with pytest.raises(TimeoutError), study._store.writing() as transaction:  # noqa: PT012
            for _ in range(3):
                signal.raise_signal(signal.SIGALRM)
            transaction.append("retire", {"ids": [3], "worker": "w"})
    finally:
        signal.signal(signal.SIGALRM, before)
    assert study.n_events == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ma.Study.open(path).tell(0, [1.0])


def _overslept(number, frame):
    raise TimeoutError


@posix
def test_what_takes_long_can_be_interrupted_and_is_rolled_back(path):
    from manyarms.runtime.signals import deferred, interruptible

    study = ma.Study.create(path, pool())
    with pytest.raises(KeyboardInterrupt), study._replica.writing() as transaction:  # noqa: PT012
        transaction.append("retire", {"ids": [3], "worker": "w"})
        with interruptible():
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the interrupt did not come through")
    assert study.n_events == 1
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():  # noqa: PT012
        with interruptible(), deferred():
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("outer")
    assert done == ["inner"]


@pytest.mark.slow
@posix
def test_who_waits_for_a_lock_can_be_interrupted(where):
    """And says for whom it waits."""
    location = at(where, "waits")
    ma.Study.create(location, pool()).close()
    holder = ma.Study.open(location)
    script = f"""
import signal, sys, warnings, manyarms as ma
from manyarms.study import store
store.PATIENCE = 0.2
study = ma.Study.open({str(location)!r})
print("ready", flush=True)
try:
    study.tell(0, [1.0])
except KeyboardInterrupt:
    print("interrupted")
"""
    with holder._store.writing():
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        child.stdout.readline()
        time.sleep(3 if isinstance(where, str) else 1)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert out == "interrupted\n"
    assert "waiting for" in err
    if sys.platform == "linux":
        assert str(os.getpid()) in err
    assert holder.history == []


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="where there are locks of open files")
def test_writers_take_turns(folder):
    """No one waits for much longer than all others take together."""
    found = writers.writers(folder, 12, 40)
    assert found.longest < max(1.0, found.total / 4)


@posix
def test_a_process_that_was_stopped_in_line_is_passed_by(path):
    """A writer that stands in front, and is stopped there, does not keep the others for ever."""
    from manyarms.study.sqlite import in_line

    study = ma.Study.create(path, pool())
    study.tell(0, [1.0])
    with in_line(path.with_name("study.db-journal")):
        begun = time.perf_counter()
        study.tell(1, [2.0])
        if sys.platform == "linux":
            assert time.perf_counter() - begun > 0.4
    assert len(study.history) == 2


def test_a_thread_that_writes_is_not_disturbed_by_one_that_opens(path):
    """Closing a file gives up the locks of its process: to look at a study must not do that."""
    study = ma.Study.create(path, pool())
    try_to_write = f"""
import sqlite3
try:
    sqlite3.connect({str(path)!r}, timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
    print("wrote")
except sqlite3.OperationalError as error:
    print(error)
"""
    with study._store.writing() as transaction:
        transaction.append("retire", {"ids": [3], "worker": "w"})
        opens = threading.Thread(target=lambda: ma.Study.open(path).close())
        opens.start()
        opens.join()
        done = subprocess.run(
            [sys.executable, "-c", try_to_write], capture_output=True, text=True, check=True
        )
    assert done.stdout == "database is locked\n"


# Places

SECRETS = [
    "postgresql://me:secret@127.0.0.1:1/x",
    "postgresql://me@127.0.0.1:1/x?password=secret",
    "postgresql://me:a/secret@127.0.0.1:1/x",
    "postgresql://me:a@secret@127.0.0.1:1/x",
    "postgresql://me:a#secret@127.0.0.1:1/x",
    "postgresql://127.0.0.1:1/x?password=a#SECRET-secret",
    "postgresql://me:secret/x",
    "postgresql://me:secret@host:port/x",
    "postgresql://me:secret@host:99999/x",
    "postgresql://127.0.0.1:1/me:secret@host/x",
    "postgresql:/me:secret@host/x",
    "postgresql+secret:me:secret@host/x",
    "postgresql://me@127.0.0.1:1/x?port=secret",
    "postgresql://me@127.0.0.1:1/x?sslmode=secret",
    "postgresql://me:secret\0@host/x",
    "postgresql://me:secret@host/" + "x" * 5000,
    "postgres://me:secret@[::1:1/x",
    "mysql://me:secret@host/x",
    "secret://me:secret@host/x",
    "://me:secret@host",
    "postgresql//me:secret@host/x",
    "postgresql//me@host/x?password=secret",
    "PostgreSQL//me:secret",
    "me:secret@host/x",
    "//me:secret@host/x",
    "postgresql;//me:secret@host/x",
    "host=there user=me password=secret",
]


@pytest.mark.parametrize("url", SECRETS)
def test_no_password_is_shown(url, monkeypatch):
    """Neither by the library, nor by the program with its traceback."""
    with pytest.raises(StudyError) as caught:
        ma.Study.open(url)
    assert "secret" not in str(caught.value).lower()
    monkeypatch.setenv("MANYARMS_TRACEBACK", "1")
    assert "secret" not in said("status", url).err.lower()


def test_a_url_without_its_driver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "manyarms.study.postgres", raising=False)
    with pytest.raises(StudyError, match=r"pip install 'manyarms\[postgres\]'"):
        ma.Study.open("postgresql://me@127.0.0.1:1/x")


@pytest.mark.parametrize(
    "name",
    ["a:b@c.db", "postgresql.db", "postgres/me@host.db", "C:\\me@host.db", "10:30.db", "~me"],
)
def test_a_file_may_have_such_a_name(folder, name):
    """From its directory on, or where nothing in it looks like a password."""
    assert as_location(folder / name).path == folder / name
    assert as_location(name if name != "a:b@c.db" else f"./{name}").server is None


@pytest.mark.postgres
@pytest.mark.parametrize("option", ["autocommit=1", "foo=secret", "prepare_threshold=1"])
def test_an_option_that_the_server_does_not_know_is_refused(server, option):
    """Also one that the driver would take: without transactions nothing would be safe."""
    with pytest.raises(StudyError, match="check the options in its URL") as caught:
        ma.Study.create(f"{server}&{option}#options", pool())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown", "server"),
    [
        (
            "postgresql+psycopg://me:a%2Fb@[::1]:5/x?sslmode=require#lab",
            "postgresql://me:***@[::1]:5/x#lab",
            {
                "user": "me",
                "password": "a/b",
                "host": "::1",
                "port": "5",
                "dbname": "x",
                "sslmode": "require",
            },
        ),
        (
            "postgres://%2Ftmp%2Fsocket/x",
            "postgresql://%2Ftmp%2Fsocket/x",
            {"host": "/tmp/socket", "dbname": "x"},
        ),
        (
            "postgresql://me:@/x?host=/tmp/socket",
            "postgresql://me:***@/x",
            {"user": "me", "host": "/tmp/socket", "dbname": "x"},
        ),
    ],
)
def test_what_a_url_says(url, shown, server):
    found = as_location(url)
    assert (found.shown, found.server) == (shown, server)


@pytest.mark.postgres
def test_a_report_has_the_name_of_the_study_and_not_its_url(server, folder):
    url = f"{server}#named"
    ma.Study.create(url, ma.Pool.from_array(np.eye(3))).tell(0, [1.0])
    manyarms("report", url, "-o", folder / "report.html")
    page = (folder / "report.html").read_text()
    assert "<title>named</title>" in page
    assert "postgresql:" not in page


WRONG = [None, ["a.db"], b"a.db", 3, "", "a\0.db", "x" * 300 + ".db", "x" * 9999, "\ud800.db"]


@pytest.mark.parametrize("location", WRONG)
def test_a_wrong_place_is_refused(location, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (lambda: ma.Study.open(location), lambda: ma.Study.create(location, np.eye(3))):
        with pytest.raises(StudyError) as caught:
            call()
        str(caught.value).encode()
    assert not list(tmp_path.iterdir())


def test_a_process_that_goes_to_another_directory_keeps_its_file(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    study = ma.Study.create("study.db", pool())
    study.close()
    monkeypatch.chdir(tmp_path)
    study.tell(0, [1.0])
    assert len(ma.Study.open(folder / "study.db").history) == 1
    assert not (tmp_path / "study.db").exists()


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 201, "", None, ["w"], b"w"])
def test_a_wrong_token_or_worker_is_refused(path, name):
    study = ma.Study.create(path, np.eye(3))
    if name is not None:
        with pytest.raises(ParameterError, match="worker"):
            ma.Study.open(path, worker=name)
        with pytest.raises(ParameterError, match="token"):
            study.tell(0, [1.0], token=name)
    assert study.n_events == 1


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "PERSIST"])
def test_the_file_of_another_program_is_not_touched(folder, mode):
    path = folder / "other.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for call in (ma.Study.open, lambda place: ma.Study.create(place, np.eye(3))):
        with pytest.raises(StudyError):
            call(path)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@posix
def test_files_are_for_their_owner(folder, path):
    study = ma.Study.create(path, np.eye(3))
    study.tell(0, [1.0])
    manyarms("export", path, "-o", folder / "study.json")
    manyarms("suggest", path, "-o", folder / "next.csv")
    study.close()
    files = list(folder.iterdir())
    assert len(files) == 4  # and the journal
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


@posix
def test_a_link_is_not_followed(folder, path, monkeypatch):
    """Neither in place of a draft, whose name cannot be known, nor in place of the file itself."""
    ma.Study.create(path, np.eye(3)).close()
    victim = folder / "victim"
    victim.write_text("precious")
    (folder / f".out.json.{os.getpid()}").symlink_to(victim)
    (folder / "out.json").symlink_to(victim)
    manyarms("export", path, "-o", folder / "out.json", "--force")
    assert victim.read_text() == "precious"
    assert not (folder / "out.json").is_symlink()


# Files that are replaced


def a_study(path, *told):
    study = ma.Study.create(path, pool(), seed=len(told))
    for id, value in enumerate(told):
        study.tell(id, [value])
    return study


def refuses(study):
    for call in (
        lambda: study.tell(9, [9.0]),
        study.ask,
        lambda: study.history,
        study.best,
    ):
        with pytest.raises(StudyError, match="open it again"):
            call()
    study.close()
    with pytest.raises(StudyError, match="open it again"):
        study.tell(9, [9.0])


@pytest.mark.parametrize("how", ["another", "older", "removed", "in place"])
def test_a_study_whose_file_was_replaced_refuses_until_it_is_opened_again(folder, path, how):
    study = a_study(path, 1.0, 2.0)
    if how == "another":
        a_study(folder / "other.db", 5.0, 6.0, 7.0).close()
        (folder / "other.db").replace(path)
    elif how == "removed":
        path.unlink()
    else:
        study.close()
        older = path.read_bytes()
        study.tell(3, [4.0])
        if how == "older":
            (folder / "copy.db").write_bytes(older)
            (folder / "copy.db").replace(path)
        else:
            study.close()
            path.write_bytes(older)
    there = path.read_bytes() if path.exists() else None
    refuses(study)
    assert (path.read_bytes() if path.exists() else None) == there
    if how != "removed":
        ma.Study.open(path).tell(9, [9.0])


@pytest.mark.postgres
def test_a_schema_that_was_made_anew_is_refused_too(server):
    psycopg = needs("postgres", "psycopg")

    url = f"{server}#anew"
    study = a_study(url, 1.0, 2.0)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA anew CASCADE")
    a_study(url, 5.0, 6.0, 7.0)
    refuses(study)
    assert len(ma.Study.open(url).history) == 3


# Leases


def test_a_lease_ends_by_itself(path):
    """So what a worker had that crashed is given back, though it asked for no lease."""
    study = ma.Study.create(path, pool(), worker="crashed")
    study.ask()
    (lease,) = study.leases
    assert 86_000 < lease.until - time.time() <= 86_400
    study.renew()
    (lease,) = study.leases
    assert 86_000 < lease.until - time.time() <= 86_400


@pytest.mark.parametrize("lease", [np.inf, np.nan, 1e300, 1e9, 10**400, -1])
def test_a_lease_has_a_ceiling(path, lease):
    study = ma.Study.create(path, pool())
    with pytest.raises(ParameterError, match="lease"):
        ma.Study.open(path, lease=lease)
    with pytest.raises(ParameterError, match="lease"):
        study.ask(lease=lease)
    study.ask()
    with pytest.raises(ParameterError, match="lease"):
        study.renew(lease)


@pytest.mark.parametrize("until", [None, 1e300, 1e12, -1e300])
def test_status_says_what_is_stored_whatever_that_is(path, until):
    study = ma.Study.create(path, pool(), worker="w")
    study.tell(0, [1.0])
    with study._replica.writing() as transaction:
        said_of = {"forecasts": [None], "reasons": [""]}
        transaction.append("ask", {"ids": [1], "worker": "w", "until": until, **said_of})
    for command in ("status", "history", "doctor"):
        manyarms(command, path, "--json")
        assert said(command, path).code == 0


def test_a_place_that_cannot_be_written_is_said(folder):
    if os.name == "nt" or os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder.chmod(0o500)
    with pytest.raises(StudyStorageError):
        ma.Study.create(folder / "study.db", np.eye(N))
    folder.chmod(0o700)
