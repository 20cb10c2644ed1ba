"""Ten tables of measurements, each a gzipped CSV (see tables.load): a page of both goals beside other tools.

    python benchmarks/peers.py --csv FOLDER --table pnpoly storm … --budget 100 --peer manyarms manyarms-earn tpe random --seed 0 1 … --output RUNS
    python benchmarks/fresh.py --csv FOLDER --runs RUNS     # writes docs/benchmarks/fresh.md
    python benchmarks/fresh.py --csv FOLDER                 # the same, from the runs that are kept

The runs are kept in benchmarks/results/fresh-runs.json.gz; those of RUNS are added.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import archive
import numpy as np
from peers import keep
from summary import markdown
from tables import Table, load

SOURCES = {
    "pnpoly": "speed of a GPU kernel, AutoTuningAssociation/benchmark_hub",
    "storm": "throughput of a stream processor, FlashRepo/Flash-SingleConfig",
    "lnp3": "encapsulation in lipid nanoparticles, aspuru-guzik-group/olympus",
    "hplc": "peak of a chromatograph, aspuru-guzik-group/olympus",
    "crossed_barrel": "toughness of printed structures, PV-Lab/Benchmarking",
    "amidation": "yields, doyle-lab-ucla/bandit-optimization",
    "gemm": "speed of a GPU kernel, AutoTuningAssociation/benchmark_hub",
    "redoxmers": "absorption of molecules, aspuru-guzik-group/olympus",
    "concrete": "strength, stedy/Machine-Learning-with-R-datasets",
    "hipacc": "speed of image filters, DeepPerf/DeepPerf",
}
"""What was measured, and the repository on GitHub."""
SEEN = tuple(SOURCES)[:5]
"""These were looked at while the default was chosen, the others once, afterwards."""
BOTORCH = ("botorch", "botorch-anew")
"""By where its fits begin: at the hyperparameters of the one before, or at those of the priors."""
PEERS = ("manyarms", "manyarms-earn", *BOTORCH, "tpe", "random")
BEST = {"best": None, "at 10": 10, "at 20": 20, "at 30": 30}
"""Best found after so many results, or all."""

Figures = dict[str, dict[str, dict[int, dict[str, float]]]]
"""By peer, table and seed."""


def figures(table: Table, run: dict) -> dict[str, float]:
    """Of one run."""
    regret = table.regret(np.array(run["chosen"]))
    found = {name: float(regret[:count].min()) for name, count in BEST.items()}
    return {
        "mean": float(regret.mean()),
        "recommended": float(table.regret(run["recommended"][-1])),
        "in 5 %": float(found["best"] <= 0.05),
        **found,
    }


def gathered(runs: Sequence[dict], tables: Mapping[str, Table]) -> Figures:
    """Of all runs."""
    found: Figures = {peer: {name: {} for name in tables} for peer in PEERS}
    for run in runs:
        name = run["table"]
        found[run["peer"]][name][run["seed"]] = figures(tables[name], run)
    return found


KEYS = ("mean", "best", "recommended", "in 5 %", "at 10", "at 20", "at 30")


def averages(found: Figures, names: Sequence[str]) -> list[dict]:
    """A line a peer that was run on all of these, over tables and seeds."""
    lines = []
    for peer in PEERS:
        if not all(found[peer][name] for name in names):
            continue
        runs = [run for name in names for run in found[peer][name].values()]
        values = {key: _spread([run[key] for run in runs]) for key in KEYS}
        lines.append({"": peer, "runs": len(runs), **values})
    return lines


def differences(found: Figures, names: Sequence[str]) -> list[dict]:
    """Ours less BoTorch's on the same table and seed."""
    lines = []
    for ours, other in itertools.product(PEERS[:2], BOTORCH):
        pairs = [
            (found[ours][name][seed], theirs)
            for name in names
            for seed, theirs in found[other][name].items()
            if seed in found[ours][name]
        ]
        if pairs:
            values = {key: _spread([a[key] - b[key] for a, b in pairs]) for key in KEYS}
            lines.append({"": f"{ours} less {other}", "pairs": len(pairs), **values})
    return lines


def by_table(found: Figures) -> list[dict]:
    """Mean regret, best found and recommended, and the share within 5 %, a line a table."""
    return [
        {"table": name} | {peer: _four(found[peer][name]) for peer in PEERS} for name in SOURCES
    ]


def worse_than_random(found: Figures, peer: str) -> list[str]:
    """Tables where the best found is worse by more than one standard error of the difference."""
    worse = []
    for name in SOURCES:
        ours, theirs = (
            np.array([run["best"] for run in found[each][name].values()])
            for each in (peer, "random")
        )
        error = np.hypot(_error(ours), _error(theirs))
        if ours.mean() - theirs.mean() > error:
            worse.append(f"{name} ({ours.mean():.3f}, random {theirs.mean():.3f})")
    return worse


