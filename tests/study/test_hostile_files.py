"""Study files and exports that somebody else made: a typed error, and nothing hangs or is dropped
without a word."""

import contextlib
import copy
import json
import random
import sqlite3
import time

import numpy as np
import pytest
from command_line import said
from soak.files import mutated
from soak.forged import (
    books,
    exports,
    forged,
    long_study,
    look,
    look_at_books,
    put_books,
    sign,
)

import manyarms as ma
from manyarms.errors import StudyDamagedError, StudyError, StudyStorageError
from manyarms.study import books as study_books
from manyarms.study.copies import imported
from manyarms.study.salvage import salvage

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
SCHEMAS = {
    "a trigger that drops": "CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END",
    "a trigger that deletes": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
    "a trigger that fails": "CREATE TRIGGER t BEFORE UPDATE ON head BEGIN SELECT RAISE(ABORT, ''); END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "an index": "CREATE INDEX i ON events (kind)",
    "a unique index": "CREATE UNIQUE INDEX i ON events (kind) WHERE kind = 'tell'",
    "another table": "CREATE TABLE t (a)",
    "a virtual table": "CREATE VIRTUAL TABLE t USING fts5(a)",
    "a column": "ALTER TABLE events ADD COLUMN note TEXT",
    "a column that is computed": "ALTER TABLE events ADD COLUMN n AS (zeroblob(900000000))",
    "another name": "ALTER TABLE snapshots RENAME TO s",
    "no snapshots": "DROP TABLE snapshots",
    "no head": "DROP TABLE head",
    "an endless head": f"DROP TABLE head; CREATE VIEW head AS {ENDLESS} SELECT i AS number, '' AS digest FROM n",
    "endless events": "DROP TABLE events; CREATE VIEW events AS "
    f"{ENDLESS} SELECT i AS number, '' AS kind, 0.0 AS time, '' AS record, '' AS digest FROM n WHERE i < 0",
    "endless blobs": "DROP TABLE blobs; CREATE VIEW blobs AS "
    f"{ENDLESS} SELECT '' AS digest, i AS part, x'00' AS data FROM n WHERE i < 0",
    "an endless version": f"DROP TABLE manyarms; CREATE VIEW manyarms AS {ENDLESS} SELECT i AS version FROM n WHERE i < 0",
    "a large version": "DROP TABLE manyarms; "
    "CREATE TABLE manyarms (a, version AS (zeroblob(900000000))); INSERT INTO manyarms VALUES (1)",
}


@pytest.fixture
def path(tmp_path):
    """A study with one result."""
    with ma.Study.create(tmp_path / "study.db", np.eye(4)) as study:
        study.tell(0, [1.0])
    return tmp_path / "study.db"


def change(path, script):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.mark.parametrize("script", SCHEMAS.values(), ids=SCHEMAS)
def test_a_file_with_another_schema_is_refused(path, tmp_path, script):
    change(path, script)
    before = path.read_bytes()
    start = time.process_time()
    with pytest.raises(StudyError):
        ma.Study.open(path)
    with pytest.raises(StudyError):
        ma.Study.create(path, np.eye(4))
    try:
        saved = salvage(path, tmp_path / "saved.db")
    except StudyDamagedError:
        assert not (tmp_path / "saved.db").exists()
    else:
        assert (saved.events, saved.results) == (2, 1)
    assert time.process_time() - start < 5
    assert path.read_bytes() == before


def test_a_result_that_is_not_stored_is_an_error(path):
    study = ma.Study.open(path)
    change(path, SCHEMAS["a trigger that drops"])
    with pytest.raises(StudyStorageError, match="0 rows"):
        study.tell(1, [2.0])
    assert len(study.history) == 1


