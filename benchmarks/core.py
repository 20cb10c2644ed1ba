"""The engine beside exact GP-UCB and beside version 0.1: processor seconds and regret, as ratios.

    python benchmarks/core.py [--only NAME ...] [--old PYTHON] [--output bench-output/core.json]

Every run is a process of its own, with one BLAS thread, and only the policy is timed; `installed`
leaves the threads as a user has them. A run that the JSON holds is not run again. Three of the figures compare with an older version: `--old` is an
interpreter that has it installed (commit 12ba010). What was not run is shown as "?".

Other work on the machine makes processor seconds longer, by a third and more. So every run also
times a fixed piece of work, before and after it: where the column "pace" is far from 1, the two
versions ran under different loads, and the ratio beside it means little.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import manyarms as ma

NOISE = 0.1
DELTA = 0.1
CHUNK = 65536

KERNELS: dict[str, tuple[int, Any]] = {
    "RBF .25, d = 2": (2, ma.kernels.RBF(0.25)),
    "RBF .5, d = 4": (4, ma.kernels.RBF(0.5)),
    "Matérn-5/2 .5, d = 3": (3, ma.kernels.Matern(0.5, nu=2.5)),
    "Matérn-3/2 .2, d = 2": (2, ma.kernels.Matern(0.2, nu=1.5)),
    "RBF 1, d = 8": (8, ma.kernels.RBF(1.0)),
    "RBF 2, d = 8": (8, ma.kernels.RBF(2.0)),
}
"""Dimension and kernel by name. The first three are the problems of MATH.md §12."""
FROZEN = list(KERNELS)[:3]
SMALL = list(KERNELS)[:4]
LARGE = ["RBF .25, d = 2", "RBF .5, d = 4", "RBF 1, d = 8"]

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that say how many threads BLAS has."""

Row = dict[str, Any]


# --- What one process does. Names that only one version has are inside functions.


