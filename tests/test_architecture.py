"""docs/architecture.md says how one ask and one tell go through the source. Is that so?"""

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import manyarms as ma

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "manyarms"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", PAGE)


def steps(heading: str) -> list[tuple[str, str]]:
    """The file and the function that each numbered step under a heading begins with."""
    section = re.search(rf"^## {heading}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    lines = re.findall(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`", section[1], re.MULTILINE)
    assert [int(number) for number, _, _ in lines] == list(range(1, len(lines) + 1))
    return [(file, function) for _, file, function in lines]


def calls(call: Callable[[], object]) -> list[tuple[str, str]]:
    """The functions of the package entered during a call, in order: file and qualified name."""
    way: list[tuple[str, str]] = []

    def enter(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            way.append((Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_qualname))

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return way


@pytest.fixture(scope="module")
def ways() -> dict[str, list[tuple[str, str]]]:
    """Of one ask and of one tell, with results enough for the model to choose and no refit due."""
    X = np.random.default_rng(0).random((300, 2))
    optimizer = ma.Optimizer(ma.Pool.from_array(X), seed=0)
    for _ in range(20):  # fitted at 19 results, and next at 23; it is no turn of an untried one
        ids = optimizer.ask()
        optimizer.tell(ids, X[ids[0], 0])
    ask = calls(optimizer.ask)
    tried = {trial.id for trial in optimizer.history} | set(optimizer.pending)
    # Of a candidate asked for, the belief may know k_W(x) already.
    other = next(i for i in range(len(X)) if i not in tried)
    tell = calls(lambda: optimizer.tell(other, 0.5))
    return {"ask": ask, "tell": tell}


@pytest.mark.parametrize("call", ["ask", "tell"])
def test_the_walk_is_the_way_of_a_call(call, ways):
    rest = iter(ways[call])
    for step in steps(f"Follow one {call}"):
        assert step in rest, f"{step} does not come, or not in this order"


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_the_page_names_is_there(file, name):
    body: list[ast.stmt] = ast.parse((SOURCE / file).read_text()).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part
        ]
        assert found, f"{file} has no {name}"
        body = found[0].body


def test_the_page_names_the_steps():
    assert len(steps("Follow one ask")) >= 10
    assert len(steps("Follow one tell")) >= 10
