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
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

import manyarms as ma
from manyarms.cluster import Sharded
from manyarms.kernels import RBF

NOISE = 0.1
KEPT = ma.Tuning(rough=10**9)
"""Embeddings are kept while they fit: rounds are many, so their first pass pays."""
SIZES = (
    (50_000, 50, True),
    (50_000, 200, True),
    (200_000, 50, True),
    (200_000, 100, True),
    (200_000, 200, True),
    (600_000, 50, True),
    (600_000, 100, True),
    (400_000, 150, False),
)
"""Rows a shard, inducing rows, and whether the model is fitted on it."""


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
        if sum(spent) > 60 * (1 + sum(spent[:-1]) // 60):
            print(f"round {len(spent)} after {sum(spent):.0f} s", file=sys.stderr)
    return spent, cpu_of(pids) - before


def warmed(table: object, m: int, scale: float, seed: int = 0) -> ma.BKB:
    """A policy with m inducing rows, whose first pass is done."""
    policy = ma.BKB(
        table,
        RBF(scale),
        rule=ma.Inserted(0.0, most=m),
        regularization=NOISE**2,
        tuning=KEPT,
        seed=1,
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
            policy = ma.BKB(table, RBF(np.sqrt(d)), regularization=NOISE**2, seed=1)
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


class Measured(NamedTuple):
    """What was measured with n rows to a shard and m inducing rows."""

    n: int
    m: int
    shard: float  # CPU seconds of a shard a round
    driver: float  # of the driver
    first: float  # CPU seconds of a shard for the first pass over its rows
    sent: float  # bytes to a shard a round
    received: float  # and from it
    whole: float  # bytes of the whole belief


def measured(path: Path, m: int, n_rounds: int) -> Measured:
    """Rounds on two shards."""
    import ray  # noqa: PLC0415

    sent: list[tuple[float, float]] = []
    with Sharded(path, 2) as table:
        crew = table._crew
        ask = crew.ask

        def counted(asked: Any) -> Any:
            answers = ask(asked)
            sizes = (len(ray.cloudpickle.dumps(what[0])) for what in (asked, answers))
            there, back = sizes
            sent.append((there, back))
            return answers

        crew.ask = counted
        pids = shards_of(table)
        mine = cpu_of([])
        before = cpu_of(pids) - mine
        policy = warmed(table, m, np.sqrt(table.shape[1]) / 4)
        whole = sent[0][0]
        sent.clear()
        after = cpu_of(pids) - cpu_of([])
        mine = cpu_of([])
        _, cpu = rounds(policy, n_rounds, pids, 3)
        mine = cpu_of([]) - mine
        there, back = np.mean(sent, axis=0)
        shard = (cpu - mine) / 2 / n_rounds
        n = table.shape[0] // 2
        return Measured(
            n, policy.belief.m, shard, mine / n_rounds, (after - before) / 2, there, back, whole
        )


def terms(each: Measured) -> list[float]:
    """What a round of a shard is made of: always the same; a replica of the belief, m²; a look at
    the bounds of its rows, n; a part of a pass over them, nm."""
    return [1.0, each.m**2, each.n, each.n * each.m]


def model(d: int, n_rounds: int) -> None:
    """The cost model, fitted on some sizes and checked on others."""
    found = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for n, m, fits in SIZES:
            path = written(Path(folder), 2 * n, d)
            found.append((measured(path, m, n_rounds), fits))
            path.unlink()
            one = found[-1][0]
            print(
                f"n = {one.n:>9,} rows a shard, m = {one.m:>3}: shard {1e3 * one.shard:7.2f} ms CPU a "
                f"round, driver {1e3 * one.driver:5.2f}; first pass {one.first:6.2f} s; bytes a round "
                f"{one.sent:.0f} out, {one.received:.0f} back, whole belief {one.whole:,.0f}"
                f"{'' if fits else '   (not fitted)'}",
                flush=True,
            )
    used = [each for each, fits in found if fits]
    # Relative errors: a small size counts as much as a large one.
    rows = np.array([np.array(terms(each)) / each.shard for each in used])
    weights, _ = nnls(rows, np.ones(len(used)))
    first = np.array(
        [[each.n * each.m / each.first, each.n * each.m**2 / each.first] for each in used]
    )
    passes, _ = nnls(first, np.ones(len(used)))
    named = zip(("s", "s m²", "s n", "s nm"), weights, strict=True)
    print("a round of a shard:", ", ".join(f"{w:.3g} {name}" for name, w in named))
    print(f"the first pass: {passes[0]:.3g} s nm, {passes[1]:.3g} s nm²")
    for each, fits in found:
        guess = weights @ terms(each)
        begun = passes @ [each.n * each.m, each.n * each.m**2]
        print(
            f"n = {each.n:>9,}, m = {each.m:>3}: round {1e3 * guess:7.2f} ms by the model, "
            f"{1e3 * each.shard:7.2f} measured ({guess / each.shard:.2f}); first {begun:6.2f} s and "
            f"{each.first:6.2f} ({begun / each.first:.2f}){'' if fits else '   (not fitted)'}"
        )
    for n, m in ((10**7, 200), (10**7, 1000)):
        there = Measured(n, m, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        begun = passes @ [n * m, n * m**2]
        print(
            f"n = {n:,}, m = {m}: round {weights @ terms(there):.2f} s, first pass {begun:.0f} s, one core"
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
    else:
        model(given.columns, given.rounds or 60)


if __name__ == "__main__":
    main()
