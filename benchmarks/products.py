"""Products of levels: regret, CPU seconds and memory of manyarms, Optuna (TPE) and random search.

    python benchmarks/products.py --seed 0 1 2 3 4                                # runs what is not there yet, shows what is
    python benchmarks/products.py --seed 0 1 2 3 4 --publish docs/benchmarks      # and writes the page

Twelve factors of ten levels are 10¹² combinations: three factors evenly spaced, three geometric, six of names. The function is a sum of tables
over one, two and three neighbouring factors, drawn anew for every seed, scaled so that a random combination has mean 0 and standard
deviation 1; noise of standard deviation 0.25 is added to every result. As only neighbours share a table, dynamic programming gives
the largest value of all 10¹² exactly, and with it every regret. Each run is a process of its own, on one thread.
"""

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from archive import results_of
from peers import Clock, keep

FACTORS, LEVELS = 12, 10
NOISE = 0.25
BUDGET = 200
SPACED = 3
"""Factors whose levels are evenly spaced numbers, and as many of geometric ones; the others are names."""
RIPPLE = 0.3
"""Share of the variance of a numeric factor that does not follow the order of its levels, where the function is rugged."""
SHARES = {
    "additive": (1.0, 0.0, 0.0),
    "pairs": (0.5, 0.5, 0.0),
    "rugged": (0.4, 0.3, 0.3),
}
"""Of the variance over all combinations: what single factors, pairs and triples of neighbours have."""
FALLING = 0.85
"""Standard deviation of a factor's share beside that of the one before it, in an order that is drawn."""


class Function:
    """Σ_j a_j(x_j) + b_j(x_j, x_{j+1}) + c_j(x_j, x_{j+1}, x_{j+2}), x_j one of ten levels."""

    def __init__(self, name, seed, columns):
        rng = np.random.default_rng([seed, 7, sorted(SHARES).index(name)])
        single, pair, triple = SHARES[name]
        are_numbers = [not isinstance(levels[0], str) for levels in columns.values()]
        n = len(columns)
        weights = FALLING ** rng.permutation(n)
        self.single = [
            weight * _main(rng, is_numeric, RIPPLE if triple else 0.0)
            for weight, is_numeric in zip(weights, are_numbers, strict=True)
        ]
        self.pair = [_joint(rng, are_numbers[j : j + 2], bool(triple)) for j in range(n - 1)]
        self.triple = [_centred(rng.standard_normal((LEVELS,) * 3)) for _ in range(n - 2)]
        for tables, share in ((self.single, single), (self.pair, pair), (self.triple, triple)):
            # Centred tables of different factors are uncorrelated: their variances add up.
            scale = np.sqrt(share / sum(float(np.mean(table**2)) for table in tables))
            for table in tables:
                np.multiply(table, scale, out=table)
        self.largest = self._largest()

    def __call__(self, x):
        total = sum(table[x[j]] for j, table in enumerate(self.single))
        total += sum(table[x[j], x[j + 1]] for j, table in enumerate(self.pair))
        total += sum(table[x[j], x[j + 1], x[j + 2]] for j, table in enumerate(self.triple))
        return float(total)

    def _largest(self):
        """The largest value of all combinations: best[a, b] is that of a start that ends in the levels a and b."""
        best = self.single[0][:, None] + self.single[1][None] + self.pair[0]
        for j, table in enumerate(self.triple):
            steps = table + self.single[j + 2][None, None] + self.pair[j + 1][None]
            best = (best[:, :, None] + steps).max(axis=0)
        return float(best.max())


def _main(rng, is_numeric, ripple):
    """Effects of ten levels, of mean 0 and variance 1: a smooth curve where they are numbers."""
    table = _curve(rng) if is_numeric else rng.standard_normal(LEVELS)
    table = _standardised(table)
    if is_numeric and ripple:
        noise = _standardised(rng.standard_normal(LEVELS))
        table = np.sqrt(1 - ripple) * table + np.sqrt(ripple) * noise
    return _standardised(table)


