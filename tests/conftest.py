"""Shared settings: hypothesis runs the same examples everywhere."""

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
from extras import needs
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("quick", parent=settings.get_profile("repeatable"), max_examples=15)
settings.load_profile("repeatable")  # `make quick` gives another one


@pytest.fixture
def folder():
    """A directory in memory where there is one: a durable write costs tens of milliseconds on some disks."""
    memory = Path("/dev/shm")
    path = Path(
        tempfile.mkdtemp(dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None)
    )
    yield path
    shutil.rmtree(path)


@pytest.fixture
def path(folder):
    return folder / "study.db"


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL of one's own, without root: `pgserver` has its binaries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = needs("dev", "pgserver")
        folder = tempfile.mkdtemp()
        running = pgserver.get_server(folder, cleanup_mode="stop")
    yield running.get_uri()
    running.cleanup()
    shutil.rmtree(folder)
