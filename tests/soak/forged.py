"""Exports, and the books of studies, as somebody else may write them: anything may stand anywhere, and every digest is right.

    python -m soak.forged [--books 5000] [--seed 0]

A study with books that are forged opens: what makes no sense is left aside. Where books make sense and say something else than the
log, `verify` says so. Whatever people do with such a study gives an answer or a typed error, in seconds.
"""

import argparse
import base64
import contextlib
import copy
import hashlib
import json
import random
import resource
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import manyarms as ma
from manyarms.study import replica
from manyarms.study.copies import exported, imported
from manyarms.study.events import KINDS, NO_PREDECESSOR, Event, row_of
from soak.common import place

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        0.5,
        -0.0,
        1e308,
        -1e-308,
        2**31,
        2**53 + 1,
        2**63,
        -(2**64),
        10**30,
        10**400,
    ),
    *(
        "",
        "x",
        "0",
        "1",
        "m1",
        "nan",
        "inf",
        "maximize",
        "categorical",
        "number:RT=25",
        "a" * 5000,
        "\0",
        "\ud800",
        "é\u202e",
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        [None],
        [0],
        [1, 2],
        ["x"],
        [0.5, "x", None],
        {"x": 1},
        {"0": None},
        [[[0]]],
        [0] * 3000,
    ),
    *(
        {"float": "nan"},
        {"float": "inf"},
        {"float": "x"},
        {"RBF": {}},
        {"RBF": {"lengthscale": -1}},
        {"RBF": {"lengthscale": "x"}},
    ),
    *(
        {"Constant": {"beta": "x"}},
        {"Constant": {}},
        {"Sum": {"parts": []}},
        {"Tuning": {"workers": 10**9}},
        {"Nothing": {}},
    ),
    *("BKB", "GPUCB", "DomainBKB", "Kernel", "__all__", "Random", "MultiStart", "Sweeps"),
]
"""What a field may hold."""
DEEP = 100_000
"""Lists within lists, more than Python may call functions."""


