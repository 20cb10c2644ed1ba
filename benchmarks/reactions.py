"""Reaction tables as a chemist meets them: batches of five through files, beside random choice and BayBE.

    python benchmarks/reactions.py --baybe PYTHON [--output bench-output/reactions] [--seeds 10]
    python benchmarks/reactions.py --repeats

manyarms runs as its command line does, `init`, then `suggest -n 5 -o next.csv`, the file filled in, `tell next.csv`, a study in a
file; the commands are called inside one process, which saves only their start. Random choice draws without replacement. BayBE
(one-hot columns, all else its default) runs in the Python given, in a process of its own. What counts is the best yield measured
in the first 25, 50 and 100 trials, in the table's own numbers.

A JSON for each table, system and seed; those already there are not run again, except ours after --again. The second form asks how
often a recipe may be repeated where the table is small and values are noisy: which limit gives the best recommended recipe.
"""

import argparse
import csv
import io
import itertools
import json
import platform
import subprocess
import tempfile
import time
from contextlib import redirect_stdout
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
from archive import results_of
from summary import markdown
from tables import VALUES, Table, load
from wheels import text_of

import manyarms as ma
from manyarms.cli.commands import program

TABLES = ("suzuki", "buchwald", "arylation", "reizman")
SMALL = ("reizman", "aniline")
BATCH, BUDGET = 5, 100
LOOKS = (25, 50, 100)
DRAWS = 10_000
"""Of random choice, for the median that every seed is held against; ten of them are listed."""
LIMITS = ("never", "2", "3", "allow")
"""Of trials of one recipe."""
NOISES = (0.05, 0.15)
"""Standard deviations of the noise, as shares of the range of the yields."""
SMALL_LOOKS = (25, 50)
"""Trials, of small tables."""


def arylation() -> Table:
    """1,728 direct arylations (Shields et al., Nature 590, 2021): four bases, twelve ligands, four solvents, three concentrations,
    three temperatures. Out of the source archive of baybe 0.15.0, which need not be installed."""
    text = text_of("baybe", "0.15.0", "benchmarks/data/direct_arylation/data.csv", source=True)
    data = pl.read_csv(io.StringIO(text.removeprefix("\ufeff")), infer_schema_length=None)
    columns = ["Base", "Ligand", "Solvent", "Concentration", "Temp_C"]
    return Table("arylation", data.select(columns), data["yield"].to_numpy()[:, None])


def recipes(name: str) -> Table:
    """A table by name, in which every recipe stands once, with the mean of its yields."""
    table = arylation() if name == "arylation" else load(name)
    names = table.frame.columns
    merged = (
        table.frame.with_columns(pl.Series(VALUES, table.means))
        .group_by(names, maintain_order=True)
        .mean()
    )
    return Table(name, merged.select(names), merged[VALUES].to_numpy()[:, None], table.columns)


