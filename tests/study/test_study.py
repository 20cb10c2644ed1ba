"""Durable studies: the same choices as an optimizer, from the log alone, for several processes, and no silent damage."""

import hashlib
import json
import re
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import manyarms as ma
from manyarms.errors import (
    ObservationError,
    ParameterError,
    StateError,
    StudyDamagedError,
    StudyError,
    StudyStorageError,
    StudyVersionError,
    UnknownArmError,
)
from manyarms.study.copies import imported
from manyarms.study.events import KINDS
from manyarms.study.salvage import salvage
from manyarms.study.store import FORMAT

X = np.random.default_rng(0).random((60, 2))
X.setflags(write=False)
F = -np.square(X - 0.4).sum(axis=1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def location(request, path):
    """Where a study may be: each test has a fresh place."""
    if request.param == "sqlite":
        return path
    name = re.sub(r"\W+", "_", request.node.originalname)[:60]
    return f"{request.getfixturevalue('server')}#{name}"


def values(ids, step, scale=0.05):
    return F[np.asarray(ids, dtype=int)] + scale * np.random.default_rng([7, step]).normal(
        size=len(ids)
    )


def state_of(study):
    """All that a study knows, to be compared."""
    if not study.history:
        return study.pending, study.history, study.pool.ids.tolist()
    policy = study.policy
    inducing = policy.inducing.tolist() if isinstance(policy, ma.BKB) else None
    mean = (
        study.predict(study.pool.ids).mean.tolist()
        if any(not trial.failed for trial in study.history)
        else None
    )
    return study.pending, study.history, study.pool.ids.tolist(), inducing, mean


def assert_same(known, expected):
    """Equal, predictions up to rounding."""
    assert known[:4] == expected[:4]
    for mine, others in zip(known[4:], expected[4:], strict=True):
        np.testing.assert_allclose(mine or [], others or [], rtol=1e-9, atol=1e-12)


SETTINGS = {
    "learned": {},
    "minimise": {"direction": "minimize", "noise": 0.05},
    "given": {
        "kernel": 0.5 * ma.kernels.Matern([0.3, 0.4]) + ma.kernels.Linear(),
        "noise": 0.05,
        "confidence": ma.Constant(2.0),
    },
    "sampled": {"rule": ma.Sampled(oversampling=5.0), "kernel": "rbf"},
    "exact": {"policy": ma.GPUCB, "confidence": ma.Growing(1.0)},
    "never": {"repeats": "never", "rule": ma.Inserted(0.1, most=10)},
    "random": {"policy": ma.baselines.Uniform},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_study_asks_what_an_optimizer_asks_and_replays_to_the_same_state(path, name):
    options = SETTINGS[name]
    pool = ma.Pool.from_array(X)
    optimizer = ma.Optimizer(pool, seed=5, **options)
    study = ma.Study.create(path, pool, seed=5, **options)
    for step in range(16):
        asked = optimizer.ask(1 + step % 2)
        assert study.ask(1 + step % 2) == asked
        told = values(asked, step)
        for each in (optimizer, study):
            each.tell(asked, told)
        if step == 9:
            study = ma.Study.open(path)
    again = ma.Study.open(path)
    assert again.history == study.history == optimizer.history
    assert_same(state_of(again), state_of(study))
    assert study.best() == optimizer.best()
    assert study.top(3) == optimizer.top(3)
    assert study.certificate().rival == optimizer.certificate().rival
    assert again.ask(2) == optimizer.ask(2)


def test_a_log_has_only_what_was_done(path, monkeypatch):
    study = ma.Study.create(path, ma.Pool.from_array(X), seed=1)
    for step in range(14):
        asked = study.ask()
        study.tell(asked, values(asked, step))
    expected = state_of(study)
    assert {event.kind for event in study.events()} == {"create", "ask", "tell"}

    def never(*_, **__):
        raise AssertionError("reading a log must not do this")

    monkeypatch.setattr(ma.BKB, "choose", never)
    assert_same(state_of(ma.Study.open(path)), expected)


def test_the_size_of_a_snapshot_is_known(location):
    study = ma.Study.create(location, ma.Pool.from_array(X))
    study._replica.snapshot_every = 3
    assert study.snapshot_bytes == 0
    for step in range(5):
        asked = study.ask()
        study.tell(asked, values(asked, step))
    assert study.best() == ma.Study.open(location).best()
    m = len(study.policy.inducing)
    assert 8 * m * (m + 1) <= study.snapshot_bytes <= 3 * (8 * m * (m + 1) + 4000)


def test_two_studies_on_one_file_see_each_other(location):
    first = ma.Study.create(location, ma.Pool.from_array(X), worker="first")
    second = ma.Study.open(location, worker="second")
    asked = [first.ask(), second.ask(), first.ask()]
    assert len({id for ids in asked for id in ids}) == 3
    assert second.pending == first.pending == [id for ids in asked for id in ids]
    assert [lease.worker for lease in second.leases] == ["first", "second", "first"]
    second.tell(asked[1], [1.0])
    first.tell(asked[0], [2.0])
    assert first.history == second.history
    assert [trial.id for trial in first.history] == [*asked[1], *asked[0]]
    second.retire(asked[2])
    assert first.pending == []
    second.add(np.array([[2.0, 2.0]]))
    assert len(first.pool) == len(X) + 1
    first.tell(len(X), [9.0])
    assert second.best() == first.best()


def test_a_lease_runs_out_and_is_renewed(location, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    gone = ma.Study.create(
        location, ma.Pool.from_array(X[:3]), worker="gone", lease=60, repeats="never"
    )
    here = ma.Study.open(location, worker="here")
    lost, kept = gone.ask(), here.ask()
    now[0] += 50
    gone.renew()
    now[0] += 50
    assert here.pending == [*lost, *kept]
    now[0] += 11
    assert gone.pending == kept
    assert set(here.ask(2)) == {*range(3)} - set(kept)
    assert "expire" in {event.kind for event in here.events()}
    assert_same(state_of(ma.Study.open(location)), state_of(here))
    gone.tell(lost, [1.0])  # late, and welcome
    assert [trial.id for trial in here.history] == lost


def test_what_is_asked_for_under_a_limit_never_passes_it(location, monkeypatch):
    """Results and all that is being tried count, whoever asked for it; a lease that ran out does not."""
    one = ma.Study.create(location, ma.Pool.from_array(X), worker="one")
    two = ma.Study.open(location, worker="two")
    one.tell([0, 1], [0.0, 1.0])
    one.ask(3, lease=60)
    assert len(two.ask(4, at_most=7)) == 2
    assert two.ask(at_most=7) == one.ask(at_most=2) == []
    n_events = one.n_events
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    assert len(two.ask(9, at_most=7)) == 3
    assert one.n_events == n_events + 2  # those of who is gone, and those of who came
    for wrong in (0, -1, 2.5, True, "7"):
        with pytest.raises(ParameterError, match="at_most"):
            one.ask(at_most=wrong)


def test_who_is_overtaken_while_he_chooses_chooses_again(location, monkeypatch):
    one = ma.Study.create(location, ma.Pool.from_array(X[:5]), repeats="never")
    two = ma.Study.open(location)
    choice, mine = ma.Study._choice, []

    def overtaken(study, *arguments):
        found = choice(study, *arguments)
        if not mine:
            mine.append(None)
            mine.extend(two.ask(3))
        return found

    monkeypatch.setattr(ma.Study, "_choice", overtaken)
    ids = one.ask(3, at_most=4)
    assert len(ids) == 1
    assert not set(ids) & set(mine)


def test_a_tell_lets_go_of_the_workers_own_lease_first(location):
    one = ma.Study.create(location, ma.Pool.from_array(X[:1]), worker="one")
    two = ma.Study.open(location, worker="two")
    one.ask()
    two.ask()
    two.tell(0, [1.0])
    assert [lease.worker for lease in one.leases] == ["one"]


def test_a_token_makes_a_tell_repeatable(location):
    study = ma.Study.create(location, ma.Pool.from_array(X))
    study.tell([1, 2], [0.5, ma.FAILED], token="job 7")
    ma.Study.open(location).tell([1, 2], [0.5, ma.FAILED], token="job 7")
    assert len(study.history) == 2
    with pytest.raises(ObservationError, match="job 7"):
        study.tell([1, 2], [0.6, ma.FAILED], token="job 7")
    with pytest.raises(ParameterError, match="token"):
        study.tell(1, [0.5], token="")


BAD = [
    ([0], [np.nan]),
    ([0], ["1"]),
    ([0], [None]),
    ([0], [1, 2]),
    ([99], [1.0]),
    (["0"], [1.0]),
    ([0], [1e200]),
]


@pytest.mark.parametrize(("ids", "told"), BAD)
def test_a_bad_result_is_refused_and_nothing_is_written(path, ids, told):
    study = ma.Study.create(path, ma.Pool.from_array(X))
    before = path.read_bytes()
    with pytest.raises((ObservationError, UnknownArmError)):
        study.tell(ids, told)
    assert path.read_bytes() == before
    study.tell(0, [1.0])
    assert len(study.history) == 1


def test_nothing_left_is_said_and_the_study_goes_on(location):
    study = ma.Study.create(location, ma.Pool.from_array(X[:2]), repeats="never")
    study.ask(2)
    with pytest.raises(StateError, match="nothing is left"):
        study.ask()
    with pytest.raises(StateError, match="not pending"):
        study.release([0, 0])
    study.release(0)
    assert study.pending == [1]
    assert study.ask() == [0]
    study.tell([0, 1], [1.0, 2.0])
    with pytest.raises(ObservationError, match="already"):
        study.tell(0, [1.0])


TABLES = {
    "csv": lambda folder: ma.Pool.from_csv(csv_in(folder), id="name"),
    "dicts": lambda folder: ma.Pool.from_dicts(
        [{"a": i, "b": "uvw"[i % 3], "c": bool(i % 2), "d": 10.0**i} for i in range(9)],
        columns={"b": ["w", "v", "u"]},
    ),
    "named": lambda folder: ma.Pool.from_array(
        X[:9], ids=[f"x{i}" for i in range(9)], columns={"x1": "log"}
    ),
    "dropped": lambda folder: ma.Pool.from_dicts(
        [{"a": i if i != 3 else None, "id": 2 * i} for i in range(9)], missing="drop"
    ),
    "bits": lambda folder: ma.Pool.from_dicts(
        [{"id": f"m{i}", "f": format(i * 37, "016b")} for i in range(9)], id="id"
    ),
}


def csv_in(folder):
    rows = "\n".join(f"n{i},{i * 0.5},{'red' if i % 2 else 'blue'},k{i}" for i in range(30))
    (folder / "table.csv").write_text("name,size,colour,id\n" + rows + "\n")
    return folder / "table.csv"


@pytest.mark.parametrize("name", TABLES)
def test_the_pool_comes_back_as_it_was(folder, name):
    pool = TABLES[name](folder)
    ma.Study.create(folder / "study.db", pool)
    again = ma.Study.open(folder / "study.db").pool
    assert again.ids.tolist() == pool.ids.tolist()
    assert again.features == pool.features
    assert again.columns == pool.columns
    np.testing.assert_array_equal(again.X, pool.X)
    np.testing.assert_array_equal(again.arm_of, pool.arm_of)
    assert again.rows(again.ids) == pool.rows(pool.ids)


def test_a_study_moves_and_its_pool_is_stored_once(folder):
    source = csv_in(folder)
    pool = ma.Pool.from_csv(source, id="name")
    study = ma.Study.create(folder / "a.db", pool, direction="minimize")
    study.add([{"name": "new", "size": 3.25, "colour": "green", "id": "k"}])
    study.tell(["new", "n3"], [1.0, 2.0])
    study.close()
    source.unlink()
    (folder / "b.db").write_bytes((folder / "a.db").read_bytes())
    (folder / "a.db").unlink()
    moved = ma.Study.open(folder / "b.db")
    assert moved.best().recommended.id == "new"
    assert moved.pool.row("new")["colour"] == "green"
    with sqlite3.connect(folder / "b.db") as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (2,)


def test_a_database_holds_several_studies_and_says_what_it_lacks(server):
    one = ma.Study.create(f"{server}#several_one", ma.Pool.from_array(X))
    two = ma.Study.create(f"{server}#several_two", ma.Pool.from_array(X), direction="minimize")
    one.tell(0, [1.0])
    assert (len(one.history), len(two.history)) == (1, 0)
    assert ma.Study.open(f"{server}#several_two").direction == "minimize"
    with pytest.raises(StudyError, match="already"):
        ma.Study.create(f"{server}#several_one", ma.Pool.from_array(X))
    with pytest.raises(StudyError, match="not a study"):
        ma.Study.open(f"{server}#several_three")
    with pytest.raises(StudyError, match="small letters"):
        ma.Study.open(f"{server}#Many Things")
    with pytest.raises(StudyStorageError, match=r":\*\*\*@"):
        ma.Study.open("postgresql://someone:secret@127.0.0.1:1/nowhere")


# Damage


def small(path):
    study = ma.Study.create(path, ma.Pool.from_array(X[:5]))
    for id in range(5):
        study.tell(id, [float(id)])
    study.close()
    return path


@pytest.mark.parametrize(
    ("statement", "whole"),
    [
        ("DELETE FROM events WHERE number = 6", 5),
        ("DELETE FROM events WHERE number = 3", 2),
        ("UPDATE events SET record = replace(record, '2.0', '3.0') WHERE number = 4", 3),
        ("UPDATE events SET time = time + 1 WHERE number = 5", 4),
        ("UPDATE events SET kind = 'retire' WHERE number = 2", 1),
        ("UPDATE events SET record = CAST(record AS BLOB) WHERE number = 2", 1),
        ("UPDATE head SET number = 7", 6),
        ("DELETE FROM head", 0),
        ("UPDATE blobs SET data = zeroblob(length(data))", 0),
        ("DELETE FROM blobs", 0),
        ("DROP TABLE head", 0),
    ],
)
def test_a_damaged_log_is_noticed(path, statement, whole):
    with sqlite3.connect(small(path)) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StudyDamagedError) as caught:
        ma.Study.open(path)
    assert caught.value.whole == whole
    assert "\n" not in str(caught.value)


TOLD = {"ids": [1], "values": [1.0], "worker": "w"}


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("insert", {"arms": [1]}),
        ("tell", []),
        ("tell", {"ids": [1], "values": [1.0]}),
        ("tell", {**TOLD, "values": [1.0, 2.0]}),
        ("tell", {**TOLD, "values": ["1.0"]}),
        ("tell", {**TOLD, "values": [10**400]}),
        ("tell", {**TOLD, "values": [float("nan")]}),
        ("tell", {**TOLD, "values": 1.0}),
        ("tell", {**TOLD, "ids": [None]}),
        ("tell", {**TOLD, "noise": [[]]}),
        ("tell", {**TOLD, "token": 7}),
        ("renew", {"worker": "w", "until": "tomorrow"}),
        ("note", {"of": [[1]], "notes": ["a"], "worker": "w"}),
        ("undo", {"event": True, "kind": "tell", "worker": "w"}),
        ("add", {"table": 1, "next_row": 5, "n": 1}),
    ],
)
def test_an_event_that_is_not_as_its_kind_has_it_is_refused(path, kind, payload):
    """Written by a call, or by another program whose digests are right."""
    assert len(KINDS) <= 13
    with ma.Study.open(small(path)) as study:
        with pytest.raises(StudyDamagedError), study._store.writing() as transaction:
            transaction.append(kind, payload)
        assert study.verify() == 6
    record = json.dumps(payload)
    with sqlite3.connect(path) as connection:
        ((before,),) = connection.execute("SELECT digest FROM head")
        text = f"{before}\n7\n{kind}\n0.0\n{record}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        connection.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)", (7, kind, 0.0, record, digest)
        )
        connection.execute("UPDATE head SET number = 7, digest = ?", (digest,))
    connection.close()
    with pytest.raises(StudyDamagedError) as caught:
        ma.Study.open(path)
    assert caught.value.whole == 6