def _joint(rng, are_numbers, is_rough):
    """Effects of a pair of factors beyond those of each."""
    if is_rough:
        return _centred(rng.standard_normal((LEVELS, LEVELS)))
    sides = [_curve(rng) if smooth else rng.standard_normal(LEVELS) for smooth in are_numbers]
    return _centred(np.multiply.outer(*sides))


def _curve(rng):
    """One smooth bump or valley over the levels, anywhere."""
    t = np.linspace(0, 1, LEVELS)
    return rng.choice([1.0, 1.0, -1.0]) * np.exp(-(((t - rng.random()) / 0.35) ** 2))


def _standardised(table):
    table = table - table.mean()
    return table / table.std()


def _centred(table):
    """Without what its lower margins explain."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


COLUMNS: dict[str, list[Any]] = {
    **{f"even{j}": [20 + 10 * i for i in range(LEVELS)] for j in range(SPACED)},
    **{f"dose{j}": [0.01 * 2**i for i in range(LEVELS)] for j in range(SPACED)},
    **{f"name{j}": list("abcdefghij") for j in range(FACTORS - 2 * SPACED)},
}


class Noisy:
    """The function with noise, and what was evaluated: combinations as the numbers of their levels."""

    def __init__(self, function, seed):
        self.function, self.rng = function, np.random.default_rng([seed, 2])
        self.asked, self.values = [], []

    def __call__(self, x):
        self.asked.append(tuple(int(level) for level in x))
        self.values.append(self.function(self.asked[-1]) + NOISE * self.rng.standard_normal())
        return self.values[-1]


def random_search(f, seed, clock):
    rng = np.random.default_rng([seed, 1])
    for x in rng.integers(LEVELS, size=(BUDGET, FACTORS)):
        f(x)
    return f.asked[int(np.argmax(f.values))]


def optuna_tpe(f, seed, clock, **options):
    """Optuna's TPESampler at its defaults: names are categorical, numbers are told in the order of their levels; the best
    trial is recommended."""
    import optuna  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed, **options), direction="maximize"
    )
    for _ in range(BUDGET):
        with clock:
            trial = study.ask()
            x = [
                trial.suggest_categorical(name, range(LEVELS))
                if isinstance(levels[0], str)
                else trial.suggest_int(name, 0, LEVELS - 1)
                for name, levels in COLUMNS.items()
            ]
        value = f(x)
        with clock:
            study.tell(trial, value)
    return f.asked[study.best_trial.number]


def manyarms_product(f, seed, clock):
    """`ma.Optimizer` over the product, as it comes."""
    import manyarms as ma  # noqa: PLC0415

    def levels_of(point):
        return [levels.index(point[name]) for name, levels in COLUMNS.items()]

    optimizer = ma.Optimizer(ma.Box(**COLUMNS), seed=seed)
    for _ in range(BUDGET):
        with clock:
            (point,) = optimizer.ask()
        value = f(levels_of(point))
        with clock:
            optimizer.tell(point, value)
    return levels_of(optimizer.best().recommended.id)


PEERS = {"manyarms": manyarms_product, "tpe": optuna_tpe, "random": random_search}


def record(name, peer, seed):
    """What is kept of one run."""
    f = Noisy(Function(name, seed, COLUMNS), seed)
    clock = Clock(time.process_time)
    recommended = PEERS[peer](f, seed, clock)
    regrets = [f.function.largest - f.function(x) for x in f.asked]
    return {
        "function": name,
        "peer": peer,
        "seed": seed,
        "mean regret": float(np.mean(regrets)),
        "late regret": float(np.mean(regrets[-BUDGET // 4 :])),
        "regret": f.function.largest - f.function(recommended),
        "seconds": clock.seconds,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


FEW = ["even0", "dose0", "name0", "name1", "name2"]
"""Factors of a product of 10⁵ combinations, which can all be scored."""
EVERY = 10
"""Of the results of such a run, those after which all are."""


def missed(name, seed):
    """Over a product of 10⁵ combinations: at every tenth result, by how much the search misses the largest u of all, in
    the units of the model's rewards, of which the better half has root mean square 1; 0 where it is found."""
    import manyarms as ma  # noqa: PLC0415

    columns = {column: COLUMNS[column] for column in FEW}
    f = Noisy(Function(name, seed, columns), seed)
    box = ma.Box(**columns)
    every = box.first(int(box.size))
    optimizer = ma.Optimizer(box, seed=seed)
    gaps = []
    for number in range(1, BUDGET + 1):
        (point,) = optimizer.ask()
        optimizer.tell(point, f([levels.index(point[name]) for name, levels in columns.items()]))
        if number > EVERY and not number % EVERY:
            policy = optimizer.policy
            scores = policy.score(every)
            gap = scores.max() - policy.score(policy.choose())[0]
            gaps.append(0.0 if gap <= 1e-9 else float(gap))
    return gaps


