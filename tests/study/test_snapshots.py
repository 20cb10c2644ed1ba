"""Snapshots change nothing but the time that opening takes; others need not wait for learning."""

import os
import sqlite3
import threading

import numpy as np
import pytest
from models import assert_equal
from soak import common

import manyarms as ma
from manyarms.campaign.model import learn
from manyarms.campaign.proposing import propose
from manyarms.errors import StudyStorageError

X = np.random.default_rng(0).random((400, 2))
BIG = np.random.default_rng(1).random((6000, 2))


def value(rows, id, step):
    row = rows[id] if id < len(rows) else rows[id - len(rows)] + 1.0
    return float(np.sin(5 * row).sum() + 0.1 * np.random.default_rng([7, step]).normal())


def run(study, rows, start, stop):
    for step in range(start, stop):
        (asked,) = study.ask()
        study.tell(asked, [value(rows, asked, step)], noise=0.05 if step % 3 == 0 else None)


def created(path, every, rows, **options):
    """A study that keeps a snapshot every so many results."""
    study = ma.Study.create(path, ma.Pool.from_array(rows), **options)
    study._replica.snapshot_every = every
    return study


def model_of(study):
    with study._replica.learned() as campaign:
        return campaign.model


def resumed(path):
    """The results that a study knows from a snapshot when it is opened."""
    study = ma.Study.open(path)
    study._replica._resume()
    model = study._replica._model
    return 0 if model is None else model.n_results


GIVEN = {"kernel": ma.kernels.RBF(0.2), "noise": 0.1}
CASES = {
    "small": (X, {}),
    "given": (BIG, GIVEN),
    "certified": (BIG, {**GIVEN, "confidence": ma.Certified(2.0, 0.1)}),
    "learned": (BIG, {}),
    "capped": (BIG, {"rule": ma.Inserted(most=6)}),
    "loose": (BIG, {**GIVEN, "rule": ma.Inserted(0.5)}),
    "doubling": (BIG, {**GIVEN, "confidence": ma.Theory(0.1, 0.1, double=True)}),
}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", CASES)
def test_a_model_from_a_snapshot_is_the_model_from_nothing(path, name, seed):
    rows, options = CASES[name]
    made = created(path, 10, rows, seed=seed, **options)
    run(made, rows, 0, 15)
    made.add(rows[:5] + 1.0)
    run(made, rows, 15, 39)
    made.best()
    assert 20 <= resumed(path) <= 39
    again = ma.Study.open(path)
    expected = model_of(made)
    assert_equal(model_of(again), expected)
    assert_equal(learn(expected.settings, expected.arms, expected.results), expected)
    run(again, rows, 39, 45)
    after = propose(again._replica.campaign(), 3)
    assert made.ask(3) == after.names([each.position for each in after.pending[-3:]])
    assert_equal(model_of(made), model_of(again))


@pytest.mark.parametrize("options", [{}, GIVEN], ids=["learned", "given"])
def test_a_snapshot_is_restored_without_observing_anything(path, options):
    made = created(path, 1, X, **options)
    run(made, X, 0, 25)
    made.best()
    again = ma.Study.open(path)
    assert again.best() == made.best()
    assert "observations" not in again.policy.stats.counts


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE blobs SET data = zeroblob(length(data)) WHERE digest IN (SELECT digest FROM snapshots)",
        "UPDATE snapshots SET digest = (SELECT min(digest) FROM blobs WHERE digest NOT IN (SELECT digest FROM snapshots))",
        "UPDATE snapshots SET number = number - 1",
        "DELETE FROM blobs WHERE digest IN (SELECT digest FROM snapshots)",
        "DELETE FROM snapshots",
    ],
)
def test_a_snapshot_that_is_wrong_old_or_missing_is_none(path, statement):
    made = created(path, 5, X)
    run(made, X, 0, 12)
    expected = made.best()
    made.close()
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    assert resumed(path) == 0
    again = ma.Study.open(path)
    assert again.best() == expected
    assert again.verify() == again.n_events


