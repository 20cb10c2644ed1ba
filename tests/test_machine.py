"""Cores and memory that the process may use, on systems other than this one too."""

import os

import pytest

from manyarms.runtime import machine

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")


@needs_affinity
def test_cores_are_those_of_the_affinity_mask():
    before = os.sched_getaffinity(0)
    assert machine.cores() == len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_there_is_some_memory():
    assert 1e8 < machine.half_the_memory() < 1e15


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, 2048.0 * 1024), ("max\n", 2048.0 * 1024), ("1000\n", 1000.0), (f"{10**12}", 2**21)],
)
def test_a_container_has_the_memory_it_is_allowed(tmp_path, monkeypatch, limit, expected):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 512}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
    assert machine.posix_memory(tmp_path / "memory.max") == expected


class FakeSystem:
    """The system library of Windows, which answers by writing into its argument."""

    def __init__(self, bytes, works=True):
        self.bytes = bytes
        self.works = works

    def GlobalMemoryStatusEx(self, status):
        assert status._obj[0] == 64
        status._obj[1] = self.bytes
        return int(self.works)


def test_windows_is_asked_in_its_way():
    assert machine.windows_memory(FakeSystem(16 * 2**30)) == 2.0**34
    with pytest.raises(OSError, match="memory"):
        machine.windows_memory(FakeSystem(0, works=False))


@pytest.mark.parametrize("failure", [OSError, AttributeError, ValueError])
def test_where_it_cannot_be_known_some_is_assumed(failure):
    def fails():
        raise failure

    assert machine.half_the_memory(fails) == machine.ASSUMED / 2