def problem(n: int, kernel_name: str, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Arms uniform on [0, 1]^d, f a sum of 60 kernel bumps of unit variance, and its norm."""
    d, kernel = KERNELS[kernel_name]
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    centres = X[rng.choice(n, 60, replace=False)]
    w = rng.normal(size=60)
    f = np.concatenate([kernel(X[s : s + CHUNK], centres) @ w for s in range(0, n, CHUNK)])
    norm = np.sqrt(w @ kernel(centres, centres) @ w)
    return X, f / f.std(), float(norm / f.std())


def radius(name: str, norm: float) -> Any:
    """A radius by name."""
    if name == "Constant":
        return ma.Constant(2.0)
    if name == "LogDet":
        return ma.LogDet(norm=norm, noise=NOISE, epsilon=0.5, delta=DELTA)
    return ma.Certified(norm=norm, noise=NOISE, delta=DELTA)


def play(policy: str, n: int, kernel: str, confidence: str, steps: int, seed: int) -> Row:
    """A whole run: choose, observe. Seconds, regret, arms pulled and arms in W."""
    X, f, norm = problem(n, kernel, seed)
    beta = radius(confidence, norm)
    options = {"regularization": NOISE**2, "confidence": beta, "seed": seed}
    rng = np.random.default_rng([seed, 1])
    make = getattr(ma, policy)  # imports are not part of a run
    start = process_time()
    made = make(X, KERNELS[kernel][1], **options)
    construction = process_time() - start
    seconds = []
    pulled = []
    for _ in range(steps):
        start = process_time()
        i = made.choose()
        chosen = process_time() - start
        y = f[i] + NOISE * rng.normal(size=1)
        start = process_time()
        made.observe(i, y)
        seconds.append(process_time() - start + chosen)
        pulled.append(int(i[0]))
    return {
        "cpu": construction + sum(seconds),
        "median_step": float(np.median(seconds[steps // 2 :])),
        "regret": float(np.sum(f.max() - f[pulled])),
        "pulled": len(set(pulled)),
        "inducing": len(made.inducing) if hasattr(made, "inducing") else None,
    }


def tell(n: int, arms: int, kernel: str, seed: int) -> Row:
    """Results at once: seconds to learn them, of ZᵀZ of that size, and of the first choice."""
    X, f, _ = problem(arms, kernel, seed)
    _tell(X[:1000], f, kernel, 100)  # the first call of anything is slower
    policy, seconds = _tell(X, f, kernel, n)
    before = dict(policy.stats.counts)
    choice = _seconds(policy.choose)
    m = len(policy.inducing)
    counted = {kind: c - before.get(kind, 0) for kind, c in policy.stats.counts.items()}
    return {
        "cpu": seconds,
        "m": m,
        "gemm": _gemm(n, m),
        "choice": choice,
        "scoring": _seconds(policy.scores),
        "counted": {kind: c for kind, c in counted.items() if c},
    }


def _tell(X: np.ndarray, f: np.ndarray, kernel: str, n: int) -> tuple[Any, float]:
    rng = np.random.default_rng(n)
    some = rng.choice(len(X), n, replace=False)
    y = f[some] + NOISE * rng.normal(size=n)
    policy = ma.BKB(X, KERNELS[kernel][1], regularization=NOISE**2, seed=0)
    return policy, _seconds(lambda: policy.observe(some, y))


def _gemm(n: int, m: int) -> float:
    """Seconds of ZᵀZ, Z of n×m, with all of its m² numbers computed: the best of five."""
    Z = np.random.default_rng(0).random((n, m))
    same = Z.copy()  # NumPy would see that both factors are one array, and compute half
    return min(_seconds(lambda: Z.T @ same) for _ in range(5))


def requests(n: int, offers: int, features: int, most: int, at: list[int]) -> Row:
    """Median seconds of a request around some rows of a stream: choose among offers, observe."""
    kernel = ma.kernels.RBF(2.0)
    rule = ma.Inserted(most=most)
    policy = ma.BKB(None, kernel, n_features=features, regularization=NOISE**2, rule=rule)
    rng = np.random.default_rng(0)
    seconds = np.empty(n)
    for t in range(n):
        X = rng.random((offers, features))
        start = process_time()
        i = policy.choose(arms=X)
        chosen = process_time() - start
        y = np.sin(3 * X[i, 0]) + X[i, 1] + NOISE * rng.normal(size=1)
        start = process_time()
        policy.observe(X[i], y)
        seconds[t] = process_time() - start + chosen
    medians = {str(row): float(np.median(seconds[row - 500 : row])) for row in at}
    return {**medians, "cpu": float(seconds.sum()), "inducing": len(policy.inducing)}


def compare(ridge: float, confidence: str, d: int, steps: int, seed: int) -> Row:
    """Steps at which dense, lazy and full scoring chose different arms, λ/k = ridge.

    Lengthscale .1, one arm in five a copy of another.
    """
    rng = np.random.default_rng([seed, 1])
    kernel = ma.kernels.RBF(0.1)
    X = rng.random((2000, d))
    X = np.concatenate([X, X[:500]])
    centres = X[:60]
    w = rng.normal(size=60)
    f = kernel(X, centres) @ w
    norm = float(np.sqrt(w @ kernel(centres, centres) @ w))
    noise = float(np.sqrt(ridge))
    beta: Any = ma.Certified(norm=norm, noise=noise, delta=DELTA)
    if confidence == "Constant":
        beta = ma.Constant(2.0)
    options: Row = {"regularization": ridge, "confidence": beta, "seed": seed}
    made = [ma.BKB(X, kernel, tuning=tuning, **options) for tuning in tunings()]
    differ = {"dense or lazy": 0, "full": 0}
    for t in range(steps):
        i, j = (policy.choose() for policy in made)
        differ["dense or lazy"] += int(i[0] != j[0])
        if t:  # the first arm is drawn
            differ["full"] += int(i[0] != _arg_max(made[0].scores()))
        y = f[i] + noise * rng.normal(size=1)
        for policy in made:
            policy.observe(i, y)
    return {**differ, "inducing": len(made[0].inducing), "error": float(made[0].sketch_error)}


def search(arms: int, kernel: str, steps: int, seed: int) -> Row:
    """Seconds of an optimizer that asks for a candidate and is told its value, step by step."""
    X, f, _ = problem(arms, kernel, seed)
    optimizer = ma.Optimizer(ma.Pool.from_array(X), seed=seed)
    rng = np.random.default_rng([seed, 1])
    seconds = 0.0
    for _ in range(steps):
        start = process_time()
        (i,) = optimizer.ask()
        asked = process_time() - start
        y = f[i] + NOISE * rng.normal()
        start = process_time()
        optimizer.tell(i, y)
        seconds += process_time() - start + asked
    return {"cpu": seconds}


def tunings() -> tuple[Any, Any]:
    """A tuning that is always dense, and one that is always lazy, with short lists."""
    return ma.Tuning(rough=1 << 40), ma.Tuning(shortlist=64, rough=0, quick=0)


def _arg_max(scores: Any) -> int:
    """The largest upper bound; of arms within rounding of it, the lowest index."""
    best = int(np.argmax(scores.ucb))
    deviation = scores.ucb[best] - scores.mean[best]
    tolerance = 1e-9 * (abs(scores.mean[best]) + abs(deviation))
    return int(np.argmax(scores.ucb >= scores.ucb[best] - tolerance))


def _seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def gauge() -> float:
    """Seconds of a fixed piece of work, as a policy does it: products that wait for memory."""
    A = np.ones((4096, 512))
    v = np.ones(512)
    return float(np.median([_seconds(lambda: np.sqrt(A @ v)) for _ in range(50)]))


WORK = {f.__name__: f for f in (play, tell, requests, compare, search)}


def worker(side: str, work: str, arguments: Row) -> None:
    """One run; its figures are the last line printed."""
    found = "new" if hasattr(ma, "Inserted") else "old"
    if found != side:
        raise SystemExit(f"the {side} version is wanted, {sys.executable} has the {found} one")
    before = gauge()
    figures = WORK[work](**arguments)
    print(json.dumps({**figures, "gauge": (before + gauge()) / 2}))


# --- What is run, and what the table shows.


class Runs:
    """Figures by run, kept in a JSON; a run that it lacks is made in a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.path = options.output
        self.interpreters = {"new": sys.executable, "old": options.old}
        self.sides = options.sides
        self.seeds = options.seeds
        self._kept = self._read()

    def __call__(
        self, side: str, work: str, *, as_installed: bool = False, **arguments: Any
    ) -> Row | None:
        """The figures of a run; None where it is missing and its version is not to be run."""
        kind = f"{work} as installed" if as_installed else work
        key = f"{side} {kind} {json.dumps(arguments, ensure_ascii=False, sort_keys=True)}"
        if key not in self._kept:
            if side not in self.sides or self.interpreters[side] is None:
                return None
            self._keep(key, self._made(side, work, arguments, as_installed))
        return self._kept[key]

    def _read(self) -> dict[str, Row]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def _keep(self, key: str, figures: Row) -> None:
        """Add a run to the JSON, which another process may have added to meanwhile."""
        self._kept = {**self._read(), key: figures}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self._kept, indent=1, ensure_ascii=False))
        fresh.replace(self.path)

    def _made(self, side: str, work: str, arguments: Row, as_installed: bool) -> Row:
        environment = {name: value for name, value in os.environ.items() if name not in THREADS}
        if not as_installed:
            environment.update(dict.fromkeys(THREADS, "1"))
        if side == "old":  # a path to this version must not hide the other one
            environment.pop("PYTHONPATH", None)
        task = json.dumps([side, work, arguments])
        command = [self.interpreters[side], __file__, "--task", task]
        done = subprocess.run(  # noqa: S603
            command, env=environment, stdout=subprocess.PIPE, check=True
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def medians(self, side: str, work: str, seeds: int, **arguments: Any) -> Row:
        """Medians over seeds of every figure; empty where one of the runs is missing."""
        found = [self(side, work, seed=seed, **arguments) for seed in range(self.seeds or seeds)]
        rows = [row for row in found if row is not None]
        if len(rows) < len(found):
            return {}
        numbers = [name for name, value in rows[0].items() if isinstance(value, float | int)]
        return {name: float(np.median([row[name] for row in rows])) for name in numbers}


def ratio(one: float | None, other: float | None) -> float | None:
    """One over the other, where both are known."""
    return None if one is None or other is None else one / other


def regret(runs: Runs) -> Iterator[Row]:
    """Regret with Certified, A = 5,000, T = 2,000, medians: ≤ 0.85 of LogDet's, ≤ 1.1 of exact."""
    for kernel in FROZEN:
        options = {"n": 5000, "kernel": kernel, "steps": 2000}
        ours = runs.medians("new", "play", 10, policy="BKB", confidence="Certified", **options)
        exact = runs.medians("new", "play", 10, policy="GPUCB", confidence="Certified", **options)
        classical = runs.medians("old", "play", 10, policy="GPUCB", confidence="LogDet", **options)
        yield {
            "kernel": kernel,
            "regret": ours.get("regret"),
            "over exact, LogDet": ratio(ours.get("regret"), classical.get("regret")),
            "over exact, Certified": ratio(ours.get("regret"), exact.get("regret")),
            "LogDet": classical.get("regret"),
            "m": ours.get("inducing"),
        }


def _beside(runs: Runs, other: str, n: int, kernel: str, confidence: str) -> Row:
    """The new default beside a policy of the old version."""
    before = "LogDet" if confidence == "Certified" else confidence
    options = {"n": n, "kernel": kernel, "steps": 1000}
    new = runs.medians("new", "play", 1, policy="BKB", confidence=confidence, **options)
    old = runs.medians("old", "play", 1, policy=other, confidence=before, **options)
    return {
        "A": n,
        "kernel": kernel,
        "radius": confidence,
        "CPU": ratio(new.get("cpu"), old.get("cpu")),
        "pace": ratio(new.get("gauge"), old.get("gauge")),
        "new s": new.get("cpu"),
        "old s": old.get("cpu"),
        "m": new.get("inducing"),
        "pulled": new.get("pulled"),
        "old m": old.get("inducing"),
        "old pulled": old.get("pulled"),
        "regret": ratio(new.get("regret"), old.get("regret")),
    }


def gpucb(runs: Runs) -> Iterator[Row]:
    """Whole runs against 0.1's GP-UCB: ≤ 1.3 where all enters W, ≤ 1 elsewhere, median ≤ .6."""
    for n, kernel, confidence in product((2000, 5000, 20_000), SMALL, ("Constant", "Certified")):
        yield _beside(runs, "GPUCB", n, kernel, confidence)


def bkb(runs: Runs) -> Iterator[Row]:
    """Whole runs against 0.1's BKB: CPU ≤ 0.6 in the median, ≤ 1 in every cell."""
    for n, confidence, kernel in product((10**5, 10**6), ("Constant", "Certified"), LARGE):
        yield _beside(runs, "BKB", n, kernel, confidence)


def step(runs: Runs) -> Iterator[Row]:
    """The median step of the second half, Constant(2): A = 10⁶ against A = 10⁴, ≤ 3."""
    for kernel in LARGE:
        options = {"policy": "BKB", "kernel": kernel, "confidence": "Constant", "steps": 1000}
        few, many = (runs.medians("new", "play", 1, n=n, **options) for n in (10**4, 10**6))
        seconds = [few.get("median_step"), many.get("median_step")]
        yield {
            "kernel": kernel,
            "step": ratio(seconds[1], seconds[0]),
            "ms at 10⁴": seconds[0] and 1e3 * seconds[0],
            "ms at 10⁶": seconds[1] and 1e3 * seconds[1],
            "m": many.get("inducing"),
        }


def bulk(runs: Runs) -> Iterator[Row]:
    """n results at once, A = 2·10⁵, d = 8: over ZᵀZ ≤ 5 from 2,000 on; first choice ≤ 2 passes."""
    for n in (500, 1000, 1030, 2000, 10**4, 10**5):
        found = runs("new", "tell", n=n, arms=200_000, kernel="RBF 2, d = 8", seed=0)
        if found is None:
            yield {"n": n, "over ZᵀZ": None}
            continue
        yield {
            "n": n,
            "over ZᵀZ": found["cpu"] / found["gemm"],
            "s": found["cpu"],
            "m": found["m"],
            "ns/(n m²)": 1e9 * found["cpu"] / (n * found["m"] ** 2),
            "first choice s": found["choice"],
            "in passes": found["choice"] / found["scoring"],
            "counted": found["counted"],
        }


def contexts(runs: Runs) -> Iterator[Row]:
    """A request, 1 of 100 rows of 24 features, at most 200 arms in W: ≤ 1.5 ms, ratio ≤ 1.2."""
    options = {"offers": 100, "features": 24, "most": 200}
    found = runs("new", "requests", n=10**5, at=[1000, 10**5], **options) or {}
    early, late = found.get("1000"), found.get("100000")
    yield {
        "late over early": ratio(late, early),
        "ms at 1,000": early and 1e3 * early,
        "ms at 100,000": late and 1e3 * late,
        "m": found.get("inducing"),
    }


def lazy(runs: Runs) -> Iterator[Row]:
    """Arms chosen dense, lazy and by full scoring, in 12,000 steps of hard cases: 0 differ."""
    cases = {("Certified", 2): 1250, ("Constant", 2): 1250, ("Certified", 3): 500}
    for (confidence, d), ridge in product(cases, (1.0, 1e-2, 1e-4, 1e-6)):
        steps = cases[confidence, d]
        options = {"ridge": ridge, "confidence": confidence, "d": d, "steps": steps, "seed": 0}
        found = runs("new", "compare", **options) or {}
        yield {
            "λ/k": ridge,
            "radius": confidence,
            "d": d,
            "steps": steps,
            "dense or lazy differ": found.get("dense or lazy"),
            "full differs": found.get("full"),
            "m": found.get("inducing"),
            "e": found.get("error"),
        }


def installed(runs: Runs) -> Iterator[Row]:
    """200 steps of an `Optimizer`, A = 500, without environment variables: ≤ 1.2 of one thread."""
    options = {"arms": 500, "kernel": "RBF .5, d = 4", "steps": 200, "seed": 0}
    ours = runs("new", "search", as_installed=True, **options) or {}
    alone = runs("new", "search", **options) or {}
    yield {
        "over one thread": ratio(ours.get("cpu"), alone.get("cpu")),
        "as installed s": ours.get("cpu"),
        "one thread s": alone.get("cpu"),
    }


FIGURES = {f.__name__: f for f in (regret, gpucb, bkb, step, bulk, contexts, lazy, installed)}


def shown(value: Any) -> str:
    """A cell of the table."""
    if value is None:
        return "?"
    if isinstance(value, dict):
        return ", ".join(f"{n} {name}" for name, n in value.items())
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return str(value)


def table(rows: Iterator[Row]) -> list[Row]:
    """Print the rows as they come, under the names of their columns."""
    done: list[Row] = []
    for row in rows:
        if not done:
            print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
        print("| " + " | ".join(map(shown, row.values())) + " |", flush=True)
        done.append(row)
    return done


def summary(rows: list[Row]) -> str:
    """The median and the largest of the ratios of processor time."""
    ratios = [row["CPU"] for row in rows if row.get("CPU") is not None]
    if not ratios:
        return ""
    middle, most = np.median(ratios), max(ratios)
    return f"\nCPU of {len(ratios)} cells: median {middle:.2f}, largest {most:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--old", help="interpreter that has the older version installed")
    parser.add_argument("--sides", nargs="*", choices=("new", "old"), default=["new", "old"])
    parser.add_argument("--seeds", type=int, help="10 for regret, 1 for the others by default")
    parser.add_argument("--output", type=Path, default=Path("bench-output/core.json"))
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        worker(*json.loads(options.task))
        return
    runs = Runs(options)
    for name in options.only:
        print(f"\n## {name}: {FIGURES[name].__doc__}\n")
        print(summary(table(FIGURES[name](runs))))


if __name__ == "__main__":
    main()
