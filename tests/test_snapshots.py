"""Snapshots change nothing but the time that opening takes; backlogs are learned without the lock."""

import os
import sqlite3
import threading
from dataclasses import astuple

import numpy as np
import pytest
from soak import common

import manyarms as ma
from manyarms import plots
from manyarms.errors import StudyStorageError
from manyarms.study import learning, snapshot

X = np.random.default_rng(0).random((400, 2))
BIG = np.random.default_rng(1).random((6000, 2))


def value(rows, id, step):
    row = rows[id] if id < len(rows) else rows[id - len(rows)] + 1.0
    return float(np.sin(5 * row).sum() + 0.1 * np.random.default_rng([7, step]).normal())


def run(study, rows, start, stop):
    for step in range(start, stop):
        (asked,) = study.ask()
        study.tell(asked, [value(rows, asked, step)], noise=0.05 if step % 3 == 0 else None)


def known(study):
    policy = study.policy
    log = policy.log
    decided = policy.belief.keys.tolist(), log.arms.tolist(), log.sizes.tolist(), study.history
    return decided, (log.weights, log.rewards), policy.evidence


def assert_alike(one, other):
    mine, its = known(one), known(other)
    assert mine[0] == its[0]
    np.testing.assert_allclose(mine[1], its[1], rtol=1e-12)
    for name, number in vars(mine[2]).items():
        if isinstance(number, float):
            assert number == pytest.approx(getattr(its[2], name), rel=1e-8, abs=1e-12), name
    assert mine[2].n_observations == its[2].n_observations
    assert mine[2].effective_dimension == pytest.approx(its[2].effective_dimension, rel=1e-8)
    np.testing.assert_allclose(
        one.policy.predict().mean, other.policy.predict().mean, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(
        one.policy.predict().std, other.policy.predict().std, rtol=1e-6, atol=1e-9
    )


def created(path, every, rows, **options):
    """A study that keeps a snapshot every so many results."""
    study = ma.Study.create(path, ma.Pool.from_array(rows), **options)
    study._replica.snapshot_every = every
    return study


def resumed(study):
    """The model of the snapshot and the steps it has taken, if there is one."""
    with study._store.reading() as transaction:
        return snapshot.resume(transaction, study._replica.replay, study._replica._prior, 0)


CASES = {
    "small": (X, {}),
    "given": (BIG, {"kernel": ma.kernels.RBF(0.2), "noise": 0.1}),
    "certified": (
        BIG,
        {"kernel": ma.kernels.RBF(0.2), "noise": 0.1, "confidence": ma.Certified(2.0, 0.1)},
    ),
    "learned": (BIG, {}),
    "capped": (BIG, {"rule": ma.Inserted(most=6)}),
    "loose": (BIG, {"kernel": ma.kernels.RBF(0.2), "noise": 0.1, "rule": ma.Inserted(0.5)}),
    "doubling": (
        BIG,
        {
            "kernel": ma.kernels.RBF(0.2),
            "noise": 0.1,
            "confidence": ma.Theory(0.1, 0.1, double=True),
        },
    ),
}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", CASES)
def test_a_state_from_a_snapshot_is_the_state_from_the_log(path, name, seed):
    rows, options = CASES[name]
    made = created(path, 10, rows, seed=seed, **options)
    run(made, rows, 0, 15)
    made.add(rows[:5] + 1.0)
    run(made, rows, 15, 39)
    made.best()
    assert 0 < made.snapshot_bytes < 8 * 39**2 + 20_000
    with_snapshot = ma.Study.open(path)
    _, done = resumed(with_snapshot)
    assert done >= 20  # steps that are not taken again
    with_snapshot.best()
    made.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM snapshots")
    connection.close()
    from_log = ma.Study.open(path)
    assert resumed(from_log) is None
    assert_alike(with_snapshot, from_log)
    assert (
        with_snapshot.ask(3) == from_log._replica.campaign(from_log._replica._learner).asked(3)[1]
    )


@pytest.mark.parametrize(
    "options", [{}, {"kernel": ma.kernels.RBF(0.2), "noise": 0.1}], ids=["learned", "given"]
)
def test_a_snapshot_is_restored_without_observing_anything(path, options):
    made = created(path, 1, X, **options)
    run(made, X, 0, 25)
    expected = made.best()
    again = ma.Study.open(path)
    found = again.best()
    assert found.measured.id == expected.measured.id
    assert astuple(found.recommended) == pytest.approx(astuple(expected.recommended), rel=1e-9)
    assert again.policy.evidence.n_observations == 25
    assert "observations" not in again.policy.stats.counts  # nothing is observed again
    run(again, X, 25, 30)  # and it goes on
    assert len(made.history) == 30
    assert_alike(made, again)


def test_a_damaged_snapshot_is_ignored_with_a_warning(path):
    made = created(path, 5, X)
    run(made, X, 0, 12)
    expected = made.best()
    made.close()
    for statement in (
        "UPDATE blobs SET data = zeroblob(length(data)) WHERE digest IN (SELECT digest FROM snapshots)",
        "DELETE FROM blobs WHERE digest IN (SELECT digest FROM snapshots)",
        "UPDATE snapshots SET digest = NULL",
    ):
        with sqlite3.connect(path) as connection:
            if "NULL" in statement:
                connection.execute("DELETE FROM snapshots")
            else:
                connection.execute(statement)
        connection.close()
        again = ma.Study.open(path)
        if "NULL" in statement:
            assert again.best() == expected
        else:
            with pytest.warns(RuntimeWarning, match="snapshot"):
                assert again.best() == expected
        assert again.verify() == again.n_events


def test_one_snapshot_is_kept(path):
    made = created(path, 3, X)
    run(made, X, 0, 12)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM snapshots").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (
            2,
        )  # the pool and the snapshot
        (size,) = connection.execute("SELECT max(length(data)) FROM blobs").fetchone()
        assert made.snapshot_bytes <= size
    connection.close()


