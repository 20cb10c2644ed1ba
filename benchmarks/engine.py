"""What the adaptive engine costs: every figure a ratio measured within one run, medians over seeds, one JSON and one table.

    python benchmarks/engine.py [--only NAME ...] [--sizes 50 200 500] [--seeds 3] [--output bench-output]

Problems: arms uniform on [0, 1]^d, f a sum of 20 kernel bumps, noise 0.1, λ = 0.01, q̄ = 5. Lengthscales are set so that runs
end with about 50, 200 and 500 inducing arms, for each radius; the table shows how many there were. Only the policy is timed,
never the problem. All sizes with several seeds take hours, most of them Algorithm 1's.
"""

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.policies import adaptive
from manyarms.policies.base import Policy
from manyarms.sketch import lazy, levels, store
from manyarms.sketch.choice import arg_max
from manyarms.sketch.history import History

NOISE = 0.1
LENGTHSCALES = {
    ("Constant", 20_000): {50: 0.45, 200: 0.23, 500: 0.22},
    ("Constant", 100_000): {50: 1.0, 200: 0.66, 500: 0.54},
    ("Constant", 1_000_000): {50: 1.3, 200: 0.75, 500: 0.61},
    ("LogDet", 20_000): {50: 12.0, 200: 3.0, 500: 1.4},
    ("LogDet", 100_000): {50: 12.0, 200: 3.0, 500: 1.75},
}
RADII = {"Constant": ma.Constant(2.0), "LogDet": ma.LogDet(2.0, NOISE)}


class Problem:
    """Arms, and f at them."""

    def __init__(self, n_arms, lengthscale, seed, d=8, arms=None):
        rng = np.random.default_rng([seed, 1])
        self.kernel, self.seed = ma.kernels.RBF(lengthscale), seed
        self.arms = rng.random((n_arms, d)) if arms is None else arms
        centres, weights = rng.random((20, self.arms.shape[1])), rng.standard_normal(20)
        blocks = (self.arms[start : start + 65536] for start in range(0, n_arms, 65536))
        self.f = np.concatenate([self.kernel(block, centres) @ weights for block in blocks])