@cache
def exports() -> list[dict[str, Any]]:
    """Good exports that have events of every kind, of a table and of a box."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": f"m{i}",
            "x": float(rng.random()),
            "n": i % 5,
            "c": "abc"[i % 3],
            "b": i % 2 == 0,
            "t": f"{i}",
        }
        for i in range(30)
    ]
    with tempfile.TemporaryDirectory() as folder:
        pool = ma.Pool.from_dicts(rows, id="id")
        prior = ma.Optimizer(pool, direction="maximize")
        prior.tell(["m1", "m2", "m3", "m4"], [0.1, 0.2, 0.4, 0.3])
        with ma.Study.create(
            Path(folder) / "pool.db", pool, direction="maximize", prior=prior, repeats=3
        ) as study:
            study.tell(study.ask(2), [1.0, 2.0], token="a", note="first")
            study.tell(["m5", "m6"], [3.0, ma.FAILED], noise=0.1, batch=[1, 2])
            study.ask(2, lease=1e-6)
            study.ask(3)
            study.renew()
            study.release(study.pending[:1])
            study.correct("m5", 4.0, note="typo")
            study.add([{"id": "new", "x": 0.1, "n": 1, "c": "a", "b": True, "t": "7"}])
            study.retire(["m9", "m10"])
            study.restore(["m9"])
            study.retype({"n": "categorical"})
            study.undo()
            study.tell(["m11", "m12", "m13"], [1.5, 2.5, 0.5])
            table = json.loads(exported(study))
        box = ma.Box(x=(0.0, 1.0), y=(1.0, 10.0), c=["a", "b"])
        with ma.Study.create(Path(folder) / "box.db", box, direction="minimize") as study:
            study.tell(study.ask(3), [1.0, 2.0, 3.0])
            study.ask(1)
            study.undo()
            study.ask(1)
            domain = json.loads(exported(study))
        with ma.Study.create(
            Path(folder) / "array.db",
            np.eye(6),
            kernel=2.0 * ma.kernels.RBF(0.5) + ma.kernels.Linear(),
            noise=0.1,
            policy=ma.GPUCB,
            confidence=ma.Bayes(0.1),
        ) as study:
            study.tell(study.ask(3), [1.0, 2.0, 3.0])
            given = json.loads(exported(study))
    return [table, domain, given]


def forged(rng: random.Random, damage: Callable[[bytes, random.Random], bytes]) -> bytes:
    """A good export with some changes and right digests; `damage` changes a table."""
    export = copy.deepcopy(rng.choice(exports()))
    if rng.random() < 0.2 and export["tables"]:
        _forge_table(export, rng, damage)
    else:
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            _forge(export, rng)
    sign(export)
    text = json.dumps(export)
    if rng.random() < 0.01:
        text = text.replace('"payload": {', f'"payload": {{"worker": {"[" * DEEP}{"]" * DEEP}, ', 1)
    return text.encode()


def look(path: Path, file: Path) -> None:
    """Import a file, and do with the study what people do."""
    with imported(path, file) as study:
        for _ in (study.history, study.leases, study.best(), study.certificate()):
            pass
        ids = study.ask()
        study.predict(ids)
        study.tell(ids, [1.0])
        study.undo()
        study.verify()


def sign(export: dict[str, Any]) -> None:
    """Put the digest there that the events have, where they have one."""
    digest = NO_PREDECESSOR
    try:
        for number, event in enumerate(export["events"], 1):
            digest = row_of(Event(number, event["kind"], event["time"], event["payload"]), digest)[
                -1
            ]
    except (LookupError, TypeError, ValueError, AttributeError):
        return
    export["digest"] = digest


def _forge_table(export: dict[str, Any], rng: random.Random, damage: Callable[..., bytes]) -> None:
    before = rng.choice(list(export["tables"]))
    table = damage(base64.b64decode(export["tables"].pop(before)), rng)
    after = hashlib.sha256(table).hexdigest()
    export["tables"][after] = base64.b64encode(table).decode()
    export["events"] = json.loads(json.dumps(export["events"]).replace(before, after))


def _forge(export: dict[str, Any], rng: random.Random) -> None:
    """Change, remove, double or move something below the events, or more rarely elsewhere."""
    events = export["events"]
    if not isinstance(events, list) or not events or rng.random() < 0.02:
        export[rng.choice(list(export))] = rng.choice(VALUES)
        return
    # Events of every kind as often, and the first one more often: it has most fields.
    event = events[0] if rng.random() < 0.3 else rng.choice(events)
    match rng.randrange(10):
        case 2:
            events.insert(rng.randrange(len(events) + 1), copy.deepcopy(rng.choice(events)))
        case 3:
            a, b = rng.randrange(len(events)), rng.randrange(len(events))
            events[a], events[b] = events[b], events[a]
        case 4 if isinstance(event, dict):
            event["kind"] = rng.choice(list(KINDS))
        case _:
            _change(*rng.choice(list(_within(event)) or [(events, 0)]), events, rng)


def _change(place: Any, key: Any, whole: Any, rng: random.Random) -> None:
    """Change, remove or double what stands in one place of a whole."""
    match rng.randrange(7):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            names = "x", "removed", "noise", "notes", "batches", "token", "box", "prior", "pool"
            place[rng.choice(names)] = place[key]
        case 1:
            place.append(copy.deepcopy(place[key]))
        case 2:
            # What stands elsewhere is right there, and wrong here.
            other, name = rng.choice(list(_within(whole)))
            place[key] = copy.deepcopy(other[name])
        case 3 if isinstance(place[key], int | float):
            place[key] = rng.choice(
                [-place[key], place[key] + 1, place[key] * 1e9, str(place[key]), 10**6]
            )
        case _:
            place[key] = copy.deepcopy(rng.choice(VALUES))


def _within(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree: what holds it, and its key there."""
    keys = (
        list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    )
    for key in keys:
        yield node, key
        yield from _within(node[key])


# Books


@contextlib.contextmanager
def books_every(events: int) -> Iterator[None]:
    """Studies keep their books after so many events, and not after thousands."""
    before = replica.BOOKS, replica.SHARE
    replica.BOOKS, replica.SHARE = events, 10**9
    try:
        yield
    finally:
        replica.BOOKS, replica.SHARE = before