def test_what_is_not_a_study_is_said_to_be_none(folder):
    with pytest.raises(StudyError, match="no study"):
        ma.Study.open(folder / "none.db")
    assert not (folder / "none.db").exists()
    (folder / "empty.db").touch()
    with pytest.raises(StudyError, match="interrupted"):
        ma.Study.open(folder / "empty.db")
    (folder / "text.db").write_text("name,size\n" * 500)
    with pytest.raises(StudyError, match="not a study"):
        ma.Study.open(folder / "text.db")
    with sqlite3.connect(folder / "other.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(StudyError, match="not a study"):
        ma.Study.open(folder / "other.db")
    with pytest.raises(StudyError, match="already"):
        ma.Study.create(folder / "other.db", ma.Pool.from_array(X))
    with pytest.raises(StudyError, match="PostgreSQL"):
        ma.Study.open("mysql://host/db")
    with pytest.raises(StudyError, match="directory"):
        ma.Study.create(folder / "no" / "study.db", ma.Pool.from_array(X))


def test_a_newer_format_is_refused(path):
    with sqlite3.connect(small(path)) as connection:
        connection.execute("UPDATE manyarms SET version = ?", (FORMAT + 1,))
    connection.close()
    with pytest.raises(StudyVersionError, match="newer"):
        ma.Study.open(path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_study_of_an_earlier_format_says_how_its_results_carry_over(path, version, tmp_path):
    with sqlite3.connect(small(path)) as connection:
        connection.execute(f"UPDATE manyarms SET version = {version}")
    connection.close()
    exported = tmp_path / "study.json"
    exported.write_text(json.dumps({"format": f"manyarms study, format {version}", "events": []}))
    for call in (
        lambda: ma.Study.open(path),
        lambda: salvage(path, tmp_path / "new.db"),
        lambda: imported(tmp_path / "new.db", exported),
    ):
        with pytest.raises(StudyError, match=r"its results carry over.*init --target"):
            call()


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": lambda X, Y: X @ Y.T},
        {"policy": lambda *a, **k: None},
        {"confidence": lambda evidence: 2.0},
        {"direction": "up"},
        {"seed": -1},
        {"lease": 0},
        {"worker": 3},
        {"memory": object()},
        {"memory": "much"},
    ],
)
def test_settings_that_cannot_be_written_down_are_refused(path, options):
    with pytest.raises(ParameterError):
        ma.Study.create(path, ma.Pool.from_array(X), **options)


