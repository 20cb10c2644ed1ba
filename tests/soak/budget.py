"""Runs of the program that spend one budget together: the study gets exactly so many results.

    python -m soak.budget [--runs 1000] [--where memory|disk|postgresql]

Three runs of `manyarms run --jobs 4 --budget 20` begin at once on a study of 200 candidates. When all have ended there are 20
results, none is pending, and no command was started for more.
"""

import argparse
import contextlib
import io
import os
import time
from pathlib import Path

import manyarms as ma
from manyarms.cli.commands import program
from soak.common import at, place, pool, start

TOGETHER, JOBS, BUDGET = 3, 4, 20


def one(location: str | Path) -> None:
    """A run of the program; each of its commands prints a number."""
    options = ["--jobs", str(JOBS), "--budget", str(BUDGET)]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        code = program(["run", str(location), *options, "--", "echo", "{x0}"])
    os._exit(code)


def kept(where: str | Path, rounds: int) -> int:
    """How many rounds spent their budget, and not more; prints what the others spent."""
    n = 0
    for number in range(rounds):
        location = at(where, f"round_{number}")
        with ma.Study.create(location, pool()) as study:
            children = [start(one, location) for _ in range(TOGETHER)]
            for child in children:
                child.join()
            codes = [child.exitcode for child in children]
            asked = sum(len(each.payload["ids"]) for each in study.events() if each.kind == "ask")
            found = asked, study.n_results, len(study.pending), codes
        if found == (BUDGET, BUDGET, 0, [0] * TOGETHER):
            n += 1
        else:
            print(f"round {number}: asked, results, pending, exit codes: {found}", flush=True)
        if isinstance(location, Path):
            location.unlink()
    return n


def main(runs: int, where: str) -> bool:
    """Whether every budget was kept; prints how many."""
    rounds, begun = -(-runs // TOGETHER), time.monotonic()
    with place(where) as folder:
        n = kept(folder, rounds)
    took = time.monotonic() - begun
    print(
        f"{rounds * TOGETHER} runs, {TOGETHER} at a time: {n} of {rounds} budgets kept; {took:.0f} s"
    )
    return n == rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--where", choices=["disk", "memory", "postgresql"], default="memory")
    given = parser.parse_args()
    raise SystemExit(not main(given.runs, given.where))
