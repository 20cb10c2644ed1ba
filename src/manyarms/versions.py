"""What an installation is made of: to be pasted where something is reported."""

import platform
from importlib.metadata import PackageNotFoundError, version

from manyarms.search import sweep

PACKAGES = (
    "manyarms",
    "numpy",
    "scipy",
    "threadpoolctl",
    "narwhals",
    "polars",
    "rapidfuzz",
    "typer",
    "rich",
    "plotly",
    "jinja2",
    "torch",
    "ray",
    "rdkit",
    "psycopg",
    "fastexcel",
    "xlsxwriter",
)
"""The packages of a plain installation, followed by those of the extras."""


def show_versions() -> None:
    """Print the versions of manyarms, Python and the packages it uses, and whether the compiled
    step is used.

    Returns
    -------
    None
        It is printed.
    """
    versions = {"Python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    versions["compiled step"] = sweep.STATE
    for name, what in versions.items():
        print(f"{name:14}{what}")
