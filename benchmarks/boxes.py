"""Boxes: simple regret and CPU time of manyarms, BoTorch (LogEI or UCB, refitted every step) and Optuna (TPE, GP).

    python benchmarks/boxes.py --seed 0 1 2                          # runs what is not there yet, shows what is
    python benchmarks/boxes.py --seed 0 1 2 --publish docs/benchmarks    # and writes the page

Test functions on their usual boxes, minimised, with Gaussian noise of standard deviation 0.01 on every value. The simple regret
is of the point that a tool recommends at the end, without noise. All tools on one thread; seconds are those of its CPU, without
the function's own, so that other jobs on the machine do not count.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from archive import results_of
from bandits import HARTMANN_A, HARTMANN_P
from peers import keep

NOISE = 0.01
HARTMANN_3_A = np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]])
HARTMANN_3_P = 1e-4 * np.array(
    [[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]
)
"""Of Hartmann's function in three dimensions, as Surjanovic and Bingham's library of test functions
has them."""
STARTS = 10
"""Sobol points before BoTorch's first model, counted in the budget; TPE has as many random ones by default."""


def branin(x):
    a, b = (
        x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6,
        10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]),
    )
    return a**2 + b + 10


def hartmann(x):
    return -np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(
        -(HARTMANN_A * (x - HARTMANN_P) ** 2).sum(axis=1)
    )


def hartmann_3(x):
    return -np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(
        -(HARTMANN_3_A * (x - HARTMANN_3_P) ** 2).sum(axis=1)
    )


def beale(x):
    return (
        (1.5 - x[0] + x[0] * x[1]) ** 2
        + (2.25 - x[0] + x[0] * x[1] ** 2) ** 2
        + (2.625 - x[0] + x[0] * x[1] ** 3) ** 2
    )


def levy(x):
    w = 1 + (x - 1) / 4
    middle = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)
    return (
        np.sin(np.pi * w[0]) ** 2
        + middle.sum()
        + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    )


def ackley(x):
    return (
        -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2)))
        - np.exp(np.mean(np.cos(2 * np.pi * x)))
        + 20
        + np.e
    )


@dataclass(frozen=True)
class Problem:
    """A function to minimise over a box, its least value and the evaluations allowed."""

    function: object
    low: np.ndarray
    high: np.ndarray
    least: float
    budget: int


def _cube(function, d, low, high, least, budget):
    return Problem(function, np.full(d, low), np.full(d, high), least, budget)


PROBLEMS = {
    "branin": Problem(
        branin, np.array([-5.0, 0.0]), np.array([10.0, 15.0]), 0.39788735772973816, 200
    ),
    "beale": _cube(beale, 2, -4.5, 4.5, 0.0, 200),
    "hartmann-3": _cube(hartmann_3, 3, 0.0, 1.0, -3.8627797873326624, 200),
    "ackley-5": _cube(ackley, 5, -32.768, 32.768, 0.0, 200),
    "hartmann-6": _cube(hartmann, 6, 0.0, 1.0, -3.3223680114155147, 200),
    "levy-8": _cube(levy, 8, -10.0, 10.0, 0.0, 300),
    "ackley-10": _cube(ackley, 10, -32.768, 32.768, 0.0, 300),
}


class Clock:
    """CPU seconds of this process spent inside `with clock`."""

    seconds = 0.0

    def __enter__(self):
        self._start = time.process_time()

    def __exit__(self, *_):
        self.seconds += time.process_time() - self._start


class Noisy:
    """The function with noise; what was evaluated."""

    def __init__(self, problem, seed):
        self.problem, self.rng, self.points, self.values = (
            problem,
            np.random.default_rng([seed, 2]),
            [],
            [],
        )

    def __call__(self, x):
        self.points.append(np.asarray(x, dtype=float))
        self.values.append(
            float(self.problem.function(self.points[-1])) + NOISE * self.rng.standard_normal()
        )
        return self.values[-1]


def random_search(problem, f, seed, clock):
    rng = np.random.default_rng([seed, 1])
    for x in rng.uniform(problem.low, problem.high, (problem.budget, len(problem.low))):
        f(x)
    return f.points[int(np.argmin(f.values))]


