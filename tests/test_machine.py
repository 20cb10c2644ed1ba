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
def test_a_container_has_the_memory_it_is_allowed(tmp_path, limit, expected):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:        2048 kB\nMemFree: 1 kB\n")
    if limit is not None:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(limit)
    assert machine.linux_memory(tmp_path) == expected


def test_a_page_without_a_total_is_an_error(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("nothing\n")
    with pytest.raises(ValueError, match="MemTotal"):
        machine.linux_memory(tmp_path)


class FakeSystem:
    """The system library of macOS and of Windows: each answers by writing into its arguments."""

    def __init__(self, bytes, works=True):
        self.bytes = bytes
        self.works = works

    def sysctlbyname(self, name, total, size, new, new_size):
        assert name == b"hw.memsize"
        total._obj.value = self.bytes
        return 0 if self.works else -1

    def GlobalMemoryStatusEx(self, status):
        assert status._obj[0] == 64
        status._obj[1] = self.bytes
        return int(self.works)


@pytest.mark.parametrize("ask", [machine.macos_memory, machine.windows_memory])
def test_other_systems_are_asked_in_their_way(ask):
    assert ask(FakeSystem(16 * 2**30)) == 2.0**34
    with pytest.raises(OSError, match="memory"):
        ask(FakeSystem(0, works=False))


@pytest.mark.parametrize("failure", [OSError, AttributeError, ValueError])
def test_where_it_cannot_be_known_some_is_assumed(failure):
    def fails():
        raise failure

    assert machine.half_the_memory(fails) == machine.ASSUMED / 2
