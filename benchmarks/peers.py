"""What manyarms and other tools find in the tables of tables.py: random search, Optuna's TPE, BoTorch's exact GP-UCB.

    python benchmarks/peers.py --table car phoneme --peer random tpe --budget 200 --seed 0 1 2 --output bench-output/peers

One JSON for each table, peer, budget and seed; those already there are not run again, and all are shown in a table.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tables import SOURCES, Table, load

STARTS = 10
"""Random evaluations before BoTorch's first model, counted in the budget; TPE has as many by default."""
CHUNK = 512
"""Candidates that BoTorch scores at once."""


@dataclass(frozen=True)
class Trace:
    """One run: what was evaluated, in order, and what the tool returns as the best."""

    chosen: np.ndarray  # (T,)
    rewards: np.ndarray  # (T,)
    seconds: float  # of the tool: lookups are not counted
    recommended: int


class Clock:
    """Seconds spent inside `with clock`: those on the wall, unless `now` tells others."""

    def __init__(self, now=time.perf_counter):
        self.seconds, self._now = 0.0, now

    def __enter__(self):
        self._start = self._now()

    def __exit__(self, *_):
        self.seconds += self._now() - self._start


def _generators(seed):
    """One for what the peer draws, one for the noise."""
    return np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])


def random_search(table: Table, budget: int, seed: int) -> Trace:
    """Candidates uniform with replacement; the best observed is recommended."""
    rng, noise = _generators(seed)
    clock = Clock()
    with clock:
        chosen = rng.integers(len(table), size=budget)
    rewards = np.array([table.draw(i, noise) for i in chosen])
    return Trace(chosen, rewards, clock.seconds, int(chosen[rewards.argmax()]))


def optuna_tpe(table: Table, budget: int, seed: int, multivariate: bool = False) -> Trace | None:
    """Optuna's TPESampler, all else at its defaults; the best trial is recommended.

    Strings are categorical; a column of numbers is the integer index of its level. None for molecules, which are no product of
    columns. Since Optuna 5 multivariate=True is its default for one objective; before, False was.
    """
    if "bits" in table.columns.values():
        return None
    import optuna  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    levels, codes = zip(
        *(
            np.unique(column.to_numpy(), return_inverse=True)
            for column in table.frame.iter_columns()
        ),
        strict=True,
    )
    shape = tuple(map(len, levels))
    row_of = np.empty(np.prod(shape), dtype=int)
    row_of[np.ravel_multi_index(codes, shape)] = np.arange(len(table))

    def suggest(trial, column, n):
        if column.dtype == pl.String:
            return trial.suggest_categorical(column.name, range(n))
        return trial.suggest_int(column.name, 0, n - 1)

    _, noise = _generators(seed)
    clock = Clock()
    chosen, rewards = [], []
    with clock:
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=multivariate)
        study = optuna.create_study(direction="maximize", sampler=sampler)
    for _ in range(budget):
        with clock:
            trial = study.ask()
            choice = [
                suggest(trial, column, n)
                for column, n in zip(table.frame.iter_columns(), shape, strict=True)
            ]
        chosen.append(int(row_of[np.ravel_multi_index(choice, shape)]))
        rewards.append(table.draw(chosen[-1], noise))
        with clock:
            study.tell(trial, rewards[-1])
    return Trace(
        np.array(chosen), np.array(rewards), clock.seconds, chosen[study.best_trial.number]
    )


def encode(table: Table) -> np.ndarray:
    """Bits as they are, strings one-hot, numbers scaled to [0, 1] (on a log scale where the table says so), (A, d)."""
    blocks = []
    for column in table.frame.iter_columns():
        kind = table.columns.get(column.name)
        if kind == "bits":
            blocks.append(column.to_numpy())
        elif column.dtype == pl.String:
            blocks.append(column.to_dummies().to_numpy())
        else:
            x = np.log(column.to_numpy()) if kind == "log" else column.to_numpy()
            blocks.append((x[:, None] - x.min()) / np.ptp(x))
    return np.hstack(blocks).astype(float)


