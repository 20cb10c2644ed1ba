"""No public call does linear algebra with more than one BLAS thread: threads that wait for one another spin."""

import copy
import dis
import inspect
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import count, product
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from test_policy_contract import ARMS, KERNEL, POLICIES, each_of, trained
from threadpoolctl import ThreadpoolController, threadpool_limits

import manyarms as ma
from manyarms import diagnostics
from manyarms.errors import ParameterError, StateError

SOURCE = str(Path(ma.__file__).parent)
Calls = dict[str, Callable[[Any], Any]]
ALGEBRA = {"blas", "dot", "lapack", "linalg", "matmul", "scipy"}
"""Names by which the source calls BLAS and LAPACK, beside the operator @."""

WHOLE = "equal.py"
"""It multiplies whole numbers, which BLAS does not."""


@cache
def lines_of_algebra(code: CodeType) -> frozenset[int]:
    """The lines of a function that multiply matrices, or call BLAS or LAPACK."""
    found: set[int] = set()
    for each in dis.get_instructions(code):
        product = each.opname == "BINARY_OP" and each.argrepr in ("@", "@=")
        called = each.opname.startswith("LOAD_") and each.argval in ALGEBRA
        positions = each.positions
        if (product or called) and positions is not None and positions.lineno is not None:
            found.update(range(positions.lineno, (positions.end_lineno or positions.lineno) + 1))
    return frozenset(found)


