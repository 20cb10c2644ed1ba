"""The authors' research code beside manyarms: CPU seconds, regret, size of the sketch, batches.

    git clone https://github.com/luigicarratino/batch-bkb
    python benchmarks/authors.py --code batch-bkb                  # four seeds, 1,000 steps
    python benchmarks/authors.py --code batch-bkb --again          # our runs anew, theirs are kept

Their code runs as it is, with its own FastMixinKernel, whose diagonal is vectorised. It needs
scikit-learn. Both sides get the same arms, the same two first arms (their batches need two), and
the same noise, λ and q̄. Every run has a process of its own and one thread; only the policies are
timed, in CPU seconds. A run that spends more than `--limit` seconds stops, and the two sides are
then compared after as many steps.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from peers import keep
from sides import DELTA, LAMBDA, LENGTHSCALES, NOISE, OVERSAMPLING, THRESHOLD, Run, play
from summary import markdown

import manyarms as ma

POINTS = 200
"""Steps at which a curve is kept, at most."""
PAIRS = {
    "One arm at a time, our default": ("ours", "theirs"),
    "One arm at a time, Algorithm 1 as printed": ("ours, printed", "theirs"),
    "Batches that the rule ends": ("ours, batches", "theirs, batches"),
}
RADII = {"coded": "coded", "constant": "constant", "certified": "coded"}
"""Our radius, and the one of their run that it is compared with."""


def record(run: Run, code: Path, limit: float) -> dict:
    """What is kept of one run. An error ends it, and what was done before counts."""
    sys.path.insert(0, str(code))
    curve: list = []
    try:
        ended = play(run, limit, curve)
    except Exception as error:
        ended = f"{type(error).__name__} {error}".strip()
    n_kept = POINTS if curve else 0
    at = np.unique(np.linspace(0, len(curve) - 1, n_kept).astype(int))
    kept = [curve[i] for i in at]
    return {**asdict(run), "ended": ended, "limit": limit, "version": ma.__version__, "curve": kept}


def wanted(options: argparse.Namespace) -> list[Run]:
    """All runs, theirs once for every radius of ours that they are compared with."""
    runs = [
        Run(system, radius, arms, d, options.steps, seed)
        for arms in options.arms
        for d in options.d
        for seed in range(options.seeds)
        for pair in PAIRS.values()
        for radii in radii_of(pair, options.radius)
        for system, radius in zip(pair, radii, strict=True)
    ]
    return list(dict.fromkeys(runs))


def radii_of(pair: tuple[str, str], asked: list[str]) -> list[tuple[str, str]]:
    """Our radius and theirs. Certified is of the default rule, and of versions that have it."""
    has_certified = hasattr(ma, "Certified") and pair[0] != "ours, printed"
    return [(radius, RADII[radius]) for radius in asked if radius != "certified" or has_certified]


def run_all(runs: list[Run], options: argparse.Namespace) -> dict[Run, dict]:
    """Make the runs that are not in the file, which is written after each of them."""
    rows = {_run(row): row for row in _rows(options.output)}
    if options.again:
        rows = {run: row for run, row in rows.items() if not run.system.startswith("ours")}
    missing = [run for run in runs if not _serves(rows.get(run), options.limit)]
    context = get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=1) as pool:
        tasks = {pool.submit(record, run, options.code, options.limit): run for run in missing}
        for task in as_completed(tasks):
            run = tasks[task]
            rows[run] = task.result()
            keep(options.output, json.dumps(list(rows.values())))
            t, regret, seconds, *_ = rows[run]["curve"][-1] if rows[run]["curve"] else (0, 0, 0)
            ended = rows[run]["ended"]
            print(f"{run}: {seconds:.2f} s, regret {regret:.1f}, t = {t} ({ended})", flush=True)
    return rows


def _rows(path):
    """What earlier calls have left."""
    return json.loads(path.read_text()) if path.exists() else []


def _run(row):
    """The run that a row is of."""
    return Run(**{name: row[name] for name in Run.__dataclass_fields__})


def _serves(row, limit):
    """Whether a row is there and would not get further with this limit."""
    return row is not None and (row["ended"] != "limit" or row["limit"] >= limit)


def compared(ours: list[dict], theirs: list[dict]) -> dict:
    """A line of the table: medians over seeds, after as many steps as all of these runs made."""
    t = min(row["curve"][-1][0] if row["curve"] else 0 for row in ours + theirs)
    a, b = (np.array([_at(row["curve"], t) for row in rows]) for rows in (ours, theirs))
    regret, seconds, size, batches, radius = zip(np.median(a, 0), np.median(b, 0), strict=True)
    ratio = np.median(a / b, axis=0)
    ends = {f"{row['system']}: {row['ended']}" for row in ours + theirs if row["ended"] != "steps"}
    return {
        "steps": f"{t:,}" + (f" (stopped by {'; '.join(sorted(ends))})" if ends else ""),
        "CPU seconds": "{:.2f} / {:.2f}".format(*seconds),
        "CPU ratio": _ratio(ratio[1]),
        "regret": "{:.1f} / {:.1f}".format(*regret),
        "regret ratio": _ratio(ratio[0]),
        "m": "{:.0f} / {:.0f}".format(*size),
        "batches": "{:.0f} / {:.0f}".format(*batches),
        "radius": "{:.2f} / {:.2f}".format(*radius),
    }


def _at(curve, t):
    """Regret, seconds, m, batches and radius after t steps, between two points of the curve."""
    if not curve:
        return np.full(5, np.nan)
    steps, *columns = np.array(curve, dtype=float).T
    return np.array([np.interp(t, steps, column) for column in columns])


def _ratio(value):
    """A ratio, marked where ours is the larger number."""
    return f"**{value:.2f}**, we lose" if round(value, 2) > 1 else f"{value:.2f}"


TEXT = """\
manyarms beside the code of BKB's authors (github.com/luigicarratino/batch-bkb), unchanged. Pairs
of numbers are ours / theirs, medians over seeds (number of seeds: {seeds}). A ratio is the median
over seeds of ours / theirs. Below 1 we are better; where it is above 1 the table says that we lose.

