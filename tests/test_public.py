"""The public surface: names, documentation, imports that go one way, README fragments that run."""

import ast
import inspect
import pickle
import re
from pathlib import Path

import pytest

import manyarms as ma
from manyarms.errors import Advice

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "manyarms"

# Each layer may import from itself and from those before it. docs/architecture.md draws the same list.
LAYERS = [
    ["errors", "typing", "runtime", "checks", "equal", "lapack", "_sweep"],
    ["sheets"],
    ["kernels"],
    ["space"],
    ["engine"],
    ["search"],
    ["bandit"],
    ["baselines", "cluster", "domains"],
    ["diagnostics", "campaign"],
    ["optimizer"],
    ["loop", "plots", "versions"],
    ["study"],
    ["testing"],
    ["__init__"],
    ["cli"],
]

# The exceptions, all of them: module and what it imports from above. docs/architecture.md gives the reasons.
UPWARD = {
    ("manyarms.engine.exact", "manyarms.search.scores"),
    ("manyarms.engine.sampled", "manyarms.search.scores"),
}


def layer_of(module: str) -> int:
    name = module.split(".")[1] if "." in module else "__init__"
    return next(i for i, names in enumerate(LAYERS) if name in names)


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("manyarms"):
            if node.module == "manyarms":
                yield from (f"manyarms.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("manyarms"))


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_imports_go_one_way(path):
    module = ".".join(["manyarms", *path.relative_to(SOURCE).with_suffix("").parts])
    for imported in imports(path):
        if (module, imported) in UPWARD:
            continue
        assert layer_of(imported) <= layer_of(module), (
            f"{module} imports {imported}, which is above it"
        )


def test_every_exception_is_one():
    for module, imported in UPWARD:
        path = SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")
        assert imported in imports(path), (
            f"{module} does not import {imported} any more: delete the exception"
        )
        assert layer_of(imported) > layer_of(module)


def test_the_search_needs_no_belief_that_imports_it():
    """So the exceptions above make no cycle."""
    needed = {
        name
        for path in (SOURCE / "search").glob("*.py")
        for name in imports(path)
        if "engine" in name
    }
    assert not needed & {module for module, _ in UPWARD}


def test_the_layers_are_drawn_in_the_architecture_page():
    drawn = re.search(
        r"```text\n(errors.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL
    ).group(1)
    names = [name for names in LAYERS for name in names if name != "__init__"]
    assert re.findall(r"\w+", drawn) == names


def test_what_the_theory_page_points_to_is_there():
    page = (ROOT / "docs" / "theory.md").read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", page):
        assert f"def {name}(" in tests, name
    for name in re.findall(r"`(tests/[\w/]+\.py)`", page):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(\w+/\w+\.py)`", page):
        assert name.startswith("tests/") or (SOURCE / name).exists(), name


def test_what_the_contributing_page_points_to_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for name in re.findall(r"`((?:src|docs|tests|benchmarks)/[\w./]+)`", page):
        assert (ROOT / name).exists(), name
    targets = re.findall(r"^(\w+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pages = page + (ROOT / "README.md").read_text()
    assert set(re.findall(r"`make (\w+)", pages)) <= set(targets)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    ],
)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_every_target_is_in_the_help():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split()
    assert set(phony) == set(re.findall(r"^(\w+):.*## ", makefile, re.MULTILINE))


def documented(heading: str) -> set[str]:
    """Names in the first column of the table under a heading of docs/api.md."""
    page = (ROOT / "docs" / "api.md").read_text()
    section = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL
    ).group(1)
    return set(re.findall(r"^\| `(\w+)", section, re.MULTILINE))


@pytest.mark.parametrize(
    ("heading", "module"),
    [
        ("manyarms", ma),
        ("manyarms.kernels", ma.kernels),
        ("manyarms.plots", ma.plots),
        ("manyarms.bandit", ma.bandit),
        ("manyarms.baselines", ma.baselines),
        ("manyarms.cluster", ma.cluster),
        ("manyarms.domains", ma.domains),
        ("manyarms.diagnostics", ma.diagnostics),
        ("manyarms.errors", ma.errors),
    ],
)
def test_the_public_names_are_the_documented_ones(heading, module):
    assert set(module.__all__) == documented(heading)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), f"{name} has no docstring"


