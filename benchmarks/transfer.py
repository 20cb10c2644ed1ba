"""What 500 results of another, similar table are worth: `Optimizer(pool, prior=…)` on the tables of tables.py.

    python benchmarks/transfer.py --seed 5 6 7 8 9 --publish docs/benchmarks    # and writes the page
    python benchmarks/transfer.py --pair car-phoneme --seed 0 --budget 50

Each pair is two data sets on which the same configurations were trained. The prior is one noisy result each of 500
configurations of the first, drawn at random; the second is searched. Kinds: "without" a prior, "given" as it is, "permuted" (the
same values, each at another configuration: it says nothing) and "reversed" (the values negated: it says the wrong thing).

One JSON for each pair, kind, budget and seed in --output; those already there are not run again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from archive import results_of
from peers import keep
from summary import markdown
from tables import Table, load

import manyarms as ma

PAIRS = ("car-phoneme", "phoneme-car", "credit_g-australian", "australian-credit_g")
KINDS = ("without", "given", "permuted", "reversed")
RESULTS = 500
"""Of the other table."""
EARLY = 50
"""Evaluations after which a prior should have paid."""


def prior_of(source: Table, kind: str, seed: int):
    """Rows of another table and their values; None where there is to be no prior."""
    if kind == "without":
        return None
    rng = np.random.default_rng([seed, 7])
    rows = rng.choice(len(source), RESULTS, replace=False)
    values = np.array([source.draw(row, rng) for row in rows])
    if kind == "permuted":
        values = rng.permutation(values)
    return source.frame[rows], -values if kind == "reversed" else values


def played(source: Table, table: Table, kind: str, budget: int, seed: int) -> dict:
    """One run: the rows evaluated, the one recommended last, and the processor's seconds."""
    noise = np.random.default_rng([seed, 2])
    prior = prior_of(source, kind, seed)
    start = time.process_time()
    pool = ma.Pool.from_frame(table.frame, columns=table.columns)
    optimizer = ma.Optimizer(pool, prior=prior, seed=seed)
    chosen = []
    for _ in range(budget):
        (row,) = optimizer.ask()
        optimizer.tell(row, table.draw(row, noise))
        chosen.append(int(row))
    recommended = int(optimizer.best().recommended.id)
    seconds = time.process_time() - start
    return {"chosen": chosen, "recommended": recommended, "seconds": seconds}


def summary(kept: list[dict]) -> list[dict]:
    """A line for each pair and kind: means over the seeds, regrets being 0 for the best and 1 for a median one."""
    lines = []
    for pair in PAIRS:
        table = load(pair.split("-")[1])
        for kind in KINDS:
            runs = [run for run in kept if run["pair"] == pair and run["kind"] == kind]
            if not runs:
                continue
            regrets = np.array([table.regret(np.array(run["chosen"])) for run in runs])
            best = regrets.min(axis=1).mean()
            recommended = np.mean([table.regret(run["recommended"]) for run in runs])
            seconds = np.median([run["seconds"] for run in runs])
            lines.append(
                {
                    "from and to": pair.replace("-", " → "),
                    "prior": kind,
                    "runs": len(runs),
                    f"mean regret, first {EARLY}": f"{regrets[:, :EARLY].mean():.3f}",
                    f"all {regrets.shape[1]}": f"{regrets.mean():.3f}",
                    "best found": f"{best:.4f}",
                    "recommended": f"{recommended:.4f}",
                    "seconds": f"{seconds:.2f}",
                }
            )
    return lines


def ratios(kept: list[dict]) -> list[dict]:
    """Each kind against none: geometric means over pairs of ratios of mean regrets."""
    tables = {pair: load(pair.split("-")[1]) for pair in PAIRS}
    budget = len(kept[0]["chosen"])

    def mean(pair: str, kind: str, n: int) -> float:
        chosen = [run["chosen"][:n] for run in kept if (run["pair"], run["kind"]) == (pair, kind)]
        return float(np.mean(tables[pair].regret(np.array(chosen))))

    pairs = [pair for pair in PAIRS if any(run["pair"] == pair for run in kept)]
    return [
        {
            "prior": kind,
            **{
                f"first {n}": f"{np.exp(np.mean([np.log(mean(p, kind, n) / mean(p, 'without', n)) for p in pairs])):.2f}"
                for n in dict.fromkeys((min(EARLY, budget), budget))
            },
        }
        for kind in KINDS[1:]
    ]


def published(kept: list[dict], seeds: list[int]) -> str:
    """The page."""
    command = f"python benchmarks/transfer.py --seed {' '.join(map(str, seeds))}"
    return "\n\n".join(
        [
            "# Results of another table as a prior",
            f"`Optimizer(pool, prior=(table, values))` with {RESULTS} results of another data set, on which the same configurations were "
            "trained (HPOBench, 30,000 configurations; tables on which the optimizer is developed). The results are drawn at random, "
            "with their noise. "
            'A "permuted" prior has the same values, each at another configuration, so that it says nothing. A "reversed" one has the '
            "values negated, so that it says the wrong thing. Regret is 0 for the best configuration and 1 for a median one; figures are "
            "means over the runs, seconds the processor's median for all evaluations and the model of the prior.",
            "How a prior enters the model was chosen among seven ways on these same pairs, with seeds 0 to 4. Tables that nobody looked at "
            "may gain less.",
            "## Against no prior",
            "Ratios of mean regrets, geometric means over the pairs; below 1 the prior helps.",
            markdown(ratios(kept)),
            "## All pairs",
            markdown(summary(kept)),
            f"Made by `{command} --publish docs/benchmarks`; `benchmarks/results/transfer.json` has all runs.\n",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--output", type=Path, default=Path("bench-output/transfer"))
    parser.add_argument("--publish", type=Path, help="the folder for transfer.md")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    kept = []
    for pair in options.pair:
        source, table = map(load, pair.split("-"))
        for kind in options.kind:
            for seed in options.seed:
                path = options.output / f"{pair}-{kind}-{options.budget}-{seed}.json"
                if not path.exists():
                    run = {"pair": pair, "kind": kind, "seed": seed}
                    run |= played(source, table, kind, options.budget, seed)
                    keep(path, json.dumps(run))
                kept.append(json.loads(path.read_text()))
    print(markdown(summary(kept)))
    if options.publish:
        if set(options.kind) != set(KINDS):
            parser.error("a page needs all kinds")
        options.publish.mkdir(parents=True, exist_ok=True)
        (results_of(options.publish) / "transfer.json").write_text(json.dumps(kept))
        (options.publish / "transfer.md").write_text(published(kept, options.seed))


if __name__ == "__main__":
    main()
