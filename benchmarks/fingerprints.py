"""Molecules as fingerprints of 2,048 bits: what 10⁵ of them cost, and how fast the most soluble of 9,982 is found.

    python benchmarks/fingerprints.py [--molecules 100000] [--steps 300] [--seeds 3]

The 10⁵ are made up: families of similar fingerprints, about 50 bits each, with a reward that depends on the bits. The 9,982 are
AqSolDB's (tables.py), measured with noise of standard deviation 0.5; regrets are means over all evaluations.
"""

import argparse
import time
from typing import Any

import numpy as np
from tables import load

import manyarms as ma
from manyarms.kernels import Tanimoto, pack

N_BITS = 2048


def made_up(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Fingerprints (n, 2048) in families of about a hundred, and rewards (n,)."""
    parents = rng.random((max(1, n // 100), N_BITS)) < 0.025
    bits = parents[rng.integers(len(parents), size=n)] ^ (rng.random((n, N_BITS)) < 0.003)
    rewards = bits @ rng.standard_normal(N_BITS)
    return bits.astype(np.uint8), (rewards - rewards.mean()) / rewards.std()


def cost(n: int, steps: int) -> dict[str, float]:
    """Seconds to pack, for a column of the kernel, for a block of 100 columns, and for a search."""
    rng = np.random.default_rng(0)
    bits, rewards = made_up(n, rng)
    seconds, clock = {}, time.perf_counter()

    def lap(what: str) -> None:
        nonlocal clock
        seconds[what] = time.perf_counter() - clock
        clock = time.perf_counter()

    X = pack(bits)
    lap("packing")
    kernel = Tanimoto(packed=True)
    kernel(X, X[:1])
    lap("one column")
    kernel(X, X[:100])
    lap("100 columns")
    policy = ma.BKB(X, kernel, regularization=0.1, seed=0)
    for _ in range(steps):
        arms = policy.choose()
        policy.observe(arms, rewards[arms] + 0.3 * rng.standard_normal(len(arms)))
    lap(f"{steps} steps of BKB")
    return seconds


def ratio(steps: int, seed: int) -> float:
    """How many times better than random the mean regret on AqSolDB is."""
    table, rng = load("aqsoldb"), np.random.default_rng(seed)
    optimizer = ma.Optimizer(ma.Pool.from_frame(table.frame, columns=table.columns), seed=seed)
    for _ in range(steps):
        name: Any = optimizer.ask()[0]
        optimizer.tell(name, table.draw(name, rng))
    regrets = table.regret(np.arange(len(table)))
    return float(regrets.mean() / regrets[[trial.id for trial in optimizer.history]].mean())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--molecules", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    for what, seconds in cost(options.molecules, options.steps).items():
        print(
            f"{options.molecules:,} molecules × {N_BITS:,} bits, {what}: {seconds:.2f} s",
            flush=True,
        )
    ratios = [ratio(options.steps, seed) for seed in range(options.seeds)]
    shown = ", ".join(f"{each:.2f}" for each in ratios)
    print(
        f"AqSolDB, T = {options.steps}: mean regret {np.median(ratios):.2f} times better than random's (seeds: {shown})"
    )


if __name__ == "__main__":
    main()