@pytest.mark.parametrize(
    ("name", "function"),
    [("BKB", ma.BKB.__init__), ("GPUCB", ma.GPUCB.__init__), ("choose", ma.BKB.choose)],
)
def test_the_documented_signatures_are_the_real_ones(name, function):
    page = (ROOT / "docs" / "api.md").read_text()
    written = re.search(rf"^(?:- `)?{name}\(((?:[^()]|\([^()]*\))*)\)", page, re.MULTILINE).group(1)
    names = [part.split("=")[0] for part in re.split(r", (?![^(]*\))", written) if part != "*"]
    assert names == [name for name in inspect.signature(function).parameters if name != "self"]


def public_members():
    for module in (ma, ma.kernels, ma.bandit, ma.baselines, ma.domains, ma.diagnostics):
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isclass(member):
                yield from (
                    (f"{name}.{k}", v)
                    for k, v in inspect.getmembers(member)
                    if not k.startswith("_")
                )
            elif inspect.isfunction(member):
                yield name, member


@pytest.mark.parametrize(
    ("name", "member"),
    list(public_members()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_public_functions_are_typed_and_documented(name, member):
    function = member.fget if isinstance(member, property) else member
    if not inspect.isfunction(function) or not function.__module__.startswith("manyarms"):
        return
    assert inspect.getdoc(member) or name.endswith((".diag",)), name
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty, name
    for parameter in signature.parameters.values():
        assert parameter.name == "self" or parameter.annotation is not inspect.Parameter.empty, (
            f"{name}({parameter.name})"
        )


def fragments(page: str):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/bandit.md", "docs/candidates.md", "docs/changing.md", "docs/streams.md"],
)
def test_fragments_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    code = fragments(page)
    assert code
    scope: dict = {}
    for fragment in code:
        exec(compile(fragment, page, "exec"), scope)


def test_every_error_is_a_manyarms_error():
    for name in ma.errors.__all__:
        assert issubclass(getattr(ma.errors, name), ma.errors.ManyArmsError)
        assert name in ma.errors.__doc__


@pytest.mark.parametrize("name", ma.errors.__all__)
def test_every_error_says_what_it_holds(name):
    kind = getattr(ma.errors, name)
    plain = kind("it must not hold {braces}")
    assert str(plain) == "it must not hold {braces}"
    error = kind("it is so", "do this", Advice("do {} here", "option", {"{a}": 1}), "do that")
    assert str(error) == "it is so; do this, do option={'{a}': 1} here, or do that"
    assert error.said(lambda *_: None if _[0] else "") == "it is so; do this, or do that"
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.advice, copied.problem) == (str(error), error.advice, "it is so")


def test_fields_of_an_error():
    error = ma.errors.ParameterError(
        "{option} of {column!r} must be {expected}, got {got} in {place}",
        option="columns",
        column="{x}",
        row=3,
        id="{y}",
        expected="a {z}",
        got="0" * 99,
    )
    assert str(error) == (
        f"columns of '{{x}}' must be a {{z}}, got '{'0' * 56}… in row 3 (id '{{y}}')"
    )
    assert "--columns of" in error.said(lambda option, _: f"--{option}")
    assert error.fields["row"] == 3
    assert "60,000 bits" in str(ma.errors.ArmsError("got {got}", got=1 << 59_999))


def test_errors_of_a_table_hold_column_row_id_and_value():
    table = [{"{n}": "{a}", "x{}": "1"}, {"{n}": "{b}", "x{}": "{}"}]
    with pytest.raises(ma.errors.ArmsError) as caught:
        ma.Pool.from_dicts(table, id="{n}", columns={"x{}": "continuous"})
    assert caught.value.fields == {
        "column": "x{}",
        "row": 1,
        "id": "{b}",
        "expected": "numbers",
        "got": "{}",
    }
    assert str(caught.value).startswith(
        "column 'x{}' must hold numbers, got '{}' in row 1 (id '{b}'); correct the value"
    )
    with pytest.raises(ma.errors.UnknownArmError) as caught:
        ma.Pool.from_dicts(table, id="{n}", missing="category").positions(["{c}"])
    assert caught.value.fields["id"] == "{c}"


def test_nothing_is_pickled_and_nothing_asserts():
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), path
        assert "pickle" not in path.read_text().replace("allow_pickle=False", ""), path