def outside(call: Callable[[], Any]) -> tuple[set[str], int]:
    """The lines of algebra that ran with more than one thread in a call, and how many ran at all."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    wrong: set[str] = set()
    n_lines = 0

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        ours = code.co_filename.startswith(SOURCE) and not code.co_filename.endswith(WHOLE)
        return step if ours and lines_of_algebra(code) else None

    def step(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal n_lines
        if event == "line" and frame.f_lineno in lines_of_algebra(frame.f_code):
            n_lines += 1
            if max(library.get_num_threads() for library in libraries) > 1:
                wrong.add(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return step

    before = sys.gettrace()
    with threadpool_limits(2):
        assert max(library.get_num_threads() for library in libraries) == 2
        threading.settrace(enter)
        sys.settrace(enter)
        try:
            call()
        finally:
            sys.settrace(before)
            threading.settrace(before)
    return wrong, n_lines


def public(kind: type) -> list[str]:
    """The names of the public methods and properties of a class."""
    names = [name for name in dir(kind) if name == "__call__" or not name.startswith("_")]
    return [
        name
        for name in names
        if callable(getattr(kind, name)) or isinstance(inspect.getattr_static(kind, name), property)
    ]


def check(make: Callable[[], Any], calls: Calls) -> None:
    """Use every public name of what is made, each time anew; `calls` has those that need arguments."""
    wrong, n_lines = outside(make)
    found = {"making it": wrong} if wrong else {}
    for name in public(type(make())):
        made = make()
        wrong, n = outside(partial(used, made, name, calls))
        n_lines += n
        if wrong:
            found[name] = wrong
    assert n_lines
    assert not found


def used(made: Any, name: str, calls: Calls) -> None:
    with suppress(ParameterError, StateError):  # not all policies do everything
        if name in calls:
            calls[name](made)
            return
        value = getattr(made, name)
        if inspect.ismethod(value) or inspect.isfunction(value):
            value()


ROWS = np.random.default_rng(1).random((20, 2))
POLICY: Calls = {
    "batch_of": lambda policy: policy.batch_of([1, 2], [0.5, 0.1], None),
    "choose": lambda policy: policy.choose(3, pending=[3, 4]),
    "estimate": lambda policy: policy.estimate(1000, 2, 10),
    "leading": lambda policy: policy.leading(5),
    "learn": lambda policy: policy.learn(policy.batch_of([1, 70], [0.5, 0.1], None)),
    "observe": lambda policy: policy.observe([1, 2, 70], [0.5, 0.2, 0.1]),
    "over": lambda policy: policy.over(np.vstack([ARMS, ROWS])),
    "predict": lambda policy: policy.predict(ROWS),
    "resumed": lambda policy: policy.resumed(policy._state),
    "rows_of": lambda policy: policy.rows_of([1, 2]),
    "surest": lambda policy: policy.surest(np.arange(80)),
}

EVIDENCE: Calls = {
    "dimension": lambda evidence: evidence.effective_dimension,
    "largest": lambda evidence: evidence.eta,
    "of": lambda evidence: evidence.of(1, None),
}


@each_of(POLICIES)
def test_policies(policy):
    bandit = trained(policy)
    check(lambda: copy.deepcopy(bandit), POLICY)
    wrong, _ = outside(policy)
    assert not wrong


@each_of(POLICIES)
def test_evidence(policy):
    bandit = trained(policy)
    check(lambda: copy.deepcopy(bandit).evidence, EVIDENCE)


def test_estimated_noise():
    def make():
        policy = ma.baselines.EstimatedNoise(
            lambda noise: ma.BKB(ARMS, KERNEL, regularization=noise**2), 1.0
        )
        policy.observe([1, 1, 2, 3], [0.1, 0.2, 0.3, 0.4])
        return policy

    check(make, {"observe": lambda policy: policy.observe(np.arange(60), np.zeros(60))})


BOX = ma.Box([[0, 1], [0, 1]])
DOMAINS = {
    "box": lambda: ma.domains.DomainBKB(BOX, KERNEL),
    "levels": lambda: ma.domains.DomainBKB(ma.Box(a=[1, 2, 3], b=["x", "y"]), KERNEL),
    "ball": lambda: ma.domains.DomainBKB(ma.domains.Ball(2, 2.0), ma.kernels.Linear()),
    "polytope": lambda: ma.domains.DomainBKB(
        ma.domains.Polytope(np.vstack([np.eye(2), -np.eye(2)]), np.array([1.0, 1.0, 0.0, 0.0])),
        ma.kernels.Linear(),
    ),
    "tree": lambda: ma.domains.AdaBKB(BOX, ma.kernels.RBF(0.3), confidence=ma.Certified(5.0, 0.1)),
}


@pytest.mark.parametrize("domain", DOMAINS)
def test_domains(domain):
    rows = DOMAINS[domain]().domain.sample(20, np.random.default_rng(0))

    def make():
        policy = DOMAINS[domain]()
        policy.observe(rows[:18], np.sin(rows[:18]).sum(axis=1))
        return policy

    domain_calls: Calls = {
        "as_told": lambda policy: policy.as_told(rows),
        "batch_of": lambda policy: policy.batch_of(rows[18:], [0.1, 0.2], None),
        "choose": lambda policy: policy.choose(2, pending=rows[:1]),
        "learn": lambda policy: policy.learn(policy.batch_of(rows[18:], [0.1, 0.2], None)),
        "observe": lambda policy: policy.observe(rows[18:], [0.1, 0.2]),
        "predict": lambda policy: policy.predict(rows),
        "resumed": lambda policy: policy.resumed(policy.belief, None, rows, np.zeros(20)),
    }
    score_calls: Calls = {
        "__call__": lambda u: u(rows),
        "both": lambda u: u.both(rows),
        "gradient": lambda u: u.gradient(rows),
        "improved": lambda u: u.improved(rows, u(rows), rows[:, None]),
        "incumbents": lambda u: u.incumbents(2),
        "top": lambda u: u.top(rows, 2),
    }
    check(make, domain_calls)
    check(lambda: make().evidence, EVIDENCE)
    check(lambda: make().score, score_calls)


TABLE = [{"a": a, "b": b} for a, b in product(range(8), (0.1, 0.2, 0.4, 0.5, 0.7, 0.8, 0.9))]
MORE = [{"a": 7, "b": 0.3}]
SEARCH: Calls = {
    "add": lambda search: search.add(MORE),
    "box": lambda search: None,
    "ask": lambda search: search.ask(3),
    "close": lambda search: None,
    "correct": lambda search: search.correct(3, 0.7),
    "create": lambda search: None,
    "open": lambda search: None,
    "predict": lambda search: search.predict([5, 6]),
    "results_of": lambda search: search.results_of([5, 6]),
    "predict_rows": lambda search: search.predict_rows(MORE),
    "release": lambda search: search.release(search.pending[:1]),
    "renew": lambda search: search.renew(60.0),
    "restore": lambda search: search.restore(50),
    "retire": lambda search: search.retire(4),
    "retype": lambda search: search.retype({"a": "categorical"}),
    "revise": lambda search: search.revise({"ids": [3], "values": [0.1]}),
    "slice": lambda search: search.slice("a", "b"),
    "tell": lambda search: search.tell(range(9, 16), np.linspace(0, 1, 7)),
    "undo": lambda search: search.undo(),
}


POINTS = [{"x": x, "y": y} for x, y in ROWS]
IN_A_BOX: Calls = {
    **SEARCH,
    "correct": lambda search: search.correct(POINTS[3], 0.7),
    "predict": lambda search: search.predict(POINTS),
    "results_of": lambda search: search.results_of(POINTS),
    "revise": lambda search: search.revise({"ids": POINTS[3:4], "values": [0.1]}),
    "slice": lambda search: search.slice("x", "y"),
    "tell": lambda search: search.tell(POINTS[9:], np.linspace(0, 1, 11)),
}
"""What a box does not do, such as `add`, it refuses."""


def searched(search, ids):
    """With some results, one candidate that is pending, and one of a table that is retired."""
    search.tell(ids, np.sin(np.arange(float(len(ids)))))
    search.ask()
    with suppress(ParameterError):
        search.retire(50)
    return search


@pytest.mark.parametrize(
    "options", [{}, {"kernel": KERNEL, "noise": 0.1}, {"policy": ma.GPUCB}], ids=repr
)
def test_optimizers(options):
    made = searched(ma.Optimizer(TABLE, **options), range(9))
    check(lambda: copy.deepcopy(made), SEARCH)


@pytest.mark.parametrize("policy", [None, ma.BKB])
def test_optimizers_with_a_prior(policy):
    prior = (TABLE, np.linspace(0, 1, len(TABLE)))
    wrong, n_lines = outside(lambda: searched(ma.Optimizer(TABLE, prior=prior), range(9)))
    assert n_lines
    assert not wrong


def test_optimizers_over_a_box():
    made = searched(ma.Optimizer(ma.Box(x=(0.0, 1.0), y=(0.0, 1.0))), POINTS[:9])
    check(lambda: copy.deepcopy(made), IN_A_BOX)


@pytest.mark.parametrize("space", ["table", "box"])
def test_studies(space, folder):
    names = count()
    pool = ma.Pool.from_dicts(TABLE) if space == "table" else ma.Box(x=(0.0, 1.0), y=(0.0, 1.0))
    made = folder / "made.db"
    with ma.Study.create(made, pool) as study:
        searched(study, range(9) if space == "table" else POINTS[:9])
        study.best()

    def make():
        # A copy that no process has open.
        path = folder / f"{next(names)}.db"
        shutil.copyfile(made, path)
        return ma.Study.open(path)

    check(make, SEARCH if space == "table" else IN_A_BOX)


def test_streams(folder):
    def make():
        stream = ma.Stream(ma.BKB(None, KERNEL, n_features=2))
        for request in range(6):
            stream.choose(request, ROWS)
            stream.observe(request, 0.1 * request)
        stream.choose("waiting", ROWS)
        return stream

    stream_calls: Calls = {
        "choose": lambda stream: stream.choose("next", ROWS, 3, suppose=True),
        "forget": lambda stream: stream.forget("waiting"),
        "load": lambda stream: ma.Stream.load(
            folder / "s", ma.BKB(None, KERNEL, n_features=2)
        ).choose("a", ROWS),
        "observe": lambda stream: stream.observe("waiting", 1.0),
        "save": lambda stream: stream.save(folder / "s"),
    }
    make().save(folder / "s")
    check(make, stream_calls)


def test_diagnostics():
    policy = trained(POLICIES[0])
    sampled = ma.BKB(ARMS, KERNEL, rule=ma.Sampled(5.0))
    sampled.observe(np.arange(30), np.zeros(30))
    for call in (
        lambda: diagnostics.effective_dimension(ROWS, KERNEL, 0.1),
        lambda: diagnostics.information_gain(ROWS, KERNEL, 0.1),
        lambda: diagnostics.sandwich(copy.deepcopy(policy)),
        lambda: diagnostics.sandwich(copy.deepcopy(sampled)),
        lambda: diagnostics.sketch_accuracy(copy.deepcopy(sampled)),
    ):
        wrong, n_lines = outside(call)
        assert n_lines
        assert not wrong


def test_the_whole_loop():
    wrong, n_lines = outside(
        lambda: ma.maximize(lambda x: float(x[0]), ROWS, budget=8, progress=False)
    )
    assert n_lines
    assert not wrong
