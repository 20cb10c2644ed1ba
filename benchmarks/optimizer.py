"""`ma.Optimizer` beside its peers on the tables of tables.py: a page, a JSON and a picture, from the runs of peers.py.

    python benchmarks/optimizer.py --runs bench-output/peers --output bench-output     # the runs of a folder
    python benchmarks/optimizer.py                                                     # those that are kept, again

The folder's runs are added to those that are kept in benchmarks/results/optimizer-runs.json.gz; of two runs of the same table, peer, budget
and seed the folder's stays. --tables and --peers say which of them the page is about.
Regrets are (best mean − mean)/(best mean − median mean) of the candidates, every evaluation counted, random starts included.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import archive
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from peers import keep
from summary import markdown
from tables import DEVELOPMENT, HELD_OUT, Table, load
from verdicts import (
    EARN,
    OLD,
    OURS,
    Row,
    Rows,
    average,
    common,
    geometric,
    peers_of,
    summaries,
    verdicts,
)

GROUPS = {
    "development": DEVELOPMENT,
    "held-out": HELD_OUT,
    "all": (*DEVELOPMENT, *HELD_OUT),
}
COLOURS = {
    "manyarms": "#0072b2",
    "manyarms-earn": "#000000",
    "manyarms-0.1": "#cc79a7",
    "botorch": "#d55e00",
    "smac": "#e69f00",
    "optuna-gp": "#f0e442",
    "tpe": "#009e73",
    "tpe-univariate": "#56b4e9",
    "random": "#6e6e6e",
}
"""In the order of the page."""


def shown(rows: Rows) -> list[str]:
    """The peers of a page: those with a colour first."""
    there = peers_of(rows)
    return [peer for peer in COLOURS if peer in there] + [
        peer for peer in there if peer not in COLOURS
    ]


def by_table(rows: Rows) -> list[dict]:
    """Mean regret, best found and recommended, a line a table."""
    peers = shown(rows)
    return [
        {"table": name} | {peer: _three(found.get(peer)) for peer in peers}
        for name, found in rows.items()
    ]


def _three(row: Row | None) -> str:
    return f"{row.mean:.3f}, {row.best:.3f}, {row.recommended:.3f}" if row else "—"


def averages(rows: Rows) -> list[dict]:
    """A line a peer, over the tables where it was run."""
    lines = []
    for peer in shown(rows):
        names = common(rows, peer)
        line = {"": peer, "tables": len(names), "seeds": rows[names[0]][peer].seeds}
        if common(rows, peer, OLD):
            line["mean regret of version 0.1's"] = f"{geometric(rows, peer, OLD):.3f}"
        else:
            line["mean regret of version 0.1's"] = "—"
        for key in ("best", "recommended", "seconds"):
            line[key] = average(rows, names, peer, key)
        line["failing on gpu"] = rows["gpu"][peer].failing if "gpu" in names else "—"
        lines.append(line)
    return lines


def long_runs(rows: Rows) -> list[dict]:
    """A line a table and peer: what is gained early must not be lost late."""
    return [
        {
            "table": name,
            "peer": peer,
            "seeds": row.seeds,
            "mean regret": row.mean,
            "first 200": row.first,
            "last 200": row.last,
            "best": row.best,
            "recommended": row.recommended,
            "seconds": row.seconds,
        }
        for name, found in rows.items()
        for peer, row in found.items()
    ]


TEXT = """\
{n} runs on {tables} tables of real measurements. Each evaluation is one of the measured replicates at random. A cell has the mean regret over all
evaluations, that of the best candidate found and that of the one recommended at the end: 0 is the best of the table, 1 a median one. Every
tool gets the columns as they come. manyarms is `Optimizer` with nothing set (`goal="find"`), manyarms-earn has `goal="earn"`, manyarms-0.1 is version 0.1 with
nothing set. tpe is Optuna's sampler at its defaults, tpe-univariate the one of before Optuna 5, optuna-gp its Gaussian process. smac is SMAC3's facade for
hyperparameters. botorch is an exact Gaussian process with log expected improvement over the whole table. random draws candidates uniformly. Seconds are the processor's."""


def page(sections: Mapping[str, Sequence[dict]], said: Sequence[str], text: str) -> str:
    """In Markdown."""
    parts = ["# Tables of real measurements", text, "![Regrets](optimizer.png)"]
    parts.append("\n".join(f"- {line}" for line in said))
    parts += [f"## {heading}\n\n{markdown(rows)}" for heading, rows in sections.items() if rows]
    parts.append(
        "Made by `benchmarks/peers.py` and `benchmarks/optimizer.py` from [all runs](../../benchmarks/results/optimizer-runs.json.gz)."
    )
    return "\n\n".join(parts) + "\n"