def test_verify_counts_events(path):
    study = ma.Study.open(small(path))
    assert study.verify() == study.n_events == 6
    assert [event.kind for event in study.events()] == ["create", *["tell"] * 5]
    assert study.settings["direction"] == study.direction == "maximize"
    assert "60" not in repr(study)


# Any sequence of calls


class Calls(RuleBasedStateMachine):
    """An optimizer, and two studies on one file that take turns: all three agree after every call."""

    @initialize(seed=st.integers(0, 3), repeats=st.sampled_from(["allow", "never", 2]))
    def start(self, seed, repeats):
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        path, pool = f"{self.folder}/study.db", ma.Pool.from_array(X[:12])
        self.optimizer = ma.Optimizer(pool, seed=seed, repeats=repeats)
        self.studies = [
            ma.Study.create(path, pool, seed=seed, repeats=repeats),
            ma.Study.open(path),
        ]
        self.path, self.n = path, 0

    def on_all(self, which, call):
        """Make a call on the optimizer and on one study: both answer alike, or both raise alike."""
        outcomes = []
        for each in (self.optimizer, self.studies[which]):
            try:
                outcomes.append(call(each))
            except ma.errors.ManyArmsError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]

    @rule(which=st.integers(0, 1), n=st.integers(1, 3))
    def ask(self, which, n):
        self.on_all(which, lambda each: each.ask(n))

    @rule(
        which=st.integers(0, 1),
        ids=st.lists(st.integers(0, 13), min_size=1, max_size=3),
        failed=st.booleans(),
    )
    def tell(self, which, ids, failed):
        self.n += 1
        told = [
            ma.FAILED if failed and i == 0 else float(np.sin(id + self.n))
            for i, id in enumerate(ids)
        ]
        self.on_all(which, lambda each: each.tell(ids, told))

    @rule(which=st.integers(0, 1), ids=st.lists(st.integers(0, 13), min_size=1, max_size=2))
    def release(self, which, ids):
        self.on_all(which, lambda each: each.release(ids))

    @rule(which=st.integers(0, 1), id=st.integers(0, 13))
    def retire(self, which, id):
        self.on_all(which, lambda each: each.retire(id))

    @rule(which=st.integers(0, 1))
    def add(self, which):
        if len(self.optimizer.pool) < 14:
            row = X[[len(self.optimizer.pool)]]
            self.on_all(which, lambda each: each.add(row))

    @rule(which=st.integers(0, 1))
    def best(self, which):
        self.on_all(which, lambda each: each.best())

    @rule(which=st.integers(0, 1))
    def reopen(self, which):
        self.studies[which] = ma.Study.open(self.path)

    @invariant()
    def agree(self):
        for study in self.studies:
            assert study.history == self.optimizer.history
            assert sorted(study.pending) == sorted(self.optimizer.pending)

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


