"""The books that a study keeps, so that a call that only appends need not read the whole log: they say what the log says."""

import contextlib
import sqlite3

import numpy as np
import pytest
from soak.forged import books_every, kept_books, put_books
from soak.together import digest

import manyarms as ma
from manyarms.study import books, replica
from manyarms.study.replica import Replica
from manyarms.study.store import Transaction


@pytest.fixture
def kept(monkeypatch):
    """Books are kept at every call that writes."""
    monkeypatch.setattr(replica, "BOOKS", 1)
    monkeypatch.setattr(replica, "SHARE", 10**9)


def known(study):
    """All that the books of a study say."""
    replay = study._replica.replay
    ledger = replay.ledger
    outcomes = ledger.outcomes
    return {
        "history": [(each, each.event, each.note, each.batch) for each in replay.history],
        "leases": replay.leases,
        "pending": ledger.pending,
        "entries": outcomes.entries.items.tobytes(),
        "taken": outcomes.taken.items.tolist(),
        "flags": (outcomes.n, outcomes.is_changed, outcomes.has_grown),
        "order": ledger.order.tolist(),
        "tokens": replay.tokens,
        "sources": replay.sources,
        "made": replay.made,
        "X": ledger.candidates.X.tobytes(),
        "head": study._replica.head,
    }


def n_read(path, monkeypatch):
    """How many events are read to open a study."""
    read = []
    since = Transaction.since

    def counted(transaction, head):
        found = since(transaction, head)
        read.extend(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "since", counted)
        ma.Study.open(path).close()
    return len(read)


def test_books_say_what_the_log_says_whatever_was_done(path, kept, monkeypatch):
    rows = [{"name": f"n{i}", "x": i, "kind": "ab"[i % 2], "size": i % 3} for i in range(12)]
    study = ma.Study.create(path, ma.Pool.from_dicts(rows, id="name"), worker="one")
    calls = [
        lambda: study.ask(3),
        lambda: study.tell(study.pending[:1], [1.0], token="t", note="first", batch=[2]),
        lambda: study.tell(["n7", "n8"], [2.0, ma.FAILED], noise=[0.1, 0.2]),
        lambda: study.ask(2, lease=1e-9),
        lambda: study.tell("n9", [4.0]),
        lambda: study.ask(1),
        lambda: study.correct("n7", [2.5], note="typo"),
        lambda: study.retire(["n3", "n4"]),
        lambda: study.restore("n3"),
        lambda: study.add([{"name": "n12", "x": 12, "kind": "a", "size": 2}]),
        lambda: study.tell("n12", [0.5]),
        lambda: study.retype({"size": "categorical"}),
        lambda: study.tell("n12", [0.6]),
        study.undo,
        lambda: study.correct("n9", [None]),
        lambda: study.release(study.pending[:1]),
        study.undo,
        study.renew,
        lambda: study.ask(4),
    ]
    for call in calls:
        call()
        by_books = known(ma.Study.open(path))
        with monkeypatch.context() as patch:
            patch.setattr(Replica, "_open_books", lambda *_: None)
            by_log = known(ma.Study.open(path))
        study.n_results  # noqa: B018  takes in its own events
        assert by_books == by_log == known(study)
    assert n_read(path, monkeypatch) == 1  # of the last call
    assert ma.Study.open(path).verify() == study.n_events


def test_a_long_log_is_read_from_its_books_on(path, monkeypatch):
    monkeypatch.setattr(replica, "BOOKS", 20)
    study = ma.Study.create(path, ma.Pool.from_array(np.eye(30)))
    for i in range(90):
        study.tell(i % 30, [float(i)])
    assert n_read(path, monkeypatch) <= 21
    with ma.Study.open(path) as again:
        assert again.best() == study.best()
        assert [each.value for each in again.results_of([0, 5])] == [
            0.0,
            5.0,
            30.0,
            35.0,
            60.0,
            65.0,
        ]


def test_books_of_any_age_give_the_same_answers(path, kept, tmp_path):
    """The newest ones, some ten events behind, and none: what is asked for next is the same, too."""
    study = ma.Study.create(
        path, ma.Pool.from_array(np.random.default_rng(0).random((40, 2))), seed=3
    )
    old = b""
    for step in range(25):
        study.tell(study.ask(), [float(step % 7)], note=f"{step}", token=f"job {step}")
        old = kept_books(path) if step == 19 else old
    study.close()
    files = [path, tmp_path / "old.db", tmp_path / "none.db"]
    for file in files[1:]:
        file.write_bytes(path.read_bytes())
    put_books(files[1], old)
    put_books(files[2], b"")
    booked, said = [], []
    for file in files:
        with ma.Study.open(file, worker="w") as again:
            booked.append(again._replica._booked)
            said.append((known(again), digest(again), again.ask(2), again.n_events))
    assert booked == [50, 40, 0]
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("how", ["damaged", "of another log", "of another make", "nonsense"])
def test_books_that_are_not_of_this_log_are_left_aside(path, kept, monkeypatch, how):
    study = ma.Study.create(path, ma.Pool.from_array(np.eye(5)))
    for i in range(4):
        study.tell(i, [float(i)])
    expected = study.history
    with study._store.writing() as transaction:
        data = transaction.books()
        head = f'"head": [{transaction.head.number - 1}, "'.encode()
        assert head in data
        if how == "damaged":
            study._store.execute(
                "UPDATE blobs SET data = ? WHERE length(data) = ?", (data[:-1], len(data))
            )
        elif how == "of another log":
            transaction.put_books(data.replace(head, head + b"0"))
        elif how == "of another make":
            transaction.put_books(data.replace(b"books 2", b"books 0"))
        else:
            transaction.put_books(data[: len(data) // 2])
    assert ma.Study.open(path).history == expected
    assert n_read(path, monkeypatch) == 5


def test_a_box_keeps_none(path, kept):
    study = ma.Study.create(path, ma.Box(x=(0.0, 1.0)))
    study.tell(study.ask(3), [1.0, 2.0, 3.0])
    with study._store.reading() as transaction:
        assert transaction.books() is None
    assert ma.Study.open(path).history == study.history


def test_books_newer_than_the_log_are_left_aside(path, kept):
    study = ma.Study.create(path, ma.Pool.from_array(np.eye(9)))
    for i in range(6):
        study.tell(i, [float(i)])
    study.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM events WHERE number > 4")
        connection.execute(
            "UPDATE head SET (number, digest) = (SELECT number, digest FROM events WHERE number = 4)"
        )
    for n in range(3, 7):  # another log grows past the event that they name
        with ma.Study.open(path) as again:
            assert [each.value for each in again.history] == [0.0, 1.0, 2.0, 7.0, 7.0, 7.0][:n]
            with books_every(10**6):
                again.tell(n, [7.0])


def test_nobody_waits_while_books_are_read(path, kept, monkeypatch):
    study = ma.Study.create(path, ma.Pool.from_array(np.eye(9)))
    for i in range(4):
        study.tell(i, [float(i)])
    read = books.read

    def beside(*given):
        study.tell(5, [5.0])
        return read(*given)

    monkeypatch.setattr(books, "read", beside)
    assert len(ma.Study.open(path).history) == 5
