"""`ma.Optimizer` beside its peers on six real tables: a JSON, a table and a picture, from the runs that peers.py keeps.

    python benchmarks/peers.py --peer manyarms random tpe tpe-multivariate --seed 0 1 2 3 4 5 6 7 8 9
    python benchmarks/peers.py --peer botorch --seed 0
    python benchmarks/peers.py --peer manyarms --budget 2000 --seed 0 1 2
    python benchmarks/optimizer.py [--runs bench-output/peers] [--output bench-output]
    python benchmarks/optimizer.py --million     # a table of 10⁶ rows with mixed columns: load, ask, tell

Regrets are (best mean − mean)/(best mean − median mean) of the candidates, every evaluation counted, random starts included.
"""

import argparse
import json
import resource
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from peers import read
from tables import SOURCES, load

import manyarms as ma

COLOURS = {
    "manyarms": "#0072b2",
    "botorch": "#d55e00",
    "tpe": "#009e73",
    "tpe-multivariate": "#56b4e9",
    "random": "#6e6e6e",
}
RANDOM = 8
"""Evaluations at the start that manyarms draws at random: a picture begins after them."""


def runs(folder: Path) -> dict[tuple[str, str, int], list[dict]]:
    """What was kept, by table, peer and budget."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        kept, _ = read(path)
        found[kept["table"], kept["peer"], kept["budget"]].append(kept)
    return found


def summary(kept: list[dict], regret) -> dict:
    """Means over seeds; the late regret is that of the last 200 evaluations."""
    late = [float(np.mean(regret(np.array(run["chosen"][-200:])))) for run in kept]
    early = [float(np.mean(regret(np.array(run["chosen"][:200])))) for run in kept]
    means = {
        key: float(np.mean([run[key] for run in kept]))
        for key in ("mean regret", "best regret", "recommended regret", "seconds")
    }
    return {
        "seeds": len(kept),
        **means,
        "first 200": float(np.mean(early)),
        "last 200": float(np.mean(late)),
    }


def verdicts(table: str, rows: dict[str, dict]) -> list[str]:
    """The bars at 200 evaluations."""
    ours = rows.get("manyarms")
    said: list[str] = []
    if not ours:
        return said
    if "botorch" in rows:
        theirs = rows["botorch"]
        for key in ("mean regret", "best regret"):
            ok = ours[key] <= theirs[key]
            said.append(
                f"{'met' if ok else 'MISSED'}: {key} {ours[key]:.4f}, BoTorch {theirs[key]:.4f}"
            )
        ratio = theirs["seconds"] / ours["seconds"]
        said.append(
            f"{'met' if ratio >= 50 else 'MISSED'}: {ratio:.0f} times faster than BoTorch (bar 50)"
        )
    for peer in ("tpe", "tpe-multivariate"):
        if peer in rows:
            ok = ours["mean regret"] < rows[peer]["mean regret"]
            said.append(
                f"{'met' if ok else 'MISSED'}: mean regret {ours['mean regret']:.4f}, {peer} {rows[peer]['mean regret']:.4f}"
            )
    return said


def long_verdict(row: dict) -> str:
    """The bars at 2,000 evaluations."""
    ratio, seconds = row["last 200"] / row["first 200"], row["seconds"] / 20
    late = f"{'met' if ratio < 1 / 3 else 'MISSED'}: regret of the last 200 is {ratio:.3f} of the first 200 (bar 1/3)"
    return f"{late}; {'met' if seconds <= 1 else 'MISSED'}: {seconds:.2f} s a hundred steps (bar 1)"


def markdown(results: dict) -> str:
    """The table of the README."""
    lines = ["| | " + " | ".join(COLOURS) + " |", "|---" * (len(COLOURS) + 1) + "|"]
    for name, result in results.items():
        rows = [result["200"].get(peer) for peer in COLOURS]
        shown = (
            f"{r['mean regret']:.3f}, {r['best regret']:.3f}, {r['seconds']:.1f} s" if r else "—"
            for r in rows
        )
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def draw(found, path: Path) -> None:
    """Average regret so far, a panel a table."""
    figure = Figure(figsize=(13, 7), layout="constrained")
    for ax, name in zip(figure.subplots(2, 3).flat, SOURCES, strict=True):
        table = load(name)
        curves = {}
        for peer in COLOURS:
            kept = found.get((name, peer, 200))
            if kept:
                traces = np.array([table.regret(np.array(run["chosen"])) for run in kept])
                average = traces.cumsum(axis=1) / np.arange(1, traces.shape[1] + 1)
                curves[peer] = average.mean(axis=0)
        draw_table(ax, curves)
        ax.set(title=name, xlabel="evaluations", ylabel="average regret so far")
    figure.savefig(path, dpi=120)


def draw_table(ax: Axes, curves: dict[str, np.ndarray]) -> None:
    """One line a system with its name at its end; the first evaluations are drawn at random and left out."""
    ends = []
    for peer, average in curves.items():
        ax.plot(np.arange(RANDOM + 1, len(average) + 1), average[RANDOM:], color=COLOURS[peer])
        ends.append((float(average[-1]), peer))
    ax.set_yscale("log")
    low, high = np.log(ax.get_ylim())
    lowest = -np.inf  # where the next name may stand, as a share of the axis: names do not overlap
    for end, peer in sorted(ends):
        lowest = max((np.log(end) - low) / (high - low), lowest)
        place: dict[str, Any] = {"transform": ax.transAxes, "color": COLOURS[peer], "fontsize": 8}
        ax.text(1.01, lowest, f"{peer} ({end:.2g})", va="center", **place)
        lowest += 0.055
    ax.set_xlim(0, None)
    ax.grid(color="#e6e6e6", lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)


def million(folder: Path) -> dict:
    """Seconds and peak memory from a CSV of 10⁶ rows to the first asks."""
    rng, n = np.random.default_rng(0), 10**6
    frame = pl.DataFrame(
        {
            "id": [f"c{i}" for i in range(n)],
            **{f"x{j}": rng.random(n) for j in range(4)},
            "dose": 10.0 ** rng.uniform(-4, 1, n),
            "count": rng.integers(1, 40, n),
            "flag": rng.random(n) < 0.5,
            **{f"kind{j}": rng.choice(list("abcdefgh"), n) for j in range(3)},
        }
    )
    path = folder / "million.csv"
    frame.write_csv(path)
    del frame
    start = time.perf_counter()
    pool = ma.Pool.from_csv(path, id="id")
    loaded = time.perf_counter()
    optimizer = ma.Optimizer(pool, seed=0)
    optimizer.ask()
    asked = time.perf_counter()
    for _ in range(12):
        (name,) = optimizer.ask()
        optimizer.tell(name, pool.row(name)["x0"] + rng.normal(0, 0.1))
    chosen = time.perf_counter()
    path.unlink()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "load": loaded - start,
        "first ask": asked - loaded,
        "next 12": chosen - asked,
        "peak GB": peak,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("bench-output/peers"))
    parser.add_argument("--output", type=Path, default=Path("bench-output"))
    parser.add_argument("--million", action="store_true", help="only the table of 10⁶ rows")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.million:
        seconds = million(options.output)
        met = seconds["load"] + seconds["first ask"] < 60 and seconds["peak GB"] < 4
        print(
            f"{'met' if met else 'MISSED'} (60 s, 4 GB): "
            + ", ".join(f"{key} {value:.2f}" for key, value in seconds.items())
        )
        return
    found = runs(options.runs)
    results: dict[str, dict] = {}
    for name in SOURCES:
        regret = load(name).regret
        rows = {
            peer: summary(kept, regret)
            for (table, peer, budget), kept in found.items()
            if (table, budget) == (name, 200)
        }
        print(
            f"\n{name}\n  {'200 evaluations':<22}{'seeds':>6}{'mean':>9}{'best':>9}{'recommended':>13}{'seconds':>9}"
        )
        for peer, row in sorted(rows.items(), key=lambda pair: pair[1]["mean regret"]):
            regrets = f"{row['mean regret']:>9.4f}{row['best regret']:>9.4f}{row['recommended regret']:>13.4f}"
            print(f"  {peer:<22}{row['seeds']:>6}{regrets}{row['seconds']:>9.1f}")
        results[name] = {"200": rows, "verdicts": verdicts(name, rows)}
        if long := found.get((name, "manyarms", 2000)):
            results[name]["2000"] = summary(long, regret)
            results[name]["verdicts"].append(long_verdict(results[name]["2000"]))
        print("\n".join(f"  {line}" for line in results[name]["verdicts"]))
    (options.output / "optimizer.json").write_text(json.dumps(results, indent=2) + "\n")
    (options.output / "optimizer.md").write_text(markdown(results))
    draw(found, options.output / "optimizer.png")


if __name__ == "__main__":
    main()
