"""Any system × any problem × seeds, one JSON a run; runs that are there are not run again.

    python benchmarks/runner.py --system bkb gpucb --problem branin rkhs:n_arms=1000 --horizon 1000 --seed 0 1 2 --jobs 2

Only the system is timed, never the problem, in seconds of the processor: what else runs on the machine matters little. BLAS has
one thread: several jobs would fight for more. A run that takes more than `--limit` seconds stops there and keeps what it has;
one that was stopped is run again where more time is given. A system that refuses a problem, with a typed error, leaves that
error.
"""

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from bandits import PROBLEMS, Problem, problem
from peers import Clock, keep
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from systems import SYSTEMS, MissingSystemError
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.errors import ManyArmsError

POINTS = 200
"""Steps at which a curve is kept, at most."""


class Run(NamedTuple):
    """What is to be run."""

    system: str
    problem: str
    horizon: int
    seed: int

    def path(self, folder: Path) -> Path:
        spec = self.problem.replace(":", "_").replace(",", "_")
        return folder / f"{spec}-{self.system}-{self.horizon}-{self.seed}.json"


def runs(
    systems: Iterable[str], problems: Iterable[str], horizon: int, seeds: Iterable[int]
) -> list[Run]:
    """All of them, those on one problem and seed together: a problem is made once."""
    return [
        Run(system, spec, horizon, seed)
        for spec in problems
        for seed in seeds
        for system in systems
    ]


class Curve(NamedTuple):
    """A run as it went: regret and seconds of every step done."""

    regret: np.ndarray  # (t,)
    seconds: np.ndarray  # (t,), a batch shared by its arms; the first includes construction
    sizes: np.ndarray  # (t,) |W|, or 0
    policy: Any


def play(run: Run, bandit: Problem, limit: float = np.inf) -> Curve:
    """Choose and observe, once at least, until the horizon or until the seconds are spent."""
    system, rng, clock = (
        SYSTEMS[run.system],
        np.random.default_rng([run.seed, 2]),
        Clock(process_time),
    )
    with clock:
        policy = system.make(bandit, run.seed, run.horizon)
    regret, seconds, sizes, before = list[float](), list[float](), list[int](), 0.0
    while len(regret) < run.horizon and (not regret or clock.seconds <= limit):
        with clock:
            arms = policy.choose(system.batch)
        arms = arms[: run.horizon - len(regret)]
        rewards = bandit.pull(arms, rng)
        with clock:
            policy.observe(arms, rewards)
        regret += bandit.regret(arms).tolist()
        seconds += [(clock.seconds - before) / len(arms)] * len(arms)
        sizes += [size(policy) or 0] * len(arms)
        before = clock.seconds
    return Curve(np.array(regret), np.array(seconds), np.array(sizes), policy)


def size(policy: Any) -> int | None:
    """|W|, or |S|; None where there is none."""
    inducing = getattr(policy, "inducing", None)
    if inducing is None:
        inducing = getattr(getattr(policy, "belief", None), "keys", None)
    return None if inducing is None else len(inducing)


