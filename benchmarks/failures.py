"""Trials that fail, over boxes: the best value found where some fail at random, and where a region fails.

    python benchmarks/failures.py --seed 0 1 2 3 4 5 6 7 8 9     # runs what is not there yet, and prints both tables

The functions of boxes.py with 200 evaluations, and a bowl of three columns with 80, minimised without noise. What fails at random is
compared with the same seed without failures, after as many evaluations as gave a value. Regret is that of the best value told.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from boxes import PROBLEMS, Problem
from peers import keep

import manyarms as ma

RATES = (0.05, 0.15, 0.3)
WITHIN, OF_RANGE = 3.0, 1e-6
"""A median regret is to be at most so many times that without failures, or so small a part of the range of the function."""
SAMPLE = 100_000
"""Points drawn for the largest value of a function."""
BEST_AT = np.array([0.3, 0.6, 0.45])


def bowl(x):
    return float(((x - BEST_AT) ** 2).sum())


FUNCTIONS = {
    "bowl": Problem(bowl, np.zeros(3), np.ones(3), 0.0, 80),
    **{name: problem for name, problem in PROBLEMS.items() if problem.budget == 200},
}
REGIONS = {
    "x0 < 0.2, away from the best": (lambda x: x[0] < 0.2, 0.0),
    "x0 < 0.3, up to the best": (lambda x: x[0] < 0.3, 0.0),
    "x0 < 0.5, the best within": (lambda x: x[0] < 0.5, 0.04),
    "a ball around the best": (lambda x: bowl(x) < 0.04, 0.04),
}
"""Parts of the bowl that always fail, and the least value outside."""


def run(problem, seed, fails):
    """The value of every trial, in the order told: None where it failed, as `fails` says of its number and point."""
    bounds = np.column_stack([problem.low, problem.high])
    optimizer = ma.Optimizer(ma.Box(bounds), direction="minimize", seed=seed)
    values = []
    for number in range(problem.budget):
        (point,) = optimizer.ask()
        x = np.array(point)
        values.append(None if fails(number, x) else float(problem.function(x)))
        optimizer.tell([point], [ma.FAILED if values[-1] is None else values[-1]])
    return values


def kept(folder, name, seed, make):
    """The values of a run, made where it is not there yet."""
    path = folder / f"{name}-{seed}.json"
    if not path.exists():
        keep(path, json.dumps(make()))
    return json.loads(path.read_text())


def at_random(rate, seed, budget):
    """A trial fails by its number, whatever its point."""
    failing = np.random.default_rng([seed, 7]).random(budget) < rate
    return lambda number, x: failing[number]


def best(values, least):
    """The regret of the best of them."""
    return min(value for value in values if value is not None) - least


def compared(name, seeds, folder):
    """Lines of the first table: medians over the seeds."""
    problem = FUNCTIONS[name]
    drawn = np.random.default_rng(0).uniform(problem.low, problem.high, (SAMPLE, len(problem.low)))
    small = OF_RANGE * (max(map(problem.function, drawn)) - problem.least)
    for rate in RATES:
        with_failures, without = [], []
        for seed in seeds:
            fails = at_random(rate, seed, problem.budget)
            values = kept(
                folder, f"{name}-{rate}", seed, lambda f=fails, s=seed: run(problem, s, f)
            )
            clean = kept(
                folder, name, seed, lambda s=seed: run(problem, s, lambda number, x: False)
            )
            with_failures.append(best(values, problem.least))
            n = sum(value is not None for value in values)
            without.append(best(clean[:n], problem.least))
        regret, base = np.median(with_failures), np.median(without)
        verdict = "met" if regret <= max(WITHIN * base, small) else "MISSED"
        figures = (f"{number:.2g}" for number in (base, regret, regret / base, small))
        yield [name, f"{rate:.0%}", *figures, verdict]


def avoided(seeds, folder):
    """Lines of the second table: medians over the seeds, of the bowl."""
    problem = FUNCTIONS["bowl"]
    for number, (name, (fails, least)) in enumerate(REGIONS.items()):
        runs = [
            kept(
                folder,
                f"region-{number}",
                seed,
                lambda s=seed, f=fails: run(problem, s, lambda _, x: f(x)),
            )
            for seed in seeds
        ]
        failed = np.median([values.count(None) for values in runs])
        regret = np.median([best(values, least) for values in runs])
        yield [name, f"{failed:g}", f"{regret:.2g}"]


def show(heading, lines):
    print("| " + " | ".join(heading) + " |\n" + "|---" * len(heading) + "|", flush=True)
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--function", nargs="*", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("bench-output/failures"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    show(
        ["function", "fail", "without", "median regret", "ratio", "1e-6 of the range", "bar"],
        (
            line
            for name in options.function
            for line in compared(name, options.seed, options.output)
        ),
    )
    show(
        ["bowl: what fails", "failures of 80", "median regret"],
        avoided(options.seed, options.output),
    )


if __name__ == "__main__":
    main()
