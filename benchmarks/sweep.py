"""The loops over all arms: compiled beside NumPy, and beside the speed of memory.

    OPENBLAS_NUM_THREADS=1 python benchmarks/sweep.py [--seconds 0.3]

Processor time of one thread, the least of several batches of calls. Kernel columns: nanoseconds an
entry of (j, n). The others: microseconds a call, and gigabytes a second of what has to be read
(m rows of Z in a step; mean and variance in peak and reach).
"""

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np

from manyarms.kernels import RBF, Hamming, Kernel, Matern, On, Tanimoto, pack
from manyarms.search import sweep

BATCHES = 15
M = 40
"""Rows of Z."""


def least(call: Callable[[], object], seconds: float) -> float:
    """Seconds of a call."""
    call()
    start = process_time()
    call()
    once = max(process_time() - start, 1e-7)
    calls = max(1, int(seconds / BATCHES / once))
    spent = []
    for _ in range(BATCHES):
        start = process_time()
        for _ in range(calls):
            call()
        spent.append((process_time() - start) / calls)
    return min(spent)


def kernels(d: int) -> dict[str, Kernel]:
    half = d // 2
    return {
        "RBF": RBF(np.sqrt(d)),
        "Matern 5/2": Matern(np.sqrt(d)),
        "Hamming": Hamming(float(d)),
        "c · Matern · Hamming": 2.0
        * On(Matern(np.sqrt(d)), 0, half)
        * On(Hamming(float(d)), half, d),
    }


def columns(seconds: float) -> None:
    print("columns: n | j | d | kernel | compiled, ns an entry | NumPy | ratio")
    rng = np.random.default_rng(0)
    for n, j in ((500, 1), (100_000, 1), (4096, M)):
        for d in (2, 9, 20):
            X = rng.random((n, d))
            X[:, d // 2 :] = rng.integers(0, 4, size=(n, d - d // 2))
            for name, kernel in kernels(d).items():
                row(n, j, d, name, kernel, X, seconds)
    P = pack(rng.random((4096, 2048)) < 0.05)
    for j in (1, M):
        row(4096, j, 2048, "Tanimoto, packed", Tanimoto(packed=True), P, seconds)


def row(n: int, j: int, d: int, name: str, kernel: Kernel, X: np.ndarray, seconds: float) -> None:
    W = X[:j].copy()
    out = np.empty((j, n))
    those = sweep.Columns(kernel)
    ours = least(partial(those.into, out, X, W), seconds) / n / j * 1e9
    theirs = least(partial(kernel, X, W), seconds) / n / j * 1e9
    print(f"{n} | {j} | {d} | {name} | {ours:.2f} | {theirs:.1f} | {theirs / ours:.1f}")


def others(seconds: float) -> None:
    print("what | n | compiled, µs | GB/s | NumPy, µs | ratio")
    rng = np.random.default_rng(0)
    for n in (500, 100_000, 1_000_000):
        Z = rng.random((M, n))
        G = np.full((1, M), 1e-9)
        surprise = np.full(1, 1e-9)
        mean = rng.normal(size=n)
        variance = rng.random(n)
        shut = rng.random(n) < 0.01
        need = np.linspace(4.0, 3.0, 64)
        step = (G, surprise, mean, variance)
        grown = (Z, M - 1, M, np.full((1, M - 1), 1e-9), np.eye(1), *step)
        same = (Z, M, M, np.empty((0, M)), np.empty((0, 0)), *step)
        for name, compiled, by_numpy, arguments, numbers in (
            ("step, m = 40", sweep.step, sweep.step_in_numpy, same, M),
            ("step, m = 39 to 40", sweep.step, sweep.step_in_numpy, grown, M),
            ("peak", sweep.peak, sweep.peak_in_numpy, (mean, variance, shut, 2.0, 0.0), 2),
            ("reach", sweep.reach, sweep.reach_in_numpy, (mean, variance, shut, need, 64.0), 2),
        ):
            ours = least(partial(compiled, *arguments), seconds)
            theirs = least(partial(by_numpy, *arguments), seconds)
            speed = 8e-9 * numbers * n / ours
            print(
                f"{name} | {n} | {1e6 * ours:.1f} | {speed:.1f} | {1e6 * theirs:.1f} | "
                f"{theirs / ours:.1f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a figure, about")
    given = parser.parse_args()
    print(f"compiled step: {sweep.STATE}")
    columns(given.seconds)
    others(given.seconds)


if __name__ == "__main__":
    main()
