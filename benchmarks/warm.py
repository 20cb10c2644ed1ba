"""What a warm start costs: a table of past observations absorbed by BKB, beside the BLAS floor of the same n·m² product.

    python benchmarks/warm.py [--rows 1000000] [--columns 8] [--lengthscale 2.5] [--memory 4e9] [--observe] [--tell 100000]

Rows are uniform on [0, 1]^d, each observed once, f a sum of 20 kernel bumps, noise 0.1, λ = 0.01, q̄ = 5. The floor is ZᵀZ of an
(n, m) matrix, timed on a part of it. Two clocks: of the wall, and processor seconds over the number of cores, which is what an
idle machine would need. --observe has `observe` learn the table instead; --tell tells an Optimizer.
"""

import argparse
import os
import resource
import time
from functools import partial

import numpy as np

import manyarms as ma

NOISE = 0.1


def problem(n, d, lengthscale):
    rng = np.random.default_rng(0)
    rows, kernel = rng.random((n, d)), ma.kernels.RBF(lengthscale)
    centres, weights = rng.random((20, d)), rng.standard_normal(20)
    f = np.concatenate([kernel(rows[i : i + 65536], centres) @ weights for i in range(0, n, 65536)])
    return rows, kernel, f, f + NOISE * rng.standard_normal(n)


def timed(work):
    """Seconds of the wall, and of the processors over their number."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, (time.process_time() - processor) / (os.cpu_count() or 1)


def floor(n, m, width=8192):
    """Seconds, on both clocks, of ZᵀZ for Z (n, m), from a part."""
    Z = np.random.default_rng(1).random((width, m))
    Z.T @ Z
    spent = np.array([timed(lambda: Z.T @ Z)[1:] for _ in range(5)])
    return np.median(spent, axis=0) * n / width


def report(name, wall, processor):
    print(f"{name:<28} {wall:10.4f} s   {processor:10.4f} s of all cores", flush=True)


def warm(n, d, lengthscale, memory, observe):
    rows, kernel, f, rewards = problem(n, d, lengthscale)
    policy, *made = timed(lambda: ma.BKB(rows, kernel, regularization=NOISE**2, memory=memory))
    report("BKB(...)", *made)
    _, *spent = timed(lambda: (policy.observe if observe else policy.warm_start)(np.arange(n), rewards))
    m = len(policy.inducing)
    report("observe" if observe else "warm_start", *spent)
    low = floor(n, m)
    report(f"floor: n·m², m = {m}", *low)
    print(f"ratio to the floor: {spent[0] / low[0]:.2f} (wall), {spent[1] / low[1]:.2f} (processors)")
    some = np.random.default_rng(2).choice(n, 2000, replace=False)
    mean, std = policy.predict(rows[some])
    error = np.sqrt(np.mean(np.square(mean - f[some])))
    print(f"effective dimension {policy.effective_dimension:.0f}; error of the mean {error:.4f}, mean std {std.mean():.4f}")
    chosen, *first = timed(policy.choose)
    report("first choose", *first)
    steps = []
    for _ in range(20):
        _, *spent = timed(partial(policy.observe, chosen, f[chosen]))
        chosen, *more = timed(policy.choose)
        steps.append(np.add(spent, more))
    report("median of 20 steps", *np.median(steps, axis=0))
    report("mean of 20 steps", *np.mean(steps, axis=0))
    print(policy.stats, flush=True)


def tell(n, d, lengthscale):
    rows, _, f, rewards = problem(n, d, lengthscale)
    pool, *made = timed(lambda: ma.Pool.from_array(rows))
    report("Pool.from_array", *made)
    optimizer, *made = timed(lambda: ma.Optimizer(pool))
    report("Optimizer(pool)", *made)
    report(f"tell({n:,} results)", *timed(lambda: optimizer.tell(pool.ids, rewards))[1:])
    report("ask()", *timed(optimizer.ask)[1:])
    some = np.random.default_rng(2).choice(n, min(n, 2000), replace=False)
    error = np.sqrt(np.mean(np.square(optimizer.predict(pool.ids[some]).mean - f[some])))
    print(f"sizes: {optimizer.sizes[-1]}, noise {optimizer.noise:.4f}; error {error:.4f} of spread {f.std():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--lengthscale", type=float, default=2.5)
    parser.add_argument("--memory", type=float, default=4e9)
    parser.add_argument("--observe", action="store_true")
    parser.add_argument("--tell", type=int, metavar="N")
    options = parser.parse_args()
    if options.tell:
        tell(options.tell, options.columns, options.lengthscale)
    else:
        warm(options.rows, options.columns, options.lengthscale, options.memory, options.observe)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB, load {os.getloadavg()[0]:.1f}")