def of_means(found: Figures, other: str) -> str:
    """Mean regrets beside another's."""
    names = [name for name in SOURCES if found[other][name]]
    ratios = np.array(
        [_mean(found["manyarms-earn"][name]) / _mean(found[other][name]) for name in names]
    )
    return (
        f"Mean regret of *earn* is {np.exp(np.log(ratios).mean()):.2f} of {other}'s (geometric mean over tables), "
        f"and no larger on {(ratios <= 1).sum()} of {len(ratios)} tables."
    )


TEXT = """\
Ten tables that other people measured for purposes of their own, 100 evaluations each. Five of them had been looked at while the default was chosen
({seen}), the other five were run once, afterwards. `manyarms` is `Optimizer` with nothing set (`goal="find"`),
`manyarms-earn` has `goal="earn"`. The other tools are those of [optimizer.md](optimizer.md), with the columns as they come. Ten seeds, BoTorch three.
A fit of `botorch` begins at the hyperparameters of the one before, of `botorch-anew` at those of the priors; it takes
longer, and was run less often: only its differences are comparable.

Regrets: 0 is the best candidate of a table, 1 a median one. "mean" is that of all evaluations, "best" of the best candidate found, "at 10" of the best one
after ten evaluations, "recommended" of the one recommended at the end; "in 5 %" is the share of runs with a best candidate of regret at most .05.
± is the standard error over pairs of table and seed. Differences are of the same table and seed."""


def page(found: Figures) -> str:
    """In Markdown."""
    once = tuple(name for name in SOURCES if name not in SEEN)
    groups = {"Ten tables": tuple(SOURCES), "Five seen before": SEEN, "Five run once": once}
    parts = ["# Fresh tables", TEXT.format(seen=", ".join(SEEN))]
    for heading, names in groups.items():
        parts += [f"## {heading}", markdown(averages(found, names))]
        parts.append(markdown(differences(found, names)))
    said = [
        f"of {peer} on {', '.join(worse_than_random(found, peer)) or 'no table'}"
        for peer in PEERS[:2]
    ]
    parts += [
        " ".join(of_means(found, peer) for peer in BOTORCH),
        f"The best found is worse than that of random by more than one standard error: {', '.join(said)}.",
        "## By table",
        "Mean regret, best found, recommended, share within 5 %.",
        markdown(by_table(found)),
        "## The tables",
        markdown([{"table": name, "what, and from where": what} for name, what in SOURCES.items()]),
        "`value_1`, `value_2`, … of a CSV are the replicates of a candidate, the other columns its features.",
        "```\n" + "\n".join(COMMANDS) + "\n```",
        "All runs are in [fresh-runs.json.gz](../../benchmarks/results/fresh-runs.json.gz).",
    ]
    return "\n\n".join(parts) + "\n"


COMMANDS = (
    f"python benchmarks/peers.py --csv FOLDER --budget 100 --output RUNS --table {' '.join(SOURCES)} \\\n"
    "    --peer manyarms manyarms-earn tpe random --seed 0 1 2 3 4 5 6 7 8 9     # and --peer botorch botorch-anew --seed 0 1 2",
    "python benchmarks/fresh.py --csv FOLDER --runs RUNS",
)


def _mean(runs: dict[int, dict[str, float]]) -> float:
    return float(np.mean([run["mean"] for run in runs.values()]))


def _four(runs: dict[int, dict[str, float]]) -> str:
    if not runs:
        return "—"
    keys = ("mean", "best", "recommended", "in 5 %")
    values = [np.mean([run[key] for run in runs.values()]) for key in keys]
    return ", ".join(f"{value:.3f}" for value in values[:3]) + f", {values[3]:.2f}"


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _spread(values: Sequence[float]) -> str:
    x = np.array(values)
    return f"{x.mean():.3f} ± {_error(x):.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=Path, required=True, help="the folder of the tables")
    parser.add_argument("--runs", type=Path, help="a folder of peers.py; else those kept")
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks"))
    options = parser.parse_args(arguments)
    kept = archive.results_of(options.output) / "fresh-runs.json.gz"
    runs = archive.read(kept) if kept.exists() else []
    if options.runs:
        runs = archive.merged(runs, archive.read(options.runs))
    archive.write(runs, kept)
    tables = {name: load(name, options.csv) for name in SOURCES}
    keep(options.output / "fresh.md", page(gathered(runs, tables)))


if __name__ == "__main__":
    main()