def optuna_of(problem, f, seed, clock, sampler="TPESampler"):
    """A sampler of Optuna at its defaults; the best trial is recommended."""
    import optuna  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with clock:
        study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(seed=seed))
    for _ in range(problem.budget):
        with clock:
            trial = study.ask()
            x = [
                trial.suggest_float(f"x{i}", *ends)
                for i, ends in enumerate(zip(problem.low, problem.high, strict=True))
            ]
        value = f(x)
        with clock:
            study.tell(trial, value)
    return f.points[study.best_trial.number]


def botorch(problem, f, seed, clock, beta=4.0):
    """SingleTaskGP with its default priors on the unit cube, refitted every step; UpperConfidenceBound by optimize_acqf, or
    LogExpectedImprovement over the largest posterior mean of the points evaluated where there is no beta.

    Ten restarts from 512 raw samples. The evaluated point of largest posterior mean is recommended, after a last fit.
    """
    import warnings  # noqa: PLC0415

    import torch  # noqa: PLC0415
    from botorch.acquisition import (  # noqa: PLC0415
        LogExpectedImprovement,
        UpperConfidenceBound,
    )
    from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
    from botorch.models import SingleTaskGP  # noqa: PLC0415
    from botorch.optim import optimize_acqf  # noqa: PLC0415
    from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: PLC0415
    from torch.quasirandom import SobolEngine  # noqa: PLC0415

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    d, span = len(problem.low), problem.high - problem.low
    unit = [x.double() for x in SobolEngine(d, scramble=True, seed=seed).draw(STARTS)]
    values = [-f(problem.low + span * x.numpy()) for x in unit]
    cube = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.double)

    def fitted():
        model = SingleTaskGP(torch.stack(unit), torch.tensor(values, dtype=torch.double)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    while len(values) < problem.budget:
        with clock:
            model = fitted()
            if beta is None:
                best = model.posterior(torch.stack(unit)).mean.max()
                acquisition = LogExpectedImprovement(model, best_f=best)
            else:
                acquisition = UpperConfidenceBound(model, beta=beta)
            best, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=10, raw_samples=512)
            unit.append(best[0].detach())
        values.append(-f(problem.low + span * unit[-1].numpy()))
    with clock:
        return f.points[int(fitted().posterior(torch.stack(unit)).mean.argmax())]


def manyarms_box(problem, f, seed, clock):
    """`ma.Optimizer` over a box, as it comes."""
    import manyarms as ma  # noqa: PLC0415

    with clock:
        optimizer = ma.Optimizer(
            ma.Box(np.column_stack([problem.low, problem.high])), direction="minimize", seed=seed
        )
    for _ in range(problem.budget):
        with clock:
            (x,) = optimizer.ask()
        value = f(x)
        with clock:
            optimizer.tell([x], value)
    with clock:
        return np.array(optimizer.best().recommended.id)


PEERS: dict[str, tuple[Callable[..., np.ndarray], str]] = {
    "manyarms": (manyarms_box, "manyarms"),
    "botorch": (botorch, "botorch"),
    "botorch-0.2": (partial(botorch, beta=0.2), "botorch"),
    "botorch-logei": (partial(botorch, beta=None), "botorch"),
    "tpe": (optuna_of, "optuna"),
    "optuna-gp": (partial(optuna_of, sampler="GPSampler"), "optuna"),
    "random": (random_search, "numpy"),
}
"""The function of each peer, and the package it runs."""


def record(name, peer, seed, budget):
    """What is kept of one run."""
    problem = PROBLEMS[name]
    if budget:
        problem = Problem(problem.function, problem.low, problem.high, problem.least, budget)
    (run, package), clock, f = PEERS[peer], Clock(), Noisy(problem, seed)
    recommended = run(problem, f, seed, clock)
    regrets = [float(problem.function(x)) - problem.least for x in f.points]
    return {
        "function": name,
        "peer": peer,
        "budget": problem.budget,
        "seed": seed,
        "seconds": clock.seconds,
        "regret": float(problem.function(np.asarray(recommended))) - problem.least,
        "best evaluated": min(regrets),
        "mean regret": float(np.mean(regrets)),
        "versions": {
            "python": platform.python_version(),
            package: version(package) if package != "manyarms" else _ours(),
        },
    }


