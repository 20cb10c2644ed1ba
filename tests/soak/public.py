"""Everything public, called by its signature: a list made of the public names, so that nothing is left out."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import manyarms as ma
from soak.hostile import Hostile

MODULES = [ma, *(each for name in ma.__all__ if inspect.ismodule(each := getattr(ma, name)))]
K = ma.kernels
ANY_NUMBER = {"evidence", "ids_of", "labels", "most", "size", "tree"}
"""What may be, or have, infinity: a box has infinitely many points, a cell that was not looked at may have any value; and what
repeats what was given."""
CALLED = {"f", "make", "callbacks", "maximiser"}
"""Functions of the caller: what they raise is the caller's. And a budget is spent."""
NOT_CALLED = {
    "cluster.RayExecutor": "it starts a cluster",
    "kernels.Kernel": "what kernels have in common",
    "kernels.ObjectKernel": "what kernels of objects have in common",
}
"""Public names that are not called, and why."""


def _table() -> np.ndarray:
    return np.random.default_rng(3).random((12, 2))


def _optimizer() -> ma.Optimizer:
    optimizer = ma.Optimizer(_table(), seed=0)
    optimizer.tell(range(6), _table()[:6, 0])
    return optimizer


def _policy() -> ma.BKB:
    policy = ma.BKB(_table(), K.RBF(0.4), seed=0)
    policy.observe([0, 3, 5], [0.1, 0.9, 0.4])
    return policy


def _evidence() -> ma.Evidence:
    return _policy().evidence


def _box_optimizer() -> Any:
    optimizer = ma.Optimizer(ma.Box(x=(0.0, 1.0), c=["a", "b"]), seed=0)
    for value in (0.3, 0.6, 0.2):
        optimizer.tell(optimizer.ask(), [value])
    return optimizer


def _study() -> ma.Study:
    Path("study.db").unlink(missing_ok=True)
    study = ma.Study.create("study.db", _table(), seed=0)
    study.tell(range(6), _table()[:6, 0])
    return study


RIGHT: dict[str, Callable[[], Any]] = {
    "A": lambda: np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]),
    "D": lambda: np.ones((3, 3)),
    "V": lambda: np.ones((3, 3)),
    "X": lambda: _table()[:3],
    "Y": lambda: _table()[:3],
    "alphabet": lambda: "ACGT",
    "arm": lambda: 1,
    "arms": _table,
    "b": lambda: np.array([1.0, 0.0, 0.0]),
    "beta": lambda: 2.0,
    "bounds": lambda: [(0.0, 1.0), (0.0, 1.0)],
    "box": lambda: ma.Box([(0.0, 1.0), (0.0, 1.0)]),
    "budget": lambda: 5,
    "condition": lambda: "x0 > 0.5",
    "confidence": lambda: ma.Constant(2.0),
    "context": lambda: [0.5],
    "counts": lambda: np.ones(12),
    "data": _table,
    "direction": lambda: "maximize",
    "domain": lambda: ma.Box([(0.0, 1.0), (0.0, 1.0)]),
    "edges": lambda: [(0, 1)],
    "evidence": _evidence,
    "f": lambda: lambda row: float(np.sum(row)),
    "first": lambda: K.RBF(0.3),
    "frame": lambda: {"x": [1.0, 2.0], "c": ["a", "b"]},
    "function": lambda: lambda x, y: 1.0,
    "history": lambda: [0.1, 0.5],
    "id": lambda: None,
    "ids": lambda: None,
    "in_process": lambda: True,
    "kernel": lambda: K.RBF(0.4),
    "labels": lambda: ["C", "O"],
    "location": lambda: "study.db",
    "levels": lambda: {"a": [1, 2], "b": ["x", "y"]},
    "make": lambda: lambda noise: ma.BKB(_table(), K.RBF(0.4), regularization=0.01),
    "n_features": lambda: None,
    "objects": lambda: ["AC", "GT"],
    "optimizer": _optimizer,
    "policy": _policy,
    "pool": _table,
    "rewards": lambda: [0.1, 0.2],
    "rows": lambda: [{"x": 1.0}, {"x": 2.0}],
    "rule": lambda: ma.Inserted(0.01),
    "second": lambda: K.Matern(0.5),
    "seed": lambda: 0,
    "theory": lambda: ma.Theory(1.0, 0.1),
    "values": lambda: [0.5, 0.2],
}
"""What is right by the name of a parameter; a small number for all others."""
MADE: dict[str, Callable[[], Any]] = {
    "Best": lambda: _optimizer().best(),
    "AdaBKB": lambda: ma.domains.AdaBKB(
        ma.Box([(0.0, 1.0)]), K.RBF(0.4), confidence=ma.Certified(1.0, 0.1)
    ),
    "Box": lambda: ma.Box(x=(0.0, 1.0), c=["a", "b"]),
    "BoxOptimizer": _box_optimizer,
    "Candidate": lambda: _optimizer().top(1)[0],
    "Certificate": lambda: _optimizer().certificate(),
    "Evidence": _evidence,
    "On": lambda: K.On(K.RBF(0.3), 0, 1),
    "Optimizer": _optimizer,
    "Pool": lambda: ma.Pool.from_array(_table()),
    "Prediction": lambda: _policy().predict(),
    "Predictions": lambda: _optimizer().predict([0, 1]),
    "Score": lambda: ma.domains.DomainBKB(ma.Box([(0.0, 1.0)]), K.RBF(0.4), seed=0).score,
    "Scores": lambda: _policy().scores(),
    "Stream": lambda: ma.Stream(ma.BKB(None, K.RBF(0.4), n_features=2)),
    "Study": _study,
    "TrackRecord": lambda: _optimizer().certificate().record,
    "Trial": lambda: _optimizer().history[0],
    "Unpacked": lambda: K.Unpacked(K.Tanimoto(), (8,)),
}
"""Objects of classes that are not made by small right arguments."""


