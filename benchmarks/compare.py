"""Regret and time of BKB as printed beside exact GP-UCB, as ratios within one run; medians over seeds.

    python benchmarks/compare.py [--arms 5000] [--steps 300] [--seeds 3] [--output bench-output]

Problems: arms uniform on [0, 1]^d, f a sum of kernel bumps, noise 0.1; the lengthscale sets how many inducing arms are needed.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import scipy

import manyarms as ma
from manyarms.diagnostics import cumulative_regret

PROBLEMS = {"easy": (2, 0.5), "medium": (2, 0.2), "hard": (4, 0.4)}  # features, lengthscale
NOISE = 0.1


def run(policy, f, steps, seed):
    """Seconds and cumulative regret of one run."""
    rng = np.random.default_rng(seed)
    start, arms = time.perf_counter(), []
    for _ in range(steps):
        i = policy.choose()
        policy.observe(i, f[i] + NOISE * rng.standard_normal(1))
        arms.append(int(i[0]))
    return time.perf_counter() - start, float(cumulative_regret(f[arms], f.max())[-1])


def compare(name, n_arms, steps, seeds):
    """One row of the table: medians over seeds of what is a ratio, or a size."""
    d, lengthscale = PROBLEMS[name]
    kernel, rows = ma.kernels.RBF(lengthscale), []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        arms, centres = rng.random((n_arms, d)), rng.random((20, d))
        f = kernel(arms, centres) @ rng.standard_normal(20)
        options = {"regularization": NOISE**2, "confidence": ma.Constant(2.0), "seed": seed}
        sketched, exact = ma.BKB(arms, kernel, **options), ma.GPUCB(arms, kernel, **options)
        (t_sketched, r_sketched), (t_exact, r_exact) = (run(policy, f, steps, seed) for policy in (sketched, exact))
        rows.append((len(sketched.dictionary), t_sketched / t_exact, r_sketched / r_exact))
    size, seconds, regret = np.median(rows, axis=0)
    return {"problem": name, "arms": n_arms, "steps": steps, "dictionary": size, "time ratio": seconds, "regret ratio": regret}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    options = parser.parse_args()
    rows = [compare(name, options.arms, options.steps, options.seeds) for name in PROBLEMS]
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "manyarms": ma.__version__,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "compare.json"
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2))
    print("BKB as printed against exact GP-UCB (medians):")
    for row in rows:
        print(
            "  "
            + "  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        )
    print(f"written to {path}")


if __name__ == "__main__":
    main()