def print_missed(seeds):
    for name in SHARES:
        gaps = np.concatenate([missed(name, seed) for seed in seeds])
        print(
            f"{name:<10} the largest u of 10⁵ was found {np.mean(gaps == 0):.1%} of {len(gaps)} times; "
            f"missed by {gaps.mean():.4f} on average, {gaps.max():.3f} at most"
        )


def published(kept):
    """The page: means over the seeds, with their standard errors."""
    seeds = sorted({run["seed"] for run in kept})
    lines = [
        "# Products of levels",
        "",
        f"{FACTORS} factors of {LEVELS} levels, 10¹² combinations, {BUDGET} results with noise of standard deviation {NOISE}. Regrets are in standard",
        "deviations of a random combination, without noise, from the best of all combinations: the mean over all results, over the last",
        "quarter of them, and of the combination that is recommended at the end; means over the seeds ± standard errors. Seconds are of one",
        "CPU, asking and telling, for all results; memory is the largest of any run. The functions are described in the script.",
        "Optuna 5.0, `TPESampler` at its defaults. What manyarms does by default was chosen on seeds 0, 1 and 10 to 13.",
        "",
        f"`python benchmarks/products.py --seed {' '.join(map(str, seeds))} --publish docs/benchmarks` makes this page.",
        "",
        "| function | tool | seeds | mean regret | last quarter | recommended | seconds | MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in SHARES:
        for peer in PEERS:
            runs = [run for run in kept if (run["function"], run["peer"]) == (name, peer)]
            if runs:
                regrets = [_shown(runs, key) for key in ("mean regret", "late regret", "regret")]
                seconds = f"{np.median([run['seconds'] for run in runs]):.1f}"
                memory = f"{max(run['MB'] for run in runs):.0f}"
                lines.append(
                    f"| {' | '.join([name, peer, str(len(runs)), *regrets, seconds, memory])} |"
                )
    return "\n".join(lines) + "\n"


def _shown(runs, key):
    """Mean ± standard error."""
    values = [run[key] for run in runs]
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.2f} ± {error:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--function", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--peer", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--output", type=Path, default=Path("bench-output/products"))
    parser.add_argument("--publish", type=Path, help="directory of products.md")
    parser.add_argument(
        "--missed", action="store_true", help="only say how often the search finds the largest u"
    )
    options = parser.parse_args()
    if options.missed:
        print_missed(options.seed)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    kept = []
    for name in options.function:
        for seed in options.seed:
            for peer in options.peer:
                path = options.output / f"{name}-{peer}-{seed}.json"
                if not path.exists():
                    # A fresh process: its largest memory is that of this run.
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        keep(path, json.dumps(pool.apply(record, (name, peer, seed))))
                run = json.loads(path.read_text())
                kept.append(run)
                print(
                    f"{name:<10}{peer:<10}{seed:>3}"
                    f"{run['mean regret']:>8.2f}{run['late regret']:>8.2f}{run['regret']:>8.2f}"
                    f"{run['seconds']:>8.1f} s{run['MB']:>7.0f} MB",
                    flush=True,
                )
    print(published(kept))
    if options.publish:
        options.publish.mkdir(parents=True, exist_ok=True)
        (results_of(options.publish) / "products.json").write_text(json.dumps(kept, indent=1))
        (options.publish / "products.md").write_text(published(kept))


if __name__ == "__main__":
    main()
