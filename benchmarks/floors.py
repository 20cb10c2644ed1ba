"""Steps and whole runs beside the least that they could cost: processor seconds, as ratios.

    OPENBLAS_NUM_THREADS=1 python benchmarks/floors.py [steps runs passes distinct long mixed] [--arms 500 2000 …]

`steps`: microseconds of a choice and an observation with few inducing arms. `runs`: a policy beside
the same algorithm in forty lines of NumPy, dense over all arms, which checks nothing, holds V as an
inverse and lets rounding grow. `passes`: a first choice beside kernel columns of all arms and one
product of matrices. `distinct`: beside exact `GPUCB`, where nearly every arm tried enters W. `long`:
an optimizer over 62,208 configurations. `mixed`: 10⁶ candidates of 20 columns, where the floor is the passes
over all of them that cannot be saved: kernel columns and one product after each refit, and a sweep a
step, as `benchmarks/sweep.py` times them.
"""

import argparse
import resource
from time import process_time

import million
import numpy as np
import polars as pl
import tables

import manyarms as ma
from manyarms.search.sweep import Columns
from manyarms.typing import Array

LAMBDA = 0.01
NOISE = 0.1
DELTA = 0.1
SHARE = 0.01
"""ρ of the rule by which arms enter W."""


class Plain:
    """The algorithm without anything around it."""

    def __init__(self, X: Array, kernel: ma.kernels.Kernel, norm: float | None) -> None:
        n = len(X)
        self.X, self.kernel, self.norm = X, kernel, norm
        self.Z = np.zeros((64, n))
        self.inverse = np.zeros((64, 64))
        self.r = kernel.diag(X).copy()
        self.mean = np.zeros(n)
        self.variance = self.r / LAMBDA
        self.m = 0
        self.left_out = self.log_det = 0.0

    def enter(self, p: int) -> None:
        """Arm p enters W: a new coordinate of all arms."""
        m = self.m
        if m == len(self.Z):
            self.Z = np.concatenate([self.Z, np.zeros_like(self.Z)])
            self.inverse = np.pad(self.inverse, ((0, m), (0, m)))
        column = self.kernel(self.X, self.X[p : p + 1])[:, 0]
        new = (column - self.Z[:m, p] @ self.Z[:m]) / np.sqrt(self.r[p])
        self.Z[m] = new
        self.r = np.maximum(self.r - new**2, 0.0)
        self.inverse[m, m] = 1 / LAMBDA
        self.m += 1

    def observe(self, i: int, y: float) -> None:
        """A result of arm i."""
        lost = self.r[i] / LAMBDA
        known = max(self.variance[i] - lost, 0.0)
        if not self.m or (self.r[i] > 1e-10 and lost > SHARE * np.log1p(known)):
            self.enter(i)
        else:
            self.left_out += lost
        m = self.m
        z = self.Z[:m, i]
        g = self.inverse[:m, :m] @ z
        a = 1 + z @ g
        h = g @ self.Z[:m]
        self.mean += h * ((y - self.mean[i]) / a)
        self.variance -= h * h / a
        self.inverse[:m, :m] -= np.outer(g, g) / a
        self.log_det += np.log(a)

    def choose(self) -> int:
        """The arm of largest upper bound."""
        if self.norm is None:
            beta = 2 * np.sqrt(LAMBDA)
        else:
            information = NOISE**2 * (self.log_det + 2 * np.log(1 / DELTA))
            beta = np.sqrt(information + LAMBDA * self.norm**2)
            beta += np.sqrt(LAMBDA * self.left_out) * self.norm
        return int(np.argmax(self.mean + beta * np.sqrt(np.maximum(self.variance, 0.0))))


def problem(n: int, d: int, kernel: ma.kernels.Kernel, seed: int) -> tuple[Array, Array, float]:
    """Arms, f of unit spread, and its norm."""
    rng = np.random.default_rng([seed, n, d])
    X = rng.random((n, d))
    centres = X[rng.choice(n, 60, replace=False)]
    w = rng.normal(size=60)
    f = kernel(X, centres) @ w
    return X, f / f.std(), float(np.sqrt(w @ kernel(centres, centres) @ w) / f.std())