def names() -> dict[str, Any]:
    """Every public name of the package and of its modules, and of their classes what is documented for users: by a section of parameters, or without any."""
    found = {}
    for module in MODULES:
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.ismodule(member):
                continue
            known = f"{module.__name__.removeprefix('manyarms').strip('.')}.{name}".strip(".")
            found[known] = member
            if inspect.isclass(member) and not issubclass(member, BaseException):
                of_class = {each: getattr(member, each) for each in dir(member) if each[0] != "_"}
                found |= {f"{known}.{n}": m for n, m in of_class.items() if is_for_users(m)}
    return found


def is_for_users(member: Any) -> bool:
    """Whether what a class has takes nothing, or says what it takes."""
    if not callable(member):
        return True
    return not _parameters(member) or bool(re.search(r"Parameters\n *-{3}", member.__doc__ or ""))


def _parameters(called: Any) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in found if each.name not in ("self", "cls")]


def arguments(h: Hostile, called: Any, hostile: float) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for a call: those that are needed, and some that are not, each hostile so often."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    for each in _parameters(called):
        is_needed = each.default is each.empty
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or (
            not is_needed and h.rng.random() > hostile
        ):
            continue
        right = RIGHT.get(each.name, lambda: 2)
        value = h.anything() if h.rng.random() < hostile else right()
        if (each.name in CALLED and callable(value)) or each.name == "budget":
            value = right()
        if each.kind == each.POSITIONAL_ONLY or (is_needed and each.kind != each.KEYWORD_ONLY):
            given.append(value)
        else:
            named[each.name] = value
    if called in (ma.cluster.Sharded, ma.cluster.OnShards):
        named["in_process"] = True  # no cluster is started
    return given, named


def instance(h: Hostile, name: str) -> Any:
    """An object of a class, made as it should be."""
    short = name.rpartition(".")[2]
    if short in MADE:
        return MADE[short]()
    given, named = arguments(h, NAMES[name], 0.0)
    return NAMES[name](*given, **named)


def state_of(thing: Any) -> Any:
    """All that an object tells of its state, as a value that can be compared."""
    if isinstance(thing, ma.Optimizer | ma.Study):
        return repr([thing.history, thing.pending])
    if isinstance(thing, ma.Stream):
        return repr(thing), state_of(thing.policy)
    if isinstance(thing, ma.Pool):
        return thing.X.tobytes(), repr(thing.ids.tolist())
    if hasattr(thing, "counts") and hasattr(thing, "predict"):
        return thing.counts.tobytes(), thing.beta
    return None


def calls(h: Hostile, name: str) -> tuple[Any, Iterator[tuple[str, Callable[[], Any]]]]:
    """An object, and calls of what it has; where the name is that of a function or of a class that is made by others, calls of that."""
    inner = [each for each in NAMES if each.rpartition(".")[0] == name]
    thing = instance(h, name) if inner else None

    def attribute(known: str) -> Any:
        name = known.rpartition(".")[2]
        found = getattr(thing, name)
        if callable(NAMES[known]):
            given, named = arguments(h, found, 0.5)
            found = found(*given, **named)
        return None if name in ANY_NUMBER else found

    def called() -> Any:
        given, named = arguments(h, NAMES[name], 0.5)
        NAMES[name](*given, **named)  # numbers of what was given may be anything

    def some() -> Iterator[tuple[str, Callable[[], Any]]]:
        while True:
            yield name, called
            for known in h.rng.sample(inner, min(3, len(inner))):
                yield known, partial(attribute, known)

    return thing, some()


NAMES = names()
OWNERS = sorted(
    name
    for name, member in NAMES.items()
    if callable(member)
    and name.rpartition(".")[0] not in NAMES
    and name not in NOT_CALLED
    and not (inspect.isclass(member) and issubclass(member, BaseException))
)
"""Functions and classes; the rest are attributes of these."""