def botorch_ucb(table: Table, budget: int, seed: int) -> Trace:
    """SingleTaskGP with its default priors, refitted from scratch at every step; the largest mean + 2 sd of the whole table.

    That is UpperConfidenceBound with beta=4, but of a block of candidates at a time: its own batches, one candidate each, give
    the same values (to 1e-13). With blocks of 512 and 20 to 200 observations they took half to twice as long on configurations
    and 4 to 50 times as long on molecules. These have a Tanimoto kernel with a learned scale. The evaluated candidate of
    largest posterior mean is recommended, after a last fit. One thread: while other jobs held both cores, two were many times
    slower.
    """
    import torch  # noqa: PLC0415
    from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
    from botorch.models import SingleTaskGP  # noqa: PLC0415
    from gpytorch.kernels import ScaleKernel  # noqa: PLC0415
    from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: PLC0415

    torch.set_num_threads(1)
    molecules = "bits" in table.columns.values()
    rng, noise = _generators(seed)
    X = torch.from_numpy(encode(table))
    chosen = [int(i) for i in rng.integers(len(table), size=min(STARTS, budget))]
    rewards = [table.draw(i, noise) for i in chosen]

    def fitted():
        kernel = ScaleKernel(_tanimoto()) if molecules else None
        model = SingleTaskGP(
            X[chosen], torch.tensor(rewards, dtype=X.dtype)[:, None], covar_module=kernel
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def ucb(model, block):
        posterior = model.posterior(block)
        return (posterior.mean + 2 * posterior.variance.sqrt())[:, 0]

    clock = Clock()
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # a fit that fails is tried again from random values
        while len(chosen) < budget:
            with clock:
                model = fitted()
                with torch.no_grad():
                    chosen.append(
                        int(torch.cat([ucb(model, block) for block in X.split(CHUNK)]).argmax())
                    )
            rewards.append(table.draw(chosen[-1], noise))
        with clock:
            model = fitted()
            with torch.no_grad():
                recommended = chosen[int(model.posterior(X[chosen]).mean.argmax())]
    return Trace(np.array(chosen), np.array(rewards), clock.seconds, recommended)


def _tanimoto():
    import torch  # noqa: PLC0415
    from gpytorch.kernels import Kernel  # noqa: PLC0415

    class Tanimoto(Kernel):
        """|x ∧ y|/|x ∨ y|; 1 of a fingerprint and itself, even one without bits."""

        def forward(self, x, y, diag=False, **_):
            common = (x * y).sum(-1) if diag else x @ y.transpose(-1, -2)
            x, y = x.sum(-1), y.sum(-1)
            either = (x + y if diag else x[..., :, None] + y[..., None, :]) - common
            return torch.where(either > 0, common / either.clamp(min=1), 1.0)

    return Tanimoto()


def manyarms_optimizer(table: Table, budget: int, seed: int, **options) -> Trace:
    """`ma.Optimizer` as it comes, on the table as a user has it."""
    import manyarms as ma  # noqa: PLC0415

    pool, noise = (
        ma.Pool.from_frame(table.frame, columns=table.columns),
        np.random.default_rng([seed, 1]),
    )
    chosen, rewards, clock = [], [], Clock()
    with clock:
        optimizer = ma.Optimizer(pool, seed=seed, **options)
    for _ in range(budget):
        with clock:
            i: Any = optimizer.ask()[0]
        chosen.append(i)
        rewards.append(table.draw(i, noise))
        with clock:
            optimizer.tell(i, rewards[-1])
    best: Any = optimizer.best().recommended.id
    return Trace(np.array(chosen), np.array(rewards), clock.seconds, best)


def _with_radius(name: str, *arguments: float):
    def run(table: Table, budget: int, seed: int) -> Trace:
        import manyarms as ma  # noqa: PLC0415

        return manyarms_optimizer(table, budget, seed, confidence=getattr(ma, name)(*arguments))

    return run


PEERS = {
    "manyarms": (manyarms_optimizer, "manyarms"),
    "manyarms-growing-1.3": (_with_radius("Growing", 1.3), "manyarms"),
    "manyarms-growing-1.1": (_with_radius("Growing", 1.1), "manyarms"),
    "manyarms-constant-2": (_with_radius("Constant", 2.0), "manyarms"),
    "manyarms-constant-2.5": (_with_radius("Constant", 2.5), "manyarms"),
    "manyarms-constant-3": (_with_radius("Constant", 3.0), "manyarms"),
    "manyarms-bayes": (_with_radius("Bayes", 0.1), "manyarms"),
    "random": (random_search, "numpy"),
    "tpe": (optuna_tpe, "optuna"),
    "tpe-multivariate": (partial(optuna_tpe, multivariate=True), "optuna"),
    "botorch": (botorch_ucb, "botorch"),
}
"""The function of each peer, and the package it runs."""


def record(table: Table, peer: str, budget: int, seed: int) -> dict | None:
    """What is kept of one run; None where the peer does not apply."""
    run, package = PEERS[peer]
    trace = run(table, budget, seed)
    if trace is None:
        return None
    regret = table.regret(trace.chosen)
    return {
        "table": table.name,
        "peer": peer,
        "budget": budget,
        "seed": seed,
        "seconds": trace.seconds,
        "mean regret": float(regret.mean()),
        "best regret": float(regret.min()),
        "recommended regret": float(table.regret(trace.recommended)),
        "recommended": trace.recommended,
        "chosen": trace.chosen.tolist(),
        "rewards": trace.rewards.tolist(),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            package: version(package),
        },
    }


def keep(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    whole = path.with_suffix(f".{os.getpid()}")
    whole.write_text(text)
    whole.replace(path)


def read(path: Path) -> tuple[dict, Trace]:
    """A run that was kept."""
    kept = json.loads(path.read_text())
    return kept, Trace(
        np.array(kept["chosen"]), np.array(kept["rewards"]), kept["seconds"], kept["recommended"]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--peer", nargs="+", choices=PEERS, default=["random", "tpe"])
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--output", type=Path, default=Path("bench-output/peers"))
    options = parser.parse_args()
    if options.budget < 1:
        parser.error(f"--budget must be at least 1, got {options.budget}")
    options.output.mkdir(parents=True, exist_ok=True)
    print("regrets: 0 is the best candidate, 1 a median one")
    print(
        f"{'table':<20}{'peer':<18}{'seed':>4}  {'seconds':>8}{'mean':>8}{'best':>8}{'recommended':>13}"
    )
    for name in options.table:
        table = load(name)
        for peer in options.peer:
            for seed in options.seed:
                path = options.output / f"{name}-{peer}-{options.budget}-{seed}.json"
                if not path.exists():
                    kept = record(table, peer, options.budget, seed)
                    if kept is None:
                        print(f"{name:<20}{peer:<18}{seed:>4}  does not apply")
                        continue
                    keep(path, json.dumps(kept))
                kept, _ = read(path)
                regrets = f"{kept['mean regret']:>8.3f}{kept['best regret']:>8.4f}{kept['recommended regret']:>13.4f}"
                print(
                    f"{name:<20}{peer:<18}{seed:>4}  {kept['seconds']:>8.2f}{regrets}", flush=True
                )


if __name__ == "__main__":
    main()