def test_a_snapshot_is_not_used_where_others_decided_at_its_steps(path):
    made = created(path, 5, X)
    run(made, X, 0, 12)
    made.best()
    assert resumed(made) is not None
    made._replica.replay.records.pop(made._replica.replay.steps[2].number)
    assert resumed(made) is None


def test_two_who_learn_the_same_agree(path):
    one = ma.Study.create(path, ma.Pool.from_array(X), worker="one")
    run(one, X, 0, 10)
    one.best()
    two = ma.Study.open(path, worker="two")
    for each in range(6):
        two.tell(each, [value(X, each, each)])
    with one._replica.current() as replay:
        found = learning.learn(
            replay, one._replica._learner, one._replica._done, one._replica.resume
        )
    two.best()
    events = two.n_events
    with one._replica.writing() as call:
        call.adopt(found)
        assert call.done == found.done  # the same was decided: nothing is written twice
    assert one.n_events == events
    other = found._replace(begun=one._replica._done, done=one._replica._done, made={})
    two.tell(9, [0.3])
    two.ask()
    with one._replica.current() as replay:
        stale = learning.learn(
            replay, one._replica._learner, one._replica._done, one._replica.resume
        )
    number = replay.steps[-1].number
    wrong = stale._replace(
        recorded=number - 1, made={number: ("insert", {"step": number, "entered": [0, 1]})}
    )
    with one._replica.writing() as call:
        call.adopt(wrong)
        assert call.done == other.done  # it is dropped
    assert_alike(one, two)


def test_a_backlog_is_learned_without_the_lock(path):
    """While one learns for seconds, another's results go through."""
    slow = ma.Study.create(path, ma.Pool.from_array(X))
    quick = ma.Study.open(path)
    for id in range(8):
        slow.tell(id, [value(X, id, id)])
    learning_now, go_on = threading.Event(), threading.Event()
    resume = slow._replica.resume

    def wait(*given):
        learning_now.set()
        assert go_on.wait(60)
        return resume(*given)

    slow._replica.resume = wait  # with which learning begins
    thread = threading.Thread(target=slow.best)
    thread.start()
    assert learning_now.wait(60)
    quick.tell(9, [0.5])
    go_on.set()
    thread.join()
    assert len(slow.history) == 9


def test_a_large_backlog_is_learned_at_once(path):
    made = ma.Study.create(path, ma.Pool.from_array(X))
    for id in range(100):
        made.tell(id, [value(X, id, id)])
    made.best()
    assert sum(event.kind == "refit" for event in made.events()) == 1
    assert_alike(made, ma.Study.open(path))


def test_sizes_grow_with_the_results(path):
    made = ma.Study.create(path, ma.Pool.from_array(X))
    assert made.sizes == []
    run(made, X, 0, 12)
    sizes = made.sizes
    assert [n for n, *_ in sizes] == sorted(n for n, *_ in sizes)
    assert sizes[-1][0] == 12
    assert sizes[-1][1] == len(made.policy.inducing)
    assert sizes == ma.Study.open(path).sizes
    assert len(plots.sketch(made).data) == 3


def _read_only(path, expected):
    ma.Study.open(path).best()  # loads modules, which root alone may be able to read
    if os.geteuid() == 0:
        os.setuid(65534)
    reader = ma.Study.open(path)
    assert reader.history == expected
    assert reader.best() == reader.best()
    assert reader.sizes[-1][0] == 12
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


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_was_learned_on_a_full_disk_is_written_once_there_is_room(path, monkeypatch, rounds):
    made = ma.Study.create(path, ma.Pool.from_array(BIG))
    run(made, BIG, 0, 10)
    writing = made._store.writing

    def full():
        raise StudyStorageError("no space left; nothing was written")

    for id in range(rounds):
        made.tell(id, [value(BIG, id, id)])
        monkeypatch.setattr(made._store, "writing", full)
        assert made.best() == made.best()
        monkeypatch.setattr(made._store, "writing", writing)
    (asked,) = made.ask()
    again = ma.Study.open(path)
    assert again.pending == [asked]
    assert_alike(made, again)
    made.verify()