@cache
def long_study() -> tuple[bytes, bytes]:
    """The file of a study that has kept its books, six events ago, and the books."""
    rows = [{"id": f"m{i}", "x": i / 9, "n": i % 5, "c": "abc"[i % 3]} for i in range(12)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.db"
        with ma.Study.create(path, ma.Pool.from_dicts(rows, id="id"), worker="w") as study:
            with books_every(1):
                study.tell(study.ask(2), [1.0, 2.0], token="a", note="first")
                study.tell(["m5", "m6"], [3.0, ma.FAILED], noise=0.1, batch=[1, 2])
                study.add([{"id": "new", "x": 0.1, "n": 1, "c": "a"}])
                study.retype({"n": "categorical"})
                study.tell(["m7", "m8", "new"], [0.5, 1.5, 2.5], token="b")
                study.correct("m5", 4.0, note="typo")
                study.best()
                study.ask(2)
                study.retire(["m9", "m10"])
                study.tell("m11", 0.25)
            study.ask(1)
            study.tell("m7", 0.75)
            study.restore("m9")
            study.tell("m1", 0.5, note="late")
            study.release(study.pending[0])
        return path.read_bytes(), kept_books(path)


def kept_books(path: Path) -> bytes:
    """The books in a file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        select = (
            "SELECT data FROM blobs WHERE digest = (SELECT digest FROM snapshots WHERE number < 0)"
        )
        ((data,),) = connection.execute(select).fetchall()
    return bytes(data)


def put_books(path: Path, data: bytes) -> None:
    """Books in place of those in a file, under the digest that they have."""
    digest = hashlib.sha256(data).hexdigest()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE snapshots SET digest = ? WHERE number < 0", (digest,))
        connection.execute("INSERT OR REPLACE INTO blobs VALUES (?, 0, ?)", (digest, data))


def forged_books(rng: random.Random) -> bytes:
    """Good books with some changes, in what they say and in their arrays."""
    line, _, rest = long_study()[1].partition(b"\n")
    said = json.loads(line)
    arrays = bytearray(rest)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if rng.random() < 0.6:
            places = list(_within(said))
            # What they are of stays as it is more often than not: else they are not looked at.
            other = [(where, key) for where, key in places if key not in ("make", "head")]
            _change(*rng.choice(other if rng.random() < 0.9 else places), said, rng)
        else:
            _change_bytes(arrays, rng)
    text = json.dumps(said)
    if rng.random() < 0.02:
        text = text.replace('"pending": ', f'"x": {"[" * DEEP}{"]" * DEEP}, "pending": ')
    return text.encode() + b"\n" + bytes(arrays)


def _change_bytes(arrays: bytearray, rng: random.Random) -> None:
    """Another number in arrays of numbers of eight bytes, or fewer or more of them."""
    start = 8 * rng.randrange(max(1, len(arrays) // 8))
    match rng.randrange(6):
        case 0:
            del arrays[rng.randrange(len(arrays) + 1) :]
        case 1:
            arrays[start:start] = rng.randbytes(8 * rng.choice([1, 2, 9, 72]))
        case 2:
            number = rng.choice([-1, 0, 1, 7, 11, 12, 13, 10**6, 2**62, -(2**63)])
            arrays[start : start + 8] = number.to_bytes(8, "little", signed=True)
        case 3:
            arrays[start : start + 8] = rng.randbytes(8)
        case _:
            number = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e-308, -1.0, 0.5])
            arrays[start : start + 8] = np.float64(number).tobytes()


def look_at_books(path: Path, data: bytes) -> str:
    """Open the study with these books, and say what came of it: what it says is "right", or it was "noticed" that the books are
    another's; then do what people do."""
    whole, good = long_study()
    path.write_bytes(whole)
    put_books(path, data)
    found = known(path)
    outcome = "right" if found == _truth() else "noticed"
    with ma.Study.open(path, worker="w") as study:
        try:
            study.verify()
        except ma.errors.StudyDamagedError:
            assert data != good, "good books are refused"
            outcome = "noticed"
        else:
            assert outcome == "right", f"books that are wrong are believed: {found}"
            return outcome  # the study is as good as any
        for call in (
            study.best,
            study.certificate,
            study.ask,
            lambda: study.tell("m5", 1.0, token="a"),
            lambda: study.tell(["m7", "m8", "new"], [0.5, 1.5, 2.5], token="b"),
            lambda: study.tell(study.pending[:1], 1.0),
            lambda: study.correct(study.history[-1:], 2.0),
            lambda: study.correct("m11", None),
            study.renew,
            lambda: study.retire("m4"),
            lambda: study.restore("m10"),
            lambda: study.add([{"id": "more", "x": 0.2, "n": 1, "c": "a"}]),
            lambda: study.results_of(["m5", "more"]),
            study.best,
            study.undo,
        ):
            with contextlib.suppress(ma.errors.ManyArmsError), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # values at the end of float64
                call()
    return outcome


@cache
def _truth() -> object:
    """What the study says whose books are forged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.db"
        path.write_bytes(long_study()[0])
        return known(path)


def known(path: Path) -> object:
    """What a study says without its model."""
    with ma.Study.open(path, worker="w") as study:
        replay = study._replica.replay
        trials = [(each, each.event, each.note, each.batch) for each in replay.history]
        outcomes = replay.ledger.outcomes
        return (
            trials,
            replay.leases,
            replay.ledger.pending,
            outcomes.entries.items.tobytes(),
            outcomes.taken.items.tolist(),
            (outcomes.is_changed, outcomes.has_grown),
            replay.tokens,
            replay.sources,
            study.pool.ids.tolist(),
            study.pool.X.tolist(),
            study.n_events,
        )


def books(where: Path, number: int, seed: int = 0) -> dict[str, int]:
    """So many forged books, and how often what came of it; AssertionError where a call took longer than seconds."""
    found = {"right": 0, "noticed": 0}
    for each in range(number):
        begun = time.process_time()
        try:
            found[
                look_at_books(where / "forged.db", forged_books(random.Random(f"{seed} {each}")))
            ] += 1
        except Exception as error:
            raise AssertionError(f"books {seed} {each}: {error!r}") from error
        assert time.process_time() - begun < 20, f"books {seed} {each} took too long"
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--books", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with place("memory") as where:
        print("forged books:", books(where, given.books, given.seed))
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB at most")