def test_what_comes_after_a_correction_goes_on_from_a_snapshot_of_before(path):
    made = created(path, 5, X, **GIVEN)
    run(made, X, 0, 40)
    made.best()
    made.correct(made.history[-1], 3.0)
    assert 16 <= resumed(path) < 40
    again = ma.Study.open(path)
    assert_equal(model_of(again), model_of(made))
    assert again.policy.stats.counts["observations"] < 24


def test_a_snapshot_is_of_the_results_and_the_settings(path, tmp_path):
    for name, seed, shift in (("a", 0, 0.0), ("b", 1, 0.0), ("c", 0, 1e-9)):
        study = created(tmp_path / name, 5, X, seed=seed, **GIVEN)
        study.tell(range(10), np.arange(10) + shift)
        study.best()
        study.close()
    others = tmp_path / "b", tmp_path / "c"
    with sqlite3.connect(tmp_path / "a") as connection:
        connection.execute("DELETE FROM blobs WHERE digest IN (SELECT digest FROM snapshots)")
        connection.execute("DELETE FROM snapshots")
    for other in others:
        with sqlite3.connect(tmp_path / "a") as connection:
            connection.execute("ATTACH ? AS other", (str(other),))
            connection.execute("DELETE FROM snapshots")
            connection.execute("INSERT INTO snapshots SELECT * FROM other.snapshots")
            connection.execute(
                "INSERT OR IGNORE INTO blobs SELECT * FROM other.blobs "
                "WHERE digest IN (SELECT digest FROM other.snapshots)"
            )
        connection.close()
        assert resumed(other) == 10
        assert resumed(tmp_path / "a") == 0


def test_others_write_while_one_learns(path, monkeypatch):
    slow = ma.Study.create(path, ma.Pool.from_array(X))
    quick = ma.Study.open(path)
    for id in range(8):
        slow.tell(id, [value(X, id, id)])
    learning_now, go_on = threading.Event(), threading.Event()
    campaign = slow._replica.campaign

    def wait(*given):
        learning_now.set()
        assert go_on.wait(60)
        return campaign(*given)

    monkeypatch.setattr(slow._replica, "campaign", wait)
    thread = threading.Thread(target=slow.best)
    thread.start()
    assert learning_now.wait(60)
    quick.tell(9, [0.5])
    go_on.set()
    thread.join()
    assert len(slow.history) == 9


def test_the_size_of_the_sketch(path):
    made = ma.Study.create(path, ma.Pool.from_array(X))
    run(made, X, 0, 12)
    assert made.size.n_results == 12
    assert made.size.n_inducing == len(made.policy.inducing)
    assert made.size == ma.Study.open(path).size


def _read_only(path, expected):
    ma.Study.open(path).best()  # loads modules, which root alone may be able to read
    if os.geteuid() == 0:
        os.setuid(65534)
    reader = ma.Study.open(path)
    reader._replica.snapshot_every = 1
    assert reader.history == expected
    assert reader.best() == reader.best()
    assert reader.size.n_results == 12
    with pytest.raises(StudyStorageError, match="readonly"):
        reader.tell(0, [1.0])


@pytest.mark.slow
def test_who_cannot_write_can_read(path):
    """In a process that has no right to write to the file."""
    made = ma.Study.create(path, ma.Pool.from_array(X))
    run(made, X, 0, 12)
    expected = made.history
    made.close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    child = common.start(_read_only, path, expected)
    child.join(60)
    assert child.exitcode == 0
    path.parent.chmod(0o755)
    path.chmod(0o644)
    assert made.best().recommended.id is not None


def test_a_disk_that_is_full_still_answers(path, monkeypatch):
    made = created(path, 5, BIG)
    run(made, BIG, 0, 10)
    writing = made._store.writing

    def full():
        raise StudyStorageError("no space left; nothing was written")

    for id in range(6):
        made.tell(id, [value(BIG, id, id)])
    monkeypatch.setattr(made._store, "writing", full)
    assert made.best() == made.best()
    before = resumed(path)
    monkeypatch.setattr(made._store, "writing", writing)
    (asked,) = made.ask()
    assert resumed(path) > before
    again = ma.Study.open(path)
    assert again.pending == [asked]
    assert_equal(model_of(made), model_of(again))
    made.verify()