class Run:
    """One run: seconds of the policy in each step, regret, and what the policy says of itself."""

    def __init__(self, problem, steps, policy=ma.BKB, confidence=RADII["Constant"], **options):
        rng = np.random.default_rng([problem.seed, 2])
        start = time.perf_counter()
        self.policy = policy(
            problem.arms, problem.kernel, regularization=NOISE**2, confidence=confidence, seed=problem.seed, **options
        )
        made = time.perf_counter() - start
        self.seconds, pulled = [], []
        for _ in range(steps):
            start = time.perf_counter()
            i = self.policy.choose()
            chosen = time.perf_counter()
            y = problem.f[i] + NOISE * rng.standard_normal(1)
            told = time.perf_counter()
            self.policy.observe(i, y)
            self.seconds.append(time.perf_counter() - told + chosen - start)
            pulled.append(int(i[0]))
        self.total = made + sum(self.seconds)
        self.regret = float(np.sum(problem.f.max() - problem.f[pulled]))
        self.inducing = len(self.policy.dictionary) if policy is ma.BKB else 0

    @property
    def median_step(self):
        return float(np.median(self.seconds[len(self.seconds) // 2 :]))

    @property
    def shares(self):
        """Where the time went."""
        stats = self.policy.stats
        passes = {kind: f"{stats.counts[kind]}× {stats.seconds[kind] / self.total:.0%}" for kind in ("refreshes", "updates")}
        return {**passes, "draws": stats.counts["draws"], "arms rescored": stats.counts["arms rescored"]}


def medians(rows):
    numbers = {key: float(np.median([row[key] for row in rows])) for key in rows[0] if not isinstance(rows[0][key], dict)}
    return {**numbers, **{key: value for key, value in rows[-1].items() if isinstance(value, dict)}}


def lazy_is_full(options):
    """Chosen arms, lazy against full scoring: 20 random problems × 3 radii × 1,000 steps; batches, pending arms, duplicates.

    660 arms, no exact start, and lists so short that every tier is used.
    """
    with (
        mock.patch.multiple(lazy, LIST_LENGTH=16, SHARE=4, SWEPT=100, PATIENCE=20, HOT=60),
        mock.patch.object(adaptive, "EXACT_ENTRIES", 0),
        mock.patch.multiple(levels, SAMPLE=100),
        mock.patch.multiple(store, CHUNK=100),
    ):
        yield from _compared()


def _compared():
    radii = {**RADII, "Theory": ma.Theory(2.0, NOISE)}
    for name, confidence in radii.items():
        compared = differ = 0
        for seed in range(20):
            rng = np.random.default_rng(seed)
            d = int(rng.integers(1, 9))
            problem = Problem(600, float(rng.uniform(0.05, 0.3)) * np.sqrt(d), seed, d)
            arms, f = np.vstack([problem.arms, problem.arms[:60]]), np.concatenate([problem.f, problem.f[:60]])
            policy = ma.BKB(arms, problem.kernel, confidence=confidence, seed=seed)
            policy.observe(0, f[0])
            for step in range(1000):
                if step % 50 == 49:
                    pending = rng.integers(len(arms), size=3)
                    i = policy.choose(3, pending=pending)
                    differ += int((i != Policy.choose(policy, 3, pending=pending)).any())
                else:
                    i = policy.choose()
                    differ += int(i[0] != arg_max(policy.scores()))
                compared += 1
                policy.observe(i, f[i] + NOISE * rng.standard_normal(len(i)))
        yield {"radius": name, "compared": compared, "differ": differ, "met": differ == 0, "bar": "0 differ"}


def against_algorithm_one(options):
    """Engine against Algorithm 1 verbatim, A = 20,000, d = 8, T = 2,000."""
    yield from _against(options, 20_000, 50, 1.05, resparsify="always")


def against_gpucb(options):
    """Engine against exact incremental GP-UCB, A = 100,000, d = 8, T = 2,000."""
    yield from _against(options, 100_000, 10, 1.1, policy=ma.GPUCB)


def _against(options, n_arms, faster, regret, **other):
    for size in options.sizes:
        for name, confidence in RADII.items():
            rows = []
            for seed in range(options.seeds):
                problem = Problem(n_arms, LENGTHSCALES[name, n_arms][size], seed)
                ours = Run(problem, 2000, confidence=confidence)
                theirs = Run(problem, 2000, confidence=confidence, **other)
                ratio = {"faster": theirs.total / ours.total, "regret": ours.regret / theirs.regret}
                rows.append({"|S|": ours.inducing, **ratio, "where": ours.shares})
            row = medians(rows)
            met = row["faster"] >= faster and row["regret"] <= regret
            yield {"size": size, "radius": name, **row, "met": met, "bar": f"≥ {faster}×, regret ≤ {regret}"}


def refresh(options):
    """A full refresh against its floor, A = 100,000: the same kernel columns and one A×m×m product in bare NumPy."""
    for size in options.sizes:
        policy = Run(Problem(100_000, LENGTHSCALES["Constant", 100_000][size], 0), 1500).policy
        posterior, store = policy._fitted(), policy._state.frontier._all
        M = np.random.default_rng(0).random((len(posterior.w), len(posterior.w)))

        def fresh(posterior=posterior, store=store):
            store._holds = None
            store.bring(posterior, History(), None, np.inf)

        def floor(posterior=posterior, policy=policy, M=M):
            return policy.kernel(policy.arms, posterior.embedding.inducing_rows) @ M

        with threadpool_limits(2):
            ratio = np.median([_seconds(fresh) / _seconds(floor) for _ in range(5)])
        yield {"size": size, "m": len(M), "ratio": float(ratio), "met": bool(ratio <= 1.5), "bar": "≤ 1.5"}


def growth(options):
    """A = 10⁶ against A = 10⁴, d = 8, T = 1,000, same lengthscale."""
    for size in options.sizes:
        rows = []
        for seed in range(options.seeds):
            small, large = (Run(Problem(n, LENGTHSCALES["Constant", 10**6][size], seed), 1000) for n in (10**4, 10**6))
            ratios = {"median step": large.median_step / small.median_step, "total": large.total / small.total}
            rows.append({"|S|": large.inducing, **ratios, "where": large.shares})
        row = medians(rows)
        met = row["median step"] <= 3 and row["total"] <= 110
        yield {"size": size, **row, "met": met, "bar": "median step ≤ 3, total ≤ 110"}


def million(options):
    """A = 10⁶, d = 8, T = 5,000: total against 3 × (kernel columns + one A×m×m product at the final m) + T × 1 ms."""
    for size in options.sizes:
        with Peak() as peak:
            run = Run(Problem(10**6, LENGTHSCALES["Constant", 10**6][size], 0), 5000)
        inducing = run.policy._fitted().embedding.inducing_rows
        M = np.random.default_rng(0).random((len(inducing), len(inducing)))

        def floor(run=run, inducing=inducing, M=M):
            return run.policy.kernel(run.policy.arms, inducing) @ M

        with threadpool_limits(2):
            ratio = run.total / (3 * np.median([_seconds(floor) for _ in range(3)]) + 5000 * 1e-3)
        row = {"size": size, "m": len(M), "total": float(ratio), "where": run.shares, "peak anonymous GB": peak.gigabytes}
        met = bool(ratio <= 1) if size == 50 else None
        yield {**row, "met": met, "bar": "≤ 1 on the easy problem"}


def mapped(options):
    """A = 10⁷, d = 16, from a memory-mapped file, T = 300, memory = 1.5 GB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arms.npy"
        arms = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(10**7, 16))
        rng = np.random.default_rng(0)
        for start in range(0, len(arms), 10**5):
            arms[start : start + 10**5] = rng.random((10**5, 16))
        arms.flush()
        del arms
        problem = Problem(10**7, 2.5, 0, arms=np.load(path, mmap_mode="r"))
        with Peak() as peak:
            run = Run(problem, 300, memory=1.5e9)
    row = {"|S|": run.inducing, "minutes": run.total / 60, "where": run.shares, "peak anonymous GB": peak.gigabytes}
    yield {**row, "met": peak.gigabytes <= 2, "bar": "finishes, ≤ 2 GB"}


def long_run(options):
    """T = 100,000 at A = 10,000: seconds of the last tenth against those of the second."""
    for size in options.sizes:
        for name, confidence in RADII.items():
            run = Run(Problem(10**4, LENGTHSCALES[name, 20_000][size], 0), 100_000, confidence=confidence)
            tenths = np.array(run.seconds).reshape(10, -1).sum(axis=1)
            row = {"size": size, "radius": name, "|S|": run.inducing, "ratio": float(tenths[-1] / tenths[1])}
            yield {**row, "met": row["ratio"] <= 1.5, "bar": "≤ 1.5"}


def small(options):
    """A = 1,000, T = 100, against GP-UCB."""
    for lengthscale in (1.0, 0.6, 0.4):
        rows = []
        for seed in range(3 * options.seeds):
            problem = Problem(1000, lengthscale, seed)
            ours, theirs = Run(problem, 100), Run(problem, 100, ma.GPUCB)
            rows.append({"|S|": ours.inducing, "times slower": ours.total / theirs.total})
        row = medians(rows[1:])
        yield {"lengthscale": lengthscale, **row, "met": row["times slower"] <= 1, "bar": "≤ 1"}


BENCHMARKS: dict[str, Callable[[argparse.Namespace], Iterator[dict]]] = {
    "lazy": lazy_is_full,
    "algorithm1": against_algorithm_one,
    "gpucb": against_gpucb,
    "refresh": refresh,
    "growth": growth,
    "million": million,
    "mapped": mapped,
    "long": long_run,
    "small": small,
}


class Peak:
    """The largest anonymous memory of the process meanwhile, sampled: pages of mapped files do not count."""

    def __enter__(self):
        self.gigabytes, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _sample(self):
        while not self._done.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            now = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.gigabytes = max(self.gigabytes, now / 1e6)


def _seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _shown(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--sizes", nargs="*", type=int, choices=(50, 200, 500), default=[50, 200, 500])
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
    print(_shown(machine))
    results: dict[str, list[dict]] = {}
    for name in options.only:
        print(f"\n{name}: {BENCHMARKS[name].__doc__.splitlines()[0]}")
        for row in BENCHMARKS[name](options):
            results.setdefault(name, []).append(row)
            verdict = {True: "met", False: "MISSED", None: "no bar"}[row["met"]]
            shown = " | ".join(f"{key} {_shown(value)}" for key, value in row.items() if key not in ("met", "bar"))
            print(f"  {verdict:<7}({row['bar']}) {shown}", flush=True)
            document = {"machine": machine, "results": results}
            (options.output / "engine.json").write_text(json.dumps(document, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
