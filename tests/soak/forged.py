"""Exports as somebody else may write them: anything may stand anywhere, and every digest is right."""

import base64
import copy
import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import manyarms as ma
from manyarms.study.copies import exported, imported
from manyarms.study.events import KINDS, NO_PREDECESSOR, Event, row_of

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
    place, key = rng.choice(list(_within(event)) or [(events, 0)])
    match rng.randrange(10):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[
                rng.choice(
                    ["x", "removed", "noise", "notes", "batches", "token", "box", "prior", "pool"]
                )
            ] = place[key]
        case 1:
            place.append(copy.deepcopy(place[key]))
        case 2:
            events.insert(rng.randrange(len(events) + 1), copy.deepcopy(rng.choice(events)))
        case 3:
            a, b = rng.randrange(len(events)), rng.randrange(len(events))
            events[a], events[b] = events[b], events[a]
        case 4 if isinstance(event, dict):
            event["kind"] = rng.choice(list(KINDS))
        case 5:
            # What stands elsewhere is right there, and wrong here.
            other, name = rng.choice(list(_within(events)))
            place[key] = copy.deepcopy(other[name])
        case 6 if isinstance(place[key], int | float):
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
