"""What the adaptive engine costs: every figure a ratio measured within one run, medians over seeds, one JSON and one table.

    python benchmarks/engine.py [--only NAME ...] [--seeds 3] [--output bench-output]

Problems: arms uniform on [0, 1]⁸, f a sum of 20 kernel bumps, noise 0.1, λ = 0.01, q̄ = 5. The lengthscale sets how many
inducing arms a run ends with; the table shows them.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.sketch.choice import arg_max

NOISE = 0.1
LENGTHSCALES = {"easy": 1.0, "hard": 0.6}


class Run:
    """One run: seconds of each step, regret, and what the policy says of itself."""

    def __init__(self, n_arms, lengthscale, steps, seed, confidence=ma.Constant(2.0), policy=ma.BKB, arms=None, **options):
        rng = np.random.default_rng([seed, 1])
        kernel = ma.kernels.RBF(lengthscale)
        if arms is None:
            arms = rng.random((n_arms, 8))
        centres, weights = rng.random((20, arms.shape[1])), rng.standard_normal(20)
        if policy is ma.BKB:
            options = {"resparsify": "adaptive", **options}
        start = time.perf_counter()
        self.policy = policy(arms, kernel, regularization=NOISE**2, confidence=confidence, seed=seed, **options)
        self.seconds, values = [], []
        for _ in range(steps):
            before = time.perf_counter()
            i = self.policy.choose()
            value = kernel(arms[i], centres) @ weights
            self.policy.observe(i, value + NOISE * rng.standard_normal(1))
            self.seconds.append(time.perf_counter() - before)
            values.append(float(value[0]))
        self.total = time.perf_counter() - start
        best = max(float((kernel(arms[c : c + 65536], centres) @ weights).max()) for c in range(0, len(arms), 65536))
        self.regret = best * steps - sum(values)
        self.inducing = len(self.policy.dictionary) if policy is ma.BKB else 0

    @property
    def median_step(self):
        return float(np.median(self.seconds[len(self.seconds) // 2 :]))


def medians(rows):
    return {key: float(np.median([row[key] for row in rows])) for key in rows[0]}


def lazy_is_full(seeds):
    """Chosen arms, lazy against full scoring."""
    differ = steps = 0
    for seed in range(seeds):
        for confidence in (ma.Constant(2.0), ma.LogDet(2.0, NOISE), ma.Theory(2.0, NOISE)):
            for lengthscale in (0.25, 0.6):
                rng = np.random.default_rng(seed)
                arms = rng.random((6000, 8))
                arms = np.vstack([arms, arms[:500]])
                kernel = ma.kernels.RBF(lengthscale)
                f = kernel(arms, rng.random((20, 8))) @ rng.standard_normal(20)
                policy = ma.BKB(arms, kernel, confidence=confidence, resparsify="adaptive", seed=seed)
                policy.observe(0, f[0])
                for _ in range(100):
                    i = policy.choose()
                    differ += int(i[0] != arg_max(policy.scores()))
                    steps += 1
                    policy.observe(i, f[i] + NOISE * rng.standard_normal(1))
    return {"steps": steps, "differ": differ, "bar": "0 differ"}


def against(policy, n_arms, name, steps, bar, **options):
    def measure(seeds):
        rows = []
        for seed in range(seeds):
            ours = Run(n_arms, LENGTHSCALES[name], steps, seed)
            theirs = Run(n_arms, LENGTHSCALES[name], steps, seed, policy=policy, **options)
            rows.append(
                {"inducing": ours.inducing, "times faster": theirs.total / ours.total, "regret": ours.regret / theirs.regret}
            )
        return {**medians(rows), "bar": bar}

    measure.__doc__ = f"{name}, A = {n_arms:,}, T = {steps:,}."
    return measure


def refresh_against_floor(seeds):
    """A full refresh against kernel columns and one A×m×m product, same threads."""
    return {"rows": [_refresh_ratio(name, seeds) for name in LENGTHSCALES], "bar": "≤ 1.5"}


def _refresh_ratio(name, seeds):
    policy = Run(100_000, LENGTHSCALES[name], 400, 0).policy
    posterior, store = policy._state.frontier.tracked.posterior, policy._state.frontier._store
    inducing, M = posterior.embedding.inducing_rows, np.random.default_rng(0).random((len(posterior.w), len(posterior.w)))
    with threadpool_limits(2):
        refresh = min(_seconds(lambda: store.refresh(posterior)) for _ in range(3 * seeds))
        floor = min(_seconds(lambda: policy.kernel(policy.arms, inducing) @ M) for _ in range(3 * seeds))
    return {"problem": name, "m": len(M), "ratio": refresh / floor}


def growth(seeds):
    """A = 10⁶ against A = 10⁴, T = 1,000."""
    rows = []
    for seed in range(seeds):
        small, large = (Run(n, LENGTHSCALES["easy"], 1000, seed) for n in (10**4, 10**6))
        rows.append({"median step": large.median_step / small.median_step, "total": large.total / small.total})
    return {**medians(rows), "bar": "median step ≤ 3, total ≤ 110"}


def million(seeds):
    """A = 10⁶, T = 5,000, easy: total against kernel columns + one A×m×m product."""
    run = Run(10**6, LENGTHSCALES["easy"], 5000, 0)
    inducing = run.policy._state.frontier.tracked.posterior.embedding.inducing_rows
    M = np.eye(len(inducing))
    floor = min(_seconds(lambda: run.policy.kernel(run.policy.arms, inducing) @ M) for _ in range(3))
    allowed = 3 * floor + 5000 * 1e-3
    return {
        "m": len(M),
        "total": run.total / allowed,
        "stats": run.policy.stats.counts,
        "bar": "total ≤ 1 of 3 floors + T·1 ms",
    }


def mapped(seeds):
    """A = 10⁷, d = 16, mapped from a file, T = 300, memory 1.5 GB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arms.npy"
        arms = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(10**7, 16))
        rng = np.random.default_rng(0)
        for start in range(0, len(arms), 10**5):
            arms[start : start + 10**5] = rng.random((10**5, 16))
        arms.flush()
        del arms
        run = Run(10**7, 1.0, 300, 0, arms=np.load(path, mmap_mode="r"), memory=1.5e9)
        peak = _anonymous_peak()
    counts = run.policy.stats.counts
    return {"inducing": run.inducing, "minutes": run.total / 60, "anonymous GB": peak, "stats": counts, "bar": "≤ 2 GB"}


