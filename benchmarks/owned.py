"""Thousands of candidates tried, each with a part of its own: predictions beside the exact posterior.

    python benchmarks/owned.py [--rows 3000 20000] [--ways "BKB, kernel given" …]

A line for each; docs/experiments/owned.md has them. The exact posterior of 20,000 candidates takes 4 GB and minutes.
"""

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, lapack
from summary import markdown

import manyarms as ma

NOISE = 0.1  # ξ
OWN = 0.1  # v
LENGTHSCALE, D = 0.5, 3
FEATURES = 4000
AGAIN = 0.1
"""Part of the candidates that are tried again, five times each."""
LOOKED_AT = 1000
"""Candidates whose exact posterior is computed: those tried again first, then others."""
BLOCK = 1000


class Told(NamedTuple):
    """Results, and what is true."""

    rows: np.ndarray  # (n, d)
    values: np.ndarray  # (n,) of f
    numbers: np.ndarray  # of the rows that were tried, in this order
    results: np.ndarray


class Known(NamedTuple):
    """What some way of learning says."""

    rows: np.ndarray  # as the model sees them
    kernel: Any
    regularization: float
    rewards: np.ndarray  # as the model sees the results
    mean: np.ndarray  # of the rewards at all rows
    std: np.ndarray
    evidence: Any
    inducing: int
    truth: np.ndarray  # f in units of the rewards


def problem(n: int, seed: int = 0) -> Told:
    """A draw of the process by random features, and results."""
    rng = np.random.default_rng([seed, n])
    rows = rng.random((n, D))
    frequencies = rng.standard_normal((D, FEATURES)) / LENGTHSCALE
    phases = 2 * np.pi * rng.random(FEATURES)
    weights = np.sqrt(2 / FEATURES) * rng.standard_normal(FEATURES)
    values = np.cos(rows @ frequencies + phases) @ weights + np.sqrt(OWN) * rng.standard_normal(n)
    again = rng.choice(n, size=int(AGAIN * n), replace=False)
    numbers = np.concatenate([np.arange(n), np.repeat(again, 5)])
    return Told(rows, values, numbers, values[numbers] + NOISE * rng.standard_normal(len(numbers)))


def by_policy(told: Told) -> Known:
    """BKB, the kernel given."""
    kernel = ma.kernels.Own(ma.kernels.RBF(LENGTHSCALE), OWN)
    policy = ma.BKB(told.rows, kernel, regularization=NOISE**2)
    policy.observe(told.numbers, told.results)
    mean, std = policy.predict(arms=np.arange(len(told.rows)))
    return Known(
        told.rows,
        kernel,
        NOISE**2,
        told.results,
        mean,
        std,
        policy.evidence,
        len(policy.inducing),
        told.values,
    )


def by_optimizer(told: Told, **options: Any) -> Known:
    """An optimizer, told everything at once."""
    optimizer = ma.Optimizer(ma.Pool.from_array(told.rows), seed=0, **options)
    optimizer.tell(told.numbers.tolist(), told.results)
    policy = optimizer.policy
    warp = optimizer._state.model.warp
    mean, std = policy.predict(arms=np.arange(len(told.rows)))
    return Known(
        policy.arms,
        policy.kernel,
        policy.regularization,
        warp.reward(told.results),
        mean,
        std,
        policy.evidence,
        len(policy.inducing),
        warp.reward(told.values),
    )


WAYS: dict[str, Callable[[Told], Known]] = {
    "BKB, kernel given": by_policy,
    "Optimizer, kernel given": lambda told: by_optimizer(
        told, kernel=ma.kernels.Own(ma.kernels.RBF(LENGTHSCALE), OWN), noise=NOISE
    ),
    "Optimizer, learned": by_optimizer,
}


def exact(known: Known, told: Told, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation at some rows, by the kernel of all rows: n² numbers, in place."""
    n = len(told.rows)
    counts = np.bincount(told.numbers, minlength=n)
    means = np.bincount(told.numbers, known.rewards, minlength=n) / counts
    S = np.empty((n, n), order="F")
    for start in range(0, n, BLOCK):
        block = slice(start, start + BLOCK)
        S[:, block] = known.kernel(known.rows, known.rows[block])
    S.flat[:: n + 1] += known.regularization / counts
    right = np.asfortranarray(np.column_stack([means, S[:, some]]))
    right[some, 1 + np.arange(len(some))] -= known.regularization / counts[some]
    diag = known.kernel.diag(known.rows[some])
    C, info = lapack.dpotrf(S, lower=1, clean=0, overwrite_a=1)
    if info:
        raise ValueError("the kernel of all rows is not positive definite")
    solved = blas.dtrsm(1.0, C, right, lower=1, overwrite_b=1)
    mean = solved[:, 1:].T @ solved[:, 0]
    return mean, np.sqrt(diag - np.square(solved[:, 1:]).sum(axis=0))


def line(way: str, n: int) -> dict[str, Any]:
    """A line of the table."""
    told = problem(n)
    start = process_time()
    known = WAYS[way](told)
    seconds = process_time() - start
    tried_again = np.unique(told.numbers[n:])
    others = np.setdiff1d(np.arange(n), tried_again)
    looked = min(n, LOOKED_AT)
    some = np.concatenate([tried_again, others])[:: max(1, n // looked)][:looked]
    mean, std = exact(known, told, some)
    ratio = known.std[some] / std
    theta = ma.diagnostics._theta(known.evidence.eta)
    inside = np.abs(known.truth - known.mean) <= 1.96 * known.std
    return {
        "model": way,
        "candidates": n,
        "|W|": known.inducing,
        "√(1 + θ)": round(float(np.sqrt(1 + theta)), 4),
        "smallest σ̃/σ": round(float(ratio.min()), 4),
        "largest": round(float(ratio.max()), 4),
        "means apart, sd": round(float((np.abs(known.mean[some] - mean) / std).max()), 4),
        "inside, %": round(100 * float(inside.mean()), 1),
        "of those with one result, %": round(100 * float(inside[others].mean()), 1),
        "error": round(float(np.sqrt(np.square(known.truth - known.mean).mean())), 4),
        "CPU seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[3000, 20_000])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    header = 0
    for n in arguments.rows:
        for way in arguments.ways:
            table = markdown([line(way, n)]).splitlines()
            print("\n".join(table[header:]), flush=True)
            header = 2


if __name__ == "__main__":
    main()