RBF kernel on the unit cube (lengthscales {scales}), f a sum of 60 kernel centres with standard
deviation 1, noise of standard deviation {noise}, λ = {lam}, δ = {delta}, q̄ = {q}, C = {C}.
Seconds are CPU seconds on one thread. m is the number of inducing arms at the end. Radii: "coded"
is the authors' formula on both sides, from each side's own figures; "constant" is 2√λ on both
sides; "certified" is ours with `ma.Certified`, beside theirs as coded. The column "radius" is β
at the end."""


def page(runs: list[Run], rows: dict[Run, dict], options: argparse.Namespace) -> str:
    """The page: a table for each pair of systems."""
    scales = ", ".join(f"{LENGTHSCALES[d]} for d = {d}" for d in options.d)
    settings = {"noise": NOISE, "lam": round(LAMBDA, 6), "delta": DELTA, "q": OVERSAMPLING}
    text = TEXT.format(seeds=options.seeds, scales=scales, C=THRESHOLD, **settings)
    parts = ["# The authors' code", text]
    for title, pair in PAIRS.items():
        lines = []
        for arms, d in dict.fromkeys((run.arms, run.d) for run in runs):
            for radii in radii_of(pair, options.radius):
                ours, theirs = (
                    [rows[run] for run in runs if _is(run, system, radius, arms, d)]
                    for system, radius in zip(pair, radii, strict=True)
                )
                head = {"arms": f"{arms:,}", "d": d, "radii": " / ".join(dict.fromkeys(radii))}
                lines.append({**head, **compared(ours, theirs)})
        if lines:
            parts.append(f"## {title}\n\n{markdown(lines)}")
    parts.append(f"Made by `{command(options)}`.")
    return "\n\n".join(parts) + "\n"


def _is(run, *wanted):
    """Whether a run is of this system, radius, number of arms and dimension."""
    return (run.system, run.radius, run.arms, run.d) == wanted


def command(options: argparse.Namespace) -> str:
    """The command that prints the page."""
    lists = {name: " ".join(map(str, getattr(options, name))) for name in ("arms", "d", "radius")}
    numbers = f"--steps {options.steps} --seeds {options.seeds} --limit {options.limit:g}"
    listed = " ".join(f"--{name} {value}" for name, value in lists.items())
    return f"python benchmarks/authors.py --code batch-bkb {listed} {numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--code", type=Path, required=True, help="a clone of batch-bkb")
    parser.add_argument("--arms", nargs="+", type=int, default=[5_000, 20_000])
    parser.add_argument("--d", nargs="+", type=int, choices=LENGTHSCALES, default=[2, 6])
    parser.add_argument("--radius", nargs="+", choices=RADII, default=list(RADII))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=4, help="how many: 0, 1, …")
    parser.add_argument("--limit", type=float, default=300.0, help="CPU seconds of a run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--again", action="store_true", help="run ours again; theirs are kept")
    parser.add_argument("--output", type=Path, default=Path("bench-output/authors.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/authors.md"))
    options = parser.parse_args()
    if not (options.code / "bkb_lib.py").exists():
        parser.error(f"--code must be a clone of batch-bkb: no bkb_lib.py in {options.code}")
    # The processes that are timed start after this, and import NumPy then.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    for path in (options.output, options.page):
        path.parent.mkdir(parents=True, exist_ok=True)
    runs = wanted(options)
    text = page(runs, run_all(runs, options), options)
    options.page.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
