"""Boxes: simple regret and CPU time of manyarms, BoTorch (exact GP-UCB, refitted every step) and Optuna (TPE).

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
from bandits import HARTMANN_A, HARTMANN_P
from peers import keep

NOISE = 0.01
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
        branin, np.array([-5.0, 0.0]), np.array([10.0, 15.0]), 0.39788735772973816, 300
    ),
    "hartmann-6": _cube(hartmann, 6, 0.0, 1.0, -3.3223680114155147, 300),
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


def optuna_tpe(problem, f, seed, clock):
    """Optuna's TPESampler at its defaults; the best trial is recommended."""
    import optuna  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with clock:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
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


def botorch_ucb(problem, f, seed, clock, beta=4.0):
    """SingleTaskGP with its default priors on the unit cube, refitted every step; UpperConfidenceBound by optimize_acqf.

    Ten restarts from 512 raw samples. The evaluated point of largest posterior mean is recommended, after a last fit.
    """
    import warnings  # noqa: PLC0415

    import torch  # noqa: PLC0415
    from botorch.acquisition import UpperConfidenceBound  # noqa: PLC0415
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
            acquisition = UpperConfidenceBound(fitted(), beta=beta)
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
    "botorch": (botorch_ucb, "botorch"),
    "botorch-0.2": (partial(botorch_ucb, beta=0.2), "botorch"),
    "tpe": (optuna_tpe, "optuna"),
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
    seeds = " ".join(map(str, sorted({run["seed"] for run in kept})))
    lines = [
        "# Boxes",
        "",
        "Simple regret of the recommended point (without noise), and CPU seconds on one thread, medians over the seeds that",
        f"were run; noise sd {NOISE}. BoTorch: SingleTaskGP refitted every step, UpperConfidenceBound, beta = 4, 10 restarts",
        "from 512 raw samples. Settings of manyarms were chosen on seeds 0 to 7. Runs whose seconds are null in boxes.json",
        "were made on another machine, beside other jobs or at another time, and count for regrets only. The rest is run by",
        f"`python benchmarks/boxes.py --seed {seeds} --publish docs/benchmarks`, which makes this page.",
        "",
        "| function | evaluations | tool | seeds | median regret | regrets | seconds | seconds / manyarms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in PROBLEMS:
        ours = _seconds(run for run in kept if (run["function"], run["peer"]) == (name, "manyarms"))
        for peer in PEERS:
            runs = [run for run in kept if (run["function"], run["peer"]) == (name, peer)]
            if not runs:
                continue
            regrets, seconds = sorted(run["regret"] for run in runs), _seconds(runs)
            ratio = f"{seconds / ours:.1f}" if peer != "manyarms" else ""
            shown = ", ".join(f"{regret:.2g}" for regret in regrets)
            cells = [
                name,
                runs[0]["budget"],
                peer,
                len(runs),
                f"{np.median(regrets):.2g}",
                shown,
                f"{seconds:.1f}",
                ratio,
            ]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


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
        help="directory of boxes.md and boxes.json, made of all runs in the output",
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
                print(
                    f"{name:<12}{peer:<14}{seed:>3}{kept['seconds']:>10.1f}{kept['regret']:>12.5f}",
                    flush=True,
                )
    if options.publish:
        everything = [
            json.loads(path.read_text()) for path in sorted(options.output.glob("*.json"))
        ]
        options.publish.mkdir(parents=True, exist_ok=True)
        (options.publish / "boxes.json").write_text(json.dumps(everything, indent=1))
        (options.publish / "boxes.md").write_text(published(everything))


if __name__ == "__main__":
    main()