def draw(rows: Rows, path: Path) -> None:
    """Mean regret by table, and what is recommended after each tenth evaluation."""
    figure = Figure(figsize=(13, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_tables(left, rows)
    draw_curves(right, rows)
    for ax in (left, right):
        ax.grid(color="#e6e6e6", lw=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def draw_tables(ax: Axes, rows: Rows) -> None:
    """A dot a peer."""
    names = list(rows)[::-1]
    for peer, colour in COLOURS.items():
        there = [(rows[name][peer].mean, i) for i, name in enumerate(names) if peer in rows[name]]
        if there:
            ax.plot(*zip(*there, strict=True), "o", color=colour, label=peer, alpha=0.85)
    ax.set_yticks(range(len(names)), names)
    ax.set(xscale="log", xlabel="mean regret of 200 evaluations")
    ax.legend(fontsize=8, loc="lower right")


def draw_curves(ax: Axes, rows: Rows) -> None:
    """Averages over the tables on which all of the peers were run that were run on most."""
    peers = [peer for peer in COLOURS if 2 * len(common(rows, peer)) > len(rows)]
    names = common(rows, *peers)
    for peer in peers:
        if names:
            curve = np.mean([rows[name][peer].curve for name in names], axis=0)
            ax.plot(10 * np.arange(1, len(curve) + 1), curve, color=COLOURS[peer], label=peer)
    ax.set(
        yscale="log",
        xlabel="evaluations",
        ylabel=f"regret of the recommended candidate, mean of {len(names)} tables",
    )
    ax.legend(frameon=False, fontsize=8)


def versions(runs: Sequence[dict]) -> dict[str, list[dict]]:
    """What each peer was run with."""
    found: dict[str, list[dict]] = {}
    for run in runs:
        known = found.setdefault(run["peer"], [])
        if run["versions"] not in known:
            known.append(run["versions"])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="a folder of peers.py; else those kept")
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--tables", choices=GROUPS, default="all")
    parser.add_argument("--peers", nargs="+", help="only these, besides ours and version 0.1")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    kept = archive.results_of(options.output) / "optimizer-runs.json.gz"
    runs = archive.read(kept) if kept.exists() else []
    if options.runs:
        runs = archive.merged(runs, archive.read(options.runs))
    if not runs:
        parser.error("no runs: give --runs, a folder that peers.py wrote")
    archive.write(runs, kept)
    tables = {name: load(name) for name in GROUPS[options.tables]}
    wanted = {*(options.peers or (run["peer"] for run in runs)), OURS, EARN, OLD}
    runs = [run for run in runs if run["peer"] in wanted and run["table"] in tables]
    report(runs, tables, options.output)


def report(runs: list[dict], tables: Mapping[str, Table], output: Path) -> None:
    """Print and write everything; of other lengths and batches only those that ours had."""
    rows = summaries(runs, tables, 200, 1)
    ours = {(run["table"], *_size(run)) for run in runs if run["peer"] == OURS}
    runs = [run for run in runs if (run["table"], *_size(run)) in ours]
    sizes = {_size(run) for run in runs}
    others = {size: summaries(runs, tables, *size) for size in sorted(sizes - {(200, 1)})}
    said = verdicts(rows, tables)
    sections = {"Averages over tables": averages(rows), "By table": by_table(rows)}
    for (budget, batch), found in others.items():
        several = f", {batch} at a time, 5 % of the results missing" * (batch > 1)
        sections[f"{budget:,} evaluations{several}"] = long_runs(found)
    text = TEXT.format(n=f"{len(runs):,}", tables=len(rows))
    print("\n\n".join(["\n".join(said), *(markdown(part) for part in sections.values() if part)]))
    results = {
        "versions": versions(runs),
        "verdicts": said,
        "200": _plain(rows),
        **{f"{budget} x {batch}": _plain(found) for (budget, batch), found in others.items()},
    }
    keep(
        archive.results_of(output) / "optimizer.json",
        json.dumps(results, indent=1, ensure_ascii=False) + "\n",
    )
    keep(output / "optimizer.md", page(sections, said, text))
    draw(rows, output / "optimizer.png")


def _size(run: dict) -> tuple[int, int]:
    return run["budget"], run["batch"]


def _plain(rows: Rows) -> dict:
    return {
        name: {peer: row._asdict() for peer, row in found.items()} for name, found in rows.items()
    }


if __name__ == "__main__":
    main()
