"""What a table costs that is divided among shards: `python benchmarks/cluster.py round|long|model`.

round   a round (choose and observe) on two shards of Ray against one table in this process
long    ten million rows over four shards, 200 rounds; what the driver holds
model   rounds at several sizes, and the cost model of docs/scaling.md fitted on them
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

import manyarms as ma
from manyarms.cluster import Sharded
from manyarms.kernels import RBF

NOISE = 0.1


def written(folder: Path, n: int, d: int, seed: int = 0) -> Path:
    """A file of rows, written by another process: this one never holds them."""
    path = folder / f"{n}x{d}.npy"
    code = (
        "import sys, numpy as np\n"
        "path, n, d, seed = sys.argv[1], *map(int, sys.argv[2:])\n"
        "rng = np.random.default_rng(seed)\n"
        "rows = np.lib.format.open_memmap(path, 'w+', np.float64, (n, d))\n"
        "for start in range(0, n, 1 << 18):\n"
        "    rows[start : start + (1 << 18)] = rng.random(rows[start : start + (1 << 18)].shape)\n"
    )
    arguments = [str(path), str(n), str(d), str(seed)]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)  # noqa: S603
    return path


def value(x: np.ndarray) -> np.ndarray:
    """What an arm gives: a smooth function of all columns."""
    weights = np.linspace(1, 0.2, x.shape[1])
    return np.asarray(np.cos(3 * (x - 0.6)) @ weights / weights.sum())


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of this process and of others on this machine."""
    ticks = os.sysconf("SC_CLK_TCK")
    spent = 0.0
    for pid in (os.getpid(), *pids):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += (int(fields[11]) + int(fields[12])) / ticks
    return spent


def shards_of(table: Sharded) -> list[int]:
    """The processes of a table's shards."""
    import ray  # noqa: PLC0415

    actors = table._crew._actors
    return [ray.get(actor.process.remote()) for actor in actors]


def rounds(policy: ma.BKB, n: int, pids: list[int], seed: int) -> tuple[list[float], float]:
    """Seconds of each round, and CPU seconds of all."""
    rng = np.random.default_rng(seed)
    spent = []
    before = cpu_of(pids)
    for _ in range(n):
        start = perf_counter()
        arm = policy.choose()
        x = policy.arms[arm]
        policy.observe(arm, value(x) + NOISE * rng.standard_normal(1))
        spent.append(perf_counter() - start)
    return spent, cpu_of(pids) - before


def warmed(table: object, m: int, scale: float, seed: int = 0) -> ma.BKB:
    """A policy with m inducing rows, whose first pass is done."""
    policy = ma.BKB(
        table, RBF(scale), rule=ma.Inserted(0.0, most=m), regularization=NOISE**2, seed=1
    )
    rng = np.random.default_rng(seed)
    arms = np.sort(rng.choice(policy.n_arms, m + 20, replace=False))
    policy.observe(arms, value(policy.arms[arms]) + NOISE * rng.standard_normal(m + 20))
    policy.choose()
    return policy


def round_against_one_table(n: int, d: int, m: int, n_rounds: int) -> None:
    """Rounds on two shards and on one table, from the same state on."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = written(Path(folder), n, d)
        found = {}
        for where in ("one table", "two shards"):
            table = Sharded(path, 2) if where == "two shards" else path
            pids = shards_of(table) if isinstance(table, Sharded) else []
            start = perf_counter()
            policy = warmed(table, m, np.sqrt(d) / 4)
            first = perf_counter() - start
            spent, cpu = rounds(policy, n_rounds, pids, 3)
            found[where] = (np.array(spent), cpu, policy.log.arms.tolist())
            print(
                f"{where:<11} A = {n:,}, m = {policy.belief.m}: first {first:.1f} s; {n_rounds} rounds "
                f"{sum(spent):.2f} s, CPU {cpu:.2f} s, median {1e3 * np.median(spent):.1f} ms, "
                f"mean {1e3 * np.mean(spent):.1f} ms"
            )
            if isinstance(table, Sharded):
                table.close()
            del policy
        one, two = found.values()
        print(
            f"two shards / one table: seconds {two[0].sum() / one[0].sum():.2f}, CPU "
            f"{two[1] / one[1]:.2f}; same arms: {one[2] == two[2]}"
        )


def long_run(n: int, d: int, shards: int, n_rounds: int, memory: float | None) -> None:
    """Many rounds on many rows; what the driver holds at most."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = written(Path(folder), n, d)
        start = perf_counter()
        with Sharded(path, shards, memory=memory) as table:
            read = perf_counter() - start
            pids = shards_of(table)
            policy = ma.BKB(table, RBF(np.sqrt(d) / 2), regularization=NOISE**2, seed=1)
            spent, cpu = rounds(policy, n_rounds, pids, 3)
            held = [
                int(line.split()[1]) / 1e6
                for pid in pids
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmHWM")
            ]
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            best = policy.predict(arms=[policy.best]).mean[0]
            print(
                f"{n:,} x {d} over {shards} shards, T = {n_rounds}: read in {read:.1f} s, rounds "
                f"{sum(spent):.0f} s (CPU {cpu:.0f} s), m = {policy.belief.m}; largest round "
                f"{max(spent):.1f} s, median {1e3 * np.median(spent):.0f} ms; driver at most "
                f"{rss:.2f} GB, shards {', '.join(f'{each:.1f}' for each in held)} GB; "
                f"best mean {best:.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=["round", "long", "model"])
    parser.add_argument("--arms", type=float)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--memory", type=float, help="bytes of a shard")
    given = parser.parse_args()
    if given.case == "round":
        round_against_one_table(
            int(given.arms or 2e6), given.columns, given.inducing, given.rounds or 60
        )
    elif given.case == "long":
        n = int(given.arms or 1e7)
        long_run(n, given.columns, given.shards, given.rounds or 200, given.memory)


if __name__ == "__main__":
    main()