def held(thing: Any) -> int:
    """Bytes of the arrays that an object holds, each once."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            while isinstance(one.base, np.ndarray):
                one = one.base
            found[id(one)] = one.nbytes
        else:
            left += gc.get_referents(one)
    return sum(found.values())


def record(run: Run, limit: float = np.inf) -> dict:
    """What is kept of one run."""
    bandit = problem(run.problem, run.seed)
    kept = {
        **run._asdict(),
        "limit": limit if np.isfinite(limit) else None,
        "config": {
            "arms": bandit.arms.shape,
            "kernel": repr(bandit.kernel),
            "regularization": bandit.regularization,
            "noise": bandit.noise,
            "norm": bandit.norm,
        },
        "uniform regret": bandit.uniform_regret,
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "manyarms": ma.__version__,
            **{package: version(package) for package in ("numpy", "scipy")},
        },
    }
    try:
        curve = play(run, bandit, limit)
    except ManyArmsError as error:
        return {**kept, "error": f"{type(error).__name__}: {error}"}
    at = thinned(len(curve.regret))
    return {
        **kept,
        "completed": len(curve.regret),
        "steps": at.tolist(),
        "regret": curve.regret.cumsum()[at - 1].tolist(),
        "elapsed": curve.seconds.cumsum()[at - 1].tolist(),
        "seconds": float(curve.seconds.sum()),
        "inducing": size(curve.policy),
        "sizes": curve.sizes[at - 1].tolist(),
        "bytes": held(curve.policy) - bandit.arms.nbytes,
        "arms pulled": int(np.count_nonzero(curve.policy.counts)),
        "effective dimension": float(curve.policy.effective_dimension),
    }


def thinned(n: int) -> np.ndarray:
    """At most POINTS of the steps 1, …, n, geometrically spaced, the first and the last among them."""
    return np.unique(np.geomspace(1, n, POINTS).round().astype(int))


def is_done(run: Run, folder: Path, limit: float = np.inf) -> bool:
    """There is such a run, and it was not stopped by a smaller limit."""
    path = run.path(folder)
    if not path.exists():
        return False
    kept = json.loads(path.read_text())
    return "error" in kept or kept["completed"] == run.horizon or kept["limit"] >= limit


def perform(run: Run, folder: Path, limit: float) -> str | None:
    """Run and keep; what went wrong where nothing could be kept."""
    try:
        with threadpool_limits(1):
            keep(run.path(folder), json.dumps(record(run, limit)))
    except MissingSystemError as error:
        return str(error)
    except Exception as error:  # one run that fails must not end the others
        return f"{type(error).__name__}: {error}"
    return None


def run_all(
    wanted: list[Run], folder: Path, *, limit: float = np.inf, jobs: int = 1
) -> dict[Run, str]:
    """Run what is not there yet, with a progress bar; what went wrong, by run."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in wanted if not is_done(run, folder, limit)]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    failures = {}
    with Progress(*columns) as progress:
        bar = progress.add_task("runs", total=len(wanted), completed=len(wanted) - len(missing))
        for run, failure in _performed(missing, folder, limit, jobs):
            progress.update(bar, advance=1, description=f"{run.system} on {run.problem}")
            if failure:
                failures[run] = failure
    return failures


def _performed(
    missing: list[Run], folder: Path, limit: float, jobs: int
) -> Iterator[tuple[Run, str | None]]:
    if jobs == 1:
        for run in missing:
            yield run, perform(run, folder, limit)
        return
    with ProcessPoolExecutor(
        jobs, get_context("spawn")
    ) as pool:  # a fork would inherit BLAS's threads in any state
        futures = {pool.submit(perform, run, folder, limit): run for run in missing}
        for future in as_completed(futures):
            yield futures[future], future.result()


def read(wanted: list[Run], folder: Path) -> list[dict]:
    """Those of the runs that were kept."""
    return [
        json.loads(path.read_text())
        for path in (run.path(folder) for run in wanted)
        if path.exists()
    ]


def report(failures: dict[Run, str]) -> None:
    """What went wrong, each once a system, on stderr."""
    for said in sorted({f"{run.system}: {failure}" for run, failure in failures.items()}):
        print(said, file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--system",
        nargs="+",
        choices=SYSTEMS,
        default=["bkb"],
        metavar="NAME",
        help=", ".join(SYSTEMS),
    )
    parser.add_argument(
        "--problem", nargs="+", default=["branin"], metavar="SPEC", help=", ".join(PROBLEMS)
    )
    parser.add_argument("--horizon", type=int, default=1000)
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--limit", type=float, default=np.inf, help="seconds after which a run stops"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, default=Path("bench-output/runs"))
    options = parser.parse_args(arguments)
    wanted = runs(options.system, options.problem, options.horizon, options.seed)
    failures = run_all(wanted, options.output, limit=options.limit, jobs=options.jobs)
    print(
        f"{'problem':<24}{'system':<18}{'seed':>4}{'steps':>9}{'seconds':>9}{'of uniform':>12}{'|W|':>6}"
    )
    for kept in read(wanted, options.output):
        head = f"{kept['problem']:<24}{kept['system']:<18}{kept['seed']:>4}"
        if "error" in kept:
            print(f"{head}  {kept['error']}")
            continue
        share = kept["regret"][-1] / (kept["completed"] * kept["uniform regret"])
        inducing = "" if kept["inducing"] is None else kept["inducing"]
        print(f"{head}{kept['completed']:>9,}{kept['seconds']:>9.2f}{share:>12.4f}{inducing:>6}")
    report(failures)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
