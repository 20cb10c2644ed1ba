"""Study files and exports that somebody else made: a typed error, and nothing hangs or is dropped
without a word."""

import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import StudyDamagedError, StudyError, StudyStorageError
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
    with closing(sqlite3.connect(path)) as connection:
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
