"""Steps and whole runs beside the least that they could cost: processor seconds, as ratios.

    OPENBLAS_NUM_THREADS=1 python benchmarks/floors.py [steps runs mixed] [--arms 500 2000 20000 …]

`steps`: microseconds of a choice and an observation with few inducing arms. `runs`: a policy beside
the same algorithm in forty lines of NumPy, dense over all arms, which checks nothing, holds V as an
inverse and lets rounding grow. `mixed`: 10⁶ candidates of 20 columns, where the floor is the passes
over all of them that cannot be saved: kernel columns and one product after each refit, and a sweep a
step, as `benchmarks/sweep.py` times them.
"""

import argparse
import resource
from time import process_time

import million
import numpy as np

import manyarms as ma
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


def print_mixed() -> None:
    """A million candidates of twenty columns, with an optimizer that learns."""
    rng = np.random.default_rng(0)
    table = million.columns(1_000_000, rng)
    f = million.values(table)
    pool = ma.Pool.from_frame(table)
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
    parser.add_argument("what", nargs="*", default=["steps", "runs", "mixed"])
    parser.add_argument("--arms", nargs="+", type=int)
    options = parser.parse_args()
    if "steps" in options.what:
        print_steps(options.arms or [500, 2000])
    if "runs" in options.what:
        print_runs(options.arms or [500, 2000, 20_000, 200_000, 1_000_000])
    if "mixed" in options.what:
        print_mixed()


if __name__ == "__main__":
    main()
