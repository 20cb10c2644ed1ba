"""What a command costs: CPU of a process of its own, beside that of importing NumPy and SciPy.

    python benchmarks/commands.py [--results 100 10000 100000] [--candidates 5000] [--repeats 5]

A study has so many results of candidates with six columns of numbers, each asked for and told in a call of its own: up to
1,000 results of what the study suggests, more of 500 candidates at random and else of the 200 best, as late in a run. Its
model has learned from all of them. Every command runs in a new process, with one thread for linear algebra and modules that
are compiled, as those of an installed package are; the figures are medians of user and system time, in units of
`python -c "import numpy, scipy.linalg"`, which is run before and after.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from study_open import build

PLAIN = ("-c", "import numpy, scipy.linalg")
PROGRAM = ("-c", "import sys; from manyarms.cli import main; sys.exit(main())")
ASKED = 1000
"""Up to so many results are of what the study suggests; a run of 100,000 would take hours."""


def seconds(arguments: Sequence[str], repeats: int) -> float:
    """CPU of a process of Python, user and system, in the median."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    took = []
    for _ in range(repeats + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(  # noqa: S603
            [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return median(took[1:])  # the first one may have compiled modules


def show(what: str, command: Sequence[str], repeats: int) -> None:
    """Print what a command costs."""
    before = seconds(PLAIN, repeats)
    took = seconds([*PROGRAM, *command], repeats)
    unit = (before + seconds(PLAIN, repeats)) / 2
    print(f"{what}: {took / unit:.2f} ({took:.2f} s, the unit {unit:.3f} s)", flush=True)


def main(sizes: Sequence[int], candidates: int, repeats: int) -> None:
    """Print the table."""
    for option in ("--version", "--help"):
        show(option, [option], repeats)
    with tempfile.TemporaryDirectory() as directory:
        for size in sizes:
            path = str(Path(directory) / f"{size}.db")
            build(path, size, candidates, "asked" if size <= ASKED else "concentrated")
            commands = {
                "status": ("status", path),
                "suggest": ("suggest", path),
                "tell": ("tell", path, "17", "-0.5"),
                "history": ("history", path, "-o", f"{path}.csv", "--force"),
                "report": ("report", path, "-o", f"{path}.html"),
            }
            for name, command in commands.items():
                show(f"{size:,} results, {name}", command, repeats)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    main(given.results, given.candidates, given.repeats)
