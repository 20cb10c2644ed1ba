"""What some tests need beside the plain install, by the extra that brings it."""

from importlib import import_module
from typing import Any

import pytest


def needs(extra: str, module: str) -> Any:
    """The module; where its extra is not installed the test, or the file of tests, is skipped."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs {error.name}, of the extra `{extra}`", allow_module_level=True)
