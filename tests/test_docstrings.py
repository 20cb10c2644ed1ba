"""Docstrings of public names have NumPy-style sections, which name what the signatures name."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import manyarms as ma

SECTIONS = ("Parameters", "Attributes", "Returns", "Raises")
MODULES = (ma, ma.kernels, ma.bandit, ma.baselines, ma.domains, ma.diagnostics, ma.plots)
NOT_CALLED = {"Kernel", "ObjectKernel", "Pool", "Study"}
"""Made by subclasses, or by class methods."""


def sections(doc: str) -> dict[str, str]:
    """The text under each heading: a word on a line of its own, underlined with as many dashes."""
    parts = re.split(r"^(\w+)\n(-{3,})\n", doc, flags=re.MULTILINE)
    found = {}
    for heading, dashes, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        assert heading in SECTIONS, heading
        assert len(dashes) == len(heading), f"{heading} is underlined with {dashes}"
        assert heading not in found, f"{heading} comes twice"
        found[heading] = text
    order = [SECTIONS.index(heading) for heading in found]
    assert order == sorted(order), f"sections come in the order {SECTIONS}, got {list(found)}"
    return found


def entries(text: str) -> list[tuple[list[str], str]]:
    """The names of each entry of a section, and what is said of them, which is indented."""
    found: list[tuple[list[str], str]] = []
    for line in text.rstrip().splitlines():
        if line and not line.startswith(" "):
            found.append(([part.strip() for part in line.split(" : ")[0].split(",")], ""))
        elif line:
            assert line.startswith("    "), f"neither a name nor an indented line: {line!r}"
            found[-1] = (found[-1][0], found[-1][1] + line.strip())
    return found


def named(text: str) -> list[str]:
    return [name.lstrip("*") for names, _ in entries(text) for name in names]


def parameters(called: Any) -> list[str]:
    return [name for name in inspect.signature(called).parameters if name not in ("self", "cls")]


def public() -> list[tuple[str, Any]]:
    found = {}
    for module in MODULES:
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isclass(member) or inspect.isfunction(member):
                found[name] = member
    return sorted(found.items())


def methods() -> list[tuple[str, Any]]:
    """Public methods, those of subclasses where they are another function."""
    found = {}
    for name, member in public():
        if inspect.isclass(member):
            for key, value in inspect.getmembers(member):
                own = inspect.isfunction(value) or inspect.ismethod(value)
                if own and not key.startswith("_") and value.__module__.startswith("manyarms"):
                    found.setdefault(value.__qualname__, (f"{name}.{key}", value))
    return sorted(found.values(), key=lambda each: each[0])


RECORDS = (
    ma.Best,
    ma.Candidate,
    ma.Certificate,
    ma.Evidence,
    ma.Result,
    ma.TrackRecord,
    ma.Trial,
)


def is_record(member: Any) -> bool:
    """Made by the library, not by its users."""
    return inspect.isclass(member) and (issubclass(member, tuple) or member in RECORDS)


@pytest.mark.parametrize(("name", "member"), public(), ids=[name for name, _ in public()])
def test_the_parameters_of_public_names_are_documented(name, member):
    found = sections(inspect.getdoc(member) or "")
    for text in found.values():
        assert all(said for _, said in entries(text)), f"{name}: an entry says nothing"
    if is_record(member) or name in NOT_CALLED:
        return
    expected = parameters(member)
    assert named(found.get("Parameters", "")) == expected
    if inspect.isfunction(member):
        assert "Returns" in found


@pytest.mark.parametrize(("name", "method"), methods(), ids=[name for name, _ in methods()])
def test_sections_of_methods_name_what_the_signature_names(name, method):
    found = sections(inspect.getdoc(method) or "")
    for text in found.values():
        assert all(said for _, said in entries(text)), f"{name}: an entry says nothing"
    if found:
        assert named(found.get("Parameters", "")) == parameters(method)


@pytest.mark.parametrize("owner", [ma.Optimizer, ma.Study, ma.Pool, ma.BKB])
def test_methods_of_the_api_page_have_sections(owner):
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    for key, method in inspect.getmembers(owner, callable):
        if f"{key}(" in page and not key.startswith("_") and parameters(method):
            assert "Parameters\n----------\n" in (inspect.getdoc(method) or ""), f"{owner}.{key}"


def test_errors_in_docstrings_exist():
    for name, member in [*public(), *methods()]:
        raised = sections(inspect.getdoc(member) or "").get("Raises", "")
        assert set(named(raised)) <= set(ma.errors.__all__), name