Calls.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.generate,),
)
test_any_sequence_of_calls = Calls.TestCase


def test_noise_that_was_told_survives(path):
    opt = ma.Optimizer(X, seed=1)
    with ma.Study.create(path, X, seed=1) as study:
        for told in (opt, study):
            told.tell(list(range(30)), F[:30], noise=[0.5 if i % 3 else None for i in range(30)])
            told.tell([31], [F[31]], noise=0.1)
            told.tell([32], [F[32]])
        assert study.ask(2) == opt.ask(2)
    with ma.Study.open(path) as again:
        assert [trial.noise for trial in again.history] == [trial.noise for trial in opt.history]
        np.testing.assert_allclose(
            again.predict(list(range(60))).mean, opt.predict(list(range(60))).mean, rtol=1e-9
        )
        with pytest.raises(ObservationError):
            again.tell([33], [0.0], noise=-1.0)


@pytest.mark.parametrize("wrong", [{"worker": ""}, {"worker": 3}, {"lease": 0.0}, {"lease": "1h"}])
def test_a_wrong_worker_or_lease_is_refused_before_anything_is_written(path, wrong):
    with pytest.raises(ParameterError):
        ma.Study.create(path, ma.Pool.from_array(np.eye(3)), **wrong)
    assert not Path(path).exists()