FORGED = {
    "no time": lambda events: events[1].pop("time"),
    "a time that is text": lambda events: events[1].update(time="\ud800"),
    "a time that is none": lambda events: events[1].update(time=float("nan")),
    "no pool and no box": lambda events: events[0]["payload"].pop("pool"),
    "a pool that is none": lambda events: events[0]["payload"].update(pool={}),
    "no next row": lambda events: events[0]["payload"]["pool"].pop("next_row"),
    "units that are a list": lambda events: events[0]["payload"]["pool"].update(units=[]),
    "levels that are text": lambda events: events[0]["payload"]["pool"].update(levels="x"),
    "a box of nothing": lambda events: events[0]["payload"].update(box=[]),
    "a box of text": lambda events: events[0]["payload"].update(box=["x"]),
    "a prior of text": lambda events: events[0]["payload"]["prior"].update(values=["x"]),
    "a prior too short": lambda events: events[0]["payload"]["prior"].update(values=[]),
    "an unknown kernel": lambda events: events[0]["payload"].update(kernel={"Nothing": {}}),
    "a kernel of text": lambda events: events[0]["payload"].update(
        kernel={"RBF": {"lengthscale": "x"}}
    ),
    "two kernels": lambda events: events[0]["payload"].update(kernel={"RBF": {}, "Linear": {}}),
    "an unknown argument": lambda events: events[0]["payload"].update(kernel={"RBF": {"x": 1}}),
    "an unknown option": lambda events: events[0]["payload"]["options"].update(x=1),
    "an unknown policy": lambda events: events[0]["payload"].update(policy="__all__"),
    "noise that is text": lambda events: events[0]["payload"].update(noise="x"),
    "a seed below 0": lambda events: events[0]["payload"].update(seed=-1),
    "an unknown candidate": lambda events: events[1]["payload"].update(ids=["nobody"] * 2),
    "a candidate that is a list": lambda events: events[1]["payload"].update(ids=[[[]]] * 2),
    "a candidate that is a dict": lambda events: events[1]["payload"].update(ids=[{}] * 2),
    "an unknown kind": lambda events: events[1].update(kind="x"),
    "a value beyond all": lambda events: events[1]["payload"].update(values=[1e308] * 2),
    "a noise below 0": lambda events: events[1]["payload"].update(noise=[-1.0] * 2),
    "create twice": lambda events: events.append(events[0]),
    "an undo of itself": lambda events: events[-1].update(
        kind="undo", payload={"event": len(events), "kind": "tell", "worker": ""}
    ),
    "an undo of the beginning": lambda events: events[-1].update(
        kind="undo", payload={"event": 1, "kind": "tell", "worker": ""}
    ),
    "types that are numbers": lambda events: events[-1].update(
        kind="retype", payload={"columns": {"n": 5}, "worker": ""}
    ),
    "a table that is none": lambda events: events[-1].update(
        kind="add", payload={"table": "x", "next_row": 1, "n": 1}
    ),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_an_export_with_right_digests_that_makes_no_sense_is_refused(tmp_path, change):
    export = copy.deepcopy(exports()[0])
    change(export["events"])
    sign(export)
    (tmp_path / "export.json").write_text(json.dumps(export))
    answer = said("import", tmp_path / "study.db", tmp_path / "export.json")
    assert answer.code in (2, 3), answer
    # What was refused left nothing in the place of a study.
    assert [each.name for each in tmp_path.iterdir()] == ["export.json"]


def test_many_undos_of_undos_are_shown(tmp_path):
    export = copy.deepcopy(exports()[1])
    last = {"event": len(export["events"]), "kind": "ask", "worker": ""}
    for _ in range(3000):
        export["events"].append({"kind": "undo", "time": 0.0, "payload": dict(last)})
        last["event"] += 1
    sign(export)
    (tmp_path / "export.json").write_text(json.dumps(export))
    assert said("import", tmp_path / "study.db", tmp_path / "export.json").code == 0
    assert said("history", tmp_path / "study.db").code == 0


@pytest.mark.parametrize("seed", range(60))
def test_any_forged_export_is_typed_and_leaves_nothing(tmp_path, seed):
    (tmp_path / "export.json").write_bytes(forged(random.Random(seed), mutated))
    try:
        imported(tmp_path / "study.db", tmp_path / "export.json").close()
    except ma.errors.ManyArmsError:
        assert [each.name for each in tmp_path.iterdir()] == ["export.json"]
        return
    (tmp_path / "study.db").unlink()
    with contextlib.suppress(ma.errors.ManyArmsError):
        look(tmp_path / "study.db", tmp_path / "export.json")


BOOKS = {
    "an event that is not there": lambda said: said.update(head=[10**6, None]),
    "an event of many digits": lambda said: said.update(head=[10**30, "x"]),
    "an event that is a dict": lambda said: said.update(head=[{}, "x"]),
    "an event of text": lambda said: said.update(head=["1", "x"]),
    "an event of nothing": lambda said: said.update(head=[[], "x"]),
    "a table of one event many times": lambda said: said.update(table=said["table"] * 1000),
    "a table of events to come": lambda said: said["table"].append(17),
    "a candidate below 0": lambda said: said["pending"][0].__setitem__(0, -1),
    "a candidate beyond the table": lambda said: said["pending"][0].__setitem__(0, 13),
    "a candidate that is a fraction": lambda said: said["pending"][0].__setitem__(0, 0.5),
    "a candidate of many digits": lambda said: said["pending"][0].__setitem__(0, 10**30),
    "a worker that is a list": lambda said: said["pending"][0].__setitem__(1, []),
    "a lease that never was": lambda said: said["pending"][0].__setitem__(2, float("nan")),
    "a forecast of text": lambda said: said["pending"][0].__setitem__(3, ["x", 0, 0]),
    "fewer results than none": lambda said: said["pending"][0].__setitem__(6, -1),
    "a token of nobody": lambda said: said["tokens"].update(a=[[99], [1.0]]),
    "a token of text": lambda said: said["tokens"].update(a=[[0], ["x"]]),
    "a note that is a number": lambda said: said["notes"][0].__setitem__(1, 5),
    "a note of nothing": lambda said: said["notes"][0].__setitem__(0, []),
    "a batch that is a fraction": lambda said: said["batches"][0].__setitem__(1, 0.5),
    "retired ones that are none": lambda said: said.update(taken=[99]),
    "nothing": lambda said: said.clear(),
}


def changed_books(change):
    line, _, rest = long_study()[1].partition(b"\n")
    said = json.loads(line)
    change(said)
    return json.dumps(said).encode() + b"\n" + rest


@pytest.mark.parametrize("change", BOOKS.values(), ids=BOOKS)
def test_books_with_right_digests_that_make_no_sense_are_left_aside(tmp_path, change):
    assert look_at_books(tmp_path / "study.db", changed_books(change)) == "right"


def test_books_that_make_sense_and_are_not_true_are_noticed_by_doctor(tmp_path):
    def forge(said):
        said["pending"][0][1] = "nobody"

    path = tmp_path / "study.db"
    assert look_at_books(path, long_study()[1]) == "right"
    assert look_at_books(path, changed_books(forge)) == "noticed"
    path.write_bytes(long_study()[0])
    put_books(path, changed_books(forge))
    answer = said("doctor", path, "--salvage", tmp_path / "saved.db")
    assert answer.code == 3
    assert "books" in answer.out
    with ma.Study.open(tmp_path / "saved.db") as study:
        assert study.verify() == study.n_events == 16


def test_any_forged_books_are_left_aside_or_noticed(tmp_path):
    assert sum(books(tmp_path, 40).values()) == 40


@pytest.mark.parametrize("text", [b"[]," * (1 << 19), b"[" * 100_000])
def test_books_of_any_size_and_depth_are_left_aside(tmp_path, monkeypatch, text):
    monkeypatch.setattr(study_books, "LINE", 1 << 20)
    more = b'"x": [' + text + b'[]], "notes": ['
    assert look_at_books(tmp_path / "s.db", long_study()[1].replace(b'"notes": [', more)) == "right"


@pytest.mark.parametrize("number", ["'x'", "1.5", "x'00'"])
def test_a_snapshot_of_no_number_of_results_is_left_aside(tmp_path, number):
    path = tmp_path / "study.db"
    path.write_bytes(long_study()[0])
    change(path, f"UPDATE snapshots SET number = {number} WHERE number > 0")
    with ma.Study.open(path) as study:
        assert study.best().recommended.id
        study.ask()


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"digest": 1e999}', b"1", b""])
def test_a_snapshot_that_makes_no_sense_is_left_aside(tmp_path, text):
    path = tmp_path / "study.db"
    path.write_bytes(long_study()[0])
    with ma.Study.open(path) as study:
        with study._store.writing() as transaction:
            transaction.put_snapshot(7, text)
        assert study.best().recommended.id