def commanded(*arguments: object) -> dict:
    """The answer of a command as JSON; an error ends the benchmark."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = program([*map(str, arguments), "--json"])
    if code:
        raise RuntimeError(f"manyarms {' '.join(map(str, arguments))} ended with {code}")
    return json.loads(out.getvalue())


def written(table: Table, path: Path, **more) -> None:
    """The table as a file, a recipe a row."""
    table.frame.with_columns(**more).write_csv(path)


def by_files(table: Table, seed: int, budget: int, draw, *, repeats: str | None = None):
    """A campaign: rows chosen in order, and the row recommended after each batch."""
    chosen: list[int] = []
    recommended: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        study, pool, file = (Path(folder) / name for name in ("lab.db", "pool.csv", "next.csv"))
        written(table, pool)
        limit = [] if repeats is None else ["--repeats", repeats]
        commanded("init", study, "--pool", pool, "--maximize", "--seed", seed, *limit)
        while len(chosen) < budget:
            commanded("suggest", study, "-n", BATCH, "-o", file, "--force")
            with file.open(newline="") as lines:
                rows = list(csv.DictReader(lines))
            if not rows:
                break
            ids = [int(row["id"]) for row in rows]
            for row, i in zip(rows, ids, strict=True):
                row["value"] = repr(draw(i))
            with file.open("w", newline="") as lines:
                writer = csv.DictWriter(lines, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
            commanded("tell", study, file)
            chosen += ids
            if repeats is not None:
                recommended.append(commanded("status", study)["best"]["recommended"]["id"])
    return chosen, recommended


def ours(table: Table, seed: int, budget: int) -> dict:
    """manyarms as it comes."""
    start = time.process_time()
    chosen, _ = by_files(table, seed, budget, lambda i: float(table.means[i]))
    seconds = time.process_time() - start
    return {"chosen": chosen, "seconds": seconds, "version": ma.__version__}


def at_random(table: Table, seed: int, budget: int) -> dict:
    """Any recipe, none twice."""
    order = np.random.default_rng([seed, 1]).permutation(len(table))
    return {"chosen": order[:budget].tolist(), "seconds": 0.0, "version": np.__version__}


def baybe(python: str, table: Table, seed: int, budget: int) -> dict:
    """BayBE in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        written(table, path, **{"yield": table.means})
        child = Path(__file__).with_name("reactions_baybe.py")
        command = [python, str(child), str(path), str(seed), str(BATCH), str(budget)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return json.loads(done.stdout.splitlines()[-1])


def best_at(table: Table, chosen: list[int]) -> list[float]:
    """Best yield in the first trials; a table that ends before has no more to give."""
    best = np.maximum.accumulate(table.means[chosen])
    return [float(best[min(n, len(best)) - 1]) for n in LOOKS]


def random_median(table: Table) -> list[float]:
    """The median of `best_at` over DRAWS random orders."""
    rng = np.random.default_rng(0)
    n = min(LOOKS[-1], len(table))
    draws = [
        best_at(table, rng.choice(len(table), n, replace=False).tolist()) for _ in range(DRAWS)
    ]
    return np.median(draws, axis=0).tolist()


def kept(path: Path, again: bool, run) -> dict:
    """A run from its file, or made and kept."""
    if path.exists() and not again:
        return json.loads(path.read_text())
    found = run()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return found


def compared(options) -> tuple[list[dict], list[dict]]:
    """A row for each table and system, and what falls below random's median."""
    rows: list[dict] = []
    misses: list[dict] = []
    systems = {"manyarms": ours, "random": at_random}
    if options.baybe:
        systems["baybe"] = partial(baybe, options.baybe)
    for name in options.table:
        table = recipes(name)
        median = random_median(table)
        for system, run in systems.items():
            runs = []
            n_seeds = options.baybe_seeds if system == "baybe" else options.seeds
            for seed in range(n_seeds):
                path = options.output / f"{name}-{system}-{seed}.json"
                again = options.again and system == "manyarms"
                runs.append(
                    kept(
                        path,
                        again,
                        partial(run, table, seed, BUDGET),
                    )
                )
                print(name, system, seed, best_at(table, runs[-1]["chosen"]), flush=True)
            best = np.array([best_at(table, each["chosen"]) for each in runs])
            row: dict = {"table": name, "recipes": len(table), "system": system, "seeds": n_seeds}
            for look, column in zip(LOOKS, best.T, strict=True):
                low, middle, high = column.min(), np.median(column), column.max()
                row[f"best at {look}"] = f"{middle:.4g} ({low:.4g} to {high:.4g})"
            row["distinct"] = f"{np.median([len(set(each['chosen'])) for each in runs]):g}"
            row["CPU s"] = f"{np.median([each['seconds'] for each in runs]):.3g}"
            rows.append(row | {"runs": best.tolist()})
            if system == "manyarms":
                misses += [
                    {"table": name, "seed": seed, "trials": look, "best": value, "random": middle}
                    for seed, values in enumerate(best)
                    for look, value, middle in zip(LOOKS, values, median, strict=True)
                    if value < middle
                ]
        row = {"table": name, "recipes": len(table), "system": f"random, median of {DRAWS:,}"}
        rows.append(row | {f"best at {n}": f"{m:.4g}" for n, m in zip(LOOKS, median, strict=True)})
    return rows, misses


def repeated(options) -> list[dict]:
    """Of each limit on repeats: what the recommended recipe lacks to the best one of the table."""
    rows = []
    for name, share, limit in itertools.product(SMALL, NOISES, LIMITS):
        table = recipes(name)
        noise = share * float(np.ptp(table.means))
        runs = [
            kept(
                options.output / f"repeats-{name}-{limit}-{share:g}-{seed}.json",
                options.again,
                partial(_noisy, table, seed, limit, noise),
            )
            for seed in range(options.seeds)
        ]
        row = {"table": name, "noise": f"{noise:.3g}", "limit": limit}
        for n in SMALL_LOOKS:
            lacking = [
                table.means.max() - table.means[run["recommended"][n // BATCH - 1]] for run in runs
            ]
            error = np.std(lacking, ddof=1) / np.sqrt(len(lacking)) if len(lacking) > 1 else 0.0
            row[f"lacks after {n}"] = f"{np.mean(lacking):.3g} ± {error:.2g}"
        distinct = np.median([len(set(run["chosen"])) for run in runs])
        rows.append(row | {"different recipes": f"{distinct:g} of {SMALL_LOOKS[-1]}"})
        print(rows[-1], flush=True)
    return rows


def _noisy(table: Table, seed: int, limit: str, noise: float) -> dict:
    rng = np.random.default_rng([seed, 2])
    chosen, recommended = by_files(
        table,
        seed,
        SMALL_LOOKS[-1],
        lambda i: float(table.means[i] + noise * rng.standard_normal()),
        repeats=limit,
    )
    return {"chosen": chosen, "recommended": recommended}


TEXT = """# Reactions

What a chemist finds who asks for five recipes at a time and fills in the file: the best yield measured in the first 25, 50 and 100
trials, in the table's own numbers; the median over the seeds, and the range in brackets. manyarms runs as its command line does
(`init`, `suggest -n 5 -o next.csv`, `tell next.csv`) with nothing set but the seed. BayBE {baybe} one-hot encodes text and takes
numbers as numbers; all else is its default. It has five seeds, as a run takes up to 80 CPU seconds: its range is over fewer runs, so
narrower than it would be over ten. Random choice takes no recipe twice; its median is that of {draws:,} orders. A recipe that
a table has several times stands once, with its mean. Seconds are CPU seconds of one run of 100 trials.

- suzuki: 5,760 Suzuki-Miyaura couplings (Perera et al., Science 359, 2018), yields from 0 to 1.
- buchwald: 3,955 Buchwald-Hartwig couplings (Ahneman et al., Science 360, 2018), yields in per cent.
- arylation: 1,728 direct arylations (Shields et al., Nature 590, 2021), yields in per cent.
- reizman: 81 Suzuki couplings in flow (Reizman et al., React. Chem. Eng. 1, 2016), yields in per cent; after 81 trials nothing is left
  to random choice and BayBE, which repeat nothing.

`python benchmarks/reactions.py --baybe PYTHON --page docs/benchmarks/reactions.md` makes this page; PYTHON has BayBE installed.

{table}

{verdict}

## How often to repeat a recipe

Small tables with noise added to every value: what the recommended recipe lacks to the best one of the table, without noise, after 25
and 50 trials; means of {seeds} seeds. The limit is that of `init --repeats`: trials of one recipe. With "never" values are taken as
exact, so the best one measured is recommended. Noise is in the table's numbers, {noises} of the range of its yields.

{repeats}
"""
"""The page."""


def shown(rows: list[dict]) -> list[dict]:
    """Rows without what each seed found, which is for the JSON."""
    return [{key: row[key] for key in row if key != "runs"} for row in rows]


def verdict(misses: list[dict]) -> str:
    """Which seeds of ours are below random's median, in words."""
    ends = [miss for miss in misses if miss["trials"] == LOOKS[-1]]
    lines = [
        f"{miss['table']}, seed {miss['seed']}, after {miss['trials']} trials: {miss['best']:.4g}, "
        f"random {miss['random']:.4g}"
        for miss in misses
    ]
    said = "No run of manyarms ends below random's median."
    if ends:
        said = f"Runs of manyarms that end below random's median: {len(ends)}."
    if not lines:
        return f"{said} None is below it on the way, either."
    return "\n".join(
        [
            f"{said} Those that are below it at any of the three looks:",
            "",
            *(f"- {line}" for line in lines),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", nargs="*", default=TABLES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--baybe", metavar="PYTHON", help="one that has BayBE installed")
    parser.add_argument("--baybe-seeds", type=int, default=5, help="it takes minutes a seed")
    parser.add_argument("--output", type=Path, default=Path("bench-output/reactions"))
    parser.add_argument("--again", action="store_true", help="run ours anew")
    parser.add_argument("--repeats", action="store_true", help="the question of repeats only")
    parser.add_argument("--page", type=Path, help="Markdown page to write, and its JSON")
    options = parser.parse_args()
    rows: list[dict] = []
    misses: list[dict] = []
    if not options.repeats:
        rows, misses = compared(options)
        print(markdown(shown(rows)))
        print(verdict(misses))
    repeats = repeated(options) if options.repeats or options.page else []
    if repeats:
        print(markdown(repeats))
    if options.page:
        published(options, rows, misses, repeats)


def published(options, rows: list[dict], misses: list[dict], repeats: list[dict]) -> None:
    """The page and its JSON."""
    theirs = [json.loads(path.read_text()) for path in options.output.glob("*-baybe-*.json")]
    versions = {
        "python": platform.python_version(),
        "manyarms": ma.__version__,
        "numpy": version("numpy"),
        "baybe": theirs[0]["version"] if theirs else None,
    }
    results = {"versions": versions, "rows": rows, "misses": misses, "repeats": repeats}
    (results_of(options.page.parent) / f"{options.page.stem}.json").write_text(
        json.dumps(results, indent=1)
    )
    text = TEXT.format(
        baybe=versions["baybe"],
        draws=DRAWS,
        table=markdown(shown(rows)),
        verdict=verdict(misses),
        seeds=options.seeds,
        noises=" and ".join(f"{100 * share:g} %" for share in NOISES),
        repeats=markdown(repeats),
    )
    options.page.write_text(text)


if __name__ == "__main__":
    main()