def long_run(seeds):
    """T = 100,000 at A = 10,000: seconds of the last tenth against the second."""
    run = Run(10**4, LENGTHSCALES["easy"], 100_000, 0)
    tenths = np.array(run.seconds).reshape(10, -1).sum(axis=1)
    return {"ratio": float(tenths[-1] / tenths[1]), "bar": "≤ 1.5"}


def small(seeds):
    """A = 1,000, T = 100 against GPUCB."""
    rows = []
    for seed in range(3 * seeds):
        Run(1000, 0.6, 100, seed)
        rows.append({"times slower": Run(1000, 0.6, 100, seed).total / Run(1000, 0.6, 100, seed, policy=ma.GPUCB).total})
    return {**medians(rows), "bar": "≤ 1"}


BENCHMARKS: dict[str, Callable] = {
    "lazy": lazy_is_full,
    "algorithm1-easy": against(ma.BKB, 20_000, "easy", 2000, "≥ 50× faster, regret ≤ 1.05", resparsify="always"),
    "gpucb-easy": against(ma.GPUCB, 100_000, "easy", 2000, "≥ 10× faster, regret ≤ 1.1"),
    "gpucb-hard": against(ma.GPUCB, 100_000, "hard", 2000, "≥ 10× faster, regret ≤ 1.1"),
    "refresh": refresh_against_floor,
    "growth": growth,
    "million": million,
    "mapped": mapped,
    "long": long_run,
    "small": small,
}


def _seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _anonymous_peak():
    """Anonymous memory now, GB: mapped file pages do not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e6
    return float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    machine = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "manyarms": ma.__version__,
        "seeds": options.seeds,
    }
    results = {}
    for name in options.only:
        results[name] = {"what": BENCHMARKS[name].__doc__, **BENCHMARKS[name](options.seeds)}
        print(f"{name}: {results[name]}", flush=True)
        (options.output / "engine.json").write_text(json.dumps({"machine": machine, "results": results}, indent=2, default=str))


if __name__ == "__main__":
    main()