def _ours():
    import manyarms as ma  # noqa: PLC0415

    return ma.__version__


def published(kept):
    """The page: medians over the seeds that each tool has run."""
    lines = [
        "# Boxes",
        "",
        "Simple regret of the recommended point (without noise), and CPU seconds on one thread, medians over the seeds that",
        f"were run; noise sd {NOISE}. BoTorch: SingleTaskGP refitted every step, 10 restarts from 512 raw samples; botorch-logei",
        "is LogExpectedImprovement, botorch UpperConfidenceBound with beta = 4. Rows of 300 evaluations are of version 0.1. Settings",
        "of manyarms were chosen on these functions: on seeds 0 to 7 with 300 evaluations, and on 0 to 29 of Hartmann-6 with 200. Runs",
        "whose seconds are null in benchmarks/results/boxes.json were made on another machine, beside other jobs or at another time, and count for regrets only. `python benchmarks/boxes.py --seed 0 1 2 3 4 5 6 7 8 9",
        "--publish docs/benchmarks` runs what is not there yet, and makes this page.",
        "",
        "Hartmann's function in six dimensions has a second basin whose regret is .119. A run that converges there leaves it",
        "only when a search from a new start, which begins after 30 results without a gain, reaches the best basin in time.",
        "",
        "| function | evaluations | tool | seeds | median regret | regrets | seconds | seconds / manyarms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, budget in sorted({(run["function"], run["budget"]) for run in kept}, key=_order):
        every = [run for run in kept if (run["function"], run["budget"]) == (name, budget)]
        ours = _seconds(run for run in every if run["peer"] == "manyarms")
        for peer in PEERS:
            runs = [run for run in every if run["peer"] == peer]
            if not runs:
                continue
            regrets, seconds = sorted(run["regret"] for run in runs), _seconds(runs)
            ratio = _shown(seconds / ours) if peer != "manyarms" else ""
            shown = ", ".join(f"{regret:.2g}" for regret in regrets)
            cells = [name, budget, peer, len(runs), f"{np.median(regrets):.2g}", shown]
            lines.append("| " + " | ".join(map(str, [*cells, _shown(seconds), ratio])) + " |")
    return "\n".join(lines) + "\n"


def _order(of):
    name, budget = of
    return budget, list(PROBLEMS).index(name)


def _shown(number):
    return "–" if np.isnan(number) else f"{number:.1f}"


def _seconds(runs):
    """The median of those that were measured."""
    return float(
        np.median([run["seconds"] for run in runs if run["seconds"] is not None] or [np.nan])
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--function", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument(
        "--peer", nargs="+", choices=PEERS, default=["manyarms", "tpe", "random", "botorch"]
    )
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", type=int, help="evaluations, where not those of the function")
    parser.add_argument("--output", type=Path, default=Path("bench-output/boxes"))
    parser.add_argument(
        "--publish",
        type=Path,
        help="directory of boxes.md, made of all runs in the output",
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for seed in options.seed:
        for name in options.function:
            for peer in options.peer:
                path = (
                    options.output
                    / f"{name}-{peer}-{options.budget or PROBLEMS[name].budget}-{seed}.json"
                )
                if not path.exists():
                    keep(path, json.dumps(record(name, peer, seed, options.budget)))
                kept = json.loads(path.read_text())
                seconds = _shown(_seconds([kept]))
                print(
                    f"{name:<12}{peer:<14}{seed:>3}{seconds:>10}{kept['regret']:>12.5f}", flush=True
                )
    if options.publish:
        everything = [
            json.loads(path.read_text()) for path in sorted(options.output.glob("*.json"))
        ]
        options.publish.mkdir(parents=True, exist_ok=True)
        (results_of(options.publish) / "boxes.json").write_text(json.dumps(everything, indent=1))
        (options.publish / "boxes.md").write_text(published(everything))


if __name__ == "__main__":
    main()