def ours(
    X: Array, f: Array, kernel: ma.kernels.Kernel, norm: float | None, steps: int, seed: int
) -> tuple[float, float, int]:
    """Seconds, of the median step of the second half too, and the size of W."""
    radius = ma.Constant(2.0) if norm is None else ma.Certified(norm, NOISE, DELTA)
    rng = np.random.default_rng([seed, 1])
    start = process_time()
    policy = ma.BKB(X, kernel, regularization=LAMBDA, confidence=radius, seed=seed)
    took = []
    for _ in range(steps):
        before = process_time()
        i = policy.choose()
        policy.observe(i, f[i] + NOISE * rng.normal(size=1))
        took.append(process_time() - before)
    return process_time() - start, float(np.median(took[steps // 2 :])), len(policy.inducing)


def plain(
    X: Array, f: Array, kernel: ma.kernels.Kernel, norm: float | None, steps: int, seed: int
) -> float:
    """Seconds."""
    rng = np.random.default_rng([seed, 1])
    start = process_time()
    policy = Plain(X, kernel, norm)
    for _ in range(steps):
        i = policy.choose()
        policy.observe(i, f[i] + NOISE * rng.normal())
    return process_time() - start


def print_steps(sizes: list[int]) -> None:
    """Microseconds a step."""
    kernel = ma.kernels.RBF(0.25)
    print("| arms | µs a step | W |\n|---|---|---|")
    for n in sizes:
        X, f, norm = problem(n, 2, kernel, 0)
        found = [ours(X, f, kernel, norm, 1000, seed) for seed in range(5)]
        step = np.median([each[1] for each in found]) * 1e6
        print(f"| {n:,} | {step:.0f} | {found[0][2]} |", flush=True)


def print_runs(sizes: list[int]) -> None:
    """Whole runs, ours over the plain ones."""
    kernels = {2: ma.kernels.RBF(0.25), 6: ma.kernels.RBF(1.0), 20: ma.kernels.RBF(2.5)}
    print("| arms | d | radius | plain s | ours s | ratio | W |\n|---|---|---|---|---|---|---|")
    for n in sizes:
        steps = 500 if n <= 2000 else 300
        for d, kernel in kernels.items():
            X, f, norm = problem(n, d, kernel, 0)
            for name, bound in (("Certified", norm), ("Constant(2)", None)):
                repeats = 3 if n <= 20_000 else 1
                pairs = [
                    (plain(X, f, kernel, bound, steps, 0), ours(X, f, kernel, bound, steps, 0))
                    for _ in range(repeats)
                ]
                least = float(np.median([one for one, _ in pairs]))
                spent = float(np.median([other[0] for _, other in pairs]))
                print(
                    f"| {n:,} | {d} | {name} | {least:.3g} | {spent:.3g} | {spent / least:.2f} | "
                    f"{pairs[0][1][2]} |",
                    flush=True,
                )


def print_passes(n: int) -> None:
    """The first choice among n arms, over kernel columns and one product."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 6))
    kernel = ma.kernels.Matern(1.0, nu=2.5)
    print("| W | columns and product s | first choice s | ratio |\n|---|---|---|---|")
    for m in (40, 128, 512):
        some = rng.choice(n, m, replace=False)
        rewards = rng.normal(size=m)
        spent = []
        for _ in range(3):
            policy = ma.BKB(X, kernel, regularization=LAMBDA, rule=ma.Inserted(1e-9), seed=0)
            policy.observe(some, rewards)
            start = process_time()
            policy.choose()
            spent.append(process_time() - start)
        bottom = min(floor(X, kernel, X[policy.inducing]) for _ in range(3))
        top = min(spent)
        print(
            f"| {policy.inducing.size} | {bottom:.3f} | {top:.3f} | {top / bottom:.2f} |",
            flush=True,
        )


def floor(X: Array, kernel: ma.kernels.Kernel, W: Array, width: int = 4096) -> float:
    """Seconds of kernel columns and one product of m² numbers an arm."""
    W = np.ascontiguousarray(W)
    square = np.random.default_rng(0).random((len(W), len(W)))
    columns = Columns(kernel)
    start = process_time()
    for first in range(0, len(X), width):
        rows = X[first : first + width]
        K = np.empty((len(W), len(rows)))
        columns.into(K, rows, W)
        square @ K
    return process_time() - start


def print_distinct() -> None:
    """Whole runs of 500 steps beside exact GP-UCB, where nearly every arm tried enters W."""
    print("| arms | kernel | GPUCB s | BKB s | ratio | W |\n|---|---|---|---|---|---|")
    kernels = {
        "Matérn-3/2 .1, d = 3": ma.kernels.Matern(0.1, nu=1.5),
        "RBF .15, d = 3": ma.kernels.RBF(0.15),
    }
    for n in (2000, 20_000):
        for name, kernel in kernels.items():
            X, f, norm = problem(n, 3, kernel, 0)
            radius = ma.Certified(norm, NOISE, DELTA)
            spent: dict[str, list[float]] = {"GPUCB": [], "BKB": []}
            for _ in range(3):
                for make in (ma.GPUCB, ma.BKB):
                    policy = make(X, kernel, regularization=LAMBDA, confidence=radius, seed=0)
                    start = process_time()
                    for _ in range(500):
                        i = policy.choose()
                        policy.observe(i, f[i])
                    spent[make.__name__].append(process_time() - start)
            exact, sketched = (float(np.median(each)) for each in spent.values())
            print(
                f"| {n:,} | {name} | {exact:.3g} | {sketched:.3g} | {sketched / exact:.2f} | "
                f"{len(policy.inducing)} |",
                flush=True,
            )


def print_long(steps: int = 1000) -> None:
    """An optimizer over the configurations of a neural network."""
    table = tables.load("protein_structure")
    rng = np.random.default_rng(0)
    opt = ma.Optimizer(ma.Pool.from_frame(table.frame, columns=table.columns), seed=0)
    spent = []
    for _ in range(steps):
        start = process_time()
        (id,) = opt.ask()
        asked = process_time() - start
        value = table.draw(int(id), rng)
        start = process_time()
        opt.tell(id, ma.FAILED if value is None else value)
        spent.append(process_time() - start + asked)
    late = float(np.median(spent[steps // 2 :]))
    print(f"| {steps:,} steps over {len(table):,} candidates | {sum(spent):.1f} s |")
    print(f"| a step of the second half, median | {1e3 * late:.1f} ms |", flush=True)


def print_mixed() -> None:
    """A million candidates of twenty columns, with an optimizer that learns."""
    rng = np.random.default_rng(0)
    table = million.columns(1_000_000, rng)
    f = million.values(table)
    pool = ma.Pool.from_frame(pl.DataFrame(table))
    base = million.peak()
    start = process_time()
    opt = ma.Optimizer(pool, seed=0)
    ids = opt.ask(1)
    print(f"| first ask | {process_time() - start:.2f} s |", flush=True)

    def told(ids: list) -> None:
        opt.tell(ids, [f[int(i)] + million.NOISE * rng.normal() for i in ids])

    told(ids)
    seconds = []
    for step in range(200):
        start = process_time()
        ids = opt.ask(1)
        told(ids)
        seconds.append(process_time() - start)
        if step == 48:
            print(f"| ask and tell at 50 results | {seconds[-1]:.3f} s |", flush=True)
            start = process_time()
            asked = opt.ask(100)
            print(f"| ask(100) at 50 results | {process_time() - start:.2f} s |", flush=True)
            opt.release(asked)
    print(f"| 200 steps | {sum(seconds):.1f} s | W {opt.size.n_inducing} |", flush=True)
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"| largest memory beyond the table | {now - base:.2f} GB |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", nargs="*", default=["steps", "runs", "passes", "distinct", "long", "mixed"]
    )
    parser.add_argument("--arms", nargs="+", type=int)
    options = parser.parse_args()
    if "steps" in options.what:
        print_steps(options.arms or [500, 2000])
    if "runs" in options.what:
        print_runs(options.arms or [500, 2000, 20_000, 200_000, 1_000_000])
    if "passes" in options.what:
        print_passes(300_000)
    if "distinct" in options.what:
        print_distinct()
    if "long" in options.what:
        print_long()
    if "mixed" in options.what:
        print_mixed()


if __name__ == "__main__":
    main()
